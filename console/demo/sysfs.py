"""A node's /sys, /proc, /dev and /etc as a tree of plain files, for an agent's --root.

Shape of an HGX H100: eight PCIe switches, each with one GPU and one ConnectX-7 NDR adapter, four
NVSwitches, and one Ethernet adapter that carries the default route. Names as in the sysfs ABI,
values as we know them of ConnectX-7 ports, not copied from a real node. Files that change are
rewritten in place: sysfs files keep their inode, and so must these, as the agent keeps them open.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from console.demo.sysfs_text import AER, COUNTERS, DOWN, HW_COUNTERS, UP, routes

__all__ = [
    "CPUS", "DOWN", "UP", "build", "counter", "kernel_line", "lose_gpu", "port_state", "process",
    "remove_gpu", "write",
]  # fmt: skip

GPU_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
NIC_BUSES = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")
"""Each adapter is three buses below its GPU, behind the same switch."""

NVSWITCH_BUSES = ("07", "08", "09", "0a")
MANAGEMENT_BUS = "29"
MANAGEMENT = "mlx5_8"
"""RDMA name of the Ethernet adapter; its interface carries the default route."""

MANAGEMENT_NETDEV = "ens1f0np0"

CPUS = 112
MEMORY_KIB = 2_113_000_000


def build(
    root: Path,
    *,
    hostname: str = "node",
    number: int = 1,
    gpus: Sequence[str] = GPU_BUSES,
    hcas: int = 8,
    gpu_device: str = "0x2330",
    boot_id: str | None = None,
) -> None:
    """Write the whole tree of a healthy node below `root`.

    `number` tells one node's GUIDs and LIDs from another's; `gpus` are buses of eight switches.
    """
    for index, bus in enumerate(GPU_BUSES):
        switch = _switch(root, NIC_BUSES[index], numa=index // 4)
        if bus in gpus:
            _gpu(root, switch, bus, gpu_device, numa=index // 4)
        if index < hcas:
            _infiniband(root, switch, NIC_BUSES[index], index, number)
    for bus in NVSWITCH_BUSES:
        _pci(root, f"pci0000:00/0000:{bus}:00.0", "0x10de", "0x22a3", "0x068000")
    _management(root, number)
    _proc(root, hostname, boot_id)


# ---------------------------------------------------------------------- changes


def write(root: Path, path: str, content: str | bytes) -> None:
    """Change a file in place: same inode, and a reader sees the old text or the new one."""
    raw = content.encode() if isinstance(content, str) else content
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(handle, raw, 0)
        os.ftruncate(handle, len(raw))
    finally:
        os.close(handle)


def counter(root: Path, port: str, name: str, value: int) -> None:
    """Set a counter of a port ("mlx5_0/1"), wherever it lives."""
    base = _port_dir(port)
    directory = "hw_counters" if name in HW_COUNTERS else "counters"
    write(root, f"{base}/{directory}/{name}", f"{value}\n")


def port_state(root: Path, port: str, values: Mapping[str, str]) -> None:
    """Set files of a port: UP, DOWN, or any of state, phys_state, rate, lid."""
    for name, text in values.items():
        write(root, f"{_port_dir(port)}/{name}", f"{text}\n")


def lose_gpu(root: Path, pci: str) -> None:
    """The card stays listed but answers configuration reads with all ones."""
    write(root, f"sys/bus/pci/devices/{pci}/config", b"\xff" * 64)


def remove_gpu(root: Path, pci: str) -> None:
    """The card is not on the bus any more."""
    (root / "sys/bus/pci/devices" / pci).unlink()


def kernel_line(root: Path, text: str, *, at_s: float | None = None, priority: int = 3) -> None:
    """Append a line to ROOT/dev/kmsg; `at_s` is seconds since boot, by default now."""
    path = root / "dev/kmsg"
    path.parent.mkdir(parents=True, exist_ok=True)
    usec = int((time.monotonic() if at_s is None else at_s) * 1e6)
    sequence = path.read_text().count("\n") if path.exists() else 0
    with path.open("a") as log:
        log.write(f"{priority},{sequence},{usec},-;{text}\n")


def process(
    root: Path,
    pid: int,
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    state: str = "R",
    uid: int = 1000,
) -> None:
    """A process as /proc shows it, with its environment."""
    base = f"proc/{pid}"
    name = command[0].rsplit("/", 1)[-1][:15]
    write(root, f"{base}/stat", f"{pid} ({name}) {state} 1 {pid} {pid} 0 -1 4194560 0 0\n")
    write(root, f"{base}/status", f"Name:\t{name}\nState:\t{state}\nUid:\t{uid}\t{uid}\t{uid}\n")
    write(root, f"{base}/comm", f"{name}\n")
    write(root, f"{base}/cmdline", "".join(f"{word}\0" for word in command))
    entries = (environment or {}).items()
    write(root, f"{base}/environ", "".join(f"{key}={value}\0" for key, value in entries))


# ---------------------------------------------------------------------- PCI


def _port_dir(port: str) -> str:
    device, _, number = port.partition("/")
    return f"sys/class/infiniband/{device}/ports/{number}"


def _link(root: Path, path: str, target: str) -> None:
    """A relative link below the root, as sysfs has them."""
    link = root / path
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(root / target, link.parent))


def _many(root: Path, base: str, files: Mapping[str, object]) -> None:
    """New files of one directory: a tree has 1,200, so no check per file."""
    directory = str(root / base)
    os.makedirs(directory, exist_ok=True)
    for name, value in files.items():
        with open(f"{directory}/{name}", "w") as out:
            out.write(f"{value}\n")


def _pci(
    root: Path, place: str, vendor: str, device: str, kind: str, *, gen: str = "32.0", numa: int = 0
) -> str:
    """A PCI function at `place` below /sys/devices, on the bus list; returns its directory."""
    base, address = f"sys/devices/{place}", place.rsplit("/", 1)[-1]
    speed = f"{gen} GT/s PCIe"
    _many(root, base, {
        "vendor": vendor, "device": device, "class": kind, "numa_node": numa, "enable": 1,
        "current_link_speed": speed, "max_link_speed": speed,
        "current_link_width": 16, "max_link_width": 16,
    })  # fmt: skip
    words = [int(vendor, 16), int(device, 16)]
    head = b"".join(word.to_bytes(2, "little") for word in words)
    write(root, f"{base}/config", head.ljust(64, b"\0"))
    _link(root, f"sys/bus/pci/devices/{address}", base)
    return base


def _aer(root: Path, base: str) -> None:
    for name, (total, kinds) in AER.items():
        lines = [*(f"{kind} 0" for kind in kinds.split()), f"{total} 0"]
        _many(root, base, {name: "\n".join(lines)})


def _switch(root: Path, nic_bus: str, *, numa: int) -> str:
    """Root port and both sides of a PCIe switch; returns the place of the upstream side."""
    bus = int(nic_bus, 16)
    root_bus, upstream, inner = (f"{bus - down:02x}" for down in (3, 2, 1))
    place = f"pci0000:{root_bus}/0000:{root_bus}:01.0"
    _pci(root, place, "0x8086", "0x352a", "0x060400", numa=numa)
    place += f"/0000:{upstream}:00.0"
    _pci(root, place, "0x1000", "0xc030", "0x060400", numa=numa)
    for slot in ("00", "01"):
        _pci(root, f"{place}/0000:{inner}:{slot}.0", "0x1000", "0xc030", "0x060400", numa=numa)
    return place


def _gpu(root: Path, switch: str, bus: str, device: str, *, numa: int) -> None:
    inner = f"{int(bus, 16) - 4:02x}"
    place = f"{switch}/0000:{inner}:01.0/0000:{bus}:00.0"
    base = _pci(root, place, "0x10de", device, "0x030200", numa=numa)
    _aer(root, base)
    (root / "sys/bus/pci/drivers/nvidia").mkdir(parents=True, exist_ok=True)
    _link(root, f"{base}/driver", "sys/bus/pci/drivers/nvidia")


# ---------------------------------------------------------------------- RDMA


def _infiniband(root: Path, switch: str, bus: str, index: int, number: int) -> None:
    inner = f"{int(bus, 16) - 1:02x}"
    place = f"{switch}/0000:{inner}:00.0/0000:{bus}:00.0"
    base = _pci(root, place, "0x15b3", "0x1021", "0x020700", numa=index // 4)
    guid = f"a088:c203:{number:04x}:{index:04x}"
    _rdma(root, base, f"mlx5_{index}", guid, "MT4129", "28.39.3560", f"ib{index}")
    lid = {"lid": hex(number * 16 + index), "sm_lid": "0x1", "link_layer": "InfiniBand"}
    port_state(root, f"mlx5_{index}/1", {**UP, **lid})


def _management(root: Path, number: int) -> None:
    """A 25 Gb/s Ethernet adapter on a root port of its own."""
    place = f"pci0000:27/0000:27:01.0/0000:{MANAGEMENT_BUS}:00.0"
    _pci(root, place.rsplit("/", 1)[0], "0x8086", "0x352a", "0x060400", gen="8.0")
    base = _pci(root, place, "0x15b3", "0x101f", "0x020000", gen="8.0")
    guid = f"a088:c203:{number:04x}:00ff"
    _rdma(root, base, MANAGEMENT, guid, "MT4127", "26.38.1002", MANAGEMENT_NETDEV)
    rate = {"rate": "25 Gb/sec (1X EDR)", "lid": "0x0", "sm_lid": "0x0", "link_layer": "Ethernet"}
    port_state(root, f"{MANAGEMENT}/1", {**UP, **rate})


def _rdma(
    root: Path, base: str, name: str, guid: str, hca: str, firmware: str, netdev: str
) -> None:
    """An RDMA device below its PCI function, with one port, all counters 0, and its interface."""
    _aer(root, base)
    device = f"{base}/infiniband/{name}"
    _many(root, device, {
        "node_guid": guid, "sys_image_guid": guid, "node_type": "1: CA", "fw_ver": firmware,
        "hca_type": hca, "node_desc": name,
    })  # fmt: skip
    port = f"{device}/ports/1"
    _many(root, f"{port}/counters", dict.fromkeys(COUNTERS, 0))
    _many(root, f"{port}/hw_counters", {**dict.fromkeys(HW_COUNTERS, 0), "lifespan": 10})
    _many(root, f"{port}/gid_attrs/types", {"0": "IB/RoCE v1"})
    _many(root, f"{port}/gid_attrs/ndevs", {"0": netdev})
    _many(root, f"{base}/net/{netdev}", {
        "operstate": "up", "carrier": 1, "carrier_changes": 2, "dev_port": 0, "mtu": 4092,
    })  # fmt: skip
    _link(root, f"{device}/device", base)
    _link(root, f"sys/class/infiniband/{name}", device)
    _link(root, f"sys/class/net/{netdev}", f"{base}/net/{netdev}")


# ---------------------------------------------------------------------- /proc and the rest


def _proc(root: Path, hostname: str, boot_id: str | None) -> None:
    busy = "4821340 3321 612331 98234112 21022 0 9121 0 0 0"
    cpus = "".join(f"cpu{cpu} 43048 29 5467 877090 187 0 81 0 0 0\n" for cpu in range(CPUS))
    files = {
        "proc/loadavg": "12.41 12.02 11.80 14/2411 48213\n",
        "proc/uptime": "612345.11 60111222.40\n",
        "proc/stat": f"cpu  {busy}\n{cpus}btime {int(time.time()) - 612_345}\n",
        "proc/meminfo": f"MemTotal: {MEMORY_KIB} kB\nMemAvailable: {MEMORY_KIB * 9 // 10} kB\n",
        "proc/pressure/io": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        "proc/pressure/cpu": "some avg10=1.20 avg60=1.10 avg300=1.00 total=81\n",
        "proc/net/route": routes(MANAGEMENT_NETDEV),
        "proc/sys/kernel/hostname": f"{hostname}\n",
        "proc/sys/kernel/random/boot_id": f"{boot_id or uuid.uuid4()}\n",
        "proc/1/stat": "1 (systemd) S 0 1 1 0 -1 4194560 0 0\n",
        "sys/module/nvidia/version": "580.95.05\n",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
    }
    for path, content in files.items():
        write(root, path, content)
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev/kmsg").touch()
