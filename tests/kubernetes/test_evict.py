"""Evicting pods: what goes, what stays, what only goes on request, budgets, deadlines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from inventory import kube_evict
from inventory.kube_evict import Eviction, sort_pods
from inventory.kube_text import read_pods
from inventory.kubernetes import Kubernetes
from inventory.run import LocalRun
from inventory.scheduler import Step
from tests.kubernetes.api import Api, pod


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once; how often is counted, not timed."""
    monkeypatch.setattr(kube_evict, "RETRY_S", 0.0)
    monkeypatch.setattr(kube_evict, "POLL_S", 0.0)


async def evicted(kubernetes: Kubernetes, node: str, **wish: Any) -> list[Step]:
    return [step async for step in kubernetes.evict([node], Eviction(**wish))]


async def test_pods_go_and_those_of_the_node_stay(api: Api, kubernetes: Kubernetes) -> None:
    mirror = pod("kube-proxy-gpu1", "gpu1", owner="Node/gpu1")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    api.add(pod("dcgm-y", "gpu1", owner="DaemonSet/dcgm"), mirror)
    api.lingers["train-0"] = 2
    steps = await evicted(kubernetes, "gpu1", grace_s=7)
    assert steps[-1].ok
    assert steps[-1].detail == "1 pods evicted, the node is empty"
    assert [one["metadata"]["name"] for one in api.evictions] == ["train-0"]
    assert api.evictions[0]["deleteOptions"]["gracePeriodSeconds"] == 7
    left = {p["metadata"]["name"] for p in api.pods if p["spec"]["nodeName"] == "gpu1"}
    assert left == {"dcgm-y", "kube-proxy-gpu1"}


async def test_a_budget_is_respected_and_tried_again(api: Api, kubernetes: Kubernetes) -> None:
    api.protected["train-0"] = 3
    steps = await evicted(kubernetes, "gpu1")
    assert steps[-1].ok
    told = [step.detail for step in steps if "disruption budget" in step.detail]
    assert len(told) == 1, "said once, not at every try"
    assert sum("POST" in line for line in api.requests) == 4


async def test_a_budget_that_never_yields_ends_at_the_deadline(
    api: Api, kubernetes: Kubernetes
) -> None:
    api.protected["train-0"] = 10**6
    steps = await evicted(kubernetes, "gpu1", deadline_s=0.0)
    assert not steps[-1].ok
    assert "team-a/train-0" in steps[-1].detail
    assert "disruption budget" in steps[-1].detail
    assert [p for p in api.pods if p["metadata"]["name"] == "train-0"]


def bare() -> dict[str, Any]:
    one = pod("bare", "gpu1")
    one["metadata"]["ownerReferences"] = []
    return one


