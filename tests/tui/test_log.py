"""The log: order, filter, following; acts of a real audit file, the past of a real memory."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.audit import Audit
from console.fleet import Fleet
from console.memory.memory import Memory
from console.tui.filter import Filter
from console.tui.roster import Roster
from console.tui.screens.log import LogScreen
from console.tui.theme import ASCII, UNICODE, Depth, Look
from console.tui.views import log as views_log
from console.tui.views.log import LogTable
from console.tui.views.log_entries import Acts, Entry, clock, person
from inventory.scheduler import Allocation, Plan, Step
from probes.event import Event, Finding, Severity
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.synthetic import NOW
from tests.tui.test_goldens import SIZES, _utc, compare, settled

__all__ = ["_utc"]


def table(nodes: int = 3) -> tuple[LogTable, Fleet]:
    fleet = Fleet(synthetic.inventory(nodes), clock=lambda: NOW)
    roster = Roster(fleet)
    return LogTable(lambda: fleet, roster.summary), fleet


def found(node: str = "gpu001", say: str = "GPU3: Xid 79", **more: object) -> Finding:
    return Finding(rule="xid", severity=Severity.CRITICAL, node=node, say=say, **more)  # type: ignore[arg-type]


def plan(verb: str = "drain", node: str = "gpu001") -> Plan:
    return Plan(verb=verb, nodes=(node,), reason="bad DIMM", commands=())


def shown(log: LogTable, now: float = NOW) -> list[str]:
    log.update((), now)
    return [log.entries[key].text for key in log.rows((), now) if key != "start"]


# ------------------------------------------------------------------ order


ENTRIES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=60)


@given(ENTRIES)
def test_newest_first_each_once_and_bounded(told: list[tuple[int, int]]) -> None:
    """Lines come in any order, some told again with another time."""
    kept, views_log.KEPT = views_log.KEPT, 8
    try:
        log, _ = table()
        last: dict[str, int] = {}
        for key, at in told:
            entry = Entry(
                key=str(key), at=NOW - at, kind="found", severity=Severity.OK, text="x"
            )  # fmt: skip
            log.put(entry)
            last[str(key)] = at
        rows = log.rows((), NOW)
        times = [log.entries[key].at for key in rows]
        assert times == sorted(times, reverse=True)
        assert len(set(rows)) == len(rows) <= 8
        assert all(log.entries[key].at == NOW - last[key] for key in rows)
        if len(last) <= 8:
            assert set(rows) == set(last)
    finally:
        views_log.KEPT = kept


def test_ten_thousand_lines_come_in_pieces_the_newest_first() -> None:
    log, fleet = table()
    for i in range(views_log.PIECE * 2 + 10):
        fleet._note(NOW - 10_000 + i, found(say=f"number {i}"))
    log.update((), NOW)
    newest = [log.entries[key].text for key in log.rows((), NOW)[1:3]]
    assert newest == ["number 809", "number 808"]
    assert not log.catch_up()
    assert log.catch_up()
    assert len(log.rows((), NOW)) == 811


def test_a_finding_begins_is_seen_and_is_over() -> None:
    log, fleet = table()
    fleet.findings["gpu001"] = [found()]
    fleet._note(NOW, found())
    fleet.acknowledge("gpu001", "xid", "")
    over = msgspec.structs.replace(found(), severity=Severity.OK, say="over (reboot): GPU3: Xid 79")
    fleet._note(NOW + 1, over)
    log.update((), NOW)
    kinds = [log.entries[key].kind for key in log.rows((), NOW + 2)]
    assert kinds[:2] == ["over", "start"] or kinds[0] == "over"
    assert {"found", "ack", "over"} <= set(kinds)


def test_what_a_recording_has_not_reached_is_not_shown() -> None:
    """The audit file may be younger than the moment that a replay shows."""
    log, _ = table()
    audit = Entry(key="a", at=NOW + 500, kind="drain", severity=Severity.OK, text="later")
    log.put(audit)
    assert shown(log, NOW) == []
    assert shown(log, NOW + 500) == ["later"]


def test_another_past_begins_anew() -> None:
    """A replay that seeks holds what another Fleet holds."""
    log, fleet = table()
    fleet._note(NOW, found(say="before"))
    assert shown(log) == ["before"]
    other = Fleet(synthetic.inventory(3), clock=lambda: NOW)
    other._note(NOW, found(say="after"))
    vars(fleet).update(vars(other))
    assert shown(log) == ["after"]


# ------------------------------------------------------------------ the scheduler and acts


def allocation(state: str, at: float, reason: str = "", since: float | None = None) -> Allocation:
    return Allocation(
        node="gpu001", at=at, scheduler="slurm", state=state, raw=state.upper(), reason=reason,
        reason_by="dcops" if reason else "", reason_at=since,
    )  # fmt: skip


def test_the_scheduler_takes_a_node_out_and_back() -> None:
    log, fleet = table()
    for state, at in (("idle", 0), ("allocated", 1), ("drained", 2), ("drained", 3), ("mixed", 4)):
        fleet.apply(allocation(state, NOW + at, "RMA" if state == "drained" else ""))
    assert shown(log, NOW + 9) == ["back in work: MIXED", "DRAINED: RMA"]


def test_a_drain_from_before_this_start_is_dated_and_past() -> None:
    log, fleet = table()
    fleet.apply(allocation("drained", NOW, "RMA", since=NOW - 9000))
    log.update((), NOW)
    (entry,) = [log.entries[key] for key in log.rows((), NOW) if key != "start"]
    assert (entry.at, entry.past, entry.who) == (NOW - 9000, True, "dcops")


def test_the_scheduler_does_not_repeat_our_own_act() -> None:
    """Whichever is heard first."""
    for order in ((0, 1), (1, 0)):
        log, fleet = table()
        events: list[Event] = [
            Step(node="gpu001", at=NOW, phase="done", ok=True, detail="drained"),
            allocation("drained", NOW + 0.1, "gpuconsole: bad DIMM"),
        ]
        for index in order:
            fleet.apply(events[index])
        assert shown(log) == ["done: drained"]


def test_the_audit_takes_the_place_of_what_was_seen(tmp_path: object) -> None:
    log, fleet = table()
    step = Step(node="gpu001", at=NOW, phase="done", ok=True, detail="drained")
    fleet.apply(step)
    assert shown(log) == ["done: drained"]
    log.acted(Entry(key="act 1", at=NOW, kind="drain", severity=Severity.OK, text="bad DIMM",
                    node="gpu001"), "gpu001", NOW)  # fmt: skip
    assert shown(log) == ["bad DIMM"]
    fleet.apply(msgspec.structs.replace(step, at=NOW + 1))
    assert shown(log, NOW + 2) == ["done: drained", "bad DIMM"], "the next one is another act"


@pytest.fixture
def lines(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """A real audit file of somebody who came over ssh."""
    from pathlib import Path

    monkeypatch.setenv("SSH_CLIENT", "192.0.2.7 50000 22")
    return Audit(Path(str(tmp_path)) / "audit.jsonl", told=False)


def folded(audit: Audit) -> list[Entry]:
    from console.audit_tail import Tail

    acts, entries = Acts(), {}
    for line in Tail(audit.path).read():
        entry = acts.add(line)
        entries[entry.key] = entry
    return list(entries.values())


def test_an_act_is_one_line_that_says_who_and_from_where(lines: Audit) -> None:
    lines.intend(plan(), {"gpu001": "/x/gpu001.tar.gz sha256=00"})
    (before,) = folded(lines)
    assert before.text == "bad DIMM: no outcome yet"
    lines.outcome(plan(), Step(node="gpu001", at=NOW, phase="done", ok=True, detail="drained"))
    lines.reading(plan(), allocation("draining", NOW + 1))
    (entry,) = folded(lines)
    assert (entry.kind, entry.severity, entry.text, entry.at) == (
        "drain", Severity.OK, "bad DIMM", NOW,
    )  # fmt: skip
    assert entry.who.endswith("@192.0.2.7")
    assert "/x/gpu001.tar.gz" in entry.why
    assert "DRAINING" in entry.why


def test_an_act_that_failed_says_why_first(lines: Audit) -> None:
    lines.intend(plan())
    failed = Step(node="gpu001", at=NOW, phase="failed", ok=False, detail="access denied")
    lines.outcome(plan(), failed)
    (entry,) = folded(lines)
    assert (entry.severity, entry.text) == (Severity.WARN, "failed: access denied: bad DIMM")


def test_two_acts_on_a_node_are_two_lines(lines: Audit) -> None:
    for verb in ("drain", "resume", "drain"):
        lines.intend(plan(verb))
        done = Step(node="gpu001", at=NOW, phase="done", ok=True, detail="x")
        lines.outcome(plan(verb), done)
    assert [entry.kind for entry in folded(lines)] == ["drain", "resume", "drain"]


def test_who() -> None:
    from console.audit import Who

    assert person(Who(user="mara", ssh_client="192.0.2.7 1 2")) == "mara@192.0.2.7"
    assert person(Who(user="mara", tty="/dev/pts/3")) == "mara@pts/3"
    assert person(Who(user="mara\x1b[2J")) == "mara·[2J"


def test_the_date_where_it_is_not_today() -> None:
    assert clock(NOW, NOW + 60) == "07:06:40"
    assert clock(NOW - 86400, NOW) == "11-28 07:06"
    assert clock(NOW - 400 * 86400, NOW) == "2024-10-25"
    assert clock(float("inf"), NOW) == "–"


# ------------------------------------------------------------------ filter


def filtered(log: LogTable, text: str, now: float = NOW) -> set[str]:
    log.filter = Filter(text)
    return {log.entries[key].text for key in log.rows((), now)}


def test_words_are_looked_for_in_the_line_fields_in_line_and_node() -> None:
    log, fleet = table()
    fleet.apply(allocation("drained", NOW, "RMA"))
    fleet._note(NOW, found())
    fleet._note(NOW - 100, found("gpu002", "GPU1: Xid 63", device="x"))
    log.put(Entry(key="act 1", at=NOW, kind="drain", severity=Severity.OK, text="slow",
                  node="gpu003", who="mara@192.0.2.7"))  # fmt: skip
    log.update((), NOW)
    assert filtered(log, "xid") == {"GPU3: Xid 79", "GPU1: Xid 63"}
    assert filtered(log, "rma") == {"DRAINED: RMA"}
    assert filtered(log, "node:gpu002") == {"GPU1: Xid 63"}
    assert filtered(log, "user:mara") == {"slow"}
    assert filtered(log, "xid:79") == {"GPU3: Xid 79"}
    assert "GPU3: Xid 79" in filtered(log, "sched:drained"), "of the node, not of the line"
    assert "GPU1: Xid 63" not in filtered(log, "xid age<60")
    assert "GPU1: Xid 63" in filtered(log, "xid age>60")


def test_news_of_a_node_is_filtered_again() -> None:
    log, fleet = table()
    fleet._note(NOW, found())
    log.update((), NOW)
    assert "GPU3: Xid 79" not in filtered(log, "sched:drained")
    log._subject = Roster(fleet).summary
    fleet.apply(allocation("drained", NOW, "x"))
    log.update({"gpu001"}, NOW)
    assert "GPU3: Xid 79" in filtered(log, "sched:drained")


def test_hostile_words_move_no_cursor() -> None:
    log, fleet = table()
    fleet._note(NOW, found(say="\x1b[2Jx\r\ny"))
    fleet.apply(allocation("down", NOW, "\x1b]0;x\x07"))
    log.update((), NOW)
    for key in log.rows((), NOW):
        cells = log.cells(key, log.columns(100), UNICODE, NOW)
        why = log.why(key, UNICODE, 100)
        assert all(char.isprintable() for cell in (*cells, *why) for char in cell.text)


# ------------------------------------------------------------------ the screen


async def opened(c: Console) -> LogScreen:
    await c.press("0")
    await c.until(lambda: isinstance(c.app.screen, LogScreen))
    screen = c.app.screen
    assert isinstance(screen, LogScreen)
    await c.until(lambda: not screen._reading)
    await c.tick()
    return screen


async def test_new_lines_appear_while_the_cursor_is_on_the_first(console: Opener) -> None:
    async with console() as c:
        screen = await opened(c)
        c.app.fleet._note(c.engine.at + 1, found(say="news one"))
        await c.tick(2)
        assert screen.table.entries[screen.grid.cursor or ""].text == "news one"
        assert "new above" not in c.text
        await c.press("j", "j")
        here, line = screen.grid.cursor, screen.grid.order.index(screen.grid.cursor or "")
        for number in range(5):
            c.app.fleet._note(c.engine.at + 1 + number / 10, found(say=f"more {number}"))
        await c.tick(2)
        assert screen.grid.cursor == here
        assert screen.grid.order.index(here or "") == line + 5
        assert "5 new above" in c.text
        await c.press("g")
        await c.tick(1)
        assert "new above" not in c.text
        assert screen.table.entries[screen.grid.cursor or ""].text == "more 4"


async def test_the_line_under_the_cursor_stays_where_it_is(console: Opener) -> None:
    async with console(size=(80, 12)) as c:
        screen = await opened(c)
        for number in range(40):
            c.app.fleet._note(c.engine.at - number, found(say=f"line {number}"))
        await c.tick(1)
        await c.press(*"jjjj")
        at = screen.grid.order.index(screen.grid.cursor or "") - screen.grid.top
        for number in range(7):
            c.app.fleet._note(c.engine.at + number / 10, found(say=f"new {number}"))
        await c.tick(1)
        assert screen.grid.order.index(screen.grid.cursor or "") - screen.grid.top == at


async def test_a_drain_from_the_screen_is_one_line_of_the_audit(console: Opener) -> None:
    async with console() as c:
        import time

        c.engine.at = time.time()
        c.engine.schedulers["memory"].now = c.engine.at  # type: ignore[attr-defined]
        c.app.fleet.began = c.engine.at - 1
        done = await c.engine.plan("drain", ["gpu002"], "bad DIMM")
        async for _ in c.engine.execute(done):
            pass
        screen = await opened(c)
        await c.until(lambda: any(e.source == "audit" for e in screen.table.entries.values()))
        await c.tick(1)
        acts = [e for e in screen.table.entries.values() if e.kind in ("drain", "act", "sched")]
        assert [(e.kind, e.node, e.text, e.past) for e in acts] == [
            ("drain", "gpu002", "bad DIMM", False)
        ]


async def test_the_memory_tells_of_before_this_start(console: Opener) -> None:
    async with console() as c:
        path = c.engine.memory.path
        for node in ("gpu001", "other1"):
            before = Memory(path, clock=lambda: NOW - 5000)
            before.tap(found(node, f"earlier on {node}"))
            assert before.close()
        screen = await opened(c)
        await c.until(lambda: any(e.past for e in screen.table.entries.values()))
        await c.tick(1)
        told = [e for e in screen.table.entries.values() if e.source == "memory"]
        assert [(e.text, e.past, e.kind) for e in told] == [("earlier on gpu001", True, "found")]
        order = screen.grid.order
        assert order.index("start") < order.index(told[0].key), "below the line of the start"


async def test_enter_opens_the_node_and_a_takes_the_finding(console: Opener) -> None:
    async with console() as c:
        screen = await opened(c)
        key = next(k for k in screen.grid.order if screen.table.entries[k].node == "gpu041")
        screen.grid.move_to(key)
        await c.press("a")
        assert all(
            f.acknowledged for f in c.app.fleet.findings["gpu041"] if f.rule == "remap.pending"
        )
        await c.press("enter")
        assert getattr(c.app.screen, "node", "") == "gpu041"


@pytest.mark.parametrize("size", SIZES)
async def test_golden(console: Opener, size: str) -> None:
    async with console(size=SIZES[size]) as c:
        await opened(c)
        compare(f"log_{size}", await settled(c, ()))


async def test_golden_ascii(console: Opener) -> None:
    async with console(size=(80, 24), look=Look(ASCII, Depth(16))) as c:
        await opened(c)
        text = await settled(c, ())
    assert text.isascii()
    compare("log_ascii", text)
