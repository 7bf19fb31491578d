"""The PCI bus as sysfs shows it: NVIDIA GPUs, addresses, the bridges above a device.

Reads only what the kernel keeps in memory, except `config_ok` and `link`, which ask the device.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from probes.node.context import Context

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controller. 0x0680 "bridge" is an NVSwitch and no GPU."""
NVSWITCH_CLASS = "0x0680"

FOREIGN_DRIVERS = frozenset(("vfio-pci", "pci-stub", "xen-pciback"))
"""A GPU bound to one of these is given away on purpose: NVML cannot and need not see it."""

DEVICES = "sys/bus/pci/devices"

GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
"""GT/s of a link -> PCIe generation."""
BRIDGES_MOST = 16
"""Bridges above a device; three cascaded switches have seven."""

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


def short_address(text: "str") -> "str":
    """As sysfs writes it: "00000000:1B:00.0" is "0000:1b:00.0"; "" when it is no address."""
    parts = text.strip().lower().split(":")
    try:
        return "%04x:%s:%s" % (int(parts[-3], 16) if len(parts) > 2 else 0, parts[-2], parts[-1])
    except (ValueError, IndexError):
        return ""


def is_gpu(ctx: "Context", address: "str") -> "bool":
    """Whether a device is a physical NVIDIA GPU (vGPU functions of one are not)."""
    if ctx.read(DEVICES, address, "vendor") != NVIDIA:
        return False
    kind = ctx.read(DEVICES, address, "class") or ""
    return kind[:6] in GPU_CLASSES and ctx.readlink(DEVICES, address, "physfn") is None


def nvidia_gpus(ctx: "Context") -> "List[str]":
    """Addresses of the GPUs that the NVIDIA driver should have, in bus order."""
    found = [address for address in ctx.listdir(DEVICES) if is_gpu(ctx, address)]
    return [address for address in found if driver(ctx, address) not in FOREIGN_DRIVERS]


def driver(ctx: "Context", address: "str") -> "Optional[str]":
    """Name of the kernel driver bound to a device; None when none is."""
    target = ctx.readlink(DEVICES, address, "driver")
    return None if target is None else target.rstrip("/").rsplit("/", 1)[-1]


def config_ok(ctx: "Context", address: "str") -> "Optional[bool]":
    """False when the card answers configuration reads with all ones (lspci: rev ff).

    None when it cannot be read, or when reading would wake a sleeping card.
    """
    if ctx.read(DEVICES, address, "power/runtime_status") == "suspended":
        return None
    head = ctx.read_bytes(DEVICES, address, "config")
    return None if not head else head[:4] != b"\xff\xff\xff\xff"


def chain(ctx: "Context", address: "str") -> "List[str]":
    """Bridges from the root complex down to the device itself, [] when sysfs has no links."""
    target = ctx.readlink(DEVICES, address)
    if target is None:
        return []
    parts = target.split("/")
    roots = [at for at, part in enumerate(parts) if part.startswith("pci")]
    return parts[roots[-1] :] if roots else []


def nearest(ctx: "Context", address: "str", others: "List[str]") -> "Optional[str]":
    """Which of `others` shares a bridge below the root complex with the device, or None.

    The longest common part of the bridge chains wins; of equals the first in bus order.
    """
    mine = chain(ctx, address)
    shared = {other: _common(mine, chain(ctx, other)) for other in others}
    best = max(shared.values(), default=0)
    if best < 2:  # only the host bridge in common: that is PHB or NODE, not "near"
        return None
    return min(other for other in others if shared[other] == best)


def _common(one: "List[str]", two: "List[str]") -> "int":
    count = 0
    for left, right in zip(one, two):
        if left != right:
            break
        count += 1
    return count


def nvswitches(ctx: "Context") -> "List[str]":
    """Addresses of the NVSwitches that sit on this node's PCI bus (up to the Hopper generation)."""
    return [
        address
        for address in ctx.listdir(DEVICES)
        if ctx.read(DEVICES, address, "vendor") == NVIDIA
        and (ctx.read(DEVICES, address, "class") or "")[:6] == NVSWITCH_CLASS
    ]


def bridges(ctx: "Context", address: "str") -> "List[str]":
    """The bridges above a device, the nearest first; the last one is the root port.

    In a virtual machine there may be none.
    """
    target = ctx.readlink(DEVICES, address) or ""
    found = []
    for part in reversed(target.rstrip("/").split("/")[:-1]):
        if not _ADDRESS.match(part):
            break
        found.append(part)
    return found[:BRIDGES_MOST]


def link(ctx: "Context", address: "str") -> "Dict[str, int]":
    """gen, width, gen_max and width_max of the link that this end describes.

    A port's own link is the one below it, but that of a switch's upstream port is the one above.
    Both ends of a link say the same now; what they could do may differ.
    """
    found = {}
    for name, which in (("", "current"), ("_max", "max")):
        speed = _gt_per_s(ctx.read(DEVICES, address, which + "_link_speed") or "")
        if speed in GENERATIONS:
            found["gen" + name] = GENERATIONS[speed]
        width = ctx.read(DEVICES, address, which + "_link_width") or ""
        if width.isdigit() and 0 < int(width) <= 32:
            found["width" + name] = int(width)
    return found


def _gt_per_s(text: "str") -> "float":
    """Of "8.0 GT/s PCIe", or "8 GT/s" as kernels before 5.7 say; 0 for "Unknown"."""
    try:
        return float(text[:16].split()[0])
    except (ValueError, IndexError):
        return 0.0
