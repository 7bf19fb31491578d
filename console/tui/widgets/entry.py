"""A line to type in: completed by tab, with the lines of before under up, down and ctrl-r."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from textual import events
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

from console.tui.filter import MAX_CHARS
from console.tui.history import History

Complete = Callable[[str], Sequence[str]]
"""Whole lines that a line may become."""
PASTED = 10 * MAX_CHARS
"""Characters of a paste that are looked at."""


def one_line(text: str, room: int) -> str:
    """Pasted text as part of a line: blanks and newlines are one space, controls are nothing."""
    spaced = re.sub(r"\s+", " ", text[:PASTED])
    return "".join(char for char in spaced if char.isprintable())[: max(0, room)]


class _Dim(Suggester):
    """The likeliest completion, shown dim behind the cursor."""

    def __init__(self, complete: Complete) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        return next((c.rstrip() for c in self._complete(value) if c.startswith(value)), None)


class Entry(Input):
    """An Input that knows what may be typed, and what was."""

    class Offered(Message):
        """Several lines are possible; `at` is the one taken."""

        def __init__(self, lines: Sequence[str], at: int) -> None:
            """`lines` are whole lines."""
            super().__init__()
            self.lines, self.at = lines, at

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        """Nothing to complete, no history, until `begin`."""
        super().__init__(id=id, compact=True, max_length=MAX_CHARS)
        self.cursor_blink = False
        self.begin("", None, None)

    def begin(self, text: str, complete: Complete | None, history: History | None) -> None:
        """A new line with some text to change."""
        self.complete, self.history = complete, history
        self.suggester = _Dim(complete) if complete else None
        self._offers: Sequence[str] = ()
        self._offer = 0
        self._at: int | None = None
        """Index in the history of the line shown; None for one that is being typed."""
        self._typed = ""
        self._put = ""
        """What this widget put there itself, so that typing can be told from it."""
        with self.prevent(Input.Changed):
            self.value = text
        self.cursor_position = len(text)

    async def _on_key(self, event: events.Key) -> None:
        # Bindings are looked up when a key has passed through every widget, which is after the
        # next ones were typed: over a slow link keys come in handfuls.
        match event.key:
            case "tab":
                self.step(1)
            case "shift+tab":
                self.step(-1)
            case "up":
                self.older()
            case "ctrl+r":
                self.older(anywhere=True)
            case "down":
                self.newer()
            case "enter":
                await self.action_submit()
            case _:
                await super()._on_key(event)
                return
        event.stop()
        event.prevent_default()

    @property
    def put(self) -> bool:
        """Whether the text is as completion or history left it."""
        return self.value == self._put

    def _show(self, text: str) -> None:
        self._put = self.value = text[:MAX_CHARS]
        self.cursor_position = len(self.value)

    def step(self, step: int) -> None:
        """The next candidate; the first tab takes the likeliest."""
        if self.complete is None:
            return
        if self._offers and self.put:
            self._offer = (self._offer + step) % len(self._offers)
        else:
            self._offers = self.complete(self.value)
            self._offer = 0 if step > 0 else len(self._offers) - 1
        if self._offers:
            self._show(self._offers[self._offer])
            offers = self._offers
            if len(offers) == 1:
                self._offers = ()
            self.post_message(self.Offered(offers, self._offer))

    def older(self, *, anywhere: bool = False) -> None:
        """The line before that begins with what was typed; by ctrl-r, that has it anywhere."""
        if self.history is None:
            return
        if self._at is None or not self.put:
            self._at, self._typed = len(self.history.lines), self.value
        found = self.history.before(self._at, self._typed, anywhere=anywhere)
        if found is not None:
            self._at = found
            self._show(self.history.lines[found])

    def newer(self) -> None:
        """The line after; behind the newest one, what was typed."""
        if self.history is None or self._at is None or not self.put:
            return
        self._at = self.history.after(self._at, self._typed)
        self._show(self._typed if self._at is None else self.history.lines[self._at])

    def _on_paste(self, event: events.Paste) -> None:
        """A paste is text of this line, whatever it holds: it runs nothing."""
        event.stop()
        event.prevent_default()
        start, end = sorted(self.selection)
        room = MAX_CHARS - len(self.value) + (end - start)
        self.replace(one_line(event.text, room), start, end)
