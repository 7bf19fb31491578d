"""Plain text for a terminal: hostile strings made harmless, cut and padded by cell width. Pure.

Everything a node, a driver or a scheduler said passes `plain` before it is drawn. Nothing here
knows markup, so a bracket stays a bracket.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from console.tui.words import t

MORE = "…"
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_STACKED = frozenset({"Mn", "Me"})
LEVELS = "▁▂▃▄▅▆▇█"
LEVELS_ASCII = "_.-=+*#@"
_TO_ASCII = str.maketrans(
    {
        "–": "-",
        "…": "~",
        "·": ".",
        "×": "x",
        "→": ">",
        "°": "",
        "≥": ">",
        "≤": "<",
        **dict(zip(LEVELS, LEVELS_ASCII, strict=True)),
        # Frames, scroll bars and cursors of widgets that are not ours.
        **dict.fromkeys("─━═▔", "-"),
        **dict.fromkeys("│┃║▌▐▎▏▕▊", "|"),
        **dict.fromkeys("╭╮╰╯┌┐└┘┏┓┗┛╔╗╚╝", "+"),
    }
)


class Cell(NamedTuple):
    """A piece of a line: text already fit to its width, and a style name of theme.py."""

    text: str
    style: str = "text"


Line = tuple[Cell, ...]


def plain(text: str) -> str:
    """`text` with whatever could move a cursor, reorder or hide text drawn as a middle dot."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_harmless(char) for char in unicodedata.normalize("NFC", text))


def _harmless(char: str) -> str:
    category = unicodedata.category(char)
    if category in _STACKED:
        return ""
    if category == "Zs":
        return " "
    return "·" if category in _HIDDEN else char


def ascii_only(text: str) -> str:
    """`text` for a terminal that carries ASCII only; "?" for each cell that has no equivalent."""
    if text.isascii():
        return text
    told = text.translate(_TO_ASCII)
    return "".join(char if char.isascii() else "?" * cell_len(char) for char in told)


def width_of(text: str) -> int:
    """How many cells a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, align: str = "left") -> str:
    """Exactly `width` cells: cut with an ellipsis or padded; a wide character counts as two."""
    length = width_of(text)
    if length > width:
        return cut(text, width)
    pad = " " * (width - length)
    return pad + text if align == "right" else text + pad


def cut(text: str, width: int) -> str:
    """At most `width` cells, ending in an ellipsis when something was left out."""
    if width <= 0:
        return ""
    if text.isascii():
        return text if len(text) <= width else text[: width - 1] + MORE
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1) + MORE


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken at spaces or beside wide characters if possible."""
    lines: list[str] = []
    rest = text.strip()
    while rest and (cells := width_of(rest)) > width > 0:
        head = set_cell_size(rest, width)
        narrow = cells == len(rest)
        at = head.rfind(" ") if narrow else _break(rest, len(head.rstrip()))
        if at <= (width // 3 if narrow else 0):
            # A double-width character in a one-cell line fits nowhere: it goes through whole.
            at = max(1, len(head.rstrip()))
        lines.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [*lines, rest] if rest or not lines else lines


_NO_BEGINNING = frozenset("，。、；：？！）》”’…")


def _break(text: str, end: int) -> int:
    """Where to break a text with wide characters, at `end` at the latest; -1 for nowhere."""
    for at in range(min(end, len(text) - 1), 0, -1):
        before, after = text[at - 1], text[at]
        if after == " " or (after not in _NO_BEGINNING and cell_len(before + after) > 2):
            return at
    return -1


def spark(values: Sequence[float | None], width: int, low: float, high: float) -> str:
    """The last `width` values as bars between `low` and `high`, a blank where there was none;
    fewer values, shorter text."""
    span = max(high - low, 1e-9)
    top = len(LEVELS) - 1
    return "".join(
        " " if value is None else LEVELS[max(0, min(top, int((value - low) / span * top + 0.5)))]
        for value in list(values)[-width:]
    )


class Column(NamedTuple):
    """A column of a table. Columns are kept or dropped whole, lowest `priority` number first."""

    name: str
    title: str
    width: int
    """Cells; for the one flexible column its minimum."""
    priority: int
    align: str = "left"
    flexible: bool = False


def choose(columns: Sequence[Column], width: int, gap: int = 1) -> list[Column]:
    """The columns that fit in `width`, in declared order; the flexible one takes what is left."""
    kept: list[Column] = []
    room = width
    for column in sorted(columns, key=lambda c: c.priority):
        need = column.width + (gap if kept else 0)
        if need <= room or not kept:
            kept.append(column)
            room -= need
        elif not column.flexible:
            break
    chosen = [column for column in columns if column in kept]
    return [c._replace(width=c.width + max(0, room)) if c.flexible else c for c in chosen]


def heading(columns: Iterable[Column]) -> Line:
    """The title cells of a table, in the operator's language."""
    return tuple(Cell(fit(t(c.title), c.width, c.align), "head") for c in columns)


def joined(cells: Iterable[Cell], gap: str = " ") -> Line:
    """Cells with a gap between, as one line."""
    line: list[Cell] = []
    for cell in cells:
        if line:
            line.append(Cell(gap))
        line.append(cell)
    return tuple(line)


def hints(*keys: tuple[str, str]) -> Line:
    """Keys and what they do, three cells apart."""
    line: list[Cell] = []
    for key, what in keys:
        line += [Cell("   ")] if line else []
        line += [Cell(key, "key"), Cell(f" {what}")]
    return tuple(line)


def labelled(label: str, text: str, width: int, style: str, column: int = 8) -> list[Line]:
    """`label text`, wrapped under the text; nothing when there is no text."""
    if not text:
        return []
    head = fit(cut(label, column - 1), column)
    return [
        (Cell(head if i == 0 else " " * column, "key"), Cell(row, style))
        for i, row in enumerate(wrap(text, max(10, width - column)))
    ]


def line_text(line: Line) -> str:
    """The text of a line, for tests and copying."""
    return "".join(cell.text for cell in line)
