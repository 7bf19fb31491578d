"""Dialogs that show a plan and ask whether it shall be carried out."""

from __future__ import annotations

import time
from typing import TypeVar

from textual.screen import ModalScreen

from console.tui.screens.inside import Inside
from console.tui.text import Cell, Line, hints
from console.tui.words import t

_Result = TypeVar("_Result")


class PlanDialog(ModalScreen[_Result], Inside[_Result]):
    """`y` is for a plan that could be read: a subclass says when one has `appeared`."""

    shown_at = float("inf")
    """Monotonic seconds since which the plan is on the screen."""
    too_fast = False
    """The last `y` did not count."""

    def appeared(self) -> None:
        """Another plan is on the screen from now on."""
        self.shown_at, self.too_fast = time.monotonic(), False

    def of_now(self) -> list[Line]:
        """What a plan says over a screen that stands still: it is of the present itself."""
        told = t("as of now: the screen behind this plan is paused")
        return [(Cell(told, "warn"),)] if self.console_app.paused else []

    def confirmed(self) -> bool:
        """Whether the key just pressed may confirm the plan: not with others in one go, nor before
        the plan could be read."""
        self.too_fast = not self.console_app.confirms(self.shown_at)
        return not self.too_fast

    def yes(self, blocked: str, does: str) -> Line:
        """What `y` does, or why not."""
        if blocked or self.too_fast:
            return (Cell(blocked or t("too fast: press y once more"), "warn"),)
        return hints(("y", does))
