"""Which pairs to run next, by what the others said: suspects with known-good partners. Pure.

Ties are decided by the order of the nodes and by the seed, never by a name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from console.active.pair_view import BAD, Edge, Look, View
from console.active.results import Group
from probes.event import Severity

TRIES = 3
"""Refused runs after which a node is given up as not tested."""
MOST = 7
"""Runs of one suspect; what is not clear then stays a suspicion."""
PARTNERS = 2
"""Known-good partners that must agree before anything is certain."""
RUNS = 2
"""Runs of a slow pair of good nodes."""
REPEATS = 16
"""Slow pairs of good nodes that are run again in one round; more are a fabric, not paths."""
INSIDE = 2
"""Partners inside an island that each of its nodes is to meet."""
FEW_PAIRS = 3
"""Up to so many pairs a round gets one of known-good nodes as its yardstick."""


class Plan:
    """One round that is being filled; the nodes of its pairs are disjoint."""

    def __init__(self, view: View, rng: random.Random, rail: int | None = None) -> None:
        """Nothing chosen yet."""
        self.view, self.rail = view, rail
        self.mixed_order = rng.sample(list(view.nodes), len(view.nodes))
        self.free = set(view.nodes)
        self.pairs: list[Group] = []
        self.suspects, self.mixed = view.suspects, view.mixed
        self.clean = [n for n in self.mixed_order if view.clean(n)]

    def add(self, a: str, b: str, why: str) -> None:
        """Both nodes are taken then."""
        self.free -= {a, b}
        self.pairs.append(Group(nodes=(a, b), rail=self.rail, why=why))

    def partner(self, node: str, among: Iterable[str], fits: Callable[[str], bool]) -> str | None:
        """The first free node of `among` that fits and has not met `node`."""
        met = self.view.met[node]
        return next(
            (p for p in among if p != node and p in self.free and p not in met and fits(p)), None
        )

    def with_good(self, node: str) -> bool:
        """Pair with a known-good node, best one that was never met."""
        met = self.view.met[node]
        found = self.partner(node, self.clean, lambda p: True) or next(
            (p for p in self.clean if p in self.free and p in met and p != node), None
        )
        if found is None:
            return False
        self.add(node, found, f"{node} with known good {found}")
        return True

    def together(self, node: str, among: Iterable[str], why: str) -> bool:
        """Pair with a node of `among` that it has not met."""
        found = self.partner(node, among, lambda p: True)
        if found is None:
            return False
        self.add(node, found, why)
        return True


def follow_up(
    view: View, rng: random.Random, *, rail: int | None = None, fill: bool = False
) -> list[Group]:
    """The next round after the scheme's own; [] when nothing is left to tell.

    `fill`: let idle nodes run too, as a second opinion where nothing but peers is known.
    """
    plan = Plan(view, rng, rail)
    _untested(plan)
    _suspects(plan)
    _again(plan)
    _islands(plan)
    if fill:
        _idle(plan)
    if plan.pairs and len(plan.pairs) <= FEW_PAIRS:
        _yardstick(plan)
    return plan.pairs


def _untested(plan: Plan) -> None:
    """Who rested, or was refused, runs with a good one, else with anybody new."""
    for node in plan.view.untested:
        if node not in plan.free or plan.view.tries[node] >= TRIES:
            continue
        if not plan.with_good(node):
            plan.together(node, plan.mixed_order, "not run yet")


def _suspects(plan: Plan) -> None:
    view = plan.view
    waiting = []
    for node in plan.suspects:
        if node not in plan.free or view.tries[node] >= MOST:
            continue
        if _cleared(view, node) or (_proven(view, node) and view.apart(node)):
            continue
        if plan.clean and not view.shares(node):
            if not plan.with_good(node):
                waiting.append(node)
        elif not view.apart(node):
            if not _with_suspect(plan, node):
                plan.with_good(node)
        else:
            waiting.append(node)
    _rest(plan, waiting)


def _rest(plan: Plan, waiting: Sequence[str]) -> None:
    """Suspects that want one more good partner; when many are slow, few pairs at a time."""
    for node in waiting:
        if node not in plan.free:
            continue
        if not plan.clean:
            plan.together(node, plan.mixed_order, "others than before")
        elif plan.view.crowded and len(plan.view.against(node)) >= PARTNERS:
            if len(plan.pairs) < plan.view.quiet_pairs:
                plan.with_good(node)
        elif not plan.with_good(node):
            plan.together(node, plan.suspects, "suspects together")


def _proven(view: View, node: str) -> bool:
    """Enough known-good partners agree that it is slow."""
    return len(view.counted(node)) >= PARTNERS and (view.quiet(node) or not view.crowded)


def _cleared(view: View, node: str) -> bool:
    """Never clearly fast, but its runs together are within the scatter."""
    return len(view.shares(node)) >= PARTNERS and view.verdict_of(node) is Severity.OK


def _with_suspect(plan: Plan, node: str) -> bool:
    """Those of the same place first."""
    if plan.mixed:
        return plan.together(node, plan.mixed, f"{node} with one that is slow with some")
    near = sorted(view.unclear, key=lambda p: not plan.view.near(node, p))
    return plan.together(node, near, "suspects together")


def _again(plan: Plan) -> None:
    """Slow once between two good nodes: the path, or a moment's congestion?"""
    view, asked = plan.view, 0
    for node in view.nodes:
        for partner, look in view.looks(node).items():
            if look not in BAD or not {node, partner} <= (plan.free & view.good):
                continue
            if len(view.met[node][partner]) < RUNS and asked < REPEATS:
                plan.add(node, partner, "the same pair again")
                asked += 1


def _islands(plan: Plan) -> None:
    """Nodes slow with outsiders and fast with each other: run more of them together."""
    view = plan.view
    for node in plan.mixed:
        inside = sum(p in view.met[node] for p in plan.mixed)
        if node in plan.free and inside < min(INSIDE, len(plan.mixed) - 1):
            plan.together(node, plan.mixed, "slow with others, together")


def _idle(plan: Plan) -> None:
    for node in plan.mixed_order:
        if node in plan.free:
            plan.together(node, plan.mixed_order, "second partner")


def _yardstick(plan: Plan) -> None:
    for node in plan.clean:
        if node in plan.free and plan.together(node, plan.clean, "known good, as yardstick"):
            return
