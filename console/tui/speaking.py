"""What the app sends to its terminal besides screens, and how it sends those."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import textual.screen
from rich.console import RenderableType
from textual import events
from textual.app import App
from textual.screen import Screen
from textual.timer import Timer

from console.preferences import Preferences
from console.tui.announce import Announcer, News, notice
from console.tui.paint import Shown
from console.tui.terminal import Terminal
from console.tui.theme import Look
from console.tui.words import t

PAINT_S = 1 / 200
"""Least time between two frames. Textual's 1/60 s made a key wait 17 ms that came right after a
tick was painted; the terminal gets no more bytes, as only differences are sent."""
vars(textual.screen)["UPDATE_PERIOD"] = PAINT_S
SETTLED_S = 0.2
"""After the last resize, before everything is sent again."""


class Speaking(App[None]):
    """An app on a Terminal."""

    look: Look
    preferences: Preferences
    announcer: Announcer
    clock: Callable[[], float]
    paused_at: float | None
    """When what is shown was frozen; None while it is not."""
    _resized: Timer | None = None

    def __init__(self, **options: Any) -> None:
        """As App."""
        super().__init__(**options)
        self._shown = Shown()

    @property
    def paused(self) -> bool:
        """Whether what is shown is frozen."""
        return self.paused_at is not None

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if not isinstance(self._driver, Terminal) or self._driver.ready():
            super()._display(screen, self._shown.news(renderable))

    def terminal_taken(self) -> None:
        """It shows nothing of ours yet, or no longer."""
        self._shown.forget()

    def on_resize(self) -> None:
        """A terminal that changed its size lost what it showed, also when it is as before again:
        Textual would then draw nothing."""
        if self._resized is not None:
            self._resized.stop()
        self._resized = self.set_timer(SETTLED_S, self.repaint)

    async def on_event(self, event: events.Event) -> None:
        """Whoever has left types no more: a screen that opened now would find nothing of itself."""
        if self.return_code is None or not isinstance(event, events.InputEvent):
            await super().on_event(event)

    def repaint(self) -> None:
        """Send the whole screen again, whatever the terminal is believed to show."""
        if not self._screen_stack:
            return  # a resize just before leaving
        self._shown.forget()
        compositor = self.screen._compositor
        whole = compositor.render_update(full=True, screen_stack=self._background_screens)
        self._display(self.screen, whole)

    def copy_to_clipboard(self, text: str) -> None:
        """By OSC 52, also out of tmux and screen; a text that is too long is not sent."""
        from console.tui import copying

        self._clipboard = text
        self.escape(copying.osc52(text, os.environ))

    def escape(self, sequence: str) -> None:
        """Send a sequence to the terminal."""
        if sequence and self._driver is not None:
            self._driver.write(sequence)

    def news(self) -> News | None:
        """What is new, for the screen on top to draw."""
        return self.announcer.news(self.look.glyphs, self.clock(), paused=self.paused)

    def _ring(self) -> None:
        told = self.announcer.ring(self.clock(), paused=self.paused)
        if not told:
            return
        from console.tui import copying

        if self.preferences.bell:
            self.escape("\a")
        self.escape(copying.passed(notice(self.preferences.notify, told), os.environ))

    def confirms(self, shown_at: float) -> bool:
        """Whether the last key may confirm what is on the screen since then (monotonic seconds).
        A driver that is no terminal has no paste."""
        driver = self._driver
        return driver.confirms(shown_at) if isinstance(driver, Terminal) else True

    def flooded(self) -> None:
        """More came at once than anybody types."""
        self.notify(t("a paste was left out: nothing here takes one"), severity="warning")
