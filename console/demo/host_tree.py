"""A healthy host's files: CPU frequency, memory controllers, mounts, disks, limits, time daemon.

What probes/node reads of a host beside its GPUs and adapters. Device numbers of the mounts belong
to no file system of the machine that runs this, so that its own disks are never taken for the
simulated node's.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

from console.demo.services_tree import DAEMONS

SLURMD = next(pid for pid, program in DAEMONS.items() if program == "slurmd")
MEMORY_KIB = 2_113_000_000
SOCKETS = 2
POLICIES = 8
"""One for each CPU on a real machine; eight tell the same story."""
MAX_KHZ = 3_800_000
DISKS = 5
"""nvme0 holds the system, the others the scratch array."""
MODEL = "SAMSUNG MZQL23T8HCLS-00A07"
IDLE = "0 9000 14240 0 0 0 0 0 0"
"""The rest of a disk's line in diskstats: nothing under way."""
BOOTED_AT = 1_780_000_000
"""Of the one boot in wtmp: not within a day of anybody who runs this."""

LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max cpu time              unlimited            unlimited            seconds   \n"
    "Max processes             8254321              8254321              processes \n"
    "Max open files            131072               131072               files     \n"
    "Max locked memory         unlimited            unlimited            bytes     \n"
)
"""/proc/PID/limits of slurmd as its unit sets them."""

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
24 22 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:2 - sysfs sysfs rw
25 22 0:5 / /dev rw,nosuid,relatime shared:8 - devtmpfs udev rw,size=1056000000k,mode=755
26 25 0:24 / /dev/shm rw,nosuid,nodev shared:10 - tmpfs tmpfs rw
27 22 0:25 / /run rw,nosuid,nodev,noexec,relatime shared:11 - tmpfs tmpfs rw,size=211300000k
28 22 259:1 / /boot/efi rw,relatime shared:29 - vfat /dev/nvme0n1p1 rw,umask=0077
29 22 7:1 / /snap/core22/1380 ro,nodev,relatime shared:31 - squashfs /dev/loop1 ro,errors=continue
30 22 9:0 / /scratch rw,noatime shared:33 - xfs /dev/md0 rw,attr2,inode64
31 22 0:49 / /home rw,relatime shared:35 - nfs4 10.10.0.5:/home rw,vers=4.2,hard,proto=tcp
32 22 0:50 / /data rw,relatime shared:37 - lustre 10.10.0.9@tcp:/data rw,flock,lazystatfs
33 22 0:60 / /var/lib/docker/overlay2/a/merged rw,relatime - overlay overlay rw,lowerdir=/l
"""

FSTAB = """\
UUID=6f0c2f6e-2f1a-4d0e-9b1f-000000000001 /         ext4 defaults,errors=remount-ro 0 1
UUID=0A1B-2C3D                            /boot/efi vfat umask=0077                 0 1
/dev/md0                                  /scratch  xfs  noatime,nofail             0 2
10.10.0.5:/home                           /home     nfs4 defaults,_netdev           0 0
10.10.0.9@tcp:/data                       /data     lustre flock,_netdev            0 0
"""

MDSTAT = """\
Personalities : [raid0] [raid1]
md0 : active raid0 nvme4n1[3] nvme3n1[2] nvme2n1[1] nvme1n1[0]
      15002423296 blocks super 1.2 512k chunks

