"""What a run should reach, and who says so: catalogue, NIC rate, own past. Pure.

Peers of the same round are not here: they are in the runs. Figures of CPU engines are compared
with nothing but each other, never with what is written here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct

from console.active.level import CPU_ENGINES
from console.active.results import Level, Run
from probes import ports
from probes.checks.gpu_test import host_mark
from probes.event import Finding
from probes.expect import gpu_slots
from probes.facts import NodeFacts
from probes.own import NONE, Own
from probes.reading import number
from probes.rules import Product, Rules, load_rules

GIB = 1 << 30
PAIR_SHARE = 0.6
"""busbw of two nodes over the sum of one node's NICs: the lowest two-node pass mark in use,
60 of 100 GB/s (A3); A3 Mega 150 of 200, A3 Ultra 250 of 400 [chs]."""
WIRE_SHARE = 0.73
"""Per-GPU wire rate over NIC rate that good systems reach at 1 GiB and more [mle]."""
WIRE_NODES = 4
"""Nodes from which the wire rate means something: it assumes a hierarchical algorithm, and two
nodes that run a ring show half of it."""
CLASS_SHARE, CLASS_NODES = 0.25, 3
"""A NIC sum that at least these have is a kind of node, else it is a node that lacks a NIC."""


class Figure(Struct, frozen=True):
    """One expected figure."""

    value: float
    provenance: str


class NodeSpec(Struct, frozen=True, kw_only=True):
    """What is known of a node's equipment."""

    product: Product | None = None
    gpus: int | None = None
    nic_gb_s: float | None = None
    """Sum of its compute ports one way, 1e9 bytes a second, those that are down included."""
    host_gb_s: Mapping[str, float] = {}
    """PCI address -> what host copies of that GPU should reach, by its slot."""


class Expected(Struct, frozen=True, kw_only=True):
    """Everything but the runs that a figure can be compared with."""

    nodes: Mapping[str, NodeSpec] = {}
    own: Own = NONE
    """(node, device, metric of `metric()`) -> the last good results. Cluster figures: node ""."""
    hard: Mapping[tuple[str, str], str] = {}
    """(node, PCI address or "") -> hardware evidence that findings hold just now, in words."""
    limits: Mapping[str, float] = {}
    """Those of the rules, a site's own among them; what is not here is as shipped."""

    def spec(self, node: str) -> NodeSpec:
        """Empty when nothing is known."""
        return self.nodes.get(node, NodeSpec())

    def limit(self, name: str) -> float:
        """The figure that the findings of the same test go by."""
        return self.limits[name] if name in self.limits else shipped().limit(name).value


@cache
def shipped() -> Rules:
    """Without a site's overlay."""
    return load_rules()


NOTHING = Expected()


def metric(level: Level, what: str, engine: str, nodes: int = 0) -> str:
    """Name under which results are remembered: "pairs.busbw.nccl-tests", "cluster16.busbw.…".

    Only like is compared with like, hence the engine, and of a cluster the number of nodes.
    """
    return f"{level}{nodes or ''}.{what}.{engine or 'unknown'}"


def of_facts(
    all_facts: Iterable[NodeFacts],
    rules: Rules,
    own: Own = NONE,
    findings: Iterable[Finding] = (),
) -> Expected:
    """From what the probes read: product, GPUs, NIC rates, and hard findings."""
    known = list(all_facts)
    rate = Counter(r for facts in known for r in _rates(facts)).most_common(1)
    usual = rate[0][0] if rate else None
    return Expected(
        nodes={facts.node.name: _spec(facts, rules, usual) for facts in known},
        own=own,
        hard={(f.node, f.device): f"{f.rule}: {f.say}" for f in findings if f.hard},
        limits={name: limit.value for name, limit in rules.limits.items()},
    )


def _rates(facts: NodeFacts) -> list[float]:
    """Rates of the active compute ports, Gb/s."""
    found = [
        number(sample.values.get("rate_gbps"))
        for _, sample, role in ports.ports(facts)
        if role == ports.COMPUTE and sample.values.get("state") == ports.ACTIVE
    ]
    return [rate for rate in found if rate]


