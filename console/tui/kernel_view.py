"""The kernel log as lines: when it was by our clock, what it says, what stands out. Pure."""

from __future__ import annotations

import re
import time

from console.tui.text import Cell, Line, plain, wrap
from probes.facts import NodeFacts

STAMP = re.compile(r"\[ *(\d+\.\d+)\] ?")
WHEN = 13
"""Cells of "Nov 29 07:06 " before each line; "07:06:35 " where it is of the last day."""
TROUBLE = re.compile(
    r"\bXid\b|SXid|Hardware Error|\bMCE\b|mce:|\bAER\b|I/O error|"
    r"\bpanic\b|\bOops\b|\bBUG\b|Call Trace|soft lockup|hung_task|blocked for more than|"
    r"Out of memory|oom-kill|segfault|link (?:is )?down|timed? ?out|not responding|"
    r"\bfail(?:ed|ure)\b|fallen off",
    re.IGNORECASE,
)
"""Words that an operator would stop at; what they mean is judged elsewhere."""
_DAY_S = 86400.0


def boot_at(facts: NodeFacts) -> float | None:
    """Epoch seconds when the node's clock was 0; None while it told nothing."""
    newest = max(facts.latest.values(), key=lambda sample: sample.at, default=None)
    return None if newest is None or not newest.clock else newest.at - newest.clock


def log_lines(text: str, boot: float | None, now: float, width: int) -> list[Line]:
    """One line of the log, wrapped under itself."""
    stamp = STAMP.match(text)
    when, body = "", text
    if stamp is not None:
        body = text[stamp.end() :]
        when = stamp[1] if boot is None else _clock(boot + float(stamp[1]), now)
    style = "warn" if TROUBLE.search(body) else "text"
    rows = wrap(plain(body), max(10, width - WHEN))
    head = when.rjust(WHEN - 1)[-(WHEN - 1) :] + " "
    return [
        (Cell(head if index == 0 else " " * WHEN, "dim"), Cell(row, style))
        for index, row in enumerate(rows)
    ]


def _clock(at: float, now: float) -> str:
    try:
        shown = "%H:%M:%S" if abs(now - at) < _DAY_S / 2 else "%b %d %H:%M"
        return time.strftime(shown, time.localtime(at))
    except (OverflowError, OSError, ValueError):
        return "?"
