"""Long pauses, one after the other: what do they cost, and is it given back?

    python -m benchmarks.pauses [--nodes 250] [--pauses 8] [--ticks 12]

The story of tests/tui/soaking.py. While the screen stands still every node that changes is kept
twice. After each pause and ten more ticks: RSS and container objects.
RSS rises once, with the first pause: the allocator keeps that room, and later pauses use it again.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from textual.pilot import Pilot

from benchmarks.soak import rss_mb
from console.collector import calm_collector
from console.tui.app import ConsoleApp
from console.tui.theme import Look
from tests.tui import synthetic
from tests.tui.soaking import Day, census, tick
from tests.tui.synthetic import LocalEngine

WARM_TICKS, CATCH_UP_TICKS = 90, 10


async def pass_time(app: ConsoleApp, day: Day, ticks: int, pilot: Pilot[None]) -> None:
    """Ticks without a key."""
    for _ in range(ticks):
        await tick(app, day)
        await pilot.pause(0.01)  # what frees what a pause held waits for its turn


async def pauses(nodes: int, times: int, ticks: int) -> dict[str, object]:
    """RSS while the screen stands still and after, objects after."""
    engine = LocalEngine(synthetic.inventory(nodes), None)
    app = ConsoleApp(engine, look=Look(), clock=lambda: engine.at, tick_s=None)
    day = Day(engine)
    held: list[float] = []
    async with app.run_test(size=(160, 50)) as pilot:
        calm_collector()
        await pass_time(app, day, WARM_TICKS, pilot)
        after = [(rss_mb(), census().total())]
        for _ in range(times):
            app.toggle_pause()
            await pass_time(app, day, ticks, pilot)
            held.append(rss_mb())
            app.toggle_pause()
            await pass_time(app, day, CATCH_UP_TICKS, pilot)
            after.append((rss_mb(), census().total()))
    return {
        "nodes": nodes, "ticks": ticks, "rss_held_mb": [round(mb, 1) for mb in held],
        "rss_after_mb": [round(mb, 1) for mb, _ in after], "objects_after": [n for _, n in after],
    }  # fmt: skip


def main() -> None:
    """Command line; one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=250)
    parser.add_argument("--pauses", type=int, default=8)
    parser.add_argument("--ticks", type=int, default=12)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(pauses(options.nodes, options.pauses, options.ticks)), indent=1))


if __name__ == "__main__":
    main()
