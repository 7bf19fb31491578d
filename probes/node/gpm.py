"""Probe "gpm": what the units of a GPU really did since the answer before (Hopper and newer).

NVML's utilisation says that some kernel ran; these counters say whether it computed, moved memory
or waited. A reading needs two samples of the GPU's counters that lie SPAN_S apart or more: an
answer takes one and compares it with that of an answer before, so nothing waits. After the first
reading there is a new one every EVERY_S; answers between repeat it. Both buffers of a GPU are
allocated once; they are given back when the GPU or NVML goes.
"""

from probes.node.context import Stuck
from probes.node.nvml_library import NO_PERMISSION, Failed
from probes.node.nvml_reader import each_gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from probes.node.context import Context
    from probes.node.nvml_library import Library
    from probes.node.nvml_reader import Reader

NAME = "gpm"
INTERVAL = "fast"
COUNTERS = True  # a pass needs two answers
METRICS = {
    "index": ("", "info", "NVML's index"),
    "window_s": ("s", "gauge", "time that the readings are the average of"),
    "graphics_util_percent": ("%", "gauge", "time any work was active"),
    "sm_util_percent": ("%", "gauge", "share of SMs that were busy"),
    "sm_occupancy_percent": ("%", "gauge", "warps that were active, of what the SMs can hold"),
    "tensor_percent": ("%", "gauge", "time the tensor cores worked, whatever the number format"),
    "tensor_half_percent": ("%", "gauge", "time in tensor operations of 16 bit and less (HMMA)"),
    "tensor_double_percent": ("%", "gauge", "time in tensor operations of 64 bit (DMMA)"),
    "tensor_int_percent": ("%", "gauge", "time in integer tensor operations (IMMA)"),
    "dram_percent": ("%", "gauge", "memory bandwidth used, of its theoretical maximum"),
    "fp64_percent": ("%", "gauge", "time in 64 bit arithmetic outside the tensor cores"),
    "fp32_percent": ("%", "gauge", "time in 32 bit arithmetic outside the tensor cores"),
    "fp16_percent": ("%", "gauge", "time in 16 bit arithmetic outside the tensor cores"),
    "pcie_tx_bytes_per_s": ("B/s", "gauge", "from this GPU over PCIe"),
    "pcie_rx_bytes_per_s": ("B/s", "gauge", "to this GPU over PCIe"),
    "nvlink_tx_bytes_per_s": ("B/s", "gauge", "from this GPU over all its NVLinks"),
    "nvlink_rx_bytes_per_s": ("B/s", "gauge", "to this GPU over all its NVLinks"),
    "hint": ("", "info", "why there are no readings, and what to do"),
    "nvml_rc": ("", "gauge", "return code of the call that failed; absent when none did"),
    "nvml_call": ("", "info", "the call that failed"),
}

MIB = 1 << 20
PERCENT = {
    1: "graphics_util_percent", 2: "sm_util_percent", 3: "sm_occupancy_percent",
    5: "tensor_percent", 7: "tensor_half_percent", 8: "tensor_double_percent",
    9: "tensor_int_percent", 10: "dram_percent", 11: "fp64_percent", 12: "fp32_percent",
    13: "fp16_percent",
}  # fmt: skip
MIB_PER_S = {
    20: "pcie_tx_bytes_per_s", 21: "pcie_rx_bytes_per_s", 60: "nvlink_rx_bytes_per_s",
    61: "nvlink_tx_bytes_per_s",
}  # fmt: skip
"""nvmlGpmMetricId_t -> our name (nvml.h, API 13)."""
METRIC_IDS = tuple(sorted(PERCENT)) + tuple(sorted(MIB_PER_S))

SPAN_S = 0.1
"""Samples closer together are of no use (nvml.h)."""
EVERY_S = 6.0
"""A reading costs as much as all other fast readings of a GPU together (simulated library)."""
STALE_S = 120.0
"""An older sample would give the average of another job."""

NO_RIGHTS = (
    "no right to read the profiling counters: run as root (become: sudo -n), or load the driver "
    "with NVreg_RestrictProfilingToAdminUsers=0"
)
IN_MIG = "MIG is on: the counters belong to its instances, the GPU as a whole has none"


