"""Which readings of a GPU are compared, with what resolution, and what each may say. Pure.

In a synchronous job all ranks wait for the late one: its peers' collective kernels are the longest,
and power, tensor activity and byte rates of everybody fall together. So those readings never accuse
a GPU; they tell what a GPU that clocks already accuse does meanwhile. Utilisation is not even that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from probes.loaded import Gpu
from probes.ports import COMPUTE, port_role
from probes.reading import number
from probes.spread import MAD_TO_SIGMA, spread

Part: TypeAlias = Literal["accuses", "supports"]
WORD_BYTES = 4
"""port_rcv_data and port_xmit_data count words of four bytes (sysfs-class-infiniband)."""
LEAST = 4
"""Readings from which a median is worth telling; as straggler.group_weak."""


class Metric(Struct, frozen=True, kw_only=True):
    """One reading that is compared."""

    name: str
    """As in the baselines of probes.own."""
    words: str
    unit: str
    part: Part
    read: Callable[[Gpu], float | None]
    """None where it is not there or says nothing now."""
    top: Callable[[Gpu], float | None] | None = None
    """What the card itself says is possible."""
    higher: bool = True
    """Higher is better."""
    by_power: bool = False
    """The power limit lowers it, so a card at its limit may have it low without a fault."""
    floor: float
    """Smallest scale as a share of the median."""
    quantum: float
    """Resolution of the sensor, in `unit`."""
    needs: str
    """When it means something."""
    chain: str
    """What a bad value does to the job."""
    per: float = 1.0
    """Divide by this before showing it in `unit`."""


def _sample(probe: str, *names: str) -> Callable[[Gpu], float | None]:
    """The sum of a sample's readings; None when one is missing."""

    def read(gpu: Gpu) -> float | None:
        found = [number(gpu.facts.value(probe, gpu.device, name)) for name in names]
        known = [value for value in found if value is not None and value >= 0]
        return sum(known) if len(known) == len(names) else None

    return read


def _rate(probe: str, *counters: str) -> Callable[[Gpu], float | None]:
    """Growth per second of counters of this GPU, together."""

    def read(gpu: Gpu) -> float | None:
        rates = gpu.facts.rates.get((probe, gpu.device))
        found = [rates.per_s(name) for name in counters] if rates is not None else [None]
        known = [value for value in found if value is not None]
        return sum(known) if len(known) == len(found) else None

    return read


def _pcie_bytes(gpu: Gpu) -> float | None:
    counted = _PCIE_COUNTED(gpu)
    return counted if counted is not None else _PCIE_GPM(gpu)


