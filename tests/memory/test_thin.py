"""Old rows become fewer, baselines are made of them, and the file stays within its size."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.memory import past, store, thin
from console.memory.book import Book
from console.memory.gather import STEP_S, Row, Series
from console.memory.metrics import GPU, Thin, pack, unpack
from console.memory.notes import Look
from tests.memory.build import PCI, finding

DAY = 86400
BEGIN = 1_795_000_000 // DAY * DAY
MIB = 1 << 20
NAN = float("nan")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = store.connect(tmp_path / "m.sqlite", 64 * MIB)
    yield made
    made.close()


def series(number: int = 0, card: str = "111") -> Series:
    return Series(f"n{number}", PCI, GPU, card, "H100", "580", 700)


def clock(value: float) -> bytes:
    return pack(GPU, [value] + [NAN] * 11)


def fill(
    db: sqlite3.Connection, begin: float, values: list[float], one: Series, *, good: bool = True
) -> None:
    """One five-minute row a value."""
    with store.transaction(db):
        Book(db).rows(
            Row(int(begin) + i * STEP_S, one, "GPU3", Thin(5, good, clock(value)))
            for i, value in enumerate(values)
        )


def settle(db: sqlite3.Connection, now: float, most_bytes: int = 64 * MIB) -> int:
    """Everything that there is to do."""
    steps, more = 0, True
    while more:
        with store.transaction(db):
            more = thin.step(db, now, most_bytes)
        steps += more
        assert steps < 100_000
    return steps


def clocks(db: sqlite3.Connection, table: str) -> dict[int, float]:
    query = f"SELECT at, packed FROM {table} ORDER BY at"
    return {at: unpack(GPU, packed)[0] for at, packed in db.execute(query)}


def test_hours_and_days_are_medians_of_what_they_hold(db: sqlite3.Connection) -> None:
    rng = random.Random(5)
    values = [float(rng.randrange(1000, 1900)) for _ in range(2 * 288)]
    fill(db, BEGIN, values, series())
    settle(db, BEGIN + 2 * DAY + thin.LATE_S)
    hours, days = clocks(db, "hour"), clocks(db, "day")
    assert sorted(hours) == [BEGIN + 3600 * i for i in range(48)]
    assert sorted(days) == [BEGIN, BEGIN + DAY]
    for i, at in enumerate(sorted(hours)):
        assert hours[at] == sorted(values[12 * i : 12 * i + 12])[5]
    for i, at in enumerate(sorted(days)):
        inside = [hours[BEGIN + DAY * i + 3600 * h] for h in range(24)]
        assert days[at] == sorted(inside)[11]


def test_an_hour_waits_until_it_is_over_and_late_rows_have_come(db: sqlite3.Connection) -> None:
    fill(db, BEGIN, [1755.0] * 12, series())
    settle(db, BEGIN + 3600 + thin.LATE_S - 1)
    assert clocks(db, "hour") == {}
    settle(db, BEGIN + 3600 + thin.LATE_S)
    assert list(clocks(db, "hour")) == [BEGIN]


def test_months_without_a_console_are_passed_at_once(db: sqlite3.Connection) -> None:
    fill(db, BEGIN, [1755.0] * 12, series())
    fill(db, BEGIN + 90 * DAY, [1800.0] * 12, series())
    assert settle(db, BEGIN + 91 * DAY) < 100
    assert list(clocks(db, "hour").values()) == [1800.0], "the first is past its time"
    assert list(clocks(db, "day").values()) == [1755.0]


def test_two_processes_share_the_work(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    one, two = store.connect(path, 64 * MIB), store.connect(path, 64 * MIB)
    for number in range(2 * thin.CHUNK):
        fill(one, BEGIN, [1755.0, 1700.0, 1900.0], series(number))
    turn, more = 0, True
    while more:
        turn += 1
        db = one if turn % 2 else two
        with store.transaction(db):
            more = thin.step(db, BEGIN + DAY, 64 * MIB)
    found = one.execute("SELECT count(*), count(DISTINCT series) FROM hour").fetchone()
    assert found == (2 * thin.CHUNK, 2 * thin.CHUNK)
    for db in (one, two):
        db.close()


@given(st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=24), max_size=20))
def test_a_ring_comes_back(hours: dict[int, bytes]) -> None:
    raw = thin.ring(hours)
    assert thin.unring(raw) == hours
    for cut in range(len(raw)):
        assert thin.unring(raw[:cut]).items() <= hours.items()


def own_clock(db: sqlite3.Connection, node: str = "n0") -> tuple[float, int] | None:
    found = past.read(db, BEGIN + DAY).get((node, PCI, "sm_clock_mhz"))
    return None if found is None else (found.median, found.n)


def test_the_baseline_is_the_median_of_the_last_twenty_good_hours(db: sqlite3.Connection) -> None:
    for hour in range(30):
        value = 1500.0 if hour < 10 else 1755.0 + hour
        fill(db, BEGIN + 3600 * hour, [value] * 12, series())
    settle(db, BEGIN + 2 * DAY)
    found = own_clock(db)
    assert found is not None
    assert found == pytest.approx((1774.5, 20), rel=5e-4)


def test_sick_hours_are_no_baseline(db: sqlite3.Connection) -> None:
    fill(db, BEGIN, [1755.0] * 24, series())
    for hour in range(2, 30):
        fill(db, BEGIN + 3600 * hour, [900.0] * 12, series(), good=False)
    settle(db, BEGIN + 2 * DAY)
    assert own_clock(db) == (1755.0, 2)


def test_a_new_card_begins_anew(db: sqlite3.Connection) -> None:
    fill(db, BEGIN, [1755.0] * 24, series())
    settle(db, BEGIN + DAY)
    assert own_clock(db) == (1755.0, 2)
    fill(db, BEGIN + DAY, [1900.0], series(card="222"))
    assert own_clock(db) is None
    fill(db, BEGIN + DAY, [1900.0] * 12, series(card="222"))
    settle(db, BEGIN + 2 * DAY)
    assert own_clock(db) == (1900.0, 1)


def test_a_live_baseline_of_another_card_is_forgotten_at_once(db: sqlite3.Connection) -> None:
    fill(db, BEGIN, [1755.0] * 12, series())
    settle(db, BEGIN + DAY)
    known = past.read(db, BEGIN + DAY)
    ((same, number),) = Book(db).rows([Row(BEGIN, series(), "GPU3", Thin(1, True, clock(1755)))])
    known.confirm(same.series.node, PCI, number)
    assert known
    assert ("n0", PCI, "sm_clock_mhz") in known
    assert list(known) == [("n0", PCI, "sm_clock_mhz")]
    known.confirm(same.series.node, PCI, number + 1)
    assert ("n0", PCI, "sm_clock_mhz") not in known
    assert not known


def test_the_file_stays_within_its_size_whatever_comes(tmp_path: Path) -> None:
    """Findings and days outlive five minutes; nothing is thinned twice."""
    path, most = tmp_path / "m.sqlite", MIB
    db = store.connect(path, most)
    book = Book(db)
    many = [series(number) for number in range(24)]
    for day in range(12):
        begin = BEGIN + day * DAY
        with store.transaction(db):
            book.finding(finding(since=begin, node="n0", rule=f"xid.{day}"), begin)
            for step in range(0, DAY, STEP_S):
                rows = [
                    Row(begin + step, one, "GPU3", Thin(5, True, clock(1700 + day))) for one in many
                ]
                book.rows(rows)
                if step % 3600 == 0:
                    while thin.step(db, begin + step, most):
                        pass
        assert path.stat().st_size <= most
    assert db.execute("SELECT count(*) FROM finding").fetchone() == (12,)
    assert db.execute("SELECT count(DISTINCT at) FROM day").fetchone()[0] >= 10
    newest = db.execute("SELECT max(at) FROM fine").fetchone()[0]
    assert newest >= BEGIN + 12 * DAY - 3600, "the oldest go first"
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size <= most
    db.close()


def test_when_only_notes_are_left_the_oldest_go(tmp_path: Path) -> None:
    most = 300 * 1024
    db = store.connect(tmp_path / "m.sqlite", most)
    book, now, kept = Book(db), float(BEGIN), 0
    for number in range(4000):
        now += 3600
        try:
            with store.transaction(db):
                book.finding(finding(rule=f"xid.{number}", since=now, say="x" * 300), now)
                book.look(thin_look(now))
            kept += 1
        except sqlite3.OperationalError:
            book = Book(db)
            with store.transaction(db):
                assert thin.relieve(db, now)
    assert kept > 3500
    assert thin.used_bytes(db) <= most
    first = db.execute("SELECT min(begin) FROM finding").fetchone()[0]
    assert first > BEGIN + DAY
    db.close()


def thin_look(now: float) -> Look:
    """Nothing is found: whatever was open is over."""
    return Look(now + 1, {"n1": []})


def test_series_of_long_gone_cards_are_forgotten(db: sqlite3.Connection) -> None:
    fill(db, BEGIN, [1755.0] * 12, series(card="old"))
    settle(db, BEGIN + DAY)
    fill(db, BEGIN + 500 * DAY, [1755.0], series(card="new"))
    settle(db, BEGIN + 500 * DAY + 60)
    assert db.execute("SELECT card FROM series").fetchall() == [("new",)]
    assert db.execute("SELECT count(*) FROM baseline").fetchone() == (0,)


def test_a_clock_that_was_ahead_for_a_while_stops_nothing(db: sqlite3.Connection) -> None:
    fill(db, BEGIN, [1700.0] * 12, series())
    fill(db, BEGIN + 365 * DAY, [1200.0] * 12, series())
    settle(db, BEGIN + 366 * DAY)  # next year, it seemed
    fill(db, BEGIN + 3600, [1750.0] * 24, series())
    settle(db, BEGIN + 3 * 3600 + thin.LATE_S)
    hours = clocks(db, "hour")
    assert hours[BEGIN + 3600] == hours[BEGIN + 7200] == pytest.approx(1750, abs=2)


def test_rows_of_a_future_are_not_thinned_again_and_again(db: sqlite3.Connection) -> None:
    fill(db, BEGIN, [1700.0] * 12, series())
    fill(db, BEGIN + 365 * DAY, [1200.0] * 12, series())
    settle(db, BEGIN + 7200)
    assert settle(db, BEGIN + 7200) == 0
