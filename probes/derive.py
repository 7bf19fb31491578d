"""Counters become rates here and nowhere else: wrap, reset, saturation, gap. Pure.

All differences use the node's monotonic clock. Sources: science.md 5 (widths in mainline Linux:
symbol_error 16 bit, link_downed 8 bit, local_link_integrity 4 bit; PMA counters stick at their maximum).
"""

from __future__ import annotations

from msgspec import Struct

from probes.event import Sample, Scalar


class Rates(Struct, frozen=True, kw_only=True):
    """What happened between two samples of one device."""

    elapsed_s: float
    deltas: dict[str, float]
    """Counter -> increase. A counter that fell was reset: its new value is the increase."""
    reset: frozenset[str] = frozenset()
    saturated: frozenset[str] = frozenset()
    """Counters at their hardware maximum: the rate is unknown, not zero."""

    def per_s(self, counter: str) -> float | None:
        """Increase per second; None when unknown."""
        if counter in self.saturated or counter not in self.deltas:
            return None
        return self.deltas[counter] / self.elapsed_s


def rates(before: Sample, after: Sample) -> Rates | None:
    """Differences of every numeric metric; None when no time passed."""
    elapsed_s = after.clock - before.clock
    if elapsed_s <= 0:
        return None
    deltas: dict[str, float] = {}
    for name, value in after.values.items():
        old = before.values.get(name)
        if _number(value) and _number(old):
            deltas[name] = float(value) - float(old)  # type: ignore[arg-type]
    return Rates(elapsed_s=elapsed_s, deltas=deltas)


def _number(value: Scalar | None) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
