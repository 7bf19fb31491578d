"""Styled text laid out by terminal cells: what the report on paper and on the screen share. Pure.

Style names are those of the screen's theme. Nothing here needs a terminal library, so that
`gpuconsole test` prints without loading one.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from probes.sanitise import clean

MORE = "…"
ABSENT = "–"
_ASCII = {"…": "~", "–": "-", "·": ".", "×": "x", "█": "#", "✓": "+", "✗": "X", "│": "|", "─": "-",
          "≥": ">", "›": ">"}  # fmt: skip


class Piece(NamedTuple):
    """Some text and the name of its style."""

    text: str
    style: str = "text"


Line = tuple[Piece, ...]


class Column(NamedTuple):
    """A column of a table. Columns are dropped whole, highest `priority` number first."""

    title: str
    priority: int = 0
    right: bool = False


def safe(text: str, limit: int = 300) -> str:
    """Hostile text as one line without anything that moves, reorders, hides or stacks."""
    if text.isascii():
        return clean(text, limit)
    text = unicodedata.normalize("NFC", clean(text, limit))
    return "".join(char for char in text if unicodedata.category(char) not in ("Mn", "Me"))


@lru_cache(maxsize=4096)
def _char(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def width(text: str) -> int:
    """Terminal cells of a text."""
    return len(text) if text.isascii() else sum(map(_char, text))


def cut(text: str, room: int) -> str:
    """At most `room` cells, ending in an ellipsis when something was left out."""
    if width(text) <= room:
        return text
    return _head(text, room - 1) + MORE if room > 0 else ""


def _head(text: str, room: int) -> str:
    for index, char in enumerate(text):
        room -= _char(char)
        if room < 0:
            return text[:index]
    return text


def fit(text: str, room: int, *, right: bool = False) -> str:
    """Exactly `room` cells."""
    text = cut(text, room)
    pad = " " * (room - width(text))
    return pad + text if right else text + pad


def wrap(text: str, room: int) -> list[str]:
    """Lines of at most `room` cells (2 at least), broken at blanks or commas where possible."""
    rest, lines, room = text.strip(), [], max(2, room)
    while width(rest) > room:
        head = _head(rest, room)
        # A blank right after the cut is as good a place as one before it.
        break_at = max(head.rfind(" "), head.rfind(",") + 1)
        at = len(head) if rest[len(head)] == " " else break_at
        at = at if at > room // 3 else len(head)
        lines.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [*lines, rest]


def labelled(label: str, text: str, room: int, style: str = "text", indent: int = 10) -> list[Line]:
    """A label and wrapped text beside it; nothing when there is no text."""
    if not text:
        return []
    indent = min(indent, max(0, room - 12))
    head = fit(label, indent - 1) + " " if indent else ""
    return [
        (Piece(head if i == 0 else " " * indent, "dim"), Piece(row, style))
        for i, row in enumerate(wrap(text, room - indent))
    ]


def table(columns: Sequence[Column], rows: Sequence[Sequence[Piece]], room: int) -> list[Line]:
    """A head and the rows: columns that are empty or do not fit are left out, the last one is cut.

    Each row has as many pieces as there are columns; its text is safe already.
    """
    wide = [max([width(row[i].text) for row in rows], default=0) for i in range(len(columns))]
    shown = [i for i, cells in enumerate(wide) if cells]
    wide = [max(cells, width(column.title)) for cells, column in zip(wide, columns, strict=True)]

    def need(kept: Sequence[int]) -> int:
        # The last column may be cut to 12 cells before anything is dropped.
        widths = [wide[i] for i in kept]
        return sum(widths[:-1]) + 2 * (len(kept) - 1) + min(widths[-1], 12)

    while len(shown) > 1 and need(shown) > room:
        shown.remove(max(shown, key=lambda i: (columns[i].priority, i)))
    if not shown:
        return []
    last = shown[-1]
    wide[last] = max(1, min(wide[last], room - sum(wide[i] + 2 for i in shown[:-1])))
    head = [Piece(columns[i].title, "head") for i in shown]
    body = [[row[i] for i in shown] for row in rows]
    return [_row(cells, [(columns[i], wide[i]) for i in shown]) for cells in [head, *body]]


def _row(cells: Sequence[Piece], columns: Sequence[tuple[Column, int]]) -> Line:
    line: list[Piece] = []
    for index, (piece, (column, room)) in enumerate(zip(cells, columns, strict=True)):
        text = fit(piece.text, room, right=column.right)
        last = index == len(columns) - 1
        line += [Piece(text.rstrip() if last else text, piece.style)]
        line += [] if last else [Piece("  ")]
    return tuple(line)


def number(value: float | None) -> str:
    """A figure with three to four significant digits; an en dash for none."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:.{0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2}f}"


def percent(share: float | None) -> str:
    """0.218 -> "22%"; at most five cells."""
    if share is None or not math.isfinite(share):
        return ABSENT
    return f"{100 * share:.0f}%" if abs(share) < 99.995 else ">9999%"


def bar(share: float | None, room: int) -> str:
    """A share of 1 as a bar of `room` cells."""
    if share is None or not math.isfinite(share):
        return ""
    full = round(room * min(1.0, max(0.0, share)))
    return "█" * full + "·" * (room - full)


def ascii_only(text: str) -> str:
    """The same cells for a terminal that can carry ASCII only."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else _ASCII.get(char, "?" * _char(char)) for char in text)


def plain(lines: Iterable[Line]) -> str:
    """The text of lines, without trailing blanks."""
    return "\n".join("".join(piece.text for piece in line).rstrip() for line in lines) + "\n"
