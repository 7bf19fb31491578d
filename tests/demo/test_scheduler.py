"""The embedded scheduler: draining, drained, resume, and other people's drains."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from console.demo.scenario import Drain, Job, Scenario
from console.demo.scheduler import DemoScheduler
from inventory.scheduler import MARKER, STATES, Allocation, Scheduler, Step


class Clock:
    """Story time that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scheduler(clock: Clock) -> DemoScheduler:
    scenario = Scenario(
        name="test", seed=1, nodes=("a1", "a2", "a3", "a4"), hardware="h100",
        jobs=(Job(id="5", user="ann", name="run", nodes=("a1", "a2"), load="training", for_s=30),),
        drains=(Drain(node="a4", reason="RMA 12", by="dcops"),),
    )  # fmt: skip
    return DemoScheduler(scenario, clock)


async def state(scheduler: DemoScheduler, name: str) -> Allocation:
    [found] = await scheduler.allocations([name])
    assert found.state in STATES
    return found


async def steps(source: AsyncIterator[Step]) -> list[Step]:
    return [step async for step in source]


async def test_it_is_a_scheduler_and_reports_every_node(scheduler: DemoScheduler) -> None:
    protocol: Scheduler = scheduler
    found = {a.node: a for a in await protocol.allocations()}
    assert {n: a.state for n, a in found.items()} == {
        "a1": "allocated", "a2": "allocated", "a3": "idle", "a4": "drained",
    }  # fmt: skip
    assert found["a1"].jobs[0].nodes == 2
    assert (found["a4"].reason_by, found["a4"].ours) == ("dcops", False)


async def test_a_busy_node_drains_when_its_job_ends(scheduler: DemoScheduler, clock: Clock) -> None:
    done = await steps(scheduler.drain(["a1"], "Xid 79 GPU4"))
    assert [(s.phase, s.ok) for s in done][-1] == ("done", True)
    assert done[0].command == scheduler.drain_commands(["a1"], "Xid 79 GPU4")[0]
    busy = await state(scheduler, "a1")
    assert (busy.state, busy.ours, busy.reason) == ("draining", True, f"{MARKER} Xid 79 GPU4")
    clock.now = 30.0
    assert (await state(scheduler, "a1")).state == "drained"
    assert (await state(scheduler, "a2")).state == "idle"


async def test_resume_undoes_our_drain_only(scheduler: DemoScheduler) -> None:
    await steps(scheduler.drain(["a3"], "look"))
    done = await steps(scheduler.resume(["a3", "a4", "a2", "zz"]))
    last = {s.node: (s.phase, s.ok) for s in done}
    assert last == {
        "a3": ("done", True),
        "a4": ("refused", False),
        "a2": ("refused", False),
        "zz": ("refused", False),
    }
    assert (await state(scheduler, "a3")).state == "idle"
    assert (await state(scheduler, "a4")).reason == "RMA 12"


async def test_a_foreign_reason_is_overwritten_only_with_override(
    scheduler: DemoScheduler,
) -> None:
    [refusal] = await steps(scheduler.drain(["a4"], "mine"))
    assert (refusal.phase, refusal.ok) == ("refused", False)
    assert "dcops" in refusal.detail
    await steps(scheduler.drain(["a4"], "mine", override=True))
    assert (await state(scheduler, "a4")).ours
    await steps(scheduler.resume(["a4"]))
    assert (await state(scheduler, "a4")).state == "idle"


async def test_no_job_starts_on_a_drained_node(clock: Clock) -> None:
    later = Job(id="6", user="bob", name="", nodes=("b1",), load="training", at_s=10)
    scenario = Scenario(name="t", seed=1, nodes=("b1",), hardware="h100", jobs=(later,))
    scheduler = DemoScheduler(scenario, clock)
    await steps(scheduler.drain(["b1"], "look"))
    clock.now = 5.0
    assert (await state(scheduler, "b1")).state == "drained"
