"""The demo's private directory, removed at the end, or by the next start after a SIGKILL.

A lock that the kernel drops with the process says whether a directory found is still in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "gpuconsole-demo-"
LOCK = "lock"
UNLOCKED_S = 60.0
"""A directory without a lock file is just being made by another demo; if older, a leftover."""


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory only we can enter (0700). Leftovers of killed runs are removed first."""
    remove_stale()
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_stale() -> list[Path]:
    """Remove our own directories whose process is gone; returns them."""
    removed = []
    for path in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            if _abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
    return removed


def _abandoned(path: Path) -> bool:
    """Whether this is a real directory of ours that nobody has locked. Raises OSError."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return False
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - found.st_mtime > UNLOCKED_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
