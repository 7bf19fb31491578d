"""Probe "versions": what software and settings a node has, for comparison with its peers.

Serial numbers and secrets stay on the node: of the kernel command line only words leave that are
the same on a node's peers by nature (see `words`). Rows are those words.
"""

import re

from probes.node import kernel_setup, packages, pci
from probes.node.calls import Stuck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from probes.node.context import Context

    Values = Dict[str, Any]

NAME = "versions"
INTERVAL = "rare"
COUNTERS = False

SYSCTLS = (
    "net.core.rmem_max", "net.core.wmem_max", "net.core.netdev_max_backlog", "net.core.somaxconn",
    "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_congestion_control",
    "net.ipv4.conf.all.rp_filter", "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.conf.all.arp_announce", "vm.swappiness", "vm.zone_reclaim_mode",
    "vm.overcommit_memory", "vm.max_map_count", "vm.min_free_kbytes", "kernel.numa_balancing",
    "kernel.pid_max", "kernel.panic_on_oops", "fs.nr_open",
)  # fmt: skip
"""Settings that decide over RDMA, multi-rail Ethernet and memory of training jobs."""

DMI = {
    "bios": "bios_version", "bios_date": "bios_date", "system": "product_name",
    "board": "board_name", "maker": "sys_vendor",
}  # fmt: skip
METRICS = {
    "kernel": ("", "info", "kernel release"),
    "os": ("", "info", "distribution and version"),
    "bios": ("", "info", "BIOS version"),
    "bios_date": ("", "info", "BIOS date"),
    "system": ("", "info", "product name of the machine"),
    "board": ("", "info", "name of the mainboard"),
    "maker": ("", "info", "maker of the machine"),
    "cpu_model": ("", "info", "CPU model"),
    "cpu_count": ("", "gauge", "CPUs online"),
    "microcode": ("", "info", "CPU microcode revision"),
    "memory_gib": ("GiB", "gauge", "memory"),
    "numa_nodes": ("", "gauge", "NUMA nodes with CPUs"),
    "hugepages": ("", "gauge", "huge pages reserved"),
    "thp": ("", "info", "transparent huge pages: always, madvise or never"),
    "cgroup": ("", "info", "cgroup hierarchy, v1 or v2"),
    "nvswitches": ("", "gauge", "NVSwitches on the PCI bus"),
    "driver": ("", "info", "version of the loaded NVIDIA kernel module"),
    "driver_kind": ("", "info", "open or proprietary kernel module"),
    "gsp": ("", "info", "GPU firmware version"),
    "cuda_toolkit": ("", "info", "CUDA toolkit of /usr/local/cuda"),
    "nccl": ("", "info", "version of the host's libnccl"),
    "ofed": ("", "info", "version of the mlx5 driver or of the OFED packages"),
    "toolkit": ("", "info", "version of the NVIDIA container toolkit"),
    "fabricmanager": ("", "info", "version of the installed fabric manager"),
    "imex": ("", "info", "version of the installed nvidia-imex"),
    "dcgm": ("", "info", "version of DCGM"),
    "slurm": ("", "info", "version of slurmd"),
    "word": ("", "info", "a word of the kernel command line"),
}
METRICS.update({"sysctl." + name: ("", "info", "kernel setting") for name in SYSCTLS})

TEXT_CHARS = 120
WORDS = 96
OWN_KEYS = frozenset((
    "root", "boot_image", "initrd", "ip", "hostname", "resume", "bootif", "ifname", "nfsroot",
    "netroot", "systemd.machine_id", "nodename", "dm-mod", "inst.ks", "ks", "ostree", "xcatd",
    "xcat", "bootdev", "gateway",
))  # fmt: skip
OWN_ENDINGS = ("uuid", ".lv")
"""Options that differ from node to node by nature."""
_SECRET = re.compile(
    r"pass|token|secret|key=|credential|://|@|^[^=]*(?:auth|chap|cookie|key|login|psk|pwd?\b|pw=|user)",
    re.IGNORECASE,
)


def collect(ctx: "Context") -> "Tuple[Dict[str, Values], List[Values]]":
    """One device "". What this node does not show is missing."""
    values: "Values" = {}
    for part in (_system, _cpus, _memory, _nvidia, _settings):
        values.update(part(ctx))
    try:
        with ctx.busy("read package databases", "packages"):
            values.update(_software(ctx))
    except Stuck:
        pass
    kept = {
        name: value[:TEXT_CHARS] if isinstance(value, str) else value
        for name, value in values.items()
        if value is not None and value != ""
    }
    return {"": kept}, [{"word": word} for word in words(ctx.read("proc/cmdline") or "")]


