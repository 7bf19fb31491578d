"""Where GPUs are on a canvas: nodes in columns, each with its GPUs beside its name. Pure.

A node takes as many lines as the largest needs, so that places can be computed and nothing jumps.
"""

from __future__ import annotations

from typing import NamedTuple

GAP = 2
NAME_MOST = 24
SIGN = 1
MAP_MOST = 8
"""Columns of the minimap; it takes a sixteenth of the width at most."""
NUMBER = 5
"""Cells of a GPU where all of them fit as numbers: a sign and four digits."""


class Layout(NamedTuple):
    """Cells and lines. A block is a sign, a name, a blank and GPUs."""

    name: int
    """Cells of the name; 0 where there is no room for names."""
    across: int
    """GPUs on a line of a block."""
    height: int
    """Lines of a block."""
    columns: int
    """Blocks side by side."""
    map_width: int = 0
    """Cells of the minimap at the right, its bar included; 0 where all nodes are in sight."""
    cell: int = 1
    """Cells of a GPU: 1 for a level, NUMBER for a number."""

    @property
    def head(self) -> int:
        """Cells before the GPUs."""
        return SIGN + self.name + 1 if self.name else 0

    @property
    def block(self) -> int:
        """Cells of a block."""
        return self.head + self.across * self.cell

    def rows(self, nodes: int) -> int:
        """Rows of blocks."""
        return -(-nodes // self.columns)

    def visible(self, height: int) -> int:
        """Rows of blocks that fit whole; at least one."""
        return max(1, height // self.height)

    def left(self, column: int) -> int:
        """Where a column of blocks begins."""
        return column * (self.block + GAP)

    def gpu(self, gpu: int) -> tuple[int, int]:
        """(line in the block, cell in the block) of a GPU."""
        return gpu // self.across, self.head + gpu % self.across * self.cell

    def hit(self, x: int, y: int) -> tuple[int, int | None] | None:
        """(node, GPU) at a cell, lines counted from the first node; GPU None on the name."""
        column, inside = divmod(x, self.block + GAP)
        if column >= self.columns or inside >= self.block:
            return None
        node = y // self.height * self.columns + column
        if inside < self.head:
            return node, None
        return node, y % self.height * self.across + (inside - self.head) // self.cell


def arrange(width: int, height: int, nodes: int, most: int, longest: int) -> Layout:
    """The layout that needs the fewest lines; `most` GPUs a node, names of `longest` cells.

    Numbers where everything is in sight with them, else levels.
    """
    numbers = _arranged(width, nodes, most, longest, NUMBER)
    if numbers is not None and numbers.rows(nodes) * numbers.height <= height:
        return numbers
    whole = _arranged(width, nodes, most, longest) or Layout(0, 1, max(1, most), 1)
    if whole.rows(nodes) <= whole.visible(height) or width < 24:
        return whole
    map_width = min(MAP_MOST, max(2, width // 16)) + 1
    beside = _arranged(width - map_width - 1, nodes, most, longest) or whole
    return beside._replace(map_width=map_width)


def _arranged(width: int, nodes: int, most: int, longest: int, cell: int = 1) -> Layout | None:
    """None where not one GPU fits."""
    width, most = max(1, width), max(1, most)
    name = min(longest, NAME_MOST, max(6, width // 3))
    if SIGN + name + 1 + cell > width:
        name = max(0, width - SIGN - 1 - cell)
    room = (width - (SIGN + name + 1 if name else 0)) // cell
    found = [
        _columns(width, Layout(name, across, -(-most // across), 1, 0, cell))
        for across in {most, 8, 4, room}
        if 0 < across <= min(most, room)
    ]
    return min(found, key=lambda one: (one.rows(nodes) * one.height, one.height), default=None)


def _columns(width: int, one: Layout) -> Layout:
    """As many blocks side by side as fit."""
    return one._replace(columns=max(1, (width + GAP) // (one.block + GAP)))
