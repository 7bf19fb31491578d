"""Lines of a kernel log as records, whichever program wrote it down; in bounded memory.

Plain lines carry their stamps in front. The journal's JSON, export and verbose forms, dmesg --json
and container logs spread one record over keys or lines; they come out in the same shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from console.diagnose.text import Line
from probes.kernel_prefix import Stamp, split

LINE_CHARS = 4000
"""Longest line looked at; the kernel's own limit of a record is 1 KiB of text."""
MESSAGE_CHARS = 1000
RECORD_KEYS = 200
"""Most keys of one record of the journal; the real ones have about thirty."""

WANTED = re.compile(
    r"NVRM|SXid|nvidia-modeset|peermem|NVSwitch|mlx5_core|\befa\b|rdmap|NETDEV WATCHDOG|Unit Hang"
    r"|tx_timeout|TX timeout|tx timeout|[Ll]ink is [UuDd]|[Ll]ost carrier|[Gg]ained carrier"
    r"|Keep alive"
    r"|[Ff]irmware "
    r"|Reset adapter|Rx/Tx|eset (?:failed|requested)"
    r"|Bus Error|AER: |pciehp|power state|DMAR|AMD-Vi|arm-smmu|: +\[ ?\d{1,2}\] [A-Z]"
    r"|Hardware Error|EDAC|Machine Check|emory failure|hardware memory|temperature"
    r"|LOCKUP|lockup|detected|blocked for more|Kernel panic|BUG|Oops|general protection|Unable to"
    r"|segfault|ut of memory|oom-kill|suppressed|server |reclaim|Lustre|LNet|nvme|dev |EXT4-fs"
    r"|XFS|BTRFS|journal on|Disk failure|Linux version|not permitted|ermission denied"
)
"""What an event's line holds at least; everything else is not looked at twice."""


def may_matter(t: str) -> bool:
    """Whether a line can hold what WANTED looks for.

    A chain of `in` takes 1.5 us for a line of 80 characters, the pattern 11 us (measured).
    """
    return (
        "NVRM" in t or "SXid" in t or "nvidia-modeset" in t
        or "peermem" in t or "NVSwitch" in t
        or "mlx5_core" in t or "efa" in t or "rdmap" in t or "WATCHDOG" in t or "Unit Hang" in t
        or "imeout" in t or "ink is " in t or "carrier" in t or "irmware" in t or "adapter" in t
        or "Rx/Tx" in t or "eset " in t or "Error" in t or "AER" in t or "pciehp" in t
        or "power state" in t or "DMAR" in t or "AMD-Vi" in t or "smmu" in t or "   [" in t
        or "EDAC" in t or "Machine Check" in t or "emory" in t or "temperature" in t
        or "LOCKUP" in t or "lockup" in t or "detected" in t or "blocked for" in t
        or "panic" in t or "BUG" in t or "Oops" in t or "protection" in t or "Unable to" in t
        or "segfault" in t or "oom-kill" in t or "suppressed" in t or "server " in t
        or "reclaim" in t or "Lustre" in t or "LNet" in t or "nvme" in t or "error" in t
        or "EXT4-fs" in t or "XFS" in t or "BTRFS" in t or "journal on" in t
        or "Disk failure" in t or "Linux version" in t or "not permitted" in t or "denied" in t
    )  # fmt: skip


_FRAMES = frozenset('#=-${_\t "}')
"""First characters of lines that belong to the form of the text rather than to the log."""

_KEY = re.compile(r"^\s{0,8}(?P<key>_{0,2}[A-Z][A-Z0-9_]{0,63})=(?P<value>.*)$")
_PRETTY = re.compile(r'^\s*"(?P<key>[A-Za-z_]{1,64})"\s*:\s*(?P<value>.*?),?\s*$')
_BYTES = re.compile(r'"MESSAGE"\s?:\s?\[')
"""How the journal writes a message that is not UTF-8."""
_VERBOSE = re.compile(r"^\w{3} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \S+ \[s=")
_USED = frozenset({
    "MESSAGE", "_HOSTNAME", "__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP",
    "_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "PRIORITY", "SYSLOG_IDENTIFIER",
    "_TRANSPORT", "_BOOT_ID", "msg", "time", "pri", "log",
})  # fmt: skip


