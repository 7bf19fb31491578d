"""Xid and SXid lines of the NVIDIA drivers, and what the text of some codes adds. Pure."""

from __future__ import annotations

import re
from typing import TypeAlias

from probes.event import Scalar

Found: TypeAlias = dict[str, Scalar | None]
"""What a line holds: kind, pci, code, pid, process where known, and facts of its own."""

BDF = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?"
"""A PCI address, with or without function."""

_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?(?P<pci>{BDF})(?P<mig>(?: GPU-[IC]+:\d+)*)\): "
    r"(?P<code>\d{1,6})(?:,\s*(?P<rest>.*))?$",
    re.IGNORECASE,
)
_PID = re.compile(r"^pid='?(?P<pid>-?\d{1,10}|<unknown>)'?,\s*(?:name=(?P<rest>.*))?$")
_TEXT_STARTS = re.compile(
    r", (?=Ch [0-9a-f]{8}|Graphics |GPU |Row |Contained|Uncontained|Timeout |An uncorrectable|MMU |"
    r"Channel |GSP |NVLink|Ring |RST|[A-Z0-9][A-Za-z0-9_ ]*[:(]|something )"
)
_TO = re.compile(
    r"changed from .*\bto "
    r"(?:0x(?P<hex>[0-9a-fA-F]{1,8})(?: \((?P<name>[^)]*)\))?|(?P<bare>[A-Z].*))"
)
_RECOVERY_WORDS = (
    (0, re.compile("none", re.IGNORECASE)),
    (3, re.compile("p2p", re.IGNORECASE)),
    (4, re.compile("drain and reset", re.IGNORECASE)),
    (2, re.compile("reboot", re.IGNORECASE)),
    (1, re.compile("reset|flr", re.IGNORECASE)),
    (5, re.compile("imex", re.IGNORECASE)),
)
_SXID = re.compile(
    rf"nvidia-nvswitch(?P<switch>\d{{1,4}}): SXid \(PCI:(?P<pci>{BDF})\): (?P<code>\d{{5}}), "
    r"(?P<severity>Fatal|Non-fatal), (?:Link (?P<link>\d{1,4}) )?(?P<text>.*)$"
)


def xid(text: str) -> Found | None:
    """An Xid line without prefix; None when it is none."""
    match = _XID.search(text) if "Xid" in text else None
    if match is None:
        return None
    pid, process, said = _who(match["rest"] or "")
    found: Found = {
        "kind": "xid", "pci": match["pci"].lower().split(".")[0], "code": int(match["code"]),
        "pid": pid, "process": process, "said": said,
    }  # fmt: skip
    if match["mig"]:
        found["mig"] = match["mig"].strip()
    found.update(_xid_facts(int(match["code"]), said))
    return found


def _who(rest: str) -> tuple[int | None, str | None, str]:
    """(pid, process, text) after the code: names may hold commas and brackets, pids quotes."""
    match = _PID.match(rest) or re.match(r"^pid='?(?P<pid>-?\d{1,10}|<unknown>)'?(?P<rest>)$", rest)
    if match is None:
        return None, None, rest
    pid = None if match["pid"] == "<unknown>" else int(match["pid"])
    if match["rest"] is None:
        return pid, None, rest.partition(",")[2].strip()
    where = _TEXT_STARTS.search(match["rest"])
    if where is not None:
        name, said = match["rest"][: where.start()], match["rest"][where.end() :]
    else:
        name, _, said = match["rest"].partition(", ")
    return pid, None if name in ("<unknown>", "") else name, said


def _xid_facts(code: int, said: str) -> Found:
    """What the text of some codes adds; the number alone would mislead."""
    if code == 64:
        if "already pending" in said:
            return {"remap": "already_pending"}
        if re.search(r"All reserved rows|table is full|reserved row", said):
            return {"remap": "spare_rows_exhausted"}
        return {"remap": "failed"}
    if code in (94, 95):
        reset = re.search(r"(?<![-\w])RST: (Yes|No)", said)
        return {"rst": reset[1] == "Yes"} if reset else {}
    if code == 154:
        return _recovery(said)
    if code == 119:
        seconds = re.search(r"Timeout after (?P<s>\d+)s", said)
        return {"seconds": int(seconds["s"])} if seconds else {}
    return {}


def _recovery(said: str) -> Found:
    """The code behind `to`, numbered as NVML's field 230, and its name in this driver's words.

    The words differ between drivers ("Node Reboot Required", "OS Reboot"), so they only serve
    where a line has no number.
    """
    match = _TO.search(said)
    if match is None:
        return {}
    name = (match["name"] or match["bare"] or "").strip()
    if match["hex"]:
        return {"recovery": int(match["hex"], 16), "recovery_name": name}
    code = next((code for code, words in _RECOVERY_WORDS if words.search(name)), None)
    return {"recovery": code, "recovery_name": name}


def sxid(text: str) -> Found | None:
    """An NVSwitch line with its severity word; None for others, and for its Data lines."""
    match = _SXID.search(text) if "SXid" in text else None
    if match is None:
        return None
    return {
        "kind": "sxid", "pci": match["pci"].lower(), "code": int(match["code"]),
        "switch": int(match["switch"]), "fatal": match["severity"] == "Fatal",
        "link": None if match["link"] is None else int(match["link"]), "said": match["text"],
    }  # fmt: skip
