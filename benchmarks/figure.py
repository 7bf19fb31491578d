"""One measured figure beside its target, and the table of all of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from msgspec import Struct


class Figure(Struct, frozen=True, kw_only=True):
    """What was aimed at and what was reached. Smaller is better for every figure here."""

    name: str
    reached: float
    """The median of `runs`, or the figure itself where the runs are pooled."""
    unit: str
    target: float | None = None
    """None: reported beside the others, nothing was promised."""
    how: str
    """How it was measured, for whoever doubts it."""
    runs: tuple[float, ...] = ()
    """One value per run, in the order they were taken."""

    @property
    def verdict(self) -> str:
        """reached, missed, or nothing when there is no target."""
        if self.target is None:
            return ""
        return "reached" if self.reached <= self.target else "MISSED"


def figure(
    name: str, runs: Sequence[float], unit: str, how: str, target: float | None = None
) -> Figure:
    """The median of these runs."""
    return Figure(
        name=name, reached=statistics.median(runs), unit=unit, target=target, how=how,
        runs=tuple(round(value, 5) for value in runs),
    )  # fmt: skip


def table(figures: Iterable[Figure]) -> str:
    """Lines for a terminal: name, target, reached, spread of the runs, verdict."""
    rows = [("figure", "target", "reached", "min .. max", "")]
    for one in figures:
        spread = f"{_short(min(one.runs))} .. {_short(max(one.runs))}" if one.runs else ""
        aim = "" if one.target is None else f"{_short(one.target)} {one.unit}"
        rows.append((one.name, aim, f"{_short(one.reached)} {one.unit}", spread, one.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
