"""The GPU map and the fabric in a real pty of 160x50: bytes, CPU and key to paint.

    python -m benchmarks.canvases [--nodes 4000] [--seconds 10] [--views gpus,fabric]

The console of key_to_paint over its Events: all readings of all GPUs change each second (`grid`),
or none (`quiet`). Bytes are what the terminal received in a second; CPU is the whole process,
taking in and judging included, so `fleet` is measured beside them. A key is answered by the first
bytes that it brings; the cursor moves by one GPU or node.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time

from benchmarks.key_to_paint import Terminal

KEYS = {"fleet": b"1", "gpus": b"4", "fabric": b"5"}
WARM_UP_S = 8.0
DOWN, UP = b"\x1b[B", b"\x1b[A"


def measure(kind: str, view: str, nodes: int, seconds: float, keys: int) -> dict[str, float]:
    """One view of one console."""
    terminal = Terminal(kind, nodes)
    try:
        terminal.idle(WARM_UP_S)
        before = terminal.received
        os.write(terminal.master, KEYS[view])
        terminal.idle(WARM_UP_S)
        opening = terminal.received - before
        cpu, received, began = terminal.cpu_s(), terminal.received, time.perf_counter()
        terminal.idle(seconds)
        took = time.perf_counter() - began
        told = {
            "bytes_to_open": float(opening),
            "bytes_per_s": (terminal.received - received) / took,
            "cpu_percent": 100 * (terminal.cpu_s() - cpu) / took,
        }
        waits = [_answered(terminal, DOWN if i // 20 % 2 == 0 else UP) for i in range(keys)]
        cuts = statistics.quantiles(waits, n=100)
        told |= {"key_p50_ms": cuts[49], "key_p99_ms": cuts[98], "rss_mb": terminal.rss_mb()}
        return {name: round(value, 1) for name, value in told.items()}
    finally:
        terminal.close()


def _answered(terminal: Terminal, key: bytes) -> float:
    """Milliseconds to the first bytes after a key, from a moment when nothing arrives."""
    terminal.idle(random.uniform(0.05, 0.15))
    while terminal.read(0.0):
        pass
    began = time.perf_counter()
    os.write(terminal.master, key)
    while not terminal.read(1.0):
        pass
    return 1000 * (time.perf_counter() - began)


def main() -> None:
    """Print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--views", default="fleet,gpus,fabric")
    parser.add_argument("--kinds", default="grid,quiet")
    asked = parser.parse_args()
    told = {
        kind: {
            view: measure(kind, view, asked.nodes, asked.seconds, asked.keys)
            for view in asked.views.split(",")
        }
        for kind in asked.kinds.split(",")
    }
    print(json.dumps({"nodes": asked.nodes, **told}, indent=1))


if __name__ == "__main__":
    main()
