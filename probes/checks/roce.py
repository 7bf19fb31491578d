"""Interfaces of RDMA ports: PCIe stalls, drops, error rates before and after FEC, optics. Pure.

From the drivers' own statistics (probe "ethtool"); what a driver does not count is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from probes.checks import ib_link
from probes.checks.rule import Look, Rule
from probes.derive import Rates
from probes.event import Action, Finding, Sample, Severity
from probes.ports import COMPUTE, PHYSICAL
from probes.reading import number

READS = "statistics of the port's interface, as ethtool -S prints them"
MLX5 = "meaning of the counter: mlx5 [lx]; see the limit's own source"

STALLED = Rule(
    id="roce.pci_stalled",
    title="An RDMA adapter waits for the host's PCIe",
    severity=Severity.WARN,
    reads=f"outbound_pci_stalled_wr and _rd: {READS}",
    cause="the host takes data more slowly than the link brings it: PCIe width, IOMMU, ACS, NUMA "
    "placement or memory load",
    action=Action.WATCH,
    next_step="compare PCIe width and generation, IOMMU and NUMA settings with a peer; the fabric "
    "is not the cause",
    source="mlx5 counters [lx]: more than 30 % of a second counts as an event",
    others="-",
    example="mlx5_2/1 (ens1f0np0): waits for PCIe 62 % of the time (writes)",
    limits=("roce.pci_stalled_percent",),
)
STORM = Rule(
    id="roce.pause_storm",
    title="The pause watchdog of an RDMA adapter fired",
    severity=Severity.CRITICAL,
    reads=f"tx_pause_storm_error_events: {READS}",
    cause="the host did not take data for so long that the adapter stopped asking for pause; "
    "packets were dropped",
    action=Action.DRAIN,
    next_step="drain; look for a hung host or PCIe trouble of the adapter; then reboot",
    source=MLX5,
    others="-",
    example="mlx5_2/1 (ens1f0np0): tx_pause_storm_error_events +1 in the last hour",
    limits=("roce.pause_storm",),
)
DISCARDS = Rule(
    id="roce.discards",
    title="An RDMA adapter drops packets because its buffer is full",
    severity=Severity.WARN,
    reads=f"rx_discards_phy: {READS}",
    cause="the fabric is not lossless for this port: PFC is missing or set for another priority, "
    "or the host is too slow",
    action=Action.WATCH,
    next_step="compare PFC, buffer and trust settings of port and switch with a peer's; look at "
    "PCIe stalls",
    source=MLX5,
    others="-",
    example="mlx5_2/1 (ens1f0np0): rx_discards_phy 240/s",
    limits=("roce.discards_per_s",),
)
AFTER_FEC = Rule(
    id="roce.post_fec_errors",
    title="Bit errors remain after error correction",
    severity=Severity.WARN,
    reads=f"rx_pcs_symbol_err_phy per rx_bits_phy: {READS}",
    cause="bad signal: dirty or damaged cable or transceiver; packets get lost",
    action=Action.WATCH,
    next_step="clean or exchange cable and transceiver; mlxlink shows the lanes",
    source=MLX5,
    others="OCI: mlxlink, bit error rate above 1e-7",
    example="mlx5_2/1 (ens1f0np0): 3.1e-11 errors a bit after FEC",
    limits=("roce.post_fec_ber",),
)
BEFORE_FEC = Rule(
    id="roce.pre_fec_errors",
    title="Error correction works near its limit",
    severity=Severity.WARN,
    reads=f"rx_corrected_bits_phy per rx_bits_phy: {READS}",
    cause="weak signal: cable or transceiver is about to fail",
    action=Action.WATCH,
    next_step="plan to clean or exchange cable and transceiver; mlxlink shows the lanes",
    source=MLX5,
    others="OCI: mlxlink, bit error rate above 1e-7",
    example="mlx5_2/1 (ens1f0np0): 1.8e-4 errors a bit before FEC",
    limits=("roce.pre_fec_ber",),
)
LINK_DOWN = Rule(
    id="roce.link_down_events",
    title="The link of an RDMA interface went down and came back",
    severity=Severity.WARN,
    reads=f"link_down_events_phy: {READS}",
    cause="cable, transceiver or switch port",
    action=Action.WATCH,
    next_step="compare with the switch port's log; exchange cable or transceiver if it goes on",
    source=MLX5,
    others="gpud, AzHC, OCI: flaps from the log",
    example="mlx5_2/1 (ens1f0np0): link_down_events_phy +1 in the last hour",
    limits=("roce.link_down_events",),
)
MODULE = Rule(
    id="roce.module",
    title="The transceiver of an RDMA interface has trouble",
    severity=Severity.WARN,
    reads=f"module_high_temp, module_bad_shorted, module_unplug: {READS}",
    cause="the module is too hot, short-circuited, or was pulled out",
    action=Action.WATCH,
    next_step="check air flow and seating of the module; exchange it",
    source=MLX5,
    others="SCK: temperature 65/75 C",
    example="mlx5_2/1 (ens1f0np0): module_high_temp +2 in the last hour",
    limits=("roce.module_events",),
)
RULES = (STORM, STALLED, DISCARDS, AFTER_FEC, BEFORE_FEC, LINK_DOWN, MODULE)

EVENTS = (
    (STORM, ("tx_pause_storm_error_events",)),
    (LINK_DOWN, ("link_down_events_phy", "link_down_events")),
    (MODULE, ("module_high_temp", "module_bad_shorted", "module_unplug")),
)
"""Counters of which one in an hour is too many."""
STALLS = (("outbound_pci_stalled_wr", "writes"), ("outbound_pci_stalled_rd", "reads"))
DROPS = ("rx_discards_phy", "rx_total_discard_pkts")
FEC = (
    (AFTER_FEC, "rx_pcs_symbol_err_phy", "after"),
    (BEFORE_FEC, "rx_corrected_bits_phy", "before"),
)
ERRORS_LEAST = 10
"""Fewer are no rate (our estimate)."""


class Interface(NamedTuple):
    """An interface of an RDMA port, and what the finding calls it."""

    name: str
    sample: Sample
    port: str
    label: str


def check(look: Look) -> Iterator[Finding]:
    """Each interface of a physical port; what it is for is asked only where something was found."""
    for name, sample in look.facts.devices("ethtool"):
        port = str(sample.values.get("port", ""))
        one = Interface(name, sample, port, f"{port} ({name})")
        found = [*_events(look, one), *_stalls(look, one), *_counted(look, one)]
        values = look.facts.get("infiniband", port) if found else None
        role = None if values is None else ib_link.usual_role(look, port, values)
        if role in PHYSICAL:
            yield from (_softer(f) if role != COMPUTE else f for f in found if _fits(f, role))


def _fits(finding: Finding, role: str | None) -> bool:
    """Only the compute fabric is expected to lose nothing."""
    return role == COMPUTE or finding.rule != DISCARDS.id


def _softer(finding: Finding) -> Finding:
    if finding.severity is not Severity.CRITICAL:
        return finding
    return structs.replace(finding, severity=Severity.WARN, action=Action.WATCH)


def _events(look: Look, one: Interface) -> Iterator[Finding]:
    hour = look.facts.hours.get(("ethtool", one.name))
    if hour is None:
        return
    for rule, counters in EVENTS:
        limit = look.rules.limit(rule.limits[0])
        grown = {c: hour.grown(c, one.sample.clock) for c in counters}
        text = ", ".join(f"{c} +{n:.0f}" for c, n in grown.items() if n > limit.value)
        if text:
            yield rule.finding(
                look, f"{one.label}: {text} in the last hour", (f"{text} in the last hour",),
                device=one.port, label=one.port, value=round(max(grown.values()), 1), limit=limit,
            )  # fmt: skip


def _counted(look: Look, one: Interface) -> Iterator[Finding]:
    rates = look.facts.rates.get(("ethtool", one.name))
    if rates is not None:
        yield from _drops(look, one, rates)
        yield from _bits(look, one, rates)


def _stalls(look: Look, one: Interface) -> Iterator[Finding]:
    limit = look.rules.limit("roce.pci_stalled_percent")
    found = {words: number(one.sample.values.get(name)) or 0.0 for name, words in STALLS}
    words, most = max(found.items(), key=lambda item: item[1])
    if most > limit.value:
        yield STALLED.finding(
            look, f"{one.label} waits for PCIe {most:g} % of the time ({words})",
            tuple(f"outbound PCIe {what} stalled {share:g} %" for what, share in found.items()),
            device=one.port, label=one.port, value=most, limit=limit,
        )  # fmt: skip


def _drops(look: Look, one: Interface, rates: Rates) -> Iterator[Finding]:
    limit = look.rules.limit("roce.discards_per_s")
    for counter in DROPS:
        per_s = rates.per_s(counter) or 0.0
        if per_s > limit.value and counter not in rates.reset:
            grown = rates.deltas[counter]
            yield DISCARDS.finding(
                look, f"{one.label} drops {per_s:.3g} packets/s: its buffer is full",
                (f"{counter} +{grown:.0f} in {rates.elapsed_s:.0f} s",),
                device=one.port, label=one.port, value=round(per_s, 2), limit=limit,
            )  # fmt: skip


def _bits(look: Look, one: Interface, rates: Rates) -> Iterator[Finding]:
    """Error rates, where the driver counts the bits too."""
    bits = rates.deltas.get("rx_bits_phy", 0.0)
    if bits <= 0 or "rx_bits_phy" in rates.reset:
        return
    for rule, counter, when in FEC:
        limit = look.rules.limit(rule.limits[0])
        errors = rates.deltas.get(counter, 0.0)
        if errors < ERRORS_LEAST or errors <= limit.value * bits or counter in rates.reset:
            continue
        yield rule.finding(
            look, f"{one.label}: {errors / bits:.1e} errors a bit {when} FEC",
            (f"{counter} +{errors:.0f} in {bits:.3g} bits",),
            device=one.port, label=one.port, value=errors / bits, limit=limit,
        )  # fmt: skip
