"""Majority against odd ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from console.tui import commands
from console.tui.screens.unfolding import UnfoldingScreen
from console.tui.views.drift import Drift

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class DriftScreen(UnfoldingScreen):
    """One row a fact in which nodes of a role differ."""

    SCREEN_NAME = "drift"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("drift")


def screen(app: ConsoleApp) -> DriftScreen:
    """Made when first shown."""
    return DriftScreen(app.roster, Drift(app.still))
