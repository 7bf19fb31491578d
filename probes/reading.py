"""Readings as numbers: what a hostile or broken node sent instead of one is missing. Pure."""

from __future__ import annotations

import math

from probes.event import Scalar

MOST = float(1 << 63)
"""No counter or gauge goes beyond 64 bit; larger ones could not be written as JSON either."""
_NUMBERS = (int, float)
"""Not `int | float`, which is built anew at every call."""


def number(value: Scalar | None) -> float | None:
    """A finite number; None for text, flags, NaN and what does not fit 64 bit."""
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return None
    return float(value) if -MOST < value < MOST and math.isfinite(value) else None


def whole(value: Scalar | None) -> int | None:
    """A whole number, as counts, codes and bit masks are; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -MOST < value < MOST else None
