"""What the last active GPU test of a node measured; figures of earlier ones are not mixed in."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from probes.event import Scalar
from probes.reading import number
from probes.rule import Look
from probes.rules import Product

PROBE = "gpu_test"
PEERS_LEAST = 4
"""Fewer GPUs than that have no meaningful median."""

Values: TypeAlias = Mapping[str, Scalar]


class Tested(Struct, frozen=True):
    """The figures of the last test on one node."""

    look: Look
    gpus: dict[str, Values]
    pairs: dict[tuple[str, str], Values]

    def product(self, device: str) -> Product | None:
        """What the GPU is."""
        facts = self.look.facts
        id_ = facts.value("inventory", device, "pci_device_id")
        name = self.gpus[device].get("name")
        return self.look.rules.product(
            str(id_) if id_ else None, facts.node.hardware or (str(name) if name else None)
        )

    def peers(self, device: str, metric: str) -> float | None:
        """Median over all GPUs of the same product on the node; None for too few."""
        wanted = self.look.facts.value("inventory", device, "pci_device_id")
        found = [
            value
            for other, values in self.gpus.items()
            if self.look.facts.value("inventory", other, "pci_device_id") == wanted
            and (value := number(values.get(metric))) is not None
        ]
        return statistics.median(found) if len(found) >= PEERS_LEAST else None


def tested(look: Look) -> Tested | None:
    """The last test, whenever it was run; None without one, or where it ran on a CPU.

    A GPU cut into MIG instances is not among them: the test saw a part of it.
    """
    summary = look.facts.get(PROBE, "summary")
    if summary is None or summary.values.get("engine") != "torch-cuda":
        return None
    gpus: dict[str, Values] = {}
    pairs: dict[tuple[str, str], Values] = {}
    for device, sample in look.facts.devices(PROBE):
        if sample.values.get("id") != summary.values.get("id") or device == "summary":
            continue
        one, joined, other = device.partition(">")
        if joined:
            pairs[one, other] = sample.values
        elif look.facts.value("inventory", device, "mig_mode") is not True:
            gpus[device] = sample.values
    return Tested(look, gpus, pairs)
