"""Probe "gpu": utilisation, memory, temperature, power, clocks and the reasons why clocks are low.

Fast and passive: about ten cheap calls and one nvmlDeviceGetFieldValues per GPU, no CUDA context.
Power is a one second average on Hopper and newer; the energy counter gives the exact average
between two answers. What cannot change is in the inventory. Also the door to the shared NVML object
(`Library`) for the other probes and the context.
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
    "idle_s": ("s", "gauge", "time since the utilisation was last 5 % or more, as far as we saw"),
    "mem_used_bytes": ("B", "gauge", "memory in use, without what the driver reserves"),
    "mem_total_bytes": ("B", "gauge", "memory of the card"),
    "temp_c": ("°C", "gauge", "core temperature"),
    "mem_temp_c": ("°C", "gauge", "memory temperature"),
    "thermal_margin_c": ("°C", "gauge", "degrees left to the maximum operating temperature"),
    "power_w": ("W", "gauge", "power; a one second average on Hopper and newer"),
    "power_average_w": ("W", "gauge", "power, averaged over one second"),
    "power_instant_w": ("W", "gauge", "power at this moment"),
    "power_limit_w": ("W", "gauge", "enforced power limit"),
    "energy_mj": ("mJ", "counter", "energy since the driver was loaded"),
    "sm_clock_mhz": ("MHz", "gauge", "SM clock"),
    "sm_clock_max_mhz": ("MHz", "info", "maximum SM clock"),
    "mem_clock_mhz": ("MHz", "gauge", "memory clock"),
    "mem_clock_max_mhz": ("MHz", "info", "maximum memory clock"),
    "reasons": ("", "gauge", "bit mask of clocks event (throttle) reasons"),
    "pstate": ("", "gauge", "performance state, 0 is the fastest"),
    "fan_percent": ("%", "gauge", "fan speed wanted, of its maximum; absent without a fan"),
    "fan_rpm": ("rpm", "gauge", "fan speed measured"),
    "thermal_hw_ns": ("ns", "counter", "time slowed down by hardware for heat"),
    "thermal_sw_ns": ("ns", "counter", "time slowed down by the driver for heat"),
    "thermal_ns": ("ns", "counter", "time slowed down for heat, where it is not known by whom"),
    "power_brake_ns": ("ns", "counter", "time slowed down by the external power brake"),
    "power_cap_ns": ("ns", "counter", "time at the power limit"),
    "board_limit_ns": ("ns", "counter", "time held back by a limit of the board"),
    "reliability_ns": ("ns", "counter", "time held back by the voltage's reliability limit"),
    "nvml_slowest_s": ("s", "gauge", "longest NVML call on this GPU since the last answer"),
    "nvml_slowest_call": ("", "info", "that call, where it took 0.5 s or more"),
    "hint": ("", "info", "a reading that this login may not take, and what to do"),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}

MILLIWATTS = {
    "power_average_w": ("NVML_FI_DEV_POWER_AVERAGE", 185),
    "power_instant_w": ("NVML_FI_DEV_POWER_INSTANT", 186),
}
FIELDS = dict(
    MILLIWATTS,
    mem_temp_c=("NVML_FI_DEV_MEMORY_TEMP", 82),
    thermal_hw_ns=("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", 270),
    thermal_sw_ns=("NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", 269),
    power_brake_ns=("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", 271),
    power_cap_ns=("NVML_FI_DEV_PERF_POLICY_POWER", 74),
    thermal_ns=("NVML_FI_DEV_PERF_POLICY_THERMAL", 75),
    board_limit_ns=("NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT", 77),
    reliability_ns=("NVML_FI_DEV_PERF_POLICY_RELIABILITY", 79),
    energy_mj=("NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 83),
)

CLOCK_SM = 1
CLOCK_MEM = 2
PSTATE_UNKNOWN = 32
SENSOR_GPU = 0
THRESHOLD_GPU_MAX = 3

BUSY_PERCENT = 5
"""Below this a GPU does nothing for its job (our estimate)."""
SLOW_S = 0.5
"""A call that took as long is named."""


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """One tick over all GPUs; a lost GPU is a device with nvml_rc 15."""
    return each_gpu(ctx, lambda reader: _read(ctx, reader)), []


def _read(ctx: "Context", reader: "Reader") -> "None":
    """Cheap calls first: what a dying GPU still answers is then kept."""
    util = reader.ask("nvmlDeviceGetUtilizationRates")
    if util is not None:
        reader.put(util_percent=int(util.gpu), mem_util_percent=int(util.memory))
        reader.put(idle_s=_idle_s(ctx, reader.gpu.key, int(util.gpu)))
    used, total = memory(reader)
    reader.put(mem_used_bytes=used, mem_total_bytes=total)
    _power(reader)
    _clocks(reader)
    _fields(reader)
    _temperature(reader)
    _fan(reader)
    _slowest(reader)
    if reader.refused:
        reader.put(hint="no right to call %s; run as root (become: sudo -n)" % reader.refused)


def _idle_s(ctx: "Context", device: "str", util: "int") -> "float":
    """Counted from our first look at most: a lower bound."""
    since = ctx.memory(NAME)
    now = ctx.mono()
    before = since.get(device, now)
    if util >= BUSY_PERCENT or not isinstance(before, float):
        before = now
    since[device] = before
    return round(now - before, 1)


def memory(reader: "Reader") -> "Tuple[Optional[int], Optional[int]]":
    """Used and total bytes. Version 2 knows the driver's reserve; version 1 counts it as used.

    (None, None) where GPU and CPU share one memory and NVML has no figure for it.
    """
    version = getattr(reader.pynvml, "nvmlMemory_v2", None)
    found = None if version is None else reader.ask("nvmlDeviceGetMemoryInfo", version)
    if found is None:
        found = reader.ask("nvmlDeviceGetMemoryInfo")
    return (None, None) if found is None else (int(found.used), int(found.total))


def read_load(reader: "Reader") -> "None":
    """Power, clocks, reasons and temperature: what tells how hard a GPU works."""
    _power(reader)
    _clocks(reader)
    _temperature(reader)


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
    ids = reader.constant("fields")
    if ids is None:
        ids = {name: (field_id(reader.pynvml, *field), 0) for name, field in FIELDS.items()}
        reader.remember("fields", ids)
    found = reader.fields(ids.values())
    values = {name: found[field] for name, field in ids.items() if field in found}
    if "thermal_hw_ns" in values:
        values.pop("thermal_ns", None)
    if not values.get("mem_temp_c"):
        values.pop("mem_temp_c", None)
    for name in MILLIWATTS:
        if name in values:
            values[name] = values[name] / 1000.0
    reader.put(**values)


def _temperature(reader: "Reader") -> "None":
    temp_c = reader.ask("nvmlDeviceGetTemperature", SENSOR_GPU)
    if temp_c is None:  # deprecated in favour of the versioned call
        temp_c = reader.ask("nvmlDeviceGetTemperatureV", SENSOR_GPU)
    margin_c = reader.ask("nvmlDeviceGetMarginTemperature")
    if margin_c is None and temp_c is not None:  # Ampere and older have limits, no margin
        limit_c = reader.ask_once("nvmlDeviceGetTemperatureThreshold", THRESHOLD_GPU_MAX)
        margin_c = None if not limit_c else int(limit_c) - int(temp_c)
    reader.put(temp_c=temp_c, thermal_margin_c=margin_c)


def _fan(reader: "Reader") -> "None":
    """A module without fans does not support the question."""
    percent = reader.ask("nvmlDeviceGetFanSpeed")
    if percent is not None:
        reader.put(fan_percent=percent, fan_rpm=reader.ask("nvmlDeviceGetFanSpeedRPM"))


def _slowest(reader: "Reader") -> "None":
    """How long the driver takes says something about a GPU that gave an answer."""
    slowest = reader.slowest()
    if slowest is not None and len(reader.values) > 1:
        reader.put(nvml_slowest_s=round(slowest[0], 4))
        if slowest[0] >= SLOW_S:
            reader.put(nvml_slowest_call=slowest[1])


def _watts(milliwatts: "Optional[int]") -> "Optional[float]":
    return None if milliwatts is None else milliwatts / 1000.0
