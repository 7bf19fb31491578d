"""Marks: which nodes an action is about. They belong to node names, not to lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from textual.widget import Widget

from console.tui.screens.prompting import PromptingScreen
from console.tui.widgets.grid import Grid
from console.tui.widgets.prompt import Prompt
from console.tui.words import t


class Rows(Protocol):
    """Something with a cursor on one of many keys: a grid, a canvas."""

    order: list[str]
    cursor: str | None
    touched: bool
    """Whether the operator moved the cursor."""

    def action_move(self, lines: int) -> None:
        """Cursor up or down in `order`."""
        ...


class MarkingScreen(PromptingScreen):
    """A screen with a grid whose rows are about nodes that can be marked."""

    held: str | None = None
    """Where the cursor was when the filter began to be typed."""
    range_start: str | None = None
    """Where a range begins: the last row marked by hand."""

    @property
    def grid(self) -> Grid:
        """The grid."""
        return self.query_one("#grid", Grid)

    def hold_cursor(self) -> None:
        """See PromptingScreen."""
        self.held = self.rows.cursor

    def return_cursor(self) -> None:
        """See PromptingScreen."""
        if isinstance(self.rows, Grid):
            self.rows.back_to(self.held)
        if not self.query_one(Prompt).display:
            self.held = None

    @property
    def rows(self) -> Rows:
        """What the marks are shown in."""
        return self.grid

    @property
    def body(self) -> Widget:
        """See PromptingScreen."""
        return self.grid

    def nodes_of(self, key: str) -> Sequence[str]:
        """The nodes a row is about."""
        return (key,)

    def chosen(self) -> list[str]:
        """Marked nodes, else those of the row under the cursor."""
        if self.roster.marked or self.rows.cursor is None:
            return self.roster.chosen(None)
        return [n for n in self.nodes_of(self.rows.cursor) if n in self.roster.index]

    def action_mark(self, text: str = "") -> None:
        """Mark or unmark, then go down; or mark what `:mark all|none|EXPRESSION` names."""
        if text:
            self._mark_text(text)
            return
        key = self.rows.cursor
        if key is None:
            return
        on_now = not self._all_marked(key)
        self.roster.mark(self._known([key]), on=on_now)
        self.range_start = key if on_now else None
        self.rows.touched = True
        self.rows.action_move(1)
        self.draw_lines()

    def _mark_text(self, text: str) -> None:
        roster = self.roster
        if text == "none":
            roster.mark(list(roster.marked), on=False)
        else:
            now = self.console_app.now()
            names = self._known(self.rows.order) if text == "all" else roster.matching(text, now)
            roster.mark(names)
            none = t("no node matches {text}", text=text)
            self.notify(t("{n} nodes marked", n=len(names)) if names else none, markup=False)
        self.draw_lines()

    def _known(self, keys: Iterable[str]) -> list[str]:
        """Nodes of these rows that are in the inventory, each once."""
        names = (name for key in keys for name in self.nodes_of(key))
        return [name for name in dict.fromkeys(names) if name in self.roster.index]

    def _all_marked(self, key: str) -> bool:
        names = self._known([key])
        return bool(names) and self.roster.marked.issuperset(names)

    def action_mark_range(self) -> None:
        """Mark from the last marked row to the cursor."""
        order, cursor = self.rows.order, self.rows.cursor
        if cursor is None:
            return
        start = self.range_start if self.range_start in order else cursor
        low, high = sorted((order.index(start or cursor), order.index(cursor)))
        self.roster.mark(self._known(order[low : high + 1]))
        self.range_start = cursor
        self.draw_lines()

    def action_mark_invert(self) -> None:
        """Turn marks around among the nodes shown."""
        roster = self.roster
        was, shown = set(roster.marked), self._known(self.rows.order)
        roster.mark([n for n in shown if n in was], on=False)
        roster.mark([n for n in shown if n not in was])
        self.draw_lines()

    def action_mark_clear(self) -> None:
        """Remove every mark."""
        self.roster.mark(list(self.roster.marked), on=False)
        self.draw_lines()
