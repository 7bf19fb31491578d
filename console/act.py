"""Drain and resume: plan (pure), confirm (the caller), execute, what the scheduler reports."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from console.audit import Audit
from console.fleet import Fleet
from console.plan_notes import OUT_OF_WORK, warnings
from inventory.errors import ConsoleError, UsageError
from inventory.expressions import natural_key
from inventory.scheduler import MARKER, Allocation, Plan, Scheduler, Step
from probes.event import Event, Severity
from probes.sanitise import clean

if TYPE_CHECKING:
    from console.evidence import Kept
    from inventory.kube_evict import Eviction
    from inventory.kubernetes import Kubernetes

REASON_CHARS = 1000
"""Of a reason as it is audited; schedulers keep less."""
CAP_WINDOW_S = 3600.0
"""Drains of the last hour count against the cap, whoever did them (our estimate): ten drains of a
tenth each are as bad as one of everything."""
SCHEDULERS_OWN = frozenset({"not responding"})
"""Reasons that Slurm writes itself for a dead node: nobody's decision is overwritten."""
Gather = Callable[[Sequence[str], str], AsyncIterator["Kept"]]
"""Takes evidence of these nodes for this reason; see console.evidence."""
FINAL_PHASES = frozenset({"refused", "done", "failed"})


def plan(
    verb: str,
    names: Iterable[str],
    reason: str,
    fleet: Fleet,
    schedulers: Mapping[str, Scheduler],
    *,
    override: bool = False,
    despite_findings: bool = False,
    cap: float = 0.2,
    forbidden: Callable[[str], str] = lambda node: "",
) -> Plan:
    """What would happen to these nodes; pure, from what the Fleet knows now.

    `forbidden` says why the operator may not do this to a node ("" when they may).

    Raises UsageError when the reason is missing.
    """
    reason = clean(reason, REASON_CHARS)
    if verb == "drain" and not reason.strip():
        raise UsageError(
            "a drain needs a reason", where="--reason", instead="say why, e.g. 'Xid 79 GPU3'"
        )
    refused: dict[str, str] = {}
    wanted: list[str] = []
    for name in sorted(dict.fromkeys(names), key=natural_key):
        why = _refusal(verb, name, fleet, schedulers, override, despite_findings)
        why = why or forbidden(name)
        if why:
            refused[name] = why
        else:
            wanted.append(name)
    before = fleet.allocations(name for name in (*wanted, *refused) if name in fleet.nodes)
    return Plan(
        verb=verb,
        nodes=tuple(wanted),
        reason=reason.strip(),
        commands=tuple(_commands(verb, wanted, reason.strip(), fleet, schedulers)),
        refused=refused,
        warnings=tuple(warnings(verb, wanted, fleet, before)),
        before=tuple(before.values()),
        confirm_count=_typed_count(verb, wanted, fleet, cap),
    )


def _refusal(
    verb: str,
    name: str,
    fleet: Fleet,
    schedulers: Mapping[str, Scheduler],
    override: bool,
    despite_findings: bool,
) -> str:
    """Why this node is left alone; "" when it may be written."""
    facts = fleet.nodes.get(name)
    if facts is None:
        return "not in the inventory"
    if facts.node.scheduler not in schedulers:
        return "no scheduler is configured for this node"
    now = facts.allocation
    if now is None:
        return f"{facts.node.scheduler} did not report this node: its state is unknown"
    if verb == "drain":
        return _drain_refusal(now, override)
    return _resume_refusal(name, now, fleet, override, despite_findings)


def _drain_refusal(now: Allocation, override: bool) -> str:
    if now.state in ("drained", "draining"):
        if now.ours:
            return f"already {now.state} by us: {now.reason}"
        if not override:
            return f"already {now.state} by {now.reason_by or 'somebody else'}: {now.reason}"
    foreign = now.reason and not now.ours and now.reason.lower() not in SCHEDULERS_OWN
    if now.state == "down" and foreign and not override:
        return f"down, and {now.reason_by or 'somebody else'} says why: {now.reason}"
    return ""


def _resume_refusal(
    name: str, now: Allocation, fleet: Fleet, override: bool, despite_findings: bool
) -> str:
    if now.state not in ("drained", "draining", "down"):
        return f"not drained: {now.state}"
    if not now.ours and not override:
        return f"drained by {now.reason_by or 'somebody else'}, not by us: {now.reason}"
    verdict = fleet.verdict(name)
    if verdict.rank >= Severity.UNKNOWN.rank and not despite_findings:
        sick = next((f.say for f in fleet.findings[name]), "no fresh answer from the node")
        return f"still {verdict}: {sick}"
    return ""


