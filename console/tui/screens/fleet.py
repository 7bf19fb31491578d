"""The fleet: status line, grid, newest problems, why, keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from console.tui import bars, commands, view
from console.tui.roster import SORTS, Roster
from console.tui.screens.marking import MarkingScreen
from console.tui.text import Cell, Column, plain
from console.tui.trends import Trends
from console.tui.widgets.grid import Grid
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines
from console.tui.words import t
from probes.event import Finding, Severity

STREAM_SIZES = ("small", "large", "gone")


class FleetScreen(MarkingScreen):
    """All nodes, worst first."""

    SCREEN_NAME = "fleet"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("fleet")

    def __init__(self, roster: Roster) -> None:
        """The roster outlives the screen: marks and filter are the operator's, not the widget's."""
        super().__init__(roster, id="fleet")
        self.wide = False
        self.stream_size = "small"
        self.trends = Trends()
        self.told: Finding | None = None
        """What the line under the grid tells of the node under the cursor."""

    def compose(self) -> ComposeResult:
        """One widget per line group."""
        look = self.console_app.look
        yield Lines(look, id="status")
        yield Grid(look, self._columns, self._cells, id="grid")
        yield Lines(look, id="stream")
        yield Lines(look, id="why")
        yield Prompt(id="prompt")
        yield Lines(look, id="keys")

    def on_mount(self) -> None:
        """First frame: every node, nothing known."""
        self.grid.focus()
        self._fit_stream()
        self.draw_lines()

    def on_resize(self) -> None:
        """Small terminals give the grid most of the height."""
        self._fit_stream()

    def _columns(self, width: int) -> list[Column]:
        return view.columns(width, list(self.roster.index), wide=self.wide)

    def _cells(self, name: str, columns: Sequence[Column]) -> list[Cell]:
        app = self.console_app
        glyphs = app.look.glyphs
        wanted = columns[-1:] == [view.TREND]
        trend = self.trends.of(self.roster.fleet, name, glyphs) if wanted else ""
        return view.row(self.roster.summary(name), columns, glyphs, app.now(), trend)

    def redraw(self, now: float) -> None:
        """One tick: order, rows, bars."""
        if self.focused is None:
            self.set_focus(self.grid)
        self.grid.show(self.roster.order(now))
        self.draw_status(self.grid.order)
        self._stream()
        self._why()
        self.draw_keys()

    def _stream(self) -> None:
        lines = self.query_one("#stream", Lines)
        if lines.display:
            glyphs, size = self.console_app.look.glyphs, lines.size
            fleet = self.roster.fleet
            lines.show(bars.stream(fleet.stream, glyphs, size.width, size.height, fleet.findings))

    def _why(self) -> None:
        lines = self.query_one("#why", Lines)
        name = self.grid.cursor if self.grid.order else None
        findings = self.roster.fleet.findings.get(name, []) if name else []
        self.told = top = next((f for f in findings if not f.acknowledged), None)
        if name is None:
            text = t("no node matches the filter; esc clears it") if self.roster.filter else ""
        else:
            status = self.roster.fleet.nodes[name].status
            told = " ".join(part for part in (status.text, status.hint) if part) if status else ""
            quiet = self.roster.summary(name).severity is Severity.OK
            text = f"{name}: {told}" if told else t("{name}: no answer yet", name=name)
            if quiet:
                text = t("{name}: no findings", name=name)
            if findings and top is None:
                text = t("{name}: acknowledged: {what}", name=name, what=findings[0].say)
        glyphs = self.console_app.look.glyphs
        lines.show([bars.why(top, plain(text), glyphs, lines.size.width)])

    def _fit_stream(self) -> None:
        height = self.app.size.height
        small = 0 if height < 16 else 3 if height < 22 else 5 if height < 40 else 9
        lines = {"small": small, "large": height // 2, "gone": 0}[self.stream_size]
        panel = self.query_one("#stream", Lines)
        panel.styles.height = lines
        panel.display = lines > 0

    @on(Grid.Moved)
    def _moved(self) -> None:
        if self.grid.touched and self.grid.cursor:
            self.console_app.announcer.saw(self.grid.cursor)
        self._why()

    @on(Grid.Opened)
    def _opened(self) -> None:
        self.action_open()

    def action_open(self, name: str = "") -> None:
        """Show one node."""
        target = name or self.grid.cursor
        if target is not None:
            self.grid.touched = True
            self.console_app.open_node(target)

    def severity_of(self, key: str) -> Severity:
        """The node's verdict."""
        return self.roster.fleet.verdict(key)

    def no_fault(self) -> str:
        """See MarkingScreen."""
        return t("no node shown has a problem")

    @property
    def orders(self) -> Sequence[str]:
        """See CommandingScreen."""
        return tuple(SORTS)

    def action_sort(self, text: str = "") -> None:
        """Choose an order, from a menu where none is named."""
        from console.tui.screens.sort import SortMenu

        if text:
            self._sort(text)
            return
        self.app.push_screen(SortMenu(self.roster.sort), self._sorted)

    def _sorted(self, name: str | None) -> None:
        if name:
            self._sort(name)

    def _sort(self, name: str) -> None:
        self.roster.sort_by(name)
        self.draw_lines()

    def action_wide(self) -> None:
        """Numbers before words, or back."""
        self.wide = not self.wide
        self.grid.recolumn()

    def action_stream(self) -> None:
        """Next size of the problems panel."""
        at = STREAM_SIZES.index(self.stream_size)
        self.stream_size = STREAM_SIZES[(at + 1) % len(STREAM_SIZES)]
        self._fit_stream()
        self.call_after_refresh(self.draw_lines)

    def action_acknowledge(self) -> None:
        """Acknowledge the finding that is told, also when a worse one has just come."""
        if not self.steady():
            return
        if self.told is None or self.told.node != self.grid.cursor:
            self._why()
        if self.told is None:
            self.notify(t("nothing to acknowledge here"))
            return
        self.console_app.acknowledge(self.told)
        self.draw_lines()
