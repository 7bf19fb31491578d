"""Marks: which nodes an action is about. They belong to node names, not to lines."""

from __future__ import annotations

from console.tui.roster import Roster
from console.tui.screens.acting import ActingScreen
from console.tui.widgets.grid import Grid


class MarkingScreen(ActingScreen):
    """A screen with a grid whose nodes can be marked."""

    def __init__(self, roster: Roster) -> None:
        """The roster keeps the marks."""
        super().__init__(id="fleet")
        self.roster = roster
        self.range_start: str | None = None
        """Where a range begins: the last node marked by hand."""

    @property
    def grid(self) -> Grid:
        """The grid."""
        return self.query_one("#grid", Grid)

    def chosen(self) -> list[str]:
        """Marked nodes, else the one under the cursor."""
        return self.roster.chosen(self.grid.cursor)

    def mark_text(self, text: str) -> None:
        """Mark what `:mark all|none|EXPRESSION` names. Raises FilterError."""
        roster = self.roster
        if text == "none":
            roster.mark(list(roster.marked), on=False)
        else:
            names = self.grid.order if text == "all" else roster.matching(text)
            roster.mark(names)
            self.notify(
                f"{len(names)} nodes marked" if names else f"no node matches {text}", markup=False
            )
        self.draw_lines()

    def action_mark(self) -> None:
        """Mark or unmark, then go down."""
        name = self.grid.cursor
        if name is None:
            return
        on_now = name not in self.roster.marked
        self.roster.mark([name], on=on_now)
        self.range_start = name if on_now else None
        self.grid.touched = True
        self.grid.action_move(1)
        self.draw_lines()

    def action_mark_range(self) -> None:
        """Mark from the last marked node to the cursor."""
        order, cursor = self.grid.order, self.grid.cursor
        if cursor is None:
            return
        start = self.range_start if self.range_start in order else cursor
        low, high = sorted((order.index(start or cursor), order.index(cursor)))
        self.roster.mark(order[low : high + 1])
        self.range_start = cursor
        self.draw_lines()

    def action_mark_invert(self) -> None:
        """Turn marks around among the nodes shown."""
        roster = self.roster
        was = set(roster.marked)
        roster.mark([n for n in self.grid.order if n in was], on=False)
        roster.mark([n for n in self.grid.order if n not in was])
        self.draw_lines()

    def action_mark_clear(self) -> None:
        """Remove every mark."""
        self.roster.mark(list(self.roster.marked), on=False)
        self.draw_lines()
