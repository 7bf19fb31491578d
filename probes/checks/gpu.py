"""Are all GPUs there, and does the driver answer for each of them?"""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks import gpu_driver
from probes.checks.gpu_count import COUNT, GIVEN, GUEST_DRIVERS, counted
from probes.checks.nvml_codes import code as meaning
from probes.checks.rule import Look, Rule
from probes.checks.sensors import FAN_CALL
from probes.event import Action, Finding, Sample, Severity
from probes.reading import whole

LOST = 15
RESET_REQUIRED = 16
AGAIN = (10, 19, 27)
"""Timeout, in use, not ready: no fault, unless the GPU gives no reading at all."""
PROBES = ("gpu", "gpm", "ecc", "pcie", "nvlink", "nvlink_ends", "fabric", "inventory")
LIVE = frozenset({"temp_c", "power_w", "util_percent", "sm_clock_mhz", "mem_used_bytes"})
"""Readings of which a GPU that answers gives one at least."""

LOST_RULE = Rule(
    id="gpu.lost",
    title="GPU is lost: it fell off the bus",
    severity=Severity.CRITICAL,
    reads="return codes of the NVML calls of each GPU",
    cause="power, PCIe seating or retimer, overheating, or a dying GPU; expect Xid 79 or 119",
    action=Action.DRAIN,
    next_step="drain, save the kernel log, power-cycle the node; reseat or RMA if it returns",
    source="nvml.h NVML_ERROR_GPU_IS_LOST (15) [nvml]",
    others="GCM, OCI, gpud, DCGM, SCK, AzHC: any is an error",
    example="nvmlDeviceGetHandleByIndex_v2 returned 15 (GPU is lost)",
    hard=True,
    clears="reset",
)
RESET = Rule(
    id="gpu.reset_required",
    title="GPU asks for a reset",
    severity=Severity.CRITICAL,
    reads="return codes of the NVML calls of each GPU",
    cause="the driver stopped using this GPU after an error",
    action=Action.RESET_GPU,
    next_step="drain, then nvidia-smi -r -i GPU, or reboot",
    source="nvml.h NVML_ERROR_RESET_REQUIRED (16) [nvml]",
    others="GCM: error",
    example="nvmlDeviceGetPowerUsage returned 16 (GPU requires reset)",
    hard=True,
    clears="reset",
)
NVML_ERROR = Rule(
    id="gpu.nvml_error",
    title="NVML call failed for one GPU",
    severity=Severity.WARN,
    reads="return codes of the NVML calls of each GPU",
    cause="a half-dead GPU, or missing rights",
    action=Action.WATCH,
    next_step="look for an Xid of this GPU; `gpuconsole explain nvml:CODE`",
    source="nvml.h nvmlReturn_t [nvml]",
    others="GCM: lost, reset required and corrupted InfoROM are errors, others warn",
    example="nvmlDeviceGetTemperature returned 999 (unknown error)",
)
GONE = Rule(
    id="gpu.gone",
    title="GPU vanished while we watched",
    severity=Severity.CRITICAL,
    reads="devices of each NVML answer against the answer before",
    cause="the driver stopped listing it; indices of later GPUs moved down",
    action=Action.DRAIN,
    next_step="drain and power-cycle; older notes that name an index now mean another card",
    source="field case: the driver drops a lost GPU and renumbers the others",
    others="-",
    example="0000:52:00.0 was GPU2 until 14:02:11",
    hard=True,
    clears="reset",
)
BUS_DEAD = Rule(
    id="gpu.config_space",
    title="GPU is on the bus list but does not answer there",
    severity=Severity.CRITICAL,
    reads="PCI configuration space (vendor reads ffff, lspci shows rev ff)",
    cause="the card lost power or its link; the kernel keeps the old entry",
    action=Action.DRAIN,
    next_step="drain and power-cycle; a warm reboot rarely helps",
    source="lspci shows revision ff for a card that does not answer; GCM and OCI look for it",
    others="GCM, OCI, SCK: error",
    example="0000:52:00.0 config space reads ff",
    hard=True,
    clears="reset",
)
RULES = (COUNT, LOST_RULE, RESET, NVML_ERROR, *gpu_driver.RULES, GONE, BUS_DEAD, GIVEN)


