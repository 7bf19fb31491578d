"""A view of rows: status line, grid, why, keys."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult

from console.tui.roster import Roster
from console.tui.screens.marking import MarkingScreen
from console.tui.text import Cell, Column, cut
from console.tui.views.table import Table
from console.tui.widgets.grid import Grid
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines
from probes.event import Severity


class TableScreen(MarkingScreen):
    """Draws a Table. A subclass sets SCREEN_NAME and BINDINGS and hands over its model."""

    def __init__(self, roster: Roster, table: Table) -> None:
        """The model is read once a tick."""
        super().__init__(roster)
        self.table = table
        self._rows: list[str] | None = None

    def compose(self) -> ComposeResult:
        """One widget per line group."""
        look = self.console_app.look
        yield Lines(look, id="status")
        yield Grid(look, self.table.columns, self._cells, id="grid")
        yield Lines(look, id="why")
        yield Prompt(id="prompt")
        yield Lines(look, id="keys")

    def on_mount(self) -> None:
        """Keys go to the grid."""
        self.grid.focus()
        self.draw_lines()

    def nodes_of(self, key: str) -> Sequence[str]:
        """See MarkingScreen."""
        return self.table.nodes(key)

    def _cells(self, key: str, columns: Sequence[Column]) -> list[Cell]:
        app = self.console_app
        return self.table.cells(key, columns, app.look.glyphs, app.now())

    def redraw(self, now: float) -> None:
        """One tick: rows, bars. While paused the rows stay as they are."""
        if self.focused is None:
            self.set_focus(self.grid)
        shown = self.roster.shown(now)
        if not self.console_app.paused or self._rows is None:
            self.table.update(self.take_news(), now)
        self._rows = self.table.rows(shown, now)
        self.grid.show(self._rows)
        self.draw_status(shown, view=f"{self.SCREEN_NAME}: {self.table.headline()}")
        self.draw_why()
        self.draw_keys()

    @on(Grid.Moved)
    def draw_why(self) -> None:
        """The line that explains the row under the cursor."""
        lines, key = self.query_one("#why", Lines), self.grid.cursor
        if key is not None and self.grid.order:
            lines.show([self.table.why(key, self.console_app.look.glyphs, lines.size.width)])
        else:
            lines.show([(Cell(cut(self.table.empty, lines.size.width), "dim"),)])

    @on(Grid.Opened)
    def _opened(self) -> None:
        self.action_open()

    def action_open(self, name: str = "") -> None:
        """Show the node of the row under the cursor, or a named one."""
        names = self.chosen_here()
        if name or names:
            self.console_app.open_node(name or names[0])

    def chosen_here(self) -> list[str]:
        """Nodes of the row under the cursor, whatever is marked."""
        return self._known([self.grid.cursor]) if self.grid.cursor else []

    def _one(self) -> Sequence[str]:
        return self.chosen_here()[:1]

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
            if self.table.severity(key).rank >= Severity.WARN.rank:
                grid.move_to(key)
                return
        self.notify("no row shown has a problem")

    def action_acknowledge(self) -> None:
        """Acknowledge everything the row tells; again takes nothing back."""
        key = self.grid.cursor
        open_ones = [f for f in self.table.findings(key) if not f.acknowledged] if key else []
        if not open_ones:
            self.notify("nothing to acknowledge here")
            return
        for finding in open_ones:
            self.console_app.acknowledge(finding)
        self.draw_lines()
