"""A device's own past as the judging sees it: plain figures, wherever they are kept. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct


class Baseline(Struct, frozen=True):
    """What was usual for one metric of one device."""

    median: float
    """Of the last good readings or results, in the metric's unit."""
    n: int
    """How many: science 1.2 takes the last 20."""
    since: float
    """Epoch seconds of the oldest of them."""


Own: TypeAlias = Mapping[tuple[str, str, str], Baseline]
"""(node, device, metric) -> what was usual, under load where the metric depends on load."""

NONE: Own = {}
"""No past is known."""
