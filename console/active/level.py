"""What alike runs reach, how far they scatter, and how far below is slow. Pure.

The gates are those of science 1.3, widened by the scatter of the runs: between nodes one run
varies by 2 to 5 %, where a fixed 7 % would accuse a fifth of the healthy pairs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from math import sqrt
from typing import NamedTuple

from probes.event import Severity
from probes.spread import MAD_TO_SIGMA

NOISE = 0.04
"""Scatter of one multi-node run while there are too few to tell (2 to 5 % in practice)."""
NOISE_CPU = 0.15
"""The same through sockets on CPUs: 0.4 to 0.8 GB/s between two local ranks (measured)."""
CPU_ENGINES = ("torch-gloo", "torch-cpu")
LEAST, MOST = 0.01, 0.07
"""Bounds of a measured scatter: the benchmark floor of science 1.3, and what we believe at most."""
ENOUGH = 8
"""Runs that weigh as much as the usual scatter: science 1.3's full rule."""
FEW = 16
"""Up to so many participants the second best is the anchor: five of eight may be slow."""
TOP = 0.85
"""Share below the anchor: 15 % of them good is enough to find the good level."""
ABOVE, CLUSTER = 1.25, 0.06
"""So far above the anchor is no scatter (+2.8 sigma of 5 % in 256 runs is 1.15), and so many (at
least two pairs) are no accident: then the anchor itself is slow."""


class Level(NamedTuple):
    """The good runs of one kind."""

    value: float
    """Median of the good runs, in their unit."""
    noise: float
    """Standard deviation of one run as a share of `value`."""
    n: int
    """How many good runs that is."""

    @property
    def slow(self) -> float:
        """Share of `value` below which a single run is slow: 7 %, or three times the scatter."""
        return 1.0 - max(0.07, 3.0 * self.noise)

    @property
    def fast(self) -> float:
        """Share from which a single run clears both nodes; between the two it says nothing."""
        return (1.0 + self.slow) / 2.0


def level(
    values: Iterable[float], cpu: bool = False, tops: Sequence[float] | None = None
) -> Level | None:
    """The level of the upper cluster; None without a value above 0.

    `tops`: one value for each participant (`upper`) where some were measured more often than
    others, else the values themselves. Hardware bounds bandwidth from above, so the upper cluster
    is what is possible, however many are below; one lucky run must not lift it.
    """
    ordered = sorted(value for value in values if value > 0)
    if not ordered:
        return None
    tops = sorted(tops) if tops else [*ordered, ordered[-1]]
    good = _near(ordered, _anchor(tops), cpu)
    prior = NOISE_CPU if cpu else NOISE
    return Level(statistics.median(good), _noise(good, prior), len(good))


def upper(values: Sequence[float], cpu: bool = False) -> float:
    """What a participant can do: the middle of its runs near its best one.

    The best of many would grow with their number; their middle may all be with bad partners.
    """
    return statistics.median(_near(values, max(values), cpu))


def _near(values: Iterable[float], anchor: float, cpu: bool) -> list[float]:
    """Those that scatter alone may put below the anchor."""
    share = 1.0 - max(0.15, 3.0 * (NOISE_CPU if cpu else NOISE))
    return [value for value in values if value >= anchor * share]


def _anchor(tops: Sequence[float]) -> float:
    """Of few the second best; of many their 85th percentile, unless a cluster is far above it."""
    if len(tops) <= FEW:
        return tops[-2]
    anchor = tops[int(TOP * (len(tops) - 1))]
    above = [top for top in tops if top > ABOVE * anchor]
    return statistics.median(above) if len(above) >= max(4, CLUSTER * len(tops)) else anchor


def _noise(good: Sequence[float], prior: float) -> float:
    """Their own scatter, as far as it is known: mixed with the usual one while they are few."""
    median = statistics.median(good)
    found = MAD_TO_SIGMA * statistics.median(abs(v - median) for v in good) / median
    mixed = sqrt((len(good) * found**2 + ENOUGH * prior**2) / (len(good) + ENOUGH))
    return min(max(mixed, LEAST), max(MOST, prior))


def grade(shares: Sequence[float], noise: float) -> Severity:
    """Runs of one thing, as shares of what is good: ok, warn or critical, by their mean.

    Averaged before judging, as science 1.3 asks where one run scatters by 2 % and more. The last
    digit of a share is no evidence, hence the z of 3.5 with every gate.
    """
    if not shares:
        return Severity.UNKNOWN
    mean = statistics.fmean(shares)
    z = (1.0 - mean) * sqrt(len(shares)) / noise
    if (mean < 0.90 and z > 5.0) or (mean < 0.85 and z > 3.5):
        return Severity.CRITICAL
    return Severity.WARN if mean < 0.95 and z > 3.5 else Severity.OK
