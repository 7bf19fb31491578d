"""GPUs that pods hold, and what a drain would do to each pod. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct, field

from console.diagnose.kube_objects import at, dicts, gpus, name, text

FINISHED = ("Succeeded", "Failed")


class Usage(Struct):
    """The pods of one node (or of none, for pods that no node has yet)."""

    requested: dict[str, int] = field(default_factory=dict)
    not_counted: list[str] = field(default_factory=list)
    """Finished pods that once asked for GPUs."""
    evictable: list[str] = field(default_factory=list)
    needs_confirmation: list[str] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)
    """Pod that needs confirmation -> why."""
    skip: list[str] = field(default_factory=list)
    terminating: list[str] = field(default_factory=list)

    @property
    def held(self) -> int:
        """GPUs that live pods hold."""
        return sum(self.requested.values())

    def facts(self, allocatable: int | None) -> dict[str, Any]:
        """As numbers of one node."""
        found: dict[str, Any] = {
            "gpus_requested": self.requested, "held_sum": self.held,
            "not_counted": self.not_counted, "evictable": self.evictable,
            "needs_confirmation": self.needs_confirmation, "skip_on_drain": self.skip,
            "already_terminating": self.terminating,
        }  # fmt: skip
        if allocatable is not None:
            # Never below nothing: what is missing is its own number.
            found["free"] = max(0, allocatable - self.held)
            found["overcommitted_by"] = max(0, self.held - allocatable)
        return found


def usage(pods: list[dict[str, Any]]) -> dict[str, Usage]:
    """Node -> its pods; "" for pods that are bound to none."""
    names = Counter(name(pod) for pod in pods)
    found: dict[str, Usage] = {}
    for pod in pods:
        shown = name(pod)
        if names[shown] > 1:
            shown = f"{text(pod, 'metadata', 'namespace')}/{shown}"
        _take(found.setdefault(text(pod, "spec", "nodeName"), Usage()), pod, shown)
    return found


def _take(node: Usage, pod: dict[str, Any], shown: str) -> None:
    wants = requested(pod)
    if text(pod, "status", "phase") in FINISHED:
        if wants:
            node.not_counted.append(shown)
        return
    if wants:
        node.requested[shown] = wants
    owner = controller(pod)
    if at(pod, "metadata", "deletionTimestamp"):
        node.terminating.append(shown)
    elif is_mirror(pod):
        node.skip.append(f"{shown} (mirror)")
    elif owner == "DaemonSet":
        node.skip.append(f"{shown} (DaemonSet)")
    elif why := _loses(pod, owner):
        node.needs_confirmation.append(shown)
        node.why[shown] = why
    else:
        node.evictable.append(shown)


def _loses(pod: dict[str, Any], owner: str) -> str:
    """What a drain would lose of it; "" when nothing."""
    local = [name_ for v in dicts(pod, "spec", "volumes") if "emptyDir" in v
             and (name_ := text(v, "name") or "unnamed")]  # fmt: skip
    lost = [] if owner else ["no controller"]
    if local:
        lost.append(f"local data (emptyDir {', '.join(local[:4])})")
    return ", ".join(lost)


def controller(pod: dict[str, Any]) -> str:
    """Kind of the owner that would start it again; "" without one."""
    owners = dicts(pod, "metadata", "ownerReferences")
    return next((text(o, "kind") for o in owners if o.get("controller")), "") or next(
        (text(o, "kind") for o in owners), ""
    )


def is_mirror(pod: dict[str, Any]) -> bool:
    """A static pod: the kubelet's own, which no eviction ends."""
    notes = at(pod, "metadata", "annotations")
    return isinstance(notes, dict) and "kubernetes.io/config.mirror" in notes


def requested(pod: dict[str, Any]) -> int:
    """GPUs the scheduler books: the larger of all containers together and any init container.

    An init container that restarts (a sidecar) runs on beside the others and adds to both.
    """
    running = sum(_container(c) for c in dicts(pod, "spec", "containers"))
    sidecars = most = 0
    for one in dicts(pod, "spec", "initContainers"):
        wants = _container(one)
        if one.get("restartPolicy") == "Always":
            sidecars += wants
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + wants)
    return max(running + sidecars, most)


def _container(container: dict[str, Any]) -> int:
    wanted = gpus(at(container, "resources", "requests"))
    return wanted if wanted is not None else gpus(at(container, "resources", "limits")) or 0
