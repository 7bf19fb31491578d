"""A node out of work: whose decision that is, whether it may be worked on, given back. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from console.since import PERFORMANCE, Before
from console.tui.words import t, tn
from inventory.scheduler import KEPT, MARKER, Allocation
from probes.event import Finding, Severity
from probes.facts import NodeFacts
from probes.ranks_scene import processes

OF_SLURM = re.compile(
    r"^(Not responding|Node unexpectedly re|Kill task failed|(Prolog|Epilog) (error|failed)"
    r"|batch job comp|Job launch failure|launch failed|gres/gpu|Low (RealMemory|TmpDisk|socket|CPU)"
    r"|Duplicate jobid|ResumeTimeout|Failure when resuming|SuspendTimeout|Reboot )"
)
"""How slurmctld and slurmd word their own reasons; console/diagnose/slurm_rules.py says what each
means."""
OF_TOOLS = re.compile(
    r"^(NHC|Healthcheck|HealthCheck|health[ _-]?check|PERFORMANCE|SDC|XID|gpud|nvsentinel"
    r"|node-problem-detector|cluster-autoscaler|karpenter)\b", re.IGNORECASE
)  # fmt: skip
"""First words that site automation writes (see inventory.scheduler.MARKER)."""
GRAVE = Severity.WARN.rank


class Whose(NamedTuple):
    """Whose decision it is, in at most seven cells, and whether only they take it back."""

    word: str
    foreign: bool


def whose(now: Allocation) -> Whose:
    """By the reason's first words, then by the name beside it. root may be anybody."""
    if now.ours:
        return Whose(t("ours"), False)
    if now.reason.startswith(MARKER) and KEPT in now.reason:
        return Whose(t("shared"), True)
    if OF_TOOLS.match(now.reason):
        return Whose(t("tool"), True)
    if OF_SLURM.match(now.reason) or now.reason_by == "slurm":
        return Whose(t("Slurm"), False)
    if not now.reason and now.state in ("down", "off"):
        return Whose(t("itself"), False)
    if now.reason_by and now.reason_by != "root":
        return Whose(t("person"), True)
    return Whose(t("root") if now.reason_by else t("unknown"), True)


class Work(NamedTuple):
    """What still runs there. `safe` is None when that cannot be told."""

    told: str
    safe: bool | None


def work(now: Allocation, facts: NodeFacts, fresh: bool) -> Work:
    """Jobs by the scheduler, else processes on GPUs by the node itself, if it told lately."""
    if now.jobs:
        return Work(",".join(job.id for job in now.jobs), False)
    if now.state == "draining":
        return Work(t("ending"), False)
    if not fresh or facts.get("processes") is None:
        return Work(t("no job"), None if now.state == "down" else True)
    left = [row for row in processes(facts) if row.get("ours") is not True]
    if left:
        count = len({row.get("pid") for row in left})
        return Work(tn("1 process", "{n} procs", count), False)
    return Work(t("nothing"), True)


class Advice(NamedTuple):
    """Whether giving it back is sensible: a word of four cells, how it looks, why, what to do."""

    word: str
    severity: Severity
    why: str
    next_step: str


class Was(NamedTuple):
    """What is known of the time of the drain; `before` is None without a readable bundle."""

    before: Before | None
    passed: bool | None
    """Whether the last test since was passed; None when none ran."""


def gone(was: Sequence[Finding], found: Sequence[Finding]) -> bool:
    """Whether nothing grave of then is still found now."""
    now = {(f.rule, f.device) for f in found if f.severity.rank >= GRAVE and not f.latched}
    return all((f.rule, f.device) not in now for f in was if f.severity.rank >= GRAVE)


def advise(
    now: Allocation, verdict: Severity, found: Sequence[Finding], was: Was | None,
    changes: Sequence[str],
) -> Advice:  # fmt: skip
    """The first thing that stands against it. `changes` are sentences of since.changes."""
    if now.state == "off":
        return Advice(t("off"), Severity.INFO, t("powered off by the scheduler, by design"), "")
    if now.jobs or now.state == "draining":
        return Advice(
            t("wait"), Severity.INFO, t("its jobs go on"), t("wait until its last job has ended")
        )
    against = _against(verdict, found)
    if against is not None:
        return against
    owner = whose(now)
    if owner.foreign:
        by = now.reason_by if now.reason_by not in ("", "root") else owner.word
        return Advice(
            t("ask"), Severity.WARN, t("this is not our decision"),
            t("ask {who}; resuming it needs override", who=by),
        )  # fmt: skip
    return _proven(now, found, was, changes)


def _against(verdict: Severity, found: Sequence[Finding]) -> Advice | None:
    """What a look at the node says against it."""
    worst = next((f for f in found if f.severity.rank >= GRAVE), None)
    if verdict is Severity.UNKNOWN:
        say = worst.say if worst else t("the node has not answered")
        return Advice(
            t("no"), Severity.UNKNOWN, say, worst.next_step if worst and worst.next_step else ""
        )
    if verdict.rank >= GRAVE:
        say = worst.say if worst else verdict.value
        return Advice(
            t("no"), verdict, t("still: {say}", say=say), worst.next_step if worst else ""
        )
    return None


def _proven(
    now: Allocation, found: Sequence[Finding], was: Was | None, changes: Sequence[str]
) -> Advice:
    """Nothing is found now: is that because it was mended?"""
    test = t("T tests it; resume when it passes")
    if was is None:
        return Advice(t("read"), Severity.UNKNOWN, t("its evidence is being read"), "")
    if was.passed is False:
        return Advice(t("no"), Severity.WARN, t("its last test since was not passed"), test)
    if was.passed:
        return Advice(t("yes"), Severity.OK, t("it has passed a test since"), t("U resumes it"))
    if PERFORMANCE.search(now.reason):
        why = t("drained for performance, and no test was passed since")
        return Advice(t("test"), Severity.WARN, why, test)
    if was.before is None:
        why = t("nothing is found now; what was found then is not on record here")
        return Advice(t("test"), Severity.WARN, why, test)
    if changes and gone(was.before.findings, found):
        why = t("fixed since: {what}", what="; ".join(changes))
        return Advice(t("yes"), Severity.OK, why, t("U resumes it"))
    why = t("what was found then is gone, but nothing was changed: it may come back")
    return Advice(t("test"), Severity.WARN, why, test)
