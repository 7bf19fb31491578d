"""Pictures for the README, made from the demo itself: `python -m docs.screenshots`.

The demo's story tells what is on them; figures differ a little from run to run, as its load does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from console.launch import engine_for
from console.options import Request
from docs import HERE

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from console.tui.app import ConsoleApp

SIZE = (100, 24)
STORY_S = 75.0
"""Until the thermal straggler was compared with its peers, and an Xid came."""
PICTURES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("fleet", ("1",), "gpu005"),
    ("node", ("1", "enter"), "next"),
    ("stragglers", ("escape", "3"), "gpu003"),
    ("gpus", ("4",), "gpu005"),
)
"""File, keys, and what must be on it."""


async def main() -> None:
    """Run the demo, look at each view, write its picture."""
    from console.tui.app import ConsoleApp

    async with engine_for(Request({"demo": True})) as engine:
        app = ConsoleApp(engine, demo=True)
        async with app.run_test(size=SIZE) as pilot:
            await asyncio.sleep(STORY_S)
            for name, keys, wanted in PICTURES:
                await pilot.press(*keys)
                await _until(pilot, lambda wanted=wanted: wanted in _text(app))  # type: ignore[misc]
                _write(name, app)


def _write(name: str, app: ConsoleApp) -> None:
    from console.tui.shots import picture

    (HERE / f"{name}.svg").write_bytes(picture(app, "svg"))


async def _until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await pilot.pause(0.1)
        await pilot.pause(1.5)


def _text(app: ConsoleApp) -> str:
    from console.tui.shots import picture

    return picture(app, "text").decode()


if __name__ == "__main__":
    asyncio.run(main())
