"""Readings of a group on one line: how many at each value, and where one of them is. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from console.tui.text import LEVELS

NARROWEST = 0.1
"""Share of the highest reading that a strip spans at least: steps of the sensor are no spread."""
LEAST = 8
"""Cells below which a strip says nothing."""


def strip(values: Sequence[float], own: float | None, width: int, mark: str) -> str:
    """Exactly `width` cells from the lowest to the highest value, `mark` where `own` is.

    A bar's height is the number of readings there, the fullest cell highest; a blank has none.
    """
    if not values or width <= 0:
        return " " * max(0, width)
    low, high = ends(values if own is None else (*values, own))
    counts = [0] * width
    for value in values:
        counts[_at(value, low, high, width)] += 1
    most = max(counts)
    bars = [_bar(count, most) for count in counts]
    if own is not None:
        bars[_at(own, low, high, width)] = mark
    return "".join(bars)


def ends(values: Sequence[float]) -> tuple[float, float]:
    """Where a strip begins and ends."""
    low, high = min(values), max(values)
    return min(low, high - NARROWEST * abs(high)), high


def _at(value: float, low: float, high: float, width: int) -> int:
    if high <= low:
        return width - 1
    return max(0, min(width - 1, int((value - low) / (high - low) * width)))


def _bar(count: int, most: int) -> str:
    if not count:
        return " "
    return LEVELS[round((len(LEVELS) - 1) * count / most)]


def scaled(values: Sequence[float], own: float | None, width: int, mark: str, per: float) -> str:
    """A strip between the figures of its ends, in units of `per`; `width` cells in all."""
    if not values:
        return " " * width
    low, high = ends(values if own is None else (*values, own))
    left, right = f"{low / per:.2f} ", f" {high / per:.2f}"
    room = width - len(left) - len(right)
    if room < LEAST:
        return strip(values, own, width, mark)
    return left + strip(values, own, room, mark) + right
