"""Probe "ethtool": pause, FEC, PCIe and optics counters of the interfaces that carry RDMA.

What `ethtool -S` prints, asked of the kernel directly (SIOCETHTOOL of linux/ethtool.h), so no tool
is needed on the node. Drivers have up to ten thousand statistics, most of them per queue: only
those named here are sent. Nothing is written and no right is needed.
"""

import array
import errno
import fcntl
import re
import socket
import struct

from probes.node import netdev
from probes.node.context import Stuck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from probes.node.context import Context

    Values = Dict[str, Any]

NAME = "ethtool"
INTERVAL = "slow"
COUNTERS = True
METRICS = {
    "port": ("", "info", "RDMA port that uses the interface"),
    "bond": ("", "info", "bond the interface is a leg of"),
    "driver": ("", "info", "kernel driver"),
    "driver_version": ("", "info", "version of a driver that is not the kernel's own"),
    "fw": ("", "info", "firmware version as the driver tells it"),
    "outbound_pci_stalled_wr": ("%", "gauge", "share of the last second without PCIe credits"),
    "outbound_pci_stalled_rd": ("%", "gauge", "share of the last second without PCIe credits"),
    "rx_bits_phy": ("bit", "counter", "bits the link could have brought"),
    "rx_corrected_bits_phy": ("bit", "counter", "bits that FEC corrected"),
    "rx_pcs_symbol_err_phy": ("", "counter", "symbols that FEC could not correct"),
}
"""Counters keep their driver's names; only those with a unit to know are listed."""

_SENT = re.compile(
    r"[rt]x_prio\d_(pause|pause_duration|pause_transition|discards)"  # mlx5
    r"|[rt]x_global_pause(_duration|_transition)?"
    r"|[rt]x_pause_ctrl_phy|tx_pause_storm_(warning|error)_events"
    r"|[rt]x_discards_phy|rx_out_of_buffer|rx_buffer_passed_thres_phy|rx_crc_errors_phy"
    r"|rx_(bits|corrected_bits|pcs_symbol_err|err_lane_\d)_phy|link_down_events_phy"
    r"|outbound_pci_(stalled_(wr|rd)(_events)?|buffer_overflow)"
    r"|module_(high_temp|unplug|bad_shorted|bus_stuck)"
    r"|[rt]x_pause_frames|[rt]x_pfc_ena_frames_pri\d|link_down_events"  # bnxt_en
    r"|rx_fec_(corrected|uncorrectable)_blocks|rx_pcs_symbol_err|rx_total_discard_pkts"
    r"|(tx|rx)_priority_\d_xo(n|ff)\.nic|link_xo(n|ff)_[rt]x\.nic"  # ice
)

SIOCETHTOOL = 0x8946
GDRVINFO, GSTRINGS, GSTATS, GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37
SET_STATS = 1
"""ETH_SS_STATS"""
STRING_BYTES = 32
DRVINFO = struct.Struct("=I32s32s32s32s32s12s5I")

STATISTICS_MAX = 16384
"""More than mlx5 has with 128 channels; a driver that claims more is not asked."""
SLACK = 4096
"""Entries of room behind the asked ones: older kernels write as many as the driver has by then,
whatever was asked for, so channels added in between must not run over the end."""

INTERFACES_MAX = 64
KEPT_S = 300.0
"""How long names and driver are taken as unchanged while the number of statistics is."""


def collect(ctx: "Context") -> "Tuple[Dict[str, Values], List[Values]]":
    """One tick over all interfaces, as {"ens1f0np0": values}; one that hangs is left out."""
    devices: "Dict[str, Values]" = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for name, known in interfaces(ctx).items():
            try:
                with ctx.busy("ethtool statistics", name):
                    found = _interface(ctx, handle, name)
            except (Stuck, OSError):
                continue
            if found is not None:
                devices[name] = dict(found, **known)
    return devices, []


