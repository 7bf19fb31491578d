"""Key to paint in a real pty of 160x50: 1,000 nodes x 8 GPUs, every reading changing every second.

    python -m benchmarks.key_to_paint [--nodes 1000] [--keys 100] [--rounds 3] [--ahead]
                                      [--kinds grid,none,table,quiet,gpus,...]

A key is written to the pty; the clock stops when the bytes arrive that paint the new cursor line
(reverse video, then the node's name; in other views any reverse video). The same Events go to the
console's grid and to a DataTable with the same rows, interleaved, so that the ratio holds whatever
else the machine does. Events are made in the measured process and applied to the real Fleet,
judging included; `none` does just that, so that what the screen costs is the difference. CPU is
utime + stime of the console's process; bytes are what the terminal received, in seconds without a
key and after a page or another view was asked for.

`inside` is the part of it between reading the key and queueing the bytes (inside.py).
--ahead runs all processes before everything else on the machine (SCHED_RR; needs root), so that
milliseconds mean something on a busy one. Targets: p99 < 30 ms, and at most a quarter of
DataTable's; drawing < 15 % of a core; < 8 kB a tick.
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
import tempfile
import termios
import time
from pathlib import Path

from benchmarks import inside

ROOT = Path(__file__).parents[1]
SIZE = (160, 50)
WARM_UP_S = 6.0
READ = 1 << 16
STILL_S = 10.0
BY_NODE = ("grid", "quiet", "table")
"""Kinds whose lines are nodes by name."""
REVERSE = re.compile(rb"\x1b\[(?:\d+;)*7(?:;\d+)*m")
Told = dict[str, float | list[float]]


def opened(size: tuple[int, int]) -> tuple[int, int]:
    """A pty of this size: our side, the program's side."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    return master, slave


class Terminal:
    """The master side of a pty with the console, or the DataTable, on the other side."""

    def __init__(self, kind: str, nodes: int) -> None:
        """Start the child and wait until it draws rows."""
        self.master, slave = opened(SIZE)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.inside = Path(tempfile.gettempdir()) / f"gpuconsole-bench-{os.getpid()}.json"
        env = {
            **os.environ, "TERM": "xterm-256color", "PYTHONPATH": path,
            inside.PATH: str(self.inside),
        }  # fmt: skip
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
        self.inside.unlink(missing_ok=True)
        self.process.kill()
        self.process.wait()
        os.close(self.master)


def cursor_on(name: str) -> re.Pattern[bytes]:
    """Reverse video, then the node's name, with no style change to something else between."""
    return re.compile(rb"\x1b\[(?:\d+;)*7(?:;\d+)*m[^\n]{0,60}?" + name.encode())


def measure(kind: str, nodes: int, keys: int) -> Told:
    """One round: CPU and bytes without keys, latencies in ms, bytes of a page and of a view."""
    terminal = Terminal(kind, nodes)
    try:
        terminal.idle(WARM_UP_S + nodes / 400)
        told: Told = dict(still(terminal))
        if kind != "none":
            told["latencies_ms"] = pressed(terminal, kind, keys)
        if kind in ("grid", "quiet"):
            told["inside_ms"] = inside.told(terminal.process.pid, terminal.inside)
        if kind not in ("none", "table"):
            told["page_bytes"] = burst(terminal, b"\x1b[6~")
            told["view_bytes"] = burst(terminal, b"2")
        told["rss_mb"] = terminal.rss_mb()
        return told
    finally:
        terminal.close()


def still(terminal: Terminal) -> dict[str, float]:
    """Seconds in which nobody presses anything."""
    cpu, received, started = terminal.cpu_s(), terminal.received, time.perf_counter()
    terminal.idle(STILL_S)
    took = time.perf_counter() - started
    return {
        "cpu_percent": 100 * (terminal.cpu_s() - cpu) / took,
        "bytes_per_tick": (terminal.received - received) / took,
    }


def pressed(terminal: Terminal, kind: str, keys: int) -> list[float]:
    """Cursor down and up again, 7 to 20 keys a second."""
    line, step = 0, 1
    found: list[float] = []
    for _ in range(keys):
        step = -1 if line >= 30 else 1 if line <= 0 else step
        line += step
        key = b"\x1b[B" if step > 0 else b"\x1b[A"
        wanted = cursor_on(f"gpu{line + 1:04d}") if kind in BY_NODE else REVERSE
        found.append(terminal.key(key, wanted))
        terminal.idle(random.uniform(0.05, 0.15))
    return found


def burst(terminal: Terminal, key: bytes) -> float:
    """Bytes within half a second after a key."""
    before = terminal.received
    os.write(terminal.master, key)
    terminal.idle(0.5)
    return float(terminal.received - before)


def summary(rounds: list[Told]) -> dict[str, float]:
    """Percentiles over all rounds pooled; medians of the rest."""
    told: dict[str, float] = {}
    pooled = sorted(ms for r in rounds for ms in r.get("latencies_ms", ()))  # type: ignore[union-attr]
    if pooled:
        cuts = statistics.quantiles(pooled, n=100)
        told |= {"keys": float(len(pooled)), "p50_ms": cuts[49], "p90_ms": cuts[89]}
        told |= {"p99_ms": cuts[98], "max_ms": pooled[-1]}
    within = sorted(ms for r in rounds for ms in r.get("inside_ms", ()))  # type: ignore[union-attr]
    if len(within) > 1:
        told["inside_p50_ms"] = statistics.median(within)
        told["inside_p99_ms"] = statistics.quantiles(within, n=100)[98]
    for name in ("cpu_percent", "bytes_per_tick", "rss_mb", "page_bytes", "view_bytes"):
        if name in rounds[0]:
            told[name] = statistics.median(float(r[name]) for r in rounds)  # type: ignore[arg-type]
    return {name: round(value, 1) for name, value in told.items()}


def first_of_all() -> None:
    """This process and its children run before the machine's other work."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def main() -> None:
    """Run interleaved rounds and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=100, help="per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default="grid,none,quiet,table")
    parser.add_argument("--ahead", action="store_true", help="before all other work; needs root")
    options = parser.parse_args()
    if options.ahead:
        first_of_all()
    rounds: dict[str, list[Told]] = {}
    for _ in range(options.rounds):
        for kind in options.kinds.split(","):
            rounds.setdefault(kind, []).append(measure(kind, options.nodes, options.keys))
    told = {kind: summary(found) for kind, found in rounds.items()}
    document: dict[str, object] = {"nodes": options.nodes, "gpus": options.nodes * 8, **told}
    if "grid" in told and "table" in told:
        document["p99_ratio_grid_to_table"] = round(
            told["grid"]["p99_ms"] / told["table"]["p99_ms"], 3
        )
    if "grid" in told and "none" in told:
        drawing = told["grid"]["cpu_percent"] - told["none"]["cpu_percent"]
        document["drawing_cpu_percent"] = round(drawing, 1)
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
