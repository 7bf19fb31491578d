"""What each kind of fault shows: in the driver's answers, in files under the root, in kernel lines.

Every function is pure in (fault, story time). Line shapes: the open driver's format strings and the
patterns of gpud; what a fault leaves behind: NVIDIA's Xid catalogue, nvml.h and the sysfs ABI.

thermal       a failing heat sink: hot, clock down, thermal reasons, power below its peers
power_brake   the power supply's brake signal: reason 0x80 and half the clock on all GPUs
gpu_lost      fallen off the bus: NVML answers 15, config space reads ff, Xid 79 and 154
xid           one kernel line with the given number
row_remap     a row waits for a reset to be remapped (Xid 63)
remap_failed  no spare row was left (Xid 64)
ecc           uncorrectable errors grow (Xid 48)
nvlink_down   one NVLink is down (Xid 74)
pcie_width    the link trained at x8
driver_hang   calls for this GPU never return; tasks in D state (Xid 119)
ib_flap       the port goes down and comes back every FLAP_S seconds, symbol errors between
ib_down       the port polls
ib_slow       the port came up at half rate
unowned       40 GiB of a GPU are in use, and no process owns them
unreachable   the ssh port is closed          silent    it accepts and says nothing
host_key      the host answers with another key than known_hosts has
What the host itself shows (services, mounts, memory ...): faults_host.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from console.demo import faults_host
from console.demo.hardware import GPU_PCI, Hardware
from console.demo.load import BRAKE_BIT, HW_SLOWDOWN_BIT
from console.demo.scenario import Fault
from console.demo.sysfs import NIC_BUSES
from console.demo.sysfs_text import DOWN

State = dict[str, Any]
"""nvml.json of one node, as console/demo/nvml reads it."""

NVML_ERROR_GPU_IS_LOST = 15
HANG_S = 86400.0
FLAP_S, FLAPDOWN_S = 6.0, 2.0
FLAPS_BEFORE = 5
"""A port that flaps from second 0 has done so for half a minute: the kernel log tells it."""
SYMBOLS_PER_S = 60.0
EARLIER_S = faults_host.EARLIER_S
ERR, WARN, INFO = 3, 4, 6
"""syslog priorities of kernel lines."""

XID_TEXT = {
    13: "pid=48211, name=python3, Graphics SM Warp Exception on (GPC 3, TPC 4, SM 0): "
    "Out Of Range Address",
    31: "pid=48211, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS "
    "GPCCLIENT_T1_0 faulted @ 0x7f1e_a0000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "pid=48211, name=python3, Ch 00000010, engmask 00000101",
    45: "pid=48211, name=python3, Ch 0000000c",
    94: "pid=48211, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
    95: "pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
}  # fmt: skip


class Line(NamedTuple):
    """A kernel log line at a story time (negative: before the story)."""

    at_s: float
    prio: int
    text: str


class Place(NamedTuple):
    """Where a fault sits, as the driver names it."""

    pci: str
    """0000:9d:00.0"""
    uuid: str
    serial: str
    gpu: int
    """Index on the node."""


def gpu_state(gpu: State, fault: Fault, t: float, hardware: Hardware) -> None:
    """Change one GPU's entry of nvml.json to what the fault shows at story time t."""
    change = _GPU.get(fault.kind)
    if change is not None and fault.gpu == gpu["index"]:
        change(gpu, fault, max(0.0, t - fault.at_s), hardware)
    elif fault.kind == "power_brake":
        _brake(gpu, fault, max(0.0, t - fault.at_s), hardware)


