"""kubectl's objects, tables and descriptions, and the output of a drain."""

# ruff: noqa: E501 - pasted output is as wide as its program prints it

from __future__ import annotations

import json
from typing import Any

import pytest

from probes.event import Severity
from tests.diagnose.support import about, case, demand, findings, only, part, rules, ticket


def node(
    name: str = "gpu-a01", capacity: Any = "8", offered: Any = "8", **more: Any
) -> dict[str, Any]:
    status: dict[str, Any] = {
        "capacity": {"cpu": "192", "nvidia.com/gpu": capacity},
        "allocatable": {"cpu": "191", "nvidia.com/gpu": offered},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    for key in ("capacity", "allocatable"):
        if capacity is None:
            del status[key]["nvidia.com/gpu"]
    status["conditions"] += more.pop("conditions", [])
    if "ready" in more:
        status["conditions"][0]["status"] = more.pop("ready")
    labels = more.pop("labels", {})
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": more,
        "status": status,
    }


def pod(name: str, gpus: Any = None, phase: str = "Running", **more: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}}
    metadata: dict[str, Any] = {
        "name": name, "namespace": "team-a",
        "ownerReferences": [{"kind": "Job", "controller": True}],
    }  # fmt: skip
    metadata |= more.pop("metadata", {})
    spec = {"nodeName": "gpu-a01", "containers": [container], **more.pop("spec", {})}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase, **more}}


def listed(*items: dict[str, Any], indent: int | None = 1) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}, indent=indent)


# ------------------------------------------------------------------------------- field cases


def test_what_nodes_offer() -> None:
    name = "kubernetes-allocatable-seven-of-eight"
    found = only(case(name))
    assert found.facts["gpus"] == demand(name)["facts"]
    assert {f.node for f in found.findings} == {"gpu-a02", "gpu-a03", "gpu-a04"}
    for words in ("gpu-a02 offers 7 of 8", "gpu-a03 offers none", "gpu-a04 has labels of 8 GPUs"):
        assert words in found.say


def test_accounting_of_pods() -> None:
    name = "kubernetes-gpu-accounting-of-pods"
    found, wanted = only(case(name)), demand(name)["facts"]
    assert {key: found.facts[key] for key in wanted} == wanted
    assert "9 GPUs" in about(case(name), "k8s.overcommitted").say
    assert "bare" in found.say


def test_a_blocked_eviction_names_its_budget() -> None:
    name = "kubernetes-pdb-blocked-eviction"
    told = part(case(name), "drain")
    wanted = demand(name)["facts"]
    for key in ("cordoned", "evicted", "ignored_daemonset_pods"):
        assert told.facts[key] == wanted[key]
    (blocked,) = told.facts["blocked"].items()
    assert blocked[0] == "team-a/infer-0"
    assert blocked[1].items() >= wanted["blocked"]["team-a/infer-0"].items()
    assert told.facts["drained"] is False


# --------------------------------------------------------------------------------------- nodes


@pytest.mark.parametrize(
    ("one", "rule", "said"),
    [
        (node(), None, ""), (node(capacity=None), None, ""), (node(capacity=8, offered=8), None, ""),
        (node(offered="7"), "k8s.gpus", "7 of 8"), (node(offered="0"), "k8s.gpus", "none of its 8"),
        (node(capacity="7", offered="7", labels={"nvidia.com/gpu.count": "8"}), "k8s.gpus", "7 of 8"),
        (node(capacity=None, labels={"nvidia.com/gpu.count": "8"}), "k8s.gpus", "no GPU resource"),
        (node(ready="False"), "k8s.not_ready", "not ready"),
        (node(ready="Unknown"), "k8s.not_ready", "Unknown"),
        (node(conditions=[{"type": "DiskPressure", "status": "True", "reason": "Full"}]),
         "k8s.condition", "DiskPressure"),
        (node(conditions=[{"type": "GpuXidError", "status": "True", "message": "Xid 79"}]),
         "k8s.condition", "Xid 79"),
        (node(conditions=[{"type": "MemoryPressure", "status": "False"}]), None, ""),
    ],
)  # fmt: skip
def test_one_node(one: dict[str, Any], rule: str | None, said: str) -> None:
    diagnosis = ticket(listed(one))
    assert rules(diagnosis) == ({rule} if rule else set())
    assert said in "".join(f.say for f in findings(diagnosis))


