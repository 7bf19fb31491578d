"""What software a simulated node runs: daemons in /proc, package files, kernel modules, settings.

The names are those of Ubuntu 22.04 with NVIDIA's data-centre packages on an HGX H100 under Slurm.
`UNITS` is what the node's `systemctl` answers from (console/demo/tools.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

DRIVER = "580.95.05"
KERNEL = "5.15.0-157-generic"
UNITS = "run/systemd/units.json"
"""Below the root: unit -> what `systemctl show` prints of it; an absent one is not installed."""

DAEMONS = {
    2: "kthreadd", 1201: "nv-fabricmanager", 1202: "nvidia-persistenced", 1203: "nv-hostengine",
    1204: "slurmd", 1205: "munged", 1206: "containerd", 1207: "chronyd",
}  # fmt: skip
"""Pid -> program; 2 is a kernel thread."""

FABRIC_LOG = "var/log/fabricmanager.log"
FABRIC_LINE = f"[Mon Mar 02 2026 03:12:07] [INFO] [tid 1201] Fabric Manager version {DRIVER}\n"

RUNNING = (
    "nvidia-fabricmanager.service", "nvidia-persistenced.service", "nvidia-dcgm.service",
    "slurmd.service", "munge.service", "containerd.service", "chrony.service",
)  # fmt: skip

MODULES = (
    "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia", "gdrdrv", "ib_umad",
    "ib_uverbs", "ib_core", "rdma_ucm", "rdma_cm", "mlx5_ib", "mlx5_core", "ib_ipoib", "nvme",
)  # fmt: skip

PACKAGES = {
    "libnccl2": "2.27.3-1+cuda12.9", "nvidia-container-toolkit": "1.17.8-1",
    "nvidia-fabricmanager-580": f"{DRIVER}-1", "mlnx-ofed-kernel-utils": "24.10.OFED.24.10.1-1",
    "slurmd": "24.11.5-1", "datacenter-gpu-manager-4-core": "1:4.4.1-1",
}  # fmt: skip

SYSCTLS = {
    "net/core/rmem_max": 212992, "net/core/wmem_max": 212992, "vm/swappiness": 60,
    "vm/zone_reclaim_mode": 0, "kernel/numa_balancing": 0, "vm/overcommit_memory": 0,
}  # fmt: skip

Write = Callable[[Path, str, str], None]


def build(root: Path, write: Write, *, cpus: int) -> None:
    """All files of one healthy node; `write(root, path, text)` makes one."""
    for path, text in files(cpus).items():
        write(root, path, text)
    (root / "run/systemd/system").mkdir(parents=True, exist_ok=True)
    for pid, program in DAEMONS.items():
        write(root, f"proc/{pid}/comm", f"{program[:15]}\n")
        write(
            root, f"proc/{pid}/stat", f"{pid} ({program[:15]}) S 1 {pid} {pid} 0 -1 4194560 0 0\n"
        )
        if len(program) > 15:
            write(root, f"proc/{pid}/cmdline", f"/usr/bin/{program}\0")
    for path, target in links().items():
        link = root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target)


def files(cpus: int) -> dict[str, str]:
    """Path -> text."""
    return {
        UNITS: units(),
        "proc/modules": "".join(f"{name} 16384 1 - Live 0x0000000000000000\n" for name in MODULES),
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  "
        f"{DRIVER}  Tue Sep 23 10:11:16 UTC 2025\n",
        "proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{KERNEL} root=UUID=9d2f8c11-4c1a ro "
        "iommu=pt pci=realloc=off console=tty0\n",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\n"
        "microcode\t: 0x2b000643\n",
        "proc/sys/kernel/osrelease": f"{KERNEL}\n",
        "sys/devices/system/cpu/online": f"0-{cpus - 1}\n",
        "sys/devices/system/node/has_cpu": "0-1\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
        "var/lib/dpkg/status": dpkg(PACKAGES),
        "etc/containerd/config.toml": CONTAINERD,
        "run/containerd/containerd.sock": "",
        "etc/cdi/nvidia.yaml": cdi(range(8)),
        "usr/bin/nvidia-container-runtime": "",
        "usr/bin/enroot": "",
        FABRIC_LOG: FABRIC_LINE,
        "usr/lib/x86_64-linux-gnu/libnccl.so.2.27.3": "",
        "usr/local/cuda-12.9/version.json": '{"cuda": {"version": "12.9.1"}}\n',
        **{f"sys/class/dmi/id/{name}": f"{text}\n" for name, text in DMI.items()},
        **{f"proc/sys/{name}": f"{value}\n" for name, value in SYSCTLS.items()},
    }


DMI = {
    "bios_version": "2.5a", "bios_date": "05/12/2025", "product_name": "HGX-8U",
    "board_name": "X13DEG-OAD", "sys_vendor": "Demo",
}  # fmt: skip

CONTAINERD = """\
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
"""


def links() -> dict[str, str]:
    """Path -> target."""
    return {
        "usr/lib/x86_64-linux-gnu/libnccl.so.2": "libnccl.so.2.27.3",
        "usr/local/cuda": "cuda-12.9",
    }


def dpkg(packages: dict[str, str]) -> str:
    """A status file of dpkg with these packages installed."""
    return "".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\n"
        f"Version: {version}\n\n"
        for name, version in packages.items()
    )


def cdi(minors: range, driver: str = DRIVER) -> str:
    """A CDI specification as nvidia-ctk writes it, less what nobody reads."""
    devices = "".join(
        f"- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia{n}\n  name: \"{n}\"\n"
        for n in minors
    )  # fmt: skip
    return (
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"
        f"containerEdits:\n  mounts:\n  - hostPath: /usr/lib/libcuda.so.{driver}\n"
        f"devices:\n{devices}"
    )


HEALTHY = {
    "LoadState": "loaded", "ActiveState": "active", "SubState": "running",
    "UnitFileState": "enabled", "NRestarts": "0", "Result": "success",
    "ExecMainStartTimestampMonotonic": "31000000",
}  # fmt: skip
"""Properties of a unit that runs."""


def units(changed: Mapping[str, Mapping[str, str] | None] | None = None) -> str:
    """UNITS of a healthy node, with some properties of some units changed; None: not installed."""
    found = {name: dict(HEALTHY) for name in RUNNING}
    for name, properties in (changed or {}).items():
        if properties is None:
            found.pop(name, None)
        else:
            found[name] = {**HEALTHY, **properties}
    return json.dumps(found)
