"""Which nodes may be tested now, and how many at once. Pure.

Tested are idle nodes, and nodes that we drained or reserved; everything else is refused with why.
At most a fifth of a pool (the nodes of one inventory group) is under test at once; nodes that do
no work anyway, drained or reserved by us, do not count, nor do those the operator says to own. The
smallest unit is always allowed, one node or one pair: in a pool of four a fifth is nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from console.active.ask import Asked
from console.active.results import Group
from console.plan_notes import decided_by
from console.said import said
from inventory.node import Node
from inventory.scheduler import Allocation, Job
from probes.event import NodeState
from probes.facts import NodeFacts

CAP = 0.2
"""Share of a pool under test at once: one fifth is what AWS and Karpenter disturb [science 1.5]."""
SMALLEST = 2
"""A pair may always run."""
NOT_YET = said("not read yet")
"""Ends a refusal that a moment's wait may lift."""
OURS = "gpuconsole-"
"""Begins the names of jobs that we submit; behind it stands the campaign's id."""
LIVE = (NodeState.UP, NodeState.DEGRADED)
COMING = (NodeState.PENDING, NodeState.CONNECTING, NodeState.STALE, NodeState.HUNG)


class Claim(Struct, frozen=True):
    """What the operator may count as theirs."""

    force: bool = False
    reserved: frozenset[str] = frozenset()
    """Nodes of the reservation that was named and is ours to use."""
    sessions: bool = True
    """The test needs a live agent there (not when a scheduler starts it)."""
    keeps_slurm: bool = False
    """The scheduler starts it: a drained node takes no jobs."""
    errors: Mapping[str, str] = {}
    """Scheduler -> why it cannot be asked just now."""
    jobs: str = ""
    """What the names of this campaign's own jobs begin with; "" while there are none."""


def claim_of(
    asked: Asked, reserved: Iterable[str], errors: Mapping[str, str], campaign: str = ""
) -> Claim:
    """What this request may count as its own."""
    return Claim(
        force=asked.force,
        reserved=frozenset(reserved),
        sessions=asked.launch == "ssh",
        keeps_slurm=asked.launch == "srun",
        errors=dict(errors),
        jobs=f"{OURS}{campaign}" if campaign and asked.launch != "ssh" else "",
    )


class Answer(Struct, frozen=True):
    """Whether one node may be tested."""

    refused: str = ""
    disturbs: str = ""
    """What a forced test disturbs."""
    counted: bool = True
    """In service: the cap holds for it."""

    @property
    def waits(self) -> bool:
        """Something was not read yet: a moment later there is a better answer."""
        return (self.refused or self.disturbs).endswith(NOT_YET)


def judge(facts: NodeFacts, claim: Claim) -> Answer:
    """Whether this node may be tested now."""
    now = facts.allocation
    if not claim.force and (why := taken(facts, claim)):
        return Answer(refused=why)
    if claim.sessions and (why := no_session(facts) or unread(facts)):
        return Answer(refused=why)
    if claim.keeps_slurm and now is not None and now.state in ("drained", "draining", "down"):
        why = said(
            "{state}: {scheduler} starts nothing there; use --launch ssh",
            state=now.state,
            scheduler=now.scheduler,
        )
        return Answer(refused=why)
    why = unasked(facts, claim) or taken(facts, claim) or busy(facts, claim)
    if not why:
        return Answer(counted=not out_of_service(facts, claim))
    if not claim.force:
        return Answer(refused=why)
    return Answer(disturbs=why, counted=False)


def no_session(facts: NodeFacts) -> str:
    """Why no order can be sent there; nobody can override that."""
    if facts.state in LIVE:
        return ""
    if facts.state in COMING:
        return said("no live session ({state}), {wait}", state=facts.state, wait=NOT_YET)
    return said("no live session ({state})", state=facts.state)


def unread(facts: NodeFacts) -> str:
    """Why its GPUs cannot be counted; nobody can override that: it would run on some of them."""
    if facts.get("inventory") is None:
        return said("its GPUs are {wait}", wait=NOT_YET)
    on_bus = facts.value("inventory", "", "pci_gpu_count")
    if not on_bus or any(device for device, _ in facts.devices("inventory")):
        return ""
    if facts.value("inventory", "", "nvml_library") is True and not _failed(facts):
        return said("the driver is slow to tell of its {n} GPUs, {wait}", n=on_bus, wait=NOT_YET)
    return said("the driver tells of none of its {n} GPUs", n=on_bus)


def _failed(facts: NodeFacts) -> bool:
    """Whether NVML said no, or counts none: waiting changes nothing."""
    refused = facts.value("inventory", "", "nvml_rc") is not None
    return refused or facts.value("inventory", "", "gpu_count") == 0


