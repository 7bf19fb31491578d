"""The verdict order and what is never ok."""

from __future__ import annotations

import pytest

from inventory.node import Node
from inventory.scheduler import Allocation
from probes.event import Finding, NodeState, NodeStatus, Sample, Scalar, Severity
from probes.facts import NodeFacts
from probes.verdict import verdict

NOW = 100.0
BLIND = [
    NodeState.PENDING, NodeState.CONNECTING, NodeState.HUNG, NodeState.STALE,
    NodeState.UNREACHABLE, NodeState.AUTH_FAILED, NodeState.HOST_KEY_CHANGED, NodeState.NO_PYTHON,
]  # fmt: skip


def facts(state: NodeState | None = NodeState.UP, *, gpus: int | None = None) -> NodeFacts:
    known = NodeFacts(Node(name="n1", gpus=gpus))
    if state is not None:
        known.apply(NodeStatus(node="n1", at=1.0, state=state))
    return known


def put(known: NodeFacts, probe: str, values: dict[str, Scalar], device: str = "") -> NodeFacts:
    known.apply(Sample(node="n1", probe=probe, device=device, at=1.0, clock=1.0, values=values))
    return known


def healthy(state: NodeState | None = NodeState.UP) -> NodeFacts:
    return put(facts(state), "gpu", {"index": 0, "temp_c": 40}, "0000:1b:00.0")


def found(*severities: Severity) -> list[Finding]:
    return [Finding(rule="a.b", severity=s, node="n1", say="x") for s in severities]


def off(known: NodeFacts) -> NodeFacts:
    known.apply(Allocation(node="n1", at=1.0, scheduler="slurm", state="off"))
    return known


def test_answering_node_without_findings_is_ok() -> None:
    assert verdict(healthy(), [], NOW) is Severity.OK
    assert verdict(healthy(NodeState.ENDED), [], NOW) is Severity.OK


@pytest.mark.parametrize(
    ("severities", "expected"),
    [
        ((Severity.INFO,), Severity.INFO),
        ((Severity.INFO, Severity.WARN), Severity.WARN),
        ((Severity.WARN, Severity.UNKNOWN), Severity.UNKNOWN),
        ((Severity.CRITICAL, Severity.UNKNOWN, Severity.WARN), Severity.CRITICAL),
        ((Severity.OK,), Severity.OK),
    ],
)
def test_order(severities: tuple[Severity, ...], expected: Severity) -> None:
    assert verdict(healthy(), found(*severities), NOW) is expected
    assert verdict(healthy(), found(*reversed(severities)), NOW) is expected


@pytest.mark.parametrize("state", BLIND)
def test_node_that_cannot_be_seen_is_unknown_and_critical_still_wins(state: NodeState) -> None:
    known = healthy(state)
    assert verdict(known, [], NOW) is Severity.UNKNOWN
    assert verdict(known, found(Severity.WARN), NOW) is Severity.UNKNOWN
    assert verdict(known, found(Severity.CRITICAL), NOW) is Severity.CRITICAL


def test_node_never_asked_is_unknown() -> None:
    assert verdict(facts(None), [], NOW) is Severity.UNKNOWN


def test_a_gpu_that_refuses_every_reading_was_not_seen() -> None:
    known = healthy()
    refused: dict[str, Scalar] = {"index": 0, "nvml_rc": 42, "nvml_call": "nvmlDeviceGetHandle"}
    for device, _ in known.devices("gpu"):
        put(known, "gpu", refused, device)
    assert verdict(known, [], NOW) is Severity.UNKNOWN


def test_hung_probe_makes_an_answering_node_unknown() -> None:
    known = healthy()
    known.apply(NodeStatus(node="n1", at=2.0, state=NodeState.HUNG, probe="gpu", since_s=9.0))
    assert verdict(known, [], NOW) is Severity.UNKNOWN


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"gpu_count": 0, "pci_gpu_count": 0}, Severity.OK),
        ({"nvml_library": False, "pci_gpu_count": 0}, Severity.OK),
        ({"nvml_library": False}, Severity.UNKNOWN),
        ({"gpu_count": 8, "pci_gpu_count": 8}, Severity.UNKNOWN),
        ({"gpu_count": 0, "pci_gpu_count": 8}, Severity.UNKNOWN),
        ({"nvml_rc": 9}, Severity.UNKNOWN),
    ],
    ids=["none", "no library", "no library, bus unread", "not read yet", "hidden", "no driver"],
)
def test_node_without_gpu_readings(values: dict[str, Scalar], expected: Severity) -> None:
    assert verdict(put(facts(), "inventory", values), [], NOW) is expected


def test_no_gpus_where_the_site_expects_some_is_not_ok() -> None:
    known = put(facts(gpus=8), "inventory", {"gpu_count": 0, "pci_gpu_count": 0})
    assert verdict(known, [], NOW) is Severity.UNKNOWN


@pytest.mark.parametrize(
    ("counted", "readings", "expected"),
    [
        (1, [{}], Severity.UNKNOWN),
        (8, [{"temp_c": 40}], Severity.UNKNOWN),
        (2, [{"temp_c": 40}, {}], Severity.UNKNOWN),
        (2, [{"temp_c": 40}, {"temp_c": 41}], Severity.OK),
    ],
)
def test_a_gpu_that_was_not_read_is_not_ok(
    counted: int, readings: list[dict[str, Scalar]], expected: Severity
) -> None:
    known = put(facts(), "inventory", {"gpu_count": counted, "pci_gpu_count": counted})
    for index, values in enumerate(readings):
        put(known, "gpu", values, f"0000:{index:02x}:00.0")
    assert verdict(known, [], NOW) is expected


def test_only_host_readings_are_not_ok() -> None:
    assert verdict(put(facts(), "host", {"load1": 0.1}), [], NOW) is Severity.UNKNOWN


def test_powered_off_by_the_scheduler_is_info() -> None:
    assert verdict(off(facts(None)), [], NOW) is Severity.INFO
    assert verdict(off(healthy(NodeState.UNREACHABLE)), [], NOW) is Severity.INFO
    assert verdict(off(facts(None)), found(Severity.CRITICAL), NOW) is Severity.CRITICAL


def test_answering_node_is_judged_whatever_the_scheduler_says() -> None:
    assert verdict(off(healthy()), [], NOW) is Severity.OK
    assert verdict(off(facts()), [], NOW) is Severity.UNKNOWN
