"""Network interfaces in sysfs and /proc: default route, bonds, which belongs to a port."""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Set, Tuple

    from probes.node.context import Context

NET = "sys/class/net"
RDMA = "sys/class/infiniband"
NAME_BYTES = 16
"""IFNAMSIZ"""
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+((vf|sf)\d+)?$")
"""phys_port_name of a representor: pf0vf3, pf0sf1, c1pf0; a physical port has p0."""
ZERO4 = "00000000"
ZERO6 = "0" * 32
LEGS_MAX = 16
DEPTH = 4
"""VLAN on bond on port: deeper stacks are not followed."""


def default_interfaces(ctx: "Context") -> "Optional[Set[str]]":
    """Interfaces the default route uses, with all they stand on (bond legs); None when unreadable.

    Process 1's view comes first: with the host's /proc mounted elsewhere, "self" is the container.
    """
    tops: "Optional[Set[str]]" = None
    for place in ("proc/1/net", "proc/net"):
        tops = _default_of(ctx, place)
        if tops is not None:
            break
    if tops is None:
        return None
    found: "Set[str]" = set()
    for name in tops:
        _add_lower(ctx, name, found, DEPTH)
    return found


def _default_of(ctx: "Context", place: "str") -> "Optional[Set[str]]":
    table = ctx.read(place, "route")
    if table is None:
        return None
    rows = [line.split() for line in table.splitlines()[1:]]
    found = {row[0] for row in rows if len(row) > 7 and row[1] == ZERO4 and row[7] == ZERO4}
    if not found:
        rows = [line.split() for line in (ctx.read(place, "ipv6_route") or "").splitlines()]
        found = {r[9] for r in rows if len(r) > 9 and r[0] == ZERO6 and r[1] == "00"} - {"lo"}
    return found


def _add_lower(ctx: "Context", name: "str", found: "Set[str]", depth: "int") -> "None":
    if name in found or depth == 0:
        return
    found.add(name)
    for entry in ctx.listdir(NET, name):
        if entry.startswith("lower_"):
            _add_lower(ctx, entry[len("lower_") :], found, depth - 1)


def of_port(ctx: "Context", device_dir: "str", port_dir: "str", port: "int") -> "Optional[str]":
    """An RDMA port's interface: by its GID table (it knows bonds), then by the device.

    An adapter in switch mode also lists the representors of its functions; they are not its ports.
    """
    name = ctx.read(port_dir, "gid_attrs/ndevs/0")
    if name and "/" not in name and len(name) < NAME_BYTES:
        return name
    names = ctx.listdir(device_dir, "net")
    if len(names) > 1:
        names = [n for n in names if ctx.read_int(device_dir, "net", n, "dev_port") == port - 1]
    if len(names) > 1:
        names = [n for n in names if not represents(ctx, n)]
    return names[0] if names else None


def represents(ctx: "Context", name: "str") -> "bool":
    """Whether an interface stands for a virtual function, a sub-function or another host."""
    return bool(_REPRESENTOR.match(ctx.read(NET, name, "phys_port_name") or ""))


def is_up(ctx: "Context", name: "str") -> "Optional[bool]":
    """Operational state; None when the kernel says "unknown" or the interface is not here."""
    state = ctx.read(NET, name, "operstate")
    if state == "up":
        return True
    return False if state in ("down", "lowerlayerdown", "dormant", "notpresent") else None


def bond_legs(ctx: "Context", name: "str") -> "Optional[Tuple[int, int]]":
    """(legs, legs up) of a bond; None when it is none. A bond hides the loss of one leg."""
    found = legs(ctx, name)
    if found is None:
        return None
    up = [leg for leg in found if ctx.read(NET, leg, "bonding_slave/mii_status") == "up"]
    return len(found), len(up)


def legs(ctx: "Context", name: "str") -> "Optional[List[str]]":
    """Interfaces of a bond; None when it is none."""
    slaves = ctx.read(NET, name, "bonding/slaves")
    return None if slaves is None else slaves.split()[:LEGS_MAX]
