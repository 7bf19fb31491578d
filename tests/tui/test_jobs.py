"""Jobs: who is where, in which layer the trouble sits, order, folding, what it uses."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.fleet import Fleet
from console.tui.screens.jobs import JobsScreen
from console.tui.theme import ASCII, UNICODE, Depth, Look
from console.tui.views.job_cells import ranks, watts
from console.tui.views.job_layers import LAYERS, Facts, Layer, layers, own_verdict, summary
from console.tui.views.job_shares import IDLE, NOBODY, Share, shares
from console.tui.views.jobs import ENDS, SEPARATOR, JobsTable, about
from inventory.errors import UsageError
from inventory.scheduler import Allocation, Job
from probes.event import Event, Finding, NodeState, NodeStatus, Row, Sample, Scalar, Severity
from probes.ranks_motion import Motion
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.synthetic import NOW, pci
from tests.tui.test_goldens import SIZES, _utc, compare, settled

__all__ = ["_utc"]
TRAIN = Job(id="812", user="alice", name="train", nodes=2, start_at=NOW - 7200)


def fleet(count: int = 4, at: float = NOW) -> Fleet:
    return Fleet(synthetic.inventory(count), clock=lambda: at)


def allocated(node: str, *jobs: Job, state: str = "", at: float = NOW) -> Allocation:
    state = state or ("allocated" if jobs else "idle")
    return Allocation(node=node, at=at, scheduler="slurm", state=state, jobs=jobs)


def processes(node: str, *rows: Row, at: float = NOW) -> Sample:
    return Sample(node=node, probe="processes", at=at, rows=list(rows))


def row(gpu: int, **more: Any) -> Row:
    return {"gpu": pci(gpu), "pid": 100 + gpu, "user": "alice", "alive": True, **more}


def seen(one: Fleet, node: str, *events: Event) -> list[Share]:
    for event in events:
        one.apply(event)
    return shares(one.nodes[node])


def finding(
    rule: str, node: str = "gpu001", severity: Severity = Severity.WARN, say: str = "x"
) -> Finding:
    return Finding(rule=rule, severity=severity, node=node, say=say)


def table(one: Fleet) -> JobsTable:
    made = JobsTable(lambda: one)
    made.update(list(one.nodes), NOW)
    return made


# ------------------------------------------------------------------ who is where


def test_the_job_of_a_node_has_all_of_its_gpus() -> None:
    one = fleet()
    for event in synthetic.fast("gpu001", NOW):
        one.apply(event)
    (share,) = seen(one, "gpu001", allocated("gpu001", TRAIN), processes("gpu001", row(0, rank=8)))
    assert share.devices == tuple(pci(i) for i in range(8))
    assert (share.key, share.user, share.ranks) == ("job slurm 812", "alice", (8,))


def test_an_array_job_goes_by_both_of_its_names() -> None:
    """squeue calls it 7_3; its processes know the job's own number."""
    array = msgspec.structs.replace(TRAIN, id="7_3")
    (share,) = seen(fleet(), "gpu001", allocated("gpu001", array),
                    processes("gpu001", row(0, job="90210")))  # fmt: skip
    assert share.names == {"7_3", "90210"}


def test_several_jobs_share_a_node_by_their_processes() -> None:
    other = Job(id="813", user="bob")
    found = seen(fleet(), "gpu001", allocated("gpu001", TRAIN, other, state="mixed"),
                 processes("gpu001", row(0, job="812"), row(1, job="812"), row(2)))  # fmt: skip
    assert [(s.job and s.job.id, s.devices) for s in found] == [
        ("812", (pci(0), pci(1))), ("813", ()),
    ]  # fmt: skip


def test_without_a_scheduler_by_job_then_by_owner() -> None:
    found = seen(fleet(), "gpu001", processes(
        "gpu001", row(0, job="5"), row(1, user="bob"), row(2, user="bob"), row(3, alive=False),
        row(4, ours=True), {"gpu": pci(5), "pid": 9},
    ))  # fmt: skip
    assert {(s.key, s.user, len(s.devices)) for s in found} == {
        ("job  5", "alice", 1), ("user bob", "bob", 2), ("user ?", "", 1),
    }  # fmt: skip
    assert all(share.job is None for share in found)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("idle", [NOBODY]), ("drained", [NOBODY]), ("down", [NOBODY]), ("allocated", []),
     ("mixed", []), ("draining", [])],
)  # fmt: skip
def test_busy_without_a_job(state: str, expected: list[str]) -> None:
    """A node that the scheduler calls busy has jobs that the site hides from us."""
    found = seen(fleet(), "gpu001", allocated("gpu001", state=state), processes("gpu001", row(0)))
    assert [share.key for share in found] == expected


