"""How busy a node's GPUs were in the last two minutes: eight bars and an arrow, always as wide.

A bar is CELL_S of absolute time, so that the picture moves on once in so long and not every second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from console.fleet import Fleet
from console.tui.text import LEVELS
from console.tui.theme import Glyphs

METRIC = "util_percent"
CELLS = 8
CELL_S = 15.0
"""Eight of them are the two minutes of the Fleet's history."""
WIDTH = CELLS + 2
MOVED = 15.0
"""Percent of use between the last quarter and what was before it that get an arrow (our choice)."""
GAP = " "


class Trends:
    """One picture a node, made again only when its readings changed."""

    def __init__(self) -> None:
        """Nothing drawn yet."""
        self._made: dict[str, tuple[float | None, str]] = {}
        self.frozen = False
        """Whether what was drawn stays; what was not is blank."""

    def of(self, fleet: Fleet, name: str, glyphs: Glyphs) -> str:
        """WIDTH cells."""
        at = fleet.seen.get(name)
        known = self._made.get(name)
        if known is not None and (known[0] == at or self.frozen):
            return known[1]
        if self.frozen:
            return GAP * WIDTH
        values = means(fleet, name)
        text = drawn(values, glyphs)
        self._made[name] = at, text
        return text


def means(fleet: Fleet, name: str) -> list[float | None]:
    """The mean of all GPUs in each of the last CELLS pieces of time; None where none was read."""
    facts = fleet.nodes[name]
    devices = [device for device, _ in facts.devices("gpu") if device]
    times: Sequence[float] = ()
    series: list[Sequence[float]] = []
    for device in devices:
        mine, readings = fleet.history_times(name, device), fleet.history(name, device, METRIC)
        if len(mine) != len(readings) or not mine:
            continue
        if not series or (len(mine) == len(times) and abs(mine[-1] - times[-1]) < CELL_S):
            times = times or mine
            series.append(readings)
    if not series:
        return [None] * CELLS
    # The piece of time that has begun counts from its first reading on.
    last = int((fleet.seen.get(name) or times[-1]) // CELL_S)
    edges = [bisect_left(times, (last - CELLS + 1 + i) * CELL_S) for i in range(CELLS + 1)]
    found: list[float | None] = []
    for begin, end in pairwise(edges):
        count = (end - begin) * len(series)
        found.append(sum(sum(one[begin:end]) for one in series) / count if count else None)
    return found


def drawn(values: Sequence[float | None], glyphs: Glyphs) -> str:
    """Bars between 0 and 100 %, a blank where nothing was read, and which way it goes."""
    top = len(LEVELS) - 1
    bars = "".join(
        GAP if v is None else LEVELS[max(0, min(top, int(v / 100 * top + 0.5)))] for v in values
    )
    return f"{bars} {arrow(values, glyphs)}"


def arrow(values: Sequence[float | None], glyphs: Glyphs) -> str:
    """Up, down, or a blank: the last quarter against what was before it."""
    quarter = len(values) // 4
    now = [v for v in values[-quarter:] if v is not None]
    before = [v for v in values[:-quarter] if v is not None]
    if not now or not before:
        return GAP
    change = sum(now) / len(now) - sum(before) / len(before)
    return glyphs.up if change >= MOVED else glyphs.down if change <= -MOVED else GAP
