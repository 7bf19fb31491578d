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
ALARMING = (Severity.WARN, Severity.CRITICAL)
QUIET = (Severity.OK, Severity.INFO)


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
        yield _outcome(campaign, node, run, *_word(campaign, node, run, told))


def _figures(campaign: Campaign, run: Run, told: dict[str, Verdict]) -> Iterator[Tested]:
    """busbw of each member, or of the cluster as a whole (node ""); readings where they belong."""
    whole = campaign.level is Level.CLUSTER
    members = ("",) if whole else run.group.nodes
    told_already = {reading.what for reading in run.readings}
    if run.busbw_gb_s is not None and "busbw" not in told_already:
        for node in members:
            verdict = told[node].verdict if node in told else Severity.UNKNOWN
            should = told[node].expected if node in told and told[node].unit == "GB/s" else None
            figure = Reading(
                what="busbw", value=run.busbw_gb_s, unit="GB/s", verdict=verdict, expected=should
            )
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


def _word(
    campaign: Campaign, node: str, run: Run, told: dict[str, Verdict]
) -> tuple[Severity, str]:
    """What the campaign says of a node, by its last run.

    Only a verdict on the node, or a run with a figure and nothing that speaks against it, is a
    pass. A failure of several nodes together is told of the one that a verdict names.
    """
    if node in told:
        return told[node].verdict, told[node].say
    about = [v for v in campaign.verdicts if node in v.nodes and v.verdict not in QUIET]
    if about:
        return Severity.UNKNOWN, max(about, key=lambda v: v.verdict.rank).say
    blamed = [n for n in run.group.nodes if n in told and told[n].verdict in ALARMING]
    if blamed:
        by = f"{run.group.name} was held up by {', '.join(blamed[:3])}"
        return Severity.UNKNOWN, f"not judged: {by}"
    if run.state is Progress.DONE:
        return Severity.OK, ""
    return Severity.UNKNOWN, f"no figure: {run.error or run.state.value.replace('_', ' ')}"


def _outcome(campaign: Campaign, node: str, run: Run, verdict: Severity, say: str) -> Tested:
    return Tested(
        node=node, what="ran", at=campaign.at + campaign.duration_s, verdict=verdict,
        level=campaign.level, engine=clean(run.engine, NAME), version=clean(run.version, NAME),
        campaign=campaign.id, say=clean(say, TEXT),
    )  # fmt: skip
