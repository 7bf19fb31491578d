"""Words for the machine's syslog that never wait for it for long.

syslog(3) waits without an end for a daemon that stands still (a stopped journald, a full disk under
it), and whoever drains a node at that moment with it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import syslog
import time
from collections.abc import Sequence
from pathlib import Path

PLACES = ("/dev/log", "/var/run/syslog")
"""Where syslog(3) looks on Linux and macOS."""
WAIT_S = 1.0
"""For all words of one call; our estimate. A daemon that lives takes a thousand in that time."""
TAG = "gpuconsole"


def tell(texts: Sequence[str]) -> None:
    """Say each as a notice of AUTH. Where no syslog takes them they are dropped."""
    head = f"<{syslog.LOG_AUTH | syslog.LOG_NOTICE}>{TAG}[{os.getpid()}]: "
    until = time.monotonic() + WAIT_S
    with contextlib.suppress(OSError), _connected() as log:
        end = b"\0" if log.type == socket.SOCK_STREAM else b""
        for text in texts:
            log.settimeout(max(1e-3, until - time.monotonic()))
            log.sendall((head + text).encode() + end)


def _connected() -> socket.socket:
    """Raises OSError where nobody listens. A few daemons take a stream only."""
    place = next((one for one in PLACES if Path(one).exists()), PLACES[0])
    try:
        return _connect(place, socket.SOCK_DGRAM)
    except OSError:
        return _connect(place, socket.SOCK_STREAM)


def _connect(place: str, kind: socket.SocketKind) -> socket.socket:
    log = socket.socket(socket.AF_UNIX, kind)
    try:
        log.settimeout(WAIT_S)
        log.connect(place)
    except OSError:
        log.close()
        raise
    return log
