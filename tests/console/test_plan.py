"""Plans: never a node that was not asked for, never a foreign drain, never past the cap unseen."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from console import act
from console import plan as planning
from console.audit import Audit
from console.fleet import Fleet
from console.plan_notes import OUT_OF_WORK, timeless
from inventory.errors import ConsoleError, UsageError
from inventory.expressions import expand
from inventory.node import Inventory, Node
from inventory.run import LocalRun
from inventory.scheduler import STATES, Allocation, Job, Plan, Step
from inventory.slurm import Slurm
from probes.event import Finding, Sample, Severity
from probes.rules import load_rules
from probes.sanitise import clean

State = dict[str, Allocation]
NAMES = [f"n{number}" for number in range(1, 13)]
SLURM = {"slurm": Slurm(LocalRun())}
"""The real one: planning only uses its pure part."""


def fleet(allocations: dict[str, Allocation], names: list[str] = NAMES) -> Fleet:
    inventory = Inventory(nodes=tuple(Node(name=name, scheduler="slurm") for name in names))
    made = Fleet(inventory, load_rules())
    for allocation in allocations.values():
        made.apply(allocation)
    return made


def allocation(node: str, state: str = "idle", reason: str = "", jobs: int = 0) -> Allocation:
    return Allocation(
        node=node, at=0.0, scheduler="slurm", state=state, reason=reason,
        jobs=tuple(Job(id=str(n), user="u", nodes=2) for n in range(jobs)),
    )  # fmt: skip


allocations = st.fixed_dictionaries(
    {
        name: st.builds(
            allocation,
            st.just(name),
            st.sampled_from(STATES),
            st.sampled_from(["", "gpuconsole: xid 79", "bad DIMM", "Not responding"]),
            st.integers(0, 2),
        )
        for name in NAMES
    }
)
wanted = st.lists(st.sampled_from([*NAMES, "stranger"]), min_size=1, max_size=12)


@given(allocations, wanted, st.booleans(), st.sampled_from(["drain", "resume"]))
def test_a_plan_accounts_for_every_name_and_no_other(
    state: State, names: list[str], override: bool, verb: str
) -> None:
    plan = planning.plan(verb, names, "why", fleet(state), SLURM, override=override)
    assert set(plan.nodes) | set(plan.refused) == set(names)
    assert not set(plan.nodes) & set(plan.refused)
    assert all(plan.refused.values())
    written = {
        node
        for command in plan.commands
        for word in command
        if word.startswith("NodeName=")
        for node in expand(word.removeprefix("NodeName="))
    }
    assert written == set(plan.nodes)


@given(allocations, wanted, st.sampled_from(["drain", "resume"]))
def test_without_override_nothing_foreign_is_written(
    state: State, names: list[str], verb: str
) -> None:
    plan = planning.plan(verb, names, "why", fleet(state), SLURM, despite_findings=True)
    for name in plan.nodes:
        reason = state[name].reason
        if state[name].state in ("drained", "draining"):
            assert reason.startswith("gpuconsole:")


@given(allocations, wanted)
def test_above_the_cap_the_count_must_be_typed(state: State, names: list[str]) -> None:
    plan = planning.plan("drain", names, "why", fleet(state), SLURM, cap=0.2)
    out = [a for a in state.values() if a.state in OUT_OF_WORK]
    recent = sum(a.reason.startswith("gpuconsole:") for a in out)  # none of them tells when
    known = len(state) - len(out) - sum(a.state == "unknown" for a in state.values())
    if plan.nodes and len(plan.nodes) + recent > max(1, 0.2 * (known + recent)):
        assert plan.confirm_count == len(plan.nodes)
    else:
        assert plan.confirm_count is None


def test_a_drain_needs_a_reason() -> None:
    with pytest.raises(UsageError, match="reason"):
        planning.plan("drain", ["n1"], "  ", fleet({}), SLURM)


def test_a_node_the_scheduler_does_not_mention_is_refused() -> None:
    plan = planning.plan("drain", ["n1"], "why", fleet({}), SLURM)
    assert plan.nodes == ()
    assert "unknown" in plan.refused["n1"]


def test_a_node_without_scheduler_is_refused() -> None:
    plan = planning.plan("drain", ["n1"], "why", fleet({"n1": allocation("n1")}), {})
    assert "no scheduler" in plan.refused["n1"]


def test_a_running_job_is_named_with_its_span() -> None:
    plan = planning.plan(
        "drain", ["n1"], "why", fleet({"n1": allocation("n1", "allocated", jobs=1)}), SLURM
    )
    assert any("1 of 2 nodes of job 0 (u)" in warning for warning in plan.warnings)


def test_a_node_that_never_answered_is_not_resumed() -> None:
    state = {"n1": allocation("n1", "drained", "gpuconsole: xid 79")}
    plan = planning.plan("resume", ["n1"], "", fleet(state), SLURM)
    assert plan.nodes == ()
    assert "still unknown" in plan.refused["n1"]


class Recorder:
    """A scheduler that remembers what it was asked to write, and really changes state."""

    name = "slurm"

    def __init__(self, state: dict[str, Allocation]) -> None:
        self.state = state
        self.written: list[str] = []

    async def allocations(self, names: Sequence[str] | None = None) -> list[Allocation]:
        return [a for n, a in self.state.items() if names is None or n in names]

    def drain_commands(self, names: Sequence[str], reason: str) -> list[tuple[str, ...]]:
        return [("hold", *names)] if names else []

    def resume_commands(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        return [("free", *names)] if names else []

    async def drain(
        self, names: Sequence[str], reason: str, *, override: bool = False
    ) -> AsyncIterator[Step]:
        for name in names:
            self.written.append(name)
            self.state[name] = allocation(name, "drained", f"gpuconsole: {reason}")
            yield Step(node=name, at=1.0, phase="done", ok=True, detail="drained")

    async def resume(self, names: Sequence[str], *, override: bool = False) -> AsyncIterator[Step]:
        for name in names:
            yield Step(node=name, at=1.0, phase="done", ok=True)


def planned(scheduler: Recorder, names: list[str]) -> tuple[Fleet, Plan]:
    made = fleet(dict(scheduler.state))
    return made, planning.plan("drain", names, "why", made, {"slurm": scheduler})


async def executed(
    plan: Plan, made: Fleet, scheduler: Recorder, audit: Audit, typed_count: int | None = None
) -> list[Step]:
    steps = act.execute(
        plan, made, {"slurm": scheduler}, audit, made.apply, typed_count=typed_count
    )
    return [step async for step in steps]


async def test_the_fleet_shows_what_the_scheduler_reports_afterwards(tmp_path: Path) -> None:
    scheduler = Recorder({"n1": allocation("n1")})
    made, plan = planned(scheduler, ["n1"])
    await executed(plan, made, scheduler, Audit(tmp_path / "audit.jsonl"))
    assert made.nodes["n1"].allocation == scheduler.state["n1"]


async def test_intent_outcome_and_reading_are_audited_in_this_order(tmp_path: Path) -> None:
    scheduler = Recorder({"n1": allocation("n1")})
    made, plan = planned(scheduler, ["n1"])
    path = tmp_path / "audit.jsonl"
    await executed(plan, made, scheduler, Audit(path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["what"] for line in lines] == ["intend", "outcome", "reading"]
    assert lines[0]["allocation"]["state"] == "idle"
    assert lines[2]["allocation"]["state"] == "drained"
    assert all(line["who"]["user"] and line["reason"] == "why" for line in lines)
    assert path.stat().st_mode & 0o077 == 0


async def test_nothing_is_done_when_the_audit_cannot_be_written(tmp_path: Path) -> None:
    scheduler = Recorder({"n1": allocation("n1")})
    made, plan = planned(scheduler, ["n1"])
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(ConsoleError, match="nothing was done"):
        await executed(plan, made, scheduler, Audit(tmp_path / "file" / "audit.jsonl"))
    assert scheduler.written == []


@pytest.mark.parametrize("typed", [None, 0, 11, 13])
async def test_the_wrong_count_does_nothing(tmp_path: Path, typed: int | None) -> None:
    scheduler = Recorder({name: allocation(name) for name in NAMES})
    made, plan = planned(scheduler, NAMES)
    assert plan.confirm_count == 12
    with pytest.raises(UsageError, match="12"):
        await executed(plan, made, scheduler, Audit(tmp_path / "a"), typed_count=typed)
    assert scheduler.written == []


async def test_the_right_count_does_it(tmp_path: Path) -> None:
    scheduler = Recorder({name: allocation(name) for name in NAMES})
    made, plan = planned(scheduler, NAMES)
    await executed(plan, made, scheduler, Audit(tmp_path / "a"), typed_count=12)
    assert scheduler.written == NAMES


@given(st.text(min_size=1, max_size=60).filter(lambda text: clean(text).strip()))
def test_a_reason_is_one_argument_whatever_it_holds(reason: str) -> None:
    plan = planning.plan("drain", ["n1"], reason, fleet({"n1": allocation("n1")}), SLURM)
    (command,) = plan.commands
    assert shlex.split(shlex.join(command)) == list(command)
    assert sum(word.startswith("Reason=") for word in command) == 1
    assert command[-1].startswith("Reason=gpuconsole:") or "Reason=gpuconsole:" in command[-1]


def ours(node: str, ago_s: float, by: str = "gpuconsole: xid 79") -> Allocation:
    """Its `reason_at` is seconds from now: this runs while tests are collected; see pool()."""
    return Allocation(
        node=node, at=time.time(), scheduler="slurm", state="drained", reason=by, reason_at=-ago_s
    )


def pool(*out: Allocation) -> Fleet:
    """Twelve nodes: those given, the others idle. A fifth of twelve is two."""
    state = {name: allocation(name) for name in NAMES}
    for one in out:
        at = None if one.reason_at is None else time.time() + one.reason_at
        state[one.node] = structs.replace(one, reason_at=at)
    return fleet(state)


@pytest.mark.parametrize(
    ("out", "asks"),
    [
        ([], False),
        ([ours("n11", 60)], False),
        ([ours("n11", 60), ours("n12", 3000)], True),
        ([ours("n11", 60), ours("n12", 4000)], False),
        ([ours("n11", 60), ours("n12", 60, by="bad DIMM")], False),
        ([ours("n11", 60), ours("n12", -7200)], True),
        ([ours("n11", 60), allocation("n12", "drained", "gpuconsole: xid 79")], True),
        ([ours("n11", 60), *(allocation(f"n{n}", "unknown") for n in range(2, 6))], True),
    ],
    ids=[
        "none",
        "one more",
        "a third within the hour",
        "long ago",
        "somebody else's",
        "a clock that is ahead",
        "a scheduler that does not tell when",
        "unknown is not healthy",
    ],
)
def test_drains_of_the_last_hour_count_whoever_did_them(out: list[Allocation], asks: bool) -> None:
    """The scheduler's own record, so consoles on other bastions count too."""
    plan = planning.plan("drain", ["n1"], "why", pool(*out), SLURM, cap=0.2)
    assert plan.confirm_count == (1 if asks else None)


