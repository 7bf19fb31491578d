"""What readers of the kernel log put in front of a line: a stamp, a host name. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_KMSG = re.compile(r"^(?P<prio>\d+),\d+,(?P<usec>\d{1,18}),[^;]*;")
_MONO = re.compile(r"^(?:<\d+>)?\[\s*(?P<mono>\d{1,12}\.\d+)\](?:\[\s*[TC]\d+\])?\s*")
_ISO = re.compile(
    r"^(?:[a-z]+\s*:[a-z]+\s*:\s*)?"
    r"(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\s+"
)
_CTIME = re.compile(r"^\[(?P<ctime>[A-Z][a-z]{2} [A-Z][a-z]{2}\s+\d+ \d\d:\d\d:\d\d \d{4})\]\s*")
_SYSLOG = re.compile(r"^(?P<short>[A-Z][a-z]{2}\s+\d+ \d\d:\d\d:\d\d)\s+")
_HOST = re.compile(r"^\S+\s+kernel(?:\[\d+\])?:\s*")


def split(line: str, year: int | None) -> tuple[float | None, float | None, str]:
    """(seconds since boot, epoch seconds, rest) of any reader's line."""
    if match := _KMSG.match(line):
        return int(match["usec"]) / 1e6, None, line[match.end() :]
    if match := _MONO.match(line):
        return float(match["mono"]), None, line[match.end() :]
    if match := _CTIME.match(line):
        return None, _epoch(match["ctime"], "%a %b %d %H:%M:%S %Y"), line[match.end() :]
    if match := _ISO.match(line):
        stamp = match["iso"].replace(",", ".").replace("Z", "+00:00")
        return None, _epoch(stamp), _HOST.sub("", line[match.end() :])
    if match := _SYSLOG.match(line):
        stamp = f"{year} {match['short']}"
        wall = None if year is None else _epoch(stamp, "%Y %b %d %H:%M:%S")
        return None, wall, _HOST.sub("", line[match.end() :])
    return None, None, line


def _epoch(stamp: str, form: str = "") -> float | None:
    """Epoch seconds, UTC without a zone; `form` "" is ISO. None for a date that is none."""
    try:
        at = datetime.strptime(stamp, form) if form else datetime.fromisoformat(stamp)  # noqa: DTZ007
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
