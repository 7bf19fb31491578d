"""The rhythm of training jobs: in the simulated driver, through real probes, and as told."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.demo.cluster import DemoCluster
from console.demo.nvml.rhythm import in_tail, tail_share
from console.demo.rhythm import SLOWED, Rhythm
from console.demo.scenario import Fault, Job, Scenario, load
from console.demo.story import TRAFFIC_BYTES_PER_S, WORD, Story
from console.fleet import Fleet
from console.rings import HISTORY
from console.tui.views.job_figures import Step
from console.tui.views.jobs import JobsTable
from probes.bundle import AgentConfig
from probes.event import Event, Sample
from probes.session import Session
from probes.ssh import connections
from tests.demo.test_default_story import TIMEOUT_S

SPEED = 5.0
"""Story seconds a second: a minute of readings takes twelve."""
NAMES = ("n1", "n2", "n3", "n4", "n5")
JOBS = (
    Job(id="1", user="ann", name="", nodes=("n1", "n2"), load="training", step_s=9.6),
    Job(id="2", user="bob", name="", nodes=("n3",), load="training", step_s=2.4),
    Job(id="3", user="eve", name="", nodes=("n4",), load="inference"),
    Job(id="4", user="dan", name="", nodes=("n5",), load="training"),
)
CLUSTER = Scenario(name="t", seed=5, nodes=NAMES, hardware="h100", jobs=JOBS)


class Watched:
    """A Fleet on the story's clock, and its Jobs view."""

    def __init__(self, demo: DemoCluster) -> None:
        self.news = asyncio.Event()
        self.now = 0.0
        self.fleet = Fleet(demo.inventory, clock=lambda: self.now)
        self.table = JobsTable(lambda: self.fleet)
        self.changed: set[str] = set()

    def apply(self, event: Event) -> None:
        if isinstance(event, Sample):
            event = replace(event, at=event.at * SPEED, clock=event.clock * SPEED)
            self.now = max(self.now, event.at)
        self.fleet.apply(event)
        self.changed.add(event.node)
        if isinstance(event, Sample) and event.probe == "gpu":
            self.news.set()

    def readings(self, node: str) -> int:
        return max(
            (len(self.fleet.history(node, device, "power_w"))
             for device, _ in self.fleet.nodes[node].devices("gpu")), default=0,
        )  # fmt: skip

    def steps(self) -> dict[str, Step | None]:
        """First node of each job -> what the view tells of its step."""
        self.table.estimates.steps.clear()
        for _ in range(2 * len(JOBS)):
            self.table.update(sorted(self.changed), self.now)
        self.changed.clear()
        rows = [self.table.row(key, self.now) for key in self.table.rows(NAMES, self.now)]
        return {row.names[0]: row.step for row in rows}


async def watch(demo: DemoCluster, seen: Watched, least: int) -> dict[str, Step | None]:
    """Until each node gave so many readings and the first job's step is told; then all steps."""
    transport = connections(demo.inventory)
    config = AgentConfig(mode="stream", fast_s=2.0 / SPEED)
    sessions = [
        asyncio.create_task(
            Session(node, transport, replace(config, root=node.root), seen.apply, TIMEOUT_S).run()
        )
        for node in demo.inventory.nodes
    ]
    try:
        async with asyncio.timeout(2 * TIMEOUT_S):
            while True:
                await seen.news.wait()
                seen.news.clear()
                if all(seen.readings(name) >= least for name in NAMES):
                    found = seen.steps()
                    if found[NAMES[0]] is not None:
                        return found
    finally:
        for session in sessions:
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)
        await transport.close()


async def test_real_probes_see_the_step_of_the_story_and_no_other() -> None:
    """Within 5 %: a step of 2.4 s, which readings every 2 s show as one of 12 s, is not told."""
    async with DemoCluster(scenario=CLUSTER, speed=SPEED) as demo:
        found = await watch(demo, Watched(demo), HISTORY // 2)
    step = found["n1"]
    assert step is not None
    assert step.seconds == pytest.approx(9.6, rel=0.05)
    assert [found[name] for name in ("n3", "n4", "n5")] == [None, None, None]


def test_a_slow_gpu_holds_up_its_job_and_no_other() -> None:
    hot = Fault(node="n2", kind="thermal", gpu=1, at_s=100.0, for_s=100.0)
    slow, same = Rhythm(JOBS[0], [hot]), Rhythm(JOBS[1], [])
    assert [slow.every_s(t) for t in (99, 100, 200)] == [9.6, 9.6 * SLOWED, 9.6]
    done = [slow.steps(t) for t in (0, 100, 200, 300)]
    first, second, third = (b - a for a, b in itertools.pairwise(done))
    assert first / second == pytest.approx(SLOWED, rel=0.02)
    assert third == pytest.approx(first, abs=0.1)
    assert same.every_s(150) == 2.4


def test_all_ranks_of_a_job_are_in_the_same_step() -> None:
    story = Story(CLUSTER)
    told = {
        (gpu["step"]["at"], gpu["step"]["every_s"])
        for node in ("n1", "n2")
        for gpu in story.nvml(node, 41.7)["gpus"]
    }
    assert len(told) == 1
    assert all("step" not in gpu for gpu in story.nvml("n4", 41.7)["gpus"])


def test_adapters_send_in_each_step_and_as_much_as_without_rhythm() -> None:
    story = Story(load())
    path = "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"

    def sent(t: float) -> int:
        return int(story.files("gpu007", t)[path] or 0) * WORD

    rates = [sent(t / 2 + 0.5) - sent(t / 2) for t in range(20, 160)]
    assert min(rates) == 0
    assert max(rates) > TRAFFIC_BYTES_PER_S / 2 * 2
    assert max(rates) < 50e9 / 2, "more than a rail of 400 Gb/s carries"
    assert (sent(80.0) - sent(10.0)) / 70.0 == pytest.approx(TRAFFIC_BYTES_PER_S, rel=0.1)


@given(st.floats(0, 1e5), st.floats(0, 50))
def test_the_share_in_tails_is_one_and_adds_up(steps: float, span: float) -> None:
    assert -1e-6 <= tail_share(steps, span) <= 1 + 1e-6
    assert in_tail(steps) <= in_tail(steps + span)
    assert in_tail(steps + 10) - in_tail(steps) == pytest.approx(2.0, abs=1e-6)
