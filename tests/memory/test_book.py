"""What is the same thing seen twice: by two looks, by two consoles, by a later one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.memory import read, store
from console.memory.book import NOT_FOUND, UNSEEN, Book
from console.memory.gather import Row, Series
from console.memory.memory import MOST_BYTES
from console.memory.metrics import GPU, Thin
from console.memory.notes import Boot, Look
from inventory.scheduler import Allocation
from probes.event import Severity
from tests.memory.build import PCI, T0, finding, over

HOUR = 3600.0
DAY = 86400.0


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    db = store.connect(tmp_path / "m.sqlite", MOST_BYTES)
    yield Book(db)
    db.close()


def known(book: Book) -> list[tuple[str, float, float | None, int]]:
    return [(i.rule, i.begin, i.over, i.count) for i in read.incidents(book.db, "n1", 0)]


def test_two_consoles_that_see_the_same_make_one_finding(book: Book) -> None:
    for at in (T0, T0 + 2, T0 + 60):
        book.finding(finding(since=T0 - 5), at)
    other = Book(book.db)
    other.finding(finding(since=T0 + 3), T0 + 3)
    assert known(book) == [("xid.79", T0 - 5, None, 1)]
    for at in (T0 + 100, T0 + 103):
        book.finding(over(finding()), at)
    assert known(book) == [("xid.79", T0 - 5, T0 + 100, 1)]
    (one,) = read.incidents(book.db, "n1", 0)
    assert one.why == "clean"


def test_a_finding_that_comes_again_is_another_one(book: Book) -> None:
    book.finding(finding(since=T0), T0)
    book.finding(over(finding()), T0 + 60)
    book.finding(finding(since=T0 + 120), T0 + 120)
    assert [begin for _, begin, _, _ in known(book)] == [T0, T0 + 120]


def test_the_same_event_read_again_by_a_later_console_is_no_new_one(book: Book) -> None:
    """A kernel log tells an old Xid to every console that starts."""
    book.finding(finding(since=T0), T0 + 10)
    book.finding(over(finding(), "reboot"), T0 + HOUR)
    book.finding(finding(since=T0), T0 + 2 * HOUR)
    assert known(book) == [("xid.79", T0, None, 1)]


def test_what_nobody_saw_end_ended_when_it_was_last_seen(book: Book) -> None:
    book.finding(finding(since=T0), T0)
    book.finding(finding(since=T0 + 3 * DAY), T0 + 3 * DAY)
    first, second = read.incidents(book.db, "n1", 0)
    assert (first.over, first.why) == (T0, UNSEEN)
    assert second.over is None


def test_it_is_remembered_at_its_worst_and_with_all_its_events(book: Book) -> None:
    book.finding(finding(severity=Severity.WARN, count=1), T0)
    book.finding(finding(severity=Severity.CRITICAL, count=5), T0 + 1)
    book.finding(finding(severity=Severity.WARN, count=3), T0 + 2)
    (one,) = read.incidents(book.db, "n1", 0)
    assert (one.severity, one.count) == (Severity.CRITICAL, 5)


def test_a_latched_finding_is_held_to_be_true(book: Book) -> None:
    book.finding(finding(), T0)
    book.finding(finding(latched=True), T0 + HOUR)
    (one,) = read.incidents(book.db, "n1", 0)
    assert (one.seen, one.over) == (T0 + HOUR, None)


def test_an_acknowledgement_is_kept_and_undone(book: Book) -> None:
    book.finding(finding(), T0)
    book.finding(finding(acknowledged=True), T0 + 1)
    book.finding(finding(acknowledged=True), T0 + 2)
    assert read.incidents(book.db, "n1", 0)[0].acknowledged == T0 + 1
    book.finding(finding(count=2), T0 + 3)
    assert read.incidents(book.db, "n1", 0)[0].acknowledged is None


def test_a_look_ends_what_it_does_not_find_on_nodes_it_saw(book: Book) -> None:
    for node in ("n1", "n2"):
        book.finding(finding(node=node), T0)
        book.finding(finding("thermal.hot", node=node, severity=Severity.WARN), T0)
    book.look(Look(T0 + 60, {"n1": [finding("thermal.hot", severity=Severity.WARN)]}))
    xid, hot = sorted(read.incidents(book.db, "n1", 0), key=lambda i: i.rule, reverse=True)
    assert (xid.over, xid.why) == (T0 + 60, NOT_FOUND)
    assert (hot.over, hot.seen) == (None, T0 + 60)
    assert all(i.over is None for i in read.incidents(book.db, "n2", 0))


def test_a_look_ends_what_was_seen_while_the_clock_was_a_year_ahead(book: Book) -> None:
    book.finding(finding(), T0 + 365 * DAY)
    book.look(Look(T0, {"n1": []}))
    (xid,) = read.incidents(book.db, "n1", 0)
    assert xid.over == T0


def test_what_is_still_there_is_seen_now_and_not_next_year(book: Book) -> None:
    book.finding(finding(), T0 + 365 * DAY)
    book.look(Look(T0, {"n1": [finding()]}))
    assert [i.seen for i in read.incidents(book.db, "n1", 0)] == [T0]


@pytest.mark.parametrize("since", [1e18, -5.0, float("nan"), T0 - 500 * DAY, T0 + DAY])
def test_a_time_nobody_can_believe_is_now(book: Book, since: float) -> None:
    book.finding(finding(since=since), T0)
    assert read.incidents(book.db, "n1", 0)[0].begin == T0


def test_words_of_a_node_are_cleaned_and_cut(book: Book) -> None:
    book.finding(finding(say="\x1b]0;x\x07" + "A" * 10_000, label="\u202eGPU3"), T0)
    (one,) = read.incidents(book.db, "n1", 0)
    assert one.say.isprintable()
    assert one.label.isprintable()
    assert len(one.say) <= 300


def allocation(state: str, at: float, reason: str = "", **more: object) -> Allocation:
    told = {"by": "", **more}
    return Allocation(
        node="n1", at=at, scheduler="slurm", state=state, reason=reason,
        reason_by=str(told["by"]), reason_at=told.get("reason_at"),  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_drain_begins_with_its_reason_and_ends_with_work(book: Book) -> None:
    drained = {"reason": "xid 79", "by": "mara", "reason_at": T0}
    book.allocation(allocation("idle", T0 - 60))
    book.allocation(allocation("draining", T0 + 5, **drained))  # type: ignore[arg-type]
    book.allocation(allocation("drained", T0 + 20, **drained))  # type: ignore[arg-type]
    Book(book.db).allocation(allocation("drained", T0 + 21, **drained))  # type: ignore[arg-type]
    book.allocation(allocation("mixed", T0 + HOUR))
    book.allocation(allocation("idle", T0 + 2 * HOUR))
    (one,) = read.outages(book.db, "n1", 0)
    assert (one.by, one.reason, one.begin, one.over) == ("mara", "xid 79", T0, T0 + HOUR)
    assert one.state == "drained"


def test_another_reason_is_another_outage(book: Book) -> None:
    book.allocation(allocation("drained", T0, "xid 79"))
    book.allocation(allocation("drained", T0 + 60, "new PSU"))
    first, second = read.outages(book.db, "n1", 0)
    assert (first.over, second.over) == (T0 + 60, None)


def test_a_boot_is_known_from_its_first_look_to_its_last(book: Book) -> None:
    for at in (T0 + 5, T0, T0 + 9):
        book.boot(Boot("n1", "b1", at))
    book.boot(Boot("n1", "b2", T0 + 20))
    assert [b.boot_id for b in read.boots(book.db, "n1", 0)] == ["b1", "b2"]
    assert read.boots(book.db, "n1", 0)[0][:2] == (T0, T0 + 9)


SERIES = Series("n1", PCI, GPU, "111", "H100", "580", 700)
ROWS = st.lists(
    st.builds(
        lambda at, n: Row(300 * at, SERIES, "GPU3", Thin(n, True, bytes([n, 0x60]))),
        st.integers(1, 5), st.integers(1, 9),
    ),
    min_size=1, max_size=20,
)  # fmt: skip


@given(ROWS, st.randoms())
def test_rows_in_any_order_and_number_leave_the_fullest_of_each_interval(
    told: list[Row], random: object
) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    store._migrate(db, Path("x"))
    again = [*told, *told]
    random.shuffle(again)  # type: ignore[attr-defined]
    Book(db).rows(again)
    found = db.execute("SELECT at, n, packed FROM fine").fetchall()
    most = {row.at: row.thin.n for row in sorted(told, key=lambda row: row.thin.n)}
    assert {at: n for at, n, _ in found} == most
    assert all(packed == bytes([n, 0x60]) for _, n, packed in found)
    db.close()


def test_a_node_cannot_fill_the_file_with_cards(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.memory.book.SERIES_OF_A_NODE", 5)
    told = [
        Row(300, SERIES._replace(card=str(number)), "GPU3", Thin(1, True, b""))
        for number in range(9)
    ]
    assert len(book.rows(told)) == 5
    assert len(Book(book.db).rows(told)) == 5


def test_counts_of_a_hostile_finding_are_bounded(book: Book) -> None:
    book.finding(msgspec.structs.replace(finding(), count=1 << 90), T0)
    assert read.incidents(book.db, "n1", 0)[0].count == 1 << 31
