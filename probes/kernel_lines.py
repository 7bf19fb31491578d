"""Kernel log lines of GPU nodes: one event per line, whichever reader printed it. Pure.

Shapes: Xid, SXid and "off the bus" as the open driver and gpud spell them, AER and lockups of
Linux, mlx5 as in NVSentinel's syslog patterns, file systems as in gpud and node-problem-detector.
Parsing anchors on keywords; what does not match is no event, never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

from msgspec import Struct, field

from probes.event import Scalar


class KernelEvent(Struct, frozen=True, kw_only=True):
    """One thing the kernel said."""

    kind: str
    """xid, sxid, off_bus, rminit, mismatch, aer, mce, mlx5, lockup, hung_task, oom, nfs, lustre,
    nvme, fs."""
    text: str
    """The line without its prefix."""
    mono: float | None = None
    """Seconds since boot."""
    wall: float | None = None
    """Epoch seconds; None when the prefix has no date."""
    pci: str | None = None
    """Lower-case, without function for Xid ("0000:52:00"), as printed otherwise."""
    code: int | None = None
    pid: int | None = None
    process: str | None = None
    facts: dict[str, Scalar] = field(default_factory=dict)


class Burst(Struct, frozen=True, kw_only=True):
    """Xid events of one GPU without `gap_s` of silence between them."""

    pci: str
    events: tuple[KernelEvent, ...]
    root: KernelEvent
    """What started it: the worst Xid by rank, not merely the first line."""


_KMSG = re.compile(r"^(?P<prio>\d+),\d+,(?P<usec>\d+),[^;]*;")
_MONO = re.compile(r"^(?:<\d+>)?\[\s*(?P<mono>\d+\.\d+)\](?:\[\s*[TC]\d+\])?\s*")
_ISO = re.compile(
    r"^(?:[a-z]+\s*:[a-z]+\s*:\s*)?"
    r"(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\s+"
)
_CTIME = re.compile(r"^\[(?P<ctime>[A-Z][a-z]{2} [A-Z][a-z]{2}\s+\d+ \d\d:\d\d:\d\d \d{4})\]\s*")
_SYSLOG = re.compile(r"^(?P<short>[A-Z][a-z]{2}\s+\d+ \d\d:\d\d:\d\d)\s+")
_HOST = re.compile(r"^\S+\s+kernel(?:\[\d+\])?:\s*")

_BDF = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?"
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?(?P<pci>{_BDF})(?P<mig>(?: GPU-[IC]+:\d+)*)\): (?P<code>\d+)"
    r"(?:,\s*(?P<rest>.*))?$",
    re.IGNORECASE,
)
_PID = re.compile(r"^pid='?(?P<pid>-?\d+|<unknown>)'?,\s*(?:name=(?P<rest>.*))?$")
_TEXT_STARTS = re.compile(
    r", (?=Ch [0-9a-f]{8}|Graphics |GPU |Row |Contained|Uncontained|Timeout |An uncorrectable|MMU |"
    r"Channel |GSP |NVLink|Ring |RST|[A-Z0-9][A-Za-z0-9_ ]*[:(]|something )"
)
_SXID = re.compile(
    rf"nvidia-nvswitch(?P<switch>\d+): SXid \(PCI:(?P<pci>{_BDF})\): (?P<code>\d{{5}}), "
    r"(?P<severity>Fatal|Non-fatal), (?:Link (?P<link>\d+) )?(?P<text>.*)$"
)
_OFF_BUS = re.compile(
    rf"NVRM: GPU (?:at PCI:)?(?P<pci>{_BDF}): GPU has fallen off the bus", re.IGNORECASE
)
_OFF_BUS_LOAD = re.compile(rf"NVRM: The NVIDIA GPU (?P<pci>{_BDF})", re.IGNORECASE)
_RMINIT = re.compile(rf"NVRM: (?:GPU (?P<pci>{_BDF}): )?RmInitAdapter failed", re.IGNORECASE)
_MISMATCH = re.compile(r"NVRM: API mismatch: .*client.* version (?P<client>[\d.]+)")
_AER = re.compile(
    rf"(?:\S+ )?(?P<pci>{_BDF}): (?:AER: )?(?:PCIe|CXL) Bus Error: "
    r"severity=(?P<severity>Corrected|Correctable|Uncorrected(?: \([\w-]+\))?), "
    r"type=(?P<layer>[^,]+)",
    re.IGNORECASE,
)
_MLX5 = re.compile(rf"mlx5_core (?P<pci>{_BDF})(?: (?P<dev>\w+))?:? (?P<text>.*)$")
_MODULE = r"[Pp]ort module event.*module (?P<module>\d+).*"
_MLX5_KINDS = (
    ("insufficient_power", re.compile(r"insufficient power on the PCIe slot \((?P<watt>\d+)W\)")),
    ("high_temperature", re.compile(_MODULE + r"High Temperature")),
    ("cable_unplugged", re.compile(_MODULE + r"unplugged")),
    ("link_down", re.compile(r"Port: (?P<port>\d+) Link DOWN|Link down")),
    ("link_active", re.compile(r"Port: (?P<port>\d+) Link ACTIVE|Link up")),
    ("access_reg", re.compile(r"ACCESS_REG")),
    ("command_timeout", re.compile(r"Will cause a leak of a command resource|timeout\. Will")),
    ("health_compromised", re.compile(r"health compromised|unrecoverable hardware error")),
)
_OTHERS = (
    ("lockup", re.compile(r"soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<seconds>\d+)s")),
    ("hung_task", re.compile(
        r"task (?P<comm>.+):(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds")),
    ("oom", re.compile(r"Out of memory: Kill(?:ed)? process (?P<pid>\d+) \((?P<comm>[^)]*)\)")),
    ("nfs", re.compile(r"nfs: server (?P<server>\S+) (?P<what>not responding|OK)")),
    ("lustre", re.compile(
        r"(?:Lustre|LNet)(?:Error)?:.*?(?P<target>[\w-]+-(?:OST|MDT)[0-9a-f]{4})")),
    ("nvme", re.compile(r"nvme nvme\d+: .*(?:timeout|reset|Disabling|I/O error)")),
    ("mce", re.compile(r"\[Hardware Error\]|mce: .*(?:Machine check|MCE)|EDAC .*(?P<class>CE|UE)")),
    ("fs", re.compile(
        r"EXT4-fs error|XFS .*(?:shut|Corruption)|[Rr]emounting filesystem read-only")),
)  # fmt: skip


@lru_cache(maxsize=65536)
def parse(line: str, year: int | None = None) -> KernelEvent | None:
    """The event in a line with any prefix, or None.

    `year` completes the short syslog form, which has none.
    """
    mono, wall, text = _prefix(line.rstrip(), year)
    found = _xid(text) or _sxid(text) or _driver(text) or _aer(text) or _mlx5(text) or _other(text)
    if found is None:
        return None
    return KernelEvent(
        kind=str(found.pop("kind")),
        text=text,
        mono=mono,
        wall=wall,
        pci=_text(found.pop("pci", None)),
        code=_int(found.pop("code", None)),
        pid=_int(found.pop("pid", None)),
        process=_text(found.pop("process", None)),
        facts={name: value for name, value in found.items() if value is not None},
    )


_Found = dict[str, Scalar | None]


def _text(value: Scalar | None) -> str | None:
    return None if value is None else str(value)


def _int(value: Scalar | None) -> int | None:
    return None if value is None else int(value)


def _prefix(line: str, year: int | None) -> tuple[float | None, float | None, str]:
    """(seconds since boot, epoch seconds, rest) of any reader's line."""
    if match := _KMSG.match(line):
        return int(match["usec"]) / 1e6, None, line[match.end() :]
    if match := _MONO.match(line):
        return float(match["mono"]), None, line[match.end() :]
    if match := _CTIME.match(line):
        at = datetime.strptime(match["ctime"], "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
        return None, at.timestamp(), line[match.end() :]
    if match := _ISO.match(line):
        stamp = match["iso"].replace(",", ".").replace("Z", "+00:00")
        at = datetime.fromisoformat(stamp)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return None, at.timestamp(), _HOST.sub("", line[match.end() :])
    if match := _SYSLOG.match(line):
        wall = None
        if year is not None:
            stamp = f"{year} {match['short']}"
            at = datetime.strptime(stamp, "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)
            wall = at.timestamp()
        return None, wall, _HOST.sub("", line[match.end() :])
    return None, None, line


def _xid(text: str) -> _Found | None:
    match = _XID.search(text) if "Xid" in text else None
    if match is None:
        return None
    pid, process, said = _who(match["rest"] or "")
    found: _Found = {
        "kind": "xid", "pci": match["pci"].lower().split(".")[0], "code": int(match["code"]),
        "pid": pid, "process": process, "said": said,
    }  # fmt: skip
    if match["mig"]:
        found["mig"] = match["mig"].strip()
    found.update(_xid_facts(int(match["code"]), said))
    return found


def _who(rest: str) -> tuple[int | None, str | None, str]:
    """(pid, process, text) after the code: names may hold commas and brackets, pids quotes."""
    match = _PID.match(rest) or re.match(r"^pid='?(?P<pid>-?\d+|<unknown>)'?(?P<rest>)$", rest)
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


def _xid_facts(code: int, said: str) -> _Found:
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
        to = re.search(r"to 0x[0-9a-fA-F]+ \((?P<name>[^)]*)\)", said)
        return {"recovery": to["name"]} if to else {}
    if code == 119:
        seconds = re.search(r"Timeout after (?P<s>\d+)s", said)
        return {"seconds": int(seconds["s"])} if seconds else {}
    return {}


def _sxid(text: str) -> _Found | None:
    match = _SXID.search(text) if "SXid" in text else None
    if match is None:
        return None
    return {
        "kind": "sxid", "pci": match["pci"].lower(), "code": int(match["code"]),
        "switch": int(match["switch"]), "fatal": match["severity"] == "Fatal",
        "link": None if match["link"] is None else int(match["link"]), "said": match["text"],
    }  # fmt: skip


def _driver(text: str) -> _Found | None:
    if "NVRM" not in text:
        return None
    for kind, pattern in (("off_bus", _OFF_BUS), ("off_bus", _OFF_BUS_LOAD), ("rminit", _RMINIT)):
        if match := pattern.search(text):
            return {"kind": kind, "pci": None if match["pci"] is None else match["pci"].lower()}
    if match := _MISMATCH.search(text):
        return {"kind": "mismatch", "client": match["client"]}
    return None


def _aer(text: str) -> _Found | None:
    match = _AER.search(text) if "Bus Error" in text else None
    if match is None:
        return None
    severity = match["severity"].lower()
    return {
        "kind": "aer", "pci": match["pci"].lower(), "layer": match["layer"],
        "corrected": severity.startswith("correct"), "fatal": "(fatal" in severity,
    }  # fmt: skip


def _mlx5(text: str) -> _Found | None:
    match = _MLX5.search(text) if "mlx5_core" in text else None
    if match is None:
        return None
    for what, pattern in _MLX5_KINDS:
        if inner := pattern.search(match["text"]):
            facts = {k: int(v) for k, v in inner.groupdict().items() if v is not None}
            pci, dev = match["pci"].lower(), match["dev"]
            return {"kind": "mlx5", "pci": pci, "what": what, "dev": dev, **facts}
    return None


def _other(text: str) -> _Found | None:
    for kind, pattern in _OTHERS:
        if match := pattern.search(text):
            found: _Found = {"kind": kind}
            for name, value in match.groupdict().items():
                found[name] = int(value) if value is not None and value.isdigit() else value
            return found
    return None


def unique(events: Iterable[KernelEvent], within_s: float = 5.0) -> list[KernelEvent]:
    """Without repetitions of one event, by whichever readers; 5 s is practice of field studies."""
    kept: list[KernelEvent] = []
    last: dict[tuple[object, ...], float] = {}
    for event in events:
        at = event.mono if event.mono is not None else event.wall
        key = (event.kind, event.pci, event.code, event.text.partition("kernel: ")[2] or event.text)
        if key in last and (at is None or abs(at - last[key]) <= within_s):
            continue
        last[key] = at if at is not None else 0.0
        kept.append(event)
    return kept


def bursts(events: Iterable[KernelEvent], rank: dict[int, int], gap_s: float) -> list[Burst]:
    """Xid events grouped by GPU until `gap_s` of silence; `rank`: code -> how much it explains."""
    groups: dict[str, list[list[KernelEvent]]] = {}
    for event in events:
        if event.kind != "xid" or event.pci is None:
            continue
        series = groups.setdefault(event.pci, [[]])
        last = series[-1][-1] if series[-1] else None
        if last is not None and (event.mono or 0.0) - (last.mono or 0.0) > gap_s:
            series.append([])
        series[-1].append(event)
    return [
        Burst(pci=pci, events=tuple(burst), root=max(burst, key=lambda e: rank.get(e.code or 0, 1)))
        for pci, series in groups.items()
        for burst in series
        if burst
    ]
