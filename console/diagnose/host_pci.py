"""lspci: which GPUs are on the bus, which of them are dead, which links run slow. Pure."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

_DEVICE = re.compile(
    r"^(?P<pci>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+(?P<class>[^:\[]+?)(?:\s\[\w{4}\])?:\s+"
    r"(?P<name>.*)$",
    re.IGNORECASE,
)
_REV = re.compile(r"\(rev (?P<rev>[0-9a-f]{2})\)")
_SHORT = re.compile(r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\s", re.IGNORECASE)
_GPU_CLASS = re.compile(
    r"3D controller|VGA compatible|Display controller|Processing accelerat|^03(?:00|02|80)$|^1200$"
)
"""In words, or as `lspci -n` prints classes."""
_HEADER = re.compile(r"Unknown header type 7f")
_LINK = re.compile(r"Lnk(?P<what>Cap|Sta):.*?Speed (?P<speed>[\d.]+)GT/s(?P<down>[^,]*), "
                   r"Width x(?P<width>\d+)"
                   r"(?P<narrow>[^,]*)")  # fmt: skip
DEVICES = 4096


class Card(Struct):
    """One device of interest."""

    pci: str
    name: str
    line: str
    dead: bool = False
    cap: tuple[float, int] | None = None
    sta: tuple[float, int] | None = None
    driver: str | None = None

    @property
    def long(self) -> str:
        """With its domain, as NVML and the kernel name it."""
        address = self.pci.lower()
        return address if address.count(":") == 2 else f"0000:{address}"


class Bus(Struct):
    """The list."""

    gpus: list[Card] = field(default_factory=list)
    switches: list[Card] = field(default_factory=list)
    count_of_driver: int | None = None
    """A number alone on its line below the list: `nvidia-smi -L | wc -l`."""


def looks_like(line: str) -> bool:
    """Whether this is a line of lspci."""
    return bool(_SHORT.match(line)) and bool(_DEVICE.match(line))


def read(lines: list[str]) -> Bus:
    """All devices of NVIDIA (or AMD) that are GPUs or switches, plain or with -vv."""
    bus = Bus()
    card: Card | None = None
    for line in lines:
        device = _DEVICE.match(line)
        if device is not None:
            card = _card(device, line)
            if card is not None and len(bus.gpus) + len(bus.switches) < DEVICES:
                _sort(bus, device, card)
        elif card is not None:
            _detail(card, line)
        if bus.gpus and (alone := re.fullmatch(r"\s*(\d{1,3})\s*", line)):
            bus.count_of_driver = int(alone[1])
    return bus


def _card(device: re.Match[str], line: str) -> Card | None:
    name = device["name"]
    if not re.search(
        r"NVIDIA|Advanced Micro Devices.*(?:Instinct|MI\d)|\[10de|^10de:", name, re.IGNORECASE
    ):
        return None
    rev = _REV.search(line)
    dead = rev is not None and rev["rev"].lower() == "ff"
    return Card(pci=device["pci"].lower(), name=name, line=line.strip(), dead=dead)


def _sort(bus: Bus, device: re.Match[str], card: Card) -> None:
    """A switch has the class of a bridge, whatever its name says of H100."""
    if "switch" in card.name.lower() or device["class"].strip().startswith(("Bridge", "0680")):
        bus.switches.append(card)
    elif _GPU_CLASS.search(device["class"]):
        bus.gpus.append(card)


def _detail(card: Card, line: str) -> None:
    if _HEADER.search(line):
        card.dead = True
    if link := _LINK.search(line):
        told = (float(link["speed"][:8]), int(link["width"][:4]))
        if link["what"] == "Cap":
            card.cap = card.cap or told
        else:
            card.sta = card.sta or told
    if used := re.search(r"Kernel driver in use: (\S+)", line):
        card.driver = used[1]


def facts(bus: Bus) -> dict[str, Any]:
    """Counts and addresses; switches are no GPUs."""
    told: dict[str, Any] = {
        "lspci_gpus": len(bus.gpus), "rev_ff": [card.pci for card in bus.gpus if card.dead],
        "nvswitch": len(bus.switches), "nvml_gpus": bus.count_of_driver,
    }  # fmt: skip
    told["gpus_on_bus"] = [card.long for card in bus.gpus]
    links = {c.pci: {"width": c.sta[1], "width_max": c.cap[1]} for c in bus.gpus if c.sta and c.cap}
    return {k: v for k, v in {**told, "links": links}.items() if v not in (None, {}, 0)} | {
        "rev_ff": told["rev_ff"]
    }
