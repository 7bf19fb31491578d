"""How long a key takes inside the console: from the thread that reads it to the bytes that paint.

What the kernel's own workers take to carry a key into a pty and bytes out of it is left out: on a
busy machine that is most of what a stopwatch outside shows.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

from textual import events
from textual.message import Message

from console.tui.terminal import Terminal

PATH = "GPUCONSOLE_BENCH_INSIDE"
"""Environment variable: where SIGUSR1 writes the milliseconds, as JSON."""
_PAINTED = re.compile(r"\x1b\[(?:\d+;)*7(?:;\d+)*m[^\n]{0,60}?gpu")


def measure() -> None:
    """From now on, in this process."""
    read_at: list[float] = []
    found: list[float] = []
    take, write = Terminal.process_message, Terminal.write

    def taking(driver: Terminal, message: Message) -> None:
        if isinstance(message, events.Key) and not read_at:
            read_at.append(time.perf_counter())
        take(driver, message)

    def writing(driver: Terminal, data: str) -> None:
        write(driver, data)
        if read_at and _PAINTED.search(data):
            found.append(1000 * (time.perf_counter() - read_at.pop()))

    Terminal.process_message = taking  # type: ignore[method-assign, assignment]
    Terminal.write = writing  # type: ignore[method-assign, assignment]
    signal.signal(
        signal.SIGUSR1, lambda *_: Path(os.environ[PATH]).write_text(json.dumps(found)) and None
    )


def told(pid: int, path: Path) -> list[float]:
    """What a child has measured so far."""
    path.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        time.sleep(0.05)
        if path.exists() and (text := path.read_text()).endswith("]"):
            return [float(ms) for ms in json.loads(text)]
    return []
