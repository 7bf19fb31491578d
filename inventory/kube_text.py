"""What `kubectl get -o json` says about nodes and pods, as typed records. Pure.

Only the fields that are used are decoded; everything else of an object (4,000 nodes are 40 MB of
JSON) is skipped by the decoder. Names and fields: Kubernetes API v1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from inventory.errors import SchedulerError
from inventory.slurm_text import clean

REASON = "gpuconsole/reason"
BY = "gpuconsole/by"
AT = "gpuconsole/at"
"""Annotations of ours on a cordoned node: why, who, and epoch seconds."""
MARKS = (REASON, BY, AT)

GPU_RESOURCE = re.compile(r"nvidia\.com/(gpu|mig-[\w.-]+|gpu\.shared)")
"""Extended resources of the NVIDIA device plugin, MIG strategies and time slices included."""
COUNT = re.compile(r"[0-9]{1,6}")
GPU_LABELS = ("nvidia.com/gpu.count", "nvidia.com/gpu.present")
PRODUCT_LABEL = "nvidia.com/gpu.product"
MIRROR = "kubernetes.io/config.mirror"


class _Owner(Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Meta(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None


class Taint(Struct, rename="camel"):
    """A taint: what it is called and what it does to pods."""

    key: str = ""
    effect: str = ""
    value: str = ""


class _NodeSpec(Struct, rename="camel"):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class Condition(Struct, rename="camel"):
    """A condition of a node: Ready, MemoryPressure, or one that node-problem-detector sets."""

    type: str = ""
    status: str = ""
    reason: str = ""


class _NodeStatus(Struct, rename="camel"):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: list[Condition] | None = None


class KubeNode(Struct):
    """One node."""

    metadata: _Meta
    spec: _NodeSpec = field(default_factory=_NodeSpec)
    status: _NodeStatus = field(default_factory=_NodeStatus)

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return self.metadata.name

    @property
    def version(self) -> str:
        """Changes with every write: a patch that carries it fails when somebody was faster."""
        return self.metadata.resource_version

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.metadata.labels or {}

    def note(self, name: str) -> str:
        """An annotation of ours, made harmless; "" when there is none."""
        return clean((self.metadata.annotations or {}).get(name, ""))

    @property
    def cordoned(self) -> bool:
        """Whether new pods are kept away."""
        return self.spec.unschedulable

    @property
    def ready(self) -> bool | None:
        """The kubelet's word; None when it has not been heard from (status Unknown) or never."""
        found = next((c for c in self.status.conditions or () if c.type == "Ready"), None)
        return None if found is None or found.status == "Unknown" else found.status == "True"

    @property
    def gpus(self) -> int:
        """GPUs it has, by resource or by the label of GPU feature discovery."""
        counted = gpu_count(self.status.capacity)
        label = self.labels.get(GPU_LABELS[0], "")
        return counted or (int(label) if COUNT.fullmatch(label) else 0)

    @property
    def gpus_usable(self) -> int:
        """GPUs that pods may have now."""
        return gpu_count(self.status.allocatable)

    @property
    def has_gpus(self) -> bool:
        """Whether this is a GPU node, even when the device plugin offers none at the moment."""
        return bool(self.gpus) or self.labels.get(GPU_LABELS[1]) == "true"


class _Resources(Struct):
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


class _Container(Struct, rename="camel"):
    resources: _Resources = field(default_factory=_Resources)
    restart_policy: str = ""

    @property
    def gpus(self) -> int:
        """Limits win: for extended resources both must be equal where both are given."""
        return gpu_count(self.resources.limits) or gpu_count(self.resources.requests)


class _Volume(Struct, rename="camel"):
    empty_dir: dict[str, object] | None = None


class _PodSpec(Struct, rename="camel"):
    node_name: str = ""
    volumes: list[_Volume] | None = None
    containers: list[_Container] = field(default_factory=list)
    init_containers: list[_Container] | None = None


class _PodStatus(Struct):
    phase: str = ""


class KubePod(Struct):
    """One pod."""

    metadata: _Meta
    spec: _PodSpec = field(default_factory=_PodSpec)
    status: _PodStatus = field(default_factory=_PodStatus)

    @property
    def node(self) -> str:
        """Where it is bound; "" while it waits."""
        return self.spec.node_name

    @property
    def held_gpus(self) -> int:
        """GPUs it holds: nothing once it has ended, also while it is being deleted.

        Init containers run before the others, so the larger of both counts; those with
        restartPolicy Always (sidecars) run beside them and add to both.
        """
        if self.status.phase in ("Succeeded", "Failed"):
            return 0
        first = self.spec.init_containers or []
        beside = sum(c.gpus for c in first if c.restart_policy == "Always")
        before = max((c.gpus for c in first if c.restart_policy != "Always"), default=0)
        return beside + max(before, sum(c.gpus for c in self.spec.containers))

    @property
    def owner(self) -> str:
        """ "Job/train" of the object that made it, else "Pod/name"."""
        owners = self.metadata.owner_references or []
        found = next((one for one in owners if one.controller), None)
        return f"{found.kind}/{found.name}" if found else f"Pod/{self.metadata.name}"

    @property
    def full_name(self) -> str:
        """namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def managed(self) -> bool:
        """Whether a controller makes a new one when this one goes."""
        return any(one.controller for one in self.metadata.owner_references or ())

    @property
    def local_data(self) -> bool:
        """Whether it has data that is lost with it."""
        return any(one.empty_dir is not None for one in self.spec.volumes or ())

    @property
    def of_daemon_set(self) -> bool:
        """Whether it belongs to the node rather than to somebody's work."""
        mirror = MIRROR in (self.metadata.annotations or {})
        return mirror or self.owner.startswith(("DaemonSet/", "Node/"))


class _Nodes(Struct):
    items: list[KubeNode]


class _Pods(Struct):
    items: list[KubePod]


def gpu_count(resources: Mapping[str, str] | None) -> int:
    """GPUs (or MIG instances) in a resource list; whole numbers by the API's own rule."""
    found = (resources or {}).items()
    return sum(int(n) for name, n in found if GPU_RESOURCE.fullmatch(name) and COUNT.fullmatch(n))


def read_nodes(text: str) -> list[KubeNode]:
    """`kubectl get nodes -o json`. SchedulerError when it is something else."""
    return _decoded(text, _Nodes, "nodes").items


def read_node(text: str) -> KubeNode:
    """One node, as `kubectl get node NAME` and `kubectl patch` print it."""
    return _decoded(text, KubeNode, "a node")


def read_pods(text: str) -> list[KubePod]:
    """`kubectl get pods -o json`. SchedulerError when it is something else."""
    return _decoded(text, _Pods, "pods").items


_T = TypeVar("_T")


def _decoded(text: str, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        words = clean(text[:400])[:80] or "nothing"
        raise SchedulerError(f"kubectl did not print {what}: {error} ({words})") from error
