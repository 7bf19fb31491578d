"""The door to naming what is at fault: which localiser a level has. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from console.active.expect import Expected
from console.active.pairs import Pairs
from console.active.results import Level, Localiser, Run

__all__ = ["SCHEMES", "localiser"]

SCHEMES = ("auto", "shift", "full")
"""Of pairs: search; a sample of the round robin first; all of it first."""


def localiser(
    level: Level,
    nodes: Sequence[str],
    *,
    solo: Sequence[Run] = (),
    seed: int,
    scheme: str = "auto",
    expected: Expected,
    labels: Mapping[str, Mapping[str, str]],
) -> Localiser:
    return Pairs(nodes, seed=seed, scheme=scheme, expected=expected, labels=labels)
