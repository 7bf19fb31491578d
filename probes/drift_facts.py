"""Facts that nodes, GPUs and ports are compared by, taken out of a node's answers. Pure.

What a fact counts for is in data/drift.yaml. 4,000 nodes are compared every few seconds, though
their facts change every few minutes: an answer is taken apart once, and known again by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from probes.event import Sample, Scalar
from probes.facts import NodeFacts
from probes.node.modules import ALLOWED

LIVE_S = 60.0
"""Settings of a GPU among its fast readings are looked at again after so long."""
REMEMBERED = 10_000
"""Nodes whose facts are kept; 4,000 are watched at most."""


class Fact(NamedTuple):
    """One thing that is compared; how it counts is in data/drift.yaml under the same name."""

    name: str
    label: str
    """As in a sentence: "driver 570.124"."""
    per: str
    """node, gpu or port."""
    places: tuple[tuple[str, str], ...]
    """Probe and metric; the first that has a value."""
    kind: str = "text"
    """text, count (compared exactly) or size (compared with a tolerance)."""
    unit: str = ""


def _node(name: str, label: str, kind: str = "text", unit: str = "", metric: str = "") -> Fact:
    return Fact(name, label, "node", (("versions", metric or name),), kind, unit)


def _gpu(
    name: str, label: str, *places: tuple[str, str], kind: str = "text", unit: str = ""
) -> Fact:
    return Fact(name, label, "gpu", places, kind, unit)


NODE_FACTS = (
    Fact("driver", "driver", "node", (("inventory", "driver_version"), ("versions", "driver"))),
    Fact("cuda", "CUDA of the driver", "node", (("inventory", "cuda_version"),)),
    Fact("gpu_count", "GPUs", "node", (("inventory", "gpu_count"),), "count"),
    _node("driver_kind", "kernel module"),
    _node("nccl", "NCCL"),
    _node("cuda_toolkit", "CUDA toolkit"),
    _node("ofed", "OFED"),
    _node("fabricmanager", "fabric manager"),
    _node("toolkit", "container toolkit"),
    _node("dcgm", "DCGM"),
    _node("imex", "IMEX"),
    _node("slurm", "slurmd"),
    _node("kernel", "kernel"),
    _node("os", "OS"),
    _node("bios", "BIOS"),
    _node("system", "machine"),
    _node("board", "mainboard"),
    _node("cpu_model", "CPU"),
    _node("cpu_count", "CPUs", "count"),
    _node("microcode", "microcode"),
    _node("memory_gib", "memory", "size", "GiB"),
    _node("numa_nodes", "NUMA nodes", "count"),
    _node("nvswitches", "NVSwitches", "count"),
    _node("hugepages", "huge pages", "count"),
    _node("thp", "transparent huge pages"),
    _node("cgroup", "cgroup"),
    Fact("governor", "CPU governor", "node", (("host_slow", "governor"),)),
    Fact("smt", "SMT", "node", (("host_slow", "smt"),)),
    Fact("iommu", "IOMMU", "node", (("host_slow", "iommu"),)),
    Fact("clocksource", "clock source", "node", (("host_slow", "clocksource"),)),
)
GPU_FACTS = (
    _gpu("gpu_name", "product", ("inventory", "name")),
    _gpu("vbios", "VBIOS", ("inventory", "vbios")),
    _gpu("inforom", "InfoROM", ("inventory", "inforom_image")),
    _gpu("gsp", "GSP firmware", ("inventory", "gsp_version")),
    _gpu("mig_mode", "MIG", ("inventory", "mig_mode")),
    _gpu("persistence_mode", "persistence mode", ("inventory", "persistence_mode")),
    _gpu("ecc_mode", "ECC", ("ecc", "ecc_mode")),
    _gpu("power_limit_w", "power limit", ("gpu", "power_limit_w"), kind="count", unit="W"),
    _gpu("mem_clock_max_mhz", "memory clock", ("gpu", "mem_clock_max_mhz"), kind="count",
         unit="MHz"),
    _gpu("sm_clock_max_mhz", "SM clock", ("gpu", "sm_clock_max_mhz"), kind="count", unit="MHz"),
    _gpu("gpu_memory_bytes", "GPU memory", ("gpu", "mem_total_bytes"), kind="size", unit="B"),
    _gpu("nvlinks", "NVLinks", ("nvlink", "links"), kind="count"),
)  # fmt: skip
_GPU_METRICS: dict[str, list[tuple[str, str]]] = {}
for _fact in GPU_FACTS:
    for _probe, _metric in _fact.places:
        _GPU_METRICS.setdefault(_probe, []).append((_metric, _fact.name))
OTHER_FACTS = (
    _gpu("fabric_clique", "fabric clique", ("fabric", "fabric_clique"), kind="count"),
    Fact("ib_ports", "RDMA ports", "node", (("infiniband", ""),), "count"),
    Fact("nic_firmware", "firmware", "port", (("infiniband", "fw"),)),
    Fact("memlock", "memlock", "node", (("host_slow", "rows"),)),
    Fact("sysctl", "", "node", (("versions", "sysctl.*"),)),
    Fact("cmdline", "kernel command line", "node", (("versions", "rows"),)),
)
FACTS = {fact.name: fact for fact in (*NODE_FACTS, *GPU_FACTS, *OTHER_FACTS)}


class Seen(NamedTuple):
    """One observation of one node."""

    fact: str
    group: str
    """What it is compared within: GPU product, adapter type, NVLink domain, kernel setting."""
    device: str
    value: Scalar


Items: TypeAlias = tuple[Seen, ...]


def _node_samples(facts: NodeFacts) -> list[Sample | None]:
    return [facts.get("versions"), facts.get("inventory")]


def _node_items(facts: NodeFacts) -> Iterator[Seen]:
    for fact in NODE_FACTS:
        for probe, metric in fact.places:
            value = facts.value(probe, "", metric)
            if value is not None and value != "":
                yield Seen(fact.name, "", "", value)
                break
    versions = facts.get("versions")
    if versions is None:
        return
    for metric, value in versions.values.items():
        if metric.startswith("sysctl.") and value != "":
            yield Seen("sysctl", metric[7:], "", value)
    slow = facts.get("host_slow")
    for row in slow.rows if slow is not None else ():
        if "memlock_bytes" in row:
            yield Seen("memlock", str(row.get("daemon", "")), "", row["memlock_bytes"])
    words = frozenset(str(row["word"]) for row in versions.rows if "word" in row)
    if words:
        yield Seen("cmdline", "", "", " ".join(sorted(words)))


def _gpu_samples(facts: NodeFacts) -> list[Sample | None]:
    return [facts.get("inventory"), *(sample for _, sample in facts.devices("inventory"))]


def _gpu_items(facts: NodeFacts) -> Iterator[Seen]:
    for device, sample in facts.devices("inventory"):
        if not device:
            continue
        product = str(sample.values.get("pci_device_id") or sample.values.get("name") or "")
        for probe, names in _GPU_METRICS.items():
            answer = sample if probe == "inventory" else facts.get(probe, device)
            values = {} if answer is None else answer.values
            for metric, fact in names:
                value = values.get(metric)
                if value is not None and value != "":
                    yield Seen(fact, "" if fact == "gpu_name" else product, device, value)


def _fabric_samples(facts: NodeFacts) -> list[Sample | None]:
    return [sample for _, sample in facts.devices("fabric")]


def _fabric_items(facts: NodeFacts) -> Iterator[Seen]:
    for device, sample in facts.devices("fabric"):
        cluster, clique = (sample.values.get(f"fabric_{name}") for name in ("cluster", "clique"))
        if device and cluster and clique is not None:
            yield Seen("fabric_clique", str(cluster), device, clique)


def _port_samples(facts: NodeFacts) -> list[Sample | None]:
    return [sample for _, sample in facts.devices("infiniband")]


def _port_items(facts: NodeFacts) -> Iterator[Seen]:
    count = 0
    answered = False
    for device, sample in facts.devices("infiniband"):
        answered = True
        values = sample.values
        if not device or values.get("is_vf") or values.get("nvswitch"):
            continue
        count += not values.get("default_route")
        if values.get("fw"):
            yield Seen("nic_firmware", str(values.get("hca") or "?"), device, values["fw"])
    if answered:
        yield Seen("ib_ports", "", "", count)


def _flag_samples(facts: NodeFacts) -> list[Sample | None]:
    return [facts.get("services"), facts.get("modules"), facts.get("containers")]


def _flag_items(facts: NodeFacts) -> Iterator[Seen]:
    for flag, holds in flags(facts).items():
        yield Seen("flag", flag, "", holds)


def flags(facts: NodeFacts) -> dict[str, bool]:
    """What is so or not so on a node: services that run, modules, container engines' settings."""
    found: dict[str, bool] = {}
    services = facts.get("services")
    if services is not None and "manager" in services.values:
        running = {str(row.get("service")) for row in services.rows if row.get("running") is True}
        known = {str(row.get("service")) for row in services.rows}
        blind = services.values.get("sees_processes") is not True
        for name in SERVICE_NAMES:
            if name in known or not blind:
                found[f"service.{name}"] = name in running
    for probe, prefix in (("modules", "module."), ("containers", "container.")):
        sample = facts.get(probe)
        for name, value in sample.values.items() if sample is not None else ():
            if isinstance(value, bool) and (probe == "containers" or name in ALLOWED):
                found[prefix + name] = value
    return found


