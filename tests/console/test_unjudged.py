"""A node whose answers no check can bear costs that node only."""

from __future__ import annotations

import logging

import pytest

import console.fleet
from console.fleet import Fleet
from inventory.node import Inventory, Node
from probes.checks import Peers, Quiet, judge
from probes.event import Finding, Severity
from probes.facts import NodeFacts
from probes.rules import Rules
from tests.judging.build import Built


def test_a_check_that_raises_costs_its_node_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fragile(
        facts: NodeFacts, role: Peers, rules: Rules, now: float, quiet: Quiet
    ) -> list[Finding]:
        if facts.node.name == "bad":
            raise ValueError("no such reading: " + "x" * 5000)
        return judge(facts, role, rules, now, quiet)

    monkeypatch.setattr(console.fleet, "judge", fragile)
    fleet = Fleet(Inventory(nodes=(Node(name="bad"), Node(name="good"))), clock=lambda: 2.0)
    for name in ("bad", "good"):
        built = Built(name)
        for sample in (built.facts.status, *built.facts.latest.values()):
            assert sample is not None
            fleet.apply(sample)
    with caplog.at_level(logging.ERROR):
        for now in (2.0, 3.0, 4.0):
            fleet.acknowledge("bad", "", "")
            fleet.tick(now)
    (broken,) = fleet.findings["bad"]
    assert (broken.rule, broken.severity) == ("internal.judge", Severity.UNKNOWN)
    assert "no such reading" in broken.say
    assert len(broken.say) <= 500
    assert fleet.verdict("bad") is Severity.UNKNOWN
    assert fleet.verdict("good") is Severity.OK
    assert len(caplog.records) == 1
