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
LEAST, MOST = 0.01, 0.05
"""Bounds of a measured scatter: the benchmark floor of science 1.3, and what we believe at most."""
ENOUGH = 8
"""Runs that weigh as much as the usual scatter: science 1.3's full rule."""
FEW = 16
"""Up to so many participants the second best is the anchor: five of eight may be slow."""
TOP = 0.85
"""Share below the anchor: 15 % of them good is enough to find the good level."""


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
    values: Iterable[float], cpu: bool = False, bests: Sequence[float] | None = None
) -> Level | None:
    """The level of the upper cluster; None without a value above 0.

    `bests`: the best value of each participant where some were measured more often than others,
    else the values themselves. Of few the second best is the anchor, as most may be slow; of many
    their 85th percentile, which one lucky run does not lift. Bandwidth is bounded by hardware from
    above, so the upper cluster is what is possible, however many are below.
    """
    ordered = sorted(value for value in values if value > 0)
    if not ordered:
        return None
    prior = NOISE_CPU if cpu else NOISE
    tops = sorted(bests) if bests else [*ordered, ordered[-1]]
    anchor = tops[-2 if len(tops) <= FEW else int(TOP * (len(tops) - 1))]
    good = [value for value in ordered if value >= anchor * (1.0 - max(0.15, 3.0 * prior))]
    return Level(statistics.median(good), _noise(good, prior), len(good))


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
