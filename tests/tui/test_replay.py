"""A recording on the screen: bar, keys, seeking; and writing one from the screen."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from console.options import Request
from console.recording.player import Playing, ReplayEngine
from console.recording.tape import Tape
from console.tui import words
from console.tui.app import ConsoleApp
from console.tui.replay_bar import replay_bar
from console.tui.text import line_text, width_of
from console.tui.theme import ASCII, UNICODE, Look
from tests.recordings.test_seeking import DEMO, straight
from tests.tui.conftest import Opener, screen_text
from tests.tui.test_goldens import SIZES, compare

TYPED = {":": "colon", " ": "space", "+": "plus", "-": "minus", "%": "percent_sign"}


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


class Replay:
    """The app on a recording, paused at its start."""

    def __init__(self, app: ConsoleApp, engine: ReplayEngine, pilot: object) -> None:
        self.app, self.engine, self.pilot = app, engine, pilot
        self.said = notices(app)

    async def press(self, *keys: str) -> None:
        """Keys, and whatever seek they begin, to its end."""
        await self.pilot.press(*keys)  # type: ignore[attr-defined]
        while self.engine.player.now.target is not None:
            await self.pilot.pause(0.01)  # type: ignore[attr-defined]
        await self.pilot.pause()  # type: ignore[attr-defined]

    async def type(self, text: str) -> None:
        """A line, with its enter."""
        await self.press(*(TYPED.get(char, char) for char in text), "enter")

    @property
    def text(self) -> str:
        """The screen."""
        return screen_text(self.app)


def notices(app: ConsoleApp) -> list[str]:
    """Everything the app tells from now on: a toast is gone after some seconds."""
    said: list[str] = []
    notify = app.notify

    def listening(message: str, **how: Any) -> None:
        said.append(message)
        notify(message, **how)

    app.notify = listening  # type: ignore[method-assign]
    return said


@contextlib.asynccontextmanager
async def replay(
    size: tuple[int, int] = (80, 24), look: Look | None = None
) -> AsyncIterator[Replay]:
    """Open it."""
    engine = ReplayEngine(Request({}), DEMO, 1.0)
    engine.player.paused = True
    app = ConsoleApp(engine, look=look or Look(), clock=engine.clock, tick_s=None)
    async with app.run_test(size=size) as pilot:
        yield Replay(app, engine, pilot)


@pytest.mark.parametrize("size", SIZES)
async def test_screen(size: str) -> None:
    """The same picture at the same moment, always."""
    async with replay(SIZES[size]) as r:
        await r.type(":seek 20")
        compare(f"replay_{size}", r.text)


async def test_keys_step_seek_and_change_speed() -> None:
    async with replay() as r:
        player = r.engine.player
        await r.press("full_stop", "full_stop")
        assert player.now.second == 2
        await r.press("comma")
        assert player.now.second == 1
        await r.press("greater_than_sign")
        assert player.now.second == 11
        await r.press("right_parenthesis")
        assert player.now.second == player.now.seconds
        assert "end" in r.text.splitlines()[0]
        await r.press("less_than_sign")
        assert player.now.second == player.now.seconds - 10
        await r.press("left_parenthesis")
        assert player.now.second == 0
        await r.press("plus", "plus")
        assert player.speed == 4.0
        await r.press("minus")
        assert player.speed == 2.0
        await r.type(":speed 8")
        assert player.speed == 8.0
        assert "x8 paused" in r.text.splitlines()[0]


async def test_pausing_stops_the_replay_itself() -> None:
    async with replay() as r:
        assert r.engine.player.paused
        await r.press("p")
        assert not r.engine.player.paused
        assert not r.app.paused
        await r.press("p")
        assert r.engine.player.paused


async def test_what_is_shown_is_of_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back before the GPU was lost nothing of it is on the screen; after it, all of it."""
    first = next(
        second
        for second, moment in enumerate(straight())
        if b'"rule":"gpu.lost"' in moment["document"]
    )
    async with replay((160, 30)) as r:
        await r.type(f":seek {first}")
        assert "GPU4 is lost" in r.text
        with_loss = r.text
        await r.press("comma")
        assert "is lost" not in r.text
        await r.press("full_stop")
        assert r.text == with_loss


async def test_every_view_and_the_node_can_be_seen_at_a_moment() -> None:
    async with replay((160, 50)) as r:
        await r.type(":seek 30")
        for key in "234567890":
            await r.press(key)
            assert "REPLAY" in r.text.splitlines()[0], key
            before = r.text
            await r.press("comma", "full_stop")
            assert r.text == before, key
        await r.press("1", "enter")
        assert "REPLAY" in r.text.splitlines()[0]


async def test_a_replay_acts_on_nothing() -> None:
    async with replay() as r:
        await r.type(":seek 30")
        before = list(r.app.fleet.findings["gpu005"])
        await r.press("D", "T", "U", "a")
        assert type(r.app.screen).__name__ == "FleetScreen"
        assert r.app.fleet.findings["gpu005"] == before
        await r.type(":record /tmp/never")
        assert r.engine.recorder is None


async def test_a_time_that_is_none_is_told() -> None:
    async with replay() as r:
        await r.type(":seek soon")
        assert "'soon' is no time of a recording" in r.said[-1]
        await r.type(":speed 0")
        assert "is no speed" in r.said[-1]
        assert r.engine.player.now.second == 0


async def test_a_recording_is_begun_and_ended_on_the_screen(
    console: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with console(nodes=6, size=(80, 24)) as c:
        said = notices(c.app)
        await c.press("colon", *"record", "space", "r", "enter")
        assert c.app.recorder is not None
        await c.tick(1)
        assert "rec " in c.text.splitlines()[0]
        await c.press("colon", *"record", "space", *"stop", "enter")
        await c.until(lambda: c.app.recorder is None)
        await c.press("colon", *"record", "space", "r", "enter")
        assert c.app.recorder is None, "it replaces nothing"
        assert "is there already" in said[-1]
    assert Tape(tmp_path / "r").span().names == tuple(c.engine.fleet.nodes)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_bar_fits_every_width(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_catalogue", words._catalogue)
    words.use(language)
    for seeking in (None, 4000):
        now = Playing(75, 7200, 1_796_000_475.0, 0.25, True, False, seeking, 0.5)
        for width in range(44, 200):
            for glyphs in (UNICODE, ASCII):
                text = line_text(replay_bar(now, glyphs, width))
                assert width_of(text) <= width + (14 if width < 58 else 0)
                assert "01:15 / 2:00:00" in text


async def test_help_begins_with_the_keys_of_the_replay() -> None:
    async with replay((80, 50)) as r:
        await r.press("question_mark")
        assert "One second back, and stop there." in r.text
        assert "10 seconds on." in r.text


async def test_a_replay_does_not_offer_what_asks_a_node() -> None:
    """The recorded lines of its kernel log are there, so that key is."""
    async with replay((250, 70)) as r:
        keys = r.text.splitlines()[-1]
        assert "l kernel log" in keys
        assert "s ssh" not in keys
        assert "e evidence" not in keys
        await r.press("question_mark")
        assert "kernel log, and follow it" in r.text
        assert "Log in to the node" not in r.text
