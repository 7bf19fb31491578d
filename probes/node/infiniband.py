"""Probe "infiniband": every RDMA port of any vendor, its state, rate, counters and place.

Names prove nothing (mlx5_0, ibp24s0v2, rdmap79s0, hfi1_0, mlx5_bond_0), a missing counters
directory is normal (EFA, virtual functions), and an Ethernet port has no LID. Names and units of
the files: Linux sysfs ABI for InfiniBand.
"""

import re

from probes.node import netdev, pci, topology
from probes.node.context import Stuck
from probes.node.counter_files import CounterFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from probes.node.context import Context

    Values = Dict[str, Any]

NAME = "infiniband"
INTERVAL = "slow"
COUNTERS = True
METRICS = {
    "state": ("", "gauge", "logical state: 1 down, 2 init, 3 armed, 4 active"),
    "state_text": ("", "info", "logical state in words"),
    "phys_state": ("", "gauge", "physical state: 2 polling, 3 disabled, 4 training, 5 link up"),
    "phys_text": ("", "info", "physical state in words"),
    "rate_gbps": ("Gb/s", "gauge", "rate now"),
    "rate_text": ("", "info", "rate as the kernel writes it"),
    "link_layer": ("", "info", "InfiniBand, Ethernet, or whatever the driver says"),
    "hca": ("", "info", "adapter type"),
    "fw": ("", "info", "firmware version"),
    "board": ("", "info", "board id (PSID)"),
    "driver": ("", "info", "kernel driver"),
    "vendor": ("", "info", "PCI vendor id, four hex digits"),
    "netdev": ("", "info", "network interface of the port"),
    "netdev_up": ("", "gauge", "operational state of the interface"),
    "carrier_changes": ("", "counter", "how often the interface lost or found its carrier"),
    "bond": ("", "info", "the port stands for a bond"),
    "bond_legs": ("", "gauge", "legs of the bond"),
    "bond_legs_up": ("", "gauge", "legs that are up"),
    "is_vf": ("", "info", "an SR-IOV virtual function"),
    "software": ("", "info", "RDMA in software (rxe, siw): no adapter"),
    "vf_in_use": ("", "gauge", "the virtual function's interface is in another namespace (a pod)"),
    "nvswitch": ("", "info", "an NVSwitch management function: its counters are not read"),
    "pci": ("", "info", "PCI address"),
    "numa": ("", "info", "NUMA node"),
    "lid": ("", "gauge", "LID; InfiniBand only"),
    "sm_lid": ("", "gauge", "LID of the subnet manager, 0 without one; InfiniBand only"),
    "width": ("lanes", "gauge", "lanes of the link now, as in 4X NDR"),
    "representor": ("", "info", "the port stands for a function of the adapter in switch mode"),
    "gpu_near": ("", "info", "PCI address of the GPU behind the same bridge"),
    "gpu_distance": ("", "info", "to the nearest GPU: PIX, PXB, PHB, NODE or SYS"),
    "gpu_numa": ("", "info", "a GPU is on the same NUMA node"),
    "switched_ports": ("", "info", "adapters of this node behind a PCIe switch with a GPU"),
    "gpu_side_ports": ("", "info", "adapters of this node on NUMA nodes that have a GPU"),
    "has_counters": ("", "info", "whether any counter can be read"),
    "default_route": ("", "info", "the node's default route goes through this port"),
    "pci_width": ("lanes", "gauge", "PCIe lanes now"),
    "pci_width_max": ("lanes", "info", "PCIe lanes of the adapter"),
    "port_xmit_data": ("4 B", "counter", "data sent, in units of four bytes"),
    "port_rcv_data": ("4 B", "counter", "data received, in units of four bytes"),
}
"""Counters keep their sysfs names; only those with a unit to know are listed."""

CLASS = netdev.RDMA
PORTS_MAX = 120
"""Answers hold 128 devices of a probe."""
COUNTERS_MAX = 215
"""Answers hold 256 metrics of a device, and 40 may be our own."""
PLACE_S = 300.0
"""How long firmware, place on the bus and neighbours are taken as unchanged."""

INFINIBAND = "InfiniBand"
MELLANOX = "15b3"
SWITCH_MANAGEMENT = b"SW_MNG"
"""In the vital product data of an NVSwitch management function (as Fabric Manager finds them)."""

