"""How long a job's step takes, seen from outside: the period of its power or byte rate. Pure.

A training step computes, then communicates: power falls and bytes flow once a step. Readings that
repeat are explained by one period and its harmonics; that share is their autocorrelation one period
apart, also where the period is no whole number of readings (a step of 6.2 s in readings of 1 s has
none of 0.95 at 6 or 7). What does not repeat gives nothing: an estimate, never a verdict.

Readings every two seconds show a step of 2.4 s as one of 12 s (aliasing), and most steps are that
short. The mean over each whole interval, which the energy counter gives, tells: of what is really
there it keeps five sixths of the swing and more, of what is faster half and less.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator, Sequence

from msgspec import Struct

STRENGTH = 0.90
"""Correlation between the readings and what their period foretells. Greyhound (ATC'25) asks 0.95 of
finer readings; benchmarks/step_period.py measures what this one gives."""
EQUAL = 0.02
"""Twice the period explains as much: the shortest within this of the best is the period."""
CYCLES = 4
"""Periods that the readings must hold."""
LEAST_READINGS = 24
LEAST_LAG = 3.0
"""Readings in a period: a step below three intervals cannot be seen."""
HARMONICS = 4
"""Shape of a step that is looked for; those faster than two readings cannot be told apart."""
BELOW_NYQUIST = 2.2
"""Readings that a harmonic must have: with two its share is counted twice."""
FINE = 8
"""Periods tried differ by so much less than would shift the last step by a whole one."""
SWING = 0.05
"""Standard deviation over mean below which readings are constant: a power sensor's own noise, and
steps of about a second, of which a sensor's mean over a second leaves a tenth or less."""
KEPT = 0.67
"""Swing of means over the interval as a share of that of the readings, at the period: 0.83 to 1
where it is real (sinc of a third of the sampling rate). Of a faster one at most 0.42 where the
sensor tells the moment, 0.5 where it tells the mean over half of the interval."""
LEAST_LAG_SEEN = 3.2
"""A step of 1.5 intervals shows as one of 3, its second harmonic too: their sum tells nothing."""
LEAST_INTERVAL_S = 1.5
"""Where readings are a second apart, a sensor's mean over a second equals that over the interval
and tells nothing (NVML's power of Hopper and newer; Ampere but GA100)."""


MEAN = "mean_w"
"""What the Fleet keeps the means under, beside power_w; NaN where the counter tells none."""


class Estimate(Struct, frozen=True):
    """The period of some readings."""

    period_s: float
    strength: float
    """How well one step foretells another, 0.85 to 1."""


def step_seen(readings: Sequence[float], means: Sequence[float], every_s: float) -> Estimate | None:
    """The period of means where the readings at their ends show it as much; None where not.

    `means`: of as many intervals, each up to its reading; NaN where unknown, which the first are.
    """
    known = next((at for at, mean in enumerate(means) if math.isfinite(mean)), len(means))
    readings, means = readings[known:], means[known:]
    if len(readings) != len(means) or every_s < LEAST_INTERVAL_S:
        return None
    found = step_estimate(means, every_s)
    if found is None or not all(map(math.isfinite, readings)):
        return None
    lag, values = found.period_s / every_s, _without_trend(means)
    first, *others = (abs(_wave(values, lag / harmonic)) for harmonic in _harmonics(lag))
    if lag < LEAST_LAG_SEEN or any(other > first for other in others):
        return None  # several steps look like one whose harmonic is stronger than itself
    return found if first >= KEPT * abs(_wave(_without_trend(readings), lag)) else None


def step_estimate(readings: Sequence[float], every_s: float) -> Estimate | None:
    """The period of readings taken `every_s` seconds apart; None when they do not repeat.

    Steps from three intervals to a quarter of the readings' time can be seen; shorter ones show as
    longer ones, which `step_seen` tells apart. White noise, constants, drifts and random walks
    give None (benchmarks/step_period.py counts how often).
    """
    n = len(readings)
    if n < LEAST_READINGS or every_s <= 0 or not all(map(math.isfinite, readings)):
        return None
    level = math.fsum(readings) / n
    values = _without_trend(readings)
    power = math.fsum(value * value for value in values)
    if math.sqrt(power / n) <= max(SWING * abs(level), 1e-9):
        return None
    tried = [(_share(values, lag) / power, lag) for lag in _lags(n)]
    best = max(share for share, _ in tried)
    if best < STRENGTH**2:
        return None
    share, lag = _shortest(tried, best - EQUAL)
    return Estimate(round(lag * every_s, 2), round(math.sqrt(min(1.0, share)), 3))


def _without_trend(readings: Sequence[float]) -> list[float]:
    """The readings less the straight line through them: warming up is no period."""
    n = len(readings)
    middle, level = (n - 1) / 2, math.fsum(readings) / n
    rise = math.fsum((at - middle) * value for at, value in enumerate(readings))
    slope = rise / math.fsum((at - middle) ** 2 for at in range(n))
    return [value - level - slope * (at - middle) for at, value in enumerate(readings)]


def _lags(n: int) -> Iterator[float]:
    """Periods in readings, so near to each other that none is missed."""
    lag = LEAST_LAG
    while lag <= n / CYCLES:
        yield lag
        lag += lag * lag / (FINE * n)


def _harmonics(lag: float) -> range:
    return range(1, max(1, min(HARMONICS, int(lag / BELOW_NYQUIST))) + 1)


def _share(values: Sequence[float], lag: float) -> float:
    """Squares explained by a period and its harmonics, less what chance explains."""
    n, explained = len(values), 0.0
    for harmonic in _harmonics(lag):
        explained += 2 * abs(_wave(values, lag / harmonic)) ** 2 / n
    return explained


def _wave(values: Sequence[float], lag: float) -> complex:
    """Their Fourier sum at one period."""
    turn = cmath.exp(-2j * math.pi / lag)
    total, at = 0j, 1 + 0j
    for value in values:
        total += value * at
        at *= turn
    return total


def _shortest(tried: Sequence[tuple[float, float]], enough: float) -> tuple[float, float]:
    """The first hill that reaches `enough`, at its top."""
    best = (-math.inf, 0.0)
    for share, lag in tried:
        if share >= enough:
            best = max(best, (share, lag))
        elif best[1]:
            break
    return best