NODES = st.integers(0, 3)
MOVES = st.lists(st.tuples(NODES, st.sets(st.sampled_from("abc"), max_size=2)), max_size=25)


@given(MOVES, st.booleans())
def test_members_follow_whatever_is_told(moves: list[tuple[int, set[str]]], at_once: bool) -> None:
    """The same as if all had been read for the first time now."""
    one = fleet()
    names = list(one.nodes)
    made = table(one)
    for index, jobs in moves:
        name = names[index]
        held = tuple(Job(id=job) for job in sorted(jobs))
        one.apply(allocated(name, *held, state="mixed" if held else "idle"))
        made.update([name] if not at_once else names, NOW)
    fresh = table(one)
    assert made.members == fresh.members
    assert all(list(m) == sorted(m) for m in made.members.values()), "in natural order"
    wanted = {}
    for index, jobs in moves:
        wanted[names[index]] = {f"job slurm {job}" for job in jobs}
    told = {name: {k for k, m in made.members.items() if name in m} for name in wanted}
    assert told == wanted


# ------------------------------------------------------------------ order and folding


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(list(Severity))), min_size=1,
             max_size=8),
    st.sets(st.integers(0, 7)), st.sampled_from(["worst", "largest", "longest"]),
)  # fmt: skip
def test_each_job_once_its_nodes_below_it(
    given_nodes: list[tuple[str, Severity]], opened: set[int], order: str
) -> None:
    one = fleet(8)
    names = list(one.nodes)
    for name, (job, severity) in zip(names, given_nodes, strict=False):
        one.apply(allocated(name, Job(id=job, start_at=NOW - ord(job))))
        one._verdicts[name] = severity
    one.apply(allocated("gpu008"))
    one.apply(processes("gpu008", row(0)))
    made = table(one)
    made.sort_by(order)
    for index in opened:
        key = f"job slurm {given_nodes[index % len(given_nodes)][0]}"
        made.toggle(key)
    rows = made.rows(names, NOW)
    assert len(rows) == len(set(rows))
    heads = [key for key in rows if SEPARATOR not in key]
    assert set(heads) == set(made.members)
    assert [key for key in heads if key in ENDS] == [k for k in ENDS if k in made.members]
    assert heads[-1] == NOBODY or NOBODY not in heads
    head = ""
    below: dict[str, set[str]] = {}
    for key in rows:
        if SEPARATOR not in key:
            head = key
        else:
            assert key.partition(SEPARATOR)[0] == head
            below.setdefault(head, set()).add(key.partition(SEPARATOR)[2])
    for key, inside in below.items():
        assert inside == set(made.members[key])
    if order == "worst":
        severities = [made.severity(key).rank for key in heads if key not in ENDS]
        assert severities == sorted(severities, reverse=True)


def test_the_filter_shows_jobs_with_a_node_that_is_shown() -> None:
    one = fleet()
    one.apply(allocated("gpu001", TRAIN))
    one.apply(allocated("gpu002", TRAIN))
    one.apply(allocated("gpu003", Job(id="9")))
    made = table(one)
    assert made.rows(["gpu002"], NOW) == ["job slurm 812"]
    assert made.nodes("job slurm 812") == ("gpu001", "gpu002"), "whole, whatever is shown of it"
    assert made.rows(["gpu004"], NOW) == []
    with pytest.raises(UsageError, match="worst largest longest"):
        made.sort_by("best")


# ------------------------------------------------------------------ layers


def facts(**more: Any) -> Facts:
    share = Share(key="k", job=TRAIN, user="", devices=(pci(0),), names=frozenset({"812"}))
    told: dict[str, Any] = {
        "job": msgspec.structs.replace(TRAIN, nodes=1), "shares": [share],
        "allocations": [allocated("gpu001", TRAIN)], "verdicts": [Severity.OK], "findings": [],
        "motion": None, "tells_steps": False, "idle_w": 0.0, **more,
    }  # fmt: skip
    return Facts(**told)


