"""The door to the screen: what opens it imports Textual, and only then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from console.launch import engine_for, run_async
from console.preferences import Preferences, check

if TYPE_CHECKING:
    from console.engine import Engine
    from console.options import Request

SCREEN_FANOUT = 32
"""Handshakes at a time with a screen alive.

Measured with 1,000 reconnects: 32 at a time hold the loop for 52 to 82 ms at worst, 64 for up to
96 ms, all at once for 357 to 449 ms.
"""


def run_screen(
    request: Request, *, mouse: bool, tour: bool = False, theme: str | None = None
) -> int:
    """The live console; returns when the operator quits or the terminal goes away.

    Raises UsageError for preferences that cannot be read, before any node is asked.
    """
    return run_async(_run_screen(request, _likes(theme), mouse, tour))


def _likes(theme: str | None) -> Preferences:
    """As the operator's file says, or in this theme."""
    found = check()
    return msgspec.structs.replace(found, theme=theme) if theme else found


async def _run_screen(request: Request, likes: Preferences, mouse: bool, tour: bool) -> int:
    wide = request if request.get("fanout") else request.over({"fanout": SCREEN_FANOUT})
    async with engine_for(wide) as engine:
        return await _show(engine, likes, mouse, demo=bool(request.get("demo")), tour=tour)


def replay_screen(
    request: Request,
    path: Path,
    speed: float,
    at: str | None,
    *,
    mouse: bool,
    theme: str | None = None,
) -> int:
    """The console on a recording."""
    from console.recording.player import ReplayEngine

    engine = ReplayEngine(request, path, speed, at)
    return run_async(_show(engine, _likes(theme), mouse, clock=engine.clock))


async def _show(
    engine: Engine,
    likes: Preferences,
    mouse: bool,
    *,
    clock: Callable[[], float] = time.time,
    demo: bool = False,
    tour: bool = False,
) -> int:
    from console.tui import words
    from console.tui.app import ConsoleApp

    words.speak(likes.language, ascii=bool(likes.ascii))
    app = ConsoleApp(engine, preferences=likes, clock=clock, demo=demo, tour=tour)
    try:
        await app.run_async(mouse=mouse and likes.mouse)
    except asyncio.CancelledError:
        app.exit()
        raise
    if app._exception is not None:
        raise app._exception
    return app.return_code or 0
