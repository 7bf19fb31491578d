"""How busy a node's GPUs were in the last two minutes: eight bars and an arrow, always as wide.

A bar is CELL_S of absolute time, so that the picture moves on once in so long and not every second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from console.fleet import Fleet
from console.tui.text import spark
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
    """One picture a node, made again only when another piece of time is complete."""

    def __init__(self) -> None:
        """Nothing drawn yet."""
        self._made: dict[str, tuple[int, str]] = {}

    def of(self, fleet: Fleet, name: str, glyphs: Glyphs) -> str:
        """WIDTH cells."""
        known = self._made.get(name)
        piece = int(fleet.seen.get(name, 0.0) // CELL_S)
        if known is None or known[0] != piece:
            known = self._made[name] = piece, drawn(means(fleet, name, piece), glyphs)
        return known[1]


def means(fleet: Fleet, name: str, until: int) -> list[float | None]:
    """The mean of all GPUs in each of the CELLS pieces of time before the `until`th; None where
    none was read."""
    # A GPU that tells nothing now keeps old readings: they are of another time.
    devices = [
        device for device, sample in fleet.nodes[name].devices("gpu") if METRIC in sample.values
    ]
    if not devices:
        return [None] * CELLS
    times = fleet.history_times(name, devices[0])
    series = [fleet.history(name, device, METRIC) for device in devices]
    # All GPUs of a node are read at one time: those with as many readings have the same times.
    series = [readings for readings in series if len(readings) == len(times)]
    edges = [bisect_left(times, (until - CELLS + i) * CELL_S) for i in range(CELLS + 1)]
    found: list[float | None] = []
    for begin, end in pairwise(edges):
        count = (end - begin) * len(series)
        found.append(sum(sum(one[begin:end]) for one in series) / count if count else None)
    return found


def drawn(values: Sequence[float | None], glyphs: Glyphs) -> str:
    """Bars between 0 and 100 %, a blank where nothing was read, and which way it goes."""
    return f"{spark(values, len(values), 0.0, 100.0)} {arrow(values, glyphs)}"


def arrow(values: Sequence[float | None], glyphs: Glyphs) -> str:
    """Up, down, or a blank: the last quarter against what was before it."""
    quarter = len(values) // 4
    now = [v for v in values[-quarter:] if v is not None]
    before = [v for v in values[:-quarter] if v is not None]
    if not now or not before:
        return GAP
    change = sum(now) / len(now) - sum(before) / len(before)
    return glyphs.up if change >= MOVED else glyphs.down if change <= -MOVED else GAP