def test_cordons_and_taints_are_information() -> None:
    taints = [{"key": "maintenance", "value": "ops2", "effect": "NoSchedule"},
              {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]  # fmt: skip
    diagnosis = ticket(listed(node(unschedulable=True, taints=taints)))
    assert rules(diagnosis) == set()
    assert only(diagnosis).facts["cordoned"] == ["gpu-a01"]
    assert any("maintenance=ops2:NoSchedule" in f.say for f in findings(diagnosis))
    assert not any("nvidia.com/gpu=" in f.say for f in findings(diagnosis))


def test_one_line_json_and_one_object_and_yaml_and_a_cut_list() -> None:
    import yaml

    one = node(offered="7")
    whole = json.loads(listed(one, node("gpu-a02")))
    for text in (listed(one, indent=None), json.dumps(one, indent=1), yaml.safe_dump(one),
                 yaml.safe_dump(whole), listed(one, node("gpu-a02"))[:-300]):  # fmt: skip
        assert rules(ticket(text)) == {"k8s.gpus"}, text[:60]


def test_a_cut_list_says_that_it_is_cut() -> None:
    cut = only(ticket(listed(node(), node("gpu-a02"))[:-300]))
    assert any("cut short" in sentence for sentence in cut.unknown)
    assert not any("cut short" in s for s in only(ticket(listed(node()))).unknown)


def test_yaml_aliases_are_refused() -> None:
    text = "kind: List\nmetadata: &a {x: 1}\nitems: [*a, *a]\n"
    assert only(ticket(text)).verdict is Severity.UNKNOWN


# ---------------------------------------------------------------------------------------- pods


def test_requests_of_init_containers_and_sidecars() -> None:
    init = {"name": "i", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    side = {
        "name": "s",
        "restartPolicy": "Always",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    pods = [
        pod("plain", "2"), pod("init", "1", spec={"initContainers": [init]}),
        pod("sidecar", "2", spec={"initContainers": [side]}), pod("done", "8", phase="Succeeded"),
        pod("mig", None, spec={"containers": [{"resources": {"requests": {"nvidia.com/mig-1g.10gb": 3}}}]}),
    ]  # fmt: skip
    found = only(ticket(listed(*pods))).facts
    assert found["gpus_requested"] == {"plain": 2, "init": 4, "sidecar": 3, "mig": 3}
    assert found["not_counted"] == ["done"]
    assert "free" not in found, "nobody told what the node offers"


def test_free_gpus_never_go_below_nothing() -> None:
    found = only(ticket(listed(node(), pod("a", "8"), pod("b", "2")))).facts
    assert (found["free"], found["overcommitted_by"]) == (0, 2)
    found = only(ticket(listed(node(), pod("a", "6")))).facts
    assert (found["free"], found["overcommitted_by"]) == (2, 0)


TABLE = """NAMESPACE      NAME                                 READY   STATUS                     RESTARTS        AGE   IP     NODE
gpu-operator   nvidia-device-plugin-daemonset-x7    0/1     CrashLoopBackOff           12 (3m ago)     5d    1.2    gpu-a02
gpu-operator   nvidia-dcgm-exporter-y8              1/1     Running                    0               5d    1.2    gpu-a01
team-a         train-0                              0/1     UnexpectedAdmissionError   0               1d    1.2    gpu-a03
team-a         train-1                              0/1     Pending                    0               1d    <none> <none>
team-a         web                                  0/1     ImagePullBackOff           0               1d    1.2    gpu-a01
team-a         gone                                 0/1     Evicted                    0               1d    1.2    gpu-a01
team-a         done                                 0/1     Completed                  0               1d    1.2    gpu-a01
"""


def test_tables_of_pods() -> None:
    diagnosis = ticket(TABLE)
    assert rules(diagnosis) == {"k8s.gpu_pod", "k8s.admission"}
    plugin = about(diagnosis, "k8s.gpu_pod")
    assert plugin.node == "gpu-a02"
    assert "12 restarts" in plugin.say
    assert about(diagnosis, "k8s.admission").node == "gpu-a03"
    assert set(only(diagnosis).facts["failing_pods"]) == {"web", "gone"}


def test_tables_of_nodes() -> None:
    diagnosis = ticket("NAME      STATUS                     ROLES    AGE   VERSION\n"
                       "gpu-a01   Ready                      <none>   10d   v1.31.4\n"
                       "gpu-a02   NotReady                   <none>   10d   v1.31.4\n"
                       "gpu-a03   Ready,SchedulingDisabled   <none>   10d   v1.31.4\n")  # fmt: skip
    assert about(diagnosis, "k8s.not_ready").node == "gpu-a02"
    assert only(diagnosis).facts["cordoned"] == ["gpu-a03"]


DESCRIBE = """Name:               gpu-a02
Roles:              <none>
Labels:             kubernetes.io/hostname=gpu-a02
                    nvidia.com/gpu.count=8
Taints:             node.kubernetes.io/unschedulable:NoSchedule
Unschedulable:      true
Conditions:
  Type             Status  LastHeartbeatTime                 LastTransitionTime                Reason                       Message
  ----             ------  -----------------                 ------------------                ------                       -------
  MemoryPressure   False   Tue, 03 Mar 2026 04:05:06 +0000   Tue, 03 Mar 2026 04:05:06 +0000   KubeletHasSufficientMemory   kubelet has sufficient memory available
  Ready            False   Tue, 03 Mar 2026 04:05:06 +0000   Tue, 03 Mar 2026 04:05:06 +0000   KubeletNotReady              container runtime is down
Capacity:
  cpu:                192
  nvidia.com/gpu:     8
Allocatable:
  cpu:                191
  nvidia.com/gpu:     6
"""


def test_a_described_node() -> None:
    diagnosis = ticket(DESCRIBE)
    assert rules(diagnosis) == {"k8s.gpus", "k8s.not_ready"}
    assert only(diagnosis).facts["gpus"] == {"gpu-a02": [8, 6]}
    assert "container runtime is down" in " ".join(about(diagnosis, "k8s.not_ready").evidence)


@pytest.mark.parametrize(
    ("message", "grade"),
    [
        ("0/12 nodes are available: 8 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint "
         "{node-role: }.", Severity.INFO),
        ("0/12 nodes are available: 12 node(s) didn't match Pod's node affinity/selector.",
         Severity.WARN),
    ],
)  # fmt: skip
def test_why_pods_wait(message: str, grade: Severity) -> None:
    waiting = pod("p", "8", phase="Pending", conditions=[
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    ], spec={"nodeName": ""})  # fmt: skip
    assert about(ticket(listed(waiting)), "k8s.pending").severity is grade
    event = f"  Warning  FailedScheduling  3m  default-scheduler  {message}\n"
    assert about(ticket(event), "k8s.pending").severity is grade


@pytest.mark.parametrize(
    "line",
    ["error: You must be logged in to the server (Unauthorized)",
     "Unable to connect to the server: x509: certificate has expired or is not yet valid",
     "The connection to the server 192.0.2.1:6443 was refused - did you specify the right host?",
     'Error from server (Forbidden): nodes is forbidden: User "u" cannot list resource "nodes"'],
)  # fmt: skip
def test_kubectl_that_fails_is_unknown(line: str) -> None:
    diagnosis = ticket(line + "\n")
    assert diagnosis.verdict is Severity.UNKNOWN
    assert about(diagnosis, "k8s.api").evidence == (line,)


# --------------------------------------------------------------------------------------- drain


def test_a_finished_drain() -> None:
    diagnosis = ticket(
        "node/gpu-a03 cordoned\nevicting pod a/b\npod/b evicted\nnode/gpu-a03 drained\n"
    )
    told = only(diagnosis)
    assert told.facts["drained"] is True
    assert diagnosis.verdict is Severity.OK


def test_a_pod_that_went_in_the_end_does_not_block() -> None:
    refused = 'error when evicting pods/"b" -n "a" (will retry after 5s): Cannot evict pod as it would violate the pod\'s disruption budget.'
    text = f"node/n1 cordoned\nevicting pod a/b\n{refused}\n{refused}\npod/b evicted\nnode/n1 drained\n"
    assert rules(ticket(text)) == set()


def test_newer_kubectl_names_the_budget_itself() -> None:
    line = ('error when evicting pods/"b" -n "a" (will retry after 5s): Cannot evict pod as it would '
            "violate the pod's disruption budget. The disruption budget web needs 1 healthy pods and "
            "has 1 currently")  # fmt: skip
    told = only(ticket(f"node/n1 cordoned\nevicting pod a/b\n{line}\n"))
    assert told.facts["blocked"]["a/b"]["pdb"] == "web"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('node/n1 cordoned\nerror: unable to drain node "n1" due to error: cannot delete Pods with '
         "local storage (use --delete-emptydir-data to override): team-a/web, continuing command...",
         "k8s.drain_refused"),
        ("node/n1 already cordoned\nevicting pod a/b\nThere are pending nodes to be drained:\n n1\n"
         'error when waiting for pod "b" in namespace "a" to terminate: global timeout reached: 1m0s',
         "k8s.drain_timeout"),
    ],
)  # fmt: skip
def test_drains_that_did_not_work(text: str, rule: str) -> None:
    diagnosis = ticket(text)
    assert rules(diagnosis) == {rule}
    assert only(diagnosis).facts["drained"] is False


def test_our_own_drain_as_json_and_as_text() -> None:
    from console.output import as_json
    from inventory.scheduler import Step

    steps = [
        Step(node="gpu-a08", at=1.0, phase="check", ok=True, detail="mixed"),
        Step(node="gpu-a08", at=1.0, phase="refused", ok=False, detail="left alone: drained by ops2"),
        Step(node="gpu-a09", at=1.0, phase="done", ok=True, detail="draining"),
    ]  # fmt: skip
    for text in (
        b"".join(as_json(step, indent=False) for step in steps).decode(),
        "gpu-a08: refused: left alone: drained by ops2\ngpu-a09: done: draining\n",
    ):
        diagnosis = ticket(text)
        left = about(diagnosis, "drain.left_alone")
        assert left.node == "gpu-a08"
        assert "ops2" in left.say
        assert only(diagnosis).facts["steps"] == {"gpu-a08": "refused", "gpu-a09": "done"}
        assert diagnosis.say == "1 of 2 nodes as ordered; 1 left as they were"


def test_a_list_of_many_lines_is_read_whole(tmp_path: Any) -> None:
    """Larger than what is taken apart into pieces, and with more lines than are kept."""
    from console.diagnose import text
    from console.diagnose.command import diagnose

    file = tmp_path / "pods"
    pods = [pod(f"p{n}", spec={"nodeName": f"n{n}"}) for n in range(12_000)]
    file.write_text(listed(*pods))
    assert file.stat().st_size > text.SMALL_BYTES
    told = only(diagnose([text.open_input(str(file))]))
    assert "12000 pods" in told.say
