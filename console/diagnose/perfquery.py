"""Counters of ports: perfquery (also -x and -a) and ibqueryerrors. Pure.

Totals since somebody last cleared them; two readings of one port show what grew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct, field

from console.diagnose.ib_ports import COUNTERS, PORTS

_HEAD = re.compile(r"# Port (?:extended )?counters: (.{1,80}?) port (\d{1,3}|ALL)\b", re.IGNORECASE)
_DOTS = re.compile(r"([A-Za-z][A-Za-z0-9]{2,50}):\.+\s?(0x[0-9a-fA-F]{1,16}|\d{1,20})\s*$")
_ERRORS_FOR = re.compile(r'Errors for (?:(0x[0-9a-fA-F]{1,16}) )?"(.{0,120}?)"')
_PORT_ERRORS = re.compile(r"\s*GUID (0x[0-9a-fA-F]{1,16}) port (\d{1,3}|ALL):(.*)$")
_PAIR = re.compile(r"\[(\w{3,50}) == (\d{1,20})")
_SUMMARY = re.compile(r"## Summary: (\d{1,9}) nodes checked, (\d{1,9}) bad nodes found")
_STAMPS = (
    (re.compile(r"\b(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)"), "%Y-%m-%dT%H:%M:%S"),
    (re.compile(r"\b((?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"
                r"(?: [A-Z]{3,5})?(?: (\d{4}))?"), "%a %b %d %H:%M:%S"),
)  # fmt: skip
READINGS = 4096
LINE_CHARS = 2000


class Reading(Struct):
    """Counters of one port at one moment."""

    place: str
    """What the text calls it: "Lid 6", "n3"."""
    port: str
    counters: dict[str, int] = field(default_factory=dict)
    """Names as in sysfs."""
    at: float | None = None
    lines: list[str] = field(default_factory=list)
    tool: str = "perfquery"

    @property
    def host(self) -> str:
        """The node of a description like "gpu-a03 mlx5_0" or "gpu-a03 HCA-1"; else ""."""
        words = self.place.split()
        return words[0] if self.tool == "ibqueryerrors" and len(words) > 1 else ""

    @property
    def name(self) -> str:
        """ "Lid 6/1", "n3/1"."""
        return f"{self.place}/{self.port}" if self.port else self.place


class Counted(Struct):
    """All readings of a text."""

    readings: list[Reading] = field(default_factory=list)
    checked: int | None = None
    """Nodes that ibqueryerrors looked at."""
    bad: int | None = None


def parse(lines: Iterable[str]) -> Counted:
    """In order; a second answer of the same port is a second reading."""
    counted = Counted()
    current: Reading | None = None
    node, at = "", None
    for line in lines:
        if len(line) > LINE_CHARS:
            continue
        at = stamp(line) or at
        if (summary := _SUMMARY.search(line)) is not None:
            counted.checked, counted.bad = int(summary[1]), int(summary[2])
        head = _HEAD.search(line)
        if head is not None:
            current = _open(counted, head, at, line)
            continue
        errors = _ERRORS_FOR.search(line)
        if errors is not None:
            node, current = errors[2] or errors[1] or "", None
            continue
        row = _PORT_ERRORS.match(line)
        if row is not None:
            _row(counted, node, row, at, line)
        elif current is not None:
            _count(current, line)
    return counted


def _open(counted: Counted, head: re.Match[str], at: float | None, line: str) -> Reading:
    """A new reading, or the extended part of the one before."""
    place, port = " ".join(head[1].split()), head[2]
    last = counted.readings[-1] if counted.readings else None
    if last is not None and (last.place, last.port) == (place, port) and "extended" in line.lower():
        return last
    reading = Reading(place, port, at=at)
    if len(counted.readings) < READINGS:
        counted.readings.append(reading)
    return reading


def _row(counted: Counted, node: str, row: re.Match[str], at: float | None, line: str) -> None:
    """One port of ibqueryerrors; the line that sums up all ports of a node is none."""
    if row[2] == "ALL" or len(counted.readings) >= PORTS:
        return
    pairs = _PAIR.findall(row[3])
    counters = {COUNTERS[n.lower()]: int(v) for n, v in pairs if n.lower() in COUNTERS}
    if counters:
        counted.readings.append(
            Reading(node or row[1], row[2], counters, at, [line.strip()], "ibqueryerrors")
        )


def _count(reading: Reading, line: str) -> None:
    dots = _DOTS.match(line.strip())
    if dots is None:
        return
    name = COUNTERS.get(dots[1].lower())
    if name is not None:
        value = int(dots[2], 16) if dots[2].startswith("0x") else int(dots[2])
        reading.counters[name] = value
        if value and not name.startswith(("port_xmit_data", "port_rcv_data", "port_xmit_p",
                                          "port_rcv_p", "port_xmit_w")):  # fmt: skip
            reading.lines.append(line.strip())


def stamp(line: str) -> float | None:
    """A date with its time of day in the line, as seconds; only differences mean anything."""
    for pattern, form in _STAMPS:
        found = pattern.search(line)
        if found is None:
            continue
        try:
            if form.startswith("%Y"):
                when = datetime.strptime(found[1].replace(" ", "T"), form)  # noqa: DTZ007
            else:
                text = f"{found[1]} {found[2] or '2000'}"
                when = datetime.strptime(text, f"{form} %Y")  # noqa: DTZ007
        except ValueError:
            return None
        # Only differences are used, so the zone does not matter.
        return (when - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001
    return None


def pairs(readings: Iterable[Reading]) -> Iterator[tuple[Reading, Reading]]:
    """First and last reading of each port that has several."""
    by_name: dict[str, list[Reading]] = {}
    for reading in readings:
        by_name.setdefault(reading.name, []).append(reading)
    for group in by_name.values():
        if len(group) > 1:
            yield group[0], group[-1]
