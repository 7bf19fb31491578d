"""The five layers of a job, job, pod, node, rank, step: in which of them the trouble sits. Pure.

A layer of which nothing is measured is unknown, never ok.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from console.tui.text import plain
from console.tui.theme import Glyphs
from console.tui.views.job_shares import Share
from console.tui.words import t, tn
from inventory.scheduler import Allocation, Job
from probes.event import Finding, Severity, worst
from probes.ranks_motion import Motion

LAYERS = ("job", "pod", "node", "rank", "step")
"""From the scheduler down to the program: where a job can be held up."""
WAITS = "straggler.job_waits"
RANK_RULES = ("job.hang", "job.late_rank", WAITS, "processes.dead")
STEP_RULE = "job.slow_step"


class Layer(NamedTuple):
    """One layer. `measured` False: nothing is known of it, and the severity is unknown."""

    severity: Severity
    say: str
    measured: bool = True


UNMEASURED = Severity.UNKNOWN


class Facts(NamedTuple):
    """What the layers are judged by."""

    job: Job | None
    shares: Sequence[Share]
    allocations: Sequence[Allocation]
    verdicts: Sequence[Severity]
    """Of the nodes that are watched, as without what is said of the job: see `own_verdict`."""
    findings: Sequence[Finding]
    """About this job: of the rules job.*, and of its nodes."""
    motion: Motion | None
    """What NCCL's own count says; None where no port was asked lately."""
    tells_steps: bool
    """Enough of its ranks' steps were told to say that they have not become slower."""
    idle_w: float
    """Watts of its GPUs that have done nothing for long."""


def of_job(finding: Finding) -> bool:
    """Whether it is about a job, and so no fault of the node at which it stands."""
    return finding.rule.startswith("job.") or finding.rule == WAITS


def own_verdict(verdict: Severity, findings: Sequence[Finding]) -> Severity:
    """A node's verdict without what is said of its job there."""
    if verdict is Severity.UNKNOWN or not any(map(of_job, findings)):
        return verdict
    return worst([f.severity for f in findings if not of_job(f)])


def layers(of: Facts, now: float) -> dict[str, Layer]:
    """One of each of LAYERS, in that order."""
    return {
        "job": _job(of, now), "pod": _pod(of), "node": _node(of), "rank": _rank(of),
        "step": _step(of),
    }  # fmt: skip


def _job(of: Facts, now: float) -> Layer:
    if of.job is None:
        return Layer(UNMEASURED, t("no scheduler tells of it"), False)
    down = [a.node for a in of.allocations if a.state == "down"]
    if down:
        return Layer(Severity.CRITICAL, t("{nodes}: down", nodes=", ".join(down[:3])))
    if of.job.end_at is not None and of.job.end_at < now:
        return Layer(Severity.WARN, t("its time limit is over"))
    if of.idle_w > 0:
        return Layer(Severity.WARN, t("GPUs idle, some {w:.0f} W", w=of.idle_w))
    out = [a.node for a in of.allocations if a.state in ("draining", "drained")]
    if out:
        return Layer(Severity.INFO, t("{nodes}: draining", nodes=", ".join(out[:3])))
    return Layer(Severity.OK, "")


def _pod(of: Facts) -> Layer:
    found = _worst(f for f in of.findings if f.rule.startswith("container."))
    if found is not None:
        return found
    if of.shares and all(share.contained for share in of.shares):
        return Layer(Severity.OK, t("in containers on all of its nodes"))
    return Layer(UNMEASURED, t("no pod or container is seen"), False)


def _node(of: Facts) -> Layer:
    severity = worst(list(of.verdicts))
    missing = of.job.nodes - len(of.shares) if of.job is not None else 0
    if missing > 0 and severity.rank < Severity.UNKNOWN.rank:
        return Layer(
            Severity.UNKNOWN,
            tn("1 of its nodes is not watched", "{n} of its nodes are not watched", missing),
        )
    found = _worst(f for f in of.findings if not of_job(f))
    say = found.say if found is not None and found.severity is severity else ""
    return Layer(severity, say)


def _rank(of: Facts) -> Layer:
    found = _worst(f for f in of.findings if f.rule in RANK_RULES)
    if found is not None:
        return found
    if of.motion is Motion.MOVES:
        return Layer(Severity.OK, t("all ranks keep up"))
    if of.motion is Motion.LATE:
        return Layer(Severity.INFO, t("a rank is often behind"))
    return Layer(UNMEASURED, t("ranks tell nothing that counts"), False)


def _step(of: Facts) -> Layer:
    found = _worst(f for f in of.findings if f.rule == STEP_RULE)
    if found is not None:
        return found
    if of.tells_steps:
        return Layer(Severity.OK, t("its steps have not become slower"))
    return Layer(UNMEASURED, t("it tells no steps"), False)


def _worst(findings: Iterable[Finding]) -> Layer | None:
    top = max(findings, key=lambda f: f.severity.rank, default=None)
    return None if top is None else Layer(top.severity, plain(top.say))


def summary(found: dict[str, Layer], glyphs: Glyphs) -> tuple[str, str]:
    """The layer of the trouble, as glyph and word; else how many layers are known to be well."""
    name, top = max(
        ((name, layer) for name, layer in found.items() if layer.measured),
        key=lambda one: one[1].severity.rank, default=("", None),
    )  # fmt: skip
    if top is not None and top.severity.rank >= Severity.INFO.rank:
        return f"{glyphs.severity(top.severity)} {name}", top.severity.value
    well = sum(1 for layer in found.values() if layer.measured)
    if not well:
        return glyphs.missing, "dim"
    return f"{glyphs.ok} {well}/{len(found)}", "ok"
