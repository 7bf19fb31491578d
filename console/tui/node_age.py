"""When readings are too old to pass for present ones: greyed, with their age. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from console import units
from console.settings import Settings
from console.tui.summary import STALE_INTERVALS
from console.tui.text import Cell, Line
from console.tui.words import t
from probes.catalog import PROBES
from probes.facts import NodeFacts

_KEPT = frozenset({"key", "critical", "unknown"})
"""Styles that stay: a label is no reading, and a verdict is judged for its age elsewhere."""


def stale_s(facts: NodeFacts, probes: Sequence[str], now: float) -> float | None:
    """Age of the newest answer of these probes when it is too old; None while it is fresh or
    was never there."""
    newest = max((at for probe in probes for at in _answered(facts, probe)), default=None)
    if newest is None:
        return None
    age = max(0.0, now - newest)
    return age if age > max(map(_limit_s, probes)) else None


def _answered(facts: NodeFacts, probe: str) -> Iterable[float]:
    return (sample.at for _, sample in facts.devices(probe))


_INTERVALS_S = {
    "fast": Settings().fast_s, "slow": Settings().slow_s, "rare": Settings().rare_s,
}  # fmt: skip


def _limit_s(probe: str) -> float:
    """hello and the like come once for each conversation: they do not age."""
    known = PROBES.get(probe)
    every_s = None if known is None else _INTERVALS_S.get(known.interval)
    return float("inf") if every_s is None else STALE_INTERVALS * every_s


def age_mark(facts: NodeFacts, probes: Sequence[str], now: float) -> str:
    """` (3m old)`, or nothing."""
    age = stale_s(facts, probes, now)
    return "" if age is None else t(" ({age} old)", age=units.age(age))


def faded(lines: Iterable[Line], facts: NodeFacts, probes: Sequence[str], now: float) -> list[Line]:
    """The lines, grey when what they tell is stale."""
    if stale_s(facts, probes, now) is None:
        return list(lines)
    return [tuple(_grey(cell) for cell in line) for line in lines]


def _grey(cell: Cell) -> Cell:
    return cell if cell.style in _KEPT else Cell(cell.text, "stale")
