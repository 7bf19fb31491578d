"""Are all GPUs there? NVML's list beside the PCI bus, the inventory and the peers."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Row, Sample, Severity
from probes.reading import whole

MANY = 3
"""Peers of which most can be wrong about nothing: two nodes have no majority."""
GUEST_DRIVERS = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})
"""Drivers that a host binds to a card which it gives to a virtual machine."""

COUNT = Rule(
    id="gpu.count",
    title="Fewer GPUs than this node should have",
    severity=Severity.CRITICAL,
    reads="NVML device count, GPUs on the PCI bus, the inventory's `gpus`, the majority of the "
    "role",
    cause="a card fell off the bus, failed to initialise or was hidden by the driver",
    action=Action.DRAIN,
    next_step="drain, save the kernel log, compare lspci, then power-cycle; reseat or RMA if it "
    "stays away",
    source="NVML device count against the PCI bus, the inventory and the peers [nvml]",
    others="GCM, gpud, AzHC, OCI, EKS, NVHV: any difference is an error",
    example="NVML counts 7, the PCI bus has 8: 0000:52:00.0 is missing",
    hard=True,
    clears="reset",
)
GIVEN = Rule(
    id="gpu.given_away",
    title="GPUs are given to virtual machines",
    severity=Severity.INFO,
    reads="the kernel driver that each GPU on the PCI bus is bound to",
    cause="a host hands whole cards to its guests; NVML here cannot see them",
    action=Action.NONE,
    next_step="look at them from inside the guest",
    source="Linux: vfio-pci, pci-stub and xen-pciback take a device for a guest [lx]",
    others="-",
    example="0000:d1:00.0 is bound to vfio-pci",
)


def counted(look: Look, node: Sample) -> Iterator[Finding]:
    """Fewer GPUs than expected; which are missing, and what became of them."""
    given = sorted(_pci(row) for row in node.rows if row.get("driver") in GUEST_DRIVERS)
    if given:
        yield GIVEN.finding(
            look, f"{len(given)} GPU{'s are' if len(given) > 1 else ' is'} given to guests",
            tuple(f"{pci} is bound to a driver for guests" for pci in given), value=len(given),
        )  # fmt: skip
    found = whole(node.values.get("gpu_count"))
    expected, origin = _expected(look, node)
    if found is None or expected is None or found + len(given) >= expected:
        return
    missing = _missing(look, node)
    where = f"; missing {', '.join(_named(node, pci) for pci in missing)}" if missing else ""
    fates = [f"{pci} {fate}" for pci in missing if (fate := _fate(node, pci))]
    on_bus = node.values.get("pci_gpu_count", "?")
    counts = f"NVML counts {found}; the PCI bus has {on_bus}"
    if origin not in counts:
        counts = f"{counts}; {origin}"
    severity, action, why, step = _grade(node, missing)
    finding = COUNT.finding(
        look, f"{found} of {expected} GPUs present{where}{why}", (counts, *fates),
        value=found, source=f"{origin}; {COUNT.source}",
        severity=severity, action=action, next_step=step,
    )  # fmt: skip
    yield finding if severity is None else structs.replace(finding, hard=False)


def _grade(node: Sample, missing: list[str]) -> tuple[Severity | None, Action | None, str, str]:
    """Severity, action, addition to the line, next step: hidden on purpose is no fault."""
    confined = str(node.values.get("confined", ""))
    sound = [row for row in node.rows if _pci(row) in missing and _sound(row)]
    if confined and len(sound) == len(missing):
        return (
            Severity.INFO, Action.NONE, f" (this login is in {confined} and sees its own only)",
            "log in outside of it to see the others",
        )  # fmt: skip
    excluded = set(str(node.values.get("excluded_gpus", "")).split())
    if missing and excluded.issuperset(missing):
        return (
            Severity.WARN, Action.FIX_CONFIG, ": the driver was told to leave it alone",
            "look for NVreg_ExcludedGpus in /etc/modprobe.d and in the kernel command line; "
            "somebody took this card out of use, so ask why",
        )  # fmt: skip
    return None, None, "", ""


def _sound(row: Row) -> bool:
    """On the bus, alive there, and taken by the NVIDIA driver."""
    return row.get("config_ok") is not False and row.get("driver") == "nvidia"


def _expected(look: Look, node: Sample) -> tuple[int | None, str]:
    """How many GPUs, and who says so."""
    if look.facts.node.gpus is not None:
        return look.facts.node.gpus, f"the inventory says gpus: {look.facts.node.gpus}"
    stated = look.rules.roles.get(look.facts.node.role, {}).get("gpu_count")
    if stated is not None and (least := stated.least) is not None:
        return least, f"site overlay says {least} ({stated.source})"
    on_bus = whole(node.values.get("pci_gpu_count"))
    majority = look.peers.gpu_count if look.peers.nodes >= MANY else None
    if on_bus is not None and on_bus >= (majority or 0):
        return on_bus, f"the PCI bus has {on_bus}"
    if majority is not None:
        return (
            majority,
            f"most of {look.peers.nodes} peers in role {look.peers.role} have {majority}",
        )
    return None, ""


def _missing(look: Look, node: Sample) -> list[str]:
    """PCI addresses of GPUs that should be listed and are not."""
    listed = {device for device, _ in look.facts.devices("inventory") if device}
    given = {_pci(row) for row in node.rows if row.get("driver") in GUEST_DRIVERS}
    unlisted = {_pci(row) for row in node.rows if row.get("in_nvml") is False}
    peers = look.peers.gpu_slots - listed
    vanished = {d for (p, d) in look.facts.gone if p == "inventory" and d}
    return sorted((unlisted | peers | vanished) - given)


def _fate(node: Sample, pci: str) -> str:
    """What the PCI bus says about a missing card."""
    row = next((row for row in node.rows if _pci(row) == pci), None)
    if row is None:
        return "is not on the PCI bus" if node.rows else ""
    if row.get("config_ok") is False:
        return "is on the bus list but its config space reads ff"
    driver = row.get("driver")
    if driver == "":
        return "is on the bus but no driver is bound to it"
    if driver is not None and driver != "nvidia":
        return f"is bound to {driver}, not to nvidia"
    return "is on the bus and bound to nvidia, but NVML does not list it"


def _named(node: Sample, pci: str) -> str:
    """The address, with the physical slot where the firmware names one."""
    slot = next((row["slot"] for row in node.rows if _pci(row) == pci and "slot" in row), None)
    return pci if slot is None else f"{pci} (slot {slot})"


def _pci(row: Row) -> str:
    return str(row.get("pci", "?"))