class Stuck(Recorder):
    """Writes the first node, then never comes back."""

    async def drain(
        self, names: Sequence[str], reason: str, *, override: bool = False
    ) -> AsyncIterator[Step]:
        self.written.append(names[0])
        yield Step(node=names[0], at=1.0, phase="done", ok=True)
        yield Step(node=names[1], at=1.0, phase="check", ok=True)
        await asyncio.Event().wait()


async def test_a_drain_that_is_cut_off_says_for_which_nodes(tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM cancel it; the audit then names each node whose end nobody saw."""
    scheduler = Stuck({name: allocation(name) for name in NAMES})
    made, plan = planned(scheduler, ["n1", "n2", "n3"])
    path = tmp_path / "audit.jsonl"
    checked = asyncio.Event()

    async def drain() -> None:
        steps = act.execute(
            plan, made, {"slurm": scheduler}, Audit(path), made.apply, typed_count=3
        )
        async for step in steps:
            if step.phase == "check":
                checked.set()

    task = asyncio.create_task(drain())
    await checked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    outcomes = {line["node"]: line for line in lines if line["what"] == "outcome"}
    assert outcomes["n1"]["ok"] is True
    assert [outcomes[n]["ok"] for n in ("n2", "n3")] == [False, False]
    assert "interrupted" in outcomes["n3"]["detail"]


def in_partition(node: str, state: str = "idle", *jobs: Job) -> Allocation:
    return Allocation(
        node=node, at=0.0, scheduler="slurm", state=state, partitions=("gpu",), jobs=jobs
    )


def test_the_plan_tells_what_is_left_of_a_partition() -> None:
    state = {f"n{n}": in_partition(f"n{n}") for n in range(1, 5)}
    state["n4"] = in_partition("n4", "down")
    plan = planning.plan("drain", ["n1", "n2"], "why", fleet(state), SLURM)
    assert "partition gpu: 1 of 4 nodes stay in work" in plan.warnings
    plan = planning.plan("drain", ["n1", "n2", "n3"], "why", fleet(state), SLURM)
    assert "partition gpu: 0 of 4 nodes stay in work: none is left" in plan.warnings
    plan = planning.plan("drain", ["n4"], "why", fleet(state), SLURM)
    assert not [text for text in plan.warnings if "partition" in text]


def test_the_plan_tells_when_a_job_ends_and_what_was_found() -> None:
    job = Job(id="7", user="mara", nodes=4, end_at=1_800_000_000.0)
    made = fleet({"n1": in_partition("n1", "allocated", job)})
    made.findings["n1"] = [
        Finding(rule="xid.79", severity=Severity.CRITICAL, node="n1", say="GPU3: Xid 79")
    ]
    plan = planning.plan("drain", ["n1"], "why", made, SLURM)
    assert any("1 of 4 nodes of job 7 (mara)" in w and "at the latest" in w for w in plan.warnings)
    assert "n1: critical: GPU3: Xid 79" in plan.warnings


def test_the_plan_says_when_one_gpu_takes_the_others_along() -> None:
    made = fleet({"n1": in_partition("n1")})
    for index, pci in enumerate(("0000:1b:00.0", "0000:43:00.0", "0000:52:00.0")):
        for probe in ("gpu", "inventory"):
            made.apply(Sample(node="n1", probe=probe, device=pci, at=1.0, values={"index": index}))
    made.findings["n1"] = [
        Finding(rule="remap.failure", severity=Severity.CRITICAL, node="n1", device="0000:43:00.0",
                say="GPU1: row remap failed")
    ]  # fmt: skip
    plan = planning.plan("drain", ["n1"], "why", made, SLURM)
    (told,) = [text for text in plan.warnings if "only GPU1 is at fault" in text]
    assert "2 GPUs go with it" in told
    assert "whole nodes" in told


@pytest.mark.parametrize(
    ("say", "kept"),
    [
        ("GPU3: Xid 79: off the bus, 14 min ago", "GPU3: Xid 79: off the bus"),
        ("GPU1: Xid 31, 2 days ago: no job", "GPU1: Xid 31: no job"),
        ("GPU5 runs 36 % below its 7 peers", "GPU5 runs 36 % below its 7 peers"),
    ],
)
def test_a_reason_stays_true(say: str, kept: str) -> None:
    assert timeless(say) == kept


@pytest.mark.parametrize(
    ("age_s", "override", "done"), [(30, False, True), (700, False, False), (700, True, True)]
)
async def test_a_plan_that_was_left_lying_is_refused(
    tmp_path: Path, age_s: float, override: bool, done: bool
) -> None:
    """Ten minutes later the cluster is another one: nothing is written, nothing audited."""
    scheduler = Recorder({"n1": allocation("n1")})
    made, plan = planned(scheduler, ["n1"])
    plan = structs.replace(plan, at=plan.at - age_s)
    audit = Audit(tmp_path / "audit.jsonl")
    steps = act.execute(plan, made, {"slurm": scheduler}, audit, made.apply, override=override)
    if done:
        assert [step.phase async for step in steps][-1] == "done"
        return
    with pytest.raises(UsageError, match="12 min old; nothing was done"):
        [step async for step in steps]
    assert scheduler.written == []
    assert not audit.path.exists()
