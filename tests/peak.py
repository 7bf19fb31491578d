"""The peak of this process's memory, from now on.

getrusage's peak is of no use: a child starts with its parent's, an earlier test may have set it.
"""

from __future__ import annotations

from pathlib import Path


def _kib(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def mark() -> int:
    """Forget the peak so far; resident KiB now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _kib("VmRSS")


def grown_kib(since: int) -> int:
    """How far the peak went beyond that."""
    return _kib("VmHWM") - since
