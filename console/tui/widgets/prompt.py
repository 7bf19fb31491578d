"""The line where filters and commands are typed; hidden until asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from console.tui.history import History
from console.tui.widgets.entry import Complete, Entry
from inventory.errors import UsageError

Judge = Callable[[str], object]
"""Raises UsageError for a text that cannot be taken."""
AROUND = 3
"""Offers shown before the one that is taken."""


class Prompt(Horizontal):
    """A sign, an input, and a complaint when the text cannot be read."""

    class Typed(Message):
        """The text changed."""

        def __init__(self, kind: str, text: str) -> None:
            """`kind` is the sign: "/" or ":"."""
            super().__init__()
            self.kind, self.text = kind, text

    class Answered(Message):
        """The operator is done; `text` is None after escape."""

        def __init__(self, kind: str, text: str | None, before: str) -> None:
            """`before` is what the prompt began with."""
            super().__init__()
            self.kind, self.text, self.before = kind, text, before

    kind = ""
    before = ""

    def compose(self) -> ComposeResult:
        """Sign, input, complaint."""
        yield Static("", id="sign", markup=False)
        yield Entry(id="entry")
        yield Static("", id="complaint", markup=False)

    def on_mount(self) -> None:
        """Hidden until asked for."""
        self.display = False
        self._judge: Judge | None = None
        self._history: History | None = None

    def ask(
        self,
        kind: str,
        text: str,
        *,
        complete: Complete | None = None,
        history: History | None = None,
        judge: Judge | None = None,
    ) -> None:
        """Show the prompt with a text to change. A text that `judge` refuses stays to be mended."""
        self.kind, self.before = kind, text
        self._judge, self._history = judge, history
        self.query_one("#sign", Static).update(Content(kind))
        self._say("", "")
        entry = self.query_one(Entry)
        entry.begin(text, complete, history)
        self.display = True
        # Not Widget.focus, which waits its turn while the next keys already arrive.
        self.screen.set_focus(entry)

    def complain(self, what: str) -> None:
        """Say what is wrong with the text; "" when nothing is, which leaves offers alone."""
        if what or not self.query_one("#complaint").has_class("offers"):
            self._say(what, "")

    def _say(self, what: str, style: str) -> None:
        complaint = self.query_one("#complaint", Static)
        complaint.update(Content(what))
        complaint.set_classes(style)
        complaint.display = bool(what)

    @on(Input.Changed, "#entry")
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if not self.display:
            return
        if not self.query_one(Entry).put:
            self._say("", "")
        self.post_message(self.Typed(self.kind, event.value))

    @on(Entry.Offered)
    def _offered(self, event: Entry.Offered) -> None:
        event.stop()
        if len(event.lines) > 1:
            self._say(_around(event.lines, event.at), "offers")

    @on(Input.Submitted, "#entry")
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            if self._judge is not None:
                self._judge(event.value)
        except UsageError as error:
            self.complain(str(error))
            return
        self._remember(event.value)
        self._close(event.value)

    def _remember(self, line: str) -> None:
        if self._history is not None:
            self._history.remember(line)
            # Another console may hold the file for a moment.
            asyncio.get_running_loop().run_in_executor(None, self._history.keep, line)

    def on_key(self, event: events.Key) -> None:
        """Escape gives up."""
        if event.key == "escape" and self.display:
            event.stop()
            event.prevent_default()
            self._close(None)

    def _close(self, text: str | None) -> None:
        self.display = False
        self.post_message(self.Answered(self.kind, text, self.before))


def _around(lines: Sequence[str], at: int) -> str:
    """The offers from a few before the one taken, which is in brackets."""
    words = [line.rstrip().rpartition(" ")[2] for line in lines]
    words[at] = f"[{words[at]}]"
    first = max(0, at - AROUND)
    return " ".join((["..."] if first else []) + words[first : first + 30])