def test_what_is_not_measured_is_unknown_never_ok() -> None:
    found = layers(facts(job=None, verdicts=[Severity.UNKNOWN]), NOW)
    assert list(found) == list(LAYERS)
    assert {name: layer.severity for name, layer in found.items()} == dict.fromkeys(
        LAYERS, Severity.UNKNOWN
    )


@pytest.mark.parametrize(
    ("more", "layer", "severity"),
    [
        ({}, "job", Severity.OK),
        ({"allocations": [allocated("gpu001", TRAIN, state="down")]}, "job", Severity.CRITICAL),
        ({"allocations": [allocated("gpu001", TRAIN, state="draining")]}, "job", Severity.INFO),
        ({"job": Job(id="1", end_at=NOW - 1)}, "job", Severity.WARN),
        ({"idle_w": 640.0}, "job", Severity.WARN),
        ({"findings": [finding("container.cdi")]}, "pod", Severity.WARN),
        ({"verdicts": [Severity.CRITICAL]}, "node", Severity.CRITICAL),
        ({"job": Job(id="1", nodes=3)}, "node", Severity.UNKNOWN),
        ({"motion": Motion.MOVES}, "rank", Severity.OK),
        ({"motion": Motion.LATE}, "rank", Severity.INFO),
        ({"motion": Motion.STILL}, "rank", Severity.UNKNOWN),
        ({"findings": [finding("job.hang", severity=Severity.CRITICAL)]}, "rank",
         Severity.CRITICAL),
        ({"motion": Motion.MOVES, "findings": [finding("job.late_rank")]}, "rank", Severity.WARN),
        ({"tells_steps": True}, "step", Severity.OK),
        ({"findings": [finding("job.slow_step")]}, "step", Severity.WARN),
    ],
)  # fmt: skip
def test_a_layer(more: dict[str, Any], layer: str, severity: Severity) -> None:
    assert layers(facts(**more), NOW)[layer].severity is severity


def test_a_node_that_only_waits_for_its_job_is_not_the_trouble() -> None:
    late = finding("job.late_rank")
    assert own_verdict(Severity.WARN, [late]) is Severity.OK
    assert own_verdict(Severity.WARN, [late, finding("ib.rate")]) is Severity.WARN
    assert own_verdict(Severity.UNKNOWN, [late]) is Severity.UNKNOWN
    assert own_verdict(Severity.CRITICAL, [finding("gpu.lost")]) is Severity.CRITICAL


LAYER = st.builds(Layer, st.sampled_from(list(Severity)), st.just(""), st.booleans())


@given(st.tuples(LAYER, LAYER, LAYER, LAYER, LAYER))
def test_the_narrow_word_names_the_worst_layer(told: tuple[Layer, ...]) -> None:
    found = dict(zip(LAYERS, told, strict=True))
    text, style = summary(found, UNICODE)
    known = [layer for layer in told if layer.measured]
    worst = max((layer.severity.rank for layer in known), default=None)
    if worst is None:
        assert text == "–"
    elif worst == 0:
        assert text == f"✓ {len(known)}/5"
    else:
        assert found[text[2:]].severity.rank == worst
        assert style == found[text[2:]].severity.value
    assert len(text) <= 6


def test_whose_finding_it_is() -> None:
    mine = Share(key="k", job=TRAIN, user="", devices=(), names=frozenset({"812", "90210"}))
    told = {
        "job 812 stands for 140 s: rank 17": True, "steps of job 90210 take 1.2 times": True,
        "job 813 waits for rank 1: behind": False, "a job stands for 99 s": True,
    }  # fmt: skip
    for say, expected in told.items():
        assert about(finding("job.hang", say=say), mine) is expected, say
    assert not about(finding("gpu.lost", say="job 812"), mine)


# ------------------------------------------------------------------ figures


def cells(made: JobsTable, key: str, width: int = 220) -> dict[str, str]:
    columns = made.columns(width)
    told = made.cells(key, columns, UNICODE, NOW)
    assert all(len(cell.text) == c.width for cell, c in zip(told, columns, strict=True))
    return {c.name: cell.text.strip() for cell, c in zip(told, columns, strict=True)}


