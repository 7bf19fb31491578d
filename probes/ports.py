"""What an RDMA port is for, without configuration, and what most nodes of a role have. Pure."""

from __future__ import annotations

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


RATES, SLOT_RATES, NUMBERS = "ib rates", "ib slot rates", "ib numbers"
ACTIVES, OTHERS = "ib active", "ib other active"
PLACES, ROLES, NEAR = "ib places", "ib roles", "nic distance"


def counted(facts: NodeFacts) -> Iterator[tuple[str, str, Scalar]]:
    """(table, key, value) of a node's ports to count for the majorities of the role."""
    up = 0
    for device, sample, role in ports(facts):
        if role not in PHYSICAL:
            continue
        values = sample.values
        slot = place(device, values)
        yield ROLES, slot, role
        if values.get("state") != ACTIVE:
            continue
        up += role == COMPUTE
        yield ACTIVES if role == COMPUTE else OTHERS, "", device
        yield PLACES, device, str(values.get("pci", ""))
        rate = number(values.get("rate_gbps"))
        if rate is not None:
            yield RATES, kind(role, values), rate
            yield SLOT_RATES, slot, rate
    yield NUMBERS, "", up
    for gpu, sample in facts.devices("topology"):
        near = sample.values.get("nic_distance")
        if isinstance(near, str):
            yield NEAR, gpu, near


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
