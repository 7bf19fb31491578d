"""A running console over a synthetic fleet, ticked by the test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.preferences import Preferences
from console.tui.app import ConsoleApp
from console.tui.screens.confirm import Confirm
from console.tui.theme import Look
from tests.tui import synthetic
from tests.tui.synthetic import LocalEngine, MemoryScheduler


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is typed and done in a test is kept in its own folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Console:
    """The app, its pilot, its engine and its scheduler."""

    def __init__(self, app: ConsoleApp, pilot: Pilot[None], engine: LocalEngine) -> None:
        """Everything a test touches."""
        self.app, self.pilot, self.engine = app, pilot, engine

    async def tick(self, seconds: float = 0.0) -> None:
        """Let time pass and the screen follow. Everything is judged, however slow the machine."""
        self.engine.at += seconds
        for _ in self.engine.fleet.thorough(self.engine.at):
            pass
        await self.app.tick()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        """Press keys and let everything settle."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def planned(self, *keys: str) -> Confirm:
        """The dialog of a drain or a resume that these keys open, once its plan can be read."""
        await self.press(*keys)
        screen = self.app.screen
        assert isinstance(screen, Confirm)
        await self.until(lambda: screen.phase == "ready")
        await self.pilot.pause()
        return screen

    async def type(self, text: str) -> None:
        """Press the keys of a text."""
        names = {
            " ": "space",
            ":": "colon",
            "*": "asterisk",
            ">": "greater_than_sign",
            "/": "slash",
        }
        await self.press(*(names.get(char, char) for char in text))

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for a condition; the test's own timeout is the deadline."""
        while not true():
            await self.pilot.pause(0.01)

    @property
    def text(self) -> str:
        """What the terminal shows."""
        return screen_text(self.app)


def screen_text(app: ConsoleApp) -> str:
    """The screen as text: the one place that needs Textual's compositor."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


Opener = Callable[..., AbstractAsyncContextManager[Console]]


@pytest.fixture
def console() -> Opener:
    """`async with console(nodes=64, size=(80, 24)) as c`."""

    @contextlib.asynccontextmanager
    async def opened(
        nodes: int = 64,
        size: tuple[int, int] = (80, 24),
        *,
        look: Look | None = None,
        read_only: bool = False,
        faults: bool = True,
        scheduler: MemoryScheduler | None = None,
        preferences: Preferences | None = None,
    ) -> AsyncIterator[Console]:
        inventory = synthetic.inventory(nodes)
        held = scheduler or MemoryScheduler(
            [node.name for node in inventory.nodes], synthetic.jobs()
        )
        engine = LocalEngine(inventory, held, read_only=read_only)
        if faults:
            engine.feed_faults(inventory)
        await engine.refresh()
        app = ConsoleApp(
            engine,
            look=look or Look(),
            preferences=preferences,
            clock=lambda: engine.at,
            tick_s=None,
        )
        async with app.run_test(size=size) as pilot:
            console = Console(app, pilot, engine)
            await console.tick()
            yield console

    return opened
