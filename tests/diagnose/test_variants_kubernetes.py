"""More of kubectl: events, the device plugin's log, budgets as a table, refused drains."""

from __future__ import annotations

import json
from typing import Any

from tests.diagnose.support import facts, findings
from tests.diagnose.variants import Variant, check, table

EVENTS = """\
LAST SEEN   TYPE      REASON                    OBJECT          MESSAGE
5m          Warning   FailedScheduling          pod/train-0     0/12 nodes are available: 12 \
Insufficient nvidia.com/gpu.
4m          Warning   UnexpectedAdmissionError  pod/train-1     Allocate failed due to requested \
number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 7, which is unexpected
3m          Warning   FailedCreatePodSandBox    pod/train-2     Failed to create pod sandbox: OCI \
runtime create failed: nvidia-container-cli: initialization error: nvml error: driver/library \
version mismatch: unknown
"""
PLUGIN = """\
I0303 04:05:06.123456       1 health.go:160] XidCriticalError: Xid=79 on \
Device=GPU-aaaaaaaa-0000-4000-8000-000000000002; marking device as unhealthy.
I0303 04:05:06.123457       1 server.go:270] 'nvidia.com/gpu' device marked unhealthy: \
GPU-aaaaaaaa-0000-4000-8000-000000000002
"""
PODS = """\
NAMESPACE      NAME                                   READY   STATUS             RESTARTS       \
AGE   IP         NODE      NOMINATED NODE   READINESS GATES
gpu-operator   nvidia-device-plugin-daemonset-fghij   0/1     CrashLoopBackOff   112 (2m ago)   \
9d    10.0.0.2   gpu-a02   <none>           <none>
"""
BUDGETS = """\
NAMESPACE   NAME        MIN AVAILABLE   MAX UNAVAILABLE   ALLOWED DISRUPTIONS   AGE
team-a      infer-pdb   1               N/A               0                     9d
team-b      free-pdb    1               N/A               2                     9d
"""
REFUSED = """\
node/gpu-a03 cordoned
error: unable to drain node "gpu-a03" due to error: [cannot delete Pods that declare no controller \
(use --force to override): team-a/bare, cannot delete Pods with local storage (use \
--delete-emptydir-data to override): team-a/scratch], continuing command...
cannot delete Pods that declare no controller (use --force to override): team-a/bare
"""
FORBIDDEN = 'error: nodes "gpu-a03" is forbidden: User "anna" cannot patch resource "nodes"\n'
DOCKER = (
    "docker: Error response from daemon: could not select device driver "
    '"" with capabilities: [[gpu]].\n'
)


def nodes(*changes: dict[str, Any]) -> str:
    """A list of nodes with 8 GPUs each."""
    items = []
    for number, change in enumerate(changes, 1):
        status: dict[str, Any] = {
            "capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }  # fmt: skip
        name = {"name": f"n{number}"}
        items.append({"kind": "Node", "metadata": name, "status": status | change})
    return json.dumps({"kind": "List", "items": items}, indent=1)


DEADLOCK = {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung", "message": "hung"}
READY = {"type": "Ready", "status": "True"}


@table(
    Variant("events", EVENTS, "warn", "no", ("driver/library version mismatch", "Available: 7")),
    Variant("device-plugin", PLUGIN, "warn", "unknown", ("000000000002", "Xid 79")),
    Variant("plugin-pod", PODS, "warn", "no", ("gpu-a02", "CrashLoopBackOff, 112 restarts")),
    Variant("budgets", BUDGETS, "info", "no", ("team-a/infer-pdb",), ("free-pdb",)),
    Variant("refused-drain", REFUSED, "warn", "no", ("gpu-a03", "did not start")),
    Variant("forbidden", FORBIDDEN, "unknown", "no", ("forbidden",)),
    Variant("docker", DOCKER, "warn", "no", ("could not select device driver",), ("refused",)),
    Variant("condition", nodes({}, {"conditions": [READY, DEADLOCK]}), "warn", "no",
            ("n2 reports KernelDeadlock",)),
    Variant("well", nodes({}, {}), "ok", "no", ("2 nodes and 0 pods",)),
    Variant("one-well", nodes({}), "ok", "no", ("1 node and",)),
)  # fmt: skip
def test_the_verdict(variant: Variant) -> None:
    check(variant)


def test_each_kind_of_pod_that_kubectl_refuses_is_told_once() -> None:
    says = [finding.say for finding in findings(check(Variant("", REFUSED, "warn", "no")))]
    assert sum("team-a/bare" in say for say in says) == 1
    assert sum("team-a/scratch" in say for say in says) == 1


def test_a_whole_document_is_not_said_to_be_cut() -> None:
    whole = check(Variant("", nodes({}, {}), "ok", "no"))
    assert not any("cut" in text for part in whole.inputs for text in part.unknown)
    cut = check(Variant("", nodes({}, {})[:-30], "ok", "no"))
    assert any("cut" in text for part in cut.inputs for text in part.unknown)


def test_the_pod_s_node_is_the_one_it_runs_on() -> None:
    (one,) = findings(check(Variant("", PODS, "warn", "no")))
    assert one.node == "gpu-a02"


def test_a_gpu_that_the_plugin_names_twice_is_one() -> None:
    told = check(Variant("", PLUGIN, "warn", "unknown"))
    assert facts(told)["unhealthy"] == ["GPU-aaaaaaaa-0000-4000-8000-000000000002"]
    assert len(findings(told)) == 1
