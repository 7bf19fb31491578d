"""Probe "topology": how far each GPU is from each RDMA adapter, in the words of nvidia-smi topo.

From the bridge chains and NUMA nodes of sysfs, so it needs no driver: PIX one PCIe switch between
them, PXB several, PHB the host bridge, NODE two host bridges of one NUMA node, SYS two NUMA nodes.
What sysfs does not tell (no links, NUMA node -1 among several) is absent.
"""

from probes.node import netdev, pci

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, FrozenSet, List, Optional, Tuple

    from probes.node.context import Context

    Values = Dict[str, Any]

NAME = "topology"
INTERVAL = "rare"
COUNTERS = False
METRICS = {
    "idle_nics": ("", "info", "adapters on the bus without an RDMA device, with their driver"),
    "numa": ("", "info", "NUMA node of the GPU"),
    "nic": ("", "info", "nearest RDMA adapters, by name"),
    "nic_pci": ("", "info", "their PCI addresses"),
    "nic_distance": ("", "info", "PIX, PXB, PHB, NODE or SYS to the nearest RDMA adapter"),
    "acs_redirect": ("", "info", "bridges above the GPU that send peer-to-peer to the root"),
    "ats": ("", "info", "address translation service of the GPU is on"),
}

ORDER = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Nearest first."""
SWITCHED = frozenset(ORDER[:2])
"""Distances at which data need not pass the root complex."""

RDMA_ONLY = ("0x15b3",)
"""Vendors all of whose network functions have RDMA; others also make plain ones."""
NETWORK = "0x02"
ADAPTERS_MAX = 64
NAMES_MAX = 4
"""Adapters named as nearest: the functions of two cards; on Grace all are equally far."""

IDLE_MAX = 20
"""Adapters without an RDMA device: 260 characters of addresses."""

EXTENDED = 0x100
"""Where a PCIe function's extended capabilities begin; readable by root only."""
ACS, ATS = 0x000D, 0x000F
ACS_REDIRECT = 0x000C
"""Request redirect and completion redirect in the ACS control register."""
ATS_ENABLE = 0x8000
CAPABILITIES_MOST = 48


def collect(ctx: "Context") -> "Tuple[Dict[str, Values], List[Values]]":
    """One tick over all GPUs, and the node as ""; the rows are the matrix: gpu, nic, distance."""
    gpus = pci.nvidia_gpus(ctx)
    nics = adapters(ctx)
    devices: "Dict[str, Values]" = {}
    rows: "List[Values]" = []
    for gpu in gpus:
        far = {name: distance(ctx, gpu, address) for name, address in nics.items()}
        rows.extend({"gpu": gpu, "nic": n, "distance": d} for n, d in sorted(far.items()) if d)
        devices[gpu] = dict(_nearest(far, nics), **_settings(ctx, gpu))
        node = numa(ctx, gpu)
        if node is not None:
            devices[gpu]["numa"] = node
    idle = _without_rdma(ctx, frozenset(nics.values()))
    if idle:
        devices[""] = {"idle_nics": ";".join(idle)}
    return devices, rows


def _without_rdma(ctx: "Context", known: "FrozenSet[str]") -> "List[str]":
    """Physical adapters of RDMA vendors without an RDMA device here: "mlx5_core 0000:4f:00.0,..".

    The driver's RDMA part failed or is not loaded, or the device is in a pod's network namespace.
    """
    found: "Dict[str, List[str]]" = {}
    for address in ctx.listdir(pci.DEVICES):
        if address in known or ctx.read(pci.DEVICES, address, "vendor") not in RDMA_ONLY:
            continue
        kind = ctx.read(pci.DEVICES, address, "class") or ""
        if kind.startswith(NETWORK) and ctx.readlink(pci.DEVICES, address, "physfn") is None:
            found.setdefault(pci.driver(ctx, address) or "no driver", []).append(address)
    return ["%s %s" % (name, ",".join(found[name][:IDLE_MAX])) for name in sorted(found)]


