"""A day of a fleet in trouble through the real console, in short: does memory grow?

    python -m benchmarks.soak [--nodes 64] [--hours 24] [--warm-up 6] [--size 160x50]

The story of tests/tui/soaking.py: nodes lose GPUs, run hot, flap ports, vanish and reboot; jobs,
processes and kernel lines change their names; one key a tick goes through all views. A tick stands
for 10 s. After the warm-up and eight times until the end: RSS and live container objects, by type
where they grew most. Warm is when every view was opened and every ring is full; the log's 10,000
lines last longest: 64 nodes in trouble write them in about five hours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from console.collector import calm_collector
from console.tui.app import ConsoleApp
from console.tui.theme import Look
from tests.tui import synthetic
from tests.tui.soaking import STEP_S, Day, census, live
from tests.tui.synthetic import LocalEngine


def rss_mb() -> float:
    """Resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def soak(
    nodes: int, hours: float, warm_up_h: float, size: tuple[int, int]
) -> dict[str, object]:
    """Live through it; what was measured."""
    engine = LocalEngine(synthetic.inventory(nodes), None)
    app = ConsoleApp(engine, look=Look(), clock=lambda: engine.at, tick_s=None)
    day = Day(engine)
    hour = int(3600 / STEP_S)
    told: list[tuple[float, float, int]] = []
    cpu_ms: list[float] = []
    """Per tick, by stage: what spins in the background shows here."""
    async with app.run_test(size=size) as pilot:
        calm_collector()
        await live(app, day, int(warm_up_h * hour), pilot)
        before = census()
        told.append((warm_up_h, rss_mb(), before.total()))
        while told[-1][0] < hours:
            length = min(hours - told[-1][0], hours / 8)
            began = time.process_time()
            await live(app, day, int(length * hour), pilot)
            cpu_ms.append(1000 * (time.process_time() - began) / (length * hour))
            told.append((told[-1][0] + length, rss_mb(), census().total()))
            print(*told[-1], file=sys.stderr, flush=True)
        grown = census() - before
    return {
        "nodes": nodes, "hours": hours, "cpu_s": round(time.process_time()),
        "rss_mb": [round(mb, 1) for _, mb, _ in told], "objects": [n for _, _, n in told],
        "cpu_ms_per_tick": [round(ms, 1) for ms in cpu_ms],
        "at_hours": [round(at, 1) for at, _, _ in told], "grew_most": dict(grown.most_common(10)),
    }  # fmt: skip


def main() -> None:
    """Command line; one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--warm-up", type=float, default=6.0, metavar="HOURS")
    parser.add_argument("--size", default="160x50")
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    told = soak(options.nodes, options.hours, options.warm_up, (width, height))
    print(json.dumps(asyncio.run(told), indent=1))


if __name__ == "__main__":
    main()
