"""The demo with a console that fails at its third redraw; run by test_sturdy as a program."""

from __future__ import annotations

import sys

from console import start
from console.tui.screens.fleet import FleetScreen

_redraw = FleetScreen.redraw
_drawn: list[float] = []


def _fails(self: FleetScreen, now: float) -> None:
    _drawn.append(now)
    if len(_drawn) > 2:
        raise ZeroDivisionError("made to fail")
    _redraw(self, now)


if __name__ == "__main__":
    FleetScreen.redraw = _fails  # type: ignore[method-assign]
    sys.argv = ["gpuconsole", "--demo", "--nodes", "2"]
    start.main()
