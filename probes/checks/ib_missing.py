"""RDMA ports that nearly all peers have and this node has not: sysfs lists no dead card. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Scalar, Severity
from probes.ports import COMPUTE, port_role

MANY = 3
"""Answering nodes from which most of them mean something."""

MISSING = Rule(
    id="ib.missing",
    title="An RDMA port that the peers have is not there",
    severity=Severity.CRITICAL,
    reads="/sys/class/infiniband against the role's peers, by port name and PCI address",
    cause="the adapter fell off the bus, its driver did not start, or it was taken out",
    action=Action.DRAIN,
    next_step="look for its PCI address in lspci and the kernel log; drain; power-cycle; reseat",
    source="our estimate, not measured: 3 or more nodes answered and most of them have it; "
    "field case: gpud issue 482",
    others="AzHC, gpud, SOP, CVS: count of ports",
    example="mlx5_8/1 not in /sys/class/infiniband; active on 15 of 15 peers at 0000:ab:00.0",
    limits=("ib.missing_share",),
)


TOGETHER = 3
"""Cards without RDMA that are told as one fault."""


class Why(NamedTuple):
    """A cause and what to do about it."""

    cause: str
    next_step: str


NO_RDMA = Why(
    "the card is on the bus, but has no RDMA device here: the driver's RDMA part failed or is not "
    "loaded, or a pod has the device in its own network namespace",
    "rdma system; lsmod | grep mlx5_ib; kernel log of its address; pods with host-device networks",
)


def check(look: Look) -> Iterator[Finding]:
    """Ports of nearly all peers that sysfs does not list here; by number when names differ."""
    gone = {device for probe, device in look.facts.gone if probe == "infiniband" and device}
    here = {device: s.values for device, s in look.facts.devices("infiniband") if device}
    asked = bool(here or gone) or look.facts.get("infiniband") is not None
    others = look.peers.nodes - 1
    if not asked or look.peers.nodes < MANY or "infiniband" in look.facts.troubles:
        return
    limit = look.rules.limit("ib.missing_share")
    hung = {device for probe, device in look.facts.hung if probe == "infiniband"}
    if "" in hung:
        return
    slots = {**look.peers.ib_other_slots, **look.peers.ib_slots}
    number = {port: share * look.peers.nodes for port, share in slots.items()}
    absent = {
        port: round(nodes) for port, nodes in number.items()
        if port not in here and port not in hung and nodes >= limit.value * others
    }  # fmt: skip
    named = _named(look, absent, here)
    places = look.peers.ib_places
    idle_ones = {p: idle for p in sorted(named) if (idle := _idle(look, places.get(p, "")))}
    if len(idle_ones) >= TOGETHER:
        yield _without_rdma(look, idle_ones)
        named = {port: nodes for port, nodes in named.items() if port not in idle_ones}
    for port, nodes in sorted(named.items()):
        place = places.get(port, "")
        where = f" at {place}" if place else ""
        since = "; it was there in the last answer" if port in gone else ""
        idle = _idle(look, place)
        front = idle or (port in look.peers.ib_other_slots and port not in look.peers.ib_slots)
        yield MISSING.finding(
            look, f"{port} is not there{where}; {nodes} of {others} peers have it",
            (f"not in /sys/class/infiniband; active on {nodes} of {others} peers{where}{since}",
             *([f"on the PCI bus: {idle}"] if idle else [])),
            device=port, label=port, source=MISSING.source,
            cause=NO_RDMA.cause if idle else "", next_step=NO_RDMA.next_step if idle else "",
            severity=Severity.WARN if front else None, action=Action.WATCH if front else None,
        )  # fmt: skip
    if not absent:
        yield from _too_few(look, here, others, limit.value)


def _without_rdma(look: Look, ports: dict[str, str]) -> Finding:
    """Several cards on the bus without RDMA: one cause, one finding."""
    first = ", ".join(list(ports)[:4])
    more = f" and {len(ports) - 4} more" if len(ports) > 4 else ""
    return MISSING.finding(
        look, f"{len(ports)} RDMA ports are not there, though their cards are on the bus: "
        f"{first}{more}",
        tuple(f"{port}: {idle}, not in /sys/class/infiniband" for port, idle in ports.items())[:8],
        label="RDMA", value=len(ports), source=MISSING.source, cause=NO_RDMA.cause,
        next_step=NO_RDMA.next_step, severity=Severity.WARN, action=Action.WATCH,
    )  # fmt: skip


def _idle(look: Look, place: str) -> str:
    """The adapter and its driver when it is on the bus without an RDMA device."""
    for group in str(look.facts.value("topology", "", "idle_nics") or "").split(";"):
        driver, _, places = group.rpartition(" ")
        if place and place in places.split(","):
            return f"{place} {driver}"
    return ""


def _named(
    look: Look, absent: dict[str, int], here: dict[str, dict[str, Scalar]]
) -> dict[str, int]:
    """The same ports as PCI addresses tell them.

    An adapter that is missing since boot moves the names of all later ones.
    """
    places = look.peers.ib_places
    known = {str(values.get("pci", "")) for values in here.values()}
    slots = (*look.peers.ib_slots, *look.peers.ib_other_slots)
    usual = {places[port]: port for port in slots if places.get(port)}
    empty = {port for place, port in usual.items() if place not in known}
    if absent and len(empty) == len(absent) and all(places.get(port) for port in absent):
        return dict(zip(sorted(empty), absent.values(), strict=True))
    return absent


def _too_few(
    look: Look, here: dict[str, dict[str, Scalar]], others: int, share: float
) -> Iterator[Finding]:
    """Fewer compute ports than nearly all peers have active, whatever they are called here.

    Where the site says how many, its word is compared (site.expected), not the peers'.
    """
    usual = look.peers.ib_ports
    if "ib_ports" in look.rules.roles.get(look.facts.node.role, {}):
        return
    found = sum(
        1 for port, values in here.items()
        if port_role(values) == COMPUTE or port in look.peers.ib_slots
    )  # fmt: skip
    if usual is None or found >= usual:
        return
    same = round(look.peers.ib_ports_share * look.peers.nodes)
    if same >= share * others:
        yield MISSING.finding(
            look, f"{found} of {usual} RDMA ports are there",
            (f"{found} compute ports listed; {same} of {others} peers have {usual} active",),
            value=found, source=MISSING.source,
        )  # fmt: skip
