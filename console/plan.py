"""What a drain or resume would do to which nodes, from what the Fleet knows now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from console.fleet import Fleet
from console.plan_notes import OUT_OF_WORK, decided_by, still_sick, warnings
from console.said import said
from inventory.errors import UsageError
from inventory.expressions import natural_key
from inventory.scheduler import MARKER, Allocation, Plan, Scheduler
from probes.sanitise import clean

REASON_CHARS = 1000
"""Of a reason as it is audited; schedulers keep less."""
CAP_WINDOW_S = 3600.0
"""Drains of the last hour count against the cap, whoever did them (our estimate): ten drains of a
tenth each are as bad as one of everything."""
SCHEDULERS_OWN = frozenset({"not responding"})
"""Reasons that Slurm writes itself for a dead node: nobody's decision is overwritten."""


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
        at=fleet.clock(),
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
        return said("not in the inventory")
    if facts.node.scheduler not in schedulers:
        return said("no scheduler is configured for this node")
    now = facts.allocation
    if now is None:
        return said(
            "{scheduler} did not report this node: its state is unknown",
            scheduler=facts.node.scheduler,
        )
    if verb == "drain":
        return _drain_refusal(now, override)
    return _resume_refusal(name, now, fleet, override, despite_findings)


def _drain_refusal(now: Allocation, override: bool) -> str:
    if now.state in ("drained", "draining"):
        if now.ours:
            return said("already {state} by us: {reason}", state=now.state, reason=now.reason)
        if not override:
            return said(
                "already {state} by {who}: {reason}",
                state=now.state,
                who=decided_by(now),
                reason=now.reason,
            )
    foreign = now.reason and not now.ours and now.reason.lower() not in SCHEDULERS_OWN
    if now.state == "down" and foreign and not override:
        return said("down, and {who} says why: {reason}", who=decided_by(now), reason=now.reason)
    return ""


def _resume_refusal(
    name: str, now: Allocation, fleet: Fleet, override: bool, despite_findings: bool
) -> str:
    if now.state not in ("drained", "draining", "down"):
        return said("not drained: {state}", state=now.state)
    if not now.ours and not override:
        return said("drained by {who}, not by us: {reason}", who=decided_by(now), reason=now.reason)
    return "" if despite_findings else still_sick(name, fleet)


def _commands(
    verb: str, names: Sequence[str], reason: str, fleet: Fleet, schedulers: Mapping[str, Scheduler]
) -> Iterable[tuple[str, ...]]:
    for key, members in by_scheduler(names, fleet).items():
        scheduled = [fleet.nodes[name].node.scheduled_as for name in members]
        if verb == "drain":
            yield from schedulers[key].drain_commands(scheduled, reason)
        else:
            yield from schedulers[key].resume_commands(scheduled)


def by_scheduler(names: Sequence[str], fleet: Fleet) -> dict[str, list[str]]:
    """Scheduler, "" where there is none -> its nodes of these, in their order."""
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
