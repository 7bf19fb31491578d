"""What one Kubernetes node is to us: allocation, inventory entry, may it be written. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from inventory.kube_text import AT, BY, MARKS, PRODUCT_LABEL, REASON, KubeNode, KubePod
from inventory.node import Node
from inventory.scheduler import KEPT, MARKER, Allocation, Job, Step, step
from inventory.slurm_reason import reason_text

EPOCH = re.compile(r"[0-9]{1,12}")
"""Anybody who may annotate a node can write something else there."""
NOT_KNOWN = "not known to Kubernetes"
SILENT = "cordoned without a reason"


class Snapshot(Struct, frozen=True):
    """One reading of the cluster, by node name."""

    nodes: Mapping[str, KubeNode]
    jobs: Mapping[str, Sequence[Job]]
    held: Mapping[str, int]
    """GPUs that pods hold on a node."""
    at: float


def snapshot(nodes: Sequence[KubeNode], pods: Sequence[KubePod], at: float) -> Snapshot:
    """Pods that hold GPUs, folded to the object that owns them."""
    held: dict[str, int] = {}
    work: dict[tuple[str, str], set[str]] = {}
    for pod in pods:
        if pod.node and pod.held_gpus:
            held[pod.node] = held.get(pod.node, 0) + pod.held_gpus
            if not pod.of_daemon_set:
                key = pod.metadata.namespace, pod.owner
                work.setdefault(key, set()).add(pod.node)
    jobs: dict[str, list[Job]] = {}
    for (namespace, owner), members in sorted(work.items()):
        name = owner.partition("/")[2]
        job = Job(id=f"{namespace}/{owner}", user=namespace, name=name, nodes=len(members))
        for node in members:
            jobs.setdefault(node, []).append(job)
    return Snapshot({node.name: node for node in nodes}, jobs, held, at)


def allocation(name: str, seen: Snapshot, scheduler: str) -> Allocation:
    """What Kubernetes says about one name; state "unknown" when it does not know it."""
    node = seen.nodes.get(name)
    if node is None:
        return Allocation(
            node=name, at=seen.at, scheduler=scheduler, state="unknown", raw=NOT_KNOWN
        )
    at = node.note(AT)
    return Allocation(
        node=name,
        at=seen.at,
        scheduler=scheduler,
        state=state(node, seen.held.get(name, 0)),
        raw=raw(node),
        reason=node.note(REASON) or (SILENT if node.cordoned else ""),
        reason_by=node.note(BY),
        reason_at=float(at) if EPOCH.fullmatch(at) else None,
        jobs=tuple(seen.jobs.get(name, ())),
        responding=node.ready is not None,
    )


def state(node: KubeNode, held: int) -> str:
    """The node in the one vocabulary of all schedulers; `held` GPUs are in use."""
    if not node.ready:
        return "down"
    if node.cordoned:
        return "draining" if held else "drained"
    if not held:
        return "idle"
    return "allocated" if held >= node.gpus_usable else "mixed"


def raw(node: KubeNode) -> str:
    """As `kubectl get nodes` words it, with the GPUs on offer where some are missing."""
    words = [{True: "Ready", False: "NotReady", None: "Unknown"}[node.ready]]
    if node.cordoned:
        words.append("SchedulingDisabled")
    if node.gpus_usable < node.gpus:
        words.append(f"{node.gpus_usable} of {node.gpus} GPUs allocatable")
    return ",".join(words)


def inventory_node(node: KubeNode, scheduler: str) -> Node:
    """The node as part of an inventory, reached by its name as `ssh NAME` would."""
    product = node.labels.get(PRODUCT_LABEL, "")
    return Node(
        name=node.name,
        role=f"{product or 'gpu'}x{node.gpus}",
        gpus=node.gpus or None,
        scheduler=scheduler,
    )


def foreign(node: KubeNode) -> str:
    """Why this cordon is not ours alone, as a sentence; "" when it is ours or there is none."""
    reason = node.note(REASON)
    if not node.cordoned:
        return ""
    if not reason.startswith(MARKER):
        return "cordoned by somebody else, who gave no reason"
    return "it was cordoned by somebody else before us" if KEPT in reason else ""


def judge_drain(
    name: str, node: KubeNode | None, reason: str, *, override: bool
) -> tuple[Step, str]:
    """A check Step and the reason to write, or a final Step (done, refused) and ""."""
    if node is None:
        return step(name, "refused", NOT_KNOWN, ok=False), ""
    theirs = foreign(node)
    if theirs and not override:
        return step(name, "refused", f"left alone: {theirs}", ok=False), ""
    text = reason_text(reason, f"{KEPT}somebody: {SILENT})" if theirs else "")
    if node.cordoned and (not theirs or node.note(REASON) == text):
        # Another console of ours was faster: its reason stays.
        return step(name, "done", f"already {describe(node)}"), ""
    return step(name, "check", describe(node)), text


def judge_resume(name: str, node: KubeNode | None, *, override: bool) -> Step:
    """A check Step, or a final one: nothing to resume (done), or not ours (refused)."""
    if node is None:
        return step(name, "refused", NOT_KNOWN, ok=False)
    if not node.cordoned:
        return step(name, "done", f"nothing to resume: {describe(node)}")
    theirs = foreign(node)
    if theirs and not override:
        return step(name, "refused", f"not ours to resume: {theirs}", ok=False)
    return step(name, "check", describe(node))


def describe(node: KubeNode, jobs: Sequence[Job] = ()) -> str:
    """State, reason and work: `Ready,SchedulingDisabled: gpuconsole: xid 79; still runs ...`."""
    said = raw(node)
    if node.cordoned and node.note(REASON):
        said += f": {node.note(REASON)}"
    if jobs:
        more = f" and {len(jobs) - 5} more" if len(jobs) > 5 else ""
        said += f"; still runs {', '.join(job.id for job in jobs[:5])}{more}"
    return said


def patch(reason: str, by: str, at: float, version: str = "") -> dict[str, object]:
    """The merge patch that cordons (or, without a reason, uncordons) and signs, in one write.

    With the `version` that was judged the API answers 409 when somebody wrote in between.
    """
    marks: dict[str, str | None] = dict.fromkeys(MARKS)
    if reason:
        marks = {REASON: reason, BY: by, AT: str(int(at))}
    metadata: dict[str, object] = {"annotations": marks}
    if version:
        metadata["resourceVersion"] = version
    return {"metadata": metadata, "spec": {"unschedulable": True if reason else None}}
