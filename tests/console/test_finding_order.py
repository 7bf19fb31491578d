"""Findings of one severity stand as their rules are registered: the cause before its symptoms."""

from __future__ import annotations

import pytest

from console.fleet import Fleet
from inventory.node import Inventory, Node
from probes.checks import RULES, place
from probes.event import Row, Severity
from tests.judging.build import IB, NOW, SLOTS, Built


def judged(built: Built) -> list[tuple[Severity, str]]:
    """Severity and rule of each finding, in the Fleet's order."""
    name = built.facts.node.name
    fleet = Fleet(Inventory(nodes=(Node(name=name),)), one_pass=True, clock=lambda: NOW)
    fleet.nodes[name] = built.facts
    fleet.tick(NOW)
    return [(finding.severity, finding.rule) for finding in fleet.findings[name]]


def test_a_lost_gpu_stands_before_what_follows_from_it() -> None:
    node = Built()
    node.put("gpu", SLOTS[3], index=3, nvml_rc=15, nvml_call="nvmlDeviceGetUtilizationRates")
    rows: list[Row] = [
        {"pci": slot, "in_nvml": True, "config_ok": slot != SLOTS[3]} for slot in SLOTS
    ]
    node.put("inventory", "", rows=rows, gpu_count=8, pci_gpu_count=8, nvml_library=True)
    node.kernel("NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.")
    node.change("infiniband", IB[0], after_s=30.0, link_downed=2)
    found = judged(node)
    critical = [rule for severity, rule in found if severity is Severity.CRITICAL]
    assert critical == ["gpu.lost", "xid.79", "ib.link_downed"]


def test_severity_comes_first() -> None:
    node = Built()
    node.change("ecc", SLOTS[1], remap_pending=True)
    node.change("pcie", SLOTS[1], width=8)
    assert judged(node) == [
        (Severity.CRITICAL, "pcie.width"),
        (Severity.WARN, "remap.pending"),
    ]


@pytest.mark.parametrize("rule", ["xid.79", "xid.13"])
def test_a_code_stands_with_its_rule(rule: str) -> None:
    assert place(rule) == place("xid") < len(RULES)
    assert place("sxid") != place("xid")
    assert place("nobody.knows") == len(RULES)
