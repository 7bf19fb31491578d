"""What runs above this process: nothing else tells that a terminal is mosh."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MOST = 32
"""Processes looked at on the way up to init."""


def above() -> Iterator[str]:
    """Names of the processes above ours, nearest first; what cannot be read ends it."""
    pid = os.getppid()
    for _ in range(MOST):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        head, _, rest = stat.rpartition(")")
        yield head.partition("(")[2]
        pid = int(rest.split()[1])
        if pid <= 0:
            return
