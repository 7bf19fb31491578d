"""What rows of a view say about a set of nodes: their names folded, and what they share. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from console.fleet import Fleet
from console.tui.text import plain
from console.tui.words import t
from inventory.expressions import fold
from inventory.scheduler import Allocation

FOLDED = 256
"""Names folded into one cell: 4,000 of two numbers take 170 ms, so many 10 ms, and a cell shows the
first few anyway."""
FEWEST = 3
"""Nodes from which something in common is worth a word."""
MOST_SHARE = 0.8
"""Share of the nodes that a place must hold: "9 of 10", not "6 of 10"."""
CHANCE = 0.01
"""Probability below which so many in one place are no accident, over all places looked at."""


@lru_cache(maxsize=256)
def folded(names: tuple[str, ...]) -> str:
    """A host expression, or the beginning of one and how many more; `names` in natural order."""
    text = fold(names[:FOLDED])
    return text if len(names) <= FOLDED else f"{text},+{len(names) - FOLDED}"


class Place(NamedTuple):
    """Something that nodes share."""

    label: str
    """The label's name, or "role", "group", "job"."""
    value: str
    inside: int
    """Of the nodes asked about."""
    asked: int
    total: int
    """Nodes of the place, whatever is wrong with them."""


class Places:
    """Racks, roles, groups and jobs of all nodes; counts what a few of them have in common."""

    def __init__(self, fleet: Fleet) -> None:
        """Labels, roles and groups never change; jobs are taken in with `update`."""
        self._fleet = fleet
        self._fixed: dict[str, tuple[tuple[str, str], ...]] = {}
        self._totals: dict[tuple[str, str], int] = {}
        self._jobs: dict[str, tuple[tuple[str, str], ...]] = {}
        self._told: dict[str, Allocation | None] = {}
        self._last: tuple[Sequence[str], Place | None] | None = None
        """The row under the cursor asks each second: 5 ms with 4,000 nodes."""

    def update(self, names: Iterable[str]) -> None:
        """Which jobs are on these nodes now."""
        for name in names:
            allocation = self._fleet.nodes[name].allocation
            if allocation is self._told.get(name):
                continue
            self._told[name] = allocation
            jobs = tuple(("job", job.id) for job in allocation.jobs) if allocation else ()
            before = self._jobs.get(name, ())
            if jobs != before:
                self._count(before, -1)
                self._count(jobs, 1)
                self._jobs[name] = jobs
                self._last = None

    def shared(self, names: Sequence[str]) -> Place | None:
        """What most of these nodes share and others do not; None where that may be chance.

        Chance: that so many of as many nodes drawn blindly lie there, in any place looked at.
        """
        if self._last is None or self._last[0] != names:
            self._last = names, self._shared(names) if len(names) >= FEWEST else None
        return self._last[1]

    def _shared(self, names: Sequence[str]) -> Place | None:
        self._learn()
        counts: dict[tuple[str, str], int] = {}
        for name in names:
            for place in (*self._fixed[name], *self._jobs.get(name, ())):
                counts[place] = counts.get(place, 0) + 1
        asked, nodes = len(names), len(self._fleet.nodes)
        apart = {place: n for place, n in counts.items() if self._totals[place] < nodes}
        best: tuple[float, Place] | None = None
        for (label, value), inside in apart.items():
            if inside < max(FEWEST, MOST_SHARE * asked):
                continue
            total = self._totals[label, value]
            chance = len(apart) * tail(inside, asked, total, nodes)
            if chance < CHANCE and (best is None or chance < best[0]):
                best = chance, Place(label, value, inside, asked, total)
        return best[1] if best else None

    def _learn(self) -> None:
        if self._fixed:
            return
        for name, facts in self._fleet.nodes.items():
            node = facts.node
            own = [*node.labels.items(), ("role", node.role), ("group", node.group)]
            self._fixed[name] = tuple(own)
            self._count(own, 1)

    def _count(self, places: Iterable[tuple[str, str]], step: int) -> None:
        for place in places:
            self._totals[place] = self._totals.get(place, 0) + step
            if not self._totals[place]:
                del self._totals[place]  # a job that is over


def said(shared: Place) -> str:
    """That most of some nodes are in one place."""
    return t(
        "{inside} of {asked} are in {label} {value}", inside=shared.inside, asked=shared.asked,
        label=plain(shared.label), value=plain(shared.value),
    )  # fmt: skip


def tail(least: int, drawn: int, inside: int, total: int) -> float:
    """Probability that of `drawn` out of `total`, drawn blindly, `least` or more are `inside`.

    Hypergeometric.
    """
    ways = _log_choose(total, drawn)
    terms = (
        _log_choose(inside, k) + _log_choose(total - inside, drawn - k) - ways
        for k in range(max(least, drawn - total + inside), min(drawn, inside) + 1)
    )
    return min(1.0, math.fsum(map(math.exp, terms)))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
