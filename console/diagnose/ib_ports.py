"""RDMA ports as any tool shows them, and the Samples that the live probe would have sent."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

from probes.event import Scalar

STATES = {"down": 1, "init": 2, "initialize": 2, "initializing": 2, "armed": 3, "arm": 3,
          "active": 4, "active_defer": 5}  # fmt: skip
PHYSICAL = {"sleep": 1, "polling": 2, "disabled": 3, "disable": 3, "training": 4,
            "portconfigurationtraining": 4, "linkup": 5, "linkerrorrecovery": 6, "recovery": 6,
            "phytest": 7, "phy": 7}  # fmt: skip
"""Words of the states, without blanks and underscores -> the numbers of sysfs."""
LAYERS = {"ib": "InfiniBand", "infiniband": "InfiniBand", "ethernet": "Ethernet"}
PORTS = 2048
NO_LID = (0, 0xFFFF)

COUNTERS = {
    "symbolerrorcounter": "symbol_error", "symbolerrors": "symbol_error",
    "linkerrorrecoverycounter": "link_error_recovery", "linkrecovers": "link_error_recovery",
    "linkdownedcounter": "link_downed", "linkdowned": "link_downed",
    "portrcverrors": "port_rcv_errors", "rcverrors": "port_rcv_errors",
    "portrcvremotephysicalerrors": "port_rcv_remote_physical_errors",
    "rcvremotephyserrors": "port_rcv_remote_physical_errors",
    "portrcvswitchrelayerrors": "port_rcv_switch_relay_errors",
    "rcvswrelayerrors": "port_rcv_switch_relay_errors",
    "portxmitdiscards": "port_xmit_discards", "xmtdiscards": "port_xmit_discards",
    "portxmitconstrainterrors": "port_xmit_constraint_errors",
    "xmtconstrainterrors": "port_xmit_constraint_errors",
    "portrcvconstrainterrors": "port_rcv_constraint_errors",
    "rcvconstrainterrors": "port_rcv_constraint_errors",
    "locallinkintegrityerrors": "local_link_integrity_errors",
    "linkintegrityerrors": "local_link_integrity_errors",
    "excessivebufferoverrunerrors": "excessive_buffer_overrun_errors",
    "excbufoverrunerrors": "excessive_buffer_overrun_errors",
    "vl15dropped": "VL15_dropped", "qp1dropped": "qp1_dropped",
    "portxmitdata": "port_xmit_data", "xmtdata": "port_xmit_data",
    "portrcvdata": "port_rcv_data", "rcvdata": "port_rcv_data",
    "portxmitpkts": "port_xmit_packets", "xmtpkts": "port_xmit_packets",
    "portrcvpkts": "port_rcv_packets", "rcvpkts": "port_rcv_packets",
    "portxmitwait": "port_xmit_wait", "xmtwait": "port_xmit_wait",
}  # fmt: skip
"""Names of perfquery and ibqueryerrors, old and new, in lower case -> file names of sysfs."""


class Port(Struct, kw_only=True):
    """One port of one node."""

    device: str
    port: int = 1
    state: str = ""
    """Logical state as the tool writes it."""
    physical: str = ""
    rate: str = ""
    layer: str = ""
    lid: int | None = None
    sm_lid: int | None = None
    hca: str = ""
    firmware: str = ""
    guid: str = ""
    image: str = ""
    """System image GUID: the same for all functions of one card."""
    netdev: str = ""
    netdev_up: bool | None = None
    counters: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    """Further readings of the live probe: is_vf, vendor, has_counters ..."""
    lines: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """As the live probe and findings name it: "mlx5_0/1"."""
        return f"{self.device}/{self.port}"

    @property
    def state_number(self) -> int | None:
        """As in sysfs: 1 down to 4 active."""
        return number_of(self.state, STATES)

    @property
    def physical_number(self) -> int | None:
        """As in sysfs: 2 polling, 5 link up."""
        return number_of(self.physical, PHYSICAL)

    @property
    def active(self) -> bool:
        """Whether it carries traffic; a tool that shows one of both states is believed."""
        return self.state_number == 4 and self.physical_number in (5, None)

    @property
    def ethernet(self) -> bool:
        """RoCE: no LID and no subnet manager by nature."""
        return self.layer == "Ethernet"

    @property
    def has_lid(self) -> bool:
        """Only InfiniBand has LIDs; a list that does not name the layer is of that kind."""
        return self.layer in ("", "InfiniBand")

    @property
    def words(self) -> str:
        """ "active", or "down/polling"."""
        word = re.sub(r"\(.*?\)|^\s*\d+\s*:", "", self.state.lower()).strip()
        state = re.sub(r"\W+", "", word.removeprefix("port_")) or "unknown"
        if self.active or not self.physical:
            return state
        return f"{state}/{re.sub(r'[^a-z0-9]+', '', self.physical.lower())}"

    @property
    def plain(self) -> str:
        """ "Down, Polling" for people."""
        state = (_upper(self.state) or "unknown").capitalize()
        return f"{state}, {self.physical}" if self.physical else state

    def values(self) -> dict[str, Scalar]:
        """As the live probe tells of it; the rate of a port without a link is none."""
        told: dict[str, Scalar | None] = {
            "state": self.state_number, "state_text": _upper(self.state),
            "phys_state": self.physical_number, "phys_text": self.physical or None,
            "link_layer": self.layer or None, "hca": self.hca or None, "fw": self.firmware or None,
            "netdev": self.netdev or None, "netdev_up": self.netdev_up,
            "lid": self.lid if self.has_lid else None,
            "sm_lid": self.sm_lid if self.has_lid else None,
        }  # fmt: skip
        if self.active and self.rate:
            told["rate_text"] = self.rate
            told["rate_gbps"] = rate_gbps(self.rate)
        values: dict[str, Scalar] = dict(self.counters)
        values |= self.extra
        values |= {name: value for name, value in told.items() if value is not None}
        return values

    def facts(self) -> dict[str, Any]:
        """For the document."""
        told: dict[str, Any] = {"state": self.words, "layer": self.layer or None}
        if self.lid is not None or not self.has_lid:
            told["lid"] = self.lid if self.has_lid and self.lid not in NO_LID else None
        if self.has_lid and self.sm_lid is not None:
            told["sm_lid"] = self.sm_lid
        if self.active and self.rate:
            told["rate_gbps"] = rate_gbps(self.rate)
        for name in ("hca", "firmware", "netdev"):
            if getattr(self, name):
                told[name] = getattr(self, name)
        if self.netdev_up is not None:
            told["netdev_up"] = self.netdev_up
        if self.counters:
            told["counters"] = {name: n for name, n in self.counters.items() if n}
        return told


def number_of(text: str, table: dict[str, int]) -> int | None:
    """ "4: ACTIVE", "PORT_ACTIVE (4)", "Active", "LINK_UP" -> 4, 4, 4, 5."""
    lead = re.match(r"\s*(\d{1,2})\s*:", text)
    if lead is not None:
        return int(lead[1])
    word = re.sub(r"\(.*?\)", "", text).strip().lower().removeprefix("port_")
    return table.get(re.sub(r"[^a-z]+", "", word), table.get(word))


def rate_gbps(text: str) -> float | None:
    """The number in front of "Gb/sec", or alone as ibstat prints it."""
    found = re.match(r"\s*(\d{1,6}(?:\.\d{1,4})?)", text)
    return None if found is None else float(found[1])


def layer_of(text: str) -> str:
    """InfiniBand, Ethernet, or whatever else the driver says."""
    return LAYERS.get(text.strip().lower(), text.strip())


def lid_of(text: str) -> int | None:
    """Decimal or hex."""
    found = re.match(r"\s*(?:0x([0-9a-fA-F]{1,8})|(\d{1,9}))\b", text)
    if found is None:
        return None
    return int(found[1], 16) if found[1] else int(found[2])


def _upper(text: str) -> str | None:
    word = re.sub(r"\(.*?\)|^\s*\d+\s*:", "", text).strip().upper().removeprefix("PORT_")
    return word or None