def scratch() -> dict[str, Any]:
    one = pod("scratch", "gpu1")
    one["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    return one


async def test_what_would_be_lost_goes_only_on_request(api: Api, kubernetes: Kubernetes) -> None:
    """And then nothing else goes either: half a drain is worth nothing."""
    api.add(bare(), scratch())
    steps = await evicted(kubernetes, "gpu1")
    assert not steps[-1].ok
    assert "team-a/bare" in steps[0].detail
    assert "team-a/scratch" in steps[0].detail
    assert api.evictions == []
    steps = await evicted(kubernetes, "gpu1", local_data=True, unmanaged=True)
    assert steps[-1].ok
    assert len(api.evictions) == 3


async def test_a_pod_that_left_by_itself_is_no_trouble(
    api: Api, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed, and gone when its eviction arrives: the API answers 404."""
    answer = api.evict

    def too_late(path: str, headers: Any, body: Any) -> Any:
        api.pods.clear()
        return answer(path, headers, body)

    monkeypatch.setattr(api, "evict", too_late)
    steps = await evicted(kubernetes, "gpu1")
    assert steps[-1].ok


async def test_a_reader_evicts_nothing(api: Api, run: LocalRun) -> None:
    steps = [s async for s in Kubernetes(run, "readers").evict(["gpu1"], Eviction())]
    assert not steps[-1].ok
    assert "not permitted" in steps[-1].detail
    assert api.evictions == []


async def test_the_next_pod_of_that_name_is_another_one(
    api: Api, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A StatefulSet's web-0 comes back on another node under the same name: it stays."""
    api.add(pod("web-0", "gpu4", owner="StatefulSet/web"))
    answer = api.evict

    def moved(path: str, headers: Any, body: Any) -> Any:
        if not any(p["spec"]["nodeName"] == "gpu2" and "web" in p["metadata"]["name"]
                   for p in api.pods):  # fmt: skip
            api.pods = [p for p in api.pods if p["metadata"]["name"] != "web-0"]
            api.add(pod("web-0", "gpu2", owner="StatefulSet/web"))
        return answer(path, headers, body)

    monkeypatch.setattr(api, "evict", moved)
    steps = await evicted(kubernetes, "gpu4")
    assert steps[-1].ok
    assert api.evictions == []
    assert [p for p in api.pods if p["metadata"]["name"] == "web-0"]


async def test_a_pod_that_comes_meanwhile_is_told_and_stays(
    api: Api, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = api.evict

    def joined(path: str, headers: Any, body: Any) -> Any:
        api.add(pod("late-0", "gpu1"))
        return answer(path, headers, body)

    monkeypatch.setattr(api, "evict", joined)
    steps = await evicted(kubernetes, "gpu1")
    assert not steps[-1].ok
    assert "came meanwhile and stay: team-a/late-0" in steps[-1].detail
    assert len(api.evictions) == 1


async def test_what_went_before_the_trouble_is_told(
    api: Api, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.add(pod("train-9", "gpu1"))
    answer = api.evict

    def denied(path: str, headers: Any, body: Any) -> Any:
        if api.evictions:
            return 403, {"kind": "Status", "status": "Failure", "reason": "Forbidden",
                         "message": "no", "code": 403}  # fmt: skip
        return answer(path, headers, body)

    monkeypatch.setattr(api, "evict", denied)
    steps = await evicted(kubernetes, "gpu1")
    assert not steps[-1].ok
    assert "evicted before that: team-a/train-0" in steps[-1].detail


def test_sorting_accounts_for_every_pod_that_runs() -> None:
    pods = [
        pod("done", "n", phase="Succeeded"), pod("ds", "n", owner="DaemonSet/x"),
        pod("a", "n"), bare(), scratch(),
    ]  # fmt: skip
    read = read_pods(json.dumps({"items": pods}))
    found = sort_pods(read, Eviction(local_data=True))
    assert [p.metadata.name for p in found.leave] == ["ds"]
    assert [p.metadata.name for p in found.go] == ["a", "scratch"]
    assert list(found.held) == ["team-a/bare"]


def test_the_whole_command(api: Api, command: Any) -> None:
    words = ("drain", "gpu1", "-i", "k8s:", "--reason", "xid 79")
    _, (plan,) = command(*words, "--evict", "--dry-run")
    assert any("evicts team-a/train-0" in text for text in plan["warnings"])
    assert api.evictions == []
    rc, _ = command(*words, "--yes", "--no-evidence")
    assert rc == 0
    assert api.evictions == [], "without --evict pods go on"
    command("resume", "gpu1", "-i", "k8s:", "--yes", "--despite-findings")
    rc, steps = command(*words, "--yes", "--evict", "--no-evidence")
    assert rc == 0, steps
    assert [s["detail"] for s in steps if s["phase"] == "evict"][-1].endswith("the node is empty")
    assert len(api.evictions) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_console_that_is_ended_while_a_budget_is_waited_for(
    api: Api, command: Any, environment: dict[str, str], number: signal.Signals
) -> None:
    """The cordon stays and is explained; the pod is as it was; a second drain goes on with it."""
    api.protected["train-0"] = 10**6
    words = ["drain", "gpu1", "-i", "k8s:", "--reason", "xid 79", "--yes", "--no-evidence"]
    argv = [sys.executable, "-m", "console.cli", *words, "--evict", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, text=True) as console:
        assert console.stdout is not None
        next(line for line in console.stdout if "disruption budget" in line)
        os.kill(console.pid, number)
        console.wait(250)
    assert api.nodes["gpu1"]["spec"]["unschedulable"] is True
    assert api.evictions == []
    _, told = command("audit")
    assert [line["what"] for line in told][:2] == ["intend", "outcome"]
    api.protected.clear()
    command("resume", "gpu1", "-i", "k8s:", "--yes", "--despite-findings")
    rc, steps = command(*words, "--evict")
    assert rc == 0, steps
    assert len(api.evictions) == 1
