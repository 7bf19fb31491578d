"""Jobs of the story offer a RAS port, and the rank that one of them waits for is found."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from console.demo import ranks
from console.demo.cluster import DemoCluster
from console.demo.scenario import load
from console.demo.story import Story
from probes.bundle import AgentConfig
from probes.event import Event, Sample
from probes.jobs_seen import Jobs
from probes.node.ras_read import Reader
from probes.node.ras_rows import rows
from probes.ranks_motion import Limits, Motion, verdicts
from probes.rules import load_rules
from probes.session import Session
from probes.ssh import connections

WAITS = ("gpu009", "gpu010")


def motions(seconds: int) -> dict[str, Motion]:
    """What is said of each job after so many seconds of the story."""
    story, jobs = Story(load(None)), Jobs()
    for t in range(1, seconds, 12):
        for node in story.scenario.nodes:
            reader, own = Reader(), ranks.address(story, node)
            reader.feed(ranks.status(story, node, float(t)))
            reader.end()
            job = story.job(node, float(t))
            answer = {"job": job.id if job else "", "took_s": reader.took_s or 0.0}
            told: list[dict[str, Any]] = [{"kind": "address", "host": own}]
            told += [{**row, **answer} for row in rows(reader.comms, {own}, {})]
            jobs.add(Sample(node=node, probe="ras", at=1e9 + t, rows=told))
    found = verdicts(jobs.polls, Limits.of(load_rules()), 1e9 + seconds)
    return {one.job: one.motion for one in found}


def test_the_waiting_job_waits_and_the_training_ones_do_not() -> None:
    assert motions(90) == {
        "48211": Motion.MOVES, "48230": Motion.MOVES, "48177": Motion.LATE,
    }  # fmt: skip


def test_the_answer_is_pure_and_names_every_rank_once() -> None:
    story = Story(load(None))
    first, second = (ranks.status(story, name, 20.0) for name in WAITS)
    assert first == second == ranks.status(Story(load(None)), "gpu010", 20.0)
    told = json.loads(first)["communicators"][0]["ranks"]
    assert [one["rank"] for one in told] == list(range(16))
    assert len({(one["host"], one["pid"]) for one in told}) == 16
    assert ranks.status(story, "gpu011", 20.0) == b"", "inference has no ranks"
    assert ranks.status(story, "gpu015", 20.0) == b"", "idle"


async def test_an_agent_on_a_node_reads_it(tmp_path: object) -> None:
    async with DemoCluster() as demo:
        node = next(node for node in demo.inventory.nodes if node.name == "gpu010")
        seen: list[Event] = []
        transport = connections(demo.inventory)
        try:
            config = AgentConfig(mode="pass", root=node.root, probes=["processes", "ras"])
            await asyncio.wait_for(Session(node, transport, config, seen.append, 60.0).run(), 200)
        finally:
            await transport.close()
    (told,) = [s for s in seen if isinstance(s, Sample) and s.probe == "ras" and not s.device]
    (head,) = [row for row in told.rows if row["kind"] == "comm"]
    assert (head["job"], head["size"], head["own"], head["behind"]) == ("48177", 16, 8, 1)
    late = next(row for row in told.rows if row["kind"] == "rank")
    assert (late["rank"], late["pid"], late["here"]) == (11, 48214, True)
    assert told.values["covered"] == pytest.approx(8)