def adapters(ctx: "Context") -> "Dict[str, str]":
    """RDMA adapters that are PCI functions of this node's own, by name."""
    found = {}
    for name in ctx.listdir(netdev.RDMA)[:ADAPTERS_MAX]:
        address = address_of(ctx, name)
        if address and ctx.readlink(netdev.RDMA, name, "device/physfn") is None:
            found[name] = address
    return found


def address_of(ctx: "Context", name: "str") -> "Optional[str]":
    """PCI address of an RDMA device: the last address on the way to it."""
    way = (ctx.readlink(netdev.RDMA, name) or "") + "/"
    way += ctx.readlink(netdev.RDMA, name, "device") or ""
    found = [part for part in way.split("/") if pci.short_address(part) and part.count(":") == 2]
    return found[-1] if found else None


def distance(ctx: "Context", one: "str", two: "str") -> "Optional[str]":
    """PIX, PXB, PHB, NODE or SYS between two PCI functions; None when sysfs does not tell."""
    first, second = pci.chain(ctx, one), pci.chain(ctx, two)
    if not first or not second:
        return None
    shared = 0
    for left, right in zip(first, second):
        if left != right:
            break
        shared += 1
    if shared > 1:
        bridges = max(len(first), len(second)) - shared - 1
        return "PIX" if bridges <= 1 else "PXB"
    if shared == 1:
        return "PHB"
    here, there = numa(ctx, one), numa(ctx, two)
    if here is None or there is None:
        return None
    return "NODE" if here == there else "SYS"


def numa(ctx: "Context", address: "str") -> "Optional[int]":
    """NUMA node of a PCI function; None when the firmware does not say (-1)."""
    node = ctx.read_int(pci.DEVICES, address, "numa_node")
    return node if node is not None and node >= 0 else None


def nearest(distances: "List[Optional[str]]") -> "Optional[str]":
    """The nearest of some distances; None when none is known."""
    known = [ORDER.index(one) for one in distances if one is not None]
    return ORDER[min(known)] if known else None


def _nearest(far: "Dict[str, Optional[str]]", nics: "Dict[str, str]") -> "Values":
    best = nearest(list(far.values()))
    if best is None:
        return {}
    names = sorted(name for name, one in far.items() if one == best)
    return {
        "nic": ",".join(names[:NAMES_MAX]),
        "nic_pci": ",".join(nics[name] for name in names[:NAMES_MAX]),
        "nic_distance": best,
    }


def _settings(ctx: "Context", gpu: "str") -> "Values":
    """ACS of the bridges above a GPU, and its ATS; absent without root."""
    values: "Values" = {}
    own = _capability(ctx, gpu, ATS)
    if own is not None:
        values["ats"] = bool(own & ATS_ENABLE)
    above = [_capability(ctx, at, ACS) for at in pci.chain(ctx, gpu)[1:-1]]
    known = [control for control in above if control is not None]
    if known:
        values["acs_redirect"] = sum(1 for control in known if control & ACS_REDIRECT)
    elif own is None:
        ctx.missing.setdefault("acs", "PCIe extended config needs root; run the agent as root")
    return values


def _capability(ctx: "Context", address: "str", wanted: "int") -> "Optional[int]":
    """Control register (offset 6) of an extended capability; None when it is not there."""
    if ctx.read(pci.DEVICES, address, "power/runtime_status") == "suspended":
        return None
    raw = ctx.read_bytes(pci.DEVICES, address, "config") or b""
    at = EXTENDED
    for _ in range(CAPABILITIES_MOST):
        if at < EXTENDED or at + 8 > len(raw):
            return None
        head = int.from_bytes(raw[at : at + 4], "little")
        if head & 0xFFFF == wanted:
            return int.from_bytes(raw[at + 6 : at + 8], "little")
        at = head >> 20 & 0xFFC
    return None
