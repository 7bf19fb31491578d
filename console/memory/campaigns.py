"""Active tests as the memory keeps them: figures per node and device, an outcome per node. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from console.active.expect import metric
from console.active.results import Campaign, Level, Progress, Reading, Run, Verdict
from console.memory.notes import NAME, TEXT, Tested
from probes.event import Severity
from probes.sanitise import clean

RANKS_MOST = 1 << 20
"""Larger numbers are not believed."""


def of_campaign(campaign: Campaign) -> Iterator[Tested]:
    """Its figures, one per node and device, and one verdict ("ran") per tested node."""
    told: dict[str, Verdict] = {}
    for verdict in campaign.verdicts:
        for node in verdict.nodes if verdict.kind in ("node", "gpu") else ():
            if node not in told or verdict.verdict.rank > told[node].verdict.rank:
                told[node] = verdict
    ran: dict[str, Run] = {}
    for run in campaign.runs:
        yield from _figures(campaign, run, told)
        for node in run.group.nodes:
            if run.state in (Progress.DONE, Progress.FAILED, Progress.TIMED_OUT):
                ran[node] = run
    for node, run in ran.items():
        yield _outcome(campaign, node, run, told.get(node))


def _figures(campaign: Campaign, run: Run, told: dict[str, Verdict]) -> Iterator[Tested]:
    """busbw of each member, or of the cluster as a whole (node ""); readings where they belong."""
    whole = campaign.level is Level.CLUSTER
    members = ("",) if whole else run.group.nodes
    told_already = {reading.what for reading in run.readings}
    if run.busbw_gb_s is not None and "busbw" not in told_already:
        for node in members:
            verdict = told[node].verdict if node in told else Severity.UNKNOWN
            figure = Reading(what="busbw", value=run.busbw_gb_s, unit="GB/s", verdict=verdict)
            yield _figure(campaign, run, figure, node)
    for reading in run.readings:
        for node in (reading.node,) if reading.node else members:
            yield _figure(campaign, run, reading, node)


def _figure(campaign: Campaign, run: Run, reading: Reading, node: str) -> Tested:
    nodes = run.group.nodes
    count = len(nodes) if campaign.level is Level.CLUSTER else 0
    return Tested(
        node=node, at=run.started_at or campaign.at, value=reading.value,
        what=clean(metric(campaign.level, reading.what, run.engine, count), NAME),
        device=clean(reading.device, NAME), label=clean(reading.label, NAME),
        unit=clean(reading.unit, NAME), expected=reading.expected, verdict=reading.verdict,
        level=campaign.level, engine=clean(run.engine, NAME), version=clean(run.version, NAME),
        ranks=min(run.ranks or 0, RANKS_MOST), campaign=campaign.id,
        party=clean(run.group.name, NAME) if len(nodes) > 1 else "",
    )  # fmt: skip


def _outcome(campaign: Campaign, node: str, run: Run, verdict: Verdict | None) -> Tested:
    """A node that nothing speaks against has passed when its last run gave a figure."""
    done = run.state is Progress.DONE
    quiet = Severity.OK if done else Severity.UNKNOWN
    worst = quiet if verdict is None else verdict.verdict
    if done and worst is Severity.UNKNOWN:
        worst = Severity.OK  # it ran; that no figure was expected of it is nothing against it
    return Tested(
        node=node, what="ran", at=campaign.at + campaign.duration_s, verdict=worst,
        level=campaign.level, engine=clean(run.engine, NAME), version=clean(run.version, NAME),
        campaign=campaign.id, say=clean(verdict.say if verdict else run.error, TEXT),
    )  # fmt: skip
