"""Xid and SXid lines of the NVIDIA drivers, and what the text of some codes adds. Pure."""

from __future__ import annotations

import re

from probes import kernel_nvlink
from probes.kernel_nvlink import Found

__all__ = ["BDF", "Found", "address", "sxid", "xid"]

BDF = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?"
"""A PCI address, with or without domain and function."""

_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?(?P<pci>{BDF})(?P<mig>(?: GPU-[IC]{{1,2}}:\d{{1,4}}){{0,2}})\): "
    r"(?P<code>\d{1,6})(?:,\s*(?P<rest>.*))?$",
    re.IGNORECASE,
)
_PID = re.compile(r"^pid='?(?P<pid>-?\d{1,10}|<[\w/]{1,12}>)'?,\s*(?:name=(?P<rest>.*))?$")
_ONLY_PID = re.compile(r"^pid='?(?P<pid>-?\d{1,10}|<[\w/]{1,12}>)'?(?P<rest>)$")
_TEXT_STARTS = re.compile(
    r", (?=Ch [0-9a-f]{8}|channel 0x|Graphics |GPU |Row |Dynamic |Contained|Uncontained|Timeout |"
    r"An uncorrectable|MMU |Channel |GSP |NVLink|"
    r"caused by |due to |Ring |RST|errorString|[A-Z0-9][A-Za-z0-9_ ]*[:(]|"
    r"[A-Z][A-Z0-9_]+\s+(?:Nonf|F)atal\b|something )"
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
_PLACE = re.compile(r"GPC (?P<gpc>\d{1,3}), TPC (?P<tpc>\d{1,3})(?:, SM (?P<sm>\d{1,3}))?")
_FAULT = re.compile(
    r"ENGINE (?P<engine>\w{1,40})(?: (?P<client>\w{1,40}))? faulted"
    r"(?:.{0,80}?type (?P<fault>FAULT_\w{1,40}))?"
)
_GSP = (
    re.compile(r"Timeout after (?P<seconds>\d{1,9})s"),
    re.compile(r"from GPU(?P<gpu>\d{1,4}) GSP"),
    re.compile(r"Expected function \d{1,6} \((?P<function>\w{1,64})\)"),
)
_CAUSED = re.compile(
    r"(?:caused by|due to|because of) (?:a )?(?:previous )?Xid (?P<code>\d{1,6})", re.IGNORECASE
)
_SXID = re.compile(
    rf"nvidia-nvswitch(?P<switch>\d{{1,4}}): SXid \(PCI:(?P<pci>{BDF})\): (?P<code>\d{{5}}), "
    r"(?P<severity>Fatal|Non-fatal), (?:Link (?P<link>\d{1,4}) )?(?P<text>.*)$",
    re.IGNORECASE,
)


def address(text: str) -> str:
    """A PCI address as the console writes it: lower case, four digits of domain."""
    domain, _, rest = text.lower().rpartition(":")
    domain, _, bus = domain.rpartition(":")
    return f"{int(domain or '0', 16):04x}:{bus}:{rest}"


def xid(text: str) -> Found | None:
    """An Xid line without prefix; None when it is none."""
    match = _XID.search(text) if "Xid" in text else None
    if match is None:
        return None
    code = int(match["code"])
    pid, process, said = _who(match["rest"] or "")
    found: Found = {
        "kind": "xid", "pci": address(match["pci"]).partition(".")[0], "code": code,
        "pid": pid, "process": process, "said": said,
    }  # fmt: skip
    for name, key in (("GPU-I", "mig_gi"), ("GPU-CI", "mig_ci")):
        if part := re.search(rf" {name}:(\d+)", match["mig"], re.IGNORECASE):
            found[key] = int(part[1])
    found.update(_xid_facts(code, said))
    return found


def _who(rest: str) -> tuple[int | None, str | None, str]:
    """(pid, process, text) after the code: names may hold commas and brackets, pids quotes."""
    match = _PID.match(rest) or _ONLY_PID.match(rest)
    if match is None:
        return None, None, rest
    pid = None if match["pid"].startswith("<") else int(match["pid"])
    if match["rest"] is None:
        return pid, None, rest.partition(",")[2].strip()
    where = _TEXT_STARTS.search(match["rest"])
    if where is not None:
        name, said = match["rest"][: where.start()], match["rest"][where.end() :]
    else:
        name, _, said = match["rest"].partition(", ")
    name = name.strip("'")
    return pid, None if name in ("<unknown>", "<n/a>", "") else name, said


def _xid_facts(code: int, said: str) -> Found:
    """What the text of some codes adds; the number alone would mislead."""
    if code in (63, 64):
        return {"remap": _remap(code, said)}
    if code in (94, 95):
        reset = re.search(r"(?<![-\w])RST: (Yes|No)", said)
        return {"rst": reset[1] == "Yes"} if reset else {}
    if code == 154:
        return _recovery(said)
    if code in (13, 31, 45, 119, 120):
        return _where(said)
    return kernel_nvlink.decoded(code, said)


def _remap(code: int, said: str) -> str | None:
    """What became of a bad row (or, before Ampere, page)."""
    if re.search(r"already pending|already retired", said):
        return "already_pending"
    if code == 63:
        return "page_retired" if "age" in said and "etire" in said else "pending"
    if "remap a reserved row" in said:
        return "reserved_row"
    if re.search(r"All reserved rows|table is full|reserved row|exhausted", said):
        return "spare_rows_exhausted"
    return "failed"


def _where(said: str) -> Found:
    """Which unit of the GPU, how long, or which Xid before it, as far as the text tells."""
    found: Found = {}
    for pattern in (_PLACE, _FAULT, *_GSP):
        if match := pattern.search(said):
            for name, value in match.groupdict().items():
                found[name] = int(value) if value and value.isdigit() else value
    if match := _CAUSED.search(said):
        found["caused_by"] = int(match["code"])
    return found


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
        "kind": "sxid", "pci": address(match["pci"]), "code": int(match["code"]),
        "switch": int(match["switch"]), "fatal": match["severity"].lower() == "fatal",
        "link": None if match["link"] is None else int(match["link"]), "said": match["text"],
    }  # fmt: skip