def _commands(
    verb: str, names: Sequence[str], reason: str, fleet: Fleet, schedulers: Mapping[str, Scheduler]
) -> Iterable[tuple[str, ...]]:
    for key, members in _by_scheduler(names, fleet).items():
        scheduled = [fleet.nodes[name].node.scheduled_as for name in members]
        if verb == "drain":
            yield from schedulers[key].drain_commands(scheduled, reason)
        else:
            yield from schedulers[key].resume_commands(scheduled)


def _by_scheduler(names: Sequence[str], fleet: Fleet) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(fleet.nodes[name].node.scheduler or "", []).append(name)
    return groups


def _typed_count(verb: str, wanted: Sequence[str], fleet: Fleet, cap: float) -> int | None:
    if verb != "drain" or not wanted:
        return None
    healthy, recent = pool(fleet)
    taken = len(wanted) + recent
    return len(wanted) if taken > max(1.0, cap * (healthy + recent)) else None


def pool(fleet: Fleet) -> tuple[int, int]:
    """Nodes in work, and nodes that any console took out within the window."""
    known = [a for f in fleet.nodes.values() if (a := f.allocation) is not None]
    healthy = sum(1 for a in known if a.state not in (*OUT_OF_WORK, "unknown"))
    return healthy, sum(1 for a in known if _drained_lately(a, fleet.clock()))


def _drained_lately(now: Allocation, at: float) -> bool:
    """Whether any console took this node out within the window: the scheduler tells all of them.

    One that does not tell when (a hook) may mean any time: then it counts until it is resumed.
    """
    if now.state not in OUT_OF_WORK or not now.reason.startswith(MARKER):
        return False
    return now.reason_at is None or at - now.reason_at < CAP_WINDOW_S


async def execute(
    plan: Plan,
    fleet: Fleet,
    schedulers: Mapping[str, Scheduler],
    audit: Audit,
    feed: Callable[[Event], None],
    *,
    override: bool = False,
    typed_count: int | None = None,
    gather: Gather | None = None,
    evict: Eviction | None = None,
) -> AsyncIterator[Step]:
    """Do what the plan says, node by node; intent and outcome of every node are audited.

    `gather` takes evidence of the nodes before a drain; a node of which none can be taken is
    drained all the same, because that is often the reason. Raises UsageError when the plan asks for
    a typed count and it does not match, ConsoleError when the audit file cannot be written: then
    nothing is done.
    """
    _check_count(plan, typed_count)
    bundles: dict[str, str] = {}
    if gather is not None and plan.verb == "drain":
        async for step in _gathered(plan, gather, bundles):
            feed(step)
            yield step
    try:
        audit.intend(plan, bundles)
    except OSError as error:
        raise ConsoleError(
            f"audit file {audit.path}: {error.strerror}; nothing was done"
        ) from error
    open_ends = dict.fromkeys(plan.nodes, "its outcome was not seen")
    try:
        for key, members in _by_scheduler(plan.nodes, fleet).items():
            out: list[str] = []
            async for step in _act(plan, members, fleet, schedulers[key], audit, feed, override):
                if step.phase in FINAL_PHASES:
                    open_ends.pop(step.node, None)
                out += [step.node] * (step.phase == "done")
                yield step
            if evict is not None and out:
                open_ends |= dict.fromkeys(out, "not all of its pods were evicted")
                async for step in _evict(plan, out, fleet, schedulers[key], audit, feed, evict):
                    yield step
                open_ends = {name: why for name, why in open_ends.items() if name not in out}
    finally:
        for name, why in open_ends.items():
            text = f"interrupted: {why}; ask the scheduler"
            _record(audit, plan, Step(node=name, at=time.time(), phase="failed", ok=False,
                                      detail=text))  # fmt: skip


