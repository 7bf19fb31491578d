"""Reading the file for people: what happened to a node, and how much of the time was watched."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from console.memory.book import SLOT_S, THIRD_S
from console.memory.lemon import Failure, Incident, Lemon, Outage, score
from console.memory.metrics import METRICS, unpack
from console.memory.notes import Deed
from console.memory.thin import DAY, DAY_S, FINE, HOUR, Level
from probes.event import Severity

FINE_S, HOURS_S = DAY_S, 7 * DAY_S
"""How far back a series is told in five minutes, and in hours, where those are still kept."""


class Watched(Struct, frozen=True, kw_only=True):
    """How much was seen of a node."""

    seconds: float
    """Ten minutes for each ten minutes in which it answered at least once."""
    first_at: float | None
    """Of all that is recorded; None when it never answered."""
    last_at: float | None


class Boots(NamedTuple):
    """A time the node was up."""

    first_at: float
    last_at: float
    boot_id: str


class Result(Struct, frozen=True, kw_only=True):
    """A figure or the outcome of an active test."""

    at: float
    what: str
    device: str
    label: str
    value: float | None
    unit: str
    expected: float | None
    verdict: Severity
    level: str
    engine: str
    version: str
    party: str
    say: str
    campaign: str


class Conditions(Struct, frozen=True, kw_only=True):
    """A card as it was from one time on."""

    device: str
    label: str
    card: str
    product: str
    driver: str
    limit_w: int
    first_at: float
    last_at: float


def is_known(db: sqlite3.Connection, node: str) -> bool:
    """Whether it was ever heard of."""
    return _id(db, node) >= 0


def names(db: sqlite3.Connection) -> list[str]:
    """Every node it was ever heard of."""
    return [row[0] for row in db.execute("SELECT name FROM node ORDER BY name")]


def span(db: sqlite3.Connection) -> tuple[int, float | None]:
    """Nodes that ever answered, and since when anything is recorded."""
    count, third = db.execute("SELECT count(DISTINCT node), min(third) FROM watched").fetchone()
    return int(count), None if third is None else float(third * THIRD_S)


def _id(db: sqlite3.Connection, node: str) -> int:
    row = db.execute("SELECT id FROM node WHERE name = ?", (node,)).fetchone()
    return -1 if row is None else int(row[0])


def watched(db: sqlite3.Connection, node: str, since: float, until: float) -> Watched:
    """Between these times; first and last of all time."""
    number, seconds = _id(db, node), 0.0
    query = "SELECT third, mask FROM watched WHERE node = ? ORDER BY third"
    slots = [
        third * THIRD_S + bit * SLOT_S
        for third, mask in db.execute(query, (number,))
        for bit in range(THIRD_S // SLOT_S)
        if mask >> bit & 1
    ]
    for begin in slots:
        seconds += max(0.0, min(begin + SLOT_S, until) - max(begin, since))
    if not slots:
        return Watched(seconds=0.0, first_at=None, last_at=None)
    return Watched(
        seconds=seconds, first_at=float(slots[0]), last_at=min(until, slots[-1] + float(SLOT_S))
    )


def incidents(db: sqlite3.Connection, node: str, since: float) -> list[Incident]:
    """Findings that were there at or after this time, in the order they began."""
    query = """SELECT rule, device, label, severity, hard, say, count, begin, seen, over, why,
      acknowledged FROM finding WHERE node = ? AND (over IS NULL OR over >= ?) ORDER BY begin"""
    return [
        Incident(
            rule=row[0], device=row[1], label=row[2], severity=Severity(row[3]), hard=bool(row[4]),
            say=row[5], count=row[6], begin=row[7], seen=row[8], over=row[9], why=row[10],
            acknowledged=row[11],
        )
        for row in db.execute(query, (_id(db, node), since))
    ]  # fmt: skip


def outages(db: sqlite3.Connection, node: str, since: float) -> list[Outage]:
    """Times out of work that had not ended before this time."""
    query = """SELECT state, reason, by, begin, seen, over FROM outage
      WHERE node = ? AND (over IS NULL OR over >= ?) ORDER BY begin"""
    return [
        Outage(state=row[0], reason=row[1], by=row[2], begin=row[3], seen=row[4], over=row[5])
        for row in db.execute(query, (_id(db, node), since))
    ]


def boots(db: sqlite3.Connection, node: str, since: float) -> list[Boots]:
    """Boot ids seen at or after this time, oldest first."""
    query = """SELECT first_at, last_at, boot_id FROM boot
      WHERE node = ? AND last_at >= ? ORDER BY first_at"""
    return [Boots(*row) for row in db.execute(query, (_id(db, node), since))]


def acts(db: sqlite3.Connection, node: str, since: float) -> list[Deed]:
    """What was done from here since then."""
    query = "SELECT at, verb, by, reason, ok, detail FROM act WHERE node=? AND at>=? ORDER BY at"
    return [
        Deed(at=row[0], verb=row[1], by=row[2], reason=row[3], ok=bool(row[4]), detail=row[5])
        for row in db.execute(query, (_id(db, node), since))
    ]


def results(db: sqlite3.Connection, node: str, since: float) -> list[Result]:
    """Figures and outcomes of tests since then, oldest first."""
    query = """SELECT at, what, device, label, value, unit, expected, verdict, level, engine,
      version, party, say, campaign FROM test WHERE node = ? AND at >= ? ORDER BY at, id"""
    names = Result.__struct_fields__
    return [
        Result(**{**dict(zip(names, row, strict=True)), "verdict": Severity(row[7])})
        for row in db.execute(query, (_id(db, node), since))
    ]


def conditions(db: sqlite3.Connection, node: str) -> list[Conditions]:
    """Every card in every condition, by device and time."""
    query = """SELECT device, label, card, product, driver, limit_w, first_at, last_at FROM series
      WHERE node = ? AND kind = 0 ORDER BY device, first_at"""
    names = Conditions.__struct_fields__
    rows = db.execute(query, (_id(db, node),))
    return [Conditions(**dict(zip(names, row, strict=True))) for row in rows]


def tested_since(db: sqlite3.Connection, node: str, at: float) -> bool | None:
    """Whether the last test that ran there after this time was passed; None when none did."""
    query = "SELECT verdict FROM test WHERE node=? AND what='ran' AND at>? ORDER BY at DESC LIMIT 1"
    row = db.execute(query, (_id(db, node), at)).fetchone()
    return None if row is None else row[0] in ("ok", "info")


def series(
    db: sqlite3.Connection, node: str, device: str, metric: str, since: float, until: float
) -> list[tuple[float, float]]:
    """(begin of the interval, median under load), oldest first, as fine as it is kept."""
    query = "SELECT id, kind FROM series WHERE node = ? AND device = ?"
    numbers = dict(db.execute(query, (_id(db, node), device)).fetchall())
    found: list[tuple[float, float]] = []
    edge = until
    for level, reach_s in ((FINE, FINE_S), (HOUR, HOURS_S), (DAY, math.inf)):
        rows = [
            (float(at), value)
            for at, kind, packed in _thin(db, level, numbers, max(since, until - reach_s), edge)
            if not math.isnan(value := _value(kind, packed, metric))
        ]
        found = [*rows, *found]
        edge = found[0][0] if found else edge
    return found


def intervals(
    db: sqlite3.Connection, node: str, device: str, since: float, until: float
) -> dict[str, list[tuple[float, float, float]]]:
    """Metric -> (begin, end, median under load), oldest first, as fine as it is kept.

    One reading of the rows for all metrics; what was not watched, or was idle, has no interval.
    """
    query = "SELECT id, kind FROM series WHERE node = ? AND device = ?"
    numbers = dict(db.execute(query, (_id(db, node), device)).fetchall())
    found: list[tuple[float, float, int, bytes]] = []
    edge = until
    for level, reach_s in ((FINE, FINE_S), (HOUR, HOURS_S), (DAY, math.inf)):
        begin = max(since, until - reach_s)
        rows = _thin(db, level, numbers, begin, edge) if begin < edge else iter(())
        found = [
            *((float(at), float(at + level.step_s), kind, packed) for at, kind, packed in rows),
            *found,
        ]
        edge = found[0][0] if found else edge
    told: dict[str, list[tuple[float, float, float]]] = {}
    for at, end, kind, packed in found:
        for metric, value in zip(METRICS.get(kind, ()), unpack(kind, packed), strict=False):
            if not math.isnan(value):
                told.setdefault(metric, []).append((at, end, value))
    return told


def _value(kind: int, packed: bytes, metric: str) -> float:
    names = METRICS.get(kind, ())
    return unpack(kind, packed)[names.index(metric)] if metric in names else math.nan


def _thin(
    db: sqlite3.Connection, level: Level, numbers: dict[int, int], since: float, until: float
) -> Iterator[tuple[int, int, bytes]]:
    """Rows of these series that ended by `until`, by exact time: the table is sorted by time."""
    begin = int(since) // level.step_s * level.step_s
    last = int(until) - (level.step_s if level is not FINE else 0)
    query = f"SELECT packed FROM {level.name} WHERE at = ? AND series = ?"
    for at in range(begin, last + 1, level.step_s):
        for number, kind in numbers.items():
            for (packed,) in db.execute(query, (at, number)):
                yield at, kind, packed


def last_results(db: sqlite3.Connection, node: str, since: float) -> list[Failure]:
    """Tests that were not passed."""
    return [
        Failure(at=one.at, say=one.say)
        for one in results(db, node, since)
        if one.what == "ran" and one.verdict in (Severity.WARN, Severity.CRITICAL)
    ]


def suspects(db: sqlite3.Connection, now: float) -> list[str]:
    """Nodes that can have a score: the others need not be looked at."""
    query = """SELECT name FROM node WHERE id IN (
      SELECT node FROM finding WHERE over IS NULL OR over >= :since
      UNION SELECT node FROM outage WHERE over IS NULL OR over >= :since
      UNION SELECT node FROM test WHERE what = 'ran' AND at >= :since) ORDER BY name"""
    return [row[0] for row in db.execute(query, {"since": now - 28 * DAY_S})]


def lemon(db: sqlite3.Connection, node: str, now: float) -> Lemon:
    """Its score now."""
    since = now - 28 * DAY_S
    return score(
        node, incidents(db, node, since), outages(db, node, since - 7 * DAY_S),
        last_results(db, node, since), now,
    )  # fmt: skip
