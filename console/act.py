"""Drain and resume once a plan is confirmed: evidence, write, audit, what the scheduler says."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from console import units
from console.audit import Audit
from console.fleet import Fleet
from console.plan import by_scheduler
from console.said import Said, said
from inventory.errors import ConsoleError, UsageError
from inventory.scheduler import Plan, Scheduler, Step
from probes.event import Event

if TYPE_CHECKING:
    from console.evidence import Kept
    from inventory.kube_evict import Eviction
    from inventory.kubernetes import Kubernetes

Gather = Callable[[Sequence[str], str], AsyncIterator["Kept"]]
"""Takes evidence of these nodes for this reason; see console.evidence."""
PLAN_S = 600.0
"""How long a plan may wait for its confirmation; our estimate of one phone call."""
FINAL_PHASES = frozenset({"refused", "done", "failed"})


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
    if not override:
        _check_age(plan, fleet.clock())
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
        for key, members in by_scheduler(plan.nodes, fleet).items():
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


def _check_age(plan: Plan, now: float) -> None:
    """A plan that was left lying is not what the cluster is now."""
    age_s = now - plan.at
    if plan.at and age_s > PLAN_S:
        raise UsageError(
            f"this plan is {age_s / 60:.0f} min old; nothing was done",
            instead="make it again, or override",
        )


def _check_count(plan: Plan, typed: int | None) -> None:
    """A number that was typed must be the plan's, asked for or not."""
    count = len(plan.nodes)
    if typed == count or (typed is None and plan.confirm_count is None):
        return
    why = f", not {typed}" if plan.confirm_count is None else ", more than the cap"
    raise UsageError(
        f"this {plan.verb}s {units.counted(count, 'node')}{why}",
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


async def pods_told(
    names: Sequence[str], fleet: Fleet, schedulers: Mapping[str, Scheduler], wish: Eviction
) -> list[Said]:
    """What would be evicted. Raises UsageError where the scheduler does not evict."""
    told: list[Said] = []
    for name in names:
        node = fleet.nodes[name].node
        scheduler = evicting(schedulers[node.scheduler or ""])
        found = (await scheduler.evictable([node.scheduled_as], wish))[node.scheduled_as]
        pods = ", ".join(pod.full_name for pod in found.go) or said("nothing")
        own = units.counted(len(found.leave), "pod")
        told.append(
            said("{name}: evicts {pods}; leaves {own} of the node itself",
                 name=name, pods=pods, own=own)
        )  # fmt: skip
        told += [
            said("{name}: nothing is evicted while {pod}: {why}", name=name, pod=pod, why=why)
            for pod, why in found.held.items()
        ]
    return told


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
