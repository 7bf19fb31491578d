"""What a node should have: the site's word, then the majority of its role, then the catalogue."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from msgspec import Struct

from probes.drift import EMPTY, Census, census
from probes.event import Scalar
from probes.facts import NodeFacts
from probes.lanes import Lanes
from probes.ports import Ports
from probes.reading import number
from probes.role_mounts import NONE as NO_MOUNTS
from probes.role_mounts import Mounts, mounts


class Peers(Struct, frozen=True, kw_only=True):
    """The majority of one role; None where nobody answered or there is no majority."""

    role: str
    nodes: int = 0
    """Nodes of the role that answered."""
    gpu_count: int | None = None
    gpu_slots: frozenset[str] = frozenset()
    """PCI addresses of GPUs that most of the role have."""
    nvlink_links: dict[str, int] = {}
    """PCI device id of a GPU -> NVLinks that are up on most GPUs of that id; like with like."""
    nvlink_mbps: dict[str, float] = {}
    """PCI device id of a GPU -> signalling rate of most active links."""
    pcie_width: dict[str, int] = {}
    """PCI device id of a GPU -> lanes that card and slot offer on most GPUs of that id."""
    pcie_bridges: dict[str, int] = {}
    """Upstream port of a PCIe switch -> lanes it has on most nodes."""
    ib_rate_gbps: dict[str, float] = {}
    """Kind of port (probes.ports.kind) -> rate of most active ones."""
    ib_slot_gbps: dict[str, float] = {}
    """Place of a port (probes.ports.place) -> rate on most nodes."""
    ib_roles: dict[str, str] = {}
    """Place of a port -> what it is for on most nodes."""
    ib_ports: int | None = None
    """Active compute ports of most nodes."""
    ib_ports_share: float = 0.0
    """Share of answering nodes that have just so many."""
    ib_slots: dict[str, float] = {}
    """Compute port ("mlx5_0/1") -> share of answering nodes on which it is active."""
    ib_other_slots: dict[str, float] = {}
    """The same of storage and management ports."""
    nic_distance: dict[str, str] = {}
    """GPU -> distance of its nearest RDMA adapter on most nodes."""
    ib_pauses: tuple[float, ...] = ()
    """Largest share of time in which a node sent pause, of those that did."""
    ib_places: dict[str, str] = {}
    """Port device -> PCI address that most nodes have it at."""
    mounts: Mounts = NO_MOUNTS
    """File systems of the role's nodes."""
    drift: Census = EMPTY
    """Majorities of versions, settings, services and modules."""


def peers(all_facts: Iterable[NodeFacts]) -> dict[str, Peers]:
    """Majorities by role."""
    roles: dict[str, list[NodeFacts]] = {}
    for facts in all_facts:
        roles.setdefault(facts.node.role, []).append(facts)
    return {role: _of_role(role, members) for role, members in roles.items()}


def _of_role(role: str, members: list[NodeFacts]) -> Peers:
    counts: Counter[int] = Counter()
    slots: Counter[str] = Counter()
    ports = Ports()
    links = _Links()
    lanes = Lanes()
    answered = 0
    for facts in members:
        seen = gpu_slots(facts)
        if seen is None:
            continue
        answered += 1
        counts[len(seen)] += 1
        slots.update(seen)
        links.add(facts)
        lanes.add(facts)
        ports.add(facts)
    usual = majority(ports.numbers)
    return Peers(
        role=role,
        drift=census(role, members),
        mounts=mounts(members),
        nodes=answered,
        gpu_count=majority(counts),
        gpu_slots=frozenset(s for s, n in slots.items() if n * 2 > answered and answered >= 3),
        nvlink_links=_majorities(links.up),
        nvlink_mbps=_majorities(links.mbps),
        pcie_width=_majorities(lanes.widths),
        pcie_bridges=_majorities(lanes.bridges),
        ib_rate_gbps=_majorities(ports.rates),
        ib_ports=usual,
        ib_ports_share=0.0 if usual is None else ports.numbers[usual] / answered,
        ib_slot_gbps=_majorities(ports.slot_rates),
        ib_roles=_majorities(ports.roles),
        ib_slots={port: n / answered for port, n in ports.active.items()},
        ib_other_slots={port: n / answered for port, n in ports.other_active.items()},
        nic_distance=_majorities(ports.near),
        ib_pauses=tuple(share for share in ports.pauses if share > 0),
        ib_places=_majorities(ports.places),
    )


class _Links:
    """NVLinks of a role, by the PCI device id of the GPU."""

    def __init__(self) -> None:
        self.up: dict[str, Counter[int]] = {}
        self.mbps: dict[str, Counter[float]] = {}

    def add(self, facts: NodeFacts) -> None:
        """One node's GPUs, those whose link states can be read."""
        for device, sample in facts.devices("nvlink"):
            states = link_states(sample.values)
            if states:
                product = product_id(facts, device)
                self.up.setdefault(product, Counter())[sum(states.values())] += 1
                rates = link_rates(sample.values).values()
                self.mbps.setdefault(product, Counter()).update(rates)


_LINK = re.compile(r"link(\d{1,3})_(up|mbps)")


class _Layout(NamedTuple):
    """Which metrics of an NVLink answer are what."""

    states: tuple[tuple[int, str], ...]
    """Link number, metric."""
    rates: tuple[tuple[int, str, str], ...]
    """Link number, metric, metric of the same link's state."""


@functools.lru_cache(maxsize=256)
def _layout(names: tuple[str, ...]) -> _Layout:
    """Names are the same in every answer of a GPU: taken apart once, not 90 of them each time."""
    found = [match for name in names if (match := _LINK.fullmatch(name))]
    return _Layout(
        tuple((int(m[1]), m[0]) for m in found if m[2] == "up"),
        tuple((int(m[1]), m[0], f"link{m[1]}_up") for m in found if m[2] == "mbps"),
    )


def link_states(values: dict[str, Scalar]) -> dict[int, bool]:
    """NVLink number -> up, for links whose state could be read."""
    states = _layout(tuple(values)).states
    return {n: values[name] is True for n, name in states if isinstance(values[name], bool)}


def link_rates(values: dict[str, Scalar]) -> dict[int, float]:
    """NVLink number -> signalling rate, MB/s, of links that are not down."""
    found = {}
    for link, name, state in _layout(tuple(values)).rates:
        rate = number(values[name])
        if rate is not None and rate > 0 and values.get(state) is not False:
            found[link] = rate
    return found


def product_id(facts: NodeFacts, device: str) -> str:
    """PCI device id of a GPU; "" when it was not read."""
    return str(facts.value("inventory", device, "pci_device_id") or "")


def gpu_slots(facts: NodeFacts) -> set[str] | None:
    """PCI addresses of the GPUs that NVML lists; None when it could not be asked."""
    node = facts.get("inventory")
    if node is None or "gpu_count" not in node.values:
        return None
    return {device for device, _ in facts.devices("inventory") if device}


_T = TypeVar("_T", int, float, str)


def majority(counts: Counter[_T]) -> _T | None:
    """The value of more than half; None when there is none (a 50/50 split has no majority)."""
    if not counts:
        return None
    value, number = counts.most_common(1)[0]
    return value if number * 2 > sum(counts.values()) else None


def _majorities(counters: dict[str, Counter[_T]]) -> dict[str, _T]:
    return {key: most for key, counts in counters.items() if (most := majority(counts)) is not None}
