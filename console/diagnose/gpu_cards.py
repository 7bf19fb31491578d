"""GPUs as any of NVIDIA's tools shows them, and the Samples that the live probes would have sent.

Values are named "probe.metric", as in the METRICS of that probe, so that the console's own checks
judge what is on paper. A card is known by address, UUID or serial; its index is only a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from console.diagnose import cells
from console.diagnose.offline import Offline, limits
from probes.catalog import PROBES
from probes.event import Scalar

CARDS = 512
"""Most GPUs read from one text."""
_HOMES = ("gpu", "ecc", "pcie", "nvlink", "fabric", "inventory")
"""Probes that tell of GPUs: a reading goes to the one that declares it."""


class Card(Struct, kw_only=True):
    """One GPU of one text."""

    index: int | None = None
    pci: str = ""
    """As the text has it."""
    uuid: str = ""
    serial: str = ""
    name: str = ""
    values: dict[str, Scalar] = field(default_factory=dict)
    """ "gpu.temp_c" -> 33."""
    shown: dict[str, Any] = field(default_factory=dict)
    """What the text tells and no probe asks: brand, fan, bank histogram."""
    broken: dict[str, str] = field(default_factory=dict)
    """Name of a reading -> the error that stands in its place."""
    lines: dict[str, str] = field(default_factory=dict)
    """Name of a reading -> the very line."""

    def put(self, name: str, value: Scalar | None, line: str = "") -> None:
        """A reading of a probe; None is left out."""
        if value is None:
            return
        self.values[name] = value
        if line:
            self.lines[name.partition(".")[2]] = line

    @property
    def device(self) -> str:
        """What findings call it: the address, else the UUID, else the index."""
        if self.pci:
            return cells.device(self.pci)
        return self.uuid or (f"GPU{self.index}" if self.index is not None else "")

    @property
    def label(self) -> str:
        """What a person calls it: "GPU 14 (CC:00.0)"."""
        place = cells.short(self.pci) if self.pci else ""
        if self.index is None:
            return f"GPU {place or self.uuid or '?'}"
        return f"GPU {self.index} ({place})" if place else f"GPU {self.index}"

    @property
    def key(self) -> str:
        """Its name in facts: the index, else the address, else the UUID."""
        return str(self.index) if self.index is not None else self.pci or self.uuid or "?"

    def has_mode(self, name: str) -> bool:
        """Whether a mode is known to be on."""
        return self.values.get(name) is True


class Cards:
    """The GPUs of one node; readings of one card from several tools come together."""

    def __init__(self) -> None:
        """None yet."""
        self.all: list[Card] = []

    def __iter__(self) -> Iterator[Card]:
        """In the order they came."""
        return iter(self.all)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.all)

    def add(self, card: Card) -> Card:
        """Merge it with the card it is; what came later wins, what is missing stays."""
        known = self._same(card)
        if known is None:
            if len(self.all) < CARDS:
                self.all.append(card)
            return card
        for name in ("index", "pci", "uuid", "serial", "name"):
            value = getattr(card, name)
            if value not in (None, "") and (name != "name" or not known.name):
                setattr(known, name, value)
        known.values.update(card.values)
        known.shown.update({k: v for k, v in card.shown.items() if v is not None})
        known.broken.update(card.broken)
        error = known.lines.get("error")
        known.lines.update(card.lines)
        if error:
            known.lines["error"] = error  # the table's line shows all cells at once
        return known

    def _same(self, card: Card) -> Card | None:
        for known in self.all:
            if card.pci and known.pci:
                if cells.device(card.pci) == cells.device(known.pci):
                    return known
            elif card.uuid and known.uuid:
                if card.uuid == known.uuid:
                    return known
            elif card.index is not None and card.index == known.index:
                return known
        return None


def product_id(name: str) -> str:
    """PCI device id of a product by the name that drivers print; "" for one we do not know."""
    product = limits().product(None, name)
    return product.pci_ids[0] if product is not None and product.pci_ids else ""


def put(offline: Offline, cards: Iterable[Card]) -> None:
    """Every card as the probes would have told of it; what no probe knows stays out."""
    for card in cards:
        if not card.device:
            continue
        grouped: dict[str, dict[str, Scalar]] = {}
        for name, value in card.values.items():
            probe = home(name)
            if probe is not None:
                grouped.setdefault(probe, {})[name.partition(".")[2]] = value
        inventory = grouped.setdefault("inventory", {})
        if card.name:
            inventory["name"] = card.name
            known = product_id(card.name)
            if known:
                inventory.setdefault("pci_device_id", known)
        if card.uuid:
            inventory["uuid"] = card.uuid
        for probe, values in grouped.items():
            if card.index is not None:
                values["index"] = card.index
            if values:
                told: dict[str, Any] = values
                offline.put(probe, card.device, **told)


def home(name: str) -> str | None:
    """The probe that declares a reading "probe.metric": the named one, else another of GPUs."""
    probe, _, metric = name.partition(".")
    known = (one for one in (probe, *_HOMES) if one in PROBES and _declared(one, metric))
    return next(known, None)


def _declared(probe: str, metric: str) -> bool:
    """Whether a probe has this metric; those of one link or port are declared with an N."""
    declared = PROBES[probe].metrics
    if metric in declared or not declared:
        return True
    return metric.startswith("link") and "linkN_" + metric.partition("_")[2] in declared
