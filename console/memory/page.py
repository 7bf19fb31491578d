"""The page of `gpuconsole history`: text for a terminal of 80 columns and more. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from console import units
from console.memory.history import Event, NodeHistory, Occurrence, Test, Trend
from console.memory.lemon import HISTORY_MOST, WINDOW_S, day, times
from probes.sanitise import clean

LEVELS = "▁▂▃▄▅▆▇█"
LEVELS_ASCII = "_.-=+*#@"
GAP = "·"
SHOWN = 12
"""Lines of one section; the rest is counted."""
LINE = 240
_UNITS = {
    "sm_clock_mhz": ("", "MHz"), "mem_clock_mhz": ("memory ", "MHz"), "power_w": ("", "W"),
    "temp_c": ("", "C"),
}  # fmt: skip
_LEAST_SPAN = 0.05
"""A trend that varies less than this share is drawn flat."""


def page(history: NodeHistory, days: float, *, ascii_only: bool = False) -> list[str]:
    """The lines of one node."""
    lines = [_head(history, days), *_lemon(history)]
    if history.known:
        lines += _section("findings", map(_finding, history.findings), _no_findings(history))
        lines += _section("boots, drains, cards", map(_event, history.events), "")
        lines += _section("tests, newest first", _tests(history.node, history.tests), "")
        title = "under load: SM clock over the time watched, and the last medians"
        lines += _section(title, _trends(history.trends), "", len(history.trends))
    text = [clean(line, LINE) for line in lines]
    return [_ascii(line) for line in text] if ascii_only else text


def _head(history: NodeHistory, days: float) -> str:
    if not history.known or history.first_at is None:
        since = "" if not history.known else "; only what others said of it"
        return f"{history.node}: nothing recorded: it was never watched from here{since}"
    seen = _hours(history.watched_s)
    last = "" if history.last_at is None else f", last {day(history.last_at)}"
    return (
        f"{history.node}: watched {seen} of {days:g} d"
        f" (nothing recorded before {day(history.first_at)}{last})"
    )


def _hours(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _lemon(history: NodeHistory) -> Iterator[str]:
    lemon = history.lemon
    if not history.known:
        return
    yield (
        f"  lemon score {lemon.points}: {lemon.now} for what is open, {lemon.history} of"
        f" {HISTORY_MOST} for the last {WINDOW_S / 86400:.0f} days"
    )
    yield from (f"    {reason}" for reason in lemon.reasons[:SHOWN])
    if lemon.points:
        yield f"    ({lemon.source})"


def _no_findings(history: NodeHistory) -> str:
    if not history.watched_s:
        return "none recorded, and nobody watched in this time"
    share = history.watched_s / history.of_s
    seen = _hours(history.watched_s)
    return f"none found in the {seen} watched ({share:.0%} of the time asked for)"


def _section(
    title: str, lines: Iterator[str] | map[str], nothing: str, most: int = SHOWN
) -> Iterator[str]:
    """A title and its lines, or one line that says that there is nothing."""
    told = list(lines)
    if not told and not nothing:
        return
    yield f"  {title}" + (f": {nothing}" if not told else "")
    yield from (f"    {line}" for line in told[:most])
    if len(told) > most:
        yield f"    and {len(told) - most} more (--json lists them)"


def _finding(one: Occurrence) -> str:
    where = f"{one.rule} {one.label}".rstrip()
    often = "" if one.times == 1 and one.count == 1 else f" {times(max(one.times, one.count))},"
    if one.open and not one.current:
        state = f"since {day(one.first)}, not looked at since {day(one.last)}"
    elif one.open:
        state = f"since {day(one.first)}, open" + (", acknowledged" if one.acknowledged else "")
    else:
        state = f"last {day(one.last)}, over ({one.ended or 'ended'})"
    return f"{one.severity.value:8} {where}{often} {state}: {one.say}"


def _event(one: Event) -> str:
    return f"{day(one.at)}  {one.what:6} {one.say}"


def _tests(node: str, tests: Sequence[Test]) -> Iterator[str]:
    """One line a campaign."""
    for one in sorted(tests, key=lambda test: -test.at):
        say = one.say.removeprefix(f"{node}: ") or _busbw(one) or "no figure"
        usual = next((f.usual for f in one.figures if f.what == "busbw" and f.usual), None)
        usually = "" if usual is None else f", usually {usual:.4g} GB/s"
        level = f"{one.level} test" if one.level else "test"
        told = f"{level}: {say}{usually}, {one.verdict.value} ({one.campaign})"
        yield f"{day(one.at)}  {told}"


def _busbw(test: Test) -> str:
    """The middle of its figures, for a node on which there was no word."""
    values = [f.value for f in test.figures if f.what == "busbw" and f.value is not None]
    return f"{median(values):.4g} GB/s" if values else ""


def _trends(trends: Sequence[Trend]) -> Iterator[str]:
    """One line a GPU."""
    devices: dict[str, dict[str, Trend]] = {}
    for one in trends:
        devices.setdefault(one.device, {})[one.metric] = one
    for device, known in devices.items():
        first = next(iter(known.values()))
        clock = known.get("sm_clock_mhz")
        drawn = spark(clock.points) if clock is not None else ""
        figures = ", ".join(_figure(one) for one in known.values())
        yield f"{first.label or device:5} {drawn} {day(first.last_at)}: {figures}"


def _figure(one: Trend) -> str:
    usual = "" if one.usual is None else f" (usually {one.usual:.0f})"
    name, unit = _UNITS.get(one.metric, (one.metric, ""))
    return f"{name}{one.last:.0f} {unit}{usual}"


def spark(points: Sequence[float | None]) -> str:
    """One cell a point; a gap where nothing was read."""
    known = [point for point in points if point is not None]
    if not known:
        return GAP * len(points)
    low, high = min(known), max(known)
    span = max(high - low, _LEAST_SPAN * abs(high), 1e-9)
    base = (low + high - span) / 2
    top = len(LEVELS) - 1
    cells = (
        GAP if point is None else LEVELS[round(top * (point - base) / span)] for point in points
    )
    return "".join(cells)


def _ascii(line: str) -> str:
    told = line.translate(str.maketrans(LEVELS + GAP + units.ABSENT, LEVELS_ASCII + " -"))
    return told.encode("ascii", "replace").decode("ascii")