def busy(one: Fleet, *nodes: str, at: float = NOW, job: Job = TRAIN) -> None:
    for name in nodes:
        for event in (*synthetic.slow(name, at), *synthetic.fast(name, at)):
            one.apply(event)
        one.apply(allocated(name, job))


def test_sums_are_of_fresh_readings_only() -> None:
    one = fleet()
    busy(one, "gpu001")
    busy(one, "gpu002", at=NOW - 60)
    told = cells(table(one), "job slurm 812")
    assert (told["gpus"], told["util"], told["power"]) == ("8/16", "98%", "5.1kW")
    assert (told["since"], told["left"], told["step"]) == ("2h", "–", "–")
    assert told["idle"] == "–", "not known of both nodes"


def test_readings_of_nodes_gone_are_no_present_ones() -> None:
    one = fleet()
    busy(one, "gpu001")
    one.apply(NodeStatus(node="gpu001", at=NOW, state=NodeState.UNREACHABLE))
    told = cells(table(one), "job slurm 812")
    assert (told["gpus"], told["util"], told["power"]) == ("0/8", "–", "–")


@pytest.mark.parametrize(
    ("step_s", "gap", "counts", "shown"),
    [(14.0, 0, True, True), (14.0, 30, True, False), (14.0, 0, False, False),
     (2.4, 0, True, False), (1.8, 0, True, False)],
)  # fmt: skip
def test_a_step_is_estimated_from_power_with_its_confidence(
    step_s: float, gap: int, counts: bool, shown: bool
) -> None:
    """Not with a gap, and not where it may be a faster one: without an energy counter it may."""
    one, turn = fleet(), 2 * math.pi / step_s
    one.apply(NodeStatus(node="gpu001", at=NOW - 199, state=NodeState.UP))
    one.apply(allocated("gpu001", TRAIN))
    for number in range(60):
        at = 2.0 * number - 118 - (gap if number < 30 else 0)
        power = 500 + 150 * math.sin(turn * at)
        energy_j = 500 * (at + 900) - 150 / turn * math.cos(turn * at)
        values: dict[str, Scalar] = {"power_w": power}
        if counts:
            values["energy_mj"] = int(1000 * energy_j)
        one.apply(Sample(node="gpu001", probe="gpu", device=pci(0), at=NOW + at, clock=at + 900,
                         values=values))  # fmt: skip
    told = cells(table(one), "job slurm 812")
    if not shown:
        assert (told["step"], told["sure"]) == ("–", "–")
    else:
        assert float(told["step"].removeprefix("~").rstrip("s")) == pytest.approx(14, rel=0.05)
        assert told["step"].startswith("~"), "marked as an estimate"
        assert 0.9 <= float(told["sure"]) <= 1


def test_a_step_that_the_job_tells_is_no_estimate() -> None:
    one = fleet()
    busy(one, "gpu001", "gpu002")
    for number in range(3):
        one.apply(Sample(node="gpu001", probe="steps", at=NOW - 30 + number, clock=number, rows=[
            {"job": "812", "rank": "0", "step": number, "t_total": 1.31, "age_s": 0.0}
        ]))  # fmt: skip
    told = cells(table(one), "job slurm 812")
    assert (told["step"], told["sure"], told["told"]) == ("1.31s", "told", "28s")


def idle(one: Fleet, name: str) -> None:
    for i in range(8):
        values = {**synthetic.gpu_values(i), "util_percent": 0, "idle_s": 900.0, "power_w": 80.0}
        one.apply(Sample(node=name, probe="gpu", device=pci(i), at=NOW, values=values))


def test_idle_burn_is_shown_and_has_a_row_at_the_end() -> None:
    one = fleet()
    busy(one, "gpu001", job=msgspec.structs.replace(TRAIN, nodes=1))
    busy(one, "gpu002", job=Job(id="900"))
    idle(one, "gpu001")
    one._verdicts.update(dict.fromkeys(one.nodes, Severity.OK))
    made = table(one)
    rows = made.rows(list(one.nodes), NOW)
    assert rows == ["job slurm 812", "job slurm 900", IDLE], "what burns before what is well"
    told = cells(made, "job slurm 812")
    assert (told["idle"], told["layer job"]) == ("640W", "! warn")
    assert "8 GPUs idle for 10 min, 640W (estimate)" in told["trouble"]
    assert cells(made, "job slurm 900")["idle"] == "0W", "known to be none"
    end = cells(made, IDLE)
    assert (end["job"], end["verdict"], end["nodes"]) == ("› idle", "i info", "gpu001")
    assert "8 GPUs idle in jobs" in made.headline()
    for event in synthetic.fast("gpu001", NOW + 60):
        one.apply(event)
    made.update((), NOW + 60)
    assert IDLE not in made.rows(list(one.nodes), NOW + 60)


