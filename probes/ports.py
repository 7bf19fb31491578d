"""What an RDMA port is for, without configuration, and what most nodes of a role have. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.derive import Rates
from probes.event import Sample, Scalar
from probes.facts import NodeFacts
from probes.reading import number

COMPUTE = "compute"
STORAGE = "storage"
MANAGEMENT = "management"
VIRTUAL = "virtual"
INTERNAL = "internal"
"""No port of the node's own: the inside of an NVSwitch, a stand-in for a function, software."""
PHYSICAL = frozenset({COMPUTE, STORAGE, MANAGEMENT})

SWITCHED = frozenset({"PIX", "PXB"})
"""Distances to a GPU at which data need not pass the root complex."""
ETHERNET = "Ethernet"
ACTIVE = 4
_DURATIONS = {
    direction: (
        f"{direction}_global_pause_duration",
        *(f"{direction}_prio{priority}_pause_duration" for priority in range(8)),
    )
    for direction in ("rx", "tx")
}
"""Microseconds of pause, by priority."""
ALIKE = 3
"""Nodes from which their majority says what a port is for."""


def port_role(values: dict[str, Scalar]) -> str:
    """By default route, NUMA node, PCIe distance and link layer, as NVSentinel does.

    NUMA node and distance only count where they set adapters of one node apart: on Grace, in
    virtual machines and behind a plain root complex every adapter is equally far from the GPUs.
    """
    if values.get("nvswitch") or values.get("representor") or values.get("software"):
        return INTERNAL
    if values.get("is_vf"):
        return VIRTUAL
    if values.get("default_route"):
        return MANAGEMENT
    if values.get("gpu_numa") is False and (number(values.get("gpu_side_ports")) or 0) > 0:
        return MANAGEMENT
    if values.get("gpu_distance") in SWITCHED or values.get("link_layer") != ETHERNET:
        return COMPUTE
    return STORAGE if (number(values.get("switched_ports")) or 0) > 0 else COMPUTE


def place(device: str, values: dict[str, Scalar]) -> str:
    """PCI address and port number: names move when an adapter is missing, these do not."""
    pci = values.get("pci")
    return f"{pci}/{device.rpartition('/')[2]}" if pci else device


def kind(role: str, values: dict[str, Scalar]) -> str:
    """Ports with the same kind should run at the same rate."""
    return f"{role} {values.get('link_layer', '')} {values.get('hca', '')}"


def ports(facts: NodeFacts) -> Iterator[tuple[str, Sample, str]]:
    """(device, latest answer, role) of each port."""
    for device, sample in facts.devices("infiniband"):
        yield device, sample, port_role(sample.values)


class Ports:
    """Ports of a role's nodes, added node by node."""

    def __init__(self) -> None:
        """None yet."""
        self.rates: dict[str, Counter[float]] = {}
        self.slot_rates: dict[str, Counter[float]] = {}
        self.numbers: Counter[int] = Counter()
        self.active: Counter[str] = Counter()
        self.other_active: Counter[str] = Counter()
        self.places: dict[str, Counter[str]] = {}
        self.roles: dict[str, Counter[str]] = {}
        self.near: dict[str, Counter[str]] = {}
        self.pauses: list[float] = []

    def add(self, facts: NodeFacts) -> None:
        """One node's ports."""
        up = 0
        for device, sample, role in ports(facts):
            if role not in PHYSICAL:
                continue
            values = sample.values
            slot = place(device, values)
            self.roles.setdefault(slot, Counter())[role] += 1
            if values.get("state") != ACTIVE:
                continue
            up += role == COMPUTE
            (self.active if role == COMPUTE else self.other_active)[device] += 1
            self.places.setdefault(device, Counter())[str(values.get("pci", ""))] += 1
            rate = number(values.get("rate_gbps"))
            if rate is not None:
                self.rates.setdefault(kind(role, values), Counter())[rate] += 1
                self.slot_rates.setdefault(slot, Counter())[rate] += 1
        self.numbers[up] += 1
        for gpu, sample in facts.devices("topology"):
            near = sample.values.get("nic_distance")
            if isinstance(near, str):
                self.near.setdefault(gpu, Counter())[near] += 1
        self.pauses.append(sending_pause(facts))


def sending_pause(facts: NodeFacts) -> float:
    """Largest share of time in which one interface of the node told the fabric to wait."""
    shares = [
        pause_share(rates, "tx") or 0.0
        for name, _ in facts.devices("ethtool")
        if (rates := facts.rates.get(("ethtool", name))) is not None
    ]
    return max(shares, default=0.0)


def pause_share(rates: Rates, direction: str) -> float | None:
    """Share of time with pause, of the worst priority ("tx" or "rx"); None when not counted."""
    grown = [rates.deltas[name] for name in _DURATIONS[direction] if name in rates.deltas]
    return min(max(grown) / 1e6 / rates.elapsed_s, 1.0) if grown else None