def interfaces(ctx: "Context") -> "Dict[str, Values]":
    """Interfaces of physical RDMA ports, a bond as its legs: {"ens1f0np0": {"port": ...}}."""
    found: "Dict[str, Values]" = {}
    for device in ctx.listdir(netdev.RDMA):
        base = "%s/%s" % (netdev.RDMA, device)
        if ctx.readlink(base, "device/physfn") is not None:
            continue
        for port in ctx.listdir(base, "ports"):
            if not port.isdigit():
                continue
            name = netdev.of_port(ctx, base + "/device", "%s/ports/%s" % (base, port), int(port))
            if name is None or len(found) >= INTERFACES_MAX:
                continue
            key = "%s/%s" % (device, port)
            legs = netdev.legs(ctx, name)
            for leg in [name] if legs is None else legs:
                found[leg] = {"port": key} if legs is None else {"port": key, "bond": name}
    return found


def _interface(ctx: "Context", handle: "socket.socket", name: "str") -> "Optional[Values]":
    """The chosen statistics of one interface; None when it is not the one that sysfs shows."""
    kept: "Any" = ctx.memory(NAME).setdefault("names", {})
    count = count_of(handle, name)
    known = kept.get(name)
    now = ctx.mono()
    if known is None or known[0] != count or now >= known[1]:
        about = driver(handle, name)
        if not _same(ctx, name, about["bus"]):
            return None
        names = [(at, text) for at, text in enumerate(names_of(handle, name, count))
                 if _SENT.fullmatch(text)]  # fmt: skip
        known = kept[name] = (count, now + KEPT_S, about, names)
    about, names = known[2:]
    values: "Values" = {key: about[key] for key in ("driver", "driver_version", "fw") if about[key]}
    if names:
        numbers = statistics(handle, name, count)
        values.update((text, numbers[at]) for at, text in names)
    return values


def _same(ctx: "Context", name: "str", bus: "str") -> "bool":
    """Whether the kernel's interface is the one below our root.

    A container that has the host's /sys but its own network may have an eth0 of its own.
    """
    if ctx.root == "/":
        return True
    way = (ctx.readlink(netdev.NET, name) or "").split("/")
    way += (ctx.readlink(netdev.NET, name, "device") or "").split("/")
    return bool(bus) and bus in way


def count_of(handle: "socket.socket", name: "str") -> "int":
    """How many statistics the driver has."""
    raw = _ask(handle, name, struct.pack("=IIQI", GSSET_INFO, 0, 1 << SET_STATS, 0), 64)
    _, _, mask, count = struct.unpack_from("=IIQI", raw)
    if not mask:
        return 0
    if count > STATISTICS_MAX:
        raise OSError(errno.EMSGSIZE, "%d statistics" % count)
    return int(count)


def driver(handle: "socket.socket", name: "str") -> "Values":
    """Driver, its version where it has one of its own, firmware, bus address."""
    raw = _ask(handle, name, struct.pack("=I", GDRVINFO), DRVINFO.size + 64)
    parts = DRVINFO.unpack_from(raw)
    texts = [part.split(b"\0", 1)[0].decode("ascii", "replace").strip() for part in parts[1:5]]
    return dict(zip(("driver", "driver_version", "fw", "bus"), texts))


def names_of(handle: "socket.socket", name: "str", count: "int") -> "List[str]":
    """Names of all statistics, in the order of their values."""
    head = struct.pack("=III", GSTRINGS, SET_STATS, count)
    raw = _ask(handle, name, head, (count + SLACK) * STRING_BYTES)
    at = [len(head) + number * STRING_BYTES for number in range(count)]
    parts = [raw[start : start + STRING_BYTES].split(b"\0", 1)[0] for start in at]
    return [part.decode("ascii", "replace").strip() for part in parts]


def statistics(handle: "socket.socket", name: "str", count: "int") -> "Tuple[int, ...]":
    """Values of all statistics."""
    head = struct.pack("=II", GSTATS, count)
    raw = _ask(handle, name, head, (count + SLACK) * 8)
    return struct.unpack_from("=%dQ" % count, raw, len(head))


def _ask(handle: "socket.socket", name: "str", head: "bytes", room: "int") -> "bytes":
    """One SIOCETHTOOL: a struct ifreq that points at the command, which the kernel overwrites."""
    memory = array.array("B", head + bytes(room))
    request = struct.pack("16sP16x", name.encode()[:15], memory.buffer_info()[0])
    fcntl.ioctl(handle.fileno(), SIOCETHTOOL, request)
    return memory.tobytes()
