"""Nodes, work, cordon and uncordon through a real kubectl."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from inventory.errors import SchedulerError, UsageError
from inventory.kubernetes import Kubernetes
from inventory.run import LocalRun
from inventory.scheduler import MARKER, Step
from tests.kubernetes.api import Api, node, pod


async def final(steps: AsyncIterator[Step]) -> dict[str, Step]:
    """The last Step of each node."""
    return {step.node: step async for step in steps}


async def test_nodes_with_gpus_are_the_inventory(kubernetes: Kubernetes) -> None:
    found = await kubernetes.inventory("")
    assert [one.name for one in found.nodes] == ["gpu1", "gpu2", "gpu3", "gpu4"]
    assert found.cluster == "lab"
    assert {one.gpus for one in found.nodes} == {8}
    assert {one.role for one in found.nodes} == {"NVIDIA-H100-80GB-HBM3x8"}
    assert {one.scheduler for one in found.nodes} == {"kubernetes:lab"}


async def test_a_node_whose_plugin_offers_nothing_is_still_one(
    api: Api, kubernetes: Kubernetes
) -> None:
    api.add(node("gpu5", usable=0))
    assert "gpu5" in [one.name for one in (await kubernetes.inventory("")).nodes]
    (seen,) = await kubernetes.allocations(["gpu5"])
    assert "0 of 8 GPUs allocatable" in seen.raw


async def test_states(api: Api, kubernetes: Kubernetes) -> None:
    api.add(node("gpu6", ready="False"), node("gpu7", ready="Unknown"))
    api.change("gpu2", unschedulable=True)
    api.change("gpu4", unschedulable=True)
    seen = {one.node: one for one in await kubernetes.allocations()}
    assert {name: one.state for name, one in seen.items()} == {
        "gpu1": "allocated", "gpu2": "draining", "gpu3": "idle", "gpu4": "drained",
        "gpu6": "down", "gpu7": "down", "cpu1": "idle",
    }  # fmt: skip
    assert [(job.id, job.nodes) for job in seen["gpu1"].jobs] == [("team-a/Job/train", 2)]
    assert not seen["gpu3"].jobs, "ended pods and daemon sets are no work"
    assert seen["gpu6"].responding
    assert not seen["gpu7"].responding
    assert not seen["gpu4"].ours
    assert "without a reason" in seen["gpu4"].reason


async def test_an_unknown_name_is_unknown(kubernetes: Kubernetes) -> None:
    (seen,) = await kubernetes.allocations(["gpu9"])
    assert (seen.state, seen.raw) == ("unknown", "not known to Kubernetes")


async def test_drain_signs_and_resume_leaves_no_trace(api: Api, kubernetes: Kubernetes) -> None:
    before = json.dumps(api.nodes["gpu3"]["metadata"]["annotations"])
    done = await final(kubernetes.drain(["gpu3"], "xid 79 on GPU3"))
    assert done["gpu3"].phase == "done"
    (seen,) = await kubernetes.allocations(["gpu3"])
    assert seen.state == "drained"
    assert seen.ours
    assert seen.reason == f"{MARKER} xid 79 on GPU3"
    assert seen.reason_at is not None
    done = await final(kubernetes.resume(["gpu3"]))
    assert done["gpu3"].phase == "done"
    assert "unschedulable" not in api.nodes["gpu3"]["spec"]
    assert json.dumps(api.nodes["gpu3"]["metadata"]["annotations"]) == before


async def test_running_pods_are_left_alone(api: Api, kubernetes: Kubernetes) -> None:
    pods = len(api.pods)
    await final(kubernetes.drain(["gpu1"], "row remap pending"))
    (seen,) = await kubernetes.allocations(["gpu1"])
    assert seen.state == "draining"
    assert len(api.pods) == pods
    assert {line.split()[0] for line in api.requests} == {"GET", "PATCH"}


async def test_somebody_elses_cordon(api: Api, run: LocalRun, kubernetes: Kubernetes) -> None:
    cordon = await run(["kubectl", "cordon", "gpu2"])
    assert cordon.rc == 0
    api.requests.clear()
    done = await final(kubernetes.drain(["gpu2"], "slow"))
    assert done["gpu2"].phase == "refused"
    assert not any("PATCH" in line for line in api.requests)
    done = await final(kubernetes.drain(["gpu2"], "slow", override=True))
    assert done["gpu2"].phase == "done"
    (seen,) = await kubernetes.allocations(["gpu2"])
    assert not seen.ours, "it is the other person's too"
    done = await final(kubernetes.resume(["gpu2"]))
    assert done["gpu2"].phase == "refused"
    assert api.nodes["gpu2"]["spec"]["unschedulable"] is True


async def test_a_write_of_somebody_else_in_between(api: Api, kubernetes: Kubernetes) -> None:
    """They cordon after we read and before we write: the API says 409, and then it is theirs."""
    once = iter([True])

    def interfere(name: str) -> None:
        if next(once, False):
            api.change(name, unschedulable=True)

    api.before_patch = interfere
    done = await final(kubernetes.drain(["gpu3"], "xid 79"))
    assert done["gpu3"].phase == "refused"
    assert "gpuconsole/reason" not in api.nodes["gpu3"]["metadata"]["annotations"]


async def test_a_harmless_change_in_between_is_tried_again(
    api: Api, kubernetes: Kubernetes
) -> None:
    once = iter([True])
    api.before_patch = lambda name: (
        api.change(name, podCIDR="10.0.0.0/24") if next(once, 0) else None
    )
    done = await final(kubernetes.drain(["gpu3"], "xid 79"))
    assert done["gpu3"].phase == "done"


async def test_partial_success_is_told_per_node(kubernetes: Kubernetes) -> None:
    done = await final(kubernetes.drain(["gpu3", "gpu9", "gpu4"], "bad rack"))
    assert {name: step.phase for name, step in done.items()} == {
        "gpu3": "done", "gpu4": "done", "gpu9": "refused",
    }  # fmt: skip


async def test_a_reader_may_not_write(api: Api, run: LocalRun) -> None:
    reader = Kubernetes(run, "readers")
    done = await final(reader.drain(["gpu3", "gpu4"], "x"))
    assert {step.phase for step in done.values()} == {"failed"}
    assert all("not permitted" in step.detail for step in done.values())
    assert not any(one["spec"] for one in api.nodes.values())


async def test_without_the_pods_idle_is_not_claimed(run: LocalRun) -> None:
    with pytest.raises(SchedulerError, match="not permitted"):
        await Kubernetes(run, "readers").allocations()


async def test_trouble_is_one_sentence(
    api: Api, run: LocalRun, kubernetes: Kubernetes, tmp_path: Path
) -> None:
    api.answer = (503, "ServiceUnavailable")
    with pytest.raises(SchedulerError, match="not available"):
        await kubernetes.allocations()
    api.answer = None
    with pytest.raises(SchedulerError, match="no such context"):
        await Kubernetes(run, "elsewhere").allocations()
    with pytest.raises(SchedulerError, match="no current context"):
        await Kubernetes(LocalRun({**run.env, "KUBECONFIG": str(tmp_path / "no")})).allocations()


async def test_a_server_that_is_down_is_asked_once(api: Api, kubernetes: Kubernetes) -> None:
    await kubernetes.allocations()
    api.requests.clear()
    api.answer = (503, "ServiceUnavailable")
    done = await final(kubernetes.drain([f"gpu{n}" for n in range(1, 200)], "x"))
    assert {step.phase for step in done.values()} == {"failed"}
    assert len(done) == 199
    assert sum("/nodes/" in line for line in api.requests) < 60


async def test_a_cluster_without_gpus(api: Api, kubernetes: Kubernetes) -> None:
    api.nodes = {"cpu1": api.nodes["cpu1"]}
    with pytest.raises(UsageError, match=r"no node offers nvidia\.com/gpu"):
        await kubernetes.inventory("")


async def test_hostile_reasons_are_text(api: Api, kubernetes: Kubernetes) -> None:
    reason = '"; rm -rf / #\n--all $(reboot) \x1b[31m ünïcode'
    await final(kubernetes.drain(["gpu3"], reason))
    written = api.nodes["gpu3"]["metadata"]["annotations"]["gpuconsole/reason"]
    assert written.startswith(f"{MARKER} ")
    assert "\n" not in written
    assert "\x1b" not in written
    assert "ünïcode" in written


async def test_a_name_is_never_an_option(api: Api, kubernetes: Kubernetes) -> None:
    done = await final(kubernetes.drain(["--all", "-o=yaml"], "x"))
    assert {step.phase for step in done.values()} <= {"refused", "failed"}
    assert not any(one["spec"] for one in api.nodes.values())


async def test_the_plan_shows_what_is_run(api: Api, run: LocalRun, kubernetes: Kubernetes) -> None:
    await kubernetes.allocations()
    (command,) = kubernetes.drain_commands(["gpu3"], "xid 79")
    assert (await run(command)).rc == 0
    (seen,) = await kubernetes.allocations(["gpu3"])
    assert (seen.state, seen.ours) == ("drained", True)


async def test_init_containers_and_pods_that_leave_hold_gpus(
    api: Api, kubernetes: Kubernetes
) -> None:
    leaving = pod("leaving", "gpu4", gpus=2)
    leaving["metadata"]["deletionTimestamp"] = "2026-03-03T04:05:06Z"
    first = pod("first", "gpu4", gpus=1)
    first["spec"]["initContainers"] = [{"resources": {"limits": {"nvidia.com/gpu": "6"}}}]
    api.add(leaving, first)
    (seen,) = await kubernetes.allocations(["gpu4"])
    assert seen.state == "allocated", "2 + max(6, 1) = 8 of 8"


async def test_two_consoles_at_once_leave_one_reason(api: Api, kubernetes: Kubernetes) -> None:
    """The second finds the node drained by the first between its plan and its write."""
    await final(kubernetes.drain(["gpu3"], "xid 79"))
    done = await final(kubernetes.drain(["gpu3"], "something else"))
    assert done["gpu3"].phase == "done"
    assert "already" in done["gpu3"].detail
    assert api.nodes["gpu3"]["metadata"]["annotations"]["gpuconsole/reason"].endswith("xid 79")


@pytest.mark.parametrize("at", ["\u00b2", "9" * 400, "soon", "-1"])
async def test_annotations_that_anybody_wrote(api: Api, kubernetes: Kubernetes, at: str) -> None:
    marks = {"gpuconsole/reason": "gpuconsole: x", "gpuconsole/at": at}
    api.nodes["gpu3"]["metadata"]["annotations"].update(marks)
    api.nodes["gpu3"]["metadata"]["labels"]["nvidia.com/gpu.count"] = at
    api.change("gpu3", unschedulable=True)
    (seen,) = await kubernetes.allocations(["gpu3"])
    assert seen.reason_at is None


def wrapped(folder: Path, run: LocalRun, script: str) -> Kubernetes:
    """A kubectl of the site's in front of the real one; $real is that one."""
    real = shutil.which("kubectl", path=run.env["PATH"])
    path = folder / "wrapped" / "kubectl"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\nreal={real}\n{script}\n")
    path.chmod(0o755)
    return Kubernetes(LocalRun({**run.env, "PATH": f"{path.parent}:{run.env['PATH']}"}))


async def test_a_write_whose_answer_is_garbled_is_looked_at_again(
    api: Api, run: LocalRun, tmp_path: Path
) -> None:
    script = 'case "$*" in *patch*) echo Warning: old; esac; exec $real "$@"'
    done = await final(wrapped(tmp_path, run, script).drain(["gpu3"], "xid 79"))
    assert done["gpu3"].phase == "done"
    assert api.nodes["gpu3"]["spec"]["unschedulable"] is True


@pytest.mark.parametrize(
    "script",
    [
        'case "$*" in *get*) exec $real "$@" | head -c 900; esac; exec $real "$@"',
        'case "$*" in *get*) echo NAME STATUS ROLES; exit 0; esac; exec $real "$@"',
        'case "$*" in *get*) yes "[" | tr -d "\\n" | head -c 900000; exit 0; esac; exec $real "$@"',
        'case "$*" in *get*) exec cat /dev/zero; esac; exec $real "$@"',
    ],
    ids=["cut short", "a table", "nested", "endless"],
)
async def test_what_kubectl_prints_instead(run: LocalRun, tmp_path: Path, script: str) -> None:
    with pytest.raises(SchedulerError) as error:
        await wrapped(tmp_path, run, script).allocations()
    assert len(str(error.value)) < 1000
