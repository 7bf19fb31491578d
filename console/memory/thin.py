"""Old rows become fewer: five minutes to hours, hours to days; and the file stays within its size.

All in small steps of one transaction each, so that no writer waits for long. A step is done once,
by whichever process comes first: how far it is, is in the file.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from typing import NamedTuple

from console.memory.gather import STEP_S
from console.memory.metrics import METRICS, Thin, merged, middle, pack, unpack

HOUR_S, DAY_S = 3600, 86400
CHUNK = 200
"""Series thinned in one step: some 10 ms."""
LATE_S = 900
"""Rows of an interval may come this long after its end."""
BASE = 20
"""Good hours that a baseline is the median of (science 1.2: the last 20 good results)."""
STEP_ROWS = 20_000
"""Rows deleted in one step."""


class Level(NamedTuple):
    """One table of intervals."""

    name: str
    step_s: int
    kept_s: float
    """How long its rows are kept where there is room."""


FINE = Level("fine", STEP_S, 2 * DAY_S)
HOUR = Level("hour", HOUR_S, 14 * DAY_S)
DAY = Level("day", DAY_S, 400 * DAY_S)
LEVELS = (FINE, HOUR, DAY)
CUTS = ((FINE, 2 * HOUR_S), (DAY, 90 * DAY_S), (HOUR, 30 * HOUR_S), (DAY, 28 * DAY_S))
"""How old rows may still become when there is no room, in the order in which they go. An hour is
needed until its day is over, and five minutes until their hour is."""
THINNED = ((FINE, HOUR), (HOUR, DAY))


class Notes(NamedTuple):
    """A table of things that happened."""

    table: str
    time: str
    kept_s: float
    least_s: float


NOTES = (
    Notes("test", "at", 400 * DAY_S, 28 * DAY_S),
    Notes("watched", "third * 28800", 400 * DAY_S, 28 * DAY_S),
    Notes("boot", "last_at", 400 * DAY_S, 28 * DAY_S),
    Notes("finding", "over", 400 * DAY_S, 28 * DAY_S),
    Notes("outage", "over", 400 * DAY_S, 28 * DAY_S),
    Notes("act", "at", 400 * DAY_S, 28 * DAY_S),
)
"""In the order in which they go when there is no room."""

FULL = 0.9
"""Share of the size from which rows go before their time."""


def used_bytes(db: sqlite3.Connection) -> int:
    """What is in the file without free pages."""
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def step(db: sqlite3.Connection, now: float, most_bytes: int) -> bool:
    """The next small piece of work; False when there is none. Within a transaction."""
    if any(_thin(db, fine, coarse, now) for fine, coarse in THINNED):
        return True
    if _outdated(db, now):
        return True
    if used_bytes(db) > FULL * most_bytes:
        return relieve(db, now)
    return _sweep(db, now)


def _thin(db: sqlite3.Connection, fine: Level, coarse: Level, now: float) -> bool:
    """The next CHUNK series of the oldest ended interval that is not thinned yet."""
    begin, after = _mark(db, coarse.name), _mark(db, f"{coarse.name}.series")
    if begin is None or begin > now:  # the clock was ahead once
        row = db.execute(f"SELECT min(at) FROM {fine.name}").fetchone()
        if row[0] is None:
            return False
        begin = row[0] // coarse.step_s * coarse.step_s
    if begin + coarse.step_s + LATE_S > now:
        return False
    rows = _rows(db, fine, coarse, begin, after or 0)
    if rows:
        _write(db, coarse, begin, rows)
        _set_mark(db, f"{coarse.name}.series", rows[-1][0])
    else:
        _set_mark(db, f"{coarse.name}.series", 0)
        _set_mark(db, coarse.name, _next(db, fine, coarse, begin, now))
    return True


def _next(db: sqlite3.Connection, fine: Level, coarse: Level, begin: int, now: float) -> int:
    """The next interval with rows: nights without a console are passed in one step.

    Rows of a future, written while the clock was ahead, wait until it comes.
    """
    end = begin + coarse.step_s
    query = f"SELECT min(at) FROM {fine.name} WHERE at BETWEEN ? AND ?"
    row = db.execute(query, (end, now)).fetchone()
    return end if row[0] is None else max(end, int(row[0]) // coarse.step_s * coarse.step_s)


_Group = tuple[int, int, list[Thin]]


def _rows(
    db: sqlite3.Connection, fine: Level, coarse: Level, begin: int, after: int
) -> list[_Group]:
    """(series, kind, rows) of the next CHUNK series in this interval."""
    last = db.execute(
        "SELECT max(id) FROM (SELECT id FROM series WHERE id > ? ORDER BY id LIMIT ?)",
        (after, CHUNK),
    ).fetchone()[0]
    if last is None:
        return []
    steps = [(at,) for at in range(begin, begin + coarse.step_s, fine.step_s)]
    found: dict[int, list[Thin]] = {}
    for (at,) in steps:
        query = f"SELECT series, n, good, packed FROM {fine.name}"
        query += " WHERE at = ? AND series > ? AND series <= ?"
        for series, n, good, packed in db.execute(query, (at, after, last)):
            found.setdefault(series, []).append(Thin(n, bool(good), packed))
    query = "SELECT id, kind FROM series WHERE id > ? AND id <= ? ORDER BY id"
    kinds = db.execute(query, (after, last)).fetchall()
    return [(series, kind, found.get(series, [])) for series, kind in kinds]


def _write(db: sqlite3.Connection, coarse: Level, begin: int, groups: Sequence[_Group]) -> None:
    made = [
        (begin, series, kind, merged(kind, rows))
        for series, kind, rows in groups if rows and kind in METRICS
    ]  # fmt: skip
    db.executemany(
        f"INSERT OR REPLACE INTO {coarse.name} (at, series, n, good, packed) VALUES (?,?,?,?,?)",
        [(at, series, thin.n, thin.good, thin.packed) for at, series, _, thin in made],
    )
    if coarse is HOUR:
        for at, series, kind, thin in made:
            if thin.good:
                _base(db, series, kind, at, thin.packed)


def _base(db: sqlite3.Connection, series: int, kind: int, at: int, packed: bytes) -> None:
    """Add a good hour to the baseline of a series."""
    row = db.execute("SELECT ring FROM baseline WHERE series = ?", (series,)).fetchone()
    hours = unring(row[0]) if row is not None else {}
    hours[at] = packed
    kept = dict(sorted(hours.items())[-BASE:])
    columns = zip(*(unpack(kind, one) for one in kept.values()), strict=True)
    middles = pack(kind, [middle(column) for column in columns])
    db.execute(
        "INSERT OR REPLACE INTO baseline (series, n, since, packed, ring) VALUES (?,?,?,?,?)",
        (series, len(kept), min(kept), middles, ring(kept)),
    )


_HEAD = struct.Struct("<IB")


def ring(hours: dict[int, bytes]) -> bytes:
    """Time, length and content of each."""
    return b"".join(_HEAD.pack(at, len(packed)) + packed for at, packed in hours.items())


def unring(raw: bytes) -> dict[int, bytes]:
    """The inverse; what is cut short is left out."""
    found: dict[int, bytes] = {}
    place = 0
    while place + _HEAD.size <= len(raw):
        at, size = _HEAD.unpack_from(raw, place)
        place += _HEAD.size + size
        if place <= len(raw):
            found[at] = raw[place - size : place]
    return found


def _outdated(db: sqlite3.Connection, now: float) -> bool:
    """Delete intervals older than they are kept."""
    return any(_delete(db, level, now - level.kept_s) for level in LEVELS)


def relieve(db: sqlite3.Connection, now: float) -> bool:
    """Make room: the oldest intervals first, in the order of CUTS, notes last.

    False when nothing is left that may go.
    """
    return (
        any(_delete(db, level, now - least_s) for level, least_s in CUTS)
        or any(_oldest_notes(db, note, now - note.least_s) for note in NOTES)
        or any(_delete(db, level, now) for level in LEVELS)
        or any(_oldest_notes(db, note, now) for note in NOTES)
    )


def _oldest_notes(db: sqlite3.Connection, note: Notes, before: float) -> bool:
    """The oldest day of them, if it began before this time."""
    oldest = db.execute(f"SELECT min({note.time}) FROM {note.table}").fetchone()[0]
    if oldest is None or oldest >= before:
        return False
    until = min(before, oldest + DAY_S)
    db.execute(f"DELETE FROM {note.table} WHERE {note.time} < ?", (until,))
    return True


def _delete(db: sqlite3.Connection, level: Level, before: float) -> bool:
    """The oldest rows that began before this time, at most STEP_ROWS."""
    # Exact times: rows of a WITHOUT ROWID table cannot be limited any other way.
    row = db.execute(f"SELECT at FROM {level.name} ORDER BY at LIMIT 1").fetchone()
    if row is None or row[0] >= before:
        return False
    query = f"SELECT at, series FROM {level.name} WHERE at < ? ORDER BY at, series LIMIT 1 OFFSET ?"
    last = db.execute(query, (before, STEP_ROWS)).fetchone()
    if last is None:
        db.execute(f"DELETE FROM {level.name} WHERE at < ?", (before,))
    else:
        db.execute(f"DELETE FROM {level.name} WHERE (at, series) < (?, ?)", last)
    return True


def _sweep(db: sqlite3.Connection, now: float) -> bool:
    """Forget old notes, and series that no row tells of. Once a day: it looks at all of them."""
    last = _mark(db, "swept")
    if last is not None and now - DAY_S < last <= now:
        return False
    for note in NOTES:
        db.execute(f"DELETE FROM {note.table} WHERE {note.time} < ?", (now - note.kept_s,))
    db.execute("DELETE FROM series WHERE last_at < ?", (now - DAY.kept_s,))
    db.execute("DELETE FROM baseline WHERE series NOT IN (SELECT id FROM series)")
    _set_mark(db, "swept", int(now))
    return True


def _mark(db: sqlite3.Connection, key: str) -> int | None:
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else int(row[0])


def _set_mark(db: sqlite3.Connection, key: str, value: int) -> None:
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?,?)", (key, value))
