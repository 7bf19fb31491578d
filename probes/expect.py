"""What a node should have: the site's word, then the majority of its role, then the catalogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from probes.facts import NodeFacts

MANAGEMENT = "management"
COMPUTE = "compute"

_N = TypeVar("_N", int, float)


class Peers(Struct, frozen=True, kw_only=True):
    """The majority of one role; None where nobody answered or there is no majority."""

    role: str
    nodes: int = 0
    """Nodes of the role that answered."""
    gpu_count: int | None = None
    gpu_slots: frozenset[str] = frozenset()
    """PCI addresses of GPUs that most of the role have."""
    nvlink_links: int | None = None
    ib_rate_gbps: dict[str, float] = {}
    """Link layer -> most common rate of active compute ports."""
    ib_ports: int | None = None
    """Active compute ports of most nodes."""
    ib_slots: dict[str, float] = {}
    """Port device ("mlx5_0/1") -> share of answering nodes on which it is active."""


def peers(all_facts: Iterable[NodeFacts]) -> dict[str, Peers]:
    """Majorities by role."""
    roles: dict[str, list[NodeFacts]] = {}
    for facts in all_facts:
        roles.setdefault(facts.node.role, []).append(facts)
    return {role: _of_role(role, members) for role, members in roles.items()}


def _of_role(role: str, members: list[NodeFacts]) -> Peers:
    counts: Counter[int] = Counter()
    slots: Counter[str] = Counter()
    links: Counter[int] = Counter()
    rates: dict[str, Counter[float]] = {}
    ports: Counter[int] = Counter()
    active: Counter[str] = Counter()
    answered = 0
    for facts in members:
        seen = gpu_slots(facts)
        if seen is None:
            continue
        answered += 1
        counts[len(seen)] += 1
        slots.update(seen)
        for _, sample in facts.devices("nvlink"):
            number = sample.values.get("links")
            if isinstance(number, int):
                links[number] += 1
        _ports(facts, rates, ports, active)
    return Peers(
        role=role,
        nodes=answered,
        gpu_count=majority(counts),
        gpu_slots=frozenset(s for s, n in slots.items() if n * 2 > answered and answered >= 3),
        nvlink_links=majority(links),
        ib_rate_gbps={k: r for k, c in rates.items() if (r := majority(c)) is not None},
        ib_ports=majority(ports),
        ib_slots={port: n / answered for port, n in active.items()},
    )


def _ports(
    facts: NodeFacts,
    rates: dict[str, Counter[float]],
    ports: Counter[int],
    active: Counter[str],
) -> None:
    up = 0
    for device, sample in facts.devices("infiniband"):
        values = sample.values
        if port_role(values) != COMPUTE or values.get("state") != 4:
            continue
        up += 1
        active[device] += 1
        rate = values.get("rate_gbps")
        if isinstance(rate, int | float):
            rates.setdefault(str(values.get("link_layer", "")), Counter())[float(rate)] += 1
    ports[up] += 1


def port_role(values: dict[str, int | float | str | bool]) -> str:
    """compute, management or virtual, told without configuration as NVSentinel does."""
    if values.get("is_vf"):
        return "virtual"
    if values.get("default_route"):
        return MANAGEMENT
    return COMPUTE


def gpu_slots(facts: NodeFacts) -> set[str] | None:
    """PCI addresses of the GPUs that NVML lists; None when it could not be asked."""
    node = facts.get("inventory")
    if node is None or "gpu_count" not in node.values:
        return None
    return {device for device, _ in facts.devices("inventory") if device}


def majority(counts: Counter[_N]) -> _N | None:
    """The value of more than half; None when there is none (a 50/50 split has no majority)."""
    if not counts:
        return None
    value, number = counts.most_common(1)[0]
    return value if number * 2 > sum(counts.values()) else None
