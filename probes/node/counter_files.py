"""Reading directories of counter files (sysfs), again and again, cheaply and without doing harm.

Files stay open and are read with pread: one system call a counter. A file whose read fails is left
alone for an hour, and so is a directory in which nothing can be read: some mlx5 functions (NVSwitch
management) answer each read with an error line in the kernel log, which a monitor must not fill.
"""

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Optional

OPEN_FILES = 256
"""Kept open at most: a quarter of the usual soft limit of 1,024."""

FILES_PER_DIRECTORY = 256
"""More names than any driver has (hfi1: about 170)."""

REST_S = 3600.0
"""How long a file or directory that failed is left alone."""

TRIES = 2
"""Failures without one success after which the rest of a directory is not tried."""

NUMBER_BYTES = 64
"""A counter is at most 20 digits; longer content is text."""

GONE = frozenset((errno.ENOENT, errno.ENODEV))
"""The device went away or came back under the same name: look again next time."""


class CounterFiles:
    """Open counter files of one probe. Not for two threads at once."""

    def __init__(self, clock: "Callable[[], float]") -> "None":
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._open: "Dict[str, int]" = {}
        self._rest_until: "Dict[str, float]" = {}

    def read(self, directory: "str") -> "Dict[str, int]":
        """{file name: value} of all files that hold one integer. {} when there is no directory.

        Text ("N/A (no PMA)") is neither 0 nor an error: the file is absent from the answer.
        """
        if self._resting(directory):
            return {}
        values = {}
        failures = 0
        for name in _names(directory):
            path = directory + "/" + name
            if self._resting(path):
                continue
            value = self._value(path)
            if value is not None:
                values[name] = value
            elif self._resting(path):
                failures += 1
            if failures >= TRIES and not values:
                self._rest(directory)
                break
        return values

    def close(self) -> "None":
        """Close everything."""
        while self._open:
            os.close(self._open.popitem()[1])

    def __del__(self) -> "None":
        """Plain descriptors close with nobody: without this each forgotten probe keeps 256."""
        self.close()

    def _value(self, path: "str") -> "Optional[int]":
        """The number in a file; puts the file to rest when it cannot be read or holds text."""
        try:
            raw = self._bytes(path)
        except OSError as error:
            self._forget(path)
            if error.errno not in GONE:
                self._rest(path)
            return None
        text = raw.strip()
        try:
            return int(text)
        except ValueError:
            if text:  # empty is a writer caught in the act, not an answer
                self._forget(path)
                self._rest(path)
            return None

    def _bytes(self, path: "str") -> "bytes":
        handle = self._open.get(path)
        if handle is not None:
            if os.fstat(handle).st_nlink:
                return os.pread(handle, NUMBER_BYTES, 0)
            self._forget(path)  # the file was replaced (a root that is no sysfs)
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if len(self._open) < OPEN_FILES:
            self._open[path] = handle
            return os.pread(handle, NUMBER_BYTES, 0)
        try:
            return os.pread(handle, NUMBER_BYTES, 0)
        finally:
            os.close(handle)

    def _forget(self, path: "str") -> "None":
        handle = self._open.pop(path, None)
        if handle is not None:
            os.close(handle)

    def _rest(self, path: "str") -> "None":
        self._rest_until[path] = self._clock() + REST_S

    def _resting(self, path: "str") -> "bool":
        until = self._rest_until.get(path)
        if until is None:
            return False
        if self._clock() < until:
            return True
        del self._rest_until[path]
        return False


def _names(directory: "str") -> "list[str]":
    try:
        names = [name for name in os.listdir(directory) if not name.startswith(".")]
        return sorted(names)[:FILES_PER_DIRECTORY]
    except OSError:
        return []
