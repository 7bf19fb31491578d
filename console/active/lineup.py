"""Who takes part in a campaign of several nodes, and what is known before its first run. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from console.active.expect import Expected, capacities


class Lineup(Struct, frozen=True, kw_only=True):
    """What each localiser begins with."""

    nodes: tuple[str, ...]
    """In natural order, each once: neighbours stand together."""
    seed: int
    expected: Expected
    labels: Mapping[str, Mapping[str, str]]
    """Node -> inventory labels."""
    slow_alone: Mapping[str, str] = {}
    """Node -> what its own test said of it."""
    fine_alone: Collection[str] = ()
    """Nodes whose own test found nothing."""

    def capacities(self) -> dict[str, float]:
        """Node -> NIC sum of its kind, GB/s; {} unless it is known of most nodes."""
        return capacities(self.expected, self.nodes)
