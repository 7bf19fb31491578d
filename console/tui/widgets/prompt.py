"""The line where filters and commands are typed; hidden until asked for."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static


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
        entry = Input(id="entry", compact=True)
        entry.cursor_blink = False
        yield entry
        yield Static("", id="complaint", markup=False)

    def on_mount(self) -> None:
        """Hidden until asked for."""
        self.display = False

    def ask(self, kind: str, text: str) -> None:
        """Show the prompt with a text to change."""
        self.kind, self.before = kind, text
        self.query_one("#sign", Static).update(Content(kind))
        self.complain("")
        entry = self.query_one("#entry", Input)
        with entry.prevent(Input.Changed):
            entry.value = text
        entry.cursor_position = len(text)
        self.display = True
        # Not Widget.focus, which waits its turn while the next keys already arrive.
        self.screen.set_focus(entry)

    def complain(self, what: str) -> None:
        """Say what is wrong with the text; "" when nothing is."""
        complaint = self.query_one("#complaint", Static)
        complaint.update(Content(what))
        complaint.display = bool(what)

    @on(Input.Changed, "#entry")
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:
            self.post_message(self.Typed(self.kind, event.value))

    @on(Input.Submitted, "#entry")
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._close(event.value)

    def on_key(self, event: events.Key) -> None:
        """Escape gives up."""
        if event.key == "escape" and self.display:
            event.stop()
            event.prevent_default()
            self._close(None)

    def _close(self, text: str | None) -> None:
        self.display = False
        self.post_message(self.Answered(self.kind, text, self.before))
