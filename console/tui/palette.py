"""The palette: the commands of the screen below, by their words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider

from console.tui import commands
from console.tui.screens.acting import ActingScreen
from console.tui.words import t


class Palette(Provider):
    """What `ctrl-p` searches."""

    def _commands(self) -> list[tuple[commands.Command, Callable[[], Any]]]:
        screen = self.screen
        if not isinstance(screen, ActingScreen):
            return []
        return [(c, partial(screen.run_action, c.does)) for c in screen.offered() if c.palette]

    async def discover(self) -> Hits:
        """Everything, before anything is typed."""
        for command, run in self._commands():
            yield DiscoveryHit(_as_text(_entry(command)), run, help=_as_text(t(command.help)))

    async def search(self, query: str) -> Hits:
        """Commands whose label or help matches."""
        matcher = self.matcher(query)
        for command, run in self._commands():
            label, told = _entry(command), t(command.help)
            # Who reads Chinese may still type the word of the `:` line.
            helps = max(matcher.match(text) for text in (told, command.help))
            score = max(matcher.match(label), matcher.match(command.label), helps * 0.5)
            if score > 0:
                yield Hit(score, matcher.highlight(label), run, help=_as_text(told))


def _as_text(told: str) -> str:
    """Taken as it is: textual.markup.escape leaves tags in upper case, such as [PATH]."""
    return told.replace("[", r"\[")


def _entry(command: commands.Command) -> str:
    return f"{t(command.label)} ({command.shown})"
