"""Slow GPUs and nodes, ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from console.tui import commands
from console.tui.screens.unfolding import UnfoldingScreen
from console.tui.views.stragglers import Stragglers

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class StragglersScreen(UnfoldingScreen):
    """Who is slow, against whom, and who was not compared."""

    SCREEN_NAME = "stragglers"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("stragglers")


def screen(app: ConsoleApp) -> StragglersScreen:
    """Made when first shown."""
    return StragglersScreen(app.roster, Stragglers(app.still))
