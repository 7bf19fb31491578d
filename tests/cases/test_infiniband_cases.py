"""RDMA cases: the real probe on the case's tree, then the judge, alone and among its peers."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.event import Action, Finding, Severity
from tests.cases.support import about, demand, judged, of_kind, severity
from tests.judging.build import IB, Built
from tests.probes_node.test_infiniband import Ports, collect, tree

RATES = "ib-sysfs-efa-rdmap"


def node_with(ports: Ports, name: str = "gpu001") -> Built:
    """A healthy node with these ports instead of its own."""
    node = Built(name)
    for port in IB:
        node.facts.latest.pop(("infiniband", port))
    for device, values in ports.items():
        node.put("infiniband", device, **values)
    return node


def ib_findings(ports: Ports, peers: int) -> tuple[Severity, list[Finding]]:
    """Judged among `peers` nodes with the same ports."""
    others = [node_with(ports, f"gpu{number:03}") for number in range(2, peers + 2)]
    return judged(node_with(ports), others)


@pytest.mark.parametrize("peers", [0, 3])
@pytest.mark.parametrize("name", [n for n in of_kind("ib-sysfs") if n != RATES])
def test_the_verdict_is_the_cases_severity(tmp_path: Path, name: str, peers: int) -> None:
    tree(tmp_path, name)
    grade, found = ib_findings(collect(tmp_path), peers)
    assert grade is severity(name)
    assert all(finding.action.rank < Action.RESET_GPU.rank for finding in found)


@pytest.mark.parametrize("peers", [0, 3])
def test_only_the_function_in_use_is_named(tmp_path: Path, peers: int) -> None:
    name = "ib-sysfs-vf-down"
    tree(tmp_path, name)
    _, found = ib_findings(collect(tmp_path), peers)
    (only,) = found
    (down,) = demand(name)["facts"]["vf_in_use_down"]
    assert only.device == f"{down}/1"
    assert "GUID" in only.next_step
    assert "10" not in only.say


@pytest.mark.parametrize("peers", [0, 3])
def test_cloud_adapters_have_no_state_fault(tmp_path: Path, peers: int) -> None:
    tree(tmp_path, RATES)
    ports = collect(tmp_path)
    _, found = ib_findings(ports, peers)
    assert not [f for f in found if f.rule in ("ib.down", "ib.rate", "ib.unused")]


def test_growing_time_outs_name_the_one_adapter(tmp_path: Path) -> None:
    tree(tmp_path, RATES)
    ports = collect(tmp_path)
    node = node_with(ports)
    before = ports["rdmap79s0/1"]["retrans_timeout_events"]
    node.change("infiniband", "rdmap79s0/1", 30.0, retrans_timeout_events=before + 3000)
    node.change("infiniband", "rdmap80s0/1", 30.0)
    grade, found = judged(node, others=[])
    assert grade is severity(RATES)
    only = about(found, "ib.retrans_timeout_events")
    assert only.device == "rdmap79s0/1"
    assert only.action is Action.WATCH
    assert "peers" in only.next_step


@pytest.mark.parametrize("peers", [0, 3])
def test_totals_since_boot_name_the_adapter_that_stands_out(tmp_path: Path, peers: int) -> None:
    tree(tmp_path, RATES)
    grade, found = ib_findings(collect(tmp_path), peers)
    assert grade is severity(RATES)
    (only,) = found
    assert only.device == "rdmap79s0/1"
    for number in demand(RATES)["facts"]["rdmap79s0"].values():
        assert str(number) in only.say
    assert "3 other adapters are clean" in only.say
    assert "second sample" in only.next_step


def test_totals_that_do_not_grow_become_history(tmp_path: Path) -> None:
    tree(tmp_path, RATES)
    node = node_with(collect(tmp_path))
    node.change("infiniband", "rdmap79s0/1", 1.0)
    assert judged(node, others=[])[0] is Severity.WARN, "a pass's two samples are too close"
    node.change("infiniband", "rdmap79s0/1", 30.0)
    assert judged(node, others=[])[0] is Severity.INFO


def test_errors_on_every_adapter_accuse_none(tmp_path: Path) -> None:
    tree(tmp_path, RATES)
    ports = collect(tmp_path)
    for values in ports.values():
        values["retrans_timeout_events"] = 5
    assert ib_findings(ports, 0)[0] is Severity.OK


def test_a_trained_link_that_is_not_active_waits_for_the_subnet_manager() -> None:
    node = Built()
    node.change("infiniband", IB[2], state=2, state_text="INIT")
    down = about(judged(node)[1], "ib.down")
    assert down.severity is Severity.CRITICAL
    assert "subnet manager" in down.next_step
    node.change("infiniband", IB[2], state=1, state_text="DOWN", phys_state=2, phys_text="Polling")
    assert "subnet manager" not in about(judged(node)[1], "ib.down").next_step
