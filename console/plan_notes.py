"""What a plan says besides its commands: jobs, partitions, evidence, age of the data. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence

from console.fleet import Fleet
from console.said import said
from inventory.scheduler import Allocation, Job
from probes.event import Severity

OUT_OF_WORK = frozenset({"drained", "draining", "down", "off"})
OLD_S = 60.0
"""Older answers are named in a plan; twice the slow interval."""
FINDINGS = 2
"""Findings shown a node: the plan of a rack must fit a screen."""


ALONE = {
    "slurm": said(
        "; Slurm drains whole nodes: leaving one GPU out needs gres.conf and a slurmd restart"
    ),
    "kubernetes": said(
        "; a cordon is for whole nodes: the device plugin alone can withhold one GPU"
    ),
}
"""Why a scheduler takes the others too."""


_AGO = re.compile(r",? \d+ (?:s|min|h|days?) ago\b")


def timeless(say: str) -> str:
    """A finding's sentence as a reason that stays true: without "3 min ago"."""
    return _AGO.sub("", say)


def decided_by(now: Allocation) -> str:
    """Who took the node out of work, as far as the scheduler says."""
    return now.reason_by or said("somebody else")


def warnings(
    verb: str, wanted: Sequence[str], fleet: Fleet, before: Mapping[str, Allocation]
) -> Iterator[str]:
    """Sentences, the most important first."""
    if verb == "drain":
        yield from _jobs(wanted, before)
        yield from _partitions(wanted, fleet)
        yield from _evidence(wanted, fleet)
        yield from _one_gpu(wanted, fleet)
    else:
        yield from _still_sick(wanted, fleet)
    for name in wanted:
        age = fleet.age(name)
        if age is None:
            yield said("{name} has not answered: the plan rests on the scheduler alone", name=name)
        elif age > OLD_S:
            yield said("{name} last answered {age} s ago", name=name, age=f"{age:.0f}")


def _still_sick(wanted: Sequence[str], fleet: Fleet) -> Iterator[str]:
    """Nodes that go back to work despite what a fresh look found."""
    for name in wanted:
        if why := still_sick(name, fleet):
            yield said("{name} is {why}", name=name, why=why)


def still_sick(name: str, fleet: Fleet) -> str:
    """Why a node should not go back to work; "" when nothing is known against it."""
    verdict = fleet.verdict(name)
    if verdict.rank < Severity.UNKNOWN.rank:
        return ""
    nothing = said("no fresh answer from the node")
    worst = next((f.say for f in fleet.findings[name]), nothing)
    return said("still {verdict}: {worst}", verdict=verdict, worst=worst)


def _jobs(wanted: Sequence[str], before: Mapping[str, Allocation]) -> Iterator[str]:
    members: dict[str, list[str]] = {}
    jobs: dict[str, Job] = {}
    for name in wanted:
        for job in before[name].jobs:
            members.setdefault(job.id, []).append(name)
            jobs[job.id] = job
    for job_id, names in members.items():
        job = jobs[job_id]
        yield said(
            "{n} of {all} nodes of job {id} ({user}): it keeps running {until}",
            n=len(names),
            all=job.nodes,
            id=job_id,
            user=job.user or said("unknown user"),
            until=_end(job),
        )


def _end(job: Job) -> str:
    if job.end_at is None:
        return said("until it ends")
    at = time.strftime("%a %H:%M", time.localtime(job.end_at))
    return said("until it ends, at the latest {at}", at=at)


def _partitions(wanted: Sequence[str], fleet: Fleet) -> Iterator[str]:
    """What is left of each partition that loses a node which works now."""
    members: dict[str, set[str]] = {}
    working: dict[str, set[str]] = {}
    for name, facts in fleet.nodes.items():
        now = facts.allocation
        for partition in now.partitions if now is not None else ():
            members.setdefault(partition, set()).add(name)
            if now is not None and now.state not in OUT_OF_WORK:
                working.setdefault(partition, set()).add(name)
    for partition, nodes in sorted(working.items()):
        left = nodes - set(wanted)
        if left != nodes:
            yield said(
                "partition {partition}: {n} of {all} nodes stay in work{none}",
                partition=partition,
                n=len(left),
                all=len(members[partition]),
                none="" if left else said(": none is left"),
            )


def _one_gpu(wanted: Sequence[str], fleet: Fleet) -> Iterator[str]:
    """Where one GPU is at fault, what stands against taking out that one alone."""
    for name in wanted:
        facts = fleet.nodes[name]
        grave = [f for f in fleet.findings[name] if f.severity.rank >= Severity.WARN.rank]
        devices = {finding.device for finding in grave}
        (device,) = devices if len(devices) == 1 else ("",)
        others = sum(1 for one, _ in facts.devices("gpu") if one and one != device)
        if device and others and facts.get("inventory", device) is not None:
            what = ALONE.get((facts.node.scheduler or "").partition(":")[0].partition("@")[0])
            label = facts.gpu_label(device)
            yield said(
                "{name}: only {gpu} is at fault, {n} GPUs go with it{why}",
                name=name,
                gpu=label,
                n=others,
                why=what or "",
            )


def _evidence(wanted: Sequence[str], fleet: Fleet) -> Iterator[str]:
    for name in wanted:
        grave = [f for f in fleet.findings[name] if f.severity.rank >= Severity.WARN.rank]
        for finding in grave[:FINDINGS]:
            yield f"{name}: {finding.severity}: {finding.say}"
        if len(grave) > FINDINGS:
            yield said("{name}: and {n} more", name=name, n=len(grave) - FINDINGS)
        if fleet.verdict(name) is Severity.OK:
            yield said("{name} has no findings: it looks healthy", name=name)
