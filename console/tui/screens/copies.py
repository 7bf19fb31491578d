"""The copy menu."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from console.tui.copying import FORMATS
from console.tui.words import t


class CopyMenu(ModalScreen[str | None]):
    """Dismisses with one of FORMATS, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,c", "take('')", "back", priority=True),
        Binding("h,y", "take('hosts')", "host list", priority=True),
        Binding("j", "take('json')", "JSON", priority=True),
        Binding("m", "take('markdown')", "markdown", priority=True),
    ]

    def __init__(self, what: str) -> None:
        """`what`: the nodes, in a word or two."""
        super().__init__(classes="dialog")
        self.what = what

    def compose(self) -> ComposeResult:
        """One option a form, with the key that takes it at once."""
        labels = (t("h  host list"), t("j  JSON: verdict, findings, readings"),
                  t("m  markdown: ready for a ticket"))  # fmt: skip
        with Vertical(classes="box menu"):
            yield Static(Content(t("copy {what} as", what=self.what)))
            options = zip(FORMATS, labels, strict=True)
            yield OptionList(*(Option(Content(w), id=f) for f, w in options), compact=True)

    def on_mount(self) -> None:
        """Keys go to the menu."""
        self.query_one(OptionList).focus()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_take(self, form: str) -> None:
        """Take one, or none."""
        self.dismiss(form or None)
