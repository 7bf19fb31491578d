"""What is sent to the terminal: only what differs, and always enough. Against a small terminal."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import get_character_cell_size
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from console.tui.paint import BRIDGE, Shown
from tests.tui.conftest import Opener

WIDTH, HEIGHT = 24, 3
CONSOLE = Console(color_system="256", force_terminal=True)
STYLES = (None, Style.null(), Style(bold=True), Style(reverse=True), Style.parse("color(202)"),
          Style(bgcolor="blue"))  # fmt: skip


class Emulator:
    """As much of a terminal as the console uses: moves, styles, erasing to the end of a line."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, str]] = {}
        self.y = self.x = 0

    def take(self, sent: str) -> None:
        """Print it."""
        style = ""
        for sequence, char in re.findall(r"(\x1b\[[0-9;]*[A-Za-z])|([^\x1b])", sent):
            if sequence.endswith("m"):
                style = "" if sequence == "\x1b[0m" else sequence
            elif sequence.endswith("H"):
                row, _, column = sequence[2:-1].partition(";")
                self.y, self.x = int(row) - 1, int(column) - 1
            elif sequence.endswith("K"):
                assert not style, "erasing takes the ground of the style"
                for x in range(self.x, WIDTH):
                    self._set(x, " ", "")
            elif char and char != "\n":
                self._print(char, style)

    def _print(self, char: str, style: str) -> None:
        width = get_character_cell_size(char)
        if not width:
            return
        bare = char == " " and not re.search(r"[\[;](4|7|44)(;|m)", style)
        self._set(self.x, char, "" if bare else style)
        if width == 2:
            self._set(self.x + 1, "", style)
        self.x += width

    def _set(self, x: int, char: str, style: str) -> None:
        """Half of a wide character takes the other half with it."""
        if self.cells.get((self.y, x), ("x", ""))[0] == "":
            self.cells[self.y, x - 1] = (" ", "")
        if self.cells.get((self.y, x + 1), ("x", ""))[0] == "":
            self.cells[self.y, x + 1] = (" ", "")
        self.cells[self.y, x] = (char, style)


def line(pieces: list[tuple[str, int]]) -> Strip:
    """A strip exactly as wide as the screen."""
    strip = Strip([Segment(text, STYLES[style]) for text, style in pieces])
    return strip.adjust_cell_length(WIDTH, Style.null())


texts = st.text(alphabet="ab 7日本–", max_size=10)
lines = st.lists(st.tuples(texts, st.integers(0, len(STYLES) - 1)), max_size=4).map(line)
frames = st.lists(lines, min_size=HEIGHT, max_size=HEIGHT)


def whole(frame: list[Strip]) -> LayoutUpdate:
    """As Textual sends a screen."""
    return LayoutUpdate([[strip] for strip in frame], Region(0, 0, WIDTH, HEIGHT))


def sent(shown: Shown, update: LayoutUpdate | ChopsUpdate) -> str:
    """What goes to the terminal."""
    return cast("Any", shown.news(update)).render_segments(CONSOLE)  # type: ignore[no-any-return]


def plain(frame: list[Strip]) -> dict[tuple[int, int], tuple[str, str]]:
    """What a terminal shows that gets all of it."""
    terminal = Emulator()
    terminal.take(whole(frame).render_segments(CONSOLE))
    return terminal.cells


@given(st.lists(frames, min_size=1, max_size=5))
def test_after_every_whole_update_the_terminal_shows_it(all_frames: list[list[Strip]]) -> None:
    shown, terminal = Shown(), Emulator()
    for frame in all_frames:
        terminal.take(sent(shown, whole(frame)))
        assert terminal.cells == plain(frame)
        assert not sent(shown, whole(frame)), "nothing is sent twice"


spans = st.tuples(st.integers(0, HEIGHT - 1), st.integers(0, WIDTH - 1), st.integers(1, WIDTH))


@given(frames, st.lists(st.tuples(frames, st.lists(spans, max_size=3)), max_size=4))
def test_parts_are_put_where_they_belong(
    first: list[Strip], parts: list[tuple[list[Strip], list[tuple[int, int, int]]]]
) -> None:
    """After parts of other frames, a whole one is complete again."""
    shown, terminal = Shown(), Emulator()
    terminal.take(sent(shown, whole(first)))
    for frame, where in parts:
        cut = [(y, x, min(WIDTH, x + length)) for y, x, length in where]
        update = ChopsUpdate([{0: strip} for strip in frame], cut, [[WIDTH]] * HEIGHT)
        terminal.take(sent(shown, update))
    terminal.take(sent(shown, whole(first)))
    assert terminal.cells == plain(first)


def test_a_changed_digit_costs_a_move_and_a_digit() -> None:
    shown = Shown()
    sent(shown, whole([line([("temp 61 C", 0)])] * HEIGHT))
    update = ChopsUpdate([{0: line([("temp 62 C", 0)])}] * 3, [(1, 5, 9)], [[WIDTH]] * 3)
    assert sent(shown, update) == "\x1b[2;7H2"


def test_changes_near_each_other_are_sent_as_one() -> None:
    shown = Shown()
    sent(shown, whole([line([("1 23456 7", 0)])] * HEIGHT))
    near = sent(shown, whole([line([("2 23456 8", 0)])] * HEIGHT))
    assert near.count("H") == HEIGHT
    assert BRIDGE >= 7


def test_a_forgotten_terminal_gets_everything() -> None:
    shown, terminal = Shown(), Emulator()
    frame = [line([("a", 2)])] * HEIGHT
    sent(shown, whole(frame))
    shown.forget()
    terminal.take(sent(shown, whole(frame)))
    assert terminal.cells == plain(frame)


@pytest.mark.parametrize("size", [(60, 20), (160, 50)])
async def test_a_walk_through_the_console(console: Opener, size: tuple[int, int]) -> None:
    """Every frame of the real screens, as differences, is what the screen is in the end."""
    async with console(size=size) as c:
        shown = Shown()
        for key in ("j", "space", "2", "n", "1", "enter", "tab", "escape", "question_mark"):
            await c.press(key)
            compositor = c.app.screen._compositor
            update = compositor.render_update(full=True)
            sent(shown, cast("LayoutUpdate", update))
            again = compositor.render_update(full=True)
            assert not sent(shown, cast("LayoutUpdate", again)), key
