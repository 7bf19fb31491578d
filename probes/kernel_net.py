"""Lines of network adapters' drivers: mlx5, EFA, Ethernet of Intel and others. Pure."""

from __future__ import annotations

import re

from probes.kernel_xid import BDF, Found, address

_MLX5 = re.compile(
    rf"mlx5_core (?P<pci>{BDF})(?: (?P<dev>[\w.-]{{1,32}}))?:? (?P<text>.*)$", re.IGNORECASE
)
_MODULE = r"[Pp]ort module event.{0,20}module (?P<module>\d{1,6}).{0,40}"
_MLX5_KINDS = (
    ("insufficient_power", re.compile(r"insufficient power on the PCIe slot \((?P<watt>\d{1,6})W")),
    ("high_temperature", re.compile(_MODULE + r"High Temperature")),
    ("cable_unplugged", re.compile(_MODULE + r"unplugged")),
    ("cable_error", re.compile(
        r"[Pp]ort module event\[error\].{0,20}module (?P<module>\d{1,6}), Cable error")),
    ("adapter_hot", re.compile(r"[Hh]igh temperature on sensors")),
    ("link_down", re.compile(r"Port: (?P<port>\d{1,4}) Link DOWN|\bLink down")),
    ("link_active", re.compile(r"Port: (?P<port>\d{1,4}) Link ACTIVE|\bLink up")),
    ("command_timeout", re.compile(r"Will cause a leak of a command resource|timeout\. Will")),
    ("access_reg", re.compile(r"ACCESS_REG")),
    ("health_compromised", re.compile(
        r"health compromised|unrecoverable hardware error|Fatal error \d{1,4} detected"
        r"|handling bad device here")),
    ("firmware_error", re.compile(r"firmware internal error|Health issue observed")),
    ("tx_timeout", re.compile(r"TX timeout detected")),
)  # fmt: skip
_ETHERNET = re.compile(
    r"\b(?P<driver>ixgbe|ixgbevf|ice|i40e|iavf|igb|igc|e1000e|bnxt_en|ena|tg3|qede|cxgb4|sfc|mana"
    rf"|gve|irdma) (?P<pci>{BDF})(?: (?P<dev>[\w.-]{{1,32}}))?(?: \(\w+\))?:? (?P<text>.*)$"
)
_ETHERNET_KINDS = (
    ("tx_timeout", re.compile(
        r"Detected Tx Unit Hang|tx[_ ]timeout|TX timeout|[Tt]x hang|due to tx timeout|missing tx",
        re.IGNORECASE)),
    ("firmware_error", re.compile(
        r"[Ff]irmware (?:error|recovery|fatal|hang)|FW.{0,20}fatal|Keep alive watchdog timeout"
        r"|EMP reset|Rx/Tx is disabled on this device")),
    ("adapter_reset", re.compile(
        r"Reset adapter|(?:PF|Global|Core) ?[Rr]eset (?:failed"
        r"|requested)")),
    ("link_down", re.compile(r"Link is [Dd]own")),
    ("link_active", re.compile(r"Link is [Uu]p")),
)  # fmt: skip
_WATCHDOG = (
    re.compile(r"NETDEV WATCHDOG: (?P<dev>[\w.-]{1,32}) \((?P<driver>\w{1,20})\): transmit queue"),
    re.compile(
        r"(?P<dev>[\w.-]{1,32})(?: \("
        r"(?P<driver>\w{1,20})\))?: NETDEV WATCHDOG: .{0,20}transmit queue"
    ),
)
_EFA = re.compile(
    rf"(?:\befa (?P<pci>{BDF})(?: (?P<dev>[\w.-]{{1,32}}))?|infiniband (?P<ibdev>(?:rdmap"
    rf"|efa_)\w{{1,24}})):"
    r"? (?P<text>.*)$"
)
_EFA_KINDS = (
    ("command_timeout", re.compile(
        r"polling\) timeout|didn't send any completion|Admin queue is closed")),
    ("reset_failed", re.compile(
        r"Reset indication didn't turn|Device isn't ready"
        r"|can't reset device")),
    ("interrupt_lost", re.compile(r"didn't receive any MSI-X interrupt")),
    ("command_failed", re.compile(r"Failed to process command|Failed to submit command")),
)  # fmt: skip
_CARRIER = re.compile(r"(?:^|\s)(?P<dev>ib\w{1,20}): (?P<what>[Ll]ost|[Gg]ained) carrier")


def network(text: str) -> Found | None:
    """What an adapter's driver says that matters; None for the rest."""
    if "carrier" in text and (match := _CARRIER.search(text)):
        what = "link_down" if match["what"].lower() == "lost" else "link_active"
        return {"kind": "nic", "what": what, "dev": match["dev"], "driver": "ipoib"}
    if "mlx5_core" in text and (match := _MLX5.search(text)):
        return _of(match, "mlx5", _MLX5_KINDS)
    if ("efa" in text or "rdmap" in text) and (match := _EFA.search(text)):
        return _of(match, "efa", _EFA_KINDS)
    if "NETDEV WATCHDOG" in text:
        for pattern in _WATCHDOG:
            if match := pattern.search(text):
                return {"kind": "nic", "what": "tx_timeout", **match.groupdict()}
    if match := _ETHERNET.search(text):
        found = _of(match, "nic", _ETHERNET_KINDS)
        return found if found is None else {**found, "driver": match["driver"]}
    return None


def _of(
    match: re.Match[str], kind: str, kinds: tuple[tuple[str, re.Pattern[str]], ...]
) -> Found | None:
    """The first kind that the driver's text shows."""
    groups = match.groupdict()
    for what, pattern in kinds:
        if inner := pattern.search(match["text"]):
            facts = {k: int(v) for k, v in inner.groupdict().items() if v is not None}
            pci, dev = groups.get("pci"), groups.get("dev") or groups.get("ibdev")
            return {
                "kind": kind, "pci": None if pci is None else address(pci), "what": what,
                "dev": dev, **facts,
            }  # fmt: skip
    return None
