"""Where the operator is: views, what is open over them, and the trail between."""

from __future__ import annotations

import importlib

from textual.await_complete import AwaitComplete
from textual.screen import Screen

from console.fleet import Fleet
from console.tui.engine import Engine
from console.tui.paint import forget_lines
from console.tui.roster import Roster
from console.tui.screens.fleet import FleetScreen
from console.tui.speaking import Speaking
from console.tui.trail import Place, Trail
from console.tui.views import VIEW_IDS
from console.tui.words import t
from inventory.errors import UsageError


class Walking(Speaking):
    """An app whose lowest screen is the fleet, with at most one view over it."""

    engine: Engine
    roster: Roster
    trail: Trail
    _fleet_screen: FleetScreen
    _views: dict[str, Screen[None]]
    """Views that were opened once."""

    @property
    def fleet(self) -> Fleet:
        """The engine's memory of all nodes, for acting: of the present also while the screen is
        paused. What is drawn comes from `roster.fleet`."""
        return self.engine.fleet

    def get_default_screen(self) -> FleetScreen:
        """The fleet."""
        return self._fleet_screen

    def go(self, view: str) -> None:
        """Show a view, from wherever the operator is. Its cursor and scroll are as they left it."""
        self._show_view(view)
        self.trail.visit(Place(view))

    def _show_view(self, view: str) -> None:
        while len(self.screen_stack) > 1:
            self.pop_screen()
        if view == "fleet":
            return
        if view not in self._views:
            module = importlib.import_module(f"console.tui.screens.{view}")
            self._views[view] = module.screen(self)
            self.install_screen(self._views[view], view)
        self.push_screen(view)

    def pop_screen(self) -> AwaitComplete:
        """As Textual's, and nothing of the screen is kept."""
        popped = super().pop_screen()
        forget_lines()
        return popped

    @property
    def view(self) -> str:
        """The view shown, or the one below a node or a campaign."""
        names = [getattr(screen, "SCREEN_NAME", "") for screen in self.screen_stack]
        return next((name for name in reversed(names) if name in VIEW_IDS), "fleet")

    def open_node(self, name: str, at: tuple[str, str] | None = None) -> None:
        """Show a node over the view, `at` a finding (rule, device) of it.

        Raises UsageError for a node that is not in the inventory.
        """
        if name not in self.roster.index:
            raise UsageError(t("there is no node {name} in the inventory", name=repr(name)))
        if self.here.node:
            self._show_view(self.view)
        self._show_node(name, at)
        self.trail.visit(self.here)

    def _show_node(self, name: str, at: tuple[str, str] | None = None) -> None:
        from console.tui.screens.node import NodeScreen

        self.push_screen(NodeScreen(name, at))

    def open_campaign(self, name: str) -> None:
        """Show an active test, by its id."""
        self._show_campaign(name)
        self.trail.visit(self.here)

    def _show_campaign(self, name: str) -> None:
        from console.tui.screens.campaigns import CampaignScreen

        self.push_screen(CampaignScreen(name))

    def close_node(self) -> None:
        """From a node or a test back to what is below."""
        self.pop_screen()
        self.trail.visit(self.here)

    @property
    def here(self) -> Place:
        """The view with what was opened over it."""
        place = Place(self.view)
        for screen in self.screen_stack:
            opened = str(getattr(screen, "about", ""))
            match getattr(screen, "SCREEN_NAME", ""):
                case "node":
                    place = place._replace(node=opened, campaign="")
                case "campaign":
                    place = place._replace(node="", campaign=opened)
        return place

    def move(self, steps: int) -> None:
        """Along the trail, back (negative) or forward."""
        place = self.trail.move(steps)
        if place is None:
            self.notify(t("nothing further that way"))
            return
        self._show_view(place.view)
        if place.node:
            self._show_node(place.node)
        if place.campaign:
            self._show_campaign(place.campaign)

    def set_theme(self, name: str) -> None:
        """Show another theme at once. Raises UsageError for one that does not exist."""
        self.look.use(name)
        self.theme = self.look.widgets.name
        for screen in {*self.screen_stack, *self._views.values()}:
            for widget in screen.query("*"):
                widget.refresh()
