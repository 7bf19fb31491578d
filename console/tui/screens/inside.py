"""What every screen of the console needs of its app."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from textual.screen import Screen
from textual.worker import Worker

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

_Result = TypeVar("_Result")


class Inside(Screen[_Result]):
    """A screen of the console's own app."""

    @property
    def console_app(self) -> ConsoleApp:
        """The app with its engine."""
        from console.tui.app import ConsoleApp

        assert isinstance(self.app, ConsoleApp)
        return self.app

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker of a screen that failed is told as one of the app: it does not bubble up."""
        self.console_app.on_worker_state_changed(event)
