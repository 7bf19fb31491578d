"""The last readings of each GPU: what is drawn as a line, and what steps are estimated from."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import nan

from probes.efficiency import energy_w
from probes.event import Sample
from probes.facts import NodeFacts
from probes.steps import MEAN

HISTORY = 60
"""Readings kept per GPU and plotted metric; 4 B each."""
PLOTTED = ("temp_c", "util_percent", "power_w", "sm_clock_mhz")
WHEN = "at"
"""Beside the metrics: seconds since the first reading of all. 4 B are exact to 0.01 s for a day,
to 0.3 s for a month."""
_NUMBERS = (int, float)
_OfNode = dict[tuple[str, str], "array[float]"]
"""(GPU, metric) -> readings, oldest first."""


class Rings:
    """Of all nodes; each ring forgets its oldest reading."""

    def __init__(self) -> None:
        """Nothing read."""
        self._nodes: dict[str, _OfNode] = {}
        self._first_at: float | None = None

    def add(self, facts: NodeFacts, sample: Sample) -> None:
        """Take in what a GPU answered, which its node's facts have already."""
        read = False
        for metric in PLOTTED:
            value = sample.values.get(metric)
            if isinstance(value, _NUMBERS):
                self._remember(sample, metric, value)
                read = True
        if "power_w" in sample.values:
            mean_w = energy_w(facts, sample.device)
            self._remember(sample, MEAN, nan if mean_w is None else mean_w)
        if read:
            first = self._first_at = sample.at if self._first_at is None else self._first_at
            self._remember(sample, WHEN, sample.at - first)

    def _remember(self, sample: Sample, metric: str, value: float) -> None:
        rings = self._nodes.setdefault(sample.node, {})
        ring = rings.get((sample.device, metric))
        if ring is None:
            ring = rings[sample.device, metric] = array("f")
        ring.append(value)
        if len(ring) > HISTORY:
            del ring[0]

    def of(self, node: str, device: str, metric: str) -> Sequence[float]:
        """The last readings of a metric, oldest first; empty when there is none."""
        return self._nodes.get(node, {}).get((device, metric), ())

    def times(self, node: str, device: str) -> Sequence[float]:
        """When the last readings of this GPU came, epoch seconds, oldest first."""
        first = self._first_at or 0.0
        return [first + offset for offset in self.of(node, device, WHEN)]

    def of_node(self, node: str) -> Mapping[tuple[str, str], array[float]]:
        """All of a node by (GPU, metric)."""
        return self._nodes.get(node, {})

    def copy(self) -> Rings:
        """The same rings, held by both until `part`."""
        other = Rings()
        other._nodes, other._first_at = self._nodes.copy(), self._first_at
        return other

    def part(self, node: str) -> None:
        """Go on with copies of a node's: who holds the old ones keeps them as they are."""
        if node in self._nodes:
            self._nodes[node] = {key: ring[:] for key, ring in self._nodes[node].items()}
