"""Following the audit file: what is new in it since the last look, other consoles' lines too."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import msgspec

from console.audit import LINE_BYTES, AuditLine

FIRST_BYTES = 2 << 20
"""Of the file's end at the first look: some 5,000 lines of 400 bytes."""
_decoder = msgspec.json.Decoder(AuditLine)


class Tail:
    """A place in the file. Blocks for as long as the disk does: ask in a thread."""

    def __init__(self, path: Path) -> None:
        """Nothing read yet."""
        self.path = path
        self.trouble = ""
        """Why it could not be read last; "" when it could, or is not there yet."""
        self.unreadable = 0
        """Lines that were none of ours, or cut off by a full disk."""
        self._at: int | None = None
        self._file: tuple[int, int] | None = None

    def read(self) -> list[AuditLine]:
        """Whole lines since the last look, oldest first; [] when there are none."""
        try:
            raw = self._raw()
        except FileNotFoundError:
            self.trouble = ""
            return []
        except OSError as error:
            self.trouble = f"{self.path}: {error.strerror}"
            return []
        self.trouble = ""
        return [line for one in raw.split(b"\n") if (line := self._line(one)) is not None]

    def _raw(self) -> bytes:
        # Without O_NONBLOCK a pipe put there by somebody would hold the thread for ever.
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            now = os.fstat(fd)
            if not stat.S_ISREG(now.st_mode):
                raise OSError(errno.EINVAL, "not a file")
            cut = self._place(now)
            assert self._at is not None
            raw = os.pread(fd, LINE_BYTES, self._at)
        finally:
            os.close(fd)
        end = raw.rfind(b"\n") + 1  # the rest is being written
        self._at += len(raw) if not end and len(raw) == LINE_BYTES else end
        return raw[raw.find(b"\n") + 1 : end] if cut else raw[:end]

    def _place(self, now: os.stat_result) -> bool:
        """Where to go on; True when that is in the middle of a line."""
        file = now.st_dev, now.st_ino
        if self._at is not None and file == self._file and now.st_size >= self._at:
            return False
        self._file, self._at = file, max(0, now.st_size - FIRST_BYTES)
        return self._at > 0

    def _line(self, raw: bytes) -> AuditLine | None:
        try:
            return _decoder.decode(raw)
        except (msgspec.DecodeError, ValueError, RecursionError):
            self.unreadable += bool(raw.strip())
            return None
