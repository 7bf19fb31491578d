"""What a busy GPU is busy with: computing, or only occupied (pseudo-full-load). Pure.

NVML's utilisation is the share of time in which any kernel ran; one kernel that spins in a
collective reads 100 %. Where the profiling counters (GPM) are read they tell what ran; without them
power and clock can only tell that little is computed.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from probes import loaded
from probes.loaded import Gpu
from probes.reading import number
from probes.rules import Product, Rules


class Activity(StrEnum):
    """In words that fit behind "busy with" or stand alone."""

    HEALTHY = "computing"
    THROTTLED = "computing, throttled"
    MEMORY = "memory bound"
    SMALL = "tiny kernels"
    COMMUNICATION = "communication bound"
    WAITING = "waiting in a collective"
    HOST = "host bound"
    LITTLE = "waiting or in tiny kernels"
    """Without GPM: these two look the same."""


PSEUDO = frozenset({
    Activity.SMALL, Activity.COMMUNICATION, Activity.WAITING, Activity.HOST, Activity.LITTLE
})  # fmt: skip
"""Busy, and not the GPU's fault."""


class Bounds(Struct, frozen=True):
    """Limits of the classes, looked up once a pass."""

    util_percent: float
    power: float
    clock: float
    idle: float
    gpm_power: float
    active: float
    host_percent: float

    @classmethod
    def of(cls, rules: Rules) -> Bounds:
        """From thresholds.yaml, straggler.*."""
        names = ("waits_util_percent", "waits_power", "waits_clock", "idle_power",
                 "waits_gpm_power", "waits_active_percent", "host_pressure_percent")  # fmt: skip
        return cls(*(rules.limit(f"straggler.{name}").value for name in names))


class Gpm(Struct, frozen=True):
    """Shares of the last window in percent; `link` is None where the product is not known."""

    tensor: float
    sm: float
    dram: float
    link: float | None


TENSOR_HEALTHY, DRAM_HIGH, LINK_HIGH = 30.0, 50.0, 20.0
WAITING_SM, WAITING_TENSOR, WAITING_DRAM, WAITING_LINK = 30.0, 5.0, 10.0, 5.0
"""Percent (our estimates, not measured): a spinning collective kernel occupies a few SMs."""
PCIE_GB_S = {3: 13.0, 4: 31.0, 5: 63.0, 6: 121.0}
"""Usable in one direction by 16 lanes [mle]; third generation: our estimate."""
OLD_S = 30.0
"""A GPM reading that is older than the GPU's other answers by this says nothing of now."""


def gpm(gpu: Gpu, product: Product | None) -> Gpm | None:
    """None where there are no counters, or no fresh ones."""
    sample, now = gpu.facts.get("gpm", gpu.device), gpu.facts.get("gpu", gpu.device)
    if sample is None or now is None or now.at - sample.at > OLD_S:
        return None
    names = ("tensor_percent", "sm_util_percent", "dram_percent")
    found = [number(sample.values.get(name)) for name in names]
    known = [min(value, 100.0) for value in found if value is not None and value >= 0]
    if len(known) < len(found):
        return None
    tensor, sm, dram = known
    return Gpm(tensor, sm, dram, link_share(gpu, product))


def link_share(gpu: Gpu, product: Product | None) -> float | None:
    """Traffic over NVLink or PCIe, whichever is busier, in percent of both directions' peak."""
    if product is None:
        return None
    peaks = {
        "nvlink": product.nvlink_links * product.nvlink_gb_s,
        "pcie": PCIE_GB_S.get(product.pcie_gen or 0, 0.0) * (product.pcie_width or 0) / 16,
    }
    shares = []
    for name, gb_s in peaks.items():
        ways = [gpu.facts.value("gpm", gpu.device, f"{name}_{way}_bytes_per_s")
                for way in ("rx", "tx")]  # fmt: skip
        moved = [value for way in ways if (value := number(way)) is not None and value >= 0]
        if gb_s and moved:
            shares.append(100 * sum(moved) / (2e9 * gb_s))
    return max(shares, default=None)


def power_share(gpu: Gpu, idle: float) -> float | None:
    """Power above idle over limit above idle; `idle` is the share of the limit when idle."""
    if gpu.power_w is None or not gpu.limit_w:
        return None
    idle_w = idle * gpu.limit_w
    return (gpu.power_w - idle_w) / (gpu.limit_w - idle_w)


def activity(gpu: Gpu, bounds: Bounds, product: Product | None) -> Activity | None:
    """None for a GPU that is not busy, or of which too little is read."""
    if not gpu.loaded or gpu.util_percent is None:
        return None
    seen = gpm(gpu, product)
    share = power_share(gpu, bounds.idle)
    if seen is None:
        return _without(gpu, bounds, share)
    if seen.tensor >= TENSOR_HEALTHY or (share is not None and share >= bounds.gpm_power):
        if seen.dram >= DRAM_HIGH and seen.tensor < bounds.active:
            return Activity.MEMORY
        return Activity.THROTTLED if _throttled(gpu, bounds) else Activity.HEALTHY
    if seen.dram >= DRAM_HIGH:
        return Activity.MEMORY
    if max(seen.tensor, seen.dram) >= bounds.active:
        return Activity.HEALTHY
    return _pseudo(gpu, bounds, seen)


def _pseudo(gpu: Gpu, bounds: Bounds, seen: Gpm) -> Activity | None:
    if gpu.util_percent is not None and gpu.util_percent < bounds.util_percent:
        return Activity.HOST if host_busy(gpu, bounds) else None
    if seen.link is not None and seen.link >= LINK_HIGH:
        return Activity.COMMUNICATION
    quiet = seen.link is None or seen.link < WAITING_LINK
    if seen.sm < WAITING_SM and seen.tensor < WAITING_TENSOR and seen.dram < WAITING_DRAM and quiet:
        return Activity.WAITING
    return Activity.SMALL


def _without(gpu: Gpu, bounds: Bounds, share: float | None) -> Activity | None:
    """By power and clock alone: full utilisation at full clock and little power."""
    clock, top, util = gpu.clock_mhz, gpu.clock_max_mhz, gpu.util_percent
    if share is None or clock is None or top is None or util is None:
        return None
    if share >= bounds.gpm_power:
        return Activity.THROTTLED if _throttled(gpu, bounds) else Activity.HEALTHY
    if util < bounds.util_percent:
        return Activity.HOST if share < bounds.power and host_busy(gpu, bounds) else None
    return Activity.LITTLE if share < bounds.power and clock >= bounds.clock * top else None


def _throttled(gpu: Gpu, bounds: Bounds) -> bool:
    heat = loaded.HW_THERMAL_BIT | loaded.SW_THERMAL_BIT | loaded.HW_SLOWDOWN_BIT | loaded.BRAKE_BIT
    low = gpu.clock_mhz is not None and gpu.clock_max_mhz is not None
    return low and bool((gpu.reasons or 0) & heat) and (
        (gpu.clock_mhz or 0.0) < bounds.clock * (gpu.clock_max_mhz or 0.0)
    )  # fmt: skip


def host_busy(gpu: Gpu, bounds: Bounds) -> bool:
    """Tasks of its host wait for CPU, memory or I/O."""
    names = ("pressure_cpu_percent", "pressure_memory_full_percent", "pressure_io_full_percent")
    found = (number(gpu.facts.value("host", "", name)) for name in names)
    return any(value is not None and value >= bounds.host_percent for value in found)
