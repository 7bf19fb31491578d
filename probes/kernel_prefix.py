"""What readers of the kernel log put in front of a line: stamps, levels, host names, tags. Pure.

Prefixes come in layers: what kubectl adds, then syslog's, then the kernel's own. Each layer is
peeled off by its shape, whatever the reader was called with. A stamp without a zone is read as UTC
and says so; one without a year needs the year from the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

LAYERS = 6
"""Most prefixes in front of one line: pod, CRI, level, time, host and tag, kernel stamp."""


class Stamp(NamedTuple):
    """What the prefixes of one line say."""

    text: str
    """The line without them."""
    mono: float | None = None
    """Seconds since boot."""
    wall: float | None = None
    """Epoch seconds."""
    host: str = ""
    program: str = ""
    """The tag of syslog; "" without one. Only the kernel speaks for the kernel."""
    prio: int | None = None
    form: str = ""
    """Which clock printed it: kmsg, dmesg, ctime, dmesg-iso, iso, full, short, unix, container."""
    zoned: bool = True
    """False when `wall` was read as UTC for want of a zone."""
    yearless: bool = False
    """`wall` has the caller's year."""


_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_KMSG = re.compile(r"(?P<prio>\d{1,5}),\d{1,20},(?P<usec>\d{1,18}),[^;]{0,200};")
_LEVEL = re.compile(r"<(?P<prio>\d{1,3})>(?:1 (?=\d{4}-))?")
_DECODED = re.compile(
    r"(?P<facility>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local\d)\s*:"
    r"(?P<level>emerg|alert|crit|err|warn|notice|info|debug)\s*:\s?"
)
_LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
_DELTA = r"(?:\s*<\s*[+-]?\d{1,12}\.\d{1,9}\s*>)?"
_MONO = re.compile(rf"\[\s*(?P<mono>\d{{1,12}}\.\d{{1,9}}){_DELTA}\s*\] ?")
_CALLER = re.compile(r"\[\s*[TC]\d{1,10}\]\s?")
_CTIME = re.compile(
    rf"\[(?P<ctime>(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) "
    rf"(?:{_MONTHS})\s+\d{{1,2}} \d\d:\d\d:\d\d \d{{4}})"
    rf"{_DELTA}\] ?"
)
_RELATIVE = re.compile(
    rf"\[(?:(?:{_MONTHS})\s*\d{{1,2}} \d\d:\d\d|\s*\+\d{{1,12}}\.\d{{1,9}}"
    rf"|<\s*\d{{1,12}}\.\d{{1,9}}>"
    r")\] ?"
)
_ISO = re.compile(
    r"(?P<bracket>\[)?(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?P<fraction>[.,]\d{1,9})?"
    r"(?:Z|[+-]\d\d:?\d\d)?)(?(bracket)\])(?:\s+|$)"
)
_FULL = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<iso>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?)"
    r" (?P<zone>[A-Z]{1,6}|[+-]\d\d(?::?\d\d)?)(?:\s+|$)"
)
_SHORT = re.compile(
    rf"(?P<short>(?:{_MONTHS})\s+\d{{1,2}} \d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{{1,9}}))?\s+"
)
_UNIX = re.compile(r"(?P<unix>\d{9,11}\.\d{3,9}) (?=\S+ \S+?:)")
_CRI = re.compile(r"(?:stdout|stderr) [FP] ")
_POD = re.compile(r"\[(?:pod/)?[\w.-]{1,253}/[\w./-]{1,253}\] ")
_HOST_TAG = re.compile(r"(?P<host>[\w.:-]{1,253}) (?P<tag>[\w./@-]{1,64})(?:\[\d{1,10}\])?:(?: |$)")
_HOST_5424 = re.compile(r"(?P<host>[\w.:-]{1,253}) (?P<tag>[\w./@-]{1,64}) \S{1,64} \S{1,64} - ?")
_TAG = re.compile(r"kernel(?:\[\d{1,10}\])?: ?")
_MERGED = re.compile(
    r"(?P<host>[A-Za-z0-9][\w.-]{0,252})(?::\s*|\s+)"
    rf"(?=\[\s*\d+\.\d+|\[\w{{3}} \w{{3}} |<\d{{1,3}}>|(?:{_MONTHS})\s+\d{{1,2}} \d\d:"
    r"|\d{4}-\d\d-\d\d[T ]\d|kern\s*:|\d,\d+,\d+,)"
)
_MERGED_BARE = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]{0,252}):\s+(?=NVRM: |nvidia-nvswitch\d)")
_WORDS = frozenset({
    "kernel", "kern", "watchdog", "mce", "rcu", "pcieport", "nvidia", "INFO", "BUG", "nvme",
    "mlx5_core", "EDAC", "EXT4-fs", "XFS", "task", "infiniband", "efa", "md", "device",
    "block", "ice", "ixgbe", "AER", "nvidia-modeset", "AMD-Vi", "DMAR",
})  # fmt: skip
"""Words that begin kernel messages and are no host name."""


def split(line: str, year: int | None = None) -> Stamp:
    """The prefixes of any reader's line, and the rest.

    `year` completes forms that have none; without it their `wall` stays unknown.
    """
    stamp = Stamp(line)
    for _ in range(LAYERS):
        peeled = _peel(stamp, year)
        if peeled is None:
            break
        stamp = peeled
    return stamp


