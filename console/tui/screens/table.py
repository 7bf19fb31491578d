"""A view of rows: status line, grid, why, keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from textual import on
from textual.app import ComposeResult

from console.tui.roster import Roster
from console.tui.screens.marking import MarkingScreen
from console.tui.text import Cell, Column, cut
from console.tui.view import GUTTER
from console.tui.views.table import Ordered, Table
from console.tui.widgets.grid import Grid
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines
from console.tui.words import t
from probes.event import Severity

SLICE = 500
"""Nodes taken in at once: a few microseconds each, so that a key waits 20 ms at most."""
BREATH_S = 0.01


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
        cells = self.table.cells(key, columns, app.look.glyphs, app.now())
        if columns and columns[0].name == GUTTER.name:
            cells[0] = self._marked(key)
        return cells

    def _marked(self, key: str) -> Cell:
        """Whether the row's nodes are marked; dim where only some are."""
        marked, names = self.roster.marked, self.table.nodes(key)
        if not marked or not names or marked.isdisjoint(names):
            return Cell(" ", "mark")
        whole = marked.issuperset(names)
        return Cell(self.console_app.look.glyphs.mark, "mark" if whole else "dim")

    def redraw(self, now: float) -> None:
        """One tick: rows, bars."""
        if self.focused is None:
            self.set_focus(self.grid)
        self._take(now)
        self._draw(now)

    def _take(self, now: float) -> None:
        """At most SLICE nodes; the rest comes before the next tick, after a key had its chance."""
        names = self.take_news()
        some = names if len(names) <= SLICE else set(islice(names, SLICE))
        self.table.update(some, now)
        self._news |= names - some
        if self._news:
            self.set_timer(BREATH_S, self._more)
        else:
            self._rows = self._rows or []

    def _more(self) -> None:
        now = self.console_app.now()
        self._take(now)
        if not self._news and self.app.screen is self:
            self._draw(now)

    def _draw(self, now: float) -> None:
        shown, headline = self.roster.shown(now), ""
        if self._rows is not None:  # else the first look at all nodes is not over
            self._rows = self.table.rows(shown, now)
            self.grid.show(self._rows)
            headline = self.table.headline()
        self.draw_status(shown, view=t("{view}: {told}", view=t(self.SCREEN_NAME), told=headline))
        self.draw_why()
        self.draw_keys()

    @on(Grid.Moved)
    def draw_why(self) -> None:
        """The line that explains the row under the cursor."""
        lines, key = self.query_one("#why", Lines), self.grid.cursor
        if key is not None and self.grid.order:
            lines.show([self.table.why(key, self.console_app.look.glyphs, lines.size.width)])
        else:
            text = t("reading the nodes") if self._rows is None else self.table.empty
            lines.show([(Cell(cut(text, lines.size.width), "dim"),)])

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

    def severity_of(self, key: str) -> Severity:
        """See MarkingScreen."""
        return self.table.severity(key)

    @property
    def orders(self) -> Sequence[str]:
        """See CommandingScreen."""
        return self.table.orders if isinstance(self.table, Ordered) else ()

    def action_sort(self, text: str = "") -> None:
        """The next order, or the named one. Offered by screens whose table has several."""
        if isinstance(self.table, Ordered):
            self.table.sort_by(text)
            self.draw_lines()

    def topic(self) -> str:
        """See CommandingScreen."""
        key = self.grid.cursor
        return next((f.rule for f in self.table.findings(key)), "") if key else ""

    def action_acknowledge(self) -> None:
        """Acknowledge everything the row tells; again takes nothing back."""
        if not self.steady():
            return
        key = self.grid.cursor
        open_ones = [f for f in self.table.findings(key) if not f.acknowledged] if key else []
        if not open_ones:
            self.notify(t("nothing to acknowledge here"))
            return
        self.console_app.acknowledge(*open_ones)
        self.draw_lines()
