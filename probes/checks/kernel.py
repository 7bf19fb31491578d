"""Kernel lines about cards without an Xid: off the bus, PCIe errors, drivers, network adapters.

A line older than xid.old_h is history: information, and it no longer latches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from probes.checks import kernel_events, xid
from probes.checks.rule import Look, Rule
from probes.event import Action, Finding, Severity
from probes.kernel_lines import KernelEvent

OFF_BUS = Rule(
    id="gpu.off_bus",
    title="The driver says that a GPU has fallen off the bus",
    severity=Severity.CRITICAL,
    reads="NVRM: ... has fallen off the bus, without an Xid 79 of the same card",
    cause="power, PCIe seating or retimer, overheating, or a dying GPU",
    action=Action.DRAIN,
    next_step="drain, save the kernel log, power-cycle the node; reseat or RMA if it returns",
    source="driver source [okm], three forms of the line; NVIDIA/NVSentinel issue 155: no Xid then",
    others="gpud, NVS: as Xid 79",
    example="NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has "
    "fallen off the bus and is not responding to commands.",
    hard=True,
)
INIT = Rule(
    id="driver.init_failed",
    title="The driver could not initialise a GPU",
    severity=Severity.CRITICAL,
    reads="NVRM: RmInitAdapter failed",
    cause="dead or half-dead card, or firmware that does not start",
    action=Action.DRAIN,
    next_step="drain; power-cycle; reseat or RMA if it returns",
    source="kernel log patterns of gpud [gpud]",
    others="gpud",
    example="NVRM: GPU 0000:52:00.0: RmInitAdapter failed! (0x62:0xffff:2477)",
    hard=True,
    clears="reset",
)
MISMATCH = Rule(
    id="driver.mismatch",
    title="A program and the kernel module are of different driver versions",
    severity=Severity.CRITICAL,
    reads="NVRM: API mismatch lines; a warning where NVML itself works here",
    cause="the driver was upgraded under a running module, or a container brings its own library",
    action=Action.REBOOT,
    next_step="drain, then reboot or reload the module; look for unattended upgrades",
    source="kernel log patterns of gpud [gpud]; NVML answers 18 then [nvml]",
    others="gpud",
    example="NVRM: API mismatch: the client has the version 580.95.05, but this kernel module has "
    "the version 580.82.07.",
)
MLX5 = Rule(
    id="kernel_log.mlx5",
    title="The network adapter's driver reports a fault",
    severity=Severity.WARN,
    reads="mlx5_core lines",
    cause="adapter firmware, transceiver or cable",
    action=Action.WATCH,
    next_step="check cable and transceiver; reset or replace the adapter if it repeats",
    source="syslog patterns of NVSentinel [nvsent]; ACCESS_REG lines are noise of counter readers",
    others="NVS, gpud",
    example="mlx5_core 0000:ab:00.0: Port module event[error]: module 0, Cable error, High "
    "Temperature",
)
AER_FATAL = Rule(
    id="pcie.aer_uncorrected",
    title="PCIe reports an error that it could not correct",
    severity=Severity.CRITICAL,
    reads="PCIe Bus Error lines of severity Uncorrected",
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
RULES = (OFF_BUS, INIT, MISMATCH, MLX5, AER_FATAL, AER)

MLX5_WORDS = {
    "high_temperature": ("transceiver too hot", Severity.WARN),
    "command_timeout": ("adapter command timed out", Severity.CRITICAL),
    "health_compromised": ("adapter health compromised", Severity.CRITICAL),
    "link_down": ("link went down", Severity.WARN),
    "cable_unplugged": ("cable unplugged", Severity.INFO),
    "insufficient_power": ("asks for more than its slot's power", Severity.INFO),
}
"""Unplugged may be meant so; the power note is common at boot: information when alone."""
MINUTE_S = 60.0


def check(look: Look) -> Iterator[Finding]:
    """Each kind by itself."""
    if not look.facts.kernel:
        return
    events = kernel_events.read(look)
    yield from _off_bus(look, events)
    yield from _init(look, events)
    yield from _mismatch(look, events)
    yield from _mlx5(look, events)
    yield from _aer(look, events)


def by_device(events: Iterable[KernelEvent]) -> list[tuple[str, list[KernelEvent]]]:
    """Events of each PCI address, by address; those without one are left out."""
    found: dict[str, list[KernelEvent]] = {}
    for event in events:
        if event.pci is not None:
            found.setdefault(event.pci, []).append(event)
    return sorted(found.items())


def _off_bus(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    """An Xid 79 of the same card says it already."""
    known = {
        burst.pci for burst in xid.roots(look, events)
        if any(event.code == xid.OFF_BUS for event in burst.events)
    }  # fmt: skip
    for pci, same in by_device(event for event in events if event.kind == "off_bus"):
        slot = pci.partition(".")[0]
        if slot in known:
            continue
        device, label = kernel_events.gpu(look, slot)
        finding = OFF_BUS.finding(
            look, f"{label} has fallen off the bus, says the driver"
            f"{kernel_events.ago(look, same[-1])}",
            kernel_events.texts(same), device=device, label=label,
        )  # fmt: skip
        yield kernel_events.aged(look, finding, same[-1])


def _init(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    readable = {d for d, s in look.facts.devices("gpu") if "nvml_rc" not in s.values}
    for pci, same in by_device(event for event in events if event.kind == "rminit"):
        if pci in readable:
            continue
        label = look.facts.gpu_label(pci)
        finding = INIT.finding(
            look, f"{label} at {pci} did not initialise", kernel_events.texts(same),
            device=pci, label=label,
        )  # fmt: skip
        yield kernel_events.aged(look, finding, same[-1])


def _mismatch(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    """Where NVML works the node is sound, and only some container's library is not its driver's."""
    same = [event for event in events if event.kind == "mismatch"]
    if not same:
        return
    node = look.facts.get("inventory")
    works = node is not None and "gpu_count" in node.values and "nvml_rc" not in node.values
    client, module = (str(same[-1].facts.get(name, "?")) for name in ("client", "module"))
    finding = MISMATCH.finding(
        look, f"a program uses driver {client}, the kernel module is {module}"
        f"{kernel_events.ago(look, same[-1])}",
        kernel_events.texts(same), severity=Severity.WARN if works else None,
        action=Action.FIX_CONFIG if works else None,
        next_step="find the container or program with its own driver library" if works else "",
    )  # fmt: skip
    yield kernel_events.aged(look, finding, same[-1])


def _mlx5(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    """Faults and flaps; ACCESS_REG lines are the noise of counter readers."""
    found: dict[tuple[str, str], list[KernelEvent]] = {}
    for event in events:
        what = event.facts.get("what")
        if event.kind == "mlx5" and event.pci and what in MLX5_WORDS:
            found.setdefault((event.pci, str(what)), []).append(event)
    for (pci, what), same in sorted(found.items()):
        word, severity = MLX5_WORDS[what]
        name = next((str(e.facts["dev"]) for e in same if "dev" in e.facts), pci)
        times = f" {len(same)} times" if len(same) > 1 else ""
        finding = MLX5.finding(
            look, f"{name}: {word}{times}{_more(events, same[-1])}"
            f"{kernel_events.ago(look, same[-1])}",
            kernel_events.texts(same), device=f"{pci} {what}", label=name, severity=severity,
            action=Action.DRAIN if severity is Severity.CRITICAL else None,
        )  # fmt: skip
        yield kernel_events.aged(look, finding, same[-1])


def _more(events: list[KernelEvent], last: KernelEvent) -> str:
    """How long the link was down, or how much power the slot gives, as far as the log tells."""
    if "watt" in last.facts:
        return f" ({last.facts['watt']} W)"
    if last.facts.get("what") != "link_down" or last.mono is None:
        return ""
    up = (
        event.mono - last.mono
        for event in events
        if event.pci == last.pci and event.facts.get("what") == "link_active"
        and event.facts.get("port") == last.facts.get("port")
        and event.mono is not None and event.mono >= last.mono
    )  # fmt: skip
    down_s = min(up, default=None)
    return "" if down_s is None else f" for {down_s:.0f} s"


def _aer(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    for pci, same in by_device(event for event in events if event.kind == "aer"):
        label = _label(look, pci)
        bad = [event for event in same if event.facts.get("corrected") is False]
        corrected = [event for event in same if event.facts.get("corrected") is True]
        if bad:
            fatal = any(event.facts.get("fatal") is True for event in bad)
            finding = AER_FATAL.finding(
                look, f"{label}: uncorrected PCIe error{', fatal' if fatal else ''}"
                f"{kernel_events.ago(look, bad[-1])}",
                kernel_events.texts(bad), device=pci, label=label, value=len(bad),
            )  # fmt: skip
            yield kernel_events.aged(look, finding, bad[-1])
        if corrected:
            yield _corrected(look, pci, label, corrected)


def _corrected(look: Look, pci: str, label: str, same: list[KernelEvent]) -> Finding:
    limit = look.rules.limit("pcie.aer_corrected_per_min")
    most, span_s = busiest(same)
    flood = most > limit.value
    layer = str(same[-1].facts.get("layer", "")).strip()
    times = f"{most} in {span_s:.1f} s" if flood else f"{len(same)}"
    per_s = f", {(most - 1) / span_s:.0f} a second" if flood and most - 1 > span_s > 0 else ""
    finding = AER.finding(
        look, f"{label}: corrected PCIe errors ({layer}): {times}{per_s}"
        f"{kernel_events.ago(look, same[-1])}",
        kernel_events.texts(same), device=pci, label=label, value=most, limit=limit,
        severity=None if flood else Severity.INFO, source=AER.source,
    )  # fmt: skip
    return kernel_events.aged(look, structs.replace(finding, count=len(same)), same[-1])


def busiest(events: list[KernelEvent]) -> tuple[int, float]:
    """(most events within any minute, seconds from the first to the last of them)."""
    at = sorted(event.mono for event in events if event.mono is not None)
    best, first = (min(1, len(events)), 0.0), 0
    for last, end in enumerate(at):
        while end - at[first] > MINUTE_S:
            first += 1
        best = max(best, (last - first + 1, end - at[first]), key=lambda most: most[0])
    return best


def _label(look: Look, pci: str) -> str:
    """GPU3, mlx5_0/1, or the address."""
    if look.facts.value("inventory", pci, "index") is not None:
        return f"{look.facts.gpu_label(pci)} at {pci}"
    for port, sample in look.facts.devices("infiniband"):
        if sample.values.get("pci") == pci:
            return f"{port} at {pci}"
    return pci
