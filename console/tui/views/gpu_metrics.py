"""What a heat map of GPUs can show: metrics, and one GPU as they read it. Pure.

A Gpu holds samples, which never change once they were taken: a frozen screen can turn to another
metric without reading anything that came later.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from console.tui.words import t
from probes.checks.nvlink_errors import ERROR_SUFFIXES, PACKET_SUFFIXES
from probes.derive import Rates
from probes.event import Finding, Sample, Severity
from probes.reading import number


class State(Enum):
    """Whether a GPU answers."""

    ANSWERS = "answers"
    LOST = "lost"
    """The driver has lost it, it left the bus, or it is fewer than expected."""
    SILENT = "silent"
    """It hangs, or NVML failed in another way: nothing is known now."""
    UNHEARD = "unheard"
    """The node has not told of it yet."""


class Gpu(Struct, frozen=True, kw_only=True, gc=False):
    """One GPU as last told."""

    device: str = ""
    """PCI address; "" for one that was expected and never seen."""
    index: int | None = None
    state: State = State.ANSWERS
    gpu: Sample | None = None
    ecc: Sample | None = None
    gpm: Sample | None = None
    links: Rates | None = None
    pcie: Rates | None = None
    top: Finding | None = None
    """Its worst finding, those not acknowledged first."""

    @property
    def severity(self) -> Severity:
        """Of the worst finding that nobody acknowledged; a lost GPU is critical."""
        told = Severity.OK if self.top is None or self.top.acknowledged else self.top.severity
        lost = self.state is State.LOST and (self.top is None or not self.top.acknowledged)
        return Severity.CRITICAL if lost else told


Read = Callable[[Gpu], float | None]
"""A reading in the metric's unit; None when it is not known."""


class Kind(Enum):
    """How a metric is drawn."""

    LEVEL = "level"
    """A level between the ends of a scale; odd when far from its peers."""
    COUNT = "count"
    """Nothing, or a decade; odd when there is anything."""
    VERDICT = "verdict"
    """The sign of the worst finding."""


class Metric(Struct, frozen=True, kw_only=True):
    """A metric of the heat map."""

    name: str
    """Also the word after `:metric`."""
    unit: str
    read: Read
    kind: Kind = Kind.LEVEL
    ends: tuple[float, float] | None = None
    """Fixed ends of the scale; None: where nearly all of the fleet is."""
    step: float = 1.0
    """Other ends are multiples of this."""
    span: float = 1.0
    """Least distance between the ends: noise must not fill the scale."""
    sigma: float = 1.0
    """Least standard deviation that peers are taken to have, in the metric's unit (our estimate:
    what sensors and places in the chassis differ by on healthy nodes)."""


def _of(part: str, metric: str) -> Read:
    def read(gpu: Gpu) -> float | None:
        sample: Sample | None = getattr(gpu, part)
        return None if sample is None else number(sample.values.get(metric))

    return read


def _memory(gpu: Gpu) -> float | None:
    used, total = _of("gpu", "mem_used_bytes")(gpu), _of("gpu", "mem_total_bytes")(gpu)
    return 100.0 * used / total if used is not None and total else None


DAMAGE = ("ecc_uncorrected_volatile", "remap_uncorrectable", "retired_double")
"""Uncorrected errors since the driver was loaded, rows remapped or pages retired for one."""


def _damage(gpu: Gpu) -> float | None:
    values = {} if gpu.ecc is None else gpu.ecc.values
    found = [count for name in DAMAGE if (count := number(values.get(name))) is not None]
    return sum(found) if found else None


LINK_ERRORS = (*ERROR_SUFFIXES, *PACKET_SUFFIXES, "_recoveries_failed")
MINUTE_S = 60.0


def link_errors(rates: Rates | None) -> float | None:
    """NVLink errors of a GPU, all links, per second; None without two answers."""
    if rates is None:
        return None
    grown = [n for name, n in rates.deltas.items() if n and name.endswith(LINK_ERRORS)]
    return sum(grown) / rates.elapsed_s


def _links(gpu: Gpu) -> float | None:
    per_s = link_errors(gpu.links)
    return None if per_s is None else per_s * MINUTE_S


def _replays(gpu: Gpu) -> float | None:
    per_s = None if gpu.pcie is None else gpu.pcie.per_s("replays")
    return None if per_s is None else per_s * MINUTE_S


_PERCENT = (0.0, 100.0)
METRICS: tuple[Metric, ...] = (
    Metric(name="temp", unit="°C", read=_of("gpu", "temp_c"), step=5, span=20, sigma=1.5),
    Metric(name="hbm", unit="°C", read=_of("gpu", "mem_temp_c"), step=5, span=20, sigma=1.5),
    Metric(name="util", unit="%", read=_of("gpu", "util_percent"), ends=_PERCENT, sigma=5),
    Metric(name="tensor", unit="%", read=_of("gpm", "tensor_percent"), ends=_PERCENT, sigma=3),
    Metric(name="power", unit="W", read=_of("gpu", "power_w"), step=50, span=200, sigma=12),
    Metric(name="clock", unit="MHz", read=_of("gpu", "sm_clock_mhz"), step=100, span=400,
           sigma=20),
    Metric(name="mem", unit="%", read=_memory, ends=_PERCENT, sigma=3),
    Metric(name="ecc", unit="", read=_damage, kind=Kind.COUNT),
    Metric(name="nvlink", unit="/min", read=_links, kind=Kind.COUNT),
    Metric(name="pcie", unit="/min", read=_replays, kind=Kind.COUNT),
    Metric(name="verdict", unit="", read=lambda _gpu: None, kind=Kind.VERDICT),
)  # fmt: skip
"""In the order of the key that turns through them."""
BY_NAME = {metric.name: metric for metric in METRICS}


def words(metric: Metric) -> str:
    """What the metric is, for the legend."""
    return {
        "temp": t("core temperature"),
        "hbm": t("memory temperature"),
        "util": t("utilisation"),
        "tensor": t("tensor cores active"),
        "power": t("power"),
        "clock": t("SM clock"),
        "mem": t("memory used"),
        "ecc": t("uncorrected ECC errors, remapped rows"),
        "nvlink": t("NVLink errors"),
        "pcie": t("PCIe replays"),
        "verdict": t("worst finding"),
    }[metric.name]


def shown(metric: Metric, value: float | None, absent: str) -> str:
    """A reading with its unit: "61 °C"."""
    if value is None:
        return absent
    digits = 0 if metric.kind is Kind.LEVEL or value >= 10 or value == int(value) else 1
    return f"{value:.{digits}f}{'' if metric.unit in ('', '/min') else ' '}{metric.unit}"