def _peel(stamp: Stamp, year: int | None) -> Stamp | None:
    """The stamp with one more layer read; None when the text begins."""
    text = stamp.text
    for peel in _BY_FIRST.get(text[:1], _OTHERS):
        if (peeled := peel(stamp, text, year)) is not None:
            return peeled
    return None


def _kmsg(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    if stamp.mono is not None or (match := _KMSG.match(text)) is None:
        return None
    return stamp._replace(
        text=text[match.end() :], mono=int(match["usec"]) / 1e6, form="kmsg",
        prio=int(match["prio"]) & 7,
    )  # fmt: skip


def _level(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    if stamp.prio is not None or (match := _LEVEL.match(text)) is None:
        return None
    return stamp._replace(text=text[match.end() :], prio=int(match["prio"]) & 7)


def _decoded(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    if stamp.prio is not None or (match := _DECODED.match(text)) is None:
        return None
    return stamp._replace(text=text[match.end() :], prio=_LEVELS.index(match["level"]))


def _bracketed(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    """What dmesg puts in brackets, and the task or CPU that newer kernels add."""
    if stamp.mono is None and (match := _MONO.match(text)):
        form = stamp.form or "dmesg"
        return stamp._replace(text=text[match.end() :], mono=float(match["mono"]), form=form)
    if stamp.wall is None and (match := _CTIME.match(text)):
        wall = _epoch(match["ctime"], "%a %b %d %H:%M:%S %Y")
        return stamp._replace(text=text[match.end() :], wall=wall, form="ctime", zoned=False)
    for pattern in (_CALLER, _RELATIVE, _POD):
        if match := pattern.match(text):
            return stamp._replace(text=text[match.end() :])
    return _iso(stamp, text, year)


def _iso(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    if (match := _ISO.match(text)) is None:
        return None
    if stamp.wall is not None and stamp.form not in ("iso", "dmesg-iso"):
        return None
    said = match["iso"].replace(",", ".").replace("Z", "+00:00").replace(" ", "T")
    wall = _epoch(said)
    if wall is None:
        return None
    comma = (match["fraction"] or "").startswith(",")
    return stamp._replace(
        text=text[match.end() :], wall=wall, form="dmesg-iso" if comma else "iso",
        zoned=bool(re.search(r"[+-]\d\d:?\d\d$", said)),
    )  # fmt: skip


def _full(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    if stamp.wall is not None or (match := _FULL.match(text)) is None:
        return None
    zone = match["zone"]
    known = zone in ("UTC", "GMT", "Z") or zone[0] in "+-"
    offset = (zone if len(zone) > 3 else zone + "00") if zone[0] in "+-" else "+00:00"
    wall = _epoch(match["iso"].replace(" ", "T") + offset)
    return stamp._replace(text=text[match.end() :], wall=wall, form="full", zoned=known)


def _short(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    if stamp.wall is not None or (match := _SHORT.match(text)) is None:
        return None
    wall = None if year is None else _epoch(f"{year} {match['short']}", "%Y %b %d %H:%M:%S")
    if wall is not None and match["fraction"]:
        wall += float(f"0.{match['fraction']}")
    return stamp._replace(
        text=text[match.end() :], wall=wall, form="short", zoned=False, yearless=True
    )


def _unix(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    if stamp.wall is not None or (match := _UNIX.match(text)) is None:
        return None
    return stamp._replace(text=text[match.end() :], wall=float(match["unix"]), form="unix")


def _container(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    match = _CRI.match(text)
    return None if match is None else stamp._replace(text=text[match.end() :])


def _host_and_tag(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    """ "gpu-a01 kernel: " behind a time; the tag alone where a template leaves the host out."""
    if stamp.program:
        return None
    if match := _TAG.match(text):
        return stamp._replace(text=text[match.end() :], program="kernel")
    if not stamp.form:
        return None
    for pattern in (_HOST_TAG, _HOST_5424):
        match = pattern.match(text)
        if match is None or match["host"].rstrip(":") in _WORDS or match["host"].endswith(":"):
            continue
        if stamp.form in _HOSTED or match["tag"] == "kernel":
            return stamp._replace(
                text=text[match.end() :], host=match["host"], program=match["tag"]
            )
    return None


def _merged(stamp: Stamp, text: str, year: int | None) -> Stamp | None:
    """ "gpu-a01 [ 12.3] ..." of pdsh, clush and our own bundles."""
    if stamp.host or stamp.form:
        return None
    match = _MERGED.match(text) or _MERGED_BARE.match(text)
    if match is None or match["host"] in _WORDS:
        return None
    return stamp._replace(text=text[match.end() :], host=match["host"])


_HOSTED = ("iso", "full", "short", "unix")
"""Forms of syslog and the journal; behind dmesg's own stamps a first word is the message."""
_Peel = Callable[[Stamp, str, "int | None"], "Stamp | None"]
_OTHERS: tuple[_Peel, ...] = (
    _decoded, _short, _full, _container, _host_and_tag, _merged,
)  # fmt: skip
_BY_FIRST: dict[str, tuple[_Peel, ...]] = {
    "[": (_bracketed,),
    "<": (_level,),
    **dict.fromkeys("0123456789", (_kmsg, _iso, _unix, _host_and_tag, _merged)),
}


def _epoch(stamp: str, form: str = "") -> float | None:
    """Epoch seconds, UTC without a zone; `form` "" is ISO. None for a date that is none."""
    try:
        at = datetime.strptime(stamp, form) if form else datetime.fromisoformat(stamp)  # noqa: DTZ007
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
