"""Finding text in a sheet: which lines have it, and where in a line it is drawn. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from console.tui.text import Cell, Line, line_text

STYLE = "band"


def hits(lines: Sequence[Line], wanted: str) -> list[int]:
    """Indices of the lines that have it, in any case; none for an empty text."""
    needle = wanted.strip().lower()
    if not needle:
        return []
    return [index for index, line in enumerate(lines) if needle in line_text(line).lower()]


def lit(line: Line, wanted: str) -> Line:
    """The line with every place of the text in another style."""
    needle, text = wanted.strip().lower(), line_text(line).lower()
    # Some characters are longer in lower case: then nothing is lit rather than the wrong cells.
    if not needle or len(text) != sum(len(cell.text) for cell in line):
        return line
    on = bytearray(len(text))
    at = text.find(needle)
    while at >= 0:
        on[at : at + len(needle)] = b"\x01" * len(needle)
        at = text.find(needle, at + len(needle))
    return tuple(_cells(line, on)) if any(on) else line


def _cells(line: Line, on: bytearray) -> list[Cell]:
    cells: list[Cell] = []
    at = 0
    for cell in line:
        first = 0
        for index in range(1, len(cell.text) + 1):
            if index == len(cell.text) or on[at + index] != on[at + first]:
                style = STYLE if on[at + first] else cell.style
                cells.append(Cell(cell.text[first:index], style))
                first = index
        at += len(cell.text)
    return cells
