"""The canvas of the heat map: blocks of nodes in columns, the minimap beside them.

The cursor is on a node and one of its GPUs, not on a place. What scrolls or changes is compared
cell by cell with what was drawn, and only cells that differ are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Protocol

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from console.tui.commands import move_keys as keys
from console.tui.text import Cell, Line, ascii_only
from console.tui.theme import ASCII, Look
from console.tui.views.gpu_cells import Block
from console.tui.views.gpu_layout import Layout
from console.tui.widgets.pieces import Piece, differences, joined

WHEEL = 3
"""Rows of a turn of the wheel."""


class Source(Protocol):
    """What the canvas asks for while it draws."""

    def places(self, width: int, height: int) -> Layout:
        """Places for all nodes shown."""
        ...

    def node_block(self, name: str, layout: Layout) -> Block:
        """A node as drawn."""
        ...

    def minimap(self, layout: Layout, height: int, top: int) -> Sequence[Line]:
        """Lines at the right, each as wide as the layout says."""
        ...


class HeatCanvas(Widget, can_focus=True):
    """Nodes and their GPUs."""

    DEFAULT_CSS = "HeatCanvas { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(keys("up"), "step(-1)", "up", id="up", show=False, priority=True),
        Binding(keys("down"), "step(1)", "down", id="down", show=False, priority=True),
        Binding("left", "gpu(-1)", "left", show=False, priority=True),
        Binding("right", "gpu(1)", "right", show=False, priority=True),
        Binding("shift+left,ctrl+left", "move(-1)", "node before", show=False, priority=True),
        Binding("shift+right,ctrl+right", "move(1)", "next node", show=False, priority=True),
        Binding(keys("page_up"), "page(-1)", "page up", id="page_up", show=False, priority=True),
        Binding(
            keys("page_down"), "page(1)", "page down", id="page_down", show=False, priority=True
        ),
        Binding(keys("first"), "edge(0)", "first", id="first", show=False, priority=True),
        Binding(keys("last"), "edge(1)", "last", id="last", show=False, priority=True),
    ]

    class Moved(Message):
        """The cursor is on another GPU, or another part is in sight."""

        def __init__(self, *, jumped: bool = False) -> None:
            """`jumped`: not by the operator."""
            super().__init__()
            self.jumped = jumped

    class Opened(Message):
        """The operator clicked the GPU under the cursor again."""

    def __init__(self, look: Look, source: Source, *, id: str | None = None) -> None:  # noqa: A002
        """Empty until `show`."""
        super().__init__(id=id)
        self.look = look
        self.source = source
        self.order: list[str] = []
        self.cursor: str | None = None
        self.gpu = 0
        """Place of the GPU under the cursor in its node."""
        self.touched = False
        self.expected = False
        self.top = 0
        """First visible row of blocks."""
        self.laid = Layout(0, 1, 1, 1)
        self._index: dict[str, int] = {}
        self._left: str | None = None
        """Where the cursor was when the last node went out of sight."""
        self._map: Sequence[Line] = ()
        self._drawn: dict[int, list[Piece]] = {}

    def show(self, order: list[str]) -> None:
        """Take a new order, keep the cursor on its node, repaint what changed."""
        before = self.cursor
        expected, self.expected = self.expected, False
        if order != self.order:
            self._keep_cursor(order)
            self.order = order
            self._index = {name: i for i, name in enumerate(order)}
        layout = self.source.places(self.size.width, self.size.height)
        if layout != self.laid or self.cursor != before:
            self.laid = layout
            self._reveal()
        self._scroll(self.top)
        self._draw_map()
        self._repaint_changes()
        if self.cursor != before:
            self.post_message(self.Moved(jumped=before is not None and not expected))

    def in_sight(self) -> list[str]:
        """Nodes whose blocks are drawn now."""
        columns = self.laid.columns
        first = self.top * columns
        return self.order[first : first + (self.laid.visible(self.size.height) + 1) * columns]

    def _keep_cursor(self, order: list[str]) -> None:
        if not order:
            self._left, self.cursor = self.cursor or self._left, None
            return
        shown = set(order)
        if self.cursor is None and self._left in shown:
            self.cursor = self._left
        if self.cursor is None:
            self.cursor = order[0]
        elif self.cursor not in shown:
            at = self._index.get(self.cursor, 0)
            nearest = (*self.order[at:], *reversed(self.order[:at]))
            self.cursor = next((name for name in nearest if name in shown), order[0])

    def _gpus(self, name: str | None) -> int:
        return max(1, len(self.source.node_block(name, self.laid).gpus)) if name else 1

    def move_to(self, name: str, gpu: int | None = None) -> None:
        """Put the cursor on a node that is shown, and on one of its GPUs."""
        self.touched = True
        if name not in self._index:
            return
        gpu = self.gpu if gpu is None else gpu
        lines, top = self._lines_of(self.cursor), self.top
        self.cursor, self.gpu = name, max(0, min(self._gpus(name) - 1, gpu))
        self._reveal()
        if self.top == top:
            self._repaint_changes({*lines, *self._lines_of(name)})
        else:
            self._draw_map()
            self._repaint_changes()
        self.post_message(self.Moved())

    def _lines_of(self, name: str | None) -> range:
        """Lines of the canvas that a node's block is on."""
        if name not in self._index:
            return range(0)
        first = (self._index[name] // self.laid.columns - self.top) * self.laid.height
        return range(max(0, first), min(self.size.height, first + self.laid.height))

    def action_move(self, nodes: int) -> None:
        """To the node so many places on."""
        if self.cursor is not None:
            at = self._index[self.cursor] + nodes
            self.move_to(self.order[max(0, min(len(self.order) - 1, at))])

    def action_step(self, lines: int) -> None:
        """Up or down: within a tall block its lines, else to the block above or below."""
        if self.cursor is None:
            return
        across, columns = self.laid.across, self.laid.columns
        gpu, at = self.gpu + lines * across, self._index[self.cursor]
        if 0 <= gpu < self._gpus(self.cursor):
            self.move_to(self.cursor, gpu)
        elif 0 <= at + lines * columns < len(self.order):
            name, column = self.order[at + lines * columns], self.gpu % across
            last = (self._gpus(name) - 1) // across * across
            self.move_to(name, column + (last if lines < 0 else 0))

    def action_gpu(self, gpus: int) -> None:
        """To the next GPU, on to the next node behind the last one."""
        if self.cursor is None:
            return
        gpu, at = self.gpu + gpus, self._index[self.cursor]
        if 0 <= gpu < self._gpus(self.cursor):
            self.move_to(self.cursor, gpu)
        elif 0 <= at + gpus < len(self.order):
            name = self.order[at + gpus]
            self.move_to(name, 0 if gpus > 0 else self._gpus(name) - 1)

    def action_page(self, pages: int) -> None:
        """A screenful up or down."""
        rows = max(1, self.laid.visible(self.size.height) - 1)
        if self.cursor is not None:
            step = pages * rows * self.laid.columns
            at = self._index[self.cursor] + step
            column = self._index[self.cursor] % self.laid.columns
            last = (len(self.order) - 1) // self.laid.columns * self.laid.columns
            at = column if at < 0 else min(last + column, len(self.order) - 1, at)
            self.move_to(self.order[at])

    def action_edge(self, last: int) -> None:
        """To the first or the last node."""
        if self.order:
            self.move_to(self.order[-1 if last else 0])

    def _reveal(self) -> None:
        """Scroll by as little as needed to have the cursor's block in sight."""
        if self.cursor is None or self.cursor not in self._index:
            return
        row = self._index[self.cursor] // self.laid.columns
        visible = self.laid.visible(self.size.height)
        self._scroll(min(row, max(self.top, row - visible + 1)))

    def _scroll(self, top: int) -> None:
        rows = self.laid.rows(len(self.order))
        self.top = max(0, min(top, rows - self.laid.visible(self.size.height)))

    def scroll_rows(self, top: int) -> None:
        """Another part of the whole; the cursor stays where it is."""
        self._scroll(top)
        self._draw_map()
        self._repaint_changes()
        self.post_message(self.Moved())

    def on_resize(self, event: events.Resize) -> None:
        """Everything has another place."""
        self._drawn.clear()
        self.laid = self.source.places(self.size.width, self.size.height)
        self._reveal()
        self._scroll(self.top)
        self._draw_map()
        self.refresh()

    def repaint(self) -> None:
        """Draw everything again: another metric, other glyphs."""
        self._drawn.clear()
        self._draw_map()
        self.refresh()

    def _draw_map(self) -> None:
        height = self.size.height
        shown = self.laid.map_width and height
        self._map = self.source.minimap(self.laid, height, self.top) if shown else ()

    def _repaint_changes(self, lines: Iterable[int] | None = None) -> None:
        """Compare with what was drawn and refresh cells that differ, on all lines or these."""
        regions: list[Region] = []
        for y in range(self.size.height) if lines is None else lines:
            was, now = self._drawn.get(y), self._pieces(y)
            if was is None:
                regions.append(Region(0, y, self.size.width, 1))
            elif was != now:
                regions += differences(y, was, now, self.size.width)
        if regions:
            self.refresh(*regions)

    def _pieces(self, y: int) -> list[Piece]:
        layout = self.laid
        row, line = divmod(y, layout.height)
        first = (self.top + row) * layout.columns
        pieces = [
            Piece(layout.left(column), self._cells(name, line))
            for column, name in enumerate(self.order[first : first + layout.columns])
        ]
        if y < len(self._map):
            cells = tuple((cell, False) for cell in self._map[y])
            pieces.append(Piece(self.size.width - layout.map_width, cells))
        return pieces

    def _cells(self, name: str, line: int) -> tuple[tuple[Cell, bool], ...]:
        """One line of a block, as wide as every block."""
        layout, block = self.laid, self.source.node_block(name, self.laid)
        here = name == self.cursor
        blank = (Cell(" " * layout.head), False)
        head = [(cell, here) for cell in block.head[:2]] + [(c, False) for c in block.head[2:]]
        first = line * layout.across
        gpus = block.gpus[first : first + layout.across]
        cells = head if not line else [blank] if layout.head else []
        cells += [(cell, here and first + i == self.gpu) for i, cell in enumerate(gpus)]
        cells += [(Cell(" " * layout.cell), False)] * (layout.across - len(gpus))
        return tuple(cells)

    def render_line(self, y: int) -> Strip:
        """One line of the canvas; neighbours of one style are sent as one."""
        pieces = self._drawn[y] = self._pieces(y)
        look, plain = self.look, self.look.glyphs is ASCII
        runs: list[tuple[str, Style]] = []
        at = 0
        for piece in pieces:
            if piece.x > at:
                runs.append((" " * (piece.x - at), look.style("text")))
            at = piece.x
            for cell, here in piece.cells:
                style = look.cursor(cell.style) if here else look.style(cell.style)
                text = ascii_only(cell.text) if plain else cell.text
                runs.append((text, style))
                at += 1 if len(text) == 1 else Segment(text).cell_length
        return Strip(list(joined(runs))).adjust_cell_length(self.size.width, look.style("text"))

    def _at(self, event: events.MouseEvent) -> tuple[str, int | None] | None:
        """Node and GPU under the mouse."""
        layout = self.laid
        hit = layout.hit(event.x, event.y + self.top * layout.height)
        if hit is None or hit[0] >= len(self.order):
            return None
        name, gpu = self.order[hit[0]], hit[1]
        known = gpu is not None and gpu < self._gpus(name)
        return name, gpu if known else None

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor on a GPU, a click on the cursor opens its node; on the minimap
        it shows that part."""
        layout, height = self.laid, self.size.height
        if layout.map_width and event.x >= self.size.width - layout.map_width:
            row = event.y * layout.rows(len(self.order)) // max(1, height)
            self.scroll_rows(row - layout.visible(height) // 2)
            return
        found = self._at(event)
        if found is None:
            return
        if found == (self.cursor, self.gpu) and self.touched:
            self.post_message(self.Opened())
        else:
            self.move_to(*found)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Further down; the cursor stays."""
        event.stop()
        self.scroll_rows(self.top + WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Further up; the cursor stays."""
        event.stop()
        self.scroll_rows(self.top - WHEEL)
