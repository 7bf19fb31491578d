"""What a probe is given: roots, clocks, the shared NVML object, and the book of calls in flight.

Annotations are strings because `typing` and postponed evaluation cost start-up time or do not exist
on Python 3.6.
"""

import errno
import os
import stat
import threading
import time

from probes.node.calls import Call, Calls, Stuck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from probes.node.nvml import Library

__all__ = ["Call", "Context", "Stuck"]

KERNELS = ("proc", "sys")
"""Below the root, file systems in which nobody but the kernel makes files."""

FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

NUMBER_CHARS = 40
"""Of a file that holds one number; 128 bits have 39 digits."""

READ_BYTES = 65536
"""A /sys or /proc file is never longer than what a probe may hold (environ and kallsyms aside)."""


class Context(Calls):
    """Shared by all probes of one agent. Safe to use from several threads."""

    def __init__(
        self,
        root: "str" = "/",
        deadline_s: "float" = 5.0,
        clock: "Callable[[], float]" = time.monotonic,
    ) -> "None":
        """`root` is where the node's /sys, /proc, /dev and /run are; `deadline_s` is per call."""
        Calls.__init__(self, deadline_s, clock)
        self.root = os.fsdecode((root or "/").encode("utf-8"))  # in the C locale of 3.6 too
        self.missing: "dict[str, str]" = {}
        """What is not there -> why and what to do; sent with the hello frame."""
        self.statistics: "Callable[[], dict[str, int]]" = dict
        """Counts of the agent itself (frames, skipped_ticks), set by the agent."""
        self._memory: "dict[str, dict[str, object]]" = {}
        self._library: "Library | None" = None
        self._library_tried = False

    # ------------------------------------------------------------------ files and clocks

    def path(self, *parts: "str") -> "str":
        """A path under the root: path("sys", "class") or path("/sys/class")."""
        return os.path.join(self.root, *[part.lstrip("/") for part in parts])

    def read(self, *parts: "str") -> "str | None":
        """The text of a file under the root, stripped of the last newline; None when unreadable.

        Absent files, I/O errors of a dead device (EINVAL, ENODEV, EIO) and missing rights are all
        None: "not readable" is an absent metric.
        """
        raw = self.read_bytes(*parts)
        return None if raw is None else raw.decode("utf-8", "replace").rstrip("\n")

    def read_bytes(self, *parts: "str") -> "bytes | None":
        """The first 64 KiB of a file under the root, or None when unreadable."""
        path = self.path(*parts)
        thread = threading.get_ident()
        self._now("read " + path, thread)
        try:
            if not parts[0].lstrip("/").startswith(KERNELS):
                _plain(path)
            handle = os.open(path, FLAGS)
            try:
                return _read_all(handle)
            finally:
                os.close(handle)
        except (OSError, ValueError):
            return None
        finally:
            self.begin(thread)

    def read_int(self, *parts: "str") -> "int | None":
        """A file that holds one integer (decimal, or hex with 0x); None when it does not."""
        text = (self.read(*parts) or "").strip()
        if len(text) > NUMBER_CHARS:
            return None
        for base in (0, 10):  # 0 refuses a number that begins with zeros
            try:
                return int(text, base)
            except ValueError:
                continue
        return None

    def listdir(self, *parts: "str") -> "list[str]":
        """Sorted names in a directory under the root; [] when it is not there."""
        try:
            return sorted(os.listdir(self.path(*parts)))
        except OSError:
            return []

    def readlink(self, *parts: "str") -> "str | None":
        """The target of a link under the root as written, or None."""
        try:
            return os.readlink(self.path(*parts))
        except OSError:
            return None

    def mono(self) -> "float":
        """Seconds on the node's monotonic clock: the only clock that rates are computed on."""
        return self.clock()

    def memory(self, probe: "str") -> "dict[str, object]":
        """What a probe wants to remember between ticks (unsupported fields, earlier addresses)."""
        return self._memory.setdefault(probe, {})

    # ------------------------------------------------------------------ NVML

    @property
    def nvml(self) -> "Library | None":
        """The shared NVML object, or None when this payload has none.

        Making it must be cheap: `Library(ctx)` initialises NVML at its first use, inside `busy`.
        """
        with self._free:
            if not self._library_tried:
                self._library_tried = True
                self._library = _library(self)
            return self._library

    def close_nvml(self) -> "None":
        """Refuse NVML calls, wait for those in flight, shut NVML down: a GPU can then be reset.

        Raises Stuck or Failed when that is not possible; NVML is then as before.
        """
        with self._free:
            self._nvml_closed = True
            idle = self._free.wait_for(lambda: not self._in_nvml(), self.deadline_s)
        try:
            if not idle:
                raise Stuck("an NVML call is still in flight")
            if self._library is not None:
                self._library.shut()
        except Exception:
            self.open_nvml()
            raise

    def open_nvml(self) -> "None":
        """Allow NVML calls again; the next one initialises it."""
        with self._free:
            self._nvml_closed = False


def plain(path: "str") -> "BinaryIO":
    """An ordinary file, open for reading. OSError for anything else, and no waiting."""
    _plain(path)
    return open(os.open(path, FLAGS), "rb")


def _plain(path: "str") -> "None":
    """Raise OSError unless it is an ordinary file.

    To open a FIFO is to wait for its writer, or to take what is meant for its reader.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not an ordinary file", path)


def _read_all(handle: "int") -> "bytes":
    """Up to READ_BYTES; sysfs answers in one read, /proc in pages."""
    parts = []
    left = READ_BYTES
    while left > 0:
        part = os.read(handle, left)
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _library(ctx: "Context") -> "Library | None":
    """The NVML object of the payload; a payload without it is a payload without GPU probes."""
    try:
        from probes.node.nvml import Library
    except ImportError as error:
        ctx.missing["nvml"] = "this payload carries no NVML module: %s" % error
        return None
    return Library(ctx)
