"""The order menu."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from console.tui.roster import SORTS
from console.tui.words import t


class SortMenu(ModalScreen[str | None]):
    """Dismisses with the name of an order, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,S", "cancel", "back"),
        Binding("j", "app.simulate_key('down')", show=False),
        Binding("k", "app.simulate_key('up')", show=False),
    ]

    def __init__(self, current: str) -> None:
        """`current` is the order in force; choosing it reverses it."""
        super().__init__(classes="dialog")
        self.current = current

    def compose(self) -> ComposeResult:
        """One option per order."""
        with Vertical(classes="box menu"):
            yield OptionList(
                *(Option(Content(self._label(n, what)), id=n) for n, (what, _) in SORTS.items()),
                compact=True,
            )

    def _label(self, name: str, what: str) -> str:
        now = t("  (now; again reverses)") if name == self.current else ""
        return f"{name:8} {t(what)}{now}"

    def on_mount(self) -> None:
        """Start at the order in force."""
        menu = self.query_one(OptionList)
        menu.highlighted = list(SORTS).index(self.current)
        menu.focus()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_cancel(self) -> None:
        """Keep the order."""
        self.dismiss(None)