def test_watts_fit_six_cells_and_say_their_unit() -> None:
    told = {None: "–", 0.0: "0W", 999.4: "999W", 5600: "5.6kW", 99_960: "100kW", 2.1e6: "2.1MW"}
    for value, text in told.items():
        assert watts(value) == text
        assert len(text) <= 6


def test_ranks_in_words() -> None:
    share = Share(key="k", job=None, user="", devices=())
    told: dict[tuple[int, ...], str] = {
        (): "–", (3,): "rank 3", (8, 9, 10): "ranks 8-10", (8, 10): "2 ranks",
    }  # fmt: skip
    for numbers, text in told.items():
        assert ranks(msgspec.structs.replace(share, ranks=numbers)) == text


def test_hostile_words_move_no_cursor() -> None:
    one = fleet(1)
    bad = "\x1b[2J\r\n\u202e"
    one.apply(allocated("gpu001", Job(id=bad, user=bad, name=bad, partition=bad)))
    one.apply(processes("gpu001", {"gpu": bad, "user": bad, "job": bad, "rank": bad, "pid": 1}))
    one.findings["gpu001"] = [finding("job.hang", say=bad)]
    made = table(one)
    for key in [*made.members, f"{next(iter(made.members))}{SEPARATOR}gpu001"]:
        for width in (60, 80, 220):
            told = made.cells(key, made.columns(width), UNICODE, NOW)
            text = "".join(cell.text for cell in (*told, *made.why(key, UNICODE, width)))
            assert text.isprintable()


# ------------------------------------------------------------------ the screen


async def opened(c: Console) -> JobsScreen:
    await c.press("6")
    await c.until(lambda: isinstance(c.app.screen, JobsScreen))
    screen = c.app.screen
    assert isinstance(screen, JobsScreen)
    await c.tick()
    await c.until(lambda: bool(screen.grid.order))
    return screen


async def test_enter_unfolds_and_opens(console: Opener) -> None:
    async with console() as c:
        screen = await opened(c)
        await c.press("enter")
        assert [key.rpartition(SEPARATOR)[2] for key in screen.grid.order[1:5]] == [
            "gpu017", "gpu018", "gpu019", "gpu020",
        ]  # fmt: skip
        await c.press("j", "j", "enter")
        assert getattr(c.app.screen, "node", "") == "gpu018"
        await c.press("escape")
        assert c.app.screen is screen
        await c.press("g", "enter")
        assert screen.grid.order == ["job memory 812", NOBODY]


async def test_the_filter_and_marks_are_those_of_all_views(console: Opener) -> None:
    async with console() as c:
        screen = await opened(c)
        await c.press("space")
        assert c.app.roster.marked == {"gpu017", "gpu018", "gpu019", "gpu020"}
        await c.type("/node:gpu001")
        await c.press("enter")
        assert screen.grid.order == [NOBODY]


async def test_without_a_scheduler_it_says_so(console: Opener) -> None:
    async with console(nodes=4) as c:
        for facts_ in c.app.fleet.nodes.values():
            facts_.allocation = None
        await opened(c)
        assert "no scheduler: 1 by their processes" in c.text


@pytest.mark.parametrize("size", SIZES)
async def test_golden(console: Opener, size: str) -> None:
    async with console(size=SIZES[size]) as c:
        await opened(c)
        await c.tick()
        compare(f"jobs_{size}", await settled(c, ("enter",)))


async def test_golden_ascii(console: Opener) -> None:
    async with console(size=(80, 24), look=Look(ASCII, Depth(16))) as c:
        await opened(c)
        await c.tick()
        text = await settled(c, ("enter",))
    assert text.isascii()
    compare("jobs_ascii", text)
