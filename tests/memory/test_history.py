"""The page: what it says of a node, of one that nobody watched, and of one that lies."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.cli_history import run
from console.memory.history import POINTS, History, NodeHistory, spans
from console.memory.memory import Memory
from console.memory.page import page, spark
from inventory.errors import UsageError
from inventory.scheduler import Allocation, Plan, Step
from probes.event import Sample, Severity
from tests.memory.build import Clock, finding, gpu, hours, inventory, memory, over, rows
from tests.memory.test_memory import campaign, pair, pairs, word

DAY = 86400.0
Capture = pytest.CaptureFixture[bytes]


@pytest.fixture
def now() -> float:
    """A round five minutes before the present: the page is about the last days."""
    return time.time() // 300 * 300 - 600


def told(path: Path, capfdbinary: Capture, nodes: str = "n1", days: float = 28.0) -> str:
    assert run(path, nodes, days, json=False) == 0
    return capfdbinary.readouterr().out.decode()


def document(path: Path, capfdbinary: Capture, nodes: str = "n1", days: float = 28.0) -> History:
    assert run(path, nodes, days, json=True) == 0
    return msgspec.json.decode(capfdbinary.readouterr().out, type=History)


@pytest.fixture
def remembered(tmp_path: Path, now: float) -> Callable[[Callable[[Memory, Clock], None]], Path]:
    def made(script: Callable[[Memory, Clock], None]) -> Path:
        clock = Clock(now)
        ours = memory(tmp_path / "m.sqlite", clock)
        script(ours, clock)
        assert ours.close(60)
        return tmp_path / "m.sqlite"

    return made


def tap(ours: Memory, clock: Clock, at: float, *events: object) -> None:
    clock.now = at
    for event in events:
        ours.tap(event)  # type: ignore[arg-type]
    assert ours.flush(60)


@pytest.fixture
def full(remembered: Callable[..., Path], now: float) -> Path:
    """Three Xids, a drain, a new card, tests before and after."""

    def script(ours: Memory, clock: Clock) -> None:
        begin = now - 3 * DAY
        tap(ours, clock, begin, *inventory(at=begin),
            Sample(node="n1", probe="hello", at=begin, values={"boot_id": "b1"}))  # fmt: skip
        for at in hours(begin, 2):
            clock.now = at
            ours.tap(gpu(at))
        for number in range(3):
            at = begin + 7200 + 3600 * number
            tap(ours, clock, at, finding(since=at))
            tap(ours, clock, at + 60, over(finding(), "reset"))
        at = now - 2 * DAY
        drained = {"scheduler": "slurm", "reason": "gpuconsole: Xid 79", "reason_by": "mara"}
        tap(ours, clock, at, Allocation(node="n1", at=at, state="drained", **drained))  # type: ignore[arg-type]
        plan = Plan(verb="drain", nodes=("n1",), reason="Xid 79", commands=())
        ours.acted(plan, Step(node="n1", at=at, phase="done", ok=True), "mara")
        ours.add_campaign(campaign(470.0, at + 100))
        back = now - DAY
        tap(ours, clock, back, Allocation(node="n1", at=back, scheduler="slurm", state="idle"),
            *inventory(serial="222", at=back), gpu(back, clock=1900),
            Sample(node="n1", probe="hello", at=back, values={"boot_id": "b2"}))  # fmt: skip
        ours.add_campaign(campaign(41.0, back + 100, Severity.CRITICAL))
        tap(ours, clock, now, finding("thermal.hot", severity=Severity.WARN, since=now))

    return remembered(script)


def test_one_page_tells_everything(full: Path, capfdbinary: Capture) -> None:
    said = told(full, capfdbinary)
    for piece in (
        "n1: watched 2 h of 28 d (nothing recorded before",
        "lemon score",
        "xid.79 GPU3 3x, last",
        "over (reset)",
        "warn     thermal.hot GPU3 since",
        "out    drained by mara: gpuconsole: Xid 79",
        "did    drain by mara: Xid 79",
        "back in work",
        "GPU3: another card, 111 then, 222 now",
        "a new boot was seen",
        "tests not passed once",
        "node test: 41.0 GB/s, usually 470 GB/s, critical (c",
        "1900 MHz",
        "our estimate",
    ):
        assert piece in said, piece
    assert all(len(line) <= 240 for line in said.splitlines())


def test_the_document_tells_the_same(full: Path, capfdbinary: Capture) -> None:
    (node,) = document(full, capfdbinary).nodes
    assert [(f.rule, f.times, f.open) for f in node.findings] == [
        ("thermal.hot", 1, True), ("xid.79", 3, False),
    ]  # fmt: skip
    assert {event.what for event in node.events} == {"boot", "out", "back", "did", "card"}
    assert [event.at for event in node.events] == sorted(
        (event.at for event in node.events), reverse=True
    )
    assert node.lemon.points == node.lemon.now + node.lemon.history > 40
    assert {trend.metric for trend in node.trends} >= {"sm_clock_mhz", "power_w", "temp_c"}


def test_days_narrow_what_is_told(full: Path, capfdbinary: Capture) -> None:
    (node,) = document(full, capfdbinary, days=1.5).nodes
    assert [f.rule for f in node.findings] == ["thermal.hot"]
    assert "drained" not in " ".join(event.say for event in node.events)
    assert node.lemon.history > 0, "the score is always of 28 days"


def test_nothing_recorded_is_never_told_as_no_faults(
    remembered: Callable[..., Path], now: float, capfdbinary: Capture
) -> None:
    at = now - 3 * DAY
    path = remembered(
        lambda ours, clock: tap(ours, clock, at, Sample(node="n1", probe="host", at=at))
    )
    for days, piece in ((28, "none found in the 10 min watched"), (1, "nobody watched")):
        said = told(path, capfdbinary, days=days)
        assert piece in said
        assert "no fault" not in said
    assert run(path, "n2", 28, json=False, named=["n2"]) == 0
    assert b"it was never watched from here" in capfdbinary.readouterr().out


def test_a_node_that_nobody_has_is_a_slip_of_the_pen(
    remembered: Callable[..., Path], now: float, tmp_path: Path
) -> None:
    path = remembered(
        lambda ours, clock: tap(ours, clock, now, Sample(node="gpu016", probe="host", at=now))
    )
    with pytest.raises(UsageError) as caught:
        run(path, "gpu0116", 28, json=True)
    assert str(caught.value) == "no node gpu0116 in the memory; did you mean gpu016?"
    with pytest.raises(UsageError, match=r"gpu017 in the memory and 1 more of these"):
        run(path, "gpu[016-018]", 28, json=False, named=["gpu001"])
    with pytest.raises(UsageError, match=r"no node n7 in the inventory; did you mean n17\?"):
        run(tmp_path / "none.sqlite", "n7", 28, json=False, named=["n17"])


def test_a_campaign_takes_one_line_in_plain_words(
    remembered: Callable[..., Path], now: float, capfdbinary: Capture
) -> None:
    def script(ours: Memory, clock: Clock) -> None:
        runs = (pair(("n1", "n2"), 192.0), pair(("n3", "n4"), 388.0), pair(("n1", "n3"), 191.0),
                pair(("n5", "n4"), error="rank 0 (n5, local rank 0) failed"))  # fmt: skip
        told = pairs(
            runs, word("n1", Severity.CRITICAL, "n1: 192 of 388 GB/s with 2 partners"),
            word("n5", Severity.CRITICAL, "n5: no run succeeded"),
        )  # fmt: skip
        ours.add_campaign(msgspec.structs.replace(told, at=now - 100))
        ours.tap(Sample(node="n1", probe="nccl", device="summary", at=now, values={"ok": True}))

    path = remembered(script)
    lines = {}
    for node in ("n1", "n2", "n4"):
        said = told(path, capfdbinary, node)
        lines[node] = [line.strip()[14:] for line in said.splitlines() if "test:" in line]
        assert "torch-nccl" not in said
        assert "rank 0" not in said
    run_id = "(20261130T000000Z-pairs)"
    assert lines["n1"] == [f"pairs test: 192 of 388 GB/s with 2 partners, critical {run_id}"]
    assert lines["n2"] == [
        f"pairs test: not judged: n1+n2 was held up by n1, usually 192 GB/s, unknown {run_id}"
    ]
    assert lines["n4"] == [
        f"pairs test: not judged: n5+n4 was held up by n5, usually 388 GB/s, unknown {run_id}"
    ]
    (test,) = document(path, capfdbinary, "n1").nodes[0].tests
    assert [(f.what, f.value, f.party) for f in test.figures] == [
        ("busbw", 192.0, "n1+n2"), ("busbw", 191.0, "n1+n3"),
    ]  # fmt: skip


def test_an_old_open_finding_is_not_told_as_present(
    remembered: Callable[..., Path], now: float, capfdbinary: Capture
) -> None:
    path = remembered(lambda ours, clock: tap(ours, clock, now - 3 * DAY, finding()))
    said = told(path, capfdbinary)
    assert "not looked at since" in said
    assert ", open" not in said
    assert "0 for what is open" in said


def test_without_a_memory_it_says_so(tmp_path: Path, capfdbinary: Capture) -> None:
    said = told(tmp_path / "none.sqlite", capfdbinary)
    assert "nothing is recorded yet" in said
    found = document(tmp_path / "none.sqlite", capfdbinary, "n[1-3]")
    assert [node.node for node in found.nodes] == ["n1", "n2", "n3"]
    assert not any(node.known for node in found.nodes)
    assert not (tmp_path / "none.sqlite").exists()


def test_a_damaged_memory_is_named_and_left_for_the_console(
    tmp_path: Path, capfdbinary: Capture
) -> None:
    path = tmp_path / "m.sqlite"
    path.write_bytes(b"no database" * 1000)
    assert run(path, "n1", 28, json=False) == 3
    said = capfdbinary.readouterr().out.decode()
    assert "not a database" in said
    assert "never watched" not in said  # it may well have been
    assert run(path, "n1", 28, json=True) == 3
    found = msgspec.json.decode(capfdbinary.readouterr().out, type=History)
    assert (found.nodes, found.note != "") == ([], True)
    assert path.read_bytes() == b"no database" * 1000


def test_a_wrong_expression_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unclosed bracket"):
        run(tmp_path / "m.sqlite", "gpu[1", 28, json=False)


def test_words_of_a_node_drive_no_terminal(
    remembered: Callable[..., Path], now: float, capfdbinary: Capture
) -> None:
    evil = "\x1b[2J\u202e" + "x" * 9999

    def script(ours: Memory, clock: Clock) -> None:
        tap(ours, clock, now, *inventory(serial=evil, at=now), gpu(now),
            finding(say=evil, label=evil, rule="xid.79"), finding(evil),
            Sample(node="n1", probe="hello", at=now, values={"boot_id": evil}),
            Allocation(node="n1", at=now, scheduler="s", state="down", reason=evil, reason_by=evil),
)  # fmt: skip
        ours.add_campaign(campaign(1.0, now - 60, engine=evil, version=evil))
        ours.add_campaign(pairs((pair(("n1", "n2"), error=evil),), word("n1", Severity.WARN, evil)))

    said = told(remembered(script), capfdbinary)
    assert all(line.isprintable() for line in said.splitlines())
    assert all(len(line) <= 240 for line in said.splitlines())


def test_a_reader_disturbs_no_console(full: Path, capfdbinary: Capture) -> None:
    ours = memory(full, Clock())
    ours.tap(finding("xid.94", node="n9"))
    assert ours.flush(60)
    assert "xid.94" in told(full, capfdbinary, "n9")
    ours.tap(finding("xid.95", node="n9"))
    assert ours.close(60)
    assert rows(full, "SELECT count(*) FROM finding WHERE rule LIKE 'xid.9%'") == [(2,)]


def test_ascii_only_terminals_get_ascii(full: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from console.cli_history import run;"
        "run(Path(sys.argv[1]), 'n1', 28, json=False)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(full)], check=True, capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.isascii()
    assert b"MHz" in done.stdout


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), max_size=40))
def test_a_spark_has_a_cell_a_point(points: list[float | None]) -> None:
    assert len(spark(points)) == len(points)


def test_a_trend_that_hardly_varies_is_flat() -> None:
    assert len(set(spark([1755.0, 1740.0, 1770.0]))) <= 3
    drop = spark([1755.0] * 5 + [1125.0])
    assert drop[0] > drop[-1]


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(1, 2)), min_size=1))
def test_spans_lose_no_reading(values: list[tuple[float, float]]) -> None:
    found = spans(values, 0.0, 1000.0)
    assert len(found) == POINTS
    known = [value for value in found if value is not None]
    assert known
    assert min(v for _, v in values) <= min(known)
    assert max(known) <= max(v for _, v in values)


def test_a_page_of_nothing_is_one_line() -> None:
    from console.memory.history import unknown

    node: NodeHistory = unknown("n1", 28, 0.0)
    assert page(node, 28) == ["n1: nothing recorded: it was never watched from here"]
    assert json.loads(msgspec.json.encode(node))["known"] is False
