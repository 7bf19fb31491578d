"""What the power of a node's GPUs buys: estimates, never measurements of the work itself. Pure.

HFU-est is a rate of hardware operations: tensor-active time x the dense 16-bit peak x clock over
the clock of the data sheet's figure. The number format is not known (FP8 doubles it) and recomputed
activations count, so it is no MFU. Tensor-active time comes from GPM, Hopper and newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from probes import loaded
from probes.activity import OLD_S
from probes.expect import product_id
from probes.facts import NodeFacts
from probes.loaded import Gpu
from probes.reading import number
from probes.rules import Rules

PEAK_SHARE = {"H100-SXM5-80": 1830 / 1980, "H200-SXM-141": 1830 / 1980}
"""Clock of the data sheet's peak over the card's maximum [mle]; 1 where it was not read."""
CAVEAT = "estimate: number format and recomputation are not known"
BUSY_PERCENT = 5.0
"""As the agent counts `idle_s`."""


class Use(Struct, frozen=True, kw_only=True):
    """One GPU. None: not readable or not known of this product."""

    device: str
    label: str
    job: str | None
    watts: float | None
    """Over the time between two answers by the energy counter, else the sensor's."""
    hfu_percent: float | None
    """HFU-est of the 16-bit peak: an upper bound of useful work at 16 bit."""
    hfu_tflops: float | None
    tflops_per_w: float | None
    watts_per_gb_s: float | None
    """For memory-bound work: power over memory bandwidth used."""
    idle_s: float | None
    """Time since it last did anything; counted from our first look at most."""


class Efficiency(Struct, frozen=True, kw_only=True):
    """One node."""

    gpus: tuple[Use, ...]
    idle_burn_w: dict[str, float]
    """Job -> watts of its GPUs here that did nothing for straggler.idle_burn_s."""
    idle_gpus: dict[str, tuple[str, ...]]
    """Job -> those GPUs' labels."""

    @property
    def joules_per_pflop(self) -> float | None:
        """Energy per 10^15 estimated operations, of the GPUs that have both figures."""
        known = [(u.watts, u.hfu_tflops) for u in self.gpus if u.watts and u.hfu_tflops]
        tflops = sum(t for _, t in known)
        return 1000 * sum(w for w, _ in known) / tflops if tflops > 0 else None


def efficiency(facts: NodeFacts, rules: Rules) -> Efficiency:
    """Estimates for every GPU with fresh answers."""
    gpus = loaded.read(facts, rules)
    uses = tuple(_use(gpu, rules) for gpu in gpus)
    idle: dict[str, list[Use]] = {}
    least = rules.limit("straggler.idle_burn_s").value
    for use in uses:
        if use.job is not None and use.idle_s is not None and use.idle_s > least and use.watts:
            idle.setdefault(use.job, []).append(use)
    return Efficiency(
        gpus=uses,
        idle_burn_w={job: sum(u.watts or 0.0 for u in mine) for job, mine in idle.items()},
        idle_gpus={job: tuple(u.label for u in mine) for job, mine in idle.items()},
    )


def idle_burn(nodes: Iterable[Efficiency]) -> dict[str, float]:
    """Job -> watts of its idle GPUs on all nodes."""
    total: dict[str, float] = {}
    for node in nodes:
        for job, watts in node.idle_burn_w.items():
            total[job] = total.get(job, 0.0) + watts
    return total


class Total(NamedTuple):
    """Some GPUs of which share, peak and power are known."""

    gpus: int
    hfu_percent: float
    """Mean HFU-est."""
    tflops: float
    watts: float

    @property
    def tflops_per_w(self) -> float:
        """Work per watt."""
        return self.tflops / self.watts


def total(uses: Iterable[Use]) -> Total | None:
    """Of those that have all three figures; None when none has, or none works."""
    known = [
        (u.hfu_percent, u.hfu_tflops, u.watts)
        for u in uses
        if u.hfu_percent is not None and u.hfu_tflops is not None and u.watts
    ]
    tflops = sum(t for _, t, _ in known)
    if not tflops:
        return None
    share = sum(percent for percent, _, _ in known) / len(known)
    return Total(len(known), share, tflops, sum(watts for _, _, watts in known))


def estimate(gpus: Sequence[Gpu], rules: Rules) -> str:
    """One line about GPUs of one node: HFU-est, power, work per watt; "" without GPM."""
    all_of = total(_use(gpu, rules) for gpu in gpus)
    if all_of is None:
        return ""
    return (
        f"HFU-est {all_of.hfu_percent:.1f} % of the 16-bit peak, {all_of.tflops_per_w:.2f} TFLOPS/W"
        f" at {all_of.watts:.0f} W ({CAVEAT})"
    )


def _use(gpu: Gpu, rules: Rules) -> Use:
    product = rules.product(product_id(gpu.facts, gpu.device))
    tensor = _fresh(gpu, "tensor_percent")
    watts = _watts(gpu)
    peak = (product.bf16_tflops or product.fp16_tflops) if product is not None else None
    share = tflops = None
    if tensor is not None and product is not None and gpu.clock_mhz and gpu.clock_max_mhz:
        of_spec = gpu.clock_mhz / (gpu.clock_max_mhz * PEAK_SHARE.get(product.name, 1.0))
        share = min(tensor, 100.0) * of_spec
        tflops = None if peak is None else share / 100 * peak
    dram = _fresh(gpu, "dram_percent")
    moved = dram / 100 * product.mem_bw_gb_s if dram is not None and product is not None else None
    return Use(
        device=gpu.device, label=gpu.label, job=gpu.job, watts=watts, hfu_percent=share,
        hfu_tflops=tflops, tflops_per_w=tflops / watts if tflops is not None and watts else None,
        watts_per_gb_s=watts / moved if watts and moved else None, idle_s=_idle_s(gpu),
    )  # fmt: skip


def _fresh(gpu: Gpu, metric: str) -> float | None:
    """A GPM reading that belongs to the same minute as the others."""
    sample, now = gpu.facts.get("gpm", gpu.device), gpu.facts.get("gpu", gpu.device)
    if sample is None or now is None or now.at - sample.at > OLD_S:
        return None
    value = number(sample.values.get(metric))
    return value if value is not None and value >= 0 else None


def energy_w(facts: NodeFacts, device: str) -> float | None:
    """Mean power of a GPU between its last two answers, where its energy counter counts."""
    rates = facts.rates.get(("gpu", device))
    if rates is None or "energy_mj" in rates.reset:
        return None
    grown = rates.per_s("energy_mj")
    return grown / 1000 if grown else None


def _watts(gpu: Gpu) -> float | None:
    mean_w = energy_w(gpu.facts, gpu.device)
    return gpu.power_w if mean_w is None else mean_w


def _idle_s(gpu: Gpu) -> float | None:
    if gpu.util_percent is None or gpu.util_percent >= BUSY_PERCENT:
        return None
    return number(gpu.facts.value("gpu", gpu.device, "idle_s"))
