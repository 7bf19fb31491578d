"""Which file systems the nodes of a role have. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable

from msgspec import Struct

from probes.facts import NodeFacts

ALIKE = 3
"""Nodes from which their majority says what one of them lacks."""


class Mounts(Struct, frozen=True):
    """Counts over the nodes of a role whose storage probe answered."""

    nodes: int = 0
    mounted: dict[str, int] = {}
    """File system -> nodes that have it."""
    writable: dict[str, int] = {}
    """File system -> nodes that may write there."""

    def others(self, counts: dict[str, int], place: str, *, here: bool) -> float:
        """Share of the other nodes that `counts` names; 0 with fewer than three nodes."""
        if self.nodes < ALIKE:
            return 0.0
        return (counts.get(place, 0) - here) / (self.nodes - 1)


NONE = Mounts()


def mounts_in_steps(members: Iterable[NodeFacts]) -> Generator[None, None, Mounts]:
    """What the nodes of one role have, in pieces of one node."""
    mounted: Counter[str] = Counter()
    writable: Counter[str] = Counter()
    nodes = 0
    for facts in members:
        yield
        if facts.value("storage", "", "mounts") is None:
            continue
        nodes += 1
        for place, sample in facts.devices("storage"):
            if sample.values.get("mounted") is True:
                mounted[place] += 1
                writable[place] += sample.values.get("read_only") is False
    return Mounts(nodes, dict(mounted), dict(writable))