GPU_DIRECT = ("nvidia_peermem", "nv_peer_mem")
"""Modules that give RDMA adapters access to GPU memory without DMA-BUF: new and old name."""
SERVICE_NAMES: tuple[str, ...] = (
    "fabricmanager", "persistenced", "imex", "dcgm", "nvsm", "slurmd", "munge", "kubelet",
    "containerd", "docker", "crio", "opensm",
)  # fmt: skip
"""Services that peers are asked about; time services are compared where clocks are."""

PARTS: tuple[
    tuple[Callable[[NodeFacts], list[Sample | None]], Callable[[NodeFacts], Iterable[Seen]]], ...
] = (
    (_node_samples, _node_items),
    (_gpu_samples, _gpu_items),
    (_port_samples, _port_items),
    (_fabric_samples, _fabric_items),
    (_flag_samples, _flag_items),
)
NODE, GPU, PORT, FABRIC, FLAG = range(5)


class _Remembered:
    """What was found in a node's answers, and the answers themselves, to know them again."""

    __slots__ = ("items", "live_at", "samples")

    def __init__(self) -> None:
        self.samples: list[list[Sample | None]] = [[] for _ in PARTS]
        self.items: list[Items] = [() for _ in PARTS]
        self.live_at = float("-inf")


_nodes: dict[str, _Remembered] = {}
_equal: dict[Items, Items] = {}
"""Equal nodes share one object, so that they can be counted together."""


def of(facts: NodeFacts) -> list[Items]:
    """Observations of a node by part; the same objects as long as nothing changed."""
    name = facts.node.name
    known = _nodes.get(name)
    if known is None:
        if len(_nodes) >= REMEMBERED or len(_equal) >= 4 * REMEMBERED:
            _nodes.clear()
            _equal.clear()
        known = _nodes[name] = _Remembered()
    live_at = _live_at(facts)
    stale = not 0 <= live_at - known.live_at < LIVE_S and live_at != known.live_at
    for part, (samples, items) in enumerate(PARTS):
        now = samples(facts)
        before = known.samples[part]
        known_already = len(now) == len(before) and all(map(same, now, before))
        if known_already and not (part == GPU and stale):
            continue
        found = tuple(items(facts))
        known.items[part] = _equal.setdefault(found, found)
        known.samples[part] = now
        if part == GPU:
            known.live_at = live_at
    return known.items


def same(one: object, two: object) -> bool:
    """Whether they are one object."""
    return one is two


def _live_at(facts: NodeFacts) -> float:
    """When a GPU's fast readings were taken; any GPU's, as they are read together."""
    for _, sample in facts.devices("gpu"):
        return sample.at
    return float("-inf")
