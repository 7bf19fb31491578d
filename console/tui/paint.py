"""Fewer bytes: only cells that differ from what the terminal shows are sent.

Textual (8.2) sends whole regions: all of a screen three or four times when one is opened, and of a
line with one changed cell everything up to it. Here what was sent is remembered cell by cell, and
each update is compared with it: 2 ms for a screen of 160x50, 0.5 ms for a usual tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import get_character_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.control import Control
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual.strip import Strip

Painted = tuple[str, Style | None] | None
"""A cell: its character ("" in the right half of a wide one) and style; None when unknown."""
BLANK: Painted = (" ", None)
BRIDGE = 8
"""Equal cells between two changed ones that are sent again: moving over them takes 8 bytes."""
ERASED = 6
"""Blanks at the end of a line from which on it is erased instead: that takes 3 bytes."""


class Shown:
    """What the terminal is believed to show."""

    def __init__(self) -> None:
        """Nothing is known of it."""
        self._lines: dict[int, list[Painted]] = {}
        self._size = (0, 0)

    def forget(self) -> None:
        """Somebody else may have written to the terminal: the next whole update is sent whole."""
        self._lines.clear()

    def news(self, update: RenderableType | None) -> RenderableType | None:
        """An update of Textual's without what is there already; anything else as it is."""
        if isinstance(update, ChopsUpdate | LayoutUpdate):
            return Difference(self, update)
        return update

    def pieces(self, update: ChopsUpdate | LayoutUpdate) -> Iterator[tuple[int, int, int, Strip]]:
        """Line, column, width of the screen, and what should be there."""
        if isinstance(update, LayoutUpdate):
            size = (update.region.width, update.region.height)
            if size != self._size:
                self.forget()
                self._size = size
            for y, strips in enumerate(update.strips, update.region.y):
                yield y, update.region.x, update.region.right, Strip.join(list(strips))
            return
        for y, first, last in update.spans:
            ends = update.chop_ends[y]
            for end, (x, strip) in zip(ends, update.chops[y].items(), strict=False):
                left, right = max(x, first), min(end, last)
                if strip is not None and left < right:
                    yield y, left, ends[-1], strip.crop(left - x, right - x)

    def put(self, y: int, x: int, width: int, strip: Strip, console: Console) -> Iterator[str]:
        """What to send so that the line shows `strip` from column `x` on."""
        line = self._lines.setdefault(y, [None] * width)
        if len(line) != width:
            line[:] = [None] * width
        new = list(painted(strip))[: width - x]
        end = x + len(new)
        old = line[x:end]
        if old == new:
            return
        for first, last in runs(old, new):
            shown = last
            if x + last == width:
                while shown > first and new[shown - 1] == BLANK:
                    shown -= 1
                shown = last if last - shown < ERASED else shown
            yield Control.move_to(x + first, y).segment.text
            if shown > first:
                yield strip.crop(first, shown).render(console)
            if shown < last:
                yield "\x1b[K"
        line[x:end] = new


def _is_right_half(cell: Painted) -> bool:
    return cell is not None and not cell[0]


def painted(strip: Strip) -> Iterator[Painted]:
    """Cells of a strip. Blanks look the same in every colour that has no ground."""
    for text, style, _ in strip:
        bare = style is None or _bare(style)
        if text.isascii():
            yield from (BLANK if char == " " and bare else (char, style) for char in text)
            continue
        cell = ""
        for char in text:
            width = get_character_cell_size(char)
            if not width:
                cell += char
                continue
            yield from _wide(cell, style)
            cell = char
        yield from _wide(cell, style)


def _wide(cell: str, style: Style | None) -> Iterable[Painted]:
    """A character with what is stacked on it, and its right half if it has one."""
    if not cell:
        return ()
    if get_character_cell_size(cell[0]) == 2:
        return (cell, style), ("", style)
    return (BLANK if cell == " " and (style is None or _bare(style)) else (cell, style),)


def _bare(style: Style) -> bool:
    return style.bgcolor is None and not (style.reverse or style.underline or style.strike)


def runs(old: list[Painted], new: list[Painted]) -> Iterator[tuple[int, int]]:
    """Where they differ, short gaps included; never beginning or ending within a character: half
    of one leaves the other half to the terminal."""
    first = last = -1
    for at, (was, now) in enumerate(zip(old, new, strict=True)):
        if was == now:
            continue
        if last >= 0 and at - last > BRIDGE:
            yield _whole(new, first, last)
            first = -1
        first, last = (at if first < 0 else first), at + 1
    if first >= 0:
        yield _whole(new, first, last)


def _whole(new: list[Painted], first: int, last: int) -> tuple[int, int]:
    if _is_right_half(new[first]) and first > 0:
        first -= 1
    if last < len(new) and _is_right_half(new[last]):
        last += 1
    return first, last


class Difference(CompositorUpdate):
    """An update against what is shown. Rendering it is what makes it shown."""

    def __init__(self, shown: Shown, update: ChopsUpdate | LayoutUpdate) -> None:
        """Nothing is compared before it is rendered."""
        self.shown, self.update = shown, update

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Whole, for whoever prints it elsewhere."""
        yield self.update

    def render_segments(self, console: Console) -> str:
        """Cursor movements and cells, nothing in between."""
        return "".join(
            piece
            for y, x, width, strip in self.shown.pieces(self.update)
            for piece in self.shown.put(y, x, width, strip, console)
        )


def forget_lines() -> None:
    """Let go of what closed screens drew.

    A cached method of Textual (`StylesCache.get_inner_outer`, 8.2) holds the last 1,024 widgets'
    lines with it: 60 MB after 200 looks at a node in a terminal of 160x50.
    """
    StylesCache.get_inner_outer.cache_clear()
