"""The fabric: nodes by their links and ports, and everything about the one under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen

from console.tui import commands
from console.tui.roster import Roster
from console.tui.screens.table import TableScreen
from console.tui.views import fabric_node
from console.tui.views.fabric import FabricTable
from console.tui.widgets.grid import Grid
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

SIZES = ("small", "large", "gone")
SIDE_BY_SIDE = 130
"""Cells from which the panel is beside the table instead of below it."""


class FabricScreen(TableScreen):
    """A table above or beside a panel."""

    SCREEN_NAME = "fabric"
    BINDINGS: ClassVar[list[BindingType]] = [
        *commands.bindings("fabric"),
        Binding("shift+down", "scroll_pane(1)", "panel down", show=False, priority=True),
        Binding("shift+up", "scroll_pane(-1)", "panel up", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    FabricScreen #both { height: 1fr; }
    FabricScreen #pane { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    FabricScreen.-beside #both { layout: horizontal; }
    FabricScreen.-beside #grid { width: 1fr; height: 1fr; }
    FabricScreen.-beside #pane { height: 1fr; margin-left: 1; }
    """

    def __init__(self, roster: Roster) -> None:
        """The roster outlives the screen."""
        self.fabric = FabricTable(roster.fleet)
        super().__init__(roster, self.fabric)
        self.pane_size = "small"

    def compose(self) -> ComposeResult:
        """As TableScreen, with the panel."""
        look = self.console_app.look
        yield Lines(look, id="status")
        with Container(id="both"):
            yield Grid(look, self.table.columns, self._cells, id="grid")
            yield Lines(look, id="pane")
        yield Lines(look, id="why")
        yield Prompt(id="prompt")
        yield Lines(look, id="keys")

    def on_mount(self) -> None:
        """Keys go to the grid."""
        self._fit_pane()
        super().on_mount()

    @property
    def pane(self) -> Lines:
        """The panel."""
        return self.query_one("#pane", Lines)

    def on_resize(self, event: events.Resize) -> None:
        """The panel goes where there is room."""
        self._fit_pane()

    def _fit_pane(self) -> None:
        width, height = self.app.size
        beside = width >= SIDE_BY_SIDE
        self.set_class(beside, "-beside")
        pane = self.pane
        small = {"small": 0.55, "large": 0.75, "gone": 0.0}[self.pane_size]
        pane.display = self.pane_size != "gone"
        if beside:
            pane.styles.width, pane.styles.height = int(width * small), "1fr"
        else:
            pane.styles.width, pane.styles.height = "1fr", int((height - 3) * small)

    def _draw(self, now: float) -> None:
        super()._draw(now)
        self._draw_pane()

    @on(Grid.Moved)
    def _draw_pane(self) -> None:
        pane, name = self.pane, self.grid.cursor
        if not pane.display:
            return
        app, width = self.console_app, pane.scrollable_content_region.width
        node = None if name is None else self.fabric.node(name)
        told = fabric_node.lines(name or "", node, app.look.glyphs, width, app.now())
        pane.show([] if name is None else told)

    @on(Grid.Moved)
    def _back_to_top(self) -> None:
        self.pane.scroll_to(y=0, animate=False, force=True)

    def action_scroll_pane(self, lines: int) -> None:
        """Scroll the panel."""
        pane = self.pane
        pane.scroll_to(y=pane.scroll_offset.y + lines, animate=False, force=True)

    def action_pane(self) -> None:
        """Next size of the panel."""
        self.pane_size = SIZES[(SIZES.index(self.pane_size) + 1) % len(SIZES)]
        self._fit_pane()
        self.call_after_refresh(self.draw_lines)


def screen(app: ConsoleApp) -> Screen[None]:
    """The view."""
    return FabricScreen(app.roster)
