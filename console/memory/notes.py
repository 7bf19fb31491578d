"""What happened, as the memory keeps it: small structs on their way to the file. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

from console.active.expect import metric
from console.active.results import Campaign, Level, Progress, Reading, Run, Verdict
from inventory.scheduler import Allocation
from probes.event import Finding, Sample, Severity
from probes.sanitise import clean

TEXT = 300
NAME = 120
OUT = frozenset({"drained", "draining", "down"})
"""States of the scheduler that keep work away; `off` is by design."""
FAR_S = 400 * 86400.0
"""Nothing is believed to be older, whatever a node's clock says."""


class Look(Struct, frozen=True):
    """Everything that is found now on nodes that answer and can be judged."""

    at: float
    found: dict[str, list[Finding]]


class Act(Struct, frozen=True, kw_only=True):
    """The outcome of a drain or resume from here, for one node."""

    node: str
    at: float
    verb: str
    by: str
    reason: str
    ok: bool
    detail: str


class Boot(Struct, frozen=True):
    """A node said its boot id."""

    node: str
    boot_id: str
    at: float


class Tested(Struct, frozen=True, kw_only=True):
    """One figure of an active test, or that one ran to its end (`what` "ran", no value)."""

    node: str
    what: str
    at: float
    verdict: Severity
    device: str = ""
    label: str = ""
    value: float | None = None
    unit: str = ""
    expected: float | None = None
    level: str = ""
    engine: str = ""
    version: str = ""
    ranks: int = 0
    party: str = ""
    """The group that ran together, where it was more than this node."""
    campaign: str = ""
    say: str = ""


Note: TypeAlias = Look | Act | Boot | Tested | Finding | Allocation


def boot(sample: Sample) -> Boot | None:
    """From a hello."""
    boot_id = sample.values.get("boot_id")
    return Boot(sample.node, clean(str(boot_id), NAME), sample.at) if boot_id else None


def summary(sample: Sample) -> Tested | None:
    """From the summary of a test that the agent ran: that it ran, and whether it succeeded."""
    ok = sample.values.get("ok")
    if sample.device != "summary" or not isinstance(ok, bool):
        return None
    return Tested(
        node=sample.node, what="ran", at=sample.at,
        verdict=Severity.OK if ok else Severity.UNKNOWN,
        engine=clean(str(sample.values.get("engine", "")), NAME),
        say=clean(str(sample.values.get("error", "")), TEXT),
    )  # fmt: skip


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
        ranks=run.ranks or 0, party=clean(run.group.name, NAME) if len(nodes) > 1 else "",
        campaign=campaign.id,
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
