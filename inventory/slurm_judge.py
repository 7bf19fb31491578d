"""What one Slurm node is to us: allocation, inventory entry, may it be written. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from inventory.node import Node
from inventory.scheduler import MARKER, Allocation, Job, Step, step
from inventory.slurm_read import Snapshot
from inventory.slurm_reason import foreign, kept_part, lost_by_slurm, reason_text
from inventory.slurm_text import SlurmNode, read_gpus

NOT_KNOWN = "not known to Slurm"


def allocation(name: str, seen: Snapshot) -> Allocation:
    """What Slurm says about one name; state "unknown" when it does not know it."""
    node = seen.nodes.get(name)
    if node is None:
        return Allocation(node=name, at=seen.at, scheduler="slurm", state="unknown", raw=NOT_KNOWN)
    return Allocation(
        node=name,
        at=seen.at,
        scheduler="slurm",
        state=node.state.state,
        raw=node.state.raw,
        reason=node.reason,
        reason_by=node.reason_by,
        reason_at=node.reason_at,
        partitions=node.partitions,
        jobs=tuple(seen.jobs.get(name, ())),
        responding=node.state.responding,
    )


def inventory_node(node: SlurmNode, partition: str, scheduler: str = "slurm") -> Node:
    """The node as part of an inventory; see Slurm.inventory().

    It is reached by its name, as `ssh NAME` would: NodeAddr is where slurmd listens, and neither
    ssh_config nor known_hosts need to know that address.
    """
    gpus = read_gpus(node.gres)
    group = partition or (node.partitions[0] if node.partitions else "default")
    return Node(
        name=node.name,
        group=group,
        role=f"{gpus.model or 'gpu'}x{gpus.count}" if gpus else "compute",
        labels={"partitions": ",".join(node.partitions)} if node.partitions else {},
        gpus=gpus.count if gpus else None,
        scheduler=scheduler,
    )


def judge_drain(
    name: str, node: SlurmNode | None, reason: str, *, override: bool
) -> tuple[Step, str]:
    """A check Step and the reason to write, or a final Step (done, refused) and ""."""
    if node is None:
        return step(name, "refused", NOT_KNOWN, ok=False), ""
    lost = lost_by_slurm(node)
    theirs = "" if lost else foreign(node)
    if theirs and not override:
        return step(name, "refused", f"left alone: {theirs}", ok=False), ""
    text = reason_text(reason, "" if lost else kept_part(node))
    ours = node.reason.startswith(MARKER) and not theirs
    if node.state.drain and (ours or node.reason == text):
        # Another console of ours was faster: its reason stays.
        return step(name, "done", f"already {describe(node)}"), ""
    return step(name, "check", describe(node)), text


def judge_resume(name: str, node: SlurmNode | None, *, override: bool) -> Step:
    """A check Step, or a final one: nothing to resume (done), or not ours (refused)."""
    if node is None:
        return step(name, "refused", NOT_KNOWN, ok=False)
    theirs = foreign(node)
    out_of_work = node.state.drain or node.state.base == "DOWN" or "FAIL" in node.state.flags
    if not out_of_work:
        return step(name, "done", f"nothing to resume: {describe(node)}")
    if theirs and not override:
        return step(name, "refused", f"not ours to resume: {theirs}", ok=False)
    return step(name, "check", describe(node))


def describe(node: SlurmNode, jobs: Sequence[Job] = ()) -> str:
    """State, raw state where it says more, reason and jobs: `draining (MIXED+DRAIN): ...`."""
    state, raw = node.state.state, node.state.raw
    said = state if raw.lower() == state else f"{state} ({raw})"
    if node.reason:
        said += f": {node.reason}"
    if jobs:
        names = ", ".join(f"{job.id} ({job.user})" for job in jobs[:5])
        more = f" and {len(jobs) - 5} more" if len(jobs) > 5 else ""
        said += f"; still runs {names}{more}"
    return said