_STATE = re.compile(r"\s*(\d+)\s*:\s*(\S.*?)\s*$")
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec(?:\s*\((\d+)X)?")


def collect(ctx: "Context") -> "Tuple[Dict[str, Values], List[Values]]":
    """One tick over all ports, as {"mlx5_0/1": values}; a port that hangs is left out."""
    memory = ctx.memory(NAME)
    files: "Any" = memory.get("files")
    if files is None:
        # The clock, not ctx.mono: a reference back to ctx would keep the files open with it.
        files = memory["files"] = CounterFiles(ctx.clock)
    routes = netdev.default_interfaces(ctx)
    devices: "Dict[str, Values]" = {}
    for name in ctx.listdir(CLASS):
        first = True
        for port in ctx.listdir(CLASS, name, "ports"):
            if not port.isdigit() or len(port) > 4 or len(devices) >= PORTS_MAX:
                continue
            key = "%s/%s" % (name, port)
            try:
                with ctx.busy("read %s counters" % NAME, key):
                    devices[key] = _port(ctx, name, int(port), files, first)
            except Stuck:
                continue
            if routes is not None:
                devices[key]["default_route"] = devices[key].get("netdev") in routes
            first = False
    return devices, []


def _port(ctx: "Context", name: "str", port: "int", files: "Any", first: "bool") -> "Values":
    """Counters first: whatever a driver calls its files, they never replace our own metrics."""
    directory = "%s/%s/ports/%d" % (CLASS, name, port)
    place = _place(ctx, name)
    values: "Values" = {}
    if not place.get("nvswitch"):
        values.update(_counters(ctx, files, directory, CLASS + "/" + name if first else ""))
    values.update(place, has_counters=bool(values))
    values.update(_link(ctx, directory))
    values.update(_interface(ctx, name, directory, port, place))
    return values


def _counters(ctx: "Context", files: "Any", port_dir: "str", device_dir: "str") -> "Values":
    """Port counters, then those of the whole device (hfi1), which the first port carries."""
    values: "Values" = dict(files.read(ctx.path(port_dir, "counters")))
    directories = [port_dir, device_dir] if device_dir else [port_dir]
    for directory in directories:
        for name, value in files.read(ctx.path(directory, "hw_counters")).items():
            if len(values) < COUNTERS_MAX:
                values.setdefault(name, value)
    return values


def _link(ctx: "Context", directory: "str") -> "Values":
    """State, rate and LID of the port."""
    values: "Values" = {}
    for file, number, text in (
        ("state", "state", "state_text"),
        ("phys_state", "phys_state", "phys_text"),
    ):
        found = _STATE.match(ctx.read(directory, file) or "")
        if found:
            values[number] = int(found.group(1))
            values[text] = found.group(2)
    rate = ctx.read(directory, "rate")
    if rate:
        values["rate_text"] = rate.strip()
        speed = _RATE.match(rate)
        if speed:
            values["rate_gbps"] = float(speed.group(1))
            if speed.group(2):
                values["width"] = int(speed.group(2))
    layer = ctx.read(directory, "link_layer")
    if layer:
        values["link_layer"] = layer.strip()
    if layer and layer.strip() == INFINIBAND:
        values.update(_present(lid=ctx.read_int(directory, "lid")))
        values.update(_present(sm_lid=ctx.read_int(directory, "sm_lid")))
    return values


def _interface(
    ctx: "Context", name: "str", directory: "str", port: "int", place: "Values"
) -> "Values":
    """The network side: interface, its state, and the legs a bond hides."""
    device_dir = "%s/%s/device" % (CLASS, name)
    values: "Values" = {}
    if place.get("is_vf"):
        in_use = _vf_in_use(ctx, device_dir)
        if in_use is not None:
            values["vf_in_use"] = in_use
    interface = netdev.of_port(ctx, device_dir, directory, port)
    legs = None if interface is None else netdev.bond_legs(ctx, interface)
    values["bond"] = legs is not None or "bond" in name
    if legs is not None:
        values.update(bond_legs=legs[0], bond_legs_up=legs[1])
    if interface is not None:
        values["netdev"] = interface
        if netdev.represents(ctx, interface):
            values["representor"] = True
        up = netdev.is_up(ctx, interface)
        changes = ctx.read_int(netdev.NET, interface, "carrier_changes")
        values.update(_present(netdev_up=up, carrier_changes=changes))
    return values


def _vf_in_use(ctx: "Context", device_dir: "str") -> "Optional[bool]":
    """True when the function's interface has left this namespace, as for a pod.

    Sysfs shows an interface only in its own namespace: the `net` directory is then there and empty.
    Without the directory (no IPoIB, no Ethernet) nothing can be said.
    """
    if "net" not in ctx.listdir(device_dir):
        return None
    return not ctx.listdir(device_dir, "net")


def _place(ctx: "Context", name: "str") -> "Values":
    """What hardly changes: firmware, address, NUMA node, nearest GPU. Kept for PLACE_S."""
    kept: "Any" = ctx.memory(NAME).setdefault("places", {})
    now = ctx.mono()
    if name not in kept or now >= kept[name][0]:
        kept[name] = (now + PLACE_S, _look_at(ctx, name))
    place: "Values" = kept[name][1]
    return place


def _look_at(ctx: "Context", name: "str") -> "Values":
    base = "%s/%s" % (CLASS, name)
    device = base + "/device"
    address = topology.address_of(ctx, name)
    numa = ctx.read_int(device, "numa_node")
    vendor = (ctx.read(device, "vendor") or "").replace("0x", "", 1).lower()
    values = _present(
        hca=ctx.read(base, "hca_type"),
        fw=ctx.read(base, "fw_ver"),
        board=ctx.read(base, "board_id"),
        driver=(ctx.readlink(device, "driver") or "").rsplit("/", 1)[-1],
        vendor=vendor or None,
        pci=address,
        numa=numa if numa is not None and numa >= 0 else None,
        pci_width=ctx.read_int(device, "current_link_width"),
        pci_width_max=ctx.read_int(device, "max_link_width"),
    )
    if address is not None:
        values.update(_neighbours(ctx, name, address))
    values["is_vf"] = ctx.readlink(device, "physfn") is not None
    if _is_software(ctx, name):
        values["software"] = True
    if vendor == MELLANOX and _manages_switch(ctx, name, address):
        values["nvswitch"] = True
    return values


def _is_software(ctx: "Context", name: "str") -> "bool":
    """rxe and siw, whatever they are called: no hardware of their own, over any interface.

    Older kernels show rxe below the interface's device, but then with the name of its parent.
    """
    way = ctx.readlink(CLASS, name) or ""
    return "/virtual/" in way or ctx.read(CLASS, name, "parent") is not None


def _neighbours(ctx: "Context", name: "str", address: "str") -> "Values":
    """Where the adapter is among the GPUs, and how many of its siblings are near them."""
    gpus = pci.nvidia_gpus(ctx)
    nodes = {topology.numa(ctx, gpu) for gpu in gpus} - {None}
    own = topology.numa(ctx, address)
    values = _present(
        gpu_near=pci.nearest(ctx, address, gpus),
        gpu_distance=topology.nearest([topology.distance(ctx, gpu, address) for gpu in gpus]),
        gpu_numa=own in nodes if nodes and own is not None else None,
    )
    if gpus:
        values.update(_siblings(ctx, gpus))
    return values


def _siblings(ctx: "Context", gpus: "List[str]") -> "Values":
    """How the node's adapters lie, the same for each of them; counted once in PLACE_S."""
    kept: "Any" = ctx.memory(NAME).get("siblings")
    now = ctx.mono()
    if kept is None or now >= kept[0]:
        nodes = {topology.numa(ctx, gpu) for gpu in gpus} - {None}
        switched = by_gpu = 0
        for address in topology.adapters(ctx).values():
            far = [topology.distance(ctx, gpu, address) for gpu in gpus]
            switched += topology.nearest(far) in topology.SWITCHED
            by_gpu += topology.numa(ctx, address) in nodes
        kept = (now + PLACE_S, {"switched_ports": switched, "gpu_side_ports": by_gpu})
        ctx.memory(NAME)["siblings"] = kept
    found: "Values" = kept[1]
    return found


def _manages_switch(ctx: "Context", name: "str", address: "Optional[str]") -> "bool":
    """By the vital product data, read once per device and session: it is slow and never changes."""
    known: "Any" = ctx.memory(NAME).setdefault("switches", {})
    key = (name, address)
    if key not in known:
        vpd = ctx.read_bytes(CLASS, name, "device/vpd") or b""
        known[key] = SWITCH_MANAGEMENT in vpd
    found: "bool" = known[key]
    return found


def _present(**values: "Any") -> "Values":
    return {name: value for name, value in values.items() if value not in (None, "")}
