"""Which pairs to run next, by what the others said: suspects with known-good partners. Pure.

Ties are decided by the order of the nodes and by the seed, never by a name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from console.active.pair_groups import faults
from console.active.pair_view import BAD, Look, View
from console.active.results import Group
from probes.event import Severity

TRIES = 3
"""Refused runs after which a node is given up as not tested."""
MOST = 7
"""Runs of one suspect; what is not clear then stays a suspicion."""
PARTNERS = 2
"""Known-good partners that name a node."""
SURE = 3
"""Known-good partners that make it certain: two chance collisions in a row are not rare (3 % of
campaigns with 10 % ECMP collisions, simulated), three are."""
RUNS = 2
"""Runs of a slow pair of good nodes."""
REPEATS = 16
"""Slow pairs of good nodes that are run again in one round; more are a fabric, not paths."""
INSIDE = 2
"""Fast pairs that a group is to have inside; other ends that an end of a slow pair is to meet."""
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
        self.faults = faults(view) if view.good else []
        self.explained = {node for fault in self.faults for node in fault.nodes}
        """Nodes behind a common uplink: their slow pairs need no other reason."""
        self.suspects = [n for n in view.suspects if n not in self.explained]
        self.clean = [n for n in self.mixed_order if view.clean(n)]

    def add(self, a: str, b: str, why: str) -> None:
        """Both nodes are taken then."""
        self.free -= {a, b}
        self.pairs.append(Group(nodes=(a, b), rail=self.rail, why=why))

    def partner(self, node: str, among: Iterable[str], fits: Callable[[str], bool]) -> str | None:
        """The first free node of `among` that fits and gave `node` no clear answer yet."""
        looks = self.view.looks(node)
        new = (p for p in among if looks.get(p, Look.GRAY) is Look.GRAY)
        return next((p for p in new if p != node and p in self.free and fits(p)), None)

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

    def free_with(self, node: str, among: Iterable[str], why: str) -> None:
        """Pair with a node of `among` if `node` is still free."""
        if node in self.free:
            self.together(node, among, why)

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
    _sides(plan)
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
    return len(view.counted(node)) >= SURE and (view.quiet(node) or not view.crowded)


def _cleared(view: View, node: str) -> bool:
    """Never clearly fast, but its runs together are within the scatter."""
    return len(view.shares(node)) >= PARTNERS and view.verdict_of(node) is Severity.OK


def _with_suspect(plan: Plan, node: str) -> bool:
    """A fellow suspect, or both ends of a slow pair of good nodes, one after the other."""
    view, looks = plan.view, plan.view.looks(node)
    if not view.unlike_fellows(node):
        near = sorted(view.unclear, key=lambda p: not view.near(node, p))
        if plan.together(node, near, "suspects together"):
            return True
    begun = sorted(view.odd_pairs, key=lambda pair: not (pair[0] in looks or pair[1] in looks))
    ends = [end for pair in begun for end in pair]
    return plan.together(node, ends, f"{node} with an end of a slow pair")


def _again(plan: Plan) -> None:
    """Slow once between two good nodes: the path, or a moment's congestion?"""
    view, asked = plan.view, 0
    for node in view.nodes:
        for partner, look in view.looks(node).items():
            if look not in BAD or not {node, partner} <= (plan.free & view.good):
                continue
            if plan.explained & {node, partner}:
                continue
            if len(view.met[node][partner]) < RUNS and asked < REPEATS:
                plan.add(node, partner, "the same pair again")
                asked += 1


def _sides(plan: Plan) -> None:
    """Several slow pairs of good nodes may share an uplink: which of their ends are alike?"""
    view = plan.view
    for fault in plan.faults:
        if fault.inside < INSIDE:
            for node in fault.nodes:
                plan.free_with(node, fault.nodes, "inside the group")
    ends = [end for pair in view.odd_pairs[:REPEATS] for end in pair if end not in plan.explained]
    if len(view.odd_pairs) < INSIDE:
        return
    for node in dict.fromkeys(ends):
        if sum(p in view.met[node] for p in ends) <= INSIDE:
            plan.free_with(node, ends, "ends of slow pairs")


def _idle(plan: Plan) -> None:
    for node in plan.mixed_order:
        if node in plan.free:
            plan.together(node, plan.mixed_order, "second partner")


def _yardstick(plan: Plan) -> None:
    for node in plan.clean:
        if node in plan.free and plan.together(node, plan.clean, "known good, as yardstick"):
            return
