"""Jobs: `enter` unfolds one into its nodes, and opens a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from console.tui import commands
from console.tui.screens.unfolding import UnfoldingScreen
from console.tui.views.jobs import JobsTable

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class JobsScreen(UnfoldingScreen):
    """Draws a JobsTable; `S` changes its order."""

    SCREEN_NAME = "jobs"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("jobs")

    def __init__(self, app: ConsoleApp) -> None:
        """Nothing read yet."""
        roster = app.roster
        self.model = JobsTable(lambda: roster.fleet)
        super().__init__(roster, self.model)


def screen(app: ConsoleApp) -> JobsScreen:
    """As console.tui.app opens it."""
    return JobsScreen(app)