def _spec(facts: NodeFacts, rules: Rules, usual: float | None) -> NodeSpec:
    """A port that is down is counted at the usual rate: it should be there."""
    ids = (s.values.get("pci_device_id") for _, s in facts.devices("inventory"))
    device_id = next((str(value) for value in ids if value), None)
    listed = sum(role == ports.COMPUTE for _, _, role in ports.ports(facts))
    active = _rates(facts)
    total = sum(active) + (listed - len(active)) * (usual or 0.0)
    slots = gpu_slots(facts)
    product = rules.product(device_id, facts.node.hardware)
    marks = {d: host_mark(facts, d, product, rules) for d, _ in facts.devices("inventory") if d}
    return NodeSpec(
        product=product,
        host_gb_s={device: mark[1] for device, mark in marks.items() if mark},
        gpus=facts.node.gpus or (len(slots) if slots else None),
        nic_gb_s=total / 8 if total else None,
    )


def capacities(expected: Expected, nodes: Sequence[str]) -> dict[str, float]:
    """Node -> NIC sum of its kind, GB/s; {} unless it is known of most nodes.

    A node with fewer NICs than the others of its product is not another kind of node but one that
    lacks something: it is measured against the others' sum.
    """
    known: dict[str, list[float]] = defaultdict(list)
    for node in nodes:
        spec = expected.spec(node)
        if spec.nic_gb_s:
            known[_product(spec)].append(spec.nic_gb_s)
    if sum(len(sums) for sums in known.values()) * 2 <= len(nodes):
        return {}
    usual = {name: _usual(sums) for name, sums in known.items()}
    common = max(usual.values(), key=lambda u: max(u.values()))
    return {node: _capacity(expected.spec(node), usual, common) for node in nodes}


def _product(spec: NodeSpec) -> str:
    return spec.product.name if spec.product else ""


def _usual(sums: list[float]) -> dict[float, int]:
    """NIC sum -> nodes, of those that are a kind of their own; else the commonest."""
    counts = Counter(sums)
    least = max(CLASS_NODES, CLASS_SHARE * len(sums))
    kinds = {value: n for value, n in counts.items() if n >= least}
    if kinds:
        return kinds
    best = max(counts, key=lambda value: (counts[value], value))
    return {best: counts[best]}


def _capacity(
    spec: NodeSpec, usual: Mapping[str, dict[float, int]], common: dict[float, int]
) -> float:
    kinds = usual.get(_product(spec), common)
    if spec.nic_gb_s in kinds:
        return spec.nic_gb_s
    return max(kinds, key=lambda value: (kinds[value], value))


def lacks(expected: Expected, node: str, capacity: float | None) -> str:
    """A sentence when the node has fewer NICs than its kind; "" otherwise."""
    has = expected.spec(node).nic_gb_s
    if has is None or capacity is None or has >= 0.99 * capacity:
        return ""
    return f"its compute ports sum up to {has:.0f} of {capacity:.0f} GB/s"


def largest(run: Run) -> int:
    """Largest size that was run, bytes; 0 when it is not known."""
    return max((row.size_bytes for row in run.rows), default=0)


def judgeable(run: Run) -> bool:
    """Whether a figure that holds for GPUs at 1 GiB and more may be compared with this run."""
    return run.engine not in CPU_ENGINES and largest(run) >= GIB


def pair_share(runs: Sequence[Run]) -> Figure | None:
    """The least share of the NIC sum that pairs should reach; None when the runs are too small."""
    if not runs or not all(judgeable(run) for run in runs):
        return None
    return Figure(
        PAIR_SHARE,
        f"{PAIR_SHARE:.0%} of the NICs of one node: the lowest two-node pass mark in use [chs]",
    )


def wire_gb_s(busbw_gb_s: float, nodes: int, ranks: int) -> float:
    """Per-GPU rate on the wire: busbw x (k-1)/(n-1), a hierarchical algorithm assumed [mle]."""
    return busbw_gb_s * (nodes - 1) / (ranks - 1)


def wire(run: Run, capacity: float | None) -> Figure | None:
    """Expected wire rate per GPU, GB/s, of a run over WIRE_NODES nodes and more."""
    nodes = len(run.group.nodes)
    if capacity is None or not judgeable(run) or nodes < WIRE_NODES or not run.ranks:
        return None
    nic = capacity * nodes / run.ranks
    return Figure(
        WIRE_SHARE * nic,
        f"{WIRE_SHARE:.0%} of {nic:.0f} GB/s NIC rate per GPU, as good systems reach at 1 GiB "
        "and more [mle]",
    )


def own(
    expected: Expected, level: Level, run: Run, what: str, node: str, device: str = ""
) -> Figure | None:
    """The thing's own last good results with the same engine."""
    nodes = len(run.group.nodes) if level is Level.CLUSTER else 0
    past = expected.own.get((node, device, metric(level, what, run.engine, nodes)))
    if past is None or past.median <= 0:
        return None
    return Figure(past.median, f"its own median of {past.n} good results")
