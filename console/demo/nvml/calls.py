"""What each simulated NVML call writes into the caller's memory.

Every function takes (GPU or raw state, arguments after the handle) and returns an nvmlReturn_t.
Signatures, structures and value types: nvml.h, API 13, as NVIDIA's binding declares them.
"""

from .fields import get_field_values

SUCCESS = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
INSUFFICIENT_SIZE = 7
ARGUMENT_VERSION_MISMATCH = 25

MIB = 1 << 20
NO_INSTANCE = 0xFFFFFFFF
CLOCK_MEM = 2
MAX_VALUE = {4: 0xFFFFFFFF, 8: 0xFFFFFFFFFFFFFFFF}

FABRIC_VERSIONS = (0x02000024, 0x03000028)
MEMORY_V2 = 0x02000028
MARGIN_V1 = 0x01000008
TEMPERATURE_V1 = 0x0100000C

THRESHOLDS = {0: 5, 1: 2, 2: 8, 3: 0}
"""Shutdown, slowdown, memory and operating limit above temp_max: 92, 89, 95 and 87 on Hopper."""


def out(argument):
    """The object behind byref(), a pointer or an array."""
    if hasattr(argument, "_obj"):
        return argument._obj
    return argument.contents if hasattr(argument, "contents") else argument


def _number(key, scale=1):
    """A call with one output: a key of the entry, times `scale`."""

    def call(gpu, *args):
        value = gpu.get(key)
        if value is None:
            return NOT_SUPPORTED
        out(args[-1]).value = int(value * scale)
        return SUCCESS

    return call


def _item(key, position):
    """A call with one output: an item of a list."""

    def call(gpu, *args):
        value = gpu.get(key)
        if value is None:
            return NOT_SUPPORTED
        out(args[-1]).value = int(value[position])
        return SUCCESS

    return call


def _pair(key):
    """Current and pending mode."""

    def call(gpu, current, pending):
        value = gpu.get(key)
        if value is None:
            return NOT_SUPPORTED
        out(current).value = out(pending).value = int(value)
        return SUCCESS

    return call


def _text(read):
    """A string into (buffer, length)."""

    def call(source, buffer, length):
        value = read(source)
        if value is None:
            return NOT_SUPPORTED
        raw = str(value).encode()
        if len(raw) >= int(getattr(length, "value", length)):
            return INSUFFICIENT_SIZE
        out(buffer).value = raw
        return SUCCESS

    return call


def _whole_gpu_only(call):
    """Not supported on the parent device in MIG mode."""

    def guarded(gpu, *args):
        return NOT_SUPPORTED if gpu.get("mig") else call(gpu, *args)

    return guarded


def _utilisation(gpu, argument):
    if gpu.get("util") is None:
        return NOT_SUPPORTED
    rates = out(argument)
    rates.gpu, rates.memory = int(gpu.get("util")), int(gpu.get("mem_util") or 0)
    return SUCCESS


def _memory(gpu):
    """Total, used and reserved bytes; None when not supported."""
    sizes = [gpu.get(key) for key in ("mem_total_mib", "mem_used_mib", "mem_reserved_mib")]
    return None if None in sizes else [int(size * MIB) for size in sizes]


def _memory_v1(gpu, argument):
    sizes = _memory(gpu)
    if sizes is None:
        return NOT_SUPPORTED
    total, used, reserved = sizes
    memory = out(argument)
    memory.total, memory.used, memory.free = total, used + reserved, total - used - reserved
    return SUCCESS


def _memory_v2(gpu, argument):
    memory, sizes = out(argument), _memory(gpu)
    if memory.version != MEMORY_V2:
        return ARGUMENT_VERSION_MISMATCH
    if sizes is None:
        return NOT_SUPPORTED
    memory.total, memory.used, memory.reserved = sizes
    memory.free = sizes[0] - sizes[1] - sizes[2]
    return SUCCESS


def _pci_info(gpu, argument):
    domain, bus, rest = gpu.pci.split(":")
    info = out(argument)
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(rest[:2], 16)
    info.pciDeviceId = int(gpu.get("device_id"), 16)
    info.pciSubSystemId = int(gpu.get("subsystem_id"), 16)
    info.busId = ("%08X:%s:%s" % (info.domain, bus.upper(), rest.upper())).encode()
    info.busIdLegacy = ("%04X:%s:%s" % (info.domain, bus.upper(), rest.upper())).encode()
    return SUCCESS


def _temperature_v(gpu, argument):
    reading = out(argument)
    if reading.version != TEMPERATURE_V1:
        return ARGUMENT_VERSION_MISMATCH
    if gpu.get("temp") is None:
        return NOT_SUPPORTED
    reading.temperature = int(gpu.get("temp"))
    return SUCCESS


def _margin(gpu, argument):
    reading = out(argument)
    if reading.version != MARGIN_V1:
        return ARGUMENT_VERSION_MISMATCH
    if gpu.get("temp") is None or gpu.get("temp_max") is None:
        return NOT_SUPPORTED
    reading.marginTemperature = int(gpu.get("temp_max") - gpu.get("temp"))
    return SUCCESS


def _threshold(gpu, kind, argument):
    above = THRESHOLDS.get(int(kind.value))
    if above is None or gpu.get("temp_max") is None:
        return NOT_SUPPORTED
    out(argument).value = int(gpu.get("temp_max")) + above
    return SUCCESS


def _clock(sm_key, mem_key):
    def call(gpu, kind, argument):
        return _number(mem_key if int(kind.value) == CLOCK_MEM else sm_key)(gpu, argument)

    return call


def _ecc_total(gpu, error, span, argument):
    if not gpu.get("ecc"):
        return NOT_SUPPORTED
    key = "ecc_%s_%s" % ("agg" if span.value else "vol", "ue" if error.value else "ce")
    return _number(key)(gpu, argument)