class Record(NamedTuple):
    """One message of the log."""

    number: int
    """Line of the input."""
    stamp: Stamp
    raw: str
    """As it stands in the input: the evidence."""
    boot_id: str = ""
    dates_only: bool = False
    """The last line of a log: when it ends, nothing else."""


class Frame(NamedTuple):
    """A line that says something about what follows or about the host: headings, clocks, boots."""

    number: int
    text: str
    host: str = ""
    """The name between two rules of dashes, as pdsh and clush print it above a node's lines."""


_GREPPED = re.compile(
    r"^/[\w./-]{1,200}:(?:\d{1,9}[:-])?(?=\w{3} [ \d]\d \d\d:|\[ *\d|\d{4}-\d\d-\d\dT)"
)
"""The file, and the line's number, that grep puts in front."""
_OPENS = ("NVRM: The NVIDIA GPU ", "NVRM: API mismatch")
_GOES_ON = re.compile(
    r"^\s*(?:\S.{0,80}?)?NVRM: (?P<rest>\(PCI ID|installed in this system|fallen off the bus"
    r"|this kernel module has|make sure that|components have).*"
)
CONTINUED = 5
"""Lines that the driver's longest message has after its first."""


def _whole(lines: Iterable[Line]) -> Iterator[Line]:
    """The driver's messages of several lines as one line: only their first has the stamp."""
    held: Line | None = None
    more = 0
    for line in lines:
        if held is not None:
            match = _GOES_ON.match(line.text[:LINE_CHARS]) if "NVRM: " in line.text else None
            if match is not None and more < CONTINUED:
                said = line.text[match.start("rest") : LINE_CHARS]
                held, more = Line(held.number, f"{held.text} NVRM: {said}"), more + 1
                continue
            yield held
            held = None
        if "NVRM: " in line.text and any(word in line.text for word in _OPENS):
            held, more = line, 0
        else:
            yield line
    if held is not None:
        yield held


def records(lines: Iterable[Line], year: int) -> Iterator[Record | Frame]:
    """The records that may hold an event, and the frame lines around them, in order."""
    wanted = WANTED.search
    keys: dict[str, Any] = {}
    last, before, ruled = Line(0, ""), "", 0
    for line in _whole(lines):
        number, text = line
        if text[:1] == "/":
            text = _GREPPED.sub("", text, count=1)
        first = text[:1]
        if first == "-" and _RULE.match(text):
            if number - ruled == 2 and before:
                yield Frame(number, "", before.strip()[:253])
            ruled = number
            continue
        before = text
        if first == "d" and text.startswith("data: {"):  # server-sent events of journalctl
            text, first = text[6:], "{"
        short = len(text) < FRAME_CHARS and (first.isdigit() or text[-5:-3] == " 2")
        if keys or short or first in _FRAMES or text[3:5] == " 2":
            found = _framed(number, text, keys, year)
            if found is not None:
                yield from found
                continue
        if may_matter(text) and wanted(text):
            text = text[:LINE_CHARS]
            yield Record(number, split(text, year), text)
        elif text:
            last = line
    yield from _flushed(last.number, keys)
    if last.text:
        text = last.text[:LINE_CHARS]
        yield Record(last.number, split(text, year), text, dates_only=True)


_RULE = re.compile(r"^-{10,200}\s*$")
FRAME_CHARS = 48
"""A `date` or an uptime is shorter; a log line is hardly ever."""
_CLOCK = re.compile(
    r"^\d{4}-\d\d-\d\d[T ][\d:.,]+(?: ?[+-]\d\d:?\d\d|Z| UTC)?$|^\d{1,10}\.\d\d \d{1,12}\.\d\d$"
    r"|^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d (?:UTC|GMT) \d{4}$"
)


def _framed(number: int, text: str, keys: dict[str, Any], year: int) -> list[Record | Frame] | None:
    """What a frame line gives; None where it is an ordinary line of the log after all."""
    first = text[:1]
    if first == "{" and text.rstrip().endswith("}"):
        return _object(number, text, year)
    if first in "{}":
        return _flushed(number, keys)
    if first in ' \t"' and (match := _PRETTY.match(text)):
        return _pretty(number, match["key"], match["value"], keys)
    if (match := _KEY.match(text)) and (
        keys or match["key"] in ("__CURSOR", "__REALTIME_TIMESTAMP")
    ):
        _put(keys, match["key"], match["value"])
        return []
    if _VERBOSE.match(text):
        return _verbose(number, text, keys)
    if first in "#=-$" or (len(text) < FRAME_CHARS and _CLOCK.match(text)):
        return [*_flushed(number, keys), Frame(number, text[:LINE_CHARS])]
    if not text.strip():
        return _flushed(number, keys)
    return None


