"""Fleet rows: a Summary becomes cells of declared columns. Pure.

Columns are kept or dropped whole by priority. Unknown is an en dash. A stale row keeps its last
readings in grey and shows their age; it never looks like a present one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from console import units
from console.tui.summary import STALE_S, Summary
from console.tui.text import Cell, Column, choose, cut, fit, width_of
from console.tui.theme import Glyphs, state_word, word
from console.tui.trends import WIDTH
from console.tui.words import N_, t
from probes.event import Severity

NODE_MIN, NODE_MAX = 6, 24
GUTTER = Column("mark", "", 1, 0)

TREND = Column("trend", N_("USE, 2 MIN"), WIDTH, 17)
_FINDING = Column("finding", N_("FINDING"), 28, 4, flexible=True)
_COLUMNS: tuple[Column, ...] = (
    GUTTER,
    Column("severity", N_("VERDICT"), 7, 1),
    Column("node", N_("NODE"), NODE_MIN, 2),
    Column("sched", N_("SCHED"), 8, 3),
    Column("gpus", N_("GPUS"), 5, 5, "right"),
    Column("util", N_("UTIL"), 4, 6, "right"),
    Column("temp", N_("TEMP"), 4, 7, "right"),
    Column("power", N_("POWER"), 6, 10, "right"),
    Column("clock", N_("CLOCK"), 7, 12, "right"),
    Column("mem", N_("MEM"), 4, 14, "right"),
    Column("links", "NVLINK", 7, 11, "right"),
    Column("ports", "IB", 5, 9, "right"),
    Column("load", N_("LOAD"), 5, 16, "right"),
    Column("job", N_("JOB USER"), 14, 8),
    Column("status", N_("SESSION"), 11, 15),
    _FINDING,
    Column("age", N_("AGE"), 4, 13, "right"),
    TREND,
)
"""Priorities: who and how bad, then what the scheduler says and why, then numbers."""


def columns(width: int, names: Sequence[str], *, wide: bool = False) -> list[Column]:
    """The columns for a grid `width` cells wide. `wide` gives numbers precedence over words."""
    longest = max(map(width_of, names), default=NODE_MIN)
    node = max(NODE_MIN, min(NODE_MAX, longest, max(NODE_MIN, width // 3)))
    declared = [c._replace(width=node) if c.name == "node" else c for c in _COLUMNS]
    if wide:
        last = _FINDING._replace(priority=99, width=8)
        declared = [last if c.name == "finding" else c for c in declared]
    elif width >= 120:
        # Room for the words as well: let the finding keep two thirds of a line at 80 cells.
        declared = [c._replace(width=35) if c.name == "finding" else c for c in declared]
    return choose(declared, width)


def row(
    summary: Summary, chosen: Sequence[Column], glyphs: Glyphs, now: float, trend: str = ""
) -> list[Cell]:
    """The cells of one node, one per chosen column, each exactly as wide as its column."""
    age = None if summary.latest is None else max(0.0, now - summary.latest)
    stale = not summary.current or age is None or age > STALE_S
    found = [_cell(summary, column, glyphs, age, stale) for column in chosen if column != TREND]
    if len(found) < len(chosen):
        found.append(Cell(fit(trend, TREND.width), "stale" if stale else "busy"))
    return found


def _cell(summary: Summary, column: Column, glyphs: Glyphs, age: float | None, stale: bool) -> Cell:
    reading = _READINGS.get(column.name)
    if reading is not None:
        text, style = reading(summary), "stale" if stale else _alarm(summary, column)
    else:
        text, style = _WORDS[column.name](summary, glyphs, age)
    return Cell(fit(text, column.width, column.align), style)


def _alarm(summary: Summary, column: Column) -> str:
    """Missing GPUs are never by design; links and ports may be: only the judge colours those."""
    gpus = summary.gpus
    there, expected = gpus.answering, gpus.expected
    lost = there is not None and expected is not None and there < expected
    return "critical" if column.name == "gpus" and lost else "text"


_READINGS: dict[str, Callable[[Summary], str]] = {
    "gpus": lambda s: _of(s.gpus.answering, s.gpus.expected),
    "util": lambda s: units.whole(s.gpus.util_percent, "%"),
    "temp": lambda s: units.whole(s.gpus.temp_c, "C"),
    "power": lambda s: kilowatts(s.gpus.power_w),
    "clock": lambda s: units.whole(s.gpus.clock_mhz, "MHz"),
    "mem": lambda s: units.whole(s.gpus.mem_percent, "%"),
    "links": lambda s: units.ABSENT if s.links is None else _of(*s.links),
    "ports": lambda s: units.ABSENT if s.ports is None else _of(*s.ports),
    "load": lambda s: units.ABSENT if s.load is None else f"{s.load:.1f}"[:5],
}
"""Columns that go grey when the node is stale."""


def kilowatts(watts: float | None) -> str:
    """At most 6 cells: "700W", "5.6kW"."""
    if watts is None:
        return units.ABSENT
    return f"{watts:.0f}W" if watts < 1000 else f"{watts / 1000:.1f}kW"


def _of(present: int | None, expected: int | None) -> str:
    return units.ABSENT if present is None or expected is None else f"{present}/{expected}"


def _severity(summary: Summary, glyphs: Glyphs, _age: float | None) -> tuple[str, str]:
    severity = summary.severity
    return f"{glyphs.severity(severity)} {word(severity)}", severity.value


def _node(summary: Summary, _glyphs: Glyphs, _age: float | None) -> tuple[str, str]:
    return summary.name, "mark" if summary.marked else "text"


def _mark(summary: Summary, glyphs: Glyphs, _age: float | None) -> tuple[str, str]:
    return glyphs.mark if summary.marked else " ", "mark"


SCHED_WORDS = {"allocated": "alloc", "maintenance": "maint", "reserved": "resv", "unknown": "?"}
_HELD = ("draining", "drained", "down", "maintenance", "reserved")


def _sched(summary: Summary, _glyphs: Glyphs, _age: float | None) -> tuple[str, str]:
    if not summary.sched:
        return units.ABSENT, "dim"
    word = SCHED_WORDS.get(summary.sched, summary.sched)
    style = "held" if summary.sched in _HELD else "text"
    # Slurm marks a node whose daemon does not answer with the same star.
    return (word if summary.responding else word + "*"), style


def _job(summary: Summary, _glyphs: Glyphs, _age: float | None) -> tuple[str, str]:
    if not summary.jobs:
        return ("" if summary.sched else units.ABSENT), "dim"
    more = f" +{len(summary.jobs) - 1}" if len(summary.jobs) > 1 else ""
    return cut(f"{summary.jobs[0]} {summary.users[0]}", 14 - len(more)) + more, "text"


def _status(summary: Summary, _glyphs: Glyphs, _age: float | None) -> tuple[str, str]:
    return state_word(summary.status), "text" if summary.current else "unknown"


def _finding(summary: Summary, _glyphs: Glyphs, _age: float | None) -> tuple[str, str]:
    more = f"+{summary.findings - 1} " if summary.findings > 1 else ""
    return more + summary.finding, _FINDING_STYLE[summary.finding_severity]


_FINDING_STYLE = {
    Severity.OK: "dim",
    Severity.INFO: "dim",
    Severity.WARN: "text",
    Severity.CRITICAL: "title",
    Severity.UNKNOWN: "text",
}


def _age(summary: Summary, _glyphs: Glyphs, age: float | None) -> tuple[str, str]:
    if age is not None and age <= STALE_S and summary.current:
        # A number that changes every second in every row hides the row that matters.
        return t("now"), "dim"
    return units.age(age), "unknown"


_WORDS: dict[str, Callable[[Summary, Glyphs, float | None], tuple[str, str]]] = {
    "mark": _mark,
    "severity": _severity,
    "node": _node,
    "sched": _sched,
    "job": _job,
    "status": _status,
    "finding": _finding,
    "age": _age,
}
"""Columns that judge staleness themselves or do not depend on it."""
