"""NVML return codes as sentences for the operator (nvml.h, API 13)."""

from __future__ import annotations

from typing import NamedTuple

from probes.event import Action, Severity

OK, INFO, WARN, CRITICAL = Severity.OK, Severity.INFO, Severity.WARN, Severity.CRITICAL


class Code(NamedTuple):
    """Short name, what to tell the operator, and how grave it is for one GPU."""

    name: str
    say: str
    severity: Severity = OK
    """ok: no fault of the GPU; nothing is said when only some readings fail so."""
    action: Action = Action.NONE


SOURCE = "nvml.h nvmlReturn_t [nvml]; what to do is our wording"

NVML_CODES = {
    0: Code("success", "the call worked"),
    1: Code("uninitialized", "NVML was not started in this process: a fault of the asking program"),
    2: Code(
        "invalid argument",
        "the question has a form this driver does not know: a newer field on an old driver, or a "
        "link or index that the GPU lacks; not an error",
    ),
    3: Code("not supported", "feature absent here; not an error"),
    4: Code(
        "no permission",
        "no right to read it; run the probe with sudo, or check cgroup and MIG rights",
        INFO,
        Action.FIX_CONFIG,
    ),
    5: Code("already initialized", "NVML was started twice; not an error"),
    6: Code("not found", "no sample yet, or no such process, instance or link; not an error"),
    7: Code(
        "insufficient size",
        "the answer was longer than the buffer, because processes or instances came meanwhile; "
        "tried again next pass",
    ),
    8: Code(
        "insufficient power",
        "external power is missing: check the card's power cables, the riser and the PSUs",
        CRITICAL,
        Action.DRAIN,
    ),
    9: Code(
        "driver not loaded",
        "the node has no working driver: critical where GPUs are expected",
        CRITICAL,
        Action.REBOOT,
    ),
    10: Code("timeout", "the driver did not answer in time; tried again next pass"),
    11: Code(
        "IRQ issue",
        "the kernel has an interrupt problem with this GPU: check BIOS settings (MSI, IOMMU) and "
        "seating",
        WARN,
        Action.DRAIN,
    ),
    12: Code(
        "library not found",
        "the node has no NVML library: critical where GPUs are expected",
        CRITICAL,
        Action.FIX_CONFIG,
    ),
    13: Code("function not found", "old driver or library: this reading does not exist there"),
    14: Code(
        "corrupted InfoROM",
        "InfoROM is corrupted: hardware ticket; ECC and remap records may be lost",
        CRITICAL,
        Action.REPLACE,
    ),
    15: Code("GPU is lost", "off the bus: drain, collect evidence, reboot", CRITICAL, Action.DRAIN),
    16: Code(
        "GPU requires reset",
        "drain this GPU's work, then reset it",
        CRITICAL,
        Action.RESET_GPU,
    ),
    17: Code(
        "operating system",
        "the operating system keeps the device from this login, usually a cgroup",
        INFO,
        Action.FIX_CONFIG,
    ),
    18: Code(
        "driver/library version mismatch",
        "driver upgraded under the running module: reboot or reload it",
        CRITICAL,
        Action.REBOOT,
    ),
    19: Code("in use", "busy; tried again next pass"),
    20: Code(
        "insufficient memory",
        "the driver got no memory from the host: look at its free memory; tried again next pass",
        WARN,
        Action.WATCH,
    ),
    21: Code("no data", "no sample yet"),
    22: Code("vGPU ECC not supported", "a vGPU has no ECC of its own; not an error"),
    23: Code(
        "insufficient resources",
        "the driver ran out of something other than memory; tried again next pass",
        WARN,
        Action.WATCH,
    ),
    24: Code("frequency not supported", "this clock cannot be set here; nothing is broken"),
    25: Code(
        "argument version mismatch", "old driver or library: this reading does not exist there"
    ),
    26: Code("deprecated", "this driver no longer answers the call; not an error"),
    27: Code("not ready", "not ready, as during a reset or start; tried again next pass"),
    28: Code(
        "GPU not found",
        "the driver no longer finds this GPU: compare with the PCI bus, look for an Xid",
        WARN,
        Action.DRAIN,
    ),
    29: Code("invalid state", "the GPU's present mode does not allow the call; tried again later"),
    30: Code("reset type not supported", "this kind of reset does not exist here"),
    999: Code(
        "unknown error",
        "often a half-dead GPU: look for an Xid",
        WARN,
        Action.WATCH,
    ),
}


def code(number: int) -> Code:
    """What a return code says, documented or not."""
    return NVML_CODES.get(number) or Code(
        "undocumented",
        f"nvml.h (API 13) has no return code {number}, a newer driver may: look for an Xid, and "
        "into the driver's release notes",
        WARN,
        Action.WATCH,
    )
