"""Whole screens as text. `GPUCONSOLE_GOLDENS=write pytest tests/tui` rewrites them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from rich.style import Style

from console.tui.theme import ASCII, UNICODE, Depth, Look
from tests.tui.conftest import Console, Opener

GOLDENS = Path(__file__).parent / "goldens"
SIZES = {"60x20": (60, 20), "80x24": (80, 24), "160x50": (160, 50)}
SCREENS = {
    "fleet": (),
    "node": ("enter",),
    "confirm": ("D",),
    "help": ("question_mark",),
    "sort": ("S",),
    "wide": ("w",),
    "filter": ("slash", *"temp", "greater_than_sign", *"80"),
}


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clock times in the stream must not depend on where the test runs."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def compare(name: str, text: str) -> None:
    """Equal to the golden file, or rewrite it when asked to."""
    path = GOLDENS / f"{name}.txt"
    if os.environ.get("GPUCONSOLE_GOLDENS") == "write":
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path.name} is missing; GPUCONSOLE_GOLDENS=write makes it"
    assert text == path.read_text(encoding="utf-8")


async def settled(console: Console, keys: tuple[str, ...]) -> str:
    """The screen after some keys, once any plan has arrived."""
    await console.press(*keys)
    await console.until(lambda: getattr(console.app.screen, "phase", "") != "planning")
    await console.pilot.pause()
    return console.text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", SCREENS)
async def test_screen(console: Opener, screen: str, size: str) -> None:
    """Each screen at each size."""
    async with console(size=SIZES[size]) as c:
        text = await settled(c, SCREENS[screen])
    width, height = SIZES[size]
    assert len(text.splitlines()) == height
    assert all(len(line) <= width for line in text.splitlines())
    compare(f"{screen}_{size}", text)


@pytest.mark.parametrize("screen", ["fleet", "node"])
async def test_ascii_terminal(console: Opener, screen: str) -> None:
    """A terminal that cannot carry UTF-8 gets the same facts in ASCII."""
    async with console(size=(80, 24), look=Look(ASCII, Depth(16))) as c:
        text = await settled(c, SCREENS[screen])
    # The scroll bar is Textual's own and draws with a space or a block; it is not ours to check.
    lines = [line[:-1] if len(line) == 80 else line for line in text.splitlines()]
    assert all(line.isascii() for line in lines)
    compare(f"{screen}_ascii", text)


async def test_no_color(console: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """No colour is sent; the text is the same, severities differ in weight as well as in word."""
    monkeypatch.setenv("NO_COLOR", "")
    look = Look(UNICODE, Depth(0))
    async with console(look=look) as c:
        text = await settled(c, ())
        strips = c.app.screen._compositor.render_strips()
        styles = [s.style for strip in strips for s in strip if s.style is not None]
        assert all(_colourless(style) for style in styles)
    compare("fleet_nocolor", text)
    weights = {str(look.style(name)) for name in ("ok", "warn", "critical", "unknown")}
    assert len(weights) == 4


def _colourless(style: Style) -> bool:
    return all(c is None or c.is_default for c in (style.color, style.bgcolor))
