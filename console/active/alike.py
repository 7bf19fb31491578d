"""Which runs measure each other: the same engine over the same number of ranks. Pure.

A pair of 16 GPUs and a pair of 15, or of 2, use other numbers of NICs: their figures share neither
median nor level. A kind that one node makes by itself, as a GPU of it is missing, would only ever
be compared with itself, so that it is no yardstick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from console.active.results import Run

Kind: TypeAlias = tuple[str, int | None]
"""Engine and ranks."""
LEAST = 4
"""Runs from which a rarer kind has a level of its own."""


def kind(run: Run) -> Kind:
    """What this run is alike to."""
    return run.engine, run.ranks


def commonest(runs: Iterable[Run]) -> dict[str, int | None]:
    """Engine -> the ranks most of its runs have; of as many, the larger number."""
    counts = Counter(map(kind, runs))
    return dict(sorted(counts, key=lambda k: (counts[k], k[1] or 0)))


def kinds(runs: Iterable[Run]) -> frozenset[Kind]:
    """Those whose runs can be compared: of each engine the commonest, and any of enough nodes."""
    runs = list(runs)
    found = set(commonest(runs).items())
    for one, count in Counter(map(kind, runs)).items():
        nodes = Counter(n for run in runs if kind(run) == one for n in run.group.nodes)
        if count >= LEAST and max(nodes.values()) * 2 < count:
            found.add(one)
    return frozenset(found)
