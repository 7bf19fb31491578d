"""A yes-or-no question about nodes. Enter answers nothing; only `y` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from console.tui.plan_view import labelled, title
from console.tui.text import Cell, Line, hints, plain
from console.tui.widgets.sheet import Lines, Sheet
from console.tui.words import spoken, t

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class Ask(ModalScreen[bool]):
    """Dismisses with True after `y`, with False after escape."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes", priority=True),
        Binding("escape,n,q", "answer(False)", "no", priority=True),
    ]

    def __init__(self, what: str, names: Sequence[str], refused: Mapping[str, str]) -> None:
        """`what` is the act as people read it; `refused` nodes are left alone, with the reason."""
        super().__init__(classes="dialog")
        self.what, self.names, self.refused = what, list(names), dict(refused)

    def compose(self) -> ComposeResult:
        """The question and its keys."""
        app: ConsoleApp = self.app  # type: ignore[assignment]
        with Vertical(classes="box"):
            yield Sheet(app.look, id="sheet")
            yield Lines(app.look, id="hint")

    def on_mount(self) -> None:
        """Say what it is about."""
        self.query_one("#sheet").focus()

    @on(Lines.Resized)
    def _draw(self) -> None:
        sheet, hint = self.query_one("#sheet", Sheet), self.query_one("#hint", Lines)
        sheet.show(self._lines(max(1, sheet.scrollable_size.width)))
        hint.show([self._hint()])

    def _lines(self, width: int) -> list[Line]:
        head = self._head()
        lines: list[Line] = [(Cell(head, "title"),)]
        for name, why in self.refused.items():
            lines += labelled(t("leave"), f"{name}: {plain(spoken(why))}", width, "unknown")
        return lines

    def _head(self) -> str:
        if self.names:
            return title(self.what, self.names)
        return t("{act}: no node can do it now", act=self.what)

    def _hint(self) -> Line:
        if not self.names:
            return hints(("esc", t("back")))
        return hints(("y", t("yes")), ("esc", t("no")))

    def action_answer(self, yes: bool) -> None:
        """Answer; yes needs nodes."""
        if not yes or self.names:
            self.dismiss(yes)