def _verbose(number: int, text: str, keys: dict[str, Any]) -> list[Record | Frame]:
    found = _flushed(number, keys)
    stamp = split(text)
    if stamp.wall is not None:
        keys["__REALTIME_TIMESTAMP"] = str(int(stamp.wall * 1e6))
    return found


def _put(keys: dict[str, Any], key: str, value: str) -> None:
    if key in _USED and len(keys) < RECORD_KEYS:
        keys[key] = value[:LINE_CHARS]
    keys.setdefault("", "")


def _pretty(number: int, key: str, value: str, keys: dict[str, Any]) -> list[Record | Frame]:
    """One key of an indented JSON object; dmesg's own objects end with their message."""
    if key not in _USED:
        return []
    try:
        keys[key] = json.loads(value[:LINE_CHARS], strict=False)
    except (ValueError, RecursionError):
        keys[key] = value.strip('"')[:LINE_CHARS]
    return _flushed(number, keys) if key == "msg" else []


def _object(number: int, text: str, year: int) -> list[Record | Frame] | None:
    """A record of the journal, of dmesg or of a container, on one line."""
    if not WANTED.search(text) and not _BYTES.search(text[:LINE_CHARS]):
        return []
    try:
        values = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    if isinstance(values.get("log"), str):
        inner = split(values["log"].rstrip("\n")[:LINE_CHARS], year)
        if inner.wall is None and inner.mono is None:
            inner = inner._replace(wall=split(f"{values.get('time', '')} x").wall, form="container")
        return [Record(number, inner, text[:LINE_CHARS])]
    found = _record(number, values, text[:LINE_CHARS])
    return [] if found is None else [found]


def _flushed(number: int, keys: dict[str, Any]) -> list[Record | Frame]:
    """The record that the keys so far make; they start anew."""
    values = dict(keys)
    keys.clear()
    found = _record(number, values, "")
    return [] if found is None else [found]


def _record(number: int, values: dict[str, Any], raw: str) -> Record | None:
    """A journal's or dmesg's keys as one record; None when no kernel line is in them."""
    message = _message(values.get("MESSAGE", values.get("msg")))
    if message is None or not WANTED.search(message):
        return None
    transport = values.get("_TRANSPORT", "kernel")
    program = str(values.get("SYSLOG_IDENTIFIER", ""))[:64]
    stamp = Stamp(
        text=message,
        mono=_micros(values.get("_SOURCE_MONOTONIC_TIMESTAMP")) or _number(values.get("time")),
        wall=_micros(values.get("_SOURCE_REALTIME_TIMESTAMP", values.get("__REALTIME_TIMESTAMP"))),
        host=str(values.get("_HOSTNAME", ""))[:253],
        program="kernel" if transport == "kernel" else program or "?",
        prio=_level(values.get("PRIORITY", values.get("pri"))),
        form="journal" if "MESSAGE" in values else "dmesg",
    )
    return Record(number, stamp, raw or message, str(values.get("_BOOT_ID", ""))[:64])


def _message(value: Any) -> str | None:
    """The text; the journal writes bytes that are no UTF-8 as a list of numbers."""
    if isinstance(value, list):
        kept = [byte for byte in value[:LINE_CHARS] if isinstance(byte, int) and 0 <= byte < 256]
        value = bytes(kept).decode("utf-8", "replace")
    if not isinstance(value, str):
        return None
    # dmesg --json of util-linux 2.38 with --file runs on into the records behind it.
    value = re.split(r"\n(?=<\d{1,3}>\[)", value[:LINE_CHARS], maxsplit=1)[0]
    return " ".join(value.splitlines())[:MESSAGE_CHARS]


def _micros(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else number / 1e6


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 1e17 else None


def _level(value: Any) -> int | None:
    number = _number(value)
    return None if number is None or not 0 <= number <= 191 else int(number) & 7
