"""Who is whose child, and who is gone: /proc is the witness."""

from __future__ import annotations

import os
import time
from pathlib import Path


def _parents() -> dict[int, int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
    return parents


def descendants(pid: int) -> list[int]:
    """All processes below `pid`."""
    parents = _parents()
    found: list[int] = []
    for candidate in parents:
        ancestor = parents.get(candidate, 0)
        while ancestor not in (0, 1, pid):
            ancestor = parents.get(ancestor, 0)
        if ancestor == pid:
            found.append(candidate)
    return found


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def gone(pids: list[int], within_s: float = 150.0) -> bool:
    """Whether all end within the deadline."""
    deadline = time.monotonic() + within_s
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True
