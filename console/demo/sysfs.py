"""A node's /sys, /proc, /dev and /etc as a tree of plain files, for an agent's --root.

Shape of an HGX H100: eight PCIe switches, each with one GPU and one ConnectX-7 NDR adapter, four
NVSwitches, and one Ethernet adapter that carries the default route. Names as in the sysfs ABI,
values as we know them of ConnectX-7 ports, not copied from a real node. Files that change are
rewritten in place: sysfs files keep their inode, and so must these, as the agent keeps them open.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from console.demo import gpu_tree, host_tree, services_tree, sysfs_rdma
from console.demo.sysfs_files import aer as _aer
from console.demo.sysfs_files import link as _link
from console.demo.sysfs_files import pci as _pci
from console.demo.sysfs_files import write
from console.demo.sysfs_rdma import counter, port_state
from console.demo.sysfs_text import DOWN, UP, routes

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
MEMORY_KIB = host_tree.MEMORY_KIB


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
    gpu_tree.build(root, gpus)
    _proc(root, hostname, boot_id)
    services_tree.build(root, write, cpus=CPUS)
    host_tree.build(root, cpus=CPUS, memory_kib=MEMORY_KIB)


# ---------------------------------------------------------------------- changes


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
    wchan: str = "",
    cwd: str = "",
) -> None:
    """A process as /proc shows it, with its environment; one that sleeps never runs again."""
    base = f"proc/{pid}"
    name = command[0].rsplit("/", 1)[-1][:15]
    write(root, f"{base}/stat", f"{pid} ({name}) {state} 1 {pid} {pid} 0 -1 4194560 0 0\n")
    switches = "voluntary_ctxt_switches:\t812\nnonvoluntary_ctxt_switches:\t9\n"
    who = f"Uid:\t{uid}\t{uid}\t{uid}\n"
    write(root, f"{base}/status", f"Name:\t{name}\nState:\t{state}\n{who}{switches}")
    write(root, f"{base}/comm", f"{name}\n")
    write(root, f"{base}/cmdline", "".join(f"{word}\0" for word in command))
    if wchan:
        write(root, f"{base}/wchan", wchan)
    if cwd and not (root / base / "cwd").is_symlink():
        (root / base / "cwd").symlink_to(cwd)
    entries = (environment or {}).items()
    write(root, f"{base}/environ", "".join(f"{key}={value}\0" for key, value in entries))


# ---------------------------------------------------------------------- PCI


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
    guid = f"a088:c203:{number:04x}:{index:04x}"
    sysfs_rdma.adapter(root, place, f"mlx5_{index}", sysfs_rdma.CX7_NDR, guid=guid,
                       netdevs=[f"ib{index}"], lid=number * 16 + index,
                       numa=index // 4)  # fmt: skip


def _management(root: Path, number: int) -> None:
    """A 25 Gb/s Ethernet adapter on a root port of its own."""
    place = f"pci0000:27/0000:27:01.0/0000:{MANAGEMENT_BUS}:00.0"
    _pci(root, place.rsplit("/", 1)[0], "0x8086", "0x352a", "0x060400", gen="8.0")
    guid = f"a088:c203:{number:04x}:00ff"
    sysfs_rdma.adapter(root, place, MANAGEMENT, sysfs_rdma.CX6LX, guid=guid,
                       netdevs=[MANAGEMENT_NETDEV])  # fmt: skip


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
