"""What is wrong, folded by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from console.tui import commands
from console.tui.screens.unfolding import UnfoldingScreen
from console.tui.views.findings import Findings

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class FindingsScreen(UnfoldingScreen):
    """One row a kind of problem."""

    SCREEN_NAME = "findings"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("findings")


def screen(app: ConsoleApp) -> FindingsScreen:
    """Made when first shown."""
    return FindingsScreen(app.roster, Findings(app.still))
