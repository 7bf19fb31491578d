"""Lines of styled text that repaint only where they differ from what was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.tui.commands import move_keys as keys
from console.tui.text import Line, ascii_only, line_text
from console.tui.theme import ASCII, Look


class Lines(ScrollView, can_focus=False):
    """Lines that somebody else computes; this widget never decides what they say."""

    class Resized(Message):
        """The lines should be computed again for another width or height."""

    class Clicked(Message):
        """A place in the lines was clicked; `y` counts from the first line, scrolled or not."""

        def __init__(self, lines: Lines, x: int, y: int) -> None:
            """Cells from the left, lines from the top."""
            super().__init__()
            self.lines, self.x, self.y = lines, x, y

        @property
        def control(self) -> Lines:
            """The widget that was clicked, for selectors."""
            return self.lines

    def __init__(self, look: Look, *, id: str | None = None) -> None:  # noqa: A002
        """Empty until `show`."""
        super().__init__(id=id)
        self.look = look
        self.lines: list[Line] = []

    def show(self, lines: Sequence[Line]) -> None:
        """Replace the lines; lines that are equal to what was drawn are left alone."""
        old, self.lines = self.lines, list(lines)
        if len(old) != len(self.lines):
            self.virtual_size = Size(self.size.width, len(self.lines))
        first = int(self.scroll_offset.y)
        regions = [
            Region(0, index - first, self.size.width, 1)
            for index in range(first, first + self.size.height)
            if _at(old, index) != _at(self.lines, index)
        ]
        if regions:
            self.refresh(*regions)

    def watch_show_vertical_scrollbar(self) -> None:
        """A scrollbar takes a cell of every line."""
        self.post_message(self.Resized())

    def on_resize(self, event: events.Resize) -> None:
        """Whoever computes the lines must know the new size."""
        self.virtual_size = Size(self.size.width, len(self.lines))
        self.post_message(self.Resized())

    def render_line(self, y: int) -> Strip:
        """The line at `y` of the visible part."""
        line = _at(self.lines, int(self.scroll_offset.y) + y)
        plain = self.look.glyphs is ASCII
        segments = [
            Segment(ascii_only(cell.text) if plain else cell.text, self.look.style(cell.style))
            for cell in line
        ]
        return Strip(segments).adjust_cell_length(self.size.width, self.look.style("text"))

    def on_click(self, event: events.Click) -> None:
        """Pass on where it was clicked."""
        self.post_message(self.Clicked(self, event.x, int(self.scroll_offset.y) + event.y))

    @property
    def text(self) -> str:
        """All lines as plain text."""
        return "\n".join(line_text(line).rstrip() for line in self.lines)


class Sheet(Lines, can_focus=True):
    """Lines that scroll by keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(keys("up"), "by(-1)", "up", id="up", show=False, priority=True),
        Binding(keys("down"), "by(1)", "down", id="down", show=False, priority=True),
        Binding(keys("page_up"), "page(-1)", "page up", id="page_up", show=False, priority=True),
        Binding(
            keys("page_down"), "page(1)", "page down", id="page_down", show=False, priority=True
        ),
        Binding("space", "page(1)", "page down", show=False, priority=True),
        Binding(keys("first"), "edge(0)", "top", id="first", show=False, priority=True),
        Binding(keys("last"), "edge(1)", "bottom", id="last", show=False, priority=True),
    ]

    def reveal(self, first: int, last: int) -> None:
        """Scroll so that lines `first` to `last` are visible, the first one at least."""
        top, height = int(self.scroll_offset.y), self.size.height
        if first < top or last >= top + height:
            self.scroll_to(y=max(0, min(first, last - height + 1)), animate=False, force=True)
        if first < int(self.scroll_offset.y):
            self.scroll_to(y=first, animate=False, force=True)

    def action_by(self, lines: int) -> None:
        """Scroll by lines."""
        self.scroll_to(y=self.scroll_offset.y + lines, animate=False, force=True)

    def action_page(self, pages: int) -> None:
        """Scroll by screenfuls, one line kept."""
        self.action_by(pages * max(1, self.size.height - 1))

    def action_edge(self, last: int) -> None:
        """Scroll to the top or the bottom."""
        self.scroll_to(y=self.max_scroll_y if last else 0, animate=False, force=True)


def _at(lines: Sequence[Line], index: int) -> Line:
    return lines[index] if 0 <= index < len(lines) else ()
