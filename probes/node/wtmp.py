"""Boots of the last day from the binary log of logins, /var/log/wtmp.

A record is 384 bytes where 32- and 64-bit programs share the file (x86, POWER), 400 on 64-bit ARM
(bits/utmp.h of glibc). Which one it is shows in the records themselves. Newer systems keep no wtmp;
then nothing is known.
"""

import os
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

TAIL_RECORDS = 4096
"""1.6 MB of the file's end: a day of logins on a busy node."""

DAY_S = 86400.0
BOOT_TIME = 2
KINDS = range(10)
FORMS = ((384, 340, "<i"), (400, 344, "<q"))
"""Record's bytes, where its seconds are, and their form."""


def boots(ctx: "Context", now: "float | None" = None) -> "int | None":
    """Boots within 24 h before `now` (epoch seconds); None when there is no log."""
    until = time.time() if now is None else now
    raw = _tail(ctx)
    if raw is None:
        return None
    for length, place, form in FORMS:
        records = [raw[at : at + length] for at in range(0, len(raw), length)]
        if records and all(_plausible(record, length) for record in records):
            times = [
                struct.unpack_from(form, record, place)[0]
                for record in records
                if _kind(record) == BOOT_TIME
            ]
            return sum(1 for at in times if until - DAY_S < at <= until + DAY_S)
    return None


def _kind(record: "bytes") -> "int":
    kind: "int" = struct.unpack_from("<h", record)[0]
    return kind


def _plausible(record: "bytes", length: "int") -> "bool":
    return len(record) == length and _kind(record) in KINDS and record[2:4] == b"\0\0"


def _tail(ctx: "Context") -> "bytes | None":
    """The file's end, cut at a record of either form; None when unreadable or empty."""
    try:
        handle = os.open(ctx.path("var/log/wtmp"), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        size = os.fstat(handle).st_size
        length = next((form[0] for form in FORMS if size and size % form[0] == 0), 0)
        if not length:
            return None
        start = max(0, size - TAIL_RECORDS * length)
        return os.pread(handle, TAIL_RECORDS * length, start)
    except OSError:
        return None
    finally:
        os.close(handle)
