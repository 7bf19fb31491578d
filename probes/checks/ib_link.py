"""Rate, PCIe lanes, bond legs and lost carriers of one RDMA port. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Sample, Severity
from probes.ports import ACTIVE, ALIKE, COMPUTE, PHYSICAL, kind, place, port_role
from probes.reading import number, whole

LANES = 4
"""Of the usual cables and connectors; a split port has two."""

RATE = Rule(
    id="ib.rate",
    title="An RDMA port runs below its peers' rate",
    severity=Severity.CRITICAL,
    reads="rate of active ports against the same port of the peers, else against the most common "
    "rate of ports of the same role, link layer and adapter",
    cause="a half-width or lower-speed link: cable, transceiver or split port",
    action=Action.DRAIN,
    next_step="drain; reseat or exchange the cable; check the switch port's speed",
    source="our estimate, not measured: sysfs has no rate to expect [lx], so the peers' most "
    "common one",
    others="gpud floor per product, AzHC 8x400",
    example="200 Gb/sec (4X HDR); 15 peers have 400",
)
PCIE = Rule(
    id="ib.pcie_width",
    title="An RDMA adapter has fewer PCIe lanes than its siblings",
    severity=Severity.WARN,
    reads="current_link_width and max_link_width of the adapter, and of the node's like adapters",
    cause="bad seating, riser or damaged lanes: half the lanes are half the bandwidth",
    action=Action.WATCH,
    next_step="reseat the adapter or its riser at the next drain",
    source="Linux PCI core [lx]; a like adapter with all its lanes is the measure: our rule",
    others="OCI, SCK: width error",
    example="mlx5_3/1: PCIe x8 of x16; 7 like adapters have x16",
)
BOND = Rule(
    id="ib.bond_leg",
    title="A bond of RDMA ports has lost a leg",
    severity=Severity.WARN,
    reads="bonding/slaves and bonding_slave/mii_status of the port's interface",
    cause="cable, transceiver or switch port of one leg; the bond hides it at half the bandwidth",
    action=Action.WATCH,
    next_step="ip link shows the leg that is down; check its cable and switch port",
    source="Linux bonding driver; a lost leg warns: our rule",
    others="-",
    example="mlx5_bond_0/1: 1 of 2 legs of bond0 is up",
)
FLAPS = Rule(
    id="ib.flaps",
    title="The interface of an RDMA port loses its link again and again",
    severity=Severity.WARN,
    reads="carrier_changes of the port's interface over the last hour",
    cause="cable, transceiver or switch port; each loss stops the port's traffic",
    action=Action.WATCH,
    next_step="compare with the switch port's log; exchange cable or transceiver if it goes on",
    source="limit per interval of NVSentinel [nvsent], here per hour: our estimate",
    others="NVS > 2 per poll; gpud 3 returns; AzHC 5 in 24 h; OCI any in 6 h",
    example="mlx5_8/1: carrier_changes of ens1f0np0 +6 in the last hour",
    limits=("ib.carrier_changes_per_hour",),
)
RULES = (RATE, PCIE, BOND, FLAPS)


def usual_role(look: Look, device: str, sample: Sample) -> str:
    """What the port is for: as on most peers, unless the node itself leaves no doubt."""
    own = port_role(sample.values)
    if own not in PHYSICAL or sample.values.get("default_route") or look.peers.nodes < ALIKE:
        return own
    return look.peers.ib_roles.get(place(device, sample.values), own)


def check(look: Look, device: str, sample: Sample, role: str) -> Iterator[Finding]:
    """One port in its role."""
    if role not in PHYSICAL:
        return
    if sample.values.get("state") == ACTIVE:
        yield from _rate(look, device, sample, role)
    if role == COMPUTE:
        yield from _lanes(look, device, sample)
    yield from _legs(look, device, sample)
    yield from _flaps(look, device, sample)


def _rate(look: Look, device: str, sample: Sample, role: str) -> Iterator[Finding]:
    rate = number(sample.values.get("rate_gbps"))
    usual = None
    if look.peers.nodes >= ALIKE:
        usual = look.peers.ib_slot_gbps.get(place(device, sample.values))
    if usual is None:
        usual = look.peers.ib_rate_gbps.get(kind(port_role(sample.values), sample.values))
    before = look.facts.used_ports.get(device, 0.0)
    own = before > (usual or 0.0)
    usual = max(before, usual or 0.0)
    if rate is None or rate >= usual:
        return
    text = sample.values.get("rate_text", f"{rate:g} Gb/s")
    width = whole(sample.values.get("width"))
    lanes = width is not None and width < LANES and rate * LANES == usual * width
    compute = role == COMPUTE
    yield RATE.finding(
        look, f"{device} runs at {rate:g} Gb/s, {'before' if own else 'its peers'} at {usual:g}",
        (f"{text}; it had {usual:g} Gb/s since boot" if own
         else f"{text}; most ports of role {look.peers.role} have {usual:g} Gb/s",),
        device=device, label=device, value=float(rate),
        source=f"the port itself since boot; {RATE.source}" if own
        else f"majority of {look.peers.nodes} nodes of role {look.peers.role}; {RATE.source}",
        cause=f"only {width} of {LANES} lanes came up: cable, transceiver or a split port" if lanes
        else "",
        severity=None if compute else Severity.WARN, action=None if compute else Action.WATCH,
    )  # fmt: skip


def _lanes(look: Look, device: str, sample: Sample) -> Iterator[Finding]:
    width, most = (whole(sample.values.get(name)) for name in ("pci_width", "pci_width_max"))
    if width is None or most is None or not 0 < width < most:
        return
    like = sum(
        1 for _, s in look.facts.devices("infiniband")
        if s.values.get("hca") == sample.values.get("hca") and s.values.get("pci_width") == most
    )  # fmt: skip
    if like:
        yield PCIE.finding(
            look, f"{device}: PCIe x{width} of x{most}",
            (f"PCIe x{width} of x{most}; {like} like adapters have x{most}",),
            device=device, label=device, value=width,
        )  # fmt: skip


def _legs(look: Look, device: str, sample: Sample) -> Iterator[Finding]:
    legs, up = (whole(sample.values.get(name)) for name in ("bond_legs", "bond_legs_up"))
    if legs is not None and up is not None and 0 < up < legs:
        bond = sample.values.get("netdev", "the bond")
        text = f"{up} of {legs} legs of {bond} {'is' if up == 1 else 'are'} up"
        yield BOND.finding(look, f"{device}: {text}", (text,), device=device, label=device)


def _flaps(look: Look, device: str, sample: Sample) -> Iterator[Finding]:
    hour = look.facts.hours.get(("infiniband", device))
    limit = look.rules.limit("ib.carrier_changes_per_hour")
    grown = 0.0 if hour is None else hour.grown("carrier_changes", sample.clock)
    if grown > limit.value:
        text = f"carrier_changes of {sample.values.get('netdev', '?')} +{grown:.0f}"
        yield FLAPS.finding(
            look, f"{device}: {text} in the last hour", (f"{text} in the last hour",),
            device=device, label=device, value=round(grown, 1), limit=limit,
        )  # fmt: skip
