"""The view of active tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.tui.screens.campaigns import CampaignsScreen

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


def screen(_app: ConsoleApp) -> CampaignsScreen:
    """As console.tui.app opens it."""
    return CampaignsScreen()
