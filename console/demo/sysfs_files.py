"""Files, links and PCI functions of a simulated node's /sys, written as plain files below a root.

Files that change are rewritten in place: sysfs files keep their inode, and so must these, as the
agent keeps them open.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from console.demo.sysfs_text import AER


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


def link(root: Path, path: str, target: str) -> None:
    """A relative link below the root, as sysfs has them."""
    link = root / path
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(root / target, link.parent))


def many(root: Path, base: str, files: Mapping[str, object]) -> None:
    """New files of one directory: a tree has 1,200, so no check per file."""
    directory = str(root / base)
    os.makedirs(directory, exist_ok=True)
    for name, value in files.items():
        with open(f"{directory}/{name}", "w") as out:
            out.write(f"{value}\n")


def pci(
    root: Path, place: str, vendor: str, device: str, kind: str, *, gen: str = "32.0", numa: int = 0
) -> str:
    """A PCI function at `place` below /sys/devices, on the bus list; returns its directory."""
    base, address = f"sys/devices/{place}", place.rsplit("/", 1)[-1]
    speed = f"{gen} GT/s PCIe"
    many(root, base, {
        "vendor": vendor, "device": device, "class": kind, "numa_node": numa, "enable": 1,
        "current_link_speed": speed, "max_link_speed": speed,
        "current_link_width": 16, "max_link_width": 16,
    })  # fmt: skip
    words = [int(vendor, 16), int(device, 16)]
    head = b"".join(word.to_bytes(2, "little") for word in words)
    write(root, f"{base}/config", head.ljust(64, b"\0"))
    link(root, f"sys/bus/pci/devices/{address}", base)
    return base


def aer(root: Path, base: str) -> None:
    """The counters of PCIe's advanced error reporting below `base`, all zero."""
    for name, (total, kinds) in AER.items():
        lines = [*(f"{kind} 0" for kind in kinds.split()), f"{total} 0"]
        many(root, base, {name: "\n".join(lines)})
