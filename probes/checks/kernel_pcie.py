"""PCIe in the kernel log: errors by rate, address translation faults, slots and dead cards.

One error prints up to six lines; only its "Bus Error" line counts, and the port's notice where the
kernel left that one out.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from probes.checks import kernel_events
from probes.checks.kernel_events import by_device
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.kernel_lines import KernelEvent

AER_FATAL = Rule(
    id="pcie.aer_uncorrected",
    title="PCIe reports an error that it could not correct",
    severity=Severity.CRITICAL,
    reads="PCIe Bus Error lines of severity Uncorrected; an unsupported request alone is a warning",
    cause="signal integrity, power or a dying card; data of one transaction is lost",
    action=Action.DRAIN,
    next_step="drain; save the kernel log; reseat the card; exchange it with a sibling slot",
    source="Linux PCIe error reporting [lx]",
    others="CVS: PCIe error lines",
    example="nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction "
    "Layer, (Requester ID)",
    hard=True,
)
AER = Rule(
    id="pcie.aer_corrected",
    title="PCIe corrects errors of a card",
    severity=Severity.WARN,
    reads="PCIe Bus Error lines of severity Corrected: most in any minute; single ones are info",
    cause="signal integrity: seating, riser, retimer or dust; the link may run slower for it",
    action=Action.WATCH,
    next_step="check the link's speed and width under load; drain after running jobs, reseat, "
    "exchange with a sibling slot",
    source="Linux PCIe error reporting [lx]; field case: pop-os/pop issue 3363",
    others="CVS: PCIe error lines",
    example="nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, "
    "(Receiver ID)",
    limits=("pcie.aer_corrected_per_min",),
)
IOMMU = Rule(
    id="pcie.iommu_fault",
    title="A device used an address that the IOMMU does not know",
    severity=Severity.WARN,
    reads="DMAR, AMD-Vi and arm-smmu fault lines",
    cause="a driver bug, a device that writes after its buffer was taken away, or a dying card",
    action=Action.WATCH,
    next_step="look for an Xid or an adapter fault of the same device and time; update driver and "
    "firmware; for peer traffic check ACS and iommu=pt",
    source="Linux IOMMU drivers [lx]; the severity is our estimate, not measured",
    others="-",
    example="DMAR: [DMA Write NO_PASID] Request device [41:00.0] fault addr 0xfd00000000 [fault "
    "reason 0x05] PTE Write access is not set",
)
SLOT = Rule(
    id="pcie.slot_down",
    title="A PCIe slot lost its link",
    severity=Severity.WARN,
    reads="pciehp lines: Link Down, Card not present",
    cause="a card that lost power, was pulled, or fell off the bus",
    action=Action.WATCH,
    next_step="see which card is behind the slot and whether it is still listed by lspci; reseat",
    source="Linux PCIe hot-plug driver [lx]",
    others="-",
    example="pcieport 0000:40:01.1: pciehp: Slot(3): Link Down",
)
DEAD = Rule(
    id="pcie.inaccessible",
    title="A card does not answer on PCIe",
    severity=Severity.CRITICAL,
    reads="'change power state ... inaccessible' lines",
    cause="the card lost power or fell off the bus",
    action=Action.DRAIN,
    next_step="drain; save the kernel log; power-cycle the node; reseat or replace the card",
    source="Linux PCI core [lx]: the configuration space reads as all ones",
    others="-",
    example="nvidia 0000:41:00.0: Unable to change power state from D3cold to D0, device "
    "inaccessible",
    hard=True,
)
RULES = (AER_FATAL, AER, IOMMU, SLOT, DEAD)

MINUTE_S = 60.0
NOTICE_S = 1.0
"""How soon a device's own line follows the port's notice (our estimate)."""
HARMLESS_BITS = frozenset({"UnsupReq"})
"""An unsupported request is an answer, not a damaged transfer: probing a device makes some."""


def check(look: Look) -> Iterator[Finding]:
    """Each kind by itself."""
    if not look.facts.kernel:
        return
    events = kernel_events.read(look)
    yield from _aer(look, events)
    yield from _iommu(look, [e for e in events if e.kind == "iommu"])
    for pci, same in by_device(e for e in events if e.kind == "slot"):
        yield from _slot(look, pci, same)
    for pci, same in by_device(e for e in events if e.kind == "pci_dead"):
        label = kernel_events.device_label(look, pci)
        finding = DEAD.finding(
            look, f"{label} does not answer on PCIe{kernel_events.ago(look, same[-1])}",
            kernel_events.texts(same), device=pci, label=label,
        )  # fmt: skip
        yield kernel_events.aged(look, finding, same[-1])


def errors(events: list[KernelEvent]) -> list[KernelEvent]:
    """The errors: each device's own lines, and notices without one."""
    own = [event for event in events if event.kind == "aer"]
    at: dict[str | None, list[float]] = {}
    for event in own:
        at.setdefault(event.pci, []).append(event.at)
    alone = [
        e for e in events
        if e.kind == "aer_notice"
        and not any(abs(e.at - other) <= NOTICE_S for other in at.get(e.pci, []))
    ]  # fmt: skip
    return sorted([*own, *alone], key=lambda e: (e.boot, e.at))


