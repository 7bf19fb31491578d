"""Key to paint in a real pty of 160x50: 1,000 nodes x 8 GPUs, every reading changing every second.

    python -m benchmarks.key_to_paint [--nodes 1000] [--keys 300] [--rounds 3]

A key is written to the pty; the clock stops when the bytes arrive that paint the new cursor line
(reverse video, then the node's name). The same Events go to the console's grid and to a DataTable
with the same rows, interleaved, so that the ratio holds whatever else the machine does. Events are
made in the measured process and applied to the real Fleet, judging included. CPU is utime + stime
of the console's process; bytes are what the terminal received. Targets: p99 < 30 ms,
and at most a quarter of DataTable's.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import random
import re
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SIZE = (160, 50)
WARM_UP_S = 6.0
READ = 1 << 16


class Terminal:
    """The master side of a pty with the console, or the DataTable, on the other side."""

    def __init__(self, kind: str, nodes: int) -> None:
        """Start the child and wait until it draws rows."""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": path}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.key_to_paint_child", kind, str(nodes)],
            stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=env, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.received = 0
        self.last = b""

    def read(self, seconds: float) -> bytes:
        """What arrives within `seconds`, at the first piece."""
        if not select.select([self.master], [], [], max(0.0, seconds))[0]:
            return b""
        try:
            data = os.read(self.master, READ)
        except OSError as error:
            raise SystemExit(f"the console ended: {self.last.decode(errors='replace')}") from error
        self.last = (self.last + data)[-2000:]
        self.received += len(data)
        return data

    def idle(self, seconds: float) -> None:
        """Read on for a while."""
        until = time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0:
            self.read(left)

    def key(self, key: bytes, wanted: re.Pattern[bytes], limit_s: float = 5.0) -> float:
        """Milliseconds from writing a key to the arrival of the bytes that match."""
        started = time.perf_counter()
        os.write(self.master, key)
        seen = b""
        while not wanted.search(seen):
            left = started + limit_s - time.perf_counter()
            if left <= 0:
                raise TimeoutError(f"no paint within {limit_s} s after {key!r}: {seen[-300:]!r}")
            seen += self.read(left)
        return (time.perf_counter() - started) * 1000

    def cpu_s(self) -> float:
        """CPU seconds used by the child so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Resident memory of the child."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def close(self) -> None:
        """End the child."""
        self.process.kill()
        self.process.wait()
        os.close(self.master)


def cursor_on(name: str) -> re.Pattern[bytes]:
    """Reverse video, then the node's name, with no style change to something else between."""
    return re.compile(rb"\x1b\[(?:\d+;)*7(?:;\d+)*m[^\n]{0,60}?" + name.encode())


def measure(kind: str, nodes: int, keys: int) -> dict[str, float | list[float]]:
    """One round: latencies in ms, CPU share, bytes per tick, memory."""
    terminal = Terminal(kind, nodes)
    try:
        terminal.idle(WARM_UP_S)
        line, step = 0, 1
        latencies: list[float] = []
        cpu, received, started = terminal.cpu_s(), terminal.received, time.perf_counter()
        for _ in range(keys):
            step = -1 if line >= 30 else 1 if line <= 0 else step
            line += step
            key = b"\x1b[B" if step > 0 else b"\x1b[A"
            latencies.append(terminal.key(key, cursor_on(f"gpu{line + 1:04d}")))
            terminal.idle(random.uniform(0.05, 0.15))
        took = time.perf_counter() - started
        return {
            "latencies_ms": latencies,
            "cpu_percent": 100 * (terminal.cpu_s() - cpu) / took,
            "bytes_per_tick": (terminal.received - received) / took,
            "rss_mb": terminal.rss_mb(),
        }
    finally:
        terminal.close()


def summary(rounds: list[dict[str, float | list[float]]]) -> dict[str, float]:
    """Percentiles over all rounds pooled; medians of the rest."""
    pooled = sorted(ms for r in rounds for ms in r["latencies_ms"])  # type: ignore[union-attr]
    cuts = statistics.quantiles(pooled, n=100)
    told = {"keys": float(len(pooled)), "p50_ms": cuts[49], "p90_ms": cuts[89], "p99_ms": cuts[98]}
    told["max_ms"] = pooled[-1]
    for name in ("cpu_percent", "bytes_per_tick", "rss_mb"):
        told[name] = statistics.median(float(r[name]) for r in rounds)  # type: ignore[arg-type]
    return {name: round(value, 1) for name, value in told.items()}


def main() -> None:
    """Run interleaved rounds and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=100, help="per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default="grid,quiet,table")
    options = parser.parse_args()
    rounds: dict[str, list[dict[str, float | list[float]]]] = {}
    for _ in range(options.rounds):
        for kind in options.kinds.split(","):
            rounds.setdefault(kind, []).append(measure(kind, options.nodes, options.keys))
    told = {kind: summary(found) for kind, found in rounds.items()}
    document: dict[str, object] = {"nodes": options.nodes, "gpus": options.nodes * 8, **told}
    if "grid" in told and "table" in told:
        document["p99_ratio_grid_to_table"] = round(
            told["grid"]["p99_ms"] / told["table"]["p99_ms"], 3
        )
        cpu = told["grid"]["cpu_percent"] / max(0.1, told["table"]["cpu_percent"])
        document["cpu_ratio_grid_to_table"] = round(cpu, 3)
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
