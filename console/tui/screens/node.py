"""One node: what is wrong, why, what to do, and every reading behind it."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from console.tui import bars, commands
from console.tui.node_view import NodeSheet, node_sheet
from console.tui.screens.acting import ActingScreen
from console.tui.widgets.sheet import Lines, Sheet
from probes.event import Finding


class NodeScreen(ActingScreen):
    """A scrolling sheet of one node; `n` walks through its findings."""

    SCREEN_NAME = "node"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("node")

    def __init__(self, node: str) -> None:
        """`node` is a name of the inventory."""
        super().__init__()
        self.node = node
        self.selected: tuple[str, str] | None = None
        """(rule, device) of the finding the operator is at; the first one until they move."""
        self.sheet = NodeSheet([], [], [])
        self._ends: list[tuple[int, str]] = []

    def compose(self) -> ComposeResult:
        """The sheet and the keys."""
        look = self.console_app.look
        yield Sheet(look, id="sheet")
        yield Lines(look, id="keys")

    def on_mount(self) -> None:
        """Keys go to the sheet."""
        self.query_one("#sheet", Sheet).focus()
        self.draw_lines()

    @on(Lines.Resized)
    def _resized(self) -> None:
        self._draw(self.query_one("#sheet", Sheet), self.console_app.now())
        self.draw_lines()

    def chosen(self) -> list[str]:
        """Actions here are about this node only, whatever is marked."""
        return [self.node]

    @property
    def findings(self) -> list[Finding]:
        """The node's findings, worst first."""
        return self.console_app.fleet.findings[self.node]

    @property
    def position(self) -> int:
        """Index of the selected finding; 0 when it went away."""
        for index, finding in enumerate(self.findings):
            if (finding.rule, finding.device) == self.selected:
                return index
        return 0

    def redraw(self, now: float) -> None:
        """One tick: all lines again; only those that differ are painted."""
        app = self.console_app
        widget = self.query_one("#sheet", Sheet)
        if not app.paused or not self.sheet.lines:
            self._draw(widget, now)
        keys = self.query_one("#keys", Lines)
        footer = commands.footer("node", read_only=app.engine.read_only)
        line, self._ends = bars.keys(footer, keys.size.width)
        keys.show([line])

    def _draw(self, widget: Sheet, now: float) -> None:
        app, width = self.console_app, widget.scrollable_size.width
        if not width:
            return
        self.sheet = node_sheet(
            app.fleet, self.node, app.look.glyphs, width, now, selected=self.position
        )
        widget.show(self.sheet.lines)

    @on(Lines.Clicked, "#keys")
    async def _key_clicked(self, event: Lines.Clicked) -> None:
        command = next((c for end, c in self._ends if event.x < end), None)
        if command:
            await self.run_action(commands.BY_ID[command].does)

    def action_back(self) -> None:
        """To the view it was opened from."""
        self.console_app.close_node()

    def action_next_fault(self) -> None:
        """Next finding."""
        self._walk(1)

    def action_previous_fault(self) -> None:
        """Previous finding."""
        self._walk(-1)

    def _walk(self, step: int) -> None:
        findings = self.findings
        if not findings:
            self.notify("no findings")
            return
        # The first press goes to the finding that is already selected, wherever the sheet is.
        at = self.position + step if self.selected else 0
        chosen = findings[at % len(findings)]
        self.selected = (chosen.rule, chosen.device)
        widget = self.query_one("#sheet", Sheet)
        self._draw(widget, self.console_app.now())
        if self.sheet.findings:
            widget.reveal(*self.sheet.findings[self.position])

    def action_acknowledge(self) -> None:
        """Acknowledge the selected finding."""
        if not self.findings:
            self.notify("nothing to acknowledge here")
            return
        self.console_app.acknowledge(self.findings[self.position])
        self.draw_lines()
