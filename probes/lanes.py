"""PCIe lanes of a node: what its slots offer by product, and how wide links between bridges are."""

from __future__ import annotations

from collections.abc import Iterator

from probes.event import Scalar
from probes.facts import NodeFacts
from probes.reading import whole

WIDTHS, BRIDGES = "pcie widths", "pcie bridges"


def lanes(facts: NodeFacts) -> Iterator[tuple[str, str, Scalar]]:
    """(table, key, value) to count for the majorities of the role."""
    for device, sample in facts.devices("pcie"):
        offered = whole(sample.values.get("width_max"))
        if device and offered is not None:
            product = str(facts.value("inventory", device, "pci_device_id") or "")
            yield WIDTHS, product, offered
    node = facts.get("pcie")
    for row in node.rows if node is not None else ():
        width = whole(row.get("width"))
        if width is not None:
            yield BRIDGES, str(row.get("bridge", "")), width
