"""Readings over time as block characters: a plot of some rows, or one row. Pure.

A cell is a piece of time. It is drawn from what was read in it and is blank where nothing was: a
gap stays a gap, nothing is interpolated. A reading holds for its own interval and no longer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from console import units
from console.tui.text import LEVELS, Cell, Line, fit, width_of
from console.tui.words import t

AXIS = 8
"""Cells left of a plot: its highest and lowest value with the unit, and the axis."""
GAP = " "


class Reading(NamedTuple):
    """A value that holds from `begin` to `end`, epoch seconds."""

    begin: float
    end: float
    value: float


class Scale(NamedTuple):
    """The values at the bottom and the top of a plot; top is above bottom."""

    low: float
    high: float


def scale(values: Iterable[float], least: float, floor: float | None = None) -> Scale:
    """Around all values, never narrower than `least`, so that noise stays a flat line.

    `floor` is the bottom where one is natural (0 % of use).
    """
    known = [value for value in values if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, least)
    if floor is not None:
        return Scale(floor, max(high, floor + least))
    missing = max(0.0, least - (high - low))
    ends = low - missing / 2, high + missing / 2
    # Whole numbers where they are read: "54 C" and not "54.4 C".
    return Scale(*(math.floor(ends[0]), math.ceil(ends[1])) if least >= 10 else ends)


def bins(readings: Sequence[Reading], begin: float, end: float, width: int) -> list[float | None]:
    """The median of what held in each of `width` equal pieces of time; None where nothing did."""
    step = (end - begin) / width if width > 0 else 0.0
    held: list[list[float]] = [[] for _ in range(max(0, width))]
    for one in readings:
        if step <= 0 or one.end <= begin or one.begin >= end or not math.isfinite(one.value):
            continue
        first = max(0, int((one.begin - begin) / step))
        # What ends where a cell begins is not in it.
        last = min(width - 1, math.ceil((one.end - begin) / step) - 1)
        for index in range(min(first, width - 1), max(first, last) + 1):
            if index < width:
                held[index].append(one.value)
    return [sorted(one)[len(one) // 2] if one else None for one in held]


def plot(values: Sequence[float | None], height: int, axis: Scale) -> list[str]:
    """`height` rows, top first, one cell a value: bars from the bottom, blank for None."""
    steps = len(LEVELS)
    filled = [0 if value is None else _eighths(value, height * steps, axis) for value in values]
    rows: list[str] = []
    for row in reversed(range(height)):
        parts = (min(steps, max(0, eighths - row * steps)) for eighths in filled)
        rows.append("".join(LEVELS[part - 1] if part else GAP for part in parts))
    return rows


def _eighths(value: float, most: int, axis: Scale) -> int:
    """At least one: what was read is never drawn like what was not."""
    share = (value - axis.low) / (axis.high - axis.low)
    return max(1, min(most, 1 + round(max(0.0, min(1.0, share)) * (most - 1))))


def framed(
    values: Sequence[float | None], height: int, axis: Scale, unit: str, span_s: float
) -> list[Line]:
    """A plot with its axis ends, the unit between, and a line of time below. AXIS cells wider."""
    rows = plot(values, height, axis)
    lines: list[Line] = []
    for index, row in enumerate(rows):
        label = ""
        if index == 0:
            label = short(axis.high)
        elif index == height - 1:
            label = short(axis.low)
        elif index == 1:
            label = unit
        lines.append((Cell(fit(label, AXIS - 2, "right") + " ", "dim"), Cell("│" + row, "busy")))
    return [*lines, (Cell(" " * (AXIS - 1) + "└" + time_axis(len(values), span_s), "dim"),)]


def time_axis(width: int, span_s: float) -> str:
    """`-24h          -12h          now`, exactly `width` cells; what does not fit is left out."""
    begin, half, end = f"-{_span(span_s)}", f"-{_span(span_s / 2)}", t("now")
    free = width - len(begin) - width_of(end)
    if free < 1:
        return fit("", width)
    line = begin + " " * free + end
    at = width // 2
    room = line[at - 1 : at + len(half) + 1]
    if at > 1 and len(room) == len(half) + 2 and not room.strip():
        line = line[:at] + half + line[at + len(half) :]
    return line


def _span(seconds: float) -> str:
    return f"{seconds / 3600:g}h" if 5400 <= seconds < 172800 else units.age(seconds)


def short(value: float) -> str:
    """At most 6 cells: "1980", "0.41", "12.5k"."""
    if abs(value) >= 99999.5:
        return units.count(value)
    return f"{value:.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"