def bits(events: list[KernelEvent], pci: str) -> list[str]:
    """Names of the error bits of a device."""
    return sorted({str(e.facts["bit"]) for e in events if e.kind == "aer_bit" and e.pci == pci})


def _aer(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    for pci, same in by_device(errors(events)):
        label = _label(look, pci, same)
        named = bits(events, pci)
        bad = [event for event in same if event.facts.get("corrected") is False]
        corrected = [event for event in same if event.facts.get("corrected") is True]
        if bad:
            yield _uncorrected(look, label, bad, named)
        if corrected:
            yield _corrected(look, label, corrected, [] if bad else named, events)


def _label(look: Look, pci: str, same: list[KernelEvent]) -> str:
    """As the node's inventory names it; without one the driver in the line tells a GPU."""
    label = kernel_events.device_label(look, pci)
    of_gpu = any(f"nvidia {pci}" in event.text for event in same)
    return f"GPU {pci}" if label == pci and of_gpu else label


def _uncorrected(look: Look, label: str, bad: list[KernelEvent], named: list[str]) -> Finding:
    fatal = any(event.facts.get("fatal") is True for event in bad)
    harmless = not fatal and bool(named) and HARMLESS_BITS.issuperset(named)
    finding = AER_FATAL.finding(
        look, f"{label}: uncorrected PCIe error{', fatal' if fatal else ''}"
        f"{_layer(bad, named)}{kernel_events.ago(look, bad[-1])}",
        kernel_events.texts(bad), device=bad[0].pci or "", label=label, value=len(bad),
        severity=Severity.WARN if harmless else None,
        action=Action.WATCH if harmless else None,
    )  # fmt: skip
    finding = structs.replace(finding, count=len(bad), hard=finding.hard and not harmless)
    return kernel_events.aged(look, finding, bad[-1])


def _corrected(
    look: Look, label: str, same: list[KernelEvent], named: list[str], events: list[KernelEvent]
) -> Finding:
    limit = look.rules.limit("pcie.aer_corrected_per_min")
    most, span_s = busiest(same)
    flood = most > limit.value
    least = kernel_events.at_least(events, same)
    times = f"{most} in {span_s:.1f} s" if flood else f"{len(same)}"
    per_s = f", {rate(most, span_s):.0f} a second" if flood and rate(most, span_s) else ""
    finding = AER.finding(
        look, f"{label}: corrected PCIe errors{_layer(same, named)}: {least}{times}{per_s}"
        f"{kernel_events.ago(look, same[-1])}",
        kernel_events.texts(same), device=same[0].pci or "", label=label, value=most, limit=limit,
        severity=None if flood else Severity.INFO, source=AER.source,
        next_step="" if flood else "none now; a few a day are normal, look whether they grow",
    )  # fmt: skip
    return kernel_events.aged(look, structs.replace(finding, count=len(same)), same[-1])


def _layer(same: list[KernelEvent], named: list[str]) -> str:
    layer = next((str(e.facts["layer"]).strip() for e in reversed(same) if "layer" in e.facts), "")
    said = ", ".join([*([layer] if layer else []), *named[:4]])
    return f" ({said})" if said else ""


def busiest(events: list[KernelEvent]) -> tuple[int, float]:
    """(most events within any minute, seconds from the first to the last of them)."""
    at = sorted(event.at for event in events if event.mono is not None or event.wall is not None)
    best, first = (min(1, len(events)), 0.0), 0
    for last, end in enumerate(at):
        while end - at[first] > MINUTE_S:
            first += 1
        best = max(best, (last - first + 1, end - at[first]), key=lambda most: most[0])
    return best


def rate(most: int, span_s: float) -> float:
    """Per second, by the gaps between them; 0 when it is less than one or not known."""
    return (most - 1) / span_s if most - 1 > span_s > 0 else 0.0


def _iommu(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    known = {e.pci for e in events}
    for pci in sorted(known, key=str):
        same = [e for e in events if e.pci == pci]
        label = "a device" if pci is None else kernel_events.device_label(look, pci)
        finding = IOMMU.finding(
            look, f"{label}: IOMMU fault ({same[-1].facts.get('what')}){kernel_events.times(same)}"
            f"{kernel_events.ago(look, same[-1])}",
            kernel_events.texts(same), device=pci or "", label=label,
        )  # fmt: skip
        yield kernel_events.aged(look, structs.replace(finding, count=len(same)), same[-1])


def _slot(look: Look, pci: str, same: list[KernelEvent]) -> Iterator[Finding]:
    down = [e for e in same if e.facts.get("what") in ("link_down", "card_not_present")]
    if not down:
        return
    last, slot = same[-1], down[-1].facts.get("slot")
    back = last.facts.get("what") in ("link_up", "card_present")
    after = f"; up again after {kernel_events.lasting(last.at - down[-1].at)}" if back else ""
    finding = SLOT.finding(
        look, f"PCIe slot {slot} below {pci} lost its link{after}{kernel_events.ago(look, last)}",
        kernel_events.texts(same), device=pci, label=f"slot {slot}",
    )  # fmt: skip
    yield kernel_events.aged(look, finding, last)
