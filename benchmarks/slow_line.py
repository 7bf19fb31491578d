"""Bytes that the console sends while the demo's story runs: is a line of 256 kbit/s enough?

    python -m benchmarks.slow_line [--minutes 10] [--sizes 80x24,160x50] [--key-every 5]

`gpuconsole --demo` in a pty of each size, all at once; every few seconds a key of an operator who
looks around. Bytes are counted by the second: how many there are on average, in the worst second,
in seconds without a key, and how much of 256 kbit/s (32,000 bytes a second) that is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from benchmarks.children import ROOT, environment
from benchmarks.key_to_paint import READ, opened

LINE_BYTES = 256_000 / 8
START_S = 10
"""Until sessions are up; the first screenful is reported apart."""
KEYS = (
    "j",
    "j",
    "\r",
    "j",
    "\x1b",
    "n",
    "2",
    "j",
    "4",
    "l",
    "5",
    "6",
    "9",
    "0",
    "1",
    "\x1b[6~",
    "g",
)


class Watched:
    """One console; bytes by the second."""

    def __init__(self, size: tuple[int, int], home: str) -> None:
        """Start it."""
        self.size = size
        self.master, slave = opened(size)
        env = environment(TERM="xterm-256color", XDG_STATE_HOME=home, XDG_CONFIG_HOME=home)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "console.start", "--demo"], stdin=slave, stdout=slave,
            stderr=slave, cwd=ROOT, env=env, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(self.master, False)
        self.by_second: list[int] = []
        self.keys: set[int] = set()

    def read(self) -> int:
        """Bytes that have arrived."""
        count = 0
        while True:
            try:
                data = os.read(self.master, READ)
            except (BlockingIOError, OSError):
                return count
            count += len(data)

    def press(self, key: str) -> None:
        """A key, in the second that is being counted."""
        os.write(self.master, key.encode())
        self.keys |= {len(self.by_second), len(self.by_second) + 1}

    def told(self) -> dict[str, float | str]:
        """Figures of all seconds but the first ones."""
        seconds = self.by_second[START_S:]
        still = [n for at, n in enumerate(self.by_second) if at >= START_S and at not in self.keys]
        cuts = statistics.quantiles(seconds, n=100)
        return {
            "size": "x".join(map(str, self.size)), "start_bytes": sum(self.by_second[:START_S]),
            "mean": round(statistics.mean(seconds)),
            "mean_without_keys": round(statistics.mean(still)),
            "p99_second": round(cuts[98]), "worst_second": max(seconds),
            "line_percent": round(100 * statistics.mean(seconds) / LINE_BYTES, 2),
            "worst_second_percent": round(100 * max(seconds) / LINE_BYTES, 1),
        }  # fmt: skip


def watch(consoles: Sequence[Watched], minutes: float, key_every: int) -> None:
    """Count for so long."""
    keys: Iterator[str] = itertools.cycle(KEYS)
    for second in range(round(minutes * 60)):
        if key_every and second >= START_S and second % key_every == 0:
            key = next(keys)
            for console in consoles:
                console.press(key)
        counts = [0] * len(consoles)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            time.sleep(0.02)
            for number, console in enumerate(consoles):
                counts[number] += console.read()
        for console, count in zip(consoles, counts, strict=True):
            console.by_second.append(count)


def main() -> None:
    """Command line; one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--sizes", default="80x24,160x50")
    parser.add_argument("--key-every", type=int, default=5, help="seconds; 0 for none")
    options = parser.parse_args()
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes.split(",")]
    with tempfile.TemporaryDirectory() as home:
        consoles = [Watched((width, height), home) for width, height in sizes]
        try:
            watch(consoles, options.minutes, options.key_every)
        finally:
            for console in consoles:
                os.write(console.master, b"\x03")
        for console in consoles:
            while console.process.poll() is None:
                console.read()
                time.sleep(0.05)
    print(json.dumps({"sizes": [console.told() for console in consoles]}, indent=1))


if __name__ == "__main__":
    main()
