"""What each simulated NVML call writes into the caller's memory.

Every function takes (GPU or raw state, arguments after the handle) and returns an nvmlReturn_t.
Signatures, structures and value types: nvml.h, API 13, as NVIDIA's binding declares them.
"""

from . import gpm, identity
from .fields import get_field_values
from .links import DEVICE as LINK_CALLS
from .shapes import (
    ARGUMENT_VERSION_MISMATCH,
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    item,
    number,
    out,
    text,
    whole_gpu_only,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .state import Gpu

    Raw = Dict[str, Any]
    Call = Callable[..., int]

MIB = 1 << 20
IDLE_MIB = 4
"""In use on an idle GPU with persistence mode on, reserve aside."""
NO_INSTANCE = 0xFFFFFFFF
CLOCK_MEM = 2
MAX_VALUE = {4: 0xFFFFFFFF, 8: 0xFFFFFFFFFFFFFFFF}

MEMORY_V2 = 0x02000028
MARGIN_V1 = 0x01000008
TEMPERATURE_V1 = 0x0100000C

THRESHOLDS = {0: 5, 1: 2, 2: 8, 3: 0}
"""Shutdown, slowdown, memory and operating limit above temp_max: 92, 89, 95 and 87 on Hopper."""


def _utilisation(gpu: "Gpu", argument: "Any") -> "int":
    if gpu.get("util") is None:
        return NOT_SUPPORTED
    rates = out(argument)
    rates.gpu, rates.memory = int(gpu.get("util")), int(gpu.get("mem_util") or 0)
    return SUCCESS


def _memory(gpu: "Gpu") -> "Optional[List[int]]":
    """Total, used and reserved bytes; None when not supported."""
    sizes = [gpu.get(key) for key in ("mem_total_mib", "mem_used_mib", "mem_reserved_mib")]
    if "mem_used_mib" not in gpu.entry and gpu.get("util") == 0:
        sizes[1] = IDLE_MIB  # nobody who computes nothing has most of the memory
    return None if None in sizes else [int(size * MIB) for size in sizes]


def _memory_v1(gpu: "Gpu", argument: "Any") -> "int":
    sizes = _memory(gpu)
    if sizes is None:
        return NOT_SUPPORTED
    total, used, reserved = sizes
    memory = out(argument)
    memory.total, memory.used, memory.free = total, used + reserved, total - used - reserved
    return SUCCESS


def _memory_v2(gpu: "Gpu", argument: "Any") -> "int":
    memory, sizes = out(argument), _memory(gpu)
    if memory.version != MEMORY_V2:
        return ARGUMENT_VERSION_MISMATCH
    if sizes is None:
        return NOT_SUPPORTED
    memory.total, memory.used, memory.reserved = sizes
    memory.free = sizes[0] - sizes[1] - sizes[2]
    return SUCCESS


def _pci_info(gpu: "Gpu", argument: "Any") -> "int":
    domain, bus, rest = gpu.pci.split(":")
    info = out(argument)
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(rest[:2], 16)
    info.pciDeviceId = int(gpu.get("device_id"), 16)
    info.pciSubSystemId = int(gpu.get("subsystem_id"), 16)
    info.busId = ("%08X:%s:%s" % (info.domain, bus.upper(), rest.upper())).encode()
    info.busIdLegacy = ("%04X:%s:%s" % (info.domain, bus.upper(), rest.upper())).encode()
    return SUCCESS


def _temperature_v(gpu: "Gpu", argument: "Any") -> "int":
    reading = out(argument)
    if reading.version != TEMPERATURE_V1:
        return ARGUMENT_VERSION_MISMATCH
    if gpu.get("temp") is None:
        return NOT_SUPPORTED
    reading.temperature = int(gpu.get("temp"))
    return SUCCESS


def _margin(gpu: "Gpu", argument: "Any") -> "int":
    reading = out(argument)
    if reading.version != MARGIN_V1:
        return ARGUMENT_VERSION_MISMATCH
    if gpu.get("temp") is None or gpu.get("temp_max") is None:
        return NOT_SUPPORTED
    reading.marginTemperature = int(gpu.get("temp_max") - gpu.get("temp"))
    return SUCCESS


def _threshold(gpu: "Gpu", kind: "Any", argument: "Any") -> "int":
    above = THRESHOLDS.get(int(kind.value))
    if above is None or gpu.get("temp_max") is None:
        return NOT_SUPPORTED
    out(argument).value = int(gpu.get("temp_max")) + above
    return SUCCESS


def _clock(sm_key: "str", mem_key: "str") -> "Call":
    def call(gpu: "Gpu", kind: "Any", argument: "Any") -> "int":
        return number(mem_key if int(kind.value) == CLOCK_MEM else sm_key)(gpu, argument)

    return call


def _ecc_total(gpu: "Gpu", error: "Any", span: "Any", argument: "Any") -> "int":
    if not gpu.get("ecc"):
        return NOT_SUPPORTED
    key = "ecc_%s_%s" % ("agg" if span.value else "vol", "ue" if error.value else "ce")
    return number(key)(gpu, argument)


def _remapped(gpu: "Gpu", *arguments: "Any") -> "int":
    rows = gpu.get("remap")
    if rows is None:
        return NOT_SUPPORTED
    for argument, count in zip(arguments, rows):
        out(argument).value = int(count)
    return SUCCESS


def _link(key: "str") -> "Call":
    def call(gpu: "Gpu", link: "Any", argument: "Any") -> "int":
        if gpu.get("links") is None:
            return NOT_SUPPORTED
        if int(getattr(link, "value", link)) >= gpu.get("links"):
            return INVALID_ARGUMENT
        out(argument).value = int(gpu.link(int(getattr(link, "value", link)), key))
        return SUCCESS

    return call


def _link_errors(gpu: "Gpu", link: "Any", counter: "Any", argument: "Any") -> "int":
    key = {0: "replays", 1: "recoveries", 2: "crc"}.get(int(getattr(counter, "value", counter)))
    return NOT_SUPPORTED if key is None else _link(key)(gpu, link, argument)


def _listed(key: "str") -> "Call":
    def call(gpu: "Gpu", count: "Any", array: "Any") -> "int":
        found = gpu.get(key)
        if found is None:
            return NOT_SUPPORTED
        room, out(count).value = out(count).value, len(found)
        if len(found) > (room if array is not None else 0):
            return INSUFFICIENT_SIZE
        for place, (pid, mib) in enumerate(found):
            process = array[place]
            process.pid = int(pid)
            process.usedGpuMemory = MAX_VALUE[8] if mib is None else int(mib * MIB)
            process.gpuInstanceId = process.computeInstanceId = NO_INSTANCE
        return SUCCESS

    return call


def _count(raw: "Raw", argument: "Any") -> "int":
    out(argument).value = len(raw.get("gpus", []))
    return SUCCESS


def _cuda(raw: "Raw", argument: "Any") -> "int":
    out(argument).value = int(raw.get("cuda", 13000))
    return SUCCESS


SYSTEM: "Dict[str, Call]" = {
    "nvmlDeviceGetCount_v2": _count,
    "nvmlSystemGetDriverVersion": text(lambda raw: raw.get("driver", "580.95.05")),
    "nvmlSystemGetNVMLVersion": text(lambda raw: raw.get("nvml", "13.580.95.05")),
    "nvmlSystemGetCudaDriverVersion": _cuda,
    "nvmlSystemGetCudaDriverVersion_v2": _cuda,
}
"""Calls about the node."""
SYSTEM.update(identity.SYSTEM)

DEVICE: "Dict[str, Call]" = {
    "nvmlDeviceGetName": text(lambda gpu: gpu.get("name")),
    "nvmlDeviceGetUUID": text(lambda gpu: gpu.uuid()),
    "nvmlDeviceGetSerial": text(lambda gpu: gpu.serial()),
    "nvmlDeviceGetVbiosVersion": text(lambda gpu: gpu.get("vbios")),
    "nvmlDeviceGetIndex": lambda gpu, argument: _set(argument, gpu.index),
    "nvmlDeviceGetMinorNumber": lambda gpu, argument: _set(argument, gpu.minor()),
    "nvmlDeviceGetPciInfo_v3": _pci_info,
    "nvmlDeviceGetUtilizationRates": whole_gpu_only(_utilisation),
    "nvmlDeviceGetMemoryInfo": _memory_v1,
    "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
    "nvmlDeviceGetTemperature": number("temp"),
    "nvmlDeviceGetTemperatureV": _temperature_v,
    "nvmlDeviceGetTemperatureThreshold": _threshold,
    "nvmlDeviceGetMarginTemperature": _margin,
    "nvmlDeviceGetPowerUsage": number("power_w", 1000),
    "nvmlDeviceGetEnforcedPowerLimit": number("power_limit_w", 1000),
    "nvmlDeviceGetPowerManagementLimit": number("power_limit_w", 1000),
    "nvmlDeviceGetClockInfo": _clock("sm_mhz", "mem_mhz"),
    "nvmlDeviceGetMaxClockInfo": _clock("sm_max_mhz", "mem_max_mhz"),
    "nvmlDeviceGetPerformanceState": number("pstate"),
    "nvmlDeviceGetCurrentClocksEventReasons": number("reasons"),
    "nvmlDeviceGetCurrentClocksThrottleReasons": number("reasons"),
    "nvmlDeviceGetPersistenceMode": number("persistence"),
    "nvmlDeviceGetTotalEccErrors": _ecc_total,
    "nvmlDeviceGetRemappedRows": whole_gpu_only(_remapped),
    "nvmlDeviceGetCurrPcieLinkGeneration": item("pcie", 0),
    "nvmlDeviceGetMaxPcieLinkGeneration": item("pcie", 1),
    "nvmlDeviceGetCurrPcieLinkWidth": item("pcie", 2),
    "nvmlDeviceGetMaxPcieLinkWidth": item("pcie", 3),
    "nvmlDeviceGetPcieReplayCounter": number("pcie_replays"),
    "nvmlDeviceGetNvLinkState": whole_gpu_only(_link("up")),
    "nvmlDeviceGetNvLinkErrorCounter": whole_gpu_only(_link_errors),
    "nvmlDeviceGetComputeRunningProcesses_v3": _listed("procs"),
    "nvmlDeviceGetComputeRunningProcesses_v2": _listed("procs"),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": _listed("graphics_procs"),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": _listed("mps_procs"),
    "nvmlGpmQueryDeviceSupport": gpm.support,
    "nvmlDeviceGetFieldValues": get_field_values,
}
"""Calls about a GPU, after the handle."""
DEVICE.update(identity.DEVICE)
DEVICE.update(LINK_CALLS)

IDENTITY = frozenset((
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetUUID",
))  # fmt: skip
"""Answered by the library itself: they do not hang when the card does."""


def _set(argument: "Any", value: "Any") -> "int":
    out(argument).value = int(value)
    return SUCCESS