_PCIE_COUNTED = _rate("pcie", "tx_bytes", "rx_bytes")
_PCIE_GPM = _sample("gpm", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")


def _wire_bytes(gpu: Gpu) -> float | None:
    """Both directions of the compute port behind the same switch as the GPU."""
    total = None
    for device, port in gpu.facts.devices("infiniband"):
        near = port.values.get("gpu_near") == gpu.device
        rates = gpu.facts.rates.get(("infiniband", device))
        if not near or rates is None or port_role(port.values) != COMPUTE:
            continue
        words = [rates.per_s(name) for name in ("port_rcv_data", "port_xmit_data")]
        known = [value for value in words if value is not None]
        if len(known) == len(words):
            total = (total or 0.0) + WORD_BYTES * sum(known)
    return total


def _link(gpu: Gpu) -> float | None:
    """Lanes times generation in Gen1 lanes: what falls when a link trains down."""
    gen, width = (number(gpu.facts.value("pcie", gpu.device, name)) for name in ("gen", "width"))
    return None if gen is None or width is None or gen > 8 else width * 2 ** (gen - 1)


_UNDER_LOAD = "utilisation from straggler.min_util_percent and near that of its peers"
METRICS: tuple[Metric, ...] = (
    Metric(
        name="sm_clock_mhz", words="SM clock", unit="MHz", part="accuses",
        read=lambda gpu: gpu.clock_mhz, top=lambda gpu: gpu.clock_max_mhz, by_power=True,
        floor=0.02, quantum=15.0, needs=f"{_UNDER_LOAD}; no more power than its peers",
        chain="every kernel takes longer, and the whole job waits for this rank",
    ),
    Metric(
        name="mem_clock_mhz", words="memory clock", unit="MHz", part="accuses",
        read=lambda gpu: gpu.mem_clock_mhz, top=lambda gpu: gpu.mem_clock_max_mhz,
        floor=0.02, quantum=15.0, needs=_UNDER_LOAD,
        chain="memory-bound kernels take longer, and the whole job waits for this rank",
    ),
    Metric(
        name="power_w", words="power", unit="W", part="supports", read=lambda gpu: gpu.power_w,
        floor=0.02, quantum=5.0, needs="the same power limit",
        chain="less work done, or only more waiting",
    ),
    Metric(
        name="temp_c", words="temperature", unit="°C", part="supports",
        read=lambda gpu: gpu.temp_c, higher=False, floor=0.02, quantum=1.0, needs="load",
        chain="heat takes the clocks back",
    ),
    Metric(
        name="thermal_margin_c", words="thermal margin", unit="°C", part="supports",
        read=_sample("gpu", "thermal_margin_c"), floor=0.02, quantum=1.0, needs="load",
        chain="at 0 the clocks are taken back",
    ),
    Metric(
        name="mem_temp_c", words="memory temperature", unit="°C", part="supports",
        read=_sample("gpu", "mem_temp_c"), higher=False, floor=0.02, quantum=1.0, needs="load",
        chain="HBM may throttle while the core is cool",
    ),
    Metric(
        name="tensor_percent", words="tensor", unit="%", part="supports",
        read=_sample("gpm", "tensor_percent"), floor=0.02, quantum=1.0, needs="GPM (Hopper on)",
        chain="less work done, or only more waiting",
    ),
    Metric(
        name="dram_percent", words="DRAM", unit="%", part="supports",
        read=_sample("gpm", "dram_percent"), floor=0.02, quantum=1.0, needs="GPM (Hopper on)",
        chain="less work done, or only more waiting",
    ),
    Metric(
        name="nvlink_bytes_per_s", words="NVLink", unit="GB/s", part="supports",
        read=_sample("gpm", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"), per=1e9,
        floor=0.02, quantum=1e9, needs="GPM (Hopper on)", chain="all ranks' rates fall together",
    ),
    Metric(
        name="wire_bytes_per_s", words="IB/RoCE", unit="GB/s", part="supports", read=_wire_bytes,
        per=1e9, floor=0.02, quantum=1e9, needs="a compute port behind the same switch",
        chain="all ranks' rates fall together",
    ),
    Metric(
        name="pcie_bytes_per_s", words="PCIe", unit="GB/s", part="supports", read=_pcie_bytes,
        per=1e9, floor=0.02, quantum=1e9, needs="byte counters or GPM",
        chain="all ranks' rates fall together",
    ),
    Metric(
        name="pcie_link", words="PCIe lanes x speed", unit="of Gen1", part="supports", read=_link,
        floor=0.0, quantum=1.0, needs="load: an idle link trains down",
        chain="host and network copies of this rank take longer",
    ),
    Metric(
        name="pcie_replays_per_s", words="PCIe replays", unit="1/s", part="supports",
        read=_rate("pcie", "replays"), higher=False, floor=0.0, quantum=1.0, needs="two answers",
        chain="packets are sent again",
    ),
)  # fmt: skip
"""Floors for live readings and sensor steps; floor and step of the clocks are in thresholds.yaml
too (straggler.floor_live, straggler.quantum_mhz) and those count."""
ACCUSING = tuple(metric for metric in METRICS if metric.part == "accuses")
SUPPORTING = tuple(metric for metric in METRICS if metric.part == "supports")

HOST = (
    ("steal_percent", "CPU time stolen by other machines", "host.steal_percent"),
    ("pressure_cpu_percent", "tasks waiting for a CPU", "straggler.host_pressure_percent"),
    ("pressure_memory_full_percent", "all tasks waiting for memory",
     "straggler.host_pressure_percent"),
    ("pressure_io_full_percent", "all tasks waiting for I/O", "host.io_pressure_percent"),
)  # fmt: skip
"""Of the probe `host`: metric, words, limit. Zero on nearly every node, so no z: far above the
limit here and below half of it on most other nodes of the job."""


def beside(one: Gpu, group: Sequence[Gpu]) -> str:
    """Power and what else differs from the medians of the group, the farthest first."""
    told: list[tuple[float, str]] = []
    for metric in SUPPORTING:
        value = metric.read(one)
        usual = spread(v for gpu in group if (v := metric.read(gpu)) is not None)
        if value is None or usual is None or usual.n < LEAST:
            continue
        scale = max(MAD_TO_SIGMA * usual.mad, metric.floor * abs(usual.median), metric.quantum)
        far = abs(value - usual.median) / scale
        if far < 1 and metric.name != "power_w":
            continue
        shown, median = value / metric.per, usual.median / metric.per
        told.append((-far, f"{metric.words} {shown:.4g} {metric.unit}, median {median:.4g}"))
    return "; ".join(text for _, text in sorted(told)[:SHOWN])


SHOWN = 5
"""Supporting readings told: one or two lines of evidence."""