async def _gathered(plan: Plan, gather: Gather, bundles: dict[str, str]) -> AsyncIterator[Step]:
    """One Step a bundle; trouble of ours (a full disk) costs the evidence, not the drain."""
    try:
        async for kept in gather(plan.nodes, plan.reason):
            bundles[kept.node] = f"{kept.path} sha256={kept.sha256}"
            detail = f"{kept.path} ({kept.note})" if kept.note else kept.path
            yield Step(
                node=kept.node, at=time.time(), phase="evidence", ok=kept.answered, detail=detail
            )
    except OSError as error:
        for name in plan.nodes:
            if name not in bundles:
                text = "not kept: " + ": ".join(
                    filter(None, (error.filename, error.strerror or str(error)))
                )
                yield Step(node=name, at=time.time(), phase="evidence", ok=False, detail=text)


def _check_count(plan: Plan, typed: int | None) -> None:
    """A number that was typed must be the plan's, asked for or not."""
    count = len(plan.nodes)
    if typed == count or (typed is None and plan.confirm_count is None):
        return
    why = f", not {typed}" if plan.confirm_count is None else ", more than the cap"
    raise UsageError(
        f"this {plan.verb}s {count} node{'s' * (count != 1)}{why}",
        instead=f"type the number {count} (--count {count})",
    )


async def _act(
    plan: Plan,
    members: Sequence[str],
    fleet: Fleet,
    scheduler: Scheduler,
    audit: Audit,
    feed: Callable[[Event], None],
    override: bool,
) -> AsyncIterator[Step]:
    """One scheduler's share of the plan, then one batched reading of what it now reports."""
    names = {fleet.nodes[name].node.scheduled_as: name for name in members}
    if plan.verb == "drain":
        steps = scheduler.drain(list(names), plan.reason, override=override)
    else:
        steps = scheduler.resume(list(names), override=override)
    async for step in steps:
        ours = msgspec.structs.replace(step, node=names.get(step.node, step.node))
        if ours.phase in FINAL_PHASES and (lost := _record(audit, plan, ours)) is not None:
            yield lost
        feed(ours)
        yield ours
    try:
        found = await scheduler.allocations(list(names))
    except ConsoleError as error:
        fleet.errors[scheduler.name] = str(error)
        return
    for allocation in found:
        after = msgspec.structs.replace(
            allocation, node=names.get(allocation.node, allocation.node)
        )
        feed(after)
        with contextlib.suppress(OSError):  # told with the outcome; it has not become better
            audit.reading(plan, after)


async def _evict(
    plan: Plan,
    members: Sequence[str],
    fleet: Fleet,
    scheduler: Scheduler,
    audit: Audit,
    feed: Callable[[Event], None],
    wish: Eviction,
) -> AsyncIterator[Step]:
    """The pods of the nodes that are cordoned now, each step on record."""
    names = {fleet.nodes[name].node.scheduled_as: name for name in members}
    async for step in evicting(scheduler).evict(list(names), wish):
        ours = msgspec.structs.replace(step, node=names.get(step.node, step.node))
        if (lost := _record(audit, plan, ours)) is not None:
            yield lost
        feed(ours)
        yield ours


def evicting(scheduler: Scheduler) -> Kubernetes:
    """The scheduler as one that can evict. UsageError for any other."""
    from inventory.kubernetes import Kubernetes

    if isinstance(scheduler, Kubernetes):
        return scheduler
    raise UsageError(
        f"{scheduler.name} lets running jobs end by themselves", where="--evict",
        instead="leave it out; only Kubernetes evicts",
    )  # fmt: skip


def _record(audit: Audit, plan: Plan, step: Step) -> Step | None:
    """Write the outcome; a step that says so when that fails: what was done stays done."""
    try:
        audit.outcome(plan, step)
    except OSError as error:
        lost = f"outcome not recorded in {audit.path}: {error.strerror}"
        return Step(node=step.node, at=step.at, phase="audit", ok=False, detail=lost)
    return None


async def read_allocations(
    fleet: Fleet, schedulers: Mapping[str, Scheduler], feed: Callable[[Event], None]
) -> None:
    """Ask each scheduler once and feed what it says; trouble goes to `fleet.errors`, not away."""
    for key, scheduler in schedulers.items():
        try:
            found = {a.node: a for a in await scheduler.allocations()}
        except ConsoleError as error:
            fleet.errors[key] = str(error)
            continue
        fleet.errors.pop(key, None)
        for name, facts in fleet.nodes.items():
            theirs = found.get(facts.node.scheduled_as)
            if facts.node.scheduler == key and theirs is not None:
                feed(msgspec.structs.replace(theirs, node=name))
