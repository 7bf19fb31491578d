"""The door to the screen: the only module that imports console.tui, and only when it opens."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from console.launch import engine_for, run_async
from console.preferences import Preferences, check
from console.recording.player import ReplayEngine

if TYPE_CHECKING:
    from console.engine import Engine
    from console.options import Request

SCREEN_FANOUT = 32
"""Handshakes at a time with a screen alive.

Measured with 1,000 reconnects: 32 at a time hold the loop for 52 to 82 ms at worst, 64 for up to
96 ms, all at once for 357 to 449 ms.
"""


def run_screen(request: Request, *, mouse: bool, tour: bool = False) -> int:
    """The live console; returns when the operator quits or the terminal goes away.

    Raises UsageError for preferences that cannot be read, before any node is asked.
    """
    return run_async(_run_screen(request, check(), mouse, tour))


async def _run_screen(request: Request, likes: Preferences, mouse: bool, tour: bool) -> int:
    wide = request if request.get("fanout") else request.over({"fanout": SCREEN_FANOUT})
    async with engine_for(wide) as engine:
        return await _show(engine, likes, mouse, demo=bool(request.get("demo")), tour=tour)


def replay_screen(
    request: Request, path: Path, speed: float, at: str | None, *, mouse: bool
) -> int:
    """The console on a recording."""
    return run_async(_show(ReplayEngine(request, path, speed, at), check(), mouse))


async def _show(
    engine: Engine, likes: Preferences, mouse: bool, *, demo: bool = False, tour: bool = False
) -> int:
    from console.tui import words
    from console.tui.app import ConsoleApp

    words.speak(likes.language, ascii=bool(likes.ascii))
    clock = engine.clock if isinstance(engine, ReplayEngine) else time.time
    app = ConsoleApp(engine, preferences=likes, clock=clock, demo=demo, tour=tour)
    try:
        await app.run_async(mouse=mouse and likes.mouse)
    except asyncio.CancelledError:
        app.exit()
        raise
    if app._exception is not None:
        raise app._exception
    return app.return_code or 0
