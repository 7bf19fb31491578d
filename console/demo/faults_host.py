"""What faults of the host show: services, software, mounts, memory, limits and time. Pure.

service_down   the fabric manager failed: its unit, its log, no process
clock          chronyd died, and nothing else keeps the clock
drift          another driver, with what belongs to it, and one adapter with old firmware
nfs_hang       the server of /home is silent: kernel lines, three tasks of users in D state
read_only      /scratch stopped writing after an I/O error of its array
dimm           one DIMM corrects CORRECTED_PER_S errors a second
memlock        jobs may lock 64 KiB: slurmd was started without its unit's limit
swapping       memory is read back from swap at PAGES_PER_S

A tree of files cannot refuse an answer or fill up: /home is silent by its kernel lines and waiting
tasks only, and no file system of a simulated node is ever full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from console.demo import host_tree, services_tree
from console.demo.scenario import Fault

Files = dict[str, str | bytes | None]
"""Path below the root -> content; None: the file is not there."""

ERR, WARN = 3, 4
EARLIER_S = 840.0
"""Faults of second 0 left their kernel lines this long before the story."""

CORRECTED_PER_S = 3.0
PAGES_PER_S = 5200.0
"""Five times the limits of host.edac_ce_per_min and host.swap_in_per_s, and more."""
PAGES_BEFORE = 1_000_000
STUCK_PIDS = (51101, 51102, 51103)
SERVER = "10.10.0.5"

OTHER_DRIVER = "570.124.06"
OTHER_ADAPTER, OTHER_FIRMWARE = "mlx5_3", "28.36.1010"
DIMM = "sys/devices/system/edac/mc/mc3"
DIMM_LABEL = "CPU_SrcID#0_MC#3_Chan#1_DIMM#0"
FABRIC_ERROR = (
    "[Mon Mar 02 2026 03:12:09] [ERROR] [tid 1201] failed to configure all the available GPUs or "
    "NVSwitches, NVLink port down on NVSwitch 2\n"
)
"""Shape of a line in the log of an HGX node; not copied from one."""


class Task(NamedTuple):
    """A task in uninterruptible sleep."""

    command: tuple[str, ...]
    wchan: str
    cwd: str


def files(faults: Sequence[Fault], t: float) -> Files:
    """What the faults present at story time t change below the root."""
    found: Files = {}
    kinds = {fault.kind: max(0.0, t - fault.at_s) for fault in faults}
    units: dict[str, dict[str, str] | None] = {}
    if "service_down" in kinds:
        units["nvidia-fabricmanager.service"] = FAILED
        log = services_tree.FABRIC_LINE + FABRIC_ERROR
        found |= {**_gone("nv-fabricmanager"), services_tree.FABRIC_LOG: log}
    if "clock" in kinds:
        units["chrony.service"] = FAILED
        found |= _gone("chronyd")
    if units:
        found[services_tree.UNITS] = services_tree.units(units)
    if "drift" in kinds:
        found |= _drift()
    if "read_only" in kinds:
        found["proc/1/mountinfo"] = host_tree.MOUNTS.replace("xfs /dev/md0 rw,", "xfs /dev/md0 ro,")
    if "dimm" in kinds:
        count = 40 + int(CORRECTED_PER_S * kinds["dimm"])
        found |= {f"{DIMM}/ce_count": f"{count}\n", f"{DIMM}/dimm1/dimm_ce_count": f"{count}\n"}
    if "memlock" in kinds:
        locked = "Max locked memory         65536                65536                bytes     \n"
        found[f"proc/{host_tree.SLURMD}/limits"] = "".join(
            locked if line.startswith("Max locked") else line
            for line in host_tree.LIMITS.splitlines(keepends=True)
        )
    if "swapping" in kinds:
        found |= _swapping(kinds["swapping"])
    return found


FAILED = {
    "ActiveState": "failed", "SubState": "failed", "Result": "exit-code",
    "ExecMainStartTimestampMonotonic": "0",
}  # fmt: skip


def _gone(program: str) -> Files:
    """A daemon's process has ended."""
    pid = next(pid for pid, name in services_tree.DAEMONS.items() if name == program)
    return {f"proc/{pid}/{name}": None for name in ("stat", "comm", "cmdline")}


def _drift() -> Files:
    """Everything that carries the driver's version, so that the node is at one with itself."""
    before = services_tree.files(1)
    changed = (
        "proc/driver/nvidia/version", "var/lib/dpkg/status", "etc/cdi/nvidia.yaml",
    )  # fmt: skip
    found: Files = {
        path: before[path].replace(services_tree.DRIVER, OTHER_DRIVER) for path in changed
    }
    found["sys/module/nvidia/version"] = f"{OTHER_DRIVER}\n"
    found[f"sys/class/infiniband/{OTHER_ADAPTER}/fw_ver"] = f"{OTHER_FIRMWARE}\n"
    return found


def _swapping(since_s: float) -> Files:
    size = 64 << 20
    pages = PAGES_BEFORE + int(PAGES_PER_S * since_s)
    return {
        "proc/meminfo": host_tree.meminfo(swap_kib=size, swap_free_kib=size // 20),
        "proc/vmstat": f"nr_free_pages 264125\npswpin {pages}\npswpout {2 * pages}\n",
    }


def driver(faults: Sequence[Fault], healthy: str) -> str:
    """Version of the NVIDIA driver that the node runs."""
    return OTHER_DRIVER if any(fault.kind == "drift" for fault in faults) else healthy


def stuck(faults: Sequence[Fault]) -> dict[int, Task]:
    """Tasks that wait for a file server that does not answer."""
    if not any(fault.kind == "nfs_hang" for fault in faults):
        return {}
    python = Task(("/usr/bin/python3", "/home/mara/eval.py"), "rpc_wait_bit_killable", "/home/mara")
    shell = Task(("/bin/bash",), "rpc_wait_bit_killable", "/home/okafor")
    return dict(zip(STUCK_PIDS, (python, python, shell), strict=True))


def lines(fault: Fault) -> Iterator[tuple[float, int, str]]:
    """(story time, priority, text) of the kernel lines that the fault leaves, oldest first."""
    at = fault.at_s if fault.at_s > 0 else -EARLIER_S
    for after_s, prio, text in _LINES.get(fault.kind, ()):
        yield at + after_s, prio, text


_LINES: dict[str, tuple[tuple[float, int, str], ...]] = {
    "nfs_hang": ((0.0, ERR, f"nfs: server {SERVER} not responding, still trying"),),
    "read_only": (
        (0.0, ERR, "blk_update_request: I/O error, dev nvme2n1, sector 81234432 op 0x1:(WRITE)"),
        (0.1, ERR, "XFS (md0): log I/O error -5"),
        (0.2, ERR, "XFS (md0): Filesystem has been shut down due to log error (0x2)."),
    ),
    "dimm": ((0.0, WARN, f"EDAC MC3: 1 CE memory read error on {DIMM_LABEL}"),),
}
KINDS = frozenset({
    "service_down", "clock", "drift", "nfs_hang", "read_only", "dimm", "memlock", "swapping",
})  # fmt: skip
"""All of them, for whoever must know whether a kind is one of the host's."""
