"""Marks: which nodes an action is about. They belong to node names, not to lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from textual import on
from textual.widget import Widget

from console.tui.screens.prompting import PromptingScreen
from console.tui.widgets.grid import Grid
from console.tui.widgets.prompt import Prompt
from console.tui.words import t
from inventory.expressions import fold
from probes.event import Severity

SEEN_S = 1.0
"""A row that came under the cursor so short ago was not yet seen there: the eye and the finger
take half a second, a slow line the rest."""


class Rows(Protocol):
    """Something with a cursor on one of many keys: a grid, a canvas."""

    order: list[str]
    cursor: str | None
    touched: bool
    """Whether the operator moved the cursor."""
    expected: bool
    """Whether it is the operator's doing if the next order moves the cursor."""

    def action_move(self, lines: int) -> None:
        """Cursor up or down in `order`."""
        ...


class MarkingScreen(PromptingScreen):
    """A screen with a grid whose rows are about nodes that can be marked."""

    held: str | None = None
    """Where the cursor was when the filter began to be typed."""
    range_start: str | None = None
    """Where a range begins: the last row marked by hand."""
    jumped_at: float | None = None
    """When the cursor went to another row by itself."""

    @property
    def grid(self) -> Grid:
        """The grid."""
        return self.query_one("#grid", Grid)

    def hold_cursor(self) -> None:
        """See PromptingScreen."""
        self.held = self.rows.cursor

    def return_cursor(self) -> None:
        """See PromptingScreen."""
        self.rows.expected = True
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

    def _one(self) -> Sequence[str]:
        return [self.rows.cursor] if self.rows.cursor else []

    @on(Grid.Moved)
    def _noticed(self, event: Grid.Moved) -> None:
        self.noticed(jumped=event.jumped)

    def noticed(self, *, jumped: bool) -> None:
        """The cursor is on another row; `jumped`: not by the operator."""
        self.jumped_at = self.console_app.clock() if jumped else None

    def steady(self) -> bool:
        """Keys that ask nothing wait for a second press where the row under the cursor is not the
        one the operator looked at. From here on the cursor stays on its row."""
        jumped_at, self.jumped_at = self.jumped_at, None
        self.rows.touched = True
        if jumped_at is None or self.console_app.clock() - jumped_at > SEEN_S:
            return True
        told = t("the cursor has just moved to {row} by itself: press again", row=self.row_name)
        self.notify(told, severity="warning", markup=False)
        return False

    @property
    def row_name(self) -> str:
        """What the row under the cursor is called."""
        names = [] if self.rows.cursor is None else self._known([self.rows.cursor])
        return fold(names) if names else t("another row")

    def severity_of(self, key: str) -> Severity:
        """How bad a row is."""
        raise NotImplementedError

    def no_fault(self) -> str:
        """What is said where no row is wrong."""
        return t("no row shown has a problem")

    def action_next_fault(self) -> None:
        """Cursor to the next row that is not ok, around the end."""
        self._fault(1)

    def action_previous_fault(self) -> None:
        """Cursor to the previous row that is not ok, around the top."""
        self._fault(-1)

    def _fault(self, step: int) -> None:
        order, grid = self.grid.order, self.grid
        at = order.index(grid.cursor) if grid.cursor in order else -1
        for offset in range(1, len(order) + 1):
            key = order[(at + step * offset) % len(order)]
            if self.severity_of(key).rank >= Severity.WARN.rank:
                grid.move_to(key)
                return
        self.notify(self.no_fault())

    def action_mark(self, text: str = "") -> None:
        """Mark or unmark, then go down; or mark what `:mark all|none|EXPRESSION` names."""
        if text:
            self._mark_text(text)
            return
        key = self.rows.cursor
        if key is None or not self.steady():
            return
        on_now = not self._all_marked(key)
        self.roster.mark(self._known([key]), on=on_now)
        self.range_start = key if on_now else None
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
