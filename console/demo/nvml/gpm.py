"""GPM: samples of a GPU's counters and what lies between two of them, with NVML's rules.

A sample is memory of the library: used after it was freed, or never allocated, it is an invalid
argument. Two samples less than 100 ms apart, in the wrong order or of two GPUs are one too. The
readings follow from the entry's utilisation unless its "gpm" {metric id: value} says otherwise;
"gpm": null is a GPU that has none, as all before Hopper.
"""

import ctypes
import time

from .shapes import INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from .state import Gpu, State

SPAN_S = 0.1
SINCE_HOPPER = ("23", "29", "31")
"""How the device ids of Hopper (GH100), B200, GB200 and B300 begin."""
METRICS_VERSION = 1
FROM_UTIL = {1: 1.0, 2: 0.92, 3: 0.35, 5: 0.55, 7: 0.54, 8: 0.0, 9: 0.0, 12: 0.08, 13: 0.02}
"""nvmlGpmMetricId_t -> share of the utilisation: a plausible training job, nobody's measurement."""
FROM_MEM_UTIL = {10: 1.1}
MIB_PER_S = {20: 900.0, 21: 1400.0, 60: 210000.0, 61: 205000.0}
"""At full utilisation."""


class Samples:
    """Every sample that is allocated: its number is the pointer."""

    def __init__(self) -> "None":
        self.taken: "Dict[int, Optional[Tuple[str, float]]]" = {}
        """Pointer -> (PCI address, monotonic seconds), None before it was filled."""
        self._next = 0x10000

    def alloc(self, pointer: "Any") -> "int":
        """nvmlGpmSampleAlloc."""
        self._next += 0x100
        self.taken[self._next] = None
        ctypes.c_void_p.from_buffer(out(pointer)).value = self._next
        return SUCCESS

    def free(self, sample: "Any") -> "int":
        """nvmlGpmSampleFree."""
        return SUCCESS if self.taken.pop(_address(sample), 0) != 0 else INVALID_ARGUMENT

    def get(self, gpu: "Gpu", sample: "Any") -> "int":
        """nvmlGpmSampleGet."""
        if not supported(gpu) or gpu.get("mig"):
            return NOT_SUPPORTED
        if _address(sample) not in self.taken:
            return INVALID_ARGUMENT
        self.taken[_address(sample)] = (gpu.pci, time.monotonic())
        return SUCCESS

    def metrics(self, state: "State", question: "Any") -> "int":
        """nvmlGpmMetricsGet."""
        asked = out(question)
        if asked.version != METRICS_VERSION:
            return INVALID_ARGUMENT
        first = self.taken.get(_address(asked.sample1))
        second = self.taken.get(_address(asked.sample2))
        if first is None or second is None or first[0] != second[0]:
            return INVALID_ARGUMENT
        if second[1] - first[1] < SPAN_S:
            return INVALID_ARGUMENT
        gpu = next((one for one in state.gpus() if one.pci == first[0]), None)
        if gpu is None:
            return INVALID_ARGUMENT
        for place in range(asked.numMetrics):
            metric = asked.metrics[place]
            value = reading(gpu, int(metric.metricId))
            metric.nvmlReturn = NOT_SUPPORTED if value is None else SUCCESS
            metric.value = value or 0.0
        return SUCCESS


def supported(gpu: "Gpu") -> "bool":
    """Hopper and Blackwell, by PCI device id, unless the entry says that it has none."""
    return gpu.get("gpm") is not None and str(gpu.get("device_id")).startswith(SINCE_HOPPER)


def support(gpu: "Gpu", question: "Any") -> "int":
    """nvmlGpmQueryDeviceSupport."""
    out(question).isSupportedDevice = int(supported(gpu))
    return SUCCESS


def reading(gpu: "Gpu", number: "int") -> "Optional[float]":
    """A metric of a GPU now."""
    said = gpu.get("gpm") or {}
    if str(number) in said:
        return None if said[str(number)] is None else float(said[str(number)])
    util, mem_util = float(gpu.get("util") or 0), float(gpu.get("mem_util") or 0)
    if number in FROM_UTIL:
        return FROM_UTIL[number] * util * float(gpu.get("activity"))
    if number in FROM_MEM_UTIL:
        return FROM_MEM_UTIL[number] * mem_util
    return MIB_PER_S[number] * util / 100.0 if number in MIB_PER_S else None


def _address(sample: "Any") -> "int":
    return int(ctypes.cast(sample, ctypes.c_void_p).value or 0) if sample else 0
