"""The fleet grid: one line per node, keyed by node, repainting only cells that changed.

The cursor is on a node, not on a line: sorting, filtering and updates move the line under it. Until
the operator first touches it, it stays on the first line, where the worst node is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.tui.commands import move_keys as keys
from console.tui.text import Cell, Column, ascii_only, heading
from console.tui.theme import ASCII, Look

Rows = Callable[[str, Sequence[Column]], list[Cell]]
"""Cells of a node for the chosen columns."""
Content = tuple[str | None, bool, list[Cell]]
"""Node of a line, whether it is under the cursor, its cells."""
Columns = Callable[[int], list[Column]]
"""Columns for a width."""


class Grid(ScrollView, can_focus=True):
    """Nodes as lines under a fixed heading."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(keys("up"), "move(-1)", "up", id="up", show=False, priority=True),
        Binding(keys("down"), "move(1)", "down", id="down", show=False, priority=True),
        Binding(keys("page_up"), "page(-1)", "page up", id="page_up", show=False, priority=True),
        Binding(
            keys("page_down"), "page(1)", "page down", id="page_down", show=False, priority=True
        ),
        Binding(keys("first"), "edge(0)", "first", id="first", show=False, priority=True),
        Binding(keys("last"), "edge(1)", "last", id="last", show=False, priority=True),
    ]

    class Moved(Message):
        """The cursor is on another node."""

        def __init__(self, name: str | None, *, jumped: bool = False) -> None:
            """`name` is None when nothing is shown; `jumped`: not by the operator."""
            super().__init__()
            self.name, self.jumped = name, jumped

    class Opened(Message):
        """The operator clicked the node under the cursor again."""

    def __init__(self, look: Look, columns: Columns, rows: Rows, *, id: str | None = None) -> None:  # noqa: A002
        """`rows` is asked for visible nodes only."""
        super().__init__(id=id)
        self.look = look
        self.order: list[str] = []
        self.cursor: str | None = None
        self.touched = False
        self.expected = False
        self._left: str | None = None
        """Where the cursor was when the last node went out of sight."""
        self._columns_for = columns
        self._rows = rows
        self._columns: list[Column] = []
        self._width = 0
        self._lines: dict[str, int] = {}
        self._drawn: dict[int, Content] = {}
        """Line of the widget -> as last drawn."""
        self._made: dict[int, Content] = {}
        """Line of the widget -> as just compared; each is drawn from once at most."""

    @property
    def body(self) -> int:
        """Lines available for nodes."""
        return max(0, self.size.height - 1)

    @property
    def top(self) -> int:
        """Index in `order` of the first visible node."""
        return int(self.scroll_offset.y)

    def show(self, order: list[str]) -> None:
        """Take a new order, keep the cursor on its node, repaint what changed."""
        before, in_sight = self.cursor, self._in_sight()
        expected, self.expected = self.expected, False
        if self.scrollable_size.width != self._width:
            # A scrollbar that came or went changes the width without a Resize.
            self.recolumn()
        self._keep_cursor(order)
        if order != self.order:
            self.order = order
            self._lines = {name: i for i, name in enumerate(order)}
            self.virtual_size = Size(self.size.width, len(order) + 1)
            if in_sight or self.cursor != before:
                self._reveal()
        self.repaint_changes()
        if self.cursor != before:
            self.post_message(self.Moved(self.cursor, jumped=before is not None and not expected))

    def _keep_cursor(self, order: list[str]) -> None:
        if not order:
            # Nothing may be done to a node that nobody sees.
            self._left, self.cursor = self.cursor or self._left, None
            return
        if self.cursor is None and self._left in set(order):
            self.cursor = self._left
        if not self.touched or self.cursor is None:
            self.cursor = order[0]
        elif self.cursor not in set(order):
            self.cursor = self._neighbour(order)

    def back_to(self, name: str | None) -> None:
        """The next `show` starts from this row: the cursor is on it, or near where it would be."""
        if name is not None and self.touched:
            self.cursor = self._left = name

    def _neighbour(self, order: list[str]) -> str:
        """Where the cursor goes when its node is filtered out: the nearest one still shown."""
        shown = set(order)
        at = self._lines.get(self.cursor or "", 0)
        for name in (*self.order[at:], *reversed(self.order[:at])):
            if name in shown:
                return name
        return order[0]

    def recolumn(self) -> None:
        """Choose columns again (other width, wide mode, longer names) and repaint everything."""
        self._width = self.scrollable_size.width
        self._columns = self._columns_for(self._width)
        self._drawn.clear()
        self._made.clear()
        self.refresh()

    def watch_show_vertical_scrollbar(self) -> None:
        """A scrollbar takes a cell of every line."""
        if self._width:
            self.recolumn()

    def on_resize(self, event: events.Resize) -> None:
        """Columns depend on the width."""
        self.virtual_size = Size(self.size.width, len(self.order) + 1)
        self.recolumn()
        self._reveal()

    def move_to(self, name: str) -> None:
        """Put the cursor on a node that is shown."""
        self.touched = True
        if name not in self._lines or name == self.cursor:
            return
        before, top = self._lines.get(self.cursor or "", -1), self.top
        self.cursor = name
        self._reveal()
        if self.top == top:
            # A key changes two lines; comparing all fifty would cost more than painting them.
            self.repaint_changes([at - top + 1 for at in (before, self._lines[name])])
        else:
            self.repaint_changes()
        self.post_message(self.Moved(name))

    def action_move(self, lines: int) -> None:
        """Cursor up or down."""
        at = self._lines.get(self.cursor or "", 0)
        self._move_index(at + lines)

    def action_page(self, pages: int) -> None:
        """Cursor a screenful up or down."""
        self.action_move(pages * max(1, self.body - 1))

    def action_edge(self, last: int) -> None:
        """Cursor to the first or last node."""
        self._move_index(len(self.order) - 1 if last else 0)

    def _move_index(self, index: int) -> None:
        if self.order:
            self.move_to(self.order[max(0, min(len(self.order) - 1, index))])

    def _in_sight(self) -> bool:
        at = self._lines.get(self.cursor or "", 0)
        return self.top <= at < self.top + self.body

    def _reveal(self) -> None:
        """Scroll by as little as needed to have the cursor's line visible."""
        at = self._lines.get(self.cursor or "")
        if at is None or not self.body:
            return
        if at < self.top:
            self.scroll_to(y=at, animate=False, force=True)
        elif at >= self.top + self.body:
            self.scroll_to(y=at - self.body + 1, animate=False, force=True)

    def repaint_changes(self, lines: Sequence[int] | None = None) -> None:
        """Compare visible lines, all or these, with what was drawn; refresh cells that differ."""
        regions: list[Region] = []
        for y in lines or range(1, self.size.height):
            if not 0 < y < self.size.height:
                continue
            now, was = self._content(y), self._drawn.get(y)
            if was == now:
                continue
            self._made[y] = now
            whole = [Region(0, y, self.size.width, 1)]
            regions += whole if was is None else self._difference(y, was, now)
        if regions:
            self.refresh(*regions)

    def _difference(self, y: int, was: Content, now: Content) -> list[Region]:
        if was[:2] != now[:2] or len(was[2]) != len(now[2]):
            return [Region(0, y, self.size.width, 1)]
        regions: list[Region] = []
        x = 0
        for old, new, column in zip(was[2], now[2], self._columns, strict=True):
            if old != new:
                last = regions[-1] if regions else None
                if last is not None and last.right + 1 == x:
                    # Sending the gap takes 1 byte, moving over it 8.
                    regions[-1] = Region(last.x, y, x + column.width - last.x, 1)
                else:
                    regions.append(Region(x, y, column.width, 1))
            x += column.width + 1
        return regions

    def _content(self, y: int) -> Content:
        index = self.top + y - 1
        if y < 1 or index >= len(self.order):
            return None, False, []
        name = self.order[index]
        return name, name == self.cursor, self._rows(name, self._columns)

    def render_line(self, y: int) -> Strip:
        """One line: the heading, a node, or nothing."""
        if y == 0:
            return self._strip(list(heading(self._columns)), False)
        content = self._drawn[y] = self._just_made(y) or self._content(y)
        return self._strip(content[2], content[1])

    def _just_made(self, y: int) -> Content | None:
        """What the comparison made of this line a moment ago, if it is the same line."""
        made, index = self._made.pop(y, None), self.top + y - 1
        if made is None or index >= len(self.order) or made[0] != self.order[index]:
            return None
        return made if made[1] == (made[0] == self.cursor) else None

    def _strip(self, cells: list[Cell], cursor: bool) -> Strip:
        look, plain = self.look, self.look.glyphs is ASCII
        style = look.cursor if cursor else look.style
        gap = Segment(
            " ", style("head" if not cursor and cells and cells[0].style == "head" else "text")
        )
        segments: list[Segment] = []
        for cell in cells:
            if segments:
                segments.append(gap)
            text = ascii_only(cell.text) if plain else cell.text
            segments.append(Segment(text, style(cell.style)))
        filler = look.cursor("text") if cursor else look.style("text")
        return Strip(segments).adjust_cell_length(self.size.width, filler)

    def on_click(self, event: events.Click) -> None:
        """Click puts the cursor on a node; a click on the cursor opens it."""
        index = self.top + event.y - 1
        if event.y < 1 or index >= len(self.order):
            return
        if self.order[index] == self.cursor and self.touched:
            self.post_message(self.Opened())
        else:
            self.move_to(self.order[index])
