"""NVML return codes as sentences for the operator (nvml.h, API 13)."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """Short name and what to tell the operator."""

    name: str
    say: str


SOURCE = "nvml.h nvmlReturn_t [nvml]; what to do is our wording"

NVML_CODES = {
    3: Code("not supported", "feature absent here; not an error"),
    4: Code(
        "no permission",
        "no right to read it; run the probe with sudo, or check cgroup and MIG rights",
    ),
    6: Code("not found", "no sample yet"),
    8: Code("insufficient power", "external power missing: cabling"),
    9: Code("driver not loaded", "the node has no working driver"),
    10: Code("timeout", "the driver did not answer in time; tried again next pass"),
    11: Code("IRQ issue", "interrupt problem: BIOS or kernel settings"),
    12: Code("library not found", "the node has no NVML library"),
    13: Code("function not found", "old driver or library: this reading does not exist there"),
    14: Code("corrupted InfoROM", "InfoROM is corrupted: hardware ticket"),
    15: Code("GPU is lost", "off the bus: drain, collect evidence, reboot"),
    16: Code("GPU requires reset", "drain this GPU's work, then reset it"),
    17: Code("operating system", "the device is blocked, usually by a cgroup"),
    18: Code(
        "driver/library version mismatch",
        "driver upgraded under the running module: reboot or reload it",
    ),
    19: Code("in use", "busy; tried again next pass"),
    21: Code("no data", "no sample yet"),
    25: Code(
        "argument version mismatch", "old driver or library: this reading does not exist there"
    ),
    27: Code("not ready", "not ready; tried again next pass"),
    999: Code("unknown error", "often a half-dead GPU: look for an Xid"),
}