def _system(ctx: "Context") -> "Values":
    values: "Values" = {name: _line(ctx, "sys/class/dmi/id", file) for name, file in DMI.items()}
    values["kernel"] = _line(ctx, "proc/sys/kernel/osrelease")
    for place in ("etc/os-release", "usr/lib/os-release"):
        for line in (ctx.read(place) or "").splitlines():
            if line.startswith("PRETTY_NAME="):
                values.setdefault("os", line.partition("=")[2].strip("\"' "))
    return values


def _line(ctx: "Context", *parts: "str") -> "str":
    return (ctx.read(*parts) or "").strip()


def _cpus(ctx: "Context") -> "Values":
    """Model and microcode of the first CPU; Arm kernels name a part number instead."""
    values: "Values" = {}
    names = {"model name": "cpu_model", "CPU part": "cpu_model", "microcode": "microcode"}
    for line in (ctx.read("proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in names:
            values.setdefault(names[key.strip()], value.strip())
    values["cpu_count"] = _counted(ctx, "sys/devices/system/cpu/online")
    values["numa_nodes"] = _counted(ctx, "sys/devices/system/node/has_cpu")
    return values


def _counted(ctx: "Context", place: "str") -> "Optional[int]":
    """How many a list as "0-55,112" holds; None when it cannot be read."""
    total = 0
    for part in (_line(ctx, place)).split(","):
        low, _, high = part.partition("-")
        if not low.isdecimal() or not (high or low).isdecimal():
            return None
        total += int(high or low) - int(low) + 1
    return total


def _memory(ctx: "Context") -> "Values":
    values: "Values" = {}
    for line in (ctx.read("proc/meminfo") or "").splitlines():
        key, _, rest = line.partition(":")
        number = rest.split()[:1]
        if not number or not number[0].isdecimal():
            continue
        if key == "MemTotal":
            values["memory_gib"] = round(int(number[0]) / 1048576.0, 1)
        elif key == "HugePages_Total":
            values["hugepages"] = int(number[0])
    chosen = re.search(r"\[(\w+)\]", _line(ctx, "sys/kernel/mm/transparent_hugepage/enabled"))
    values["thp"] = chosen.group(1) if chosen else None
    if ctx.read("sys/fs/cgroup/cgroup.controllers") is not None:
        values["cgroup"] = "v2"
    elif ctx.listdir("sys/fs/cgroup"):
        values["cgroup"] = "v1"
    return values


def _nvidia(ctx: "Context") -> "Values":
    values: "Values" = {"driver": _line(ctx, "sys/module/nvidia/version")}
    first = (ctx.read("proc/driver/nvidia/version") or "").split("\n")[0]
    if first:
        values["driver_kind"] = "open" if "Open Kernel Module" in first else "proprietary"
    for address in ctx.listdir("proc/driver/nvidia/gpus")[:1]:
        for line in (ctx.read("proc/driver/nvidia/gpus", address, "information") or "").split("\n"):
            if line.startswith("GPU Firmware:"):
                values["gsp"] = line.partition(":")[2].strip()
    if ctx.listdir(pci.DEVICES):
        values["nvswitches"] = sum(1 for a in ctx.listdir(pci.DEVICES) if _is_nvswitch(ctx, a))
    return values


def _is_nvswitch(ctx: "Context", address: "str") -> "bool":
    """An NVIDIA "bridge, other"; Blackwell's switches are InfiniBand devices and not counted."""
    if ctx.read(pci.DEVICES, address, "vendor") != pci.NVIDIA:
        return False
    return (ctx.read(pci.DEVICES, address, "class") or "").startswith("0x0680")


def _settings(ctx: "Context") -> "Values":
    found: "Values" = {}
    for name in SYSCTLS:
        found["sysctl." + name] = " ".join(_line(ctx, "proc/sys", *name.split(".")).split())
    return found


def _software(ctx: "Context") -> "Values":
    values: "Values" = dict(packages.versions(ctx))
    values["nccl"] = packages.nccl_version(ctx) or values.get("nccl")
    values.setdefault("ofed", _line(ctx, "sys/module/mlx5_core/version"))
    found = re.search(
        r'"cuda"[^}]*"version"\s*:\s*"([0-9.]+)"', ctx.read("usr/local/cuda/version.json") or ""
    ) or re.search(r"cuda-(\d+\.\d+)", ctx.readlink("usr/local/cuda") or "")
    values["cuda_toolkit"] = found.group(1) if found else None
    return values


def words(cmdline: "str") -> "List[str]":
    """Words of a kernel command line that peers share, sorted; secrets and own ones left out."""
    kept = set()
    for word in kernel_setup.split(cmdline):
        key = word.partition("=")[0].lower()
        own = key in OWN_KEYS or key.endswith(OWN_ENDINGS)
        if not own and word.isprintable() and not _SECRET.search(word):
            kept.add(word[:TEXT_CHARS])
    return sorted(kept)[:WORDS]
