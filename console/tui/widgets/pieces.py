"""Lines as pieces at columns, and what of them differs: so that only that is painted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region

from console.tui.text import Cell


class Piece(NamedTuple):
    """Cells from a column on, each drawn as under the cursor or not."""

    x: int
    cells: tuple[tuple[Cell, bool], ...]


def differences(y: int, was: list[Piece], now: list[Piece], width: int) -> list[Region]:
    """What of a line is drawn anew."""
    if [piece.x for piece in was] != [piece.x for piece in now]:
        return [Region(0, y, width, 1)]
    return [_span(y, old, new) for old, new in zip(was, now, strict=True) if old != new]


def _span(y: int, was: Piece, now: Piece) -> Region:
    """From the first to the last cell that differs."""
    x, first, last = now.x, None, now.x
    for index, (cell, here) in enumerate(now.cells):
        end = x + (1 if len(cell.text) == 1 else Segment(cell.text).cell_length)
        if index >= len(was.cells) or was.cells[index] != (cell, here):
            first = x if first is None else first
            last = end
        x = end
    start = now.x if first is None else first
    return Region(start, y, max(1, last - start), 1)


def joined(runs: Sequence[tuple[str, Style]]) -> list[Segment]:
    """Neighbours of one style as one segment: each costs its colour codes."""
    found: list[Segment] = []
    for text, style in runs:
        if found and found[-1].style == style:
            found[-1] = Segment(found[-1].text + text, style)
        else:
            found.append(Segment(text, style))
    return found