def _remapped(gpu, *arguments):
    rows = gpu.get("remap")
    if rows is None:
        return NOT_SUPPORTED
    for argument, count in zip(arguments, rows):
        out(argument).value = int(count)
    return SUCCESS


def _link(key):
    def call(gpu, link, argument):
        if gpu.get("links") is None:
            return NOT_SUPPORTED
        if int(getattr(link, "value", link)) >= gpu.get("links"):
            return INVALID_ARGUMENT
        out(argument).value = int(gpu.link(int(getattr(link, "value", link)), key))
        return SUCCESS

    return call


def _link_errors(gpu, link, counter, argument):
    key = {0: "replays", 1: "recoveries", 2: "crc"}.get(int(getattr(counter, "value", counter)))
    return NOT_SUPPORTED if key is None else _link(key)(gpu, link, argument)


def _fabric(gpu, argument):
    info, fabric = out(argument), gpu.get("fabric")
    if getattr(info, "version", FABRIC_VERSIONS[0]) not in FABRIC_VERSIONS:
        return ARGUMENT_VERSION_MISMATCH
    if fabric is None:
        return NOT_SUPPORTED
    info.state, info.status = int(fabric[0]), int(fabric[1])
    if len(fabric) > 2 and hasattr(info, "healthMask"):
        info.healthMask = int(fabric[2])
    return SUCCESS


def _processes(gpu, count, array):
    found = gpu.get("procs")
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


def _no_processes(gpu, count, array):
    out(count).value = 0
    return SUCCESS


def _count(raw, argument):
    out(argument).value = len(raw.get("gpus", []))
    return SUCCESS


def _cuda(raw, argument):
    out(argument).value = int(raw.get("cuda", 13000))
    return SUCCESS


SYSTEM = {
    "nvmlDeviceGetCount_v2": _count,
    "nvmlSystemGetDriverVersion": _text(lambda raw: raw.get("driver", "580.95.05")),
    "nvmlSystemGetNVMLVersion": _text(lambda raw: raw.get("nvml", "13.580.95.05")),
    "nvmlSystemGetCudaDriverVersion": _cuda,
    "nvmlSystemGetCudaDriverVersion_v2": _cuda,
}
"""Calls about the node."""

DEVICE = {
    "nvmlDeviceGetName": _text(lambda gpu: gpu.get("name")),
    "nvmlDeviceGetUUID": _text(lambda gpu: gpu.uuid()),
    "nvmlDeviceGetSerial": _text(lambda gpu: gpu.serial()),
    "nvmlDeviceGetVbiosVersion": _text(lambda gpu: gpu.get("vbios")),
    "nvmlDeviceGetIndex": lambda gpu, argument: _set(argument, gpu.index),
    "nvmlDeviceGetMinorNumber": lambda gpu, argument: _set(argument, gpu.minor()),
    "nvmlDeviceGetPciInfo_v3": _pci_info,
    "nvmlDeviceGetUtilizationRates": _whole_gpu_only(_utilisation),
    "nvmlDeviceGetMemoryInfo": _memory_v1,
    "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
    "nvmlDeviceGetTemperature": _number("temp"),
    "nvmlDeviceGetTemperatureV": _temperature_v,
    "nvmlDeviceGetTemperatureThreshold": _threshold,
    "nvmlDeviceGetMarginTemperature": _margin,
    "nvmlDeviceGetPowerUsage": _number("power_w", 1000),
    "nvmlDeviceGetEnforcedPowerLimit": _number("power_limit_w", 1000),
    "nvmlDeviceGetPowerManagementLimit": _number("power_limit_w", 1000),
    "nvmlDeviceGetPowerManagementDefaultLimit": _number("power_limit_w", 1000),
    "nvmlDeviceGetClockInfo": _clock("sm_mhz", "mem_mhz"),
    "nvmlDeviceGetMaxClockInfo": _clock("sm_max_mhz", "mem_max_mhz"),
    "nvmlDeviceGetPerformanceState": _number("pstate"),
    "nvmlDeviceGetCurrentClocksEventReasons": _number("reasons"),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _number("reasons"),
    "nvmlDeviceGetPersistenceMode": _number("persistence"),
    "nvmlDeviceGetMigMode": _pair("mig"),
    "nvmlDeviceGetEccMode": _pair("ecc"),
    "nvmlDeviceGetTotalEccErrors": _ecc_total,
    "nvmlDeviceGetRemappedRows": _whole_gpu_only(_remapped),
    "nvmlDeviceGetCurrPcieLinkGeneration": _item("pcie", 0),
    "nvmlDeviceGetMaxPcieLinkGeneration": _item("pcie", 1),
    "nvmlDeviceGetCurrPcieLinkWidth": _item("pcie", 2),
    "nvmlDeviceGetMaxPcieLinkWidth": _item("pcie", 3),
    "nvmlDeviceGetPcieReplayCounter": _number("pcie_replays"),
    "nvmlDeviceGetNvLinkState": _whole_gpu_only(_link("up")),
    "nvmlDeviceGetNvLinkErrorCounter": _whole_gpu_only(_link_errors),
    "nvmlDeviceGetGpuFabricInfo": _fabric,
    "nvmlDeviceGetGpuFabricInfoV": _fabric,
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes,
    "nvmlDeviceGetComputeRunningProcesses_v2": _processes,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": _no_processes,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": _no_processes,
    "nvmlDeviceGetFieldValues": get_field_values,
}
"""Calls about a GPU, after the handle."""

IDENTITY = frozenset((
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetUUID",
))  # fmt: skip
"""Answered by the library itself: they do not hang when the card does."""


def _set(argument, value):
    out(argument).value = int(value)
    return SUCCESS
