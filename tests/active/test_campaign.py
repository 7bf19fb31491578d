"""A campaign from plan to verdict, on a Fleet that is told everything and a launcher that obeys."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.active import planning, safety, store
from console.active.ask import Asked, CampaignPlan
from console.active.campaign import Campaigner
from console.active.results import (
    Campaign,
    Confidence,
    Group,
    Level,
    Progress,
    Run,
    Verdict,
)
from console.engine import Engine
from console.fleet import Fleet
from console.settings import Settings
from inventory.errors import ConsoleError, SchedulerError, UsageError
from inventory.node import Inventory, Node
from inventory.scheduler import Allocation, Job
from probes.event import NodeState, NodeStatus, Sample, Severity
from tests.tui.synthetic import MemoryScheduler


class Desk(MemoryScheduler):
    """A scheduler whose answers the test writes; it remembers how often it was read."""

    name = "desk"

    def __init__(self, names: Sequence[str]) -> None:
        self.states = dict.fromkeys(names, "idle")
        self.held: dict[str, tuple[Job, ...]] = {}
        self.why: dict[str, str] = {}
        self.reads = 0
        self.broken = ""

    async def allocations(self, names: Sequence[str] | None = None) -> list[Allocation]:
        self.reads += 1
        if self.broken:
            raise SchedulerError(self.broken)
        return [
            Allocation(
                node=name, at=float(self.reads), scheduler=self.name, state=state,
                reason=self.why.get(name, ""), jobs=self.held.get(name, ()),
            )
            for name, state in self.states.items()
        ]  # fmt: skip


class Two:
    """Pairs neighbours in round 1 and the next neighbours in round 2."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = list(nodes)

    def next_round(self, runs: Sequence[Run]) -> list[Group]:
        number = max((run.round for run in runs), default=0)
        if number == 2:
            return []
        turned = self.nodes[number:] + self.nodes[:number]
        return [Group(nodes=tuple(turned[i : i + 2])) for i in range(0, len(turned) - 1, 2)]

    def verdicts(self, runs: Sequence[Run]) -> list[Verdict]:
        bad = {run.group.nodes[0] for run in runs if (run.busbw_gb_s or 100.0) < 50.0}
        return [
            Verdict(
                kind="node", name=name, nodes=(name,), verdict=Severity.CRITICAL,
                confidence=Confidence.LIKELY, say=f"{name}: slow",
            )
            for name in sorted(bad)
        ]  # fmt: skip


class Obedient:
    """Each run is done at once, or when the test says so."""

    def __init__(self) -> None:
        self.measured: list[tuple[str, ...]] = []
        self.under_test: set[str] = set()
        self.most: dict[str, int] = {}
        self.ended: list[tuple[str, ...]] = []
        self.gate: asyncio.Event | None = None
        self.begun, self.third = asyncio.Event(), asyncio.Event()
        self.figure: Callable[[Group], float] = lambda group: 100.0

    def lacking(self, node: Node, asked: Asked) -> str:
        return ""

    async def measure(self, run: Run) -> Run:
        names = set(run.group.nodes)
        assert not names & self.under_test, "a node in two runs at once"
        self.under_test |= names
        for pool in {name[0] for name in self.under_test}:
            count = sum(name[0] == pool for name in self.under_test)
            self.most[pool] = max(self.most.get(pool, 0), count)
        self.measured.append(run.group.nodes)
        self.begun.set()
        if len(self.measured) == 3:
            self.third.set()
        try:
            await (self.gate.wait() if self.gate else asyncio.sleep(0))
        finally:
            self.under_test -= names
            self.ended.append(run.group.nodes)
        return msgspec.structs.replace(
            run, state=Progress.DONE, busbw_gb_s=self.figure(run.group), engine="torch-gloo"
        )


Make = Callable[[int], "Rig"]