def unasked(facts: NodeFacts, claim: Claim) -> str:
    """What is not known about its scheduler's view."""
    scheduler = facts.node.scheduler
    if not scheduler:
        return ""
    if scheduler in claim.errors:
        return said(
            "{scheduler} cannot be asked whether a job runs here: {error}",
            scheduler=scheduler,
            error=claim.errors[scheduler],
        )
    if facts.allocation is None:
        return said(
            "{scheduler} has not said whether a job runs here, {wait}",
            scheduler=scheduler,
            wait=NOT_YET,
        )
    return ""


def taken(facts: NodeFacts, claim: Claim) -> str:
    """Somebody else's decision about the node."""
    now = facts.allocation
    if now is None or facts.node.name in claim.reserved:
        return ""
    if now.state in ("drained", "draining") and not now.ours:
        return said(
            "{state} by {who}, not by us{reason}",
            state=now.state,
            who=decided_by(now),
            reason=f": {now.reason}" if now.reason else "",
        )
    if now.state == "reserved":
        return said("reserved: name the reservation with --reservation if it is yours")
    if now.state in ("maintenance", "down", "off", "unknown"):
        return said(
            "{state} in {scheduler}{reason}",
            state=now.state,
            scheduler=now.scheduler,
            reason=f": {now.reason or now.raw}" if now.reason or now.raw else "",
        )
    return ""


def busy(facts: NodeFacts, claim: Claim) -> str:
    """What runs there, or what keeps us from knowing."""
    now = facts.allocation
    if now is not None and (work := working(now, claim.jobs)):
        return said("busy: {work}", work=work)
    if not claim.sessions:
        return ""
    if not any(device for device, _ in facts.devices("inventory")):
        return ""
    processes = facts.get("processes")
    if processes is None:
        return said("processes on its GPUs are {wait}", wait=NOT_YET)
    users = {str(row.get("command", "?")) for row in processes.rows}
    return said("busy: {work} on its GPUs", work=", ".join(sorted(users))) if users else ""


def working(now: Allocation, ours: str = "") -> str:
    """The jobs a scheduler has there, those that begin with `ours` excepted; "" for none."""
    jobs = [job for job in now.jobs if not is_ours(job, ours)]
    if jobs:
        return ", ".join(f"job {job.id} {job.user}".strip() for job in jobs)
    if now.state in ("allocated", "mixed", "draining") and not now.jobs:
        return now.raw or now.state
    return ""


def is_ours(job: Job, ours: str) -> bool:
    """Whether it is one of our own; Kubernetes has only lower-case names."""
    return bool(ours) and job.name.lower().startswith(ours.lower())


def ending(now: Allocation | None, ours: str) -> bool:
    """Only our own job is still there, or the scheduler is clearing up after it."""
    return now is not None and now.busy and all(is_ours(job, ours) for job in now.jobs)


def out_of_service(facts: NodeFacts, claim: Claim) -> bool:
    """Whether it would do no work anyway, by our own decision."""
    now = facts.allocation
    drained = now is not None and now.state == "drained" and now.ours
    return claim.force or drained or facts.node.name in claim.reserved


def pools(nodes: Iterable[Node]) -> dict[str, int]:
    """Pool -> how many of its nodes in service may be under test at once."""
    sizes: dict[str, int] = {}
    for node in nodes:
        sizes[node.group] = sizes.get(node.group, 0) + 1
    return {pool: int(CAP * size) for pool, size in sizes.items()}


def fits(
    groups: Iterable[Group],
    counted: Collection[str],
    pool: Callable[[str], str],
    caps: Mapping[str, int],
) -> bool:
    """Whether these may run side by side: disjoint, and no pool above its cap.

    The smallest unit fits alone: one node or one pair.
    """
    groups = list(groups)
    names = [name for group in groups for name in group.nodes]
    if len(set(names)) < len(names):
        return False
    use: dict[str, int] = {}
    for name in names:
        if name in counted:
            use[pool(name)] = use.get(pool(name), 0) + 1
    alone = len(groups) == 1 and len(names) <= SMALLEST
    return alone or all(count <= caps.get(key, 0) for key, count in use.items())


def batches(
    groups: Sequence[Group],
    counted: Collection[str],
    pool: Callable[[str], str],
    caps: Mapping[str, int],
) -> tuple[list[list[Group]], list[Group]]:
    """A round in parts that run one after the other, and what is too large to run at all."""
    parts: list[list[Group]] = []
    too_large: list[Group] = []
    for group in groups:
        if not fits([group], counted, pool, caps):
            too_large.append(group)
            continue
        for part in parts:
            if fits([*part, group], counted, pool, caps):
                part.append(group)
                break
        else:
            parts.append([group])
    return parts, too_large
