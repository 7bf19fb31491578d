"""What a plan says besides its commands: jobs, partitions, evidence, age of the data. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence

from console.fleet import Fleet
from inventory.scheduler import Allocation, Job
from probes.event import Severity

OUT_OF_WORK = frozenset({"drained", "draining", "down", "off"})
OLD_S = 60.0
"""Older answers are named in a plan; twice the slow interval."""
FINDINGS = 2
"""Findings shown a node: the plan of a rack must fit a screen."""


ALONE = {
    "slurm": "; Slurm drains whole nodes: leaving one GPU out needs gres.conf and a slurmd restart",
    "kubernetes": "; a cordon is for whole nodes: the device plugin alone can withhold one GPU",
}
"""Why a scheduler takes the others too."""


_AGO = re.compile(r",? \d+ (?:s|min|h|days?) ago\b")


def timeless(say: str) -> str:
    """A finding's sentence as a reason that stays true: without "3 min ago"."""
    return _AGO.sub("", say)


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
            yield f"{name} has not answered: the plan rests on the scheduler alone"
        elif age > OLD_S:
            yield f"{name} last answered {age:.0f} s ago"


def _still_sick(wanted: Sequence[str], fleet: Fleet) -> Iterator[str]:
    """Nodes that go back to work despite what a fresh look found."""
    for name in wanted:
        if why := still_sick(name, fleet):
            yield f"{name} is {why}"


def still_sick(name: str, fleet: Fleet) -> str:
    """Why a node should not go back to work; "" when nothing is known against it."""
    verdict = fleet.verdict(name)
    if verdict.rank < Severity.UNKNOWN.rank:
        return ""
    worst = next((f.say for f in fleet.findings[name]), "no fresh answer from the node")
    return f"still {verdict}: {worst}"


def _jobs(wanted: Sequence[str], before: Mapping[str, Allocation]) -> Iterator[str]:
    members: dict[str, list[str]] = {}
    jobs: dict[str, Job] = {}
    for name in wanted:
        for job in before[name].jobs:
            members.setdefault(job.id, []).append(name)
            jobs[job.id] = job
    for job_id, names in members.items():
        job = jobs[job_id]
        title = f"{job_id} ({job.user or 'unknown user'})"
        yield f"{len(names)} of {job.nodes} nodes of job {title}: it keeps running {_end(job)}"


def _end(job: Job) -> str:
    if job.end_at is None:
        return "until it ends"
    return f"until it ends, at the latest {time.strftime('%a %H:%M', time.localtime(job.end_at))}"


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
            total = len(members[partition])
            none = ": none is left" if not left else ""
            yield f"partition {partition}: {len(left)} of {total} nodes stay in work{none}"


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
            yield f"{name}: only {label} is at fault, {others} GPUs go with it{what or ''}"


def _evidence(wanted: Sequence[str], fleet: Fleet) -> Iterator[str]:
    for name in wanted:
        grave = [f for f in fleet.findings[name] if f.severity.rank >= Severity.WARN.rank]
        for finding in grave[:FINDINGS]:
            yield f"{name}: {finding.severity}: {finding.say}"
        if len(grave) > FINDINGS:
            yield f"{name}: and {len(grave) - FINDINGS} more"
        if fleet.verdict(name) is Severity.OK:
            yield f"{name} has no findings: it looks healthy"
