"""Tables whose rows unfold into what they are about."""

from __future__ import annotations

from typing import Protocol

from console.tui.roster import Roster
from console.tui.screens.table import TableScreen
from console.tui.views.table import Table


class Unfolding(Table, Protocol):
    """A Table with rows that have rows of their own."""

    def toggle(self, key: str) -> bool:
        """Unfold or fold a row; False when there is nothing below it."""
        ...

    def target(self, key: str) -> tuple[str, tuple[str, str] | None] | None:
        """Node, and the finding there (rule, device), that a row leads to; None when to none."""
        ...


class UnfoldingScreen(TableScreen):
    """`enter` unfolds a row of many and opens a row of one."""

    def __init__(self, roster: Roster, table: Unfolding) -> None:
        """See TableScreen."""
        super().__init__(roster, table)
        self.unfolding = table

    def action_open(self, name: str = "") -> None:
        """Unfold the row under the cursor, or show its node at the finding, or a named node."""
        key = self.grid.cursor
        if name or key is None:
            super().action_open(name)
            return
        self.grid.touched = True
        if self.unfolding.toggle(key):
            self.draw_lines()
            return
        target = self.unfolding.target(key)
        if target is not None:
            self.console_app.open_node(*target)
