"""The demo's private directories, removed at the end, or by the next start after a SIGKILL.

There are two: one whose programs may be executed, and one in memory for the trees of small files
(16 nodes are 24,000 directory entries: 0.1 s there, 1 to 3 s on a busy disk). A lock that the
kernel drops with the process says whether a directory found is still in use.
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

from platformdirs import user_cache_path

from inventory.errors import ConsoleError

PREFIX = "gpuconsole-demo-"
LOCK = "lock"
UNLOCKED_S = 60.0
"""A directory without a lock file is just being made by another demo; if older, a leftover."""

_NOEXEC = getattr(os, "ST_NOEXEC", 0)  # only Linux tells

MEMORY = Path("/dev/shm")
"""Linux' shared memory file system; often mounted noexec."""


def executable_place() -> Path:
    """Where programs can be started from: the temp directory unless it is mounted noexec.

    Raises ConsoleError when there is no such place.
    """
    for place in (Path(tempfile.gettempdir()), user_cache_path("gpuconsole", appauthor=False)):
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.statvfs(place).f_flag & _NOEXEC:
                return place
    raise ConsoleError(
        "the demo needs a directory whose programs may be started, and the temp directory is "
        "mounted noexec",
        "set TMPDIR to such a directory",
    )


def fast_place(need_bytes: int) -> Path:
    """Shared memory when there is room for twice the need, else the temp directory."""
    with contextlib.suppress(OSError):
        found = os.statvfs(MEMORY)
        if found.f_bavail * found.f_frsize > 2 * need_bytes and os.access(MEMORY, os.W_OK):
            return MEMORY
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """A directory only we can enter (0700). Leftovers of killed runs there are removed first."""
    remove_stale(place)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    # It gets its name when it is held: another demo takes a free lock for a leftover.
    making = path / f"{LOCK}.new"
    lock = os.open(making, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        making.rename(path / LOCK)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_stale(place: Path) -> list[Path]:
    """Remove our own directories in `place` whose process is gone; returns them."""
    removed = []
    for path in place.glob(PREFIX + "*"):
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
