"""Kernel lines of the NVIDIA driver without an Xid: off the bus, not started, not matching.

A line older than xid.old_h is history: information, and it no longer latches.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks import kernel_events, xid
from probes.checks.kernel_events import by_device
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
    reads="NVRM: RmInitAdapter failed, rm_init_adapter failed",
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
RX_DETECT = Rule(
    id="nvlink.rx_detect",
    title="The driver could not read which NVLinks found a partner",
    severity=Severity.WARN,
    reads="NVRM: ... PostRxDetLinkMask ... failed lines",
    cause="an NVLink or NVSwitch that did not train, or a fabric manager that does not answer",
    action=Action.WATCH,
    next_step="nvidia-smi nvlink -s for links that are not up; restart the fabric manager, then "
    "reset or reboot",
    source="kernel log patterns of gpud [gpud]",
    others="gpud: warning",
    example="NVRM: GPU3 knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link "
    "mask!",
)
MODESET = Rule(
    id="driver.modeset",
    title="The driver's display part reports an error",
    severity=Severity.INFO,
    reads="nvidia-modeset: ERROR lines",
    cause="on a node without displays a consequence: the GPU did not answer it",
    action=Action.NONE,
    next_step="look for an Xid or a lost GPU of the same time; alone it means nothing for jobs",
    source="driver source [okm]: module nvidia-modeset; the meaning is our estimate, not measured",
    others="-",
    example="nvidia-modeset: ERROR: GPU:0: Error while waiting for GPU progress: 0x0000c67d:0",
)
PEERMEM = Rule(
    id="driver.peermem",
    title="nvidia-peermem dropped memory of a process that was gone",
    severity=Severity.INFO,
    reads="nvidia-peermem ... ERROR lines",
    cause="a job with GPUDirect RDMA ended before its registrations did, mostly after a crash",
    action=Action.NONE,
    next_step="look for an Xid or a killed process of the same time; alone it is harmless",
    source="kernel log patterns of gpud [gpud]; the meaning is our estimate, not measured",
    others="gpud: event",
    example="nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping "
    "further processing",
)
RULES = (OFF_BUS, INIT, MISMATCH, RX_DETECT, MODESET, PEERMEM)


def check(look: Look) -> Iterator[Finding]:
    """Each kind by itself."""
    if not look.facts.kernel:
        return
    events = kernel_events.read(look)
    yield from _off_bus(look, events)
    yield from _init(look, events)
    yield from _mismatch(look, events)
    yield from _rx_detect(look, [e for e in events if e.kind == "rx_detect"])
    for rule, kind in ((MODESET, "modeset"), (PEERMEM, "peermem")):
        yield from _noted(look, rule, [e for e in events if e.kind == kind])


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
        yield xid.aged_of_gpu(look, finding, same[-1])


def _init(look: Look, events: list[KernelEvent]) -> Iterator[Finding]:
    """By address; a line that names none counts where no other does."""
    readable = {d for d, s in look.facts.devices("gpu") if "nvml_rc" not in s.values}
    failed = [event for event in events if event.kind == "rminit"]
    named = by_device(failed)
    for pci, same in named:
        if pci in readable:
            continue
        label = look.facts.gpu_label(pci)
        finding = INIT.finding(
            look, f"{label} did not initialise{kernel_events.ago(look, same[-1])}",
            kernel_events.texts(same), device=pci, label=label,
        )  # fmt: skip
        yield xid.aged_of_gpu(look, finding, same[-1])
    expected = look.facts.value("inventory", "", "pci_gpu_count")
    all_there = expected is not None and len(readable) == expected
    if failed and not named and not all_there:
        minor = next((f"minor {e.facts['minor']}" for e in failed if "minor" in e.facts), "")
        finding = INIT.finding(
            look, f"a GPU{f' ({minor})' if minor else ''} did not initialise; the line names no "
            f"address{kernel_events.ago(look, failed[-1])}",
            kernel_events.texts(failed), label=minor,
        )  # fmt: skip
        yield kernel_events.aged(look, finding, failed[-1])


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


def _rx_detect(look: Look, same: list[KernelEvent]) -> Iterator[Finding]:
    if same:
        gpus = sorted({f"GPU{e.facts['gpu']}" for e in same if "gpu" in e.facts})
        who = ", ".join(gpus[:8]) or "a GPU"
        finding = RX_DETECT.finding(
            look, f"{who}: the driver could not read which NVLinks found a partner"
            f"{kernel_events.times(same)}{kernel_events.ago(look, same[-1])}",
            kernel_events.texts(same),
        )  # fmt: skip
        yield kernel_events.aged(look, finding, same[-1])


def _noted(look: Look, rule: Rule, same: list[KernelEvent]) -> Iterator[Finding]:
    if same:
        yield rule.finding(
            look, f"nvidia-{same[-1].kind}: {same[-1].facts.get('said', 'error')}"
            f"{kernel_events.times(same)}{kernel_events.ago(look, same[-1])}",
            kernel_events.texts(same),
        )  # fmt: skip