unused devices: <none>
"""


def build(root: Path, *, cpus: int, memory_kib: int) -> None:
    """Write them below `root`."""
    for part in (_cpus(cpus), _numa(cpus, memory_kib), _edac(), _kernel(memory_kib), _disks()):
        _write(root, part)
    _write(root, {
        "proc/1/mountinfo": MOUNTS, "proc/mdstat": MDSTAT, "etc/fstab": FSTAB,
        "var/log/wtmp": wtmp(BOOTED_AT), f"proc/{SLURMD}/limits": LIMITS,
    })  # fmt: skip
    for place in ("home", "data", "scratch", "boot/efi"):
        os.makedirs(root / place, exist_ok=True)


def wtmp(*boots_at: float) -> bytes:
    """Boot records as init writes them: struct utmp of x86-64, 384 bytes each."""
    return b"".join(
        struct.pack("<hhi32s4s32s256shhiii16s20x", 2, 0, 0, b"~", b"~~", b"reboot", b"6.8.0", 0, 0,
                    0, int(at), 0, b"")
        for at in boots_at
    )  # fmt: skip


def _write(root: Path, files: Mapping[str, object]) -> None:
    for path, content in files.items():
        target = f"{root}/{path}"
        os.makedirs(os.path.dirname(target), exist_ok=True)
        raw = content if isinstance(content, bytes) else f"{content}".encode()
        with open(target, "wb") as out:
            out.write(raw if raw.endswith(b"\n") or isinstance(content, bytes) else raw + b"\n")


def _cpus(cpus: int) -> dict[str, object]:
    base = "sys/devices/system/cpu"
    files: dict[str, object] = {
        f"{base}/present": f"0-{cpus - 1}", f"{base}/online": f"0-{cpus - 1}",
        f"{base}/smt/control": "on",
    }  # fmt: skip
    for policy in range(POLICIES):
        place = f"{base}/cpufreq/policy{policy * cpus // POLICIES}"
        files |= {
            f"{place}/scaling_governor": "performance", f"{place}/scaling_driver": "intel_pstate",
            f"{place}/scaling_cur_freq": 3_000_000, f"{place}/scaling_max_freq": MAX_KHZ,
            f"{place}/cpuinfo_max_freq": MAX_KHZ,
        }  # fmt: skip
    for socket in range(SOCKETS):
        place = f"{base}/cpu{socket * cpus // SOCKETS}"
        files |= {
            f"{place}/topology/physical_package_id": socket,
            f"{place}/thermal_throttle/package_throttle_count": 0,
            f"{place}/thermal_throttle/package_throttle_total_time_ms": 0,
        }
    return files


def _numa(cpus: int, memory_kib: int) -> dict[str, object]:
    files: dict[str, object] = {}
    for node in range(SOCKETS):
        share, first = memory_kib // SOCKETS, node * cpus // SOCKETS
        place = f"sys/devices/system/node/node{node}"
        files[f"{place}/cpulist"] = f"{first}-{first + cpus // SOCKETS - 1}"
        files[f"{place}/meminfo"] = (
            f"Node {node} MemTotal:       {share} kB\nNode {node} MemFree:        {share // 2} kB\n"
            f"Node {node} HugePages_Total:     0\nNode {node} HugePages_Free:      0\n"
        )
    return files


def _edac() -> dict[str, object]:
    """Eight controllers of two DIMMs."""
    files: dict[str, object] = {}
    for controller in range(8):
        place = f"sys/devices/system/edac/mc/mc{controller}"
        files |= {f"{place}/ce_count": 0, f"{place}/ue_count": 0}
        for dimm in range(2):
            label = f"CPU_SrcID#{controller // 4}_MC#{controller % 4}_Chan#{dimm}_DIMM#0"
            files |= {
                f"{place}/dimm{dimm}/dimm_label": label, f"{place}/dimm{dimm}/dimm_ce_count": 0,
                f"{place}/dimm{dimm}/dimm_ue_count": 0,
            }  # fmt: skip
    return files


def meminfo(memory_kib: int = MEMORY_KIB, swap_kib: int = 0, swap_free_kib: int = 0) -> str:
    """/proc/meminfo, most of the memory free."""
    return (
        f"MemTotal: {memory_kib} kB\nMemFree: {memory_kib // 2} kB\n"
        f"MemAvailable: {memory_kib * 9 // 10} kB\n"
        f"SwapTotal: {swap_kib} kB\nSwapFree: {swap_free_kib} kB\n"
        f"Committed_AS: {memory_kib // 8} kB\nHardwareCorrupted: 0 kB\n"
        "HugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n"
    )


def _kernel(memory_kib: int) -> dict[str, object]:
    blocks = " ".join(["900"] * 11)
    clock = "sys/devices/system/clocksource/clocksource0"
    return {
        "proc/meminfo": meminfo(memory_kib),
        "proc/vmstat": "nr_free_pages 264125000\npswpin 0\npswpout 0\n",
        "proc/buddyinfo": f"Node 0, zone   Normal {blocks}\nNode 1, zone   Normal {blocks}\n",
        "proc/sys/fs/file-nr": "21344\t0\t9223372036854775807",
        "proc/sys/kernel/pid_max": 4194304,
        "proc/sys/kernel/threads-max": 16508642,
        "proc/sys/kernel/tainted": 12289,
        "proc/sys/kernel/random/entropy_avail": 256,
        "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        "proc/pressure/io": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        f"{clock}/current_clocksource": "tsc",
        f"{clock}/available_clocksource": "tsc hpet acpi_pm",
        "sys/kernel/iommu_groups/0/type": "identity",
    }


def _disks() -> dict[str, object]:
    files: dict[str, object] = {}
    lines = []
    for disk in range(DISKS):
        block, place = f"sys/block/nvme{disk}n1", f"sys/class/nvme/nvme{disk}"
        lines.append(
            f" 259 {disk * 4} nvme{disk}n1 81234 0 6498720 9120 41234 0 3298720 5120 {IDLE}"
        )
        files |= {
            f"{block}/queue/rotational": 0, f"{block}/ro": 0, f"{block}/device/model": MODEL,
            f"{place}/state": "live", f"{place}/model": MODEL, f"{place}/firmware_rev": "GDC5902Q",
            f"{place}/transport": "pcie", f"{place}/address": f"0000:0{disk + 1}:00.0",
            f"{place}/hwmon{disk}/temp1_input": 38_850, f"{place}/hwmon{disk}/temp1_max": 79_850,
            f"{place}/hwmon{disk}/temp1_crit": 84_850,
        }  # fmt: skip
    return {**files, "proc/diskstats": "\n".join(lines)}
