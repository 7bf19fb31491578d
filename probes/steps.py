"""How long a job's step takes, seen from outside: the period of its power or byte rate. Pure.

A training step computes, then communicates: power falls and bytes flow once a step. Readings that
repeat are explained by one period and its harmonics; that share is their autocorrelation one period
apart, also where the period is no whole number of readings (a step of 6.2 s in readings of 1 s has
none of 0.95 at 6 or 7). What does not repeat gives nothing: an estimate, never a verdict.
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
SWING = 0.02
"""Standard deviation over mean below which readings are constant: a power sensor's own noise."""


class Estimate(Struct, frozen=True):
    """The period of some readings."""

    period_s: float
    strength: float
    """How well one step foretells another, 0.85 to 1."""


def step_estimate(readings: Sequence[float], every_s: float) -> Estimate | None:
    """The period of readings taken `every_s` seconds apart; None when they do not repeat.

    Steps from three intervals to a quarter of the readings' time can be seen; shorter ones may
    show as a multiple of theirs. White noise, constants, drifts and random walks give None
    (benchmarks/step_period.py counts how often).
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


def _share(values: Sequence[float], lag: float) -> float:
    """Squares explained by a period and its harmonics, less what chance explains."""
    n, explained = len(values), 0.0
    for harmonic in range(1, max(1, min(HARMONICS, int(lag / BELOW_NYQUIST))) + 1):
        turn = cmath.exp(-2j * math.pi * harmonic / lag)
        total, at = 0j, 1 + 0j
        for value in values:
            total += value * at
            at *= turn
        explained += 2 * abs(total) ** 2 / n
    return explained


def _shortest(tried: Sequence[tuple[float, float]], enough: float) -> tuple[float, float]:
    """The first hill that reaches `enough`, at its top."""
    best = (-math.inf, 0.0)
    for share, lag in tried:
        if share >= enough:
            best = max(best, (share, lag))
        elif best[1]:
            break
    return best
