"""Whoever asks hears of each finding that begins, changes or ends; nothing is kept for the others.

A screen runs for weeks: what only `watch` wants must not pile up there.
"""

from __future__ import annotations

from collections.abc import Sized

from console.fleet import LOGGED, Fleet
from inventory.node import Inventory, Node
from probes.event import Finding, NodeState, NodeStatus, Sample, Severity

T0 = 1_795_000_200.0


class Flapping:
    """A node that answers and does not, in turn."""

    def __init__(self) -> None:
        self.now, self.round = T0, 0
        nodes = Inventory(nodes=(Node(name="n1"),), source="test")
        self.fleet = Fleet(nodes, one_pass=True, clock=lambda: self.now)

    def go(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round, self.now = self.round + 1, self.now + 10
            state = NodeState.UNREACHABLE if self.round % 2 else NodeState.UP
            self.fleet.apply(NodeStatus(node="n1", at=self.now, state=state, reason="refused"))
            if state is NodeState.UP:
                self.fleet.apply(Sample(node="n1", probe="host", at=self.now, values={"load1": 1}))
            self.fleet.tick()


def held(fleet: Fleet) -> int:
    """Entries of everything that the Fleet keeps."""
    return sum(len(kept) for kept in vars(fleet).values() if isinstance(kept, Sized))


def test_a_tap_hears_what_begins_and_what_ends() -> None:
    told: list[Finding] = []
    flapping = Flapping()
    flapping.fleet.taps.append(told.append)
    flapping.go(4)
    lost = [one.severity for one in told if one.rule == "node.unreachable"]
    assert lost.count(Severity.OK) == 2
    assert len(lost) == 4


def test_nothing_piles_up_for_somebody_who_does_not_ask() -> None:
    flapping = Flapping()
    flapping.go(LOGGED + 2)
    before = held(flapping.fleet)
    flapping.go(LOGGED // 20)
    assert held(flapping.fleet) == before