class Rig:
    """Nodes a1..aN of one pool, all idle, with live sessions that have read everything."""

    def __init__(self, state: Path, count: int) -> None:
        self.names = [f"a{i}" for i in range(1, count + 1)]
        nodes = tuple(
            Node(name=n, group="a", scheduler="desk", torch_python="python3") for n in self.names
        )
        inventory = Inventory(nodes=nodes)
        self.desk = Desk(self.names)
        self.engine = Engine(
            inventory, Settings(), schedulers={"desk": self.desk}, fleet=Fleet(inventory),
            state=state,
        )  # fmt: skip
        for name in self.names:
            self.engine.feed(NodeStatus(node=name, at=1.0, state=NodeState.UP))
            self.engine.feed(Sample(node=name, probe="inventory", at=1.0, values={"x": 1}))
        self.by = Obedient()

    def ours(self, *names: str) -> None:
        """Drained by us."""
        for name in names:
            self.desk.states[name], self.desk.why[name] = "drained", "gpuconsole: slow"

    async def plan(self, level: Level = Level.PAIRS, **asked: Any) -> CampaignPlan:
        return await planning.plan(
            self.engine, Asked(nodes=tuple(self.names), level=level, **asked)
        )

    def campaign(self, plan: CampaignPlan, kept: store.Kept | None = None) -> Campaigner:
        localiser = Two(plan.willing)
        return Campaigner(self.engine, plan, kept=kept, localiser=localiser, by=self.by)

    @property
    def kept(self) -> store.Kept:
        (found,) = store.listed(self.engine.state / "tests")
        return found


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Rigs in one state directory, whose memories are closed at the end."""
    rigs: list[Rig] = []

    def made(count: int) -> Rig:
        rigs.append(Rig(tmp_path, count))
        return rigs[-1]

    yield made
    for rig in rigs:
        rig.engine.memory.close()


def ended(campaign: Campaign) -> list[Progress]:
    return [run.state for run in campaign.runs]


async def test_at_most_a_fifth_of_the_pool_at_once_and_all_are_run(
    make: Make, tmp_path: Path
) -> None:
    rig = make(20)
    plan = await rig.plan()
    assert (plan.batches, len(plan.counted)) == (5, 20), "10 pairs, two at a time"
    assert any("5 batches" in note for note in plan.notes)
    found = await rig.campaign(plan).run()
    assert ended(found) == [Progress.DONE] * 20
    assert rig.by.most["a"] == 4
    assert not found.interrupted
    assert found.verdict is Severity.OK
    assert rig.kept.campaign == found
    path = tmp_path / "tests" / f"{found.id}.json"
    assert path.stat().st_mode & 0o777 == 0o600


async def test_nodes_that_we_drained_do_not_count(make: Make) -> None:
    rig = make(20)
    rig.ours(*rig.names)
    plan = await rig.plan()
    assert (plan.batches, plan.counted) == (1, ())
    await rig.campaign(plan).run()
    assert rig.by.most["a"] == 20


async def test_busy_and_foreign_nodes_are_left_alone_with_why(make: Make) -> None:
    rig = make(6)
    rig.desk.held["a1"] = (Job(id="812", user="lin"),)
    rig.desk.states["a2"], rig.desk.why["a2"] = "drained", "RMA"
    plan = await rig.plan()
    assert plan.willing == ("a3", "a4", "a5", "a6")
    assert "812" in plan.refused["a1"]
    assert "not by us" in plan.refused["a2"]
    found = await rig.campaign(plan).run()
    assert not {"a1", "a2"} & {name for group in rig.by.measured for name in group}
    assert found.verdict is Severity.UNKNOWN, "two nodes have no figure"
    forced = await rig.plan(force=True)
    assert set(forced.disturbs) == {"a1", "a2"}
    assert forced.counted == ()


async def test_a_node_that_became_busy_is_not_tested(make: Make) -> None:
    rig = make(6)
    plan = await rig.plan()
    rig.desk.states["a3"] = "allocated"
    found = await rig.campaign(plan).run()
    hit = [run for run in found.runs if "a3" in run.group.nodes]
    assert {run.state for run in hit} == {Progress.REFUSED}
    assert all("a3: busy" in run.error for run in hit)
    assert not any("a3" in group for group in rig.by.measured)


async def test_a_drain_that_was_lifted_puts_the_node_back_under_the_cap(make: Make) -> None:
    rig = make(20)
    rig.ours(*rig.names)
    plan = await rig.plan()
    rig.desk.states["a5"] = "idle"
    found = await rig.campaign(plan).run()
    hit = [run for run in found.runs if "a5" in run.group.nodes]
    assert {run.state for run in hit} == {Progress.REFUSED}


async def test_a_scheduler_that_falls_silent_stops_new_runs(make: Make) -> None:
    rig = make(6)
    plan = await rig.plan()
    rig.desk.broken = "no answer"
    found = await rig.campaign(plan).run()
    assert set(ended(found)) == {Progress.REFUSED}
    assert rig.by.measured == []


async def test_a_job_that_comes_has_the_right_of_way(make: Make) -> None:
    rig = make(4)
    plan = await rig.plan()
    rig.by.gate = asyncio.Event()
    task = asyncio.create_task(rig.campaign(plan).run())
    await rig.by.begun.wait()
    first = rig.by.measured[0]
    rig.engine.feed(
        Allocation(
            node=first[1], at=9.0, scheduler="desk", state="allocated", jobs=(Job(id="812"),)
        )
    )
    rig.by.gate.set()
    found = await task
    (run,) = [run for run in found.runs if run.group.nodes == first and run.round == 1]
    assert run.state is Progress.CANCELLED
    assert "812" in run.error
    assert not found.interrupted
    assert Progress.DONE in ended(found), "the others went on"


async def test_interrupted_and_resumed_it_runs_the_rest_and_nothing_twice(
    make: Make, tmp_path: Path
) -> None:
    rig = make(8)
    plan = await rig.plan()
    rig.by.gate = asyncio.Event()
    campaigner = rig.campaign(plan)

    def second_begins(campaign: Campaign) -> None:
        done = ended(campaign).count(Progress.DONE)
        if done == 2 and rig.by.gate is not None:
            rig.by.gate.clear()
        elif not done:
            rig.by.gate.set()  # type: ignore[union-attr]

    campaigner.subscribe(second_begins)
    task = asyncio.create_task(campaigner.run())
    await rig.by.third.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.by.ended == rig.by.measured, "what ran was ended"
    kept = store.load(tmp_path / "tests", "last")
    assert kept.campaign.interrupted
    assert ended(kept.campaign).count(Progress.DONE) == 2
    assert Progress.CANCELLED in ended(kept.campaign)
    assert Progress.WAITING in ended(kept.campaign)

    before, rig.by = rig.by.measured[:2], Obedient()
    plan = await planning.plan(rig.engine, kept.asked, kept)
    assert plan.id == kept.campaign.id
    found = await rig.campaign(plan, kept).run()
    assert ended(found) == [Progress.DONE] * 8
    assert not found.interrupted
    assert len(rig.by.measured) == 6
    assert not set(before) & set(rig.by.measured[:2])
    with pytest.raises(UsageError, match="interrupted"):
        store.load(tmp_path / "tests", "last")


async def test_stop_returns_what_there_is(make: Make) -> None:
    rig = make(4)
    plan = await rig.plan()
    rig.by.gate = asyncio.Event()
    campaigner = rig.campaign(plan)
    task = asyncio.create_task(campaigner.run())
    await rig.by.begun.wait()
    campaigner.stop()
    found = await task
    assert found.interrupted
    assert rig.kept.campaign.interrupted


async def test_the_campaign_has_a_limit_of_its_own(make: Make) -> None:
    rig = make(4)
    plan = msgspec.structs.replace(await rig.plan(), at_most_s=0.05)
    rig.by.gate = asyncio.Event()
    found = await rig.campaign(plan).run()
    assert found.interrupted
    assert any("limit" in run.error for run in found.runs)


async def test_two_campaigns_at_once_are_not_possible(make: Make) -> None:
    rig = make(4)
    rig.by.gate = asyncio.Event()
    task = asyncio.create_task(rig.campaign(await rig.plan()).run())
    await rig.by.begun.wait()
    other = make(4)
    with pytest.raises(UsageError, match="runs already"):
        await other.campaign(await other.plan()).run()
    rig.by.gate.set()
    await task


async def test_bad_nodes_are_proposed_and_put_on_record(make: Make, tmp_path: Path) -> None:
    rig = make(4)
    rig.by.figure = lambda group: 20.0 if "a2" in group.nodes else 100.0
    found = await rig.campaign(await rig.plan()).run()
    assert found.verdict is Severity.CRITICAL
    assert found.drain == "a[1-2]"
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    told = [msgspec.json.decode(line) for line in lines]
    assert [line["what"] for line in told] == ["intend"] * 4 + ["outcome"] * 4
    assert {line["verb"] for line in told} == {"test"}
    assert any("slow" in line.get("detail", "") for line in told if line["node"] == "a2")


async def test_read_only_and_unknown_nodes_are_usage_errors(make: Make) -> None:
    rig = make(4)
    with pytest.raises(UsageError, match="a9"):
        await planning.plan(rig.engine, Asked(nodes=("a9",), level=Level.NODE))
    rig.engine.settings = Settings(read_only=True)
    with pytest.raises(UsageError, match="read-only"):
        await rig.plan()


async def test_a_whole_cluster_in_service_is_not_tested_at_once(make: Make) -> None:
    rig = make(20)
    plan = await rig.plan(Level.CLUSTER)
    assert plan.willing == ()
    assert "20%" in plan.refused["a1"]
    rig.ours(*rig.names)
    assert len((await rig.plan(Level.CLUSTER)).willing) == 20
    assert safety.pools(rig.engine.inventory.nodes) == {"a": 4}


def test_strange_files_are_no_campaigns(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "20261129T235900Z-pairs.json").write_text("{")
    (folder / "notes.txt").write_text("x")
    assert store.listed(folder) == []
    for name in ("../../etc/passwd", "20261129T235900Z-pairs", "20261129T235901Z-pairs", "last"):
        with pytest.raises(UsageError):
            store.load(folder, name)


async def test_a_campaign_of_another_version_is_not_gone_on_with(make: Make) -> None:
    """Its verdicts may mean something else; that it looks alike is not enough."""
    rig = make(4)
    await rig.campaign(await rig.plan()).run()
    folder, name = rig.engine.state / "tests", rig.kept.campaign.id
    path = folder / f"{name}.json"
    newer = path.read_bytes().replace(b'"schema":1', b'"schema":2', 1)
    assert newer != path.read_bytes()
    path.write_bytes(newer)
    with pytest.raises(UsageError, match="schema 2"):
        store.load(folder, name)
    assert store.listed(folder) == []


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Nothing can be written to any file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_on_a_full_disk_the_lock_still_holds(tmp_path: Path) -> None:
    two = store.alone(tmp_path, "two")
    with full_disk(), store.alone(tmp_path, "one"), pytest.raises(UsageError, match="runs already"):
        two.__enter__()


async def test_on_a_full_disk_nothing_begins_that_cannot_be_on_record(make: Make) -> None:
    rig = make(4)
    plan = await rig.plan()
    with full_disk(), pytest.raises(ConsoleError, match="audit file"):
        await rig.campaign(plan).run()
    assert rig.by.measured == []
