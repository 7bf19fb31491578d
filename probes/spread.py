"""How far one reading is from those of its peers: robust, small groups, no numpy. Pure.

The scale has a floor because the raw robust z fires on 8 % of healthy groups of eight (our
simulation); the ratio to the 75th percentile sees three bad of eight, where the MAD is blind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

MAD_TO_SIGMA = 1.4826
"""Standard deviation over MAD of a normal distribution."""


class Spread(NamedTuple):
    """What a group of readings looks like; all in the unit of the reading."""

    n: int
    median: float
    mad: float
    p75: float


class Level(IntEnum):
    """How far a reading is below its group."""

    FINE = 0
    WARN = 1
    CRIT = 2


class Gates(NamedTuple):
    """Limits of one comparison (thresholds.yaml, straggler.*)."""

    z: float
    """Robust z above which a reading is far off."""
    ratio: float
    """Reading over median below which it matters."""
    ratio75: float
    """Reading over the 75th percentile below which it is low whatever the median says."""

    def eased(self) -> Gates:
        """Half as far: what a reading must keep above to be called fine again."""
        return Gates(self.z / 2, (1 + self.ratio) / 2, (1 + self.ratio75) / 2)


def spread(values: Iterable[float]) -> Spread | None:
    """Of the finite values; None when there is none."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return None
    median = _quantile(ordered, 0.5)
    mad = _quantile(sorted(abs(value - median) for value in ordered), 0.5)
    return Spread(len(ordered), median, mad, _quantile(ordered, 0.75))


def _quantile(ordered: list[float], share: float) -> float:
    """Linear between the neighbours."""
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def below(value: float, group: Spread, floor: float, quantum: float) -> float:
    """Robust z, positive when the value is below the median.

    `floor`: smallest scale as a share of the median; `quantum`: resolution of the sensor.
    """
    scale = max(MAD_TO_SIGMA * group.mad, floor * abs(group.median), quantum)
    return (group.median - value) / scale if scale > 0 else 0.0


def low(value: float, group: Spread, gates: Gates, floor: float, quantum: float) -> bool:
    """Whether a higher-is-better reading stands out downwards."""
    if group.median <= 0 or not math.isfinite(value):
        return False
    if value < gates.ratio75 * group.p75:
        return True
    far = below(value, group, floor, quantum) > gates.z
    return far and value < gates.ratio * group.median


def level(
    value: float, group: Spread, warn: Gates, crit: Gates, floor: float, quantum: float
) -> Level:
    """How low a higher-is-better reading is. The gates of `crit` lie beyond those of `warn`."""
    if not low(value, group, warn, floor, quantum):
        return Level.FINE
    return Level.CRIT if low(value, group, crit, floor, quantum) else Level.WARN


def high(value: float, group: Spread, gates: Gates, floor: float, quantum: float) -> bool:
    """Whether a lower-is-better reading (temperature) stands out upwards."""
    if group.median <= 0 or not math.isfinite(value):
        return False
    far = -below(value, group, floor, quantum) > gates.z
    return far and group.median < gates.ratio * value
