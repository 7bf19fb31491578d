"""Lines about file servers, disks and file systems. Pure."""

from __future__ import annotations

import re

from probes.kernel_xid import Found

_NFS = re.compile(
    r"(?:nfs|lockd): server (?P<server>\S{1,255}) (?P<what>not responding|OK|timed out)"
    r"(?P<soft>, timed out)?",
    re.IGNORECASE,
)
_NFS_LOST = re.compile(
    r"(?:nfs4_reclaim_open_state|NFS: .{0,60}?): Lock reclaim failed|Lock reclaim failed"
)
_LUSTRE = re.compile(r"(?:Lustre|LNet)(?P<error>Error)?:")
_TARGET = re.compile(r"(?P<target>[\w-]{1,64}-(?:OST|MDT)[0-9a-f]{4}|\bMGS\b)")
_LUSTRE_STATES = (
    ("lost", re.compile(r"Connection to \S+ .{0,80}was lost")),
    ("restored", re.compile(r"Connection restored to")),
    ("evicted", re.compile(r"was evicted by")),
)
_NVME = re.compile(r"nvme (?P<dev>nvme\d{1,4}): (?P<text>.*)$")
_NVME_KINDS = (
    ("dead", re.compile(
        r"Disabling device after|Removing after probe|reset failure"
        r"|Device not ready; aborting")),
    ("reset", re.compile(
        r"controller is down|resetting controller|timeout, (?:reset"
        r"|disable) controller")),
    ("timeout", re.compile(r"\btimeout, (?:aborting|completion|reset|disable)")),
    ("error", re.compile(r"I/O error|Media and Data Integrity|critical warning", re.IGNORECASE)),
)  # fmt: skip
_BLOCK = re.compile(
    r"(?:(?P<medium>critical medium error|critical target error)|I/O error)(?:,|:"
    r"| on)? dev (?P<dev>[\w-]{2,32})"
)
_NO_DISK = re.compile(r"(?:sr|fd|loop|zram|nbd|ram)\d")
"""Drives without a medium and devices of software: their errors are no disk's."""
_MD = re.compile(r"(?P<dev>md\d{1,4}): Disk failure on (?P<disk>[\w-]{2,32}), disabling")
_FILE_SYSTEMS = (
    re.compile(r"EXT4-fs (?P<what>error) \(device (?P<dev>[^)]{1,40})\)"),
    re.compile(r"EXT4-fs \((?P<dev>[^)]{1,40})\): (?P<what>[Rr]emounting filesystem read-only)"),
    re.compile(
        r"XFS \((?P<dev>[^)]{1,40})\): .{0,200}?(?P<what>[Cc]orruption|[Ss]hut(?:ting)? ?down"
        r"|I/O error)"),
    re.compile(
        r"BTRFS(?: error)?(?: \(device (?P<dev>[^)]{1,40})\))?.{0,120}?"
        r"(?P<what>forced readonly)"),
    re.compile(r"Aborting journal on device (?P<dev>dm-\d{1,4}|[\w!-]{2,32}?)(?:-8)?\.(?P<what>)"),
)  # fmt: skip
"""A journal inside its file system is named by the device and inode 8: "sda1-8"."""
_READ_ONLY = re.compile(r"read-?only|shut ?down|shutting down", re.IGNORECASE)


def storage(text: str) -> Found | None:
    """What file servers, disks and file systems are said to do; None for any other line."""
    return _servers(text) or _disks(text) or _file_systems(text)


def _servers(text: str) -> Found | None:
    if "server " in text and (match := _NFS.search(text)):
        what = "OK" if match["what"].upper() == "OK" else "not responding"
        gave_up = bool(match["soft"]) or match["what"].lower() == "timed out"
        return {"kind": "nfs", "server": match["server"], "what": what, "gave_up": gave_up or None}
    if "reclaim" in text and _NFS_LOST.search(text):
        return {"kind": "nfs", "server": "?", "what": "locks lost"}
    if ("Lustre" in text or "LNet" in text) and (match := _LUSTRE.search(text)):
        target = _TARGET.search(text)
        if target is None:
            return None
        what = next((word for word, pattern in _LUSTRE_STATES if pattern.search(text)), "")
        otherwise = "error" if match["error"] else "note"
        return {"kind": "lustre", "target": target["target"], "what": what or otherwise}
    return None


def _disks(text: str) -> Found | None:
    if "nvme" in text and (match := _NVME.search(text)):
        for what, pattern in _NVME_KINDS:
            if pattern.search(match["text"]):
                return {"kind": "nvme", "dev": match["dev"], "what": what}
    if "dev " in text and (match := _BLOCK.search(text)):
        if _NO_DISK.match(match["dev"]):
            return None
        kind = "nvme" if match["dev"].startswith("nvme") else "disk"
        return {"kind": kind, "dev": match["dev"], "what": "medium" if match["medium"] else "error"}
    if "Disk failure" in text and (match := _MD.search(text)):
        return {"kind": "disk", "dev": match["dev"], "what": "array", "disk": match["disk"]}
    return None


def _file_systems(text: str) -> Found | None:
    for pattern in _FILE_SYSTEMS:
        if match := pattern.search(text):
            what = match["what"] or "journal aborted"
            read_only = True if _READ_ONLY.search(what) else None
            return {"kind": "fs", "dev": match["dev"] or "?", "what": what, "read_only": read_only}
    return None
