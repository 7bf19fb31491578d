"""Lines about the host: machine checks, hangs, memory, storage. Pure."""

from __future__ import annotations

import re

from probes.kernel_xid import Found

_OTHERS = (
    ("lockup", re.compile(
        r"soft lockup - CPU#(?P<cpu>\d{1,6}) stuck for (?P<seconds>\d{1,9})s!?"
        r"(?: \[(?P<comm>.+?):\d+\])?")),
    ("hung_task", re.compile(
        r"task (?P<comm>.+):(?P<pid>\d{1,10}) blocked for more than (?P<seconds>\d{1,9}) seconds")),
    ("oom", re.compile(
        r"[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d{1,10}) \((?P<comm>[^)]*)\)")),
    ("nfs", re.compile(r"nfs: server (?P<server>\S+) (?P<what>not responding|OK)")),
    ("lustre", re.compile(
        r"(?:Lustre|LNet)(?P<error>Error)?:.*?(?P<target>[\w-]+-(?:OST|MDT)[0-9a-f]{4})")),
    ("nvme", re.compile(
        r"nvme (?P<dev>nvme\d+): (?:.*\btimeout, (?:aborting|reset|disable|completion)"
        r"|controller is down|Disabling device|Removing after|.*reset failure|.*I/O error)")),
    ("nvme", re.compile(r"I/O error, dev (?P<dev>nvme\d+n\d+)")),
    ("fs", re.compile(r"EXT4-fs (?P<what>error) \(device (?P<dev>[^)]{1,40})\)")),
    ("fs", re.compile(
        r"(?:EXT4-fs|XFS) \((?:device )?(?P<dev>[^)]{1,40})\): .*(?P<what>"
        r"[Rr]emounting filesystem read-only|Corruption|shut ?down|Shutting down|I/O error)")),
)  # fmt: skip
_LUSTRE_STATES = (
    ("lost", re.compile(r"Connection to \S+ .*was lost")),
    ("restored", re.compile(r"Connection restored to")),
)
_EDAC = re.compile(r"EDAC \S+: (?P<number>\d{1,9}) (?P<class>CE|UE)\b")
_BANK = re.compile(r"Machine Check(?: Exception)?: [0-9a-f]+ Bank \d+: (?P<status>[0-9a-f]{16})\b")
_MCE_CLASS = re.compile(r"(?:event severity|type): (?P<class>corrected|recoverable|fatal)")
UNCORRECTED_BIT = 1 << 61
"""MCi_STATUS.UC: the hardware could not correct the error (Intel SDM volume 3, machine check)."""


def mce(text: str) -> Found | None:
    """Machine checks, EDAC and firmware-first reports; `corrected` is absent where a line says not.

    One error prints several lines; the check puts them together again.
    """
    if match := _EDAC.search(text):
        corrected = match["class"] == "CE"
        return {"kind": "mce", "corrected": corrected, "number": int(match["number"])}
    if "[Hardware Error]" not in text and "Machine Check" not in text:
        return None
    found: Found = {"kind": "mce"}
    if match := _BANK.search(text):
        found["corrected"] = not int(match["status"], 16) & UNCORRECTED_BIT
    elif match := _MCE_CLASS.search(text):
        found["corrected"] = match["class"] == "corrected"
    return found


def other(text: str) -> Found | None:
    """Lockups, hung tasks, OOM kills, and what storage says; None for any other line."""
    for kind, pattern in _OTHERS:
        if match := pattern.search(text):
            found: Found = {"kind": kind}
            for name, value in match.groupdict().items():
                found[name] = int(value) if name in _NUMBERS and value is not None else value
            if kind == "lustre":
                found["what"] = _lustre(text, error=found.pop("error", None) is not None)
            return found
    return None


_NUMBERS = frozenset({"cpu", "seconds", "pid"})


def _lustre(text: str, *, error: bool) -> str:
    """lost, restored, error, or note for the driver's many harmless messages."""
    for what, pattern in _LUSTRE_STATES:
        if pattern.search(text):
            return what
    return "error" if error else "note"
