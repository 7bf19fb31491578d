"""Probe "gpu": utilisation, memory, temperature, power, clocks and the reasons why clocks are low.

Fast and passive: about ten cheap calls and one nvmlDeviceGetFieldValues per GPU, no CUDA context.
Also the door to the shared NVML object (`Library`) for the other probes and the context.
"""

from probes.node.nvml_library import UNSUPPORTED, Failed, Gpu, Library
from probes.node.nvml_reader import Reader, each_gpu, field_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from probes.node.context import Context

__all__ = ["UNSUPPORTED", "Failed", "Gpu", "Library", "Reader", "each_gpu", "field_id"]

NAME = "gpu"
INTERVAL = "fast"
COUNTERS = True
METRICS = {
    "index": ("", "info", "NVML's index; it moves when a card vanishes, the PCI address does not"),
    "util_percent": ("%", "gauge", "share of the last sample period with any kernel running"),
    "mem_util_percent": ("%", "gauge", "share of the sample period with memory traffic"),
    "mem_used_bytes": ("B", "gauge", "memory in use, without what the driver reserves"),
    "mem_total_bytes": ("B", "gauge", "memory of the card"),
    "temp_c": ("°C", "gauge", "core temperature"),
    "mem_temp_c": ("°C", "gauge", "memory temperature"),
    "thermal_margin_c": ("°C", "gauge", "degrees left to the maximum operating temperature"),
    "power_w": ("W", "gauge", "power; a one second average on Hopper and newer"),
    "power_limit_w": ("W", "gauge", "enforced power limit"),
    "sm_clock_mhz": ("MHz", "gauge", "SM clock"),
    "sm_clock_max_mhz": ("MHz", "info", "maximum SM clock"),
    "mem_clock_mhz": ("MHz", "gauge", "memory clock"),
    "mem_clock_max_mhz": ("MHz", "info", "maximum memory clock"),
    "reasons": ("", "gauge", "bit mask of clocks event (throttle) reasons"),
    "pstate": ("", "gauge", "performance state, 0 is the fastest"),
    "thermal_hw_ns": ("ns", "counter", "time slowed down by hardware for heat"),
    "thermal_sw_ns": ("ns", "counter", "time slowed down by the driver for heat"),
    "power_brake_ns": ("ns", "counter", "time slowed down by the external power brake"),
    "power_cap_ns": ("ns", "counter", "time at the power limit"),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}

MEMORY_TEMP = ("NVML_FI_DEV_MEMORY_TEMP", 82)
TIMES = {
    "thermal_hw_ns": ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", 270),
    "thermal_sw_ns": ("NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", 269),
    "power_brake_ns": ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", 271),
    "power_cap_ns": ("NVML_FI_DEV_PERF_POLICY_POWER", 74),
}

CLOCK_SM = 1
CLOCK_MEM = 2
PSTATE_UNKNOWN = 32
THRESHOLD_GPU_MAX = 3
SENSOR_GPU = 0


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """One tick over all GPUs; a lost GPU is a device with nvml_rc 15."""
    return each_gpu(ctx, _read), []


def _read(reader: "Reader") -> "None":
    """Cheap calls first: what a dying GPU still answers is then kept."""
    util = reader.ask("nvmlDeviceGetUtilizationRates")
    if util is not None:
        reader.put(util_percent=int(util.gpu), mem_util_percent=int(util.memory))
    _memory(reader)
    _power(reader)
    _clocks(reader)
    _fields(reader)
    _temperature(reader)


def _memory(reader: "Reader") -> "None":
    """Version 2 knows the driver's reserve; version 1 counts it as used."""
    version = getattr(reader.pynvml, "nvmlMemory_v2", None)
    memory = None if version is None else reader.ask("nvmlDeviceGetMemoryInfo", version)
    if memory is None:
        memory = reader.ask("nvmlDeviceGetMemoryInfo")
    if memory is not None:
        reader.put(mem_used_bytes=int(memory.used), mem_total_bytes=int(memory.total))


def _power(reader: "Reader") -> "None":
    power_mw = reader.ask("nvmlDeviceGetPowerUsage")
    limit_mw = reader.ask("nvmlDeviceGetEnforcedPowerLimit")
    reader.put(power_w=_watts(power_mw), power_limit_w=_watts(limit_mw))


def _clocks(reader: "Reader") -> "None":
    reasons = reader.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:  # drivers before 535 have the old name only
        reasons = reader.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    pstate = reader.ask("nvmlDeviceGetPerformanceState")
    reader.put(
        reasons=reasons,
        pstate=None if pstate is None or pstate >= PSTATE_UNKNOWN else pstate,
        sm_clock_mhz=reader.ask("nvmlDeviceGetClockInfo", CLOCK_SM),
        mem_clock_mhz=reader.ask("nvmlDeviceGetClockInfo", CLOCK_MEM),
        sm_clock_max_mhz=reader.ask_once("nvmlDeviceGetMaxClockInfo", CLOCK_SM),
        mem_clock_max_mhz=reader.ask_once("nvmlDeviceGetMaxClockInfo", CLOCK_MEM),
    )


def _fields(reader: "Reader") -> "None":
    """One call for every scalar field. A memory at 0 °C is a driver that has no sensor."""
    ids = {name: (field_id(reader.pynvml, *field), 0) for name, field in TIMES.items()}
    memory = (field_id(reader.pynvml, *MEMORY_TEMP), 0)
    found = reader.fields(list(ids.values()) + [memory])
    reader.put(**{name: found.get(field) for name, field in ids.items()})
    reader.put(mem_temp_c=found.get(memory) or None)


def _temperature(reader: "Reader") -> "None":
    temp_c = reader.ask("nvmlDeviceGetTemperature", SENSOR_GPU)
    if temp_c is None:  # deprecated in favour of the versioned call
        temp_c = reader.ask("nvmlDeviceGetTemperatureV", SENSOR_GPU)
    margin_c = reader.ask("nvmlDeviceGetMarginTemperature")
    if margin_c is None and temp_c is not None:  # Ampere and older have limits, no margin
        limit_c = reader.ask_once("nvmlDeviceGetTemperatureThreshold", THRESHOLD_GPU_MAX)
        margin_c = None if not limit_c else int(limit_c) - int(temp_c)
    reader.put(temp_c=temp_c, thermal_margin_c=margin_c)


def _watts(milliwatts: "Optional[int]") -> "Optional[float]":
    return None if milliwatts is None else milliwatts / 1000.0
