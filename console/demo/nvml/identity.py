"""Calls about what a GPU is and how it is set up; `null` in the entry makes one NOT_SUPPORTED.

Signatures and enumerations: nvml.h, API 13, as NVIDIA's binding declares them.
"""

import ctypes
import time

from .shapes import (
    ARGUMENT_VERSION_MISMATCH,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    item,
    number,
    out,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    from .state import Gpu

    Raw = Dict[str, Any]
    Call = Callable[..., int]

NOT_FOUND = 6
MIG_MOST = 7
MIG_HANDLES = 0x100000
INFOROM = {0: "oem", 1: "ecc", 2: "power"}
ADDRESSING_V1 = 0x01000008
FAN_V1 = 0x0100000C

_ENERGY: "Dict[str, Any]" = {}
"""PCI address -> (monotonic seconds, mJ until then)."""


def _inforom(gpu: "Gpu", part: "Any", buffer: "Any", length: "Any") -> "int":
    name = INFOROM.get(int(part.value))
    return text(lambda one: (one.get("inforom") or {}).get(name))(gpu, buffer, length)


def _inforom_image(gpu: "Gpu", buffer: "Any", length: "Any") -> "int":
    return text(lambda one: (one.get("inforom") or {}).get("image"))(gpu, buffer, length)


def _gsp_version(gpu: "Gpu", buffer: "Any") -> "int":
    version = gpu.get("gsp")
    if version is None:
        return NOT_SUPPORTED
    out(buffer).value = str(version).encode()
    return SUCCESS


def _gsp_mode(gpu: "Gpu", enabled: "Any", default: "Any") -> "int":
    out(enabled).value = out(default).value = int(gpu.get("gsp") is not None)
    return SUCCESS


def _addressing(gpu: "Gpu", mode: "Any") -> "int":
    asked = out(mode)
    if asked.version != ADDRESSING_V1:
        return ARGUMENT_VERSION_MISMATCH
    if gpu.get("addressing") is None:
        return NOT_SUPPORTED
    asked.value = int(gpu.get("addressing"))
    return SUCCESS


def _fan_rpm(gpu: "Gpu", question: "Any") -> "int":
    asked = out(question)
    if asked.version != FAN_V1:
        return ARGUMENT_VERSION_MISMATCH
    if gpu.get("fan_rpm") is None:
        return NOT_SUPPORTED
    asked.speed = int(gpu.get("fan_rpm"))
    return SUCCESS


def _either(key: "str", other: "str", scale: "int" = 1) -> "Call":
    """A key of the entry, or another where it is null."""

    def call(gpu: "Gpu", *args: "Any") -> "int":
        return number(other if gpu.get(key) is None else key, scale)(gpu, *args)

    return call


def _mig_most(gpu: "Gpu", count: "Any") -> "int":
    if gpu.get("mig") is None:
        return NOT_SUPPORTED
    out(count).value = MIG_MOST
    return SUCCESS


def _mig_handle(gpu: "Gpu", index: "Any", handle: "Any") -> "int":
    place = int(index.value)
    if not gpu.get("mig"):
        return NOT_SUPPORTED
    if place >= MIG_MOST:
        return INVALID_ARGUMENT
    if place >= gpu.get("mig_devices"):
        return NOT_FOUND
    ctypes.c_void_p.from_buffer(out(handle)).value = MIG_HANDLES + gpu.minor() * 8 + place
    return SUCCESS


def _mig_mode(gpu: "Gpu", current: "Any", pending: "Any") -> "int":
    if gpu.get("mig") is None:
        return NOT_SUPPORTED
    wanted = gpu.get("mig_pending")
    out(current).value = int(gpu.get("mig"))
    out(pending).value = int(gpu.get("mig") if wanted is None else wanted)
    return SUCCESS


def _power_span(gpu: "Gpu", least: "Any", most: "Any") -> "int":
    item("power_span_w", 0)(gpu, least)
    rc = item("power_span_w", 1)(gpu, most)
    if rc == SUCCESS:
        out(least).value, out(most).value = out(least).value * 1000, out(most).value * 1000
    return rc


def _conf_compute(raw: "Raw", state: "Any") -> "int":
    said = raw.get("cc", {})
    if said is None:
        return NOT_SUPPORTED
    answer = out(state)
    answer.ccFeature, answer.devToolsMode = int(said.get("on", 0)), int(said.get("devtools", 0))
    answer.environment = int(said.get("environment", 0))
    return SUCCESS


def _conf_ready(raw: "Raw", state: "Any") -> "int":
    out(state).value = int((raw.get("cc") or {}).get("ready", 1))
    return SUCCESS


def _excluded_count(raw: "Raw", count: "Any") -> "int":
    out(count).value = len(raw.get("excluded", []))
    return SUCCESS


def _excluded_info(raw: "Raw", index: "Any", info: "Any") -> "int":
    place = int(getattr(index, "value", index))
    if place >= len(raw.get("excluded", [])):
        return INVALID_ARGUMENT
    out(info).pci.busId = ("0000" + raw["excluded"][place].upper()).encode()
    return SUCCESS


def energy_mj(gpu: "Gpu") -> "Any":
    """The entry's own figure, or what its power adds up to; None where power is not readable."""
    power_w = gpu.get("power_w")
    if gpu.get("energy_mj") is not None or power_w is None:
        return gpu.get("energy_mj")
    now = time.monotonic()
    before, energy = _ENERGY.get(gpu.pci, (now, 1e9))
    passed_s = (now - before) * gpu.get("speed")
    spent = float(gpu.mean("power_w", passed_s)) * 1000 * passed_s
    _ENERGY[gpu.pci] = (now, energy + spent)
    return int(_ENERGY[gpu.pci][1])


SYSTEM: "Dict[str, Call]" = {
    "nvmlSystemGetConfComputeState": _conf_compute,
    "nvmlSystemGetConfComputeGpusReadyState": _conf_ready,
    "nvmlGetExcludedDeviceCount": _excluded_count,
    "nvmlGetExcludedDeviceInfoByIndex": _excluded_info,
}
DEVICE: "Dict[str, Call]" = {
    "nvmlDeviceGetBoardPartNumber": text(lambda gpu: gpu.get("board_part")),
    "nvmlDeviceGetInforomVersion": _inforom,
    "nvmlDeviceGetInforomImageVersion": _inforom_image,
    "nvmlDeviceGetGspFirmwareVersion": _gsp_version,
    "nvmlDeviceGetGspFirmwareMode": _gsp_mode,
    "nvmlDeviceGetVirtualizationMode": number("virtualization"),
    "nvmlDeviceGetHostVgpuMode": number("host_vgpu"),
    "nvmlDeviceGetComputeMode": number("compute_mode"),
    "nvmlDeviceGetAddressingMode": _addressing,
    "nvmlDeviceGetNumaNodeId": number("numa_node"),
    "nvmlDeviceGetMigMode": _mig_mode,
    "nvmlDeviceGetMaxMigDeviceCount": _mig_most,
    "nvmlDeviceGetMigDeviceHandleByIndex": _mig_handle,
    "nvmlDeviceGetFanSpeed": number("fan"),
    "nvmlDeviceGetFanSpeedRPM": _fan_rpm,
    "nvmlDeviceGetApplicationsClock": _either("sm_app_mhz", "sm_max_mhz"),
    "nvmlDeviceGetDefaultApplicationsClock": _either("sm_app_default_mhz", "sm_max_mhz"),
    "nvmlDeviceGetPowerManagementDefaultLimit": _either("power_default_w", "power_limit_w", 1000),
    "nvmlDeviceGetPowerManagementLimitConstraints": _power_span,
}

DEFAULTS: "Raw" = {
    "board_part": "692-2G520-0200-000",
    "inforom": {"image": "G520.0200.00.05", "oem": "2.1", "ecc": "7.16", "power": "N/A"},
    "gsp": "580.95.05",
    "virtualization": 0,
    "host_vgpu": None,
    "compute_mode": 0,
    "addressing": 1,
    "numa_node": None,
    "mig_pending": None,
    "mig_devices": 7,
    "fan": None,
    "fan_rpm": None,
    "sm_app_mhz": None,
    "sm_app_default_mhz": None,
    "power_default_w": None,
    "power_span_w": [200, 700],
    "power_instant_w": None,
    "energy_mj": None,
    "gpm": {},
    "mps_procs": [],
    "graphics_procs": [],
}
"""Of the same healthy H100 as in state.py. Where null: power_instant_w is power_w, power_default_w
is power_limit_w, clocks of applications are sm_max_mhz."""
