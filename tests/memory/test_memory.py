"""The memory as the engine uses it: what it takes, when it writes, what it tells back."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from console.active.results import (
    Campaign,
    Confidence,
    Group,
    Level,
    Progress,
    Reading,
    Run,
    Verdict,
)
from console.engine import Engine
from console.memory import memory as module
from console.memory.gather import STEP_S
from console.settings import Settings
from inventory.node import Inventory, Node
from inventory.scheduler import Allocation, Plan, Step
from probes.event import NodeState, NodeStatus, Sample, Severity
from tests.memory.build import PCI, T0, Clock, finding, gpu, hours, inventory, memory, over, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "m.sqlite"


def test_nothing_is_made_before_something_is_kept(path: Path) -> None:
    ours = memory(path)
    ours.tap(NodeStatus(node="n1", at=T0, state=NodeState.UP))
    ours.tap(Sample(node="n1", probe="nvlink", device=PCI, at=T0))
    assert ours.own() == {}
    assert ours.series("n1", PCI, "power_w", 0) == []
    assert ours.lemons(T0) == {}
    assert ours.tested_since("n1", 0) is None
    assert ours.close(200)
    assert not path.parent.exists()


def test_it_is_not_imported_by_a_start() -> None:
    code = (
        "import sys, console.cli, console.engine; print(sorted(m for m in sys.modules"
        " if m == 'sqlite3' or m in ('console.memory.writer', 'console.memory.store')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_hours_of_two_consoles_are_the_hours_of_one(path: Path) -> None:
    clock = Clock()
    both = [memory(path, clock), memory(path, clock)]
    for event in inventory():
        for ours in both:
            ours.tap(event)
    for at in hours(T0, 2):
        clock.now = at
        for ours in both:
            ours.tap(gpu(at))
    for ours in both:
        assert ours.flush(60)
    found = both[0].series("n1", PCI, "sm_clock_mhz", T0)
    assert [at for at, _ in found] == [T0 + STEP_S * i for i in range(24)]
    assert {value for _, value in found} == {1755.0}
    assert rows(path, "SELECT min(n), max(n) FROM fine") == [(5, 5)]
    for ours in both:
        assert ours.close(200)


def test_answers_are_taken_now_and_then_but_whole_rounds(path: Path) -> None:
    clock = Clock()
    ours = memory(path, clock)
    devices = [f"0000:{number:02x}:00.0" for number in range(8)]
    for device in devices:
        for event in inventory(device=device):
            ours.tap(event)
    for second in range(STEP_S):
        clock.now = T0 + second
        for number, device in enumerate(devices):
            ours.tap(gpu(clock.now + number * 0.1, device=device))
    assert ours.close(60)
    counts = rows(path, "SELECT n FROM fine")
    assert len(counts) == len(devices)
    assert all(8 <= int(str(count)) <= 22 for (count,) in counts)


def test_a_clock_that_is_put_back_opens_no_flood(path: Path) -> None:
    clock = Clock()
    ours = memory(path, clock)
    for event in inventory():
        ours.tap(event)
    ours.tap(gpu(T0 + 3600))
    for second in range(STEP_S):
        ours.tap(gpu(T0 + second))
    assert ours.close(60)
    before = rows(path, f"SELECT n FROM fine WHERE at < {T0 + 3600}")
    assert [8 <= int(str(count)) <= 22 for (count,) in before] == [True]


def test_what_another_process_keeps_us_from_writing_is_told(path: Path) -> None:
    said: list[str] = []
    ours = memory(path, told=said.append)
    ours.tap(finding("xid.1"))
    assert ours.flush(60)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    ours.tap(finding("xid.2"))
    assert not ours.close(60)
    holder.close()
    assert len(said) == 1
    assert "another process" in said[0]


def test_a_hundred_hours_come_back_as_fine_as_they_are_kept(path: Path) -> None:
    clock = Clock()
    ours = memory(path, clock)
    for event in inventory():
        ours.tap(event)
    for at in hours(T0, 100, STEP_S):
        clock.now = at
        ours.tap(gpu(at, clock=1500 if at < T0 + 50 * 3600 else 1755))
    while ours.flush(60) and not rows(path, f"SELECT 1 FROM hour WHERE at >= {T0 + 97 * 3600}"):
        pass  # thinning takes a little of each turn
    found = ours.series("n1", PCI, "sm_clock_mhz", 0)
    times = [at for at, _ in found]
    assert times == sorted(set(times))
    steps = {round(b - a) for a, b in itertools.pairwise(times)}
    assert {STEP_S, 3600} <= steps
    assert len(found) < 500
    assert (found[0][1], found[-1][1]) == (1500, 1755)
    assert ours.close(60)
    later = memory(path, clock)
    own = later.read_own()
    assert (own["n1", PCI, "sm_clock_mhz"].median, own["n1", PCI, "sm_clock_mhz"].n) == (1755, 20)
    later.close()


def test_readings_of_a_sick_gpu_are_marked(path: Path) -> None:
    clock = Clock()
    ours = memory(path, clock)
    for event in (*inventory(), gpu(T0)):
        ours.tap(event)
    assert ours.flush(60)
    hot = finding("thermal.hot", severity=Severity.WARN)
    for step, told in ((1, hot), (2, over(hot))):
        clock.now = T0 + step * STEP_S
        ours.tap(told)
        ours.tap(gpu(clock.now))
        assert ours.flush(60)
    assert rows(path, "SELECT good FROM fine ORDER BY at") == [(1,), (0,), (1,)]
    assert ours.close(200)


def test_a_look_without_a_session_is_no_watching(path: Path) -> None:
    ours = memory(path)
    ours.tap(Allocation(node="n1", at=T0, scheduler="slurm", state="down", reason="dead"))
    ours.tap(Sample(node="n2", probe="host", at=T0))
    ours.tap(Sample(node="n2", probe="host", at=T0 + 700))
    assert ours.close(200)
    found = rows(path, "SELECT name, mask FROM watched JOIN node ON node.id = watched.node")
    ((name, mask),) = found
    assert name == "n2"
    assert int(str(mask)).bit_count() == 2


def test_the_state_of_a_node_is_written_when_it_changes(path: Path) -> None:
    ours = memory(path)
    for number in range(50):
        for state in ("idle", "mixed") if number < 25 else ("drained",):
            at = T0 + 15 * number
            ours.tap(Allocation(node="n1", at=at, scheduler="s", state=state, reason="why"))
    writer = ours._writer
    assert writer is not None
    assert ours.close(200)
    assert rows(path, "SELECT begin, over FROM outage") == [(T0 + 15 * 25, None)]


def test_samples_are_dropped_before_findings_and_it_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAMPLES_MOST", 0)
    said: list[str] = []
    ours = memory(path, told=said.append)
    for event in (*inventory(), gpu(T0), finding()):
        ours.tap(event)
    assert ours.close(200)
    assert said == ["the memory is behind: readings are dropped, findings are kept"]
    assert rows(path, "SELECT count(*) FROM finding") == [(1,)]
    assert rows(path, "SELECT count(*) FROM fine") == [(0,)]


def test_nothing_is_taken_after_the_end(path: Path) -> None:
    ours = memory(path)
    ours.tap(finding())
    assert ours.close(200)
    ours.tap(finding("late"))
    ours.acted(Plan(verb="drain", nodes=("n1",), reason="", commands=()),
               Step(node="n1", at=T0, phase="done", ok=True), "mara")  # fmt: skip
    assert ours.close(200)
    assert rows(path, "SELECT rule FROM finding") == [("xid.79",)]


def campaign(busbw: float, at: float, verdict: Severity = Severity.OK, **more: object) -> Campaign:
    """One all-reduce on n1 and GEMM of its first GPU."""
    told: dict[str, object] = {"engine": "nccl-tests", "version": "2.19", "id": f"c{at}", **more}
    reading = Reading(
        what="gemm_bf16", value=busbw * 1.6, unit="TFLOPS", node="n1", device=PCI, label="GPU3",
        verdict=verdict,
    )  # fmt: skip
    run = Run(
        group=Group(nodes=("n1",)), round=1, state=Progress.DONE, started_at=at, ranks=8,
        engine=str(told["engine"]), version=str(told["version"]), busbw_gb_s=busbw,
        readings=(reading,),
    )  # fmt: skip
    said = Verdict(
        kind="node", name="n1", nodes=("n1",), verdict=verdict, confidence=Confidence.CERTAIN,
        say=f"{busbw} GB/s",
    )  # fmt: skip
    return Campaign(
        schema=1, id=str(told["id"]), level=Level.NODE, nodes=("n1",), at=at, duration_s=30.0,
        interrupted=False, refused={}, rounds=1, runs=(run,), verdicts=(said,), verdict=verdict,
        drain="", exclude="",
    )  # fmt: skip


BUSBW = ("n1", "", "node.busbw.nccl-tests")
GEMM = ("n1", PCI, "node.gemm_bf16.nccl-tests")


def test_results_of_tests_become_baselines_of_their_engine_and_version(path: Path) -> None:
    ours = memory(path, Clock(T0 + 10_000))
    for number in range(30):
        told = campaign(470.0 if number < 15 else 480.0, T0 + number)
        ours.add_campaign(told)
        ours.add_campaign(told)  # written after every run
    ours.add_campaign(campaign(41.0, T0 + 50, Severity.CRITICAL))
    ours.add_campaign(campaign(2.0, T0 + 60, engine="torch-gloo"))
    assert ours.flush(60)
    own = ours.read_own()
    assert (own[BUSBW].median, own[BUSBW].n) == (480.0, 20)
    assert own[GEMM].median == 480.0 * 1.6
    assert own["n1", "", "node.busbw.torch-gloo"].median == 2.0
    ours.add_campaign(campaign(460.0, T0 + 70, version="2.20"))
    assert ours.flush(60)
    assert (ours.read_own()[BUSBW].median, ours.read_own()[BUSBW].n) == (460.0, 1)
    assert ours.read_own(version="2.19")[BUSBW].n == 20
    assert ours.close(200)


def test_figures_of_a_sick_node_are_no_baseline(path: Path) -> None:
    ours = memory(path, Clock(T0))
    ours.tap(finding(since=T0 - 60))
    ours.add_campaign(campaign(300.0, T0))
    assert ours.close(200)
    assert memory(path, Clock(T0)).read_own() == {}


@pytest.mark.parametrize(
    ("results", "passed"),
    [
        ([], None),
        ([(100.0, Severity.OK)], True),
        ([(-100.0, Severity.OK)], None),
        ([(100.0, Severity.CRITICAL)], False),
        ([(100.0, Severity.OK), (200.0, Severity.CRITICAL)], False),
        ([(100.0, Severity.CRITICAL), (200.0, Severity.OK)], True),
        ([(100.0, Severity.UNKNOWN)], False),
    ],
    ids=["none", "passed", "before", "failed", "then failed", "then passed", "nothing expected"],
)
def test_the_last_test_since_a_drain_decides(
    path: Path, results: list[tuple[float, Severity]], passed: bool | None
) -> None:
    ours = memory(path)
    for after, verdict in results:
        ours.add_campaign(campaign(400.0, T0 + after, verdict))
    assert ours.tested_since("n1", T0) is passed
    assert ours.tested_since("n2", T0) is None
    ours.close()


def test_a_run_that_nobody_judged_is_no_pass(path: Path) -> None:
    ours = memory(path)
    ours.tap(finding(node="n1"))
    ours.tap(Sample(node="n1", probe="nccl", device="summary", at=T0 + 9, values={"ok": True}))
    assert ours.tested_since("n1", T0) is None
    ours.close()
    assert rows(path, "SELECT count(*) FROM test") == [(0,)]


def pair(nodes: tuple[str, str], busbw: float | None = None, error: str = "") -> Run:
    state = Progress.FAILED if busbw is None else Progress.DONE
    return Run(
        group=Group(nodes=nodes), round=1, state=state, started_at=T0 + 1, ranks=16,
        engine="torch-nccl", version="2.27", busbw_gb_s=busbw, error=error,
    )  # fmt: skip


def pairs(runs: tuple[Run, ...], *verdicts: Verdict) -> Campaign:
    names = tuple(dict.fromkeys(name for run in runs for name in run.group.nodes))
    told = campaign(1.0, T0 + 1, id="20261130T000000Z-pairs")
    return msgspec.structs.replace(
        told, level=Level.PAIRS, nodes=names, runs=runs, verdicts=verdicts
    )


def word(
    node: str, severity: Severity, say: str, *more: str, kind: str = "node"
) -> Verdict:  # fmt: skip
    return Verdict(
        kind=kind, name=node, nodes=(node, *more), verdict=severity, say=say, expected=388.0,
        confidence=Confidence.CERTAIN,
    )  # fmt: skip


def test_a_failure_of_a_pair_belongs_to_the_node_that_is_named(path: Path) -> None:
    error = "rank 0 (n5, local rank 0) failed with exit status 1"
    ours = memory(path)
    ours.add_campaign(
        pairs(
            (pair(("n5", "n6"), error=error), pair(("n7", "n8"), error=error)),
            word("n5", Severity.CRITICAL, "n5: no run succeeded"),
        )
    )
    assert [ours.tested_since(name, T0) for name in ("n5", "n6", "n7")] == [False, False, False]
    assert ours.close(200)
    query = "SELECT node.name, verdict, say FROM test JOIN node ON node.id = node WHERE what='ran'"
    assert sorted(rows(path, query)) == [
        ("n5", "critical", "n5: no run succeeded"),
        ("n6", "unknown", "not judged: n5+n6 was held up by n5"),
        ("n7", "unknown", f"no figure: {error}"),
        ("n8", "unknown", f"no figure: {error}"),
    ]


def test_a_node_of_an_accused_path_has_not_passed_without_a_word_of_its_own(path: Path) -> None:
    ours = memory(path)
    slow = word("n1-n2", Severity.CRITICAL, "n1-n2: 190 of 388 GB/s", kind="path")
    slow = msgspec.structs.replace(slow, nodes=("n1", "n2"))
    good = word("n2", Severity.OK, "n2: 388 GB/s with n3")
    ours.add_campaign(pairs((pair(("n2", "n3"), 388.0), pair(("n1", "n2"), 190.0)), slow, good))
    assert ours.tested_since("n1", T0) is False
    assert ours.tested_since("n2", T0) is True
    assert ours.tested_since("n3", T0) is True, "it ran, and nothing speaks against it"
    assert ours.close(200)


async def test_an_engine_records_while_it_is_asked_to(tmp_path: Path) -> None:
    nodes = Inventory(nodes=(Node(name="n1"), Node(name="n2")), source="test")
    engine = Engine(nodes, Settings(read_only=True), schedulers={}, state=tmp_path)
    engine.feed(Sample(node="n2", probe="hello", at=T0, values={"boot_id": "before"}))
    async with engine.remembering(settled=True):
        for event in inventory(at=T0):
            engine.feed(event)
        engine.feed(Sample(node="n1", probe="hello", at=T0, values={"boot_id": "b1"}))
        engine.fleet._note(T0, finding())
        engine.memory.acted(
            Plan(verb="drain", nodes=("n1",), reason="xid 79", commands=()),
            Step(node="n1", at=T0, phase="done", ok=True), "mara",
        )  # fmt: skip
    path = engine.memory.path
    assert path == tmp_path / "memory.sqlite"
    assert rows(path, "SELECT boot_id FROM boot") == [("b1",)]
    assert rows(path, "SELECT rule, over FROM finding") == [("xid.79", None)]
    assert rows(path, "SELECT verb, by, reason, ok FROM act") == [("drain", "mara", "xid 79", 1)]


def test_an_acknowledgement_reaches_the_memory(path: Path) -> None:
    fleet = Engine(Inventory(nodes=(Node(name="n1"),)), Settings(), schedulers={}).fleet
    ours = memory(path)
    fleet.taps.append(ours.tap)
    fleet.findings["n1"] = [finding()]
    fleet._note(T0, finding())
    fleet.acknowledge("n1", "xid.79", PCI)
    assert ours.close(200)
    assert rows(path, "SELECT acknowledged IS NOT NULL FROM finding") == [(1,)]


def test_a_fault_of_ours_costs_seconds_and_not_the_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from console.memory import book

    said: list[str] = []
    ours = memory(path, told=said.append)

    def broken(*_: object) -> None:
        raise ValueError("ours")

    with monkeypatch.context() as patched:
        patched.setattr(book.Book, "finding", broken)
        ours.tap(finding("xid.1"))
        ours.flush(60)
        assert len(said) == 1
    ours.tap(finding("xid.2"))
    assert ours.flush(60)
    assert ours.trouble == ""
    assert ours.close(200)
    assert len(said) == 1
    assert rows(path, "SELECT rule FROM finding") == [("xid.2",)]