def _brake(gpu: State, fault: Fault, since_s: float, hardware: Hardware) -> None:
    gpu["reasons"] = (gpu["reasons"] & ~1) | BRAKE_BIT | HW_SLOWDOWN_BIT
    gpu["sm_mhz"] = min(gpu["sm_mhz"], hardware.sm_max_mhz // 2)
    gpu["power_w"] = min(gpu["power_w"], hardware.tdp_w * 0.45)
    gpu["fields"]["271"] = round(since_s * 1e9)
    gpu["drift"]["fields.271"] = 1e9


def _lost(gpu: State, fault: Fault, since_s: float, hardware: Hardware) -> None:
    gpu["rc"] = {"*": NVML_ERROR_GPU_IS_LOST}
    gpu["recovery"] = 2


def _row_remap(gpu: State, fault: Fault, since_s: float, hardware: Hardware) -> None:
    gpu["remap"] = [0, 1, 1, 0]
    gpu["ecc_agg_ue"] = 1
    gpu["recovery"] = 4


def _remap_failed(gpu: State, fault: Fault, since_s: float, hardware: Hardware) -> None:
    gpu["remap"] = [1, 9, 0, 1]
    gpu["ecc_agg_ue"] = 9
    gpu["recovery"] = 4


def _ecc(gpu: State, fault: Fault, since_s: float, hardware: Hardware) -> None:
    gpu["ecc_vol_ue"] = 1 + int(since_s / 20)
    gpu["ecc_agg_ue"] = 3 + int(since_s / 20)
    gpu["recovery"] = 4


def _nvlink(gpu: State, fault: Fault, since_s: float, hardware: Hardware) -> None:
    down = {"up": 0, "mbps": 0, "crc": 0, "replays": 212, "recoveries": 3}
    gpu["link"] = {str(fault.link): down}


def _width(gpu: State, fault: Fault, since_s: float, hardware: Hardware) -> None:
    gpu["pcie"] = [hardware.pcie_gen, hardware.pcie_gen, 8, 16]


def _hang(gpu: State, fault: Fault, since_s: float, hardware: Hardware) -> None:
    gpu["hang"] = {"*": HANG_S}


def _unowned(gpu: State, fault: Fault, since_s: float, hardware: Hardware) -> None:
    gpu["procs"], gpu["util"], gpu["mem_util"] = [], 0, 0
    gpu["mem_used_mib"] = 40 * 1024


_GPU: dict[str, Callable[[State, Fault, float, Hardware], None]] = {
    "gpu_lost": _lost,
    "row_remap": _row_remap,
    "remap_failed": _remap_failed,
    "ecc": _ecc,
    "nvlink_down": _nvlink,
    "pcie_width": _width,
    "driver_hang": _hang,
    "unowned": _unowned,
}


def files(fault: Fault, t: float, hardware: Hardware) -> dict[str, str | bytes]:
    """Files under the root (relative path -> content) that the fault changes at story time t."""
    if fault.kind == "gpu_lost" and fault.gpu is not None:
        return {f"sys/bus/pci/devices/{GPU_PCI[fault.gpu]}/config": b"\xff" * 64}
    if fault.port is None:
        return {}
    device, port = fault.port.split("/")
    return {
        f"sys/class/infiniband/{device}/ports/{port}/{name}": f"{text}\n"
        for name, text in _port(fault, max(0.0, t - fault.at_s)).items()
    }


def _port(fault: Fault, since_s: float) -> dict[str, str]:
    """Counters stop at their width of 8 and 16 bits, as PMA counters do."""
    if fault.kind == "ib_down":
        return {**DOWN, "counters/link_downed": "1"}
    if fault.kind == "ib_slow":
        return {"rate": "200 Gb/sec (2X NDR)"}
    downs = flaps(since_s)
    whole, phase = divmod(since_s, FLAP_S)
    up_each_s = FLAP_S - FLAPDOWN_S
    is_down = phase >= up_each_s
    up_s = whole * up_each_s + min(phase, up_each_s)
    return {
        **(DOWN if is_down else {}),
        "counters/link_downed": str(min(255, 41 + downs)),
        "counters/link_error_recovery": str(min(255, 17 + downs // 2)),
        "counters/symbol_error": str(min(65535, 1906 + int(SYMBOLS_PER_S * up_s))),
        "counters/port_rcv_errors": str(min(65535, 88 + int(4 * since_s))),
    }


def flaps(since_s: float) -> int:
    """How often a flapping port went down in its first `since_s` seconds."""
    return math.floor((since_s + FLAPDOWN_S) / FLAP_S)


def lines(fault: Fault, place: Place | None, since: float, until: float) -> Iterator[Line]:
    """Kernel lines with since < at_s <= until (story seconds)."""
    if fault.kind in faults_host.KINDS:
        found: Iterator[Line] = (Line(*line) for line in faults_host.lines(fault))
    elif fault.kind == "ib_flap" and fault.port:
        found = _flap_lines(fault, fault.port.split("/")[0], until)
    elif place is not None:
        found = _gpu_lines(fault, place)
    else:
        return
    end = math.inf if fault.for_s is None else fault.at_s + fault.for_s
    yield from (line for line in found if since < line.at_s <= until and line.at_s < end)


def _flap_lines(fault: Fault, device: str, until: float) -> Iterator[Line]:
    before = 0 if fault.at_s > 0 else FLAPS_BEFORE
    index = int(device.rpartition("_")[2])
    who = f"mlx5_core 0000:{NIC_BUSES[index]}:00.0 {device}" if index < len(NIC_BUSES) else device
    for number in range(-before, flaps(until - fault.at_s)):
        down_at = fault.at_s + (number + 1) * FLAP_S - FLAPDOWN_S
        yield Line(down_at, ERR, f"{who}: Port: 1 Link DOWN")
        yield Line(down_at + FLAPDOWN_S, INFO, f"{who}: Port: 1 Link ACTIVE")


def _gpu_lines(fault: Fault, place: Place) -> Iterator[Line]:
    at = fault.at_s if fault.at_s > 0 else -EARLIER_S
    short = place.pci.rsplit(".", 1)[0]
    texts = _xids(fault, place)
    if texts:
        yield Line(at, ERR, f"NVRM: GPU at PCI:{short}: {place.uuid}")
        yield Line(at, ERR, f"NVRM: GPU Board Serial Number: {place.serial}")
    for number, (xid, text) in enumerate(texts):
        yield Line(at + number * 0.01, ERR, f"NVRM: Xid (PCI:{short}): {xid}, {text}")
    if fault.kind == "gpu_lost":
        yield Line(at + 0.03, ERR, f"NVRM: GPU {place.pci}: GPU has fallen off the bus.")
    if fault.kind == "driver_hang":
        text = "INFO: task nvidia-smi:31337 blocked for more than 120 seconds."
        yield Line(at + 1.0, ERR, text)


def _xids(fault: Fault, place: Place) -> list[tuple[int, str]]:
    """Xid number and the text behind it, in the order the driver prints them."""
    if fault.kind == "xid" and fault.xid is not None:
        return [(fault.xid, XID_TEXT.get(fault.xid, _UNKNOWN + "reported by the driver"))]
    return [
        (xid, text.format(link=fault.link, gpu=place.gpu))
        for xid, text in _XIDS.get(fault.kind, ())
    ]


_UNKNOWN = "pid='<unknown>', name=<unknown>, "
_XIDS = {
    "gpu_lost": (
        (79, _UNKNOWN + "GPU has fallen off the bus."),
        (
            154,
            _UNKNOWN + "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        ),
    ),
    "row_remap": (
        (63, _UNKNOWN + "Row Remapper: New row marked for remapping, reset gpu to activate."),
    ),
    "remap_failed": (
        (64, _UNKNOWN + "Row Remapper: Failed to remap row, all reserved rows are in use."),
    ),
    "ecc": ((48, _UNKNOWN + "DBE (double bit error) occurred in the memory, bank 3"),),
    "nvlink_down": (
        (
            74,
            _UNKNOWN + "NVLink: fatal error detected on link {link}"
            "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        ),
    ),
    "driver_hang": (
        (
            119,
            "pid=31337, name=nvidia-smi, Timeout after 45s of waiting for RPC response from "
            "GPU{gpu} GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080014b 0x5).",
        ),
    ),
}
