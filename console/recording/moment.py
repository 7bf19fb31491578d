"""What people write for a moment of a recording, as full seconds since its start. Pure."""

from __future__ import annotations

import math
import re
import time

from console.recording.tape import Span
from inventory.errors import UsageError

INSTEAD = "03:12 from the start, +5m or -30s from here, 50%, @14:03 as the clock said, start, end"
_CLOCK = re.compile(r"(?:(\d{1,3}):)?(\d{1,2}):(\d{2})")
_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_LENGTH = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s?)?")
DAY_S = 86_400


def second_of(text: str, here: int, span: Span) -> int:
    """The second that `text` means, within the recording; `here` is the present one.

    Raises UsageError.
    """
    second = _second(text.strip(), here, span)
    if second is None:
        raise UsageError(f"{text!r} is no time of a recording", instead=INSTEAD)
    return max(0, min(span.seconds, second))


def _second(text: str, here: int, span: Span) -> int | None:
    if text in ("start", "end"):
        return 0 if text == "start" else span.seconds
    if text.endswith("%") and text[:-1].isdecimal() and len(text) <= 4:
        return round(span.seconds * int(text[:-1]) / 100)
    if text.startswith("@"):
        return _of_day(text[1:], span)
    if text[:1] in ("+", "-"):
        length = _length(text[1:])
        return None if length is None else here + (length if text[0] == "+" else -length)
    return _length(text)


def _length(text: str) -> int | None:
    """ "1:03:12", "03:12", "1h2m", "5m", "90s", "90"."""
    for pattern in (_CLOCK, _LENGTH):
        match = pattern.fullmatch(text)
        if match is not None and text:
            hours, minutes, seconds = (int(part or 0) for part in match.groups())
            return hours * 3600 + minutes * 60 + seconds
    return None


def _of_day(text: str, span: Span) -> int | None:
    """The first time after the start at which a clock here shows it."""
    match = _OF_DAY.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups())
    if hour > 23 or minute > 59 or second > 59:
        return None
    day = time.localtime(span.start)
    at = time.mktime((day.tm_year, day.tm_mon, day.tm_mday, hour, minute, second, 0, 0, -1))
    return math.ceil(at - span.start) if at >= span.start else math.ceil(at + DAY_S - span.start)


def clock(seconds: float) -> str:
    """ "03:12", "1:03:12"."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"
