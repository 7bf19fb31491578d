"""Screens of text in which `/` finds words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual import on

from console.tui import node_find
from console.tui.screens.commanding import CommandingScreen
from console.tui.text import Line
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Sheet
from console.tui.words import t


class SearchingScreen(CommandingScreen):
    """A Sheet whose lines are searched as they are shown."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is searched for."""
        super().__init__(*args, **kwargs)
        self.find = ""
        self._hits: list[int] = []
        """Indices of the lines that have it."""

    @property
    def body(self) -> Sheet:
        """See CommandingScreen."""
        return self.query_one("#sheet", Sheet)

    def draw_found(self) -> None:
        """Show the text with other places lit."""
        raise NotImplementedError

    def begin(self) -> None:
        """Go to a place of what is searched for now, if there is one."""
        raise NotImplementedError

    def leave(self) -> None:
        """To where the operator came from."""
        raise NotImplementedError

    def lit(self, lines: Sequence[Line]) -> Sequence[Line]:
        """The lines with what is searched for lit."""
        self._hits = node_find.hits(lines, self.find)
        if not self._hits:
            return lines
        told = list(lines)
        for index in self._hits:
            told[index] = node_find.lit(told[index], self.find)
        return told

    def action_find(self, text: str = "") -> None:
        """Ask what to look for, or look for it."""
        if text:
            self.look_for(text)
        else:
            self.query_one(Prompt).ask("/", self.find)

    @on(Prompt.Typed)
    def _typed(self, event: Prompt.Typed) -> None:
        if event.kind == "/":
            self.look_for(event.text)

    def answered(self, event: Prompt.Answered) -> None:
        """See CommandingScreen."""
        if event.kind == "/":
            self.look_for(event.before if event.text is None else event.text)
            return
        super().answered(event)

    def look_for(self, text: str) -> None:
        """Light every place of a text and go to one; "" ends the search."""
        self.find = text.strip()
        self.draw_found()
        missing = self.find and not self._hits
        self.query_one(Prompt).complain(t("nothing here has it") if missing else "")
        self.begin()

    def action_back(self) -> None:
        """End the search; without one, to where the operator came from."""
        if self.find:
            self.look_for("")
        else:
            self.leave()
