"""The pairs as a picture, nodes x nodes, one character a cell by its share of the yardstick. Pure.

`·` at least 95 %, else the tenths reached (9 is 90 to 95 %, 2 is 20 to 30 %), `✗` no figure, blank
not run, `-` the node itself. Up to 60 nodes every node has a row; of more, only those with
something to see, against blocks of neighbouring nodes.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from console.active.cells import Line, Piece, ascii_only, fit, percent, plain, safe, width, wrap
from console.active.figures import (
    FINE,
    Yardstick,
    amount,
    busbw,
    hosts,
    named,
    share,
    tone,
    yardstick,
)
from console.active.results import Campaign, Level, Progress
from inventory.expressions import natural_key
from probes.event import Severity

WHOLE = 60
"""Most nodes drawn with a row and a column each."""
ROWS = 40
"""Most rows of a folded picture; the rest is named below it."""
NAME_CELLS = 20
BLOCK = 10
"""Columns between two gaps."""
_ENDING = re.compile(r"(.*?)([0-9]{1,4})")
FAILED = -1.0
"""A pair that ran and has no figure: worse than any share."""


class Matrix(NamedTuple):
    """The pairs of a campaign."""

    nodes: tuple[str, ...]
    """In natural order."""
    cells: Mapping[tuple[str, str], float]
    """(a, b) with a before b in `nodes` -> the lowest share measured, or FAILED."""
    yard: Yardstick
    named: frozenset[str]
    odd: int = 0
    """Pairs with a figure over another number of ranks: there is no share to draw."""

    def cell(self, a: str, b: str) -> float | None:
        """The pair, in either order; None when it was not run."""
        return self.cells.get((a, b), self.cells.get((b, a)))


class Row(NamedTuple):
    """One node against its partners."""

    node: str
    cells: tuple[float | None, ...]
    """Per column; a folded column holds the lowest of its nodes."""
    run: int
    below: int
    """Of these, below 95 % or without a figure."""
    median: float | None
    worst: float | None
    worst_with: str


class Picture(NamedTuple):
    """What is drawn: rows against columns."""

    rows: tuple[Row, ...]
    columns: tuple[tuple[str, ...], ...]
    """The nodes of each column: one, or a block of neighbours."""
    left: tuple[str, ...]
    """Nodes with something to see that have no row."""


def matrix(campaign: Campaign) -> Matrix | None:
    """The pairs that ran; None for other levels and when there is nothing to draw."""
    if campaign.level is not Level.PAIRS:
        return None
    yard, cells = yardstick(campaign), dict[tuple[str, str], float]()
    runs = [run for run in campaign.runs if len(run.group.nodes) == 2 and run.group.rail is None]
    nodes = sorted({name for run in runs for name in run.group.nodes}, key=natural_key)
    order = {name: i for i, name in enumerate(nodes)}
    for run in runs:
        a, b = sorted(run.group.nodes, key=order.__getitem__)
        part = FAILED if run.state in (Progress.FAILED, Progress.TIMED_OUT) else share(run, yard)
        if part is not None and a != b:
            cells[a, b] = min(part, cells.get((a, b), part))
    odd = {r.group.nodes for r in runs if busbw(r) is not None and share(r, yard) is None}
    return Matrix(tuple(nodes), cells, yard, named(campaign), len(odd)) if cells else None


def picture(m: Matrix, columns: int, rows: int = ROWS) -> Picture:
    """Rows and columns to draw in at most `columns` columns."""
    partners = _partners(m)
    if len(m.nodes) <= min(WHOLE, columns):
        whole = tuple((n,) for n in m.nodes)
        return Picture(tuple(_row(m, n, partners, whole) for n in m.nodes), whole, ())
    size = -(-len(m.nodes) // max(1, min(WHOLE, columns)))
    blocks = tuple(m.nodes[i : i + size] for i in range(0, len(m.nodes), size))
    seen = _worth_seeing(m, partners)
    shown = sorted(seen[:rows], key=natural_key)
    drawn = tuple(_row(m, name, partners, blocks) for name in shown)
    return Picture(drawn, blocks, tuple(sorted(seen[rows:], key=natural_key)))


Partners = Mapping[str, Mapping[str, float]]


def _partners(m: Matrix) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {name: {} for name in m.nodes}
    for (a, b), part in m.cells.items():
        found[a][b] = found[b][a] = part
    return found


def _row(m: Matrix, name: str, partners: Partners, columns: Iterable[tuple[str, ...]]) -> Row:
    mine = partners[name]
    worst_with = min(mine, key=lambda n: (mine[n], natural_key(n)), default="")
    good = [part for part in mine.values() if part != FAILED]
    return Row(
        name,
        tuple(min((mine[n] for n in block if n in mine), default=None) for block in columns),
        len(mine),
        sum(part < FINE for part in mine.values()),
        statistics.median(good) if good else None,
        mine.get(worst_with),
        worst_with,
    )


def _worth_seeing(m: Matrix, partners: Partners) -> list[str]:
    """Nodes that explain what is below: first the named ones, then those mostly low, then the ends
    of the low pairs that these leave unexplained; the most telling first."""
    low = {name: sum(p < FINE for p in mine.values()) for name, mine in partners.items()}
    mostly = [n for n, mine in partners.items() if mine and 2 * low[n] > len(mine)]
    seen = dict.fromkeys(
        [*sorted(m.named & set(m.nodes), key=natural_key), *sorted(mostly, key=lambda n: -low[n])]
    )
    rest = sorted((part, pair) for pair, part in m.cells.items() if part < FINE)
    for _, (a, b) in rest:
        if a not in seen and b not in seen:
            seen |= dict.fromkeys((a, b))
    return list(seen)


def lines(m: Matrix, room: int) -> list[Line]:
    """The picture with its legend in `room` cells."""
    labels, numbers = _labels(m)
    label = min(NAME_CELLS, max(map(width, labels.values())), max(4, room // 4))
    folded = len(m.nodes) > WHOLE or label + 2 + _spread(len(m.nodes)) > room
    tail = 24 if folded and room >= 60 else 0
    columns = max(1, (room - label - 2 - tail) * BLOCK // (BLOCK + 1))
    drawn = picture(m, columns)
    out = _head(drawn, numbers, label, tail) if drawn.rows else []
    out += [_line(row, drawn, fit(labels[row.node], label), tail) for row in drawn.rows]
    return [*out, *_legend(m, drawn, room)]


def _labels(m: Matrix) -> tuple[dict[str, str], dict[str, int]]:
    """Node -> what its row is called, and node -> the number of its column.

    The numbers are those of the names where these differ in nothing else; else positions.
    """
    ends = {name: _ENDING.fullmatch(name) for name in m.nodes}
    if len({end[1] if end else name for name, end in ends.items()}) == 1:
        numbers = {name: int(end[2]) for name, end in ends.items() if end}
        if len(set(numbers.values())) == len(m.nodes):
            return {name: safe(name, 80) for name in m.nodes}, numbers
    numbers = {name: i for i, name in enumerate(m.nodes, 1)}
    high = len(str(len(m.nodes)))
    return {name: f"{i:>{high}} {safe(name, 80)}" for name, i in numbers.items()}, numbers


def _spread(columns: int) -> int:
    """Cells of so many columns with their gaps."""
    return columns + max(0, columns - 1) // BLOCK


def _head(drawn: Picture, numbers: Mapping[str, int], label: int, tail: int) -> list[Line]:
    """The number of each column, read downwards."""
    firsts = [numbers[block[0]] for block in drawn.columns]
    high = len(str(max(firsts)))
    rows: list[Line] = []
    for digit in range(high):
        text = _gapped(str(first).rjust(high)[digit] for first in firsts)
        last = digit == high - 1
        ending = "  median  below 95%" if last and tail else ""
        rows.append((Piece(f"{fit('node' if last else '', label)}  {text}{ending}", "dim"),))
    return rows


def _gapped(chars: Iterable[str]) -> str:
    return "".join((" " if i and i % BLOCK == 0 else "") + char for i, char in enumerate(chars))


def _line(row: Row, drawn: Picture, label: str, tail: int) -> Line:
    pieces = [Piece(label + "  ", "text")]
    for index, (part, column) in enumerate(zip(row.cells, drawn.columns, strict=True)):
        gap = " " if index and index % BLOCK == 0 else ""
        own = column == (row.node,)
        glyph, style = ("-", "dim") if own else (cell_glyph(part), cell_style(part))
        pieces.append(Piece(gap + glyph, style))
    if tail:
        told = f"  {percent(row.median):>6}  {row.below} of {row.run}"
        pieces.append(Piece(told, tone(row.median).value))
    return _merged(pieces)


def _merged(pieces: Sequence[Piece]) -> Line:
    """Neighbours of one style as one piece: a fine row is two pieces, not sixty."""
    line: list[Piece] = []
    for piece in pieces:
        if line and line[-1].style == piece.style:
            line[-1] = Piece(line[-1].text + piece.text, piece.style)
        else:
            line.append(piece)
    return tuple(line)


def cell_glyph(part: float | None) -> str:
    """One character for a share."""
    if part is None:
        return " "
    if part == FAILED:
        return "✗"
    return "·" if part >= FINE else str(int(min(9.0, max(0.0, part * 10))))


def cell_style(part: float | None) -> str:
    """The style of a share: a pair without a figure is critical to the eye."""
    if part is None:
        return "dim"
    mood = Severity.CRITICAL if part == FAILED else tone(part)
    return "text" if mood is Severity.OK else mood.value


def _legend(m: Matrix, drawn: Picture, room: int) -> list[Line]:
    told = [f"{len(m.cells)} pairs of {len(m.nodes)} nodes; shares of {_yard(m.yard)}."]
    if m.odd:
        told.append(f"Blank: {m.odd} with another number of ranks than {m.yard.ranks}.")
    told += ["· 95% or more, 9 to 0 tenths reached, ✗ no figure, blank not run."]
    if drawn.columns and max(map(len, drawn.columns)) > 1:
        size = len(drawn.columns[0])
        told += [f"Each column is {size} neighbouring nodes and shows their lowest pair."]
    if len(drawn.rows) < len(m.nodes):
        quiet = len(m.nodes) - len(drawn.rows) - len(drawn.left)
        told += [f"{quiet} nodes with nothing to see have no row."]
    if drawn.left:
        told += [f"Also low, not drawn: {hosts(drawn.left, 200)}."]
    return [(Piece(row, "dim"),) for text in told for row in wrap(text, room)]


def _yard(yard: Yardstick) -> str:
    return f"{amount(yard.value, 'GB/s')} ({safe(yard.words, 120)})"


def text(campaign: Campaign, width: int = 80, *, ascii: bool = False) -> str:  # noqa: A002
    """The picture as text; "" when there are no pairs."""
    found = matrix(campaign)
    if found is None:
        return ""
    drawn = plain(lines(found, width))
    return ascii_only(drawn) if ascii else drawn