class Samples:
    """Two buffers of one GPU, filled in turn."""

    __slots__ = ("buffers", "latest", "question", "taken_at")

    def __init__(self, buffers: "List[Any]", question: "Any") -> "None":
        """`question` is the structure of nvmlGpmMetricsGet, 20 KB, made once."""
        self.buffers = buffers
        self.question = question
        self.taken_at: "Optional[float]" = None
        """When buffers[1], the newer one, was filled."""
        self.latest: "Dict[str, Any]" = {}
        """The reading of the two."""


def collect(ctx: "Context") -> "Tuple[Dict[str, Dict[str, Any]], List[Dict[str, Any]]]":
    """One tick over all GPUs. The first answer of a session has no readings yet."""
    answers = each_gpu(ctx, lambda reader: _read(ctx, reader))
    known = ctx.memory(NAME)
    if ctx.nvml is not None:
        for device in set(known) - ctx.nvml.listed():
            _release(ctx.nvml, known.pop(device), closed=False)
    return answers, []


def _read(ctx: "Context", reader: "Reader") -> "None":
    support = reader.ask_once("nvmlGpmQueryDeviceSupport")
    if support is None or not support.isSupportedDevice:
        return
    samples = _samples(ctx, reader)
    now = ctx.mono()
    if samples is None:
        return
    apart_s = EVERY_S if samples.latest else SPAN_S
    if samples.taken_at is not None and now - samples.taken_at < apart_s:
        reader.put(**samples.latest)
        return
    samples.latest = {}
    filled = reader.ask("nvmlGpmSampleGet", samples.buffers[0], key="sample")
    if filled is None:
        if reader.rc == NO_PERMISSION:
            reader.put(hint=NO_RIGHTS)
        elif reader.mode("mig"):
            reader.put(hint=IN_MIG)
        return
    before, samples.taken_at = samples.taken_at, now
    samples.buffers.reverse()
    if before is not None and now - before <= STALE_S:
        samples.latest = _compared(reader, samples, now - before)
        reader.put(**samples.latest)


def _samples(ctx: "Context", reader: "Reader") -> "Optional[Samples]":
    """This GPU's buffers, allocated at its first look."""
    known = ctx.memory(NAME)
    found = known.get(reader.gpu.key)
    if isinstance(found, Samples):
        return found
    library = ctx.nvml
    made = [reader.ask_library("nvmlGpmSampleAlloc", key="alloc") for _ in range(2)]
    if library is None or None in made:
        return None
    library.before_shut[NAME] = lambda: _release_all(ctx)
    question = reader.pynvml.c_nvmlGpmMetricsGet_t()
    question.version = reader.pynvml.NVML_GPM_METRICS_GET_VERSION
    question.numMetrics = len(METRIC_IDS)
    for place, number in enumerate(METRIC_IDS):
        question.metrics[place].metricId = number
    found = known[reader.gpu.key] = Samples(made, question)
    return found


def _compared(reader: "Reader", samples: "Samples", window_s: "float") -> "Dict[str, Any]":
    question = samples.question
    question.sample1, question.sample2 = samples.buffers
    if reader.ask_library("nvmlGpmMetricsGet", question, key="metrics") is None:
        return {}
    values: "Dict[str, Any]" = {"window_s": round(window_s, 2)}
    for place, number in enumerate(METRIC_IDS):
        metric = question.metrics[place]
        value = float(metric.value)
        if metric.nvmlReturn != 0 or not 0.0 <= value < 1e12:  # the latter is false for nan too
            continue
        if number in PERCENT:
            values[PERCENT[number]] = round(value, 2)
        else:
            values[MIB_PER_S[number]] = int(value * MIB)
    return values


def _release_all(ctx: "Context") -> "None":
    """NVML ends: nobody else is inside it now."""
    known = ctx.memory(NAME)
    while known and ctx.nvml is not None:
        _release(ctx.nvml, known.popitem()[1], closed=True)


def _release(library: "Library", samples: "Any", closed: "bool") -> "None":
    for buffer in samples.buffers:
        try:
            if closed:
                library.unbooked("nvmlGpmSampleFree", buffer)
            else:
                library.call("nvmlGpmSampleFree", buffer)
        except (Failed, Stuck):
            continue  # the driver is gone or hangs, and the buffer with it
