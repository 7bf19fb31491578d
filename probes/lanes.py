"""PCIe lanes of a role: what slots offer by product, and how wide the links between bridges are."""

from __future__ import annotations

from collections import Counter

from probes.facts import NodeFacts
from probes.reading import whole


class Lanes:
    """Counts over the nodes of a role, for their majorities."""

    def __init__(self) -> None:
        """Nobody has answered yet."""
        self.widths: dict[str, Counter[int]] = {}
        self.bridges: dict[str, Counter[int]] = {}

    def add(self, facts: NodeFacts) -> None:
        """One node's GPUs and switches."""
        for device, sample in facts.devices("pcie"):
            offered = whole(sample.values.get("width_max"))
            if device and offered is not None:
                product = str(facts.value("inventory", device, "pci_device_id") or "")
                self.widths.setdefault(product, Counter())[offered] += 1
        node = facts.get("pcie")
        for row in node.rows if node is not None else ():
            width = whole(row.get("width"))
            if width is not None:
                self.bridges.setdefault(str(row.get("bridge", "")), Counter())[width] += 1