def check(look: Look) -> Iterator[Finding]:
    """Driver first: without it nothing else of NVML means anything."""
    yield from gpu_driver.check(look)
    node = look.facts.get("inventory")
    if node is not None:
        yield from counted(look, node)
        yield from _bus(look, node)
    yield from _codes(look)
    yield from _gone(look)


def _bus(look: Look, node: Sample) -> Iterator[Finding]:
    for row in node.rows:
        if row.get("config_ok") is False and row.get("driver") not in GUEST_DRIVERS:
            pci = str(row.get("pci", "?"))
            yield BUS_DEAD.finding(
                look, f"{_at(look, pci)} is on the bus list but dead",
                (f"{pci} config space reads ff",), device=pci, label=look.facts.gpu_label(pci),
            )  # fmt: skip


def _at(look: Look, pci: str) -> str:
    """As "GPU4 at 0000:9d:00.0"; the address once where the index is unknown."""
    label = look.facts.gpu_label(pci)
    return label if pci in label else f"{label} at {pci}"


def _codes(look: Look) -> Iterator[Finding]:
    """The worst return code of each GPU, whichever probe met it."""
    worst: dict[str, tuple[int, str]] = {}
    for probe in PROBES:
        for device, sample in look.facts.devices(probe):
            number = whole(sample.values.get("nvml_rc"))
            call = str(sample.values.get("nvml_call", "an NVML call"))
            if not device or number is None or not _grave(probe, number, sample):
                continue
            if FAN_CALL in call and meaning(number).severity is Severity.WARN:
                continue  # thermal.fan
            if number == LOST or device not in worst:
                worst[device] = number, call
    for device, (number, call) in sorted(worst.items()):
        yield _code(look, device, number, call)


def _grave(probe: str, number: int, sample: Sample) -> bool:
    """Whether the code says anything about the GPU, or the rights here."""
    if number in AGAIN:
        return probe == "gpu" and LIVE.isdisjoint(sample.values)
    return meaning(number).severity is not Severity.OK


def _code(look: Look, device: str, number: int, call: str) -> Finding:
    known = meaning(number)
    label = look.facts.gpu_label(device)
    evidence = (f"{call} returned {number} ({known.name})",)
    if number == LOST:
        others = [s for other, s in look.facts.devices("gpu") if other != device]
        readable = sum(1 for s in others if "nvml_rc" not in s.values)
        where = f"{_at(look, device)}{_slot(look, device)}"
        say = f"{where} is lost (NVML {number})"
        if others:  # else none was read yet, and a count would be wrong
            say += f"; {readable} other{_s(readable)} readable"
        return LOST_RULE.finding(look, say, evidence, device=device, label=label, value=number)
    if number == RESET_REQUIRED:
        say = f"{_at(look, device)} asks for a reset"
        return RESET.finding(look, say, evidence, device=device, label=label, value=number)
    silent = number in AGAIN
    return NVML_ERROR.finding(
        look, f"{label} gives no reading: {known.say}" if silent
        else f"{label}: NVML error {number} ({known.name}); {known.say}", evidence,
        device=device, label=label, value=number,
        severity=Severity.WARN if silent else known.severity,
        action=Action.WATCH if silent else known.action,
    )  # fmt: skip


def _slot(look: Look, device: str) -> str:
    """The physical slot, where the firmware names one: what a technician looks for."""
    slot = look.facts.value("inventory", device, "slot")
    return "" if slot is None else f", slot {slot}"


def _s(number: int) -> str:
    return " is" if number == 1 else "s are"


def _gone(look: Look) -> Iterator[Finding]:
    for (probe, device), sample in sorted(look.facts.gone.items()):
        if probe == "gpu" and device:
            index = sample.values.get("index", "?")
            yield GONE.finding(
                look, f"GPU{index} at {device} vanished; later indices moved down",
                (f"{device} was GPU{index} in its last answer",),
                device=device, label=f"GPU{index}",
            )  # fmt: skip
