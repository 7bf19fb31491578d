"""What is kept of a GPU or a port for one interval: medians as half floats. Pure.

A half float is off by at most 0.05 %, below the resolution of every sensor here; clocks up to
2048 MHz are exact. A metric that was not read is NaN, and NaNs at the end are left out.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

GPU, PORT = 0, 1
"""Kinds of devices; the numbers are in the file."""

USAGE = (
    "sm_clock_mhz", "mem_clock_mhz", "power_w", "temp_c", "mem_temp_c", "util_percent",
)  # fmt: skip
"""Of the probe `gpu`."""
ACTIVITY = (
    "tensor_percent", "dram_percent", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s",
    "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s",
)  # fmt: skip
"""Of the probe `gpm`."""
TRAFFIC = ("port_rcv_bytes_per_s", "port_xmit_bytes_per_s")
"""From the data counters of an RDMA port."""
METRICS = {GPU: USAGE + ACTIVITY, PORT: TRAFFIC}
"""Kind -> its metrics in the order they are packed. A newer version may only add at the end."""

_HALF_MOST = 65504.0
_GIGA = 1e9
NAN = math.nan


def scale(metric: str) -> float:
    """What a stored 1 is worth: byte rates are kept in GB/s, everything else as it is."""
    return _GIGA if metric.endswith("_bytes_per_s") else 1.0


SCALES = {kind: tuple(scale(name) for name in names) for kind, names in METRICS.items()}


def pack(kind: int, values: Sequence[float]) -> bytes:
    """Values in the metrics' own units, in their order; what does not fit is not kept."""
    halves = [
        value / unit if abs(value) <= _HALF_MOST * unit else NAN
        for value, unit in zip(values, SCALES[kind], strict=True)
    ]
    while halves and math.isnan(halves[-1]):
        halves.pop()
    return struct.pack(f"<{len(halves)}e", *halves)


def unpack(kind: int, packed: bytes) -> tuple[float, ...]:
    """The inverse, as long as METRICS[kind]. Bytes that are none of ours give NaN."""
    scales = SCALES[kind]
    count = min(len(packed) // 2, len(scales))
    halves = struct.unpack_from(f"<{count}e", packed)
    found = [half * unit for half, unit in zip(halves, scales, strict=False)]
    return (*found, *[NAN] * (len(scales) - count))


def middle(values: Iterable[float]) -> float:
    """The median of what was read; NaN when nothing was."""
    read = [value for value in values if not math.isnan(value)]
    return median(read) if read else NAN


class Thin(NamedTuple):
    """One interval of one device."""

    n: int
    """Readings under load."""
    good: bool
    """Nothing worse than info was known of the device meanwhile."""
    packed: bytes


def merged(kind: int, rows: Sequence[Thin]) -> Thin:
    """One row for several: of each metric a median, weighted by readings, so one of theirs.

    Good rows are preferred: an hour that was half sick tells its healthy half.
    """
    kept = [row for row in rows if row.good] or list(rows)
    columns = zip(*(unpack(kind, row.packed) for row in kept), strict=True)
    weights = [row.n for row in kept]
    values = [_weighted(column, weights) for column in columns]
    return Thin(sum(weights), kept[0].good, pack(kind, values))


def _weighted(values: Iterable[float], weights: Sequence[int]) -> float:
    """The lower weighted median of what was read."""
    pairs = sorted(p for p in zip(values, weights, strict=True) if not math.isnan(p[0]))
    half = sum(weight for _, weight in pairs) / 2
    for value, weight in pairs:
        half -= weight
        if half <= 0:
            return value
    return NAN
