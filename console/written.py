"""Bytes written whole, or an error: never a part in silence."""

from __future__ import annotations

import contextlib
import os
import select
import sys

from console import leaving


def whole(fd: int, data: bytes) -> None:
    """Write all of it, waiting where the reader has no room; raises OSError.

    Python's own streams lose the rest of a write that a signal has cut short when PYTHONUNBUFFERED
    is set (as container images do), and fail where another program left the descriptor
    non-blocking (ssh and node do so to the terminal they share with us).
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            room = select.poll()
            room.register(fd, select.POLLOUT)
            room.poll()


def say(text: str, end: str = "\n") -> None:
    """Narration on stderr for a person, never data.

    That nobody listens stops nothing that was asked for: half of a drain would be worse.
    """
    stream = sys.stderr
    data = f"{text}{end}".encode(stream.encoding or "utf-8", stream.errors or "backslashreplace")
    with contextlib.suppress(OSError, leaving.Cut), leaving.cuttable():
        stream.flush()
        whole(stream.fileno(), data)
