"""What is usual among GPUs: ends of the heat map's scale, and each GPU against its peers. Pure.

Never from the smallest to the largest reading: one broken sensor would make all others look alike.
The ends are the 2nd and the 98th percentile of the fleet, rounded outwards. How far a GPU is from
its peers is told apart from that, in robust standard deviations (1.4826 x MAD) from their median;
peers are GPUs of one role doing the same job, so that a node that idles is not odd among others
that idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from console.tui.views.gpu_metrics import Kind, Metric
from probes.spread import MAD_TO_SIGMA, Spread, spread

ENDS = (0.02, 0.98)
SOME, FAR = 3.0, 6.0
"""Robust standard deviations from the peers' median: coloured, and odd (our estimate: of 32,000
healthy GPUs with normal readings 86 pass the first and none the second)."""
SAMPLE = 2048
"""Readings of a group that its median is taken from, evenly spread: its error is then under 3 % of
a standard deviation, and sorting 32,000 would take 10 ms."""
LEAST = 8
"""Readings from which a job's GPUs are a measure; below that the whole role is."""
DECADES = 4.0
"""A count is drawn on a logarithmic scale of so many decades: 1 to 10,000."""


class Peers(NamedTuple):
    """What is usual in a group, and where odd begins, in the metric's unit."""

    usual: Spread
    far_low: float
    some_low: float
    some_high: float
    far_high: float

    def side(self, value: float) -> int:
        """-2 far below, -1 below, 0 among them, 1 above, 2 far above."""
        if value < self.some_low:
            return -2 if value < self.far_low else -1
        if value > self.some_high:
            return 2 if value > self.far_high else 1
        return 0


class Scale(NamedTuple):
    """The ends of the levels."""

    low: float
    high: float

    def level(self, value: float, top: int) -> int:
        """0 to `top`; what lies beyond an end has the end's level."""
        share = (value - self.low) / max(self.high - self.low, 1e-9)
        return max(0, min(top, int(share * (top + 1))))


def peers_of(values: Sequence[float], metric: Metric) -> Peers | None:
    """What is usual among these readings; None without any."""
    usual = spread(thinned(values))
    if usual is None:
        return None
    sigma = max(MAD_TO_SIGMA * usual.mad, metric.sigma)
    some, far, at = SOME * sigma, FAR * sigma, usual.median
    return Peers(usual, at - far, at - some, at + some, at + far)


def thinned(values: Sequence[float]) -> Sequence[float]:
    """At most SAMPLE of them, evenly spread."""
    return values if len(values) <= SAMPLE else values[:: -(-len(values) // SAMPLE)]


def scale_of(values: Iterable[float], metric: Metric, before: Scale | None) -> Scale:
    """Ends for these readings. Those of `before` stay while they fit, so that nothing jumps."""
    if metric.ends is not None:
        return Scale(*metric.ends)
    ordered = sorted(v for v in values if math.isfinite(v))
    if not ordered:
        return before or Scale(0.0, metric.span)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in ENDS)
    low, high = _down(low, metric.step), -_down(-high, metric.step)
    missing = max(0.0, metric.span - (high - low))
    low = _down(low - missing / 2, metric.step)
    high = max(high, low + metric.span)
    slack = 2 * metric.step
    if before is not None and low - slack <= before.low <= low and high <= before.high:
        return before if before.high <= high + slack else Scale(low, high)
    return Scale(low, high)


def _down(value: float, step: float) -> float:
    return math.floor(value / step) * step


def decade(count: float, top: int) -> int:
    """Level of a count of one or more on the logarithmic scale."""
    return max(0, min(top, round(math.log10(max(count, 1.0)) / DECADES * top)))


class Usual:
    """Scale and peers of one metric over the fleet."""

    def __init__(
        self,
        metric: Metric,
        groups: Mapping[tuple[str, str], Sequence[float]],
        before: Scale | None = None,
    ) -> None:
        """`groups`: (role, job) -> readings."""
        self.metric = metric
        everything = [value for values in groups.values() for value in values]
        self.scale = scale_of(thinned(everything), metric, before)
        self._groups = groups if metric.kind is Kind.LEVEL else {}
        self._roles: dict[str, list[float]] = {}
        for (role, _), values in self._groups.items():
            self._roles.setdefault(role, []).extend(values)
        self._found: dict[tuple[str, str | None], Peers | None] = {}
        """(role, job; None for all of the role) -> medians, taken when first asked for: there may
        be a thousand jobs."""

    def peers(self, role: str, job: str) -> tuple[Peers | None, str]:
        """Who to compare with, and the job they share, "" where it is the role."""
        alone = len(self._groups.get((role, job), ())) >= LEAST
        group = (role, job if alone else None)
        if group not in self._found:
            values = self._groups[role, job] if alone else self._roles.get(role, [])
            self._found[group] = peers_of(values, self.metric)
        return self._found[group], group[1] or ""
