"""Where the operator was: `[` goes back, `]` forward. Pure."""

from __future__ import annotations

from typing import NamedTuple

KEPT = 50
"""Places remembered."""


class Place(NamedTuple):
    """A view, or a node or a test opened from it."""

    view: str
    node: str = ""
    campaign: str = ""


class Trail:
    """Visited places, as a browser keeps them: going elsewhere forgets what lay ahead."""

    def __init__(self) -> None:
        """Nowhere yet."""
        self._places: list[Place] = []
        self._at = -1

    @property
    def here(self) -> Place | None:
        """The current place."""
        return self._places[self._at] if self._places else None

    def visit(self, place: Place) -> None:
        """Be somewhere; staying where one is changes nothing."""
        if place == self.here:
            return
        self._places = [*self._places[: self._at + 1], place][-KEPT:]
        self._at = len(self._places) - 1

    def move(self, steps: int) -> Place | None:
        """Back (negative) or forward; None at the ends."""
        at = self._at + steps
        if not 0 <= at < len(self._places):
            return None
        self._at = at
        return self._places[at]
