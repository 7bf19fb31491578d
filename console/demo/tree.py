"""Many nodes' /sys, /proc and /dev from one: files that never change are hard links to a template.

A tree has 1,500 entries; writing it costs 45 ms of CPU, linking it 5. A file that the story changes
must be the node's own from the beginning, because the agent keeps counters open: see OWN_NAMES.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from console.demo import sysfs
from console.demo.hardware import Hardware

OWN_NAMES = frozenset({
    "state", "phys_state", "rate", "lid", "node_guid", "sys_image_guid", "config",
    "link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors",
    "port_rcv_data", "port_rcv_packets", "port_xmit_data", "port_xmit_packets",
    "version", "fw_ver", "ce_count", "dimm_ce_count",
})  # fmt: skip
"""Names below /sys of files that differ between nodes or change."""
OWN_TREES = ("proc/", "dev/", "etc/", "run/", "var/")

PATTERN_NUMBER = 0x0FFF
"""The template's node number; node numbers begin at 1 and stay below."""


class Template:
    """One healthy node's tree, and copies of it."""

    def __init__(self, root: Path, hardware: Hardware, scenario: str = "") -> None:
        """Writes the template below `root`; `scenario` names the story, for its boot ids."""
        self._root, self._scenario = root, scenario
        device = f"0x{hardware.device_id[:4]}"
        sysfs.build(root, hostname="template", number=PATTERN_NUMBER, gpu_device=device)
        self._directories: list[str] = []
        self._links: list[tuple[str, str]] = []
        self._shared: list[str] = []
        self._own: dict[str, bytes] = {}
        self._scan("")

    def _scan(self, inside: str) -> None:
        for entry in sorted(os.scandir(self._root / inside), key=lambda e: e.name):
            path = f"{inside}{entry.name}"
            if entry.is_symlink():
                self._links.append((path, os.readlink(entry.path)))
            elif entry.is_dir():
                self._directories.append(path)
                self._scan(f"{path}/")
            elif path.startswith(OWN_TREES) or entry.name in OWN_NAMES:
                self._own[path] = Path(entry.path).read_bytes()
            else:
                self._shared.append(path)

    def text(self, path: str) -> str:
        """A file of the template."""
        return self._own[path].decode()

    def clone(self, root: Path, name: str, number: int) -> None:
        """The same node under another name, with its own GUIDs, LIDs and boot id.

        The boot id is the same in every process: two looks at one story are no reboot.
        """
        source, target = str(self._root), str(root)
        os.makedirs(target)
        for path in self._directories:
            os.mkdir(f"{target}/{path}", 0o755)
        for path, to in self._links:
            os.symlink(to, f"{target}/{path}")
        for path in self._shared:
            os.link(f"{source}/{path}", f"{target}/{path}")
        for path, content in {**self._own, **self._named(name, number)}.items():
            with open(f"{target}/{path}", "wb") as out:
                out.write(content)

    def _named(self, name: str, number: int) -> dict[str, bytes]:
        boot_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.{self._scenario}")
        found = {
            "proc/sys/kernel/hostname": f"{name}\n".encode(),
            "proc/sys/kernel/random/boot_id": f"{boot_id}\n".encode(),
        }
        pattern, ours = f":{PATTERN_NUMBER:04x}:".encode(), f":{number:04x}:".encode()
        for path, content in self._own.items():
            if path.endswith("_guid"):
                found[path] = content.replace(pattern, ours)
            elif path.endswith("/lid") and int(content, 16):
                lid = int(content, 16) + (number - PATTERN_NUMBER) * 16
                found[path] = f"{lid:#x}\n".encode()
        return found
