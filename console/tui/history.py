"""Lines typed at the prompt, kept across runs: one JSON string a line in the state folder.

Several consoles write the same file: each line is appended under a lock, and a file that has grown
too long is replaced under it. Whatever is wrong with the file costs the history, never the console.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

KEPT = 200
"""Lines of each kind remembered."""
LONGEST = 400
"""Characters of a line; longer ones are not kept."""
MOST_BYTES = 1_000_000
"""Of a file read; 400 lines of 400 characters are at most 640 kB."""


class History:
    """The lines of one kind of prompt, oldest first."""

    def __init__(self, folder: Path, kind: str) -> None:
        """`folder` is private to the operator; `kind` names the file."""
        self._file = folder / f"{kind}.history"
        self.lines: list[str] = []

    def load(self) -> None:
        """Read what this and other consoles have kept."""
        # Without the lock: lines come whole, the file is replaced whole, and nobody waits.
        with contextlib.suppress(OSError):
            self.lines = self._read()

    def remember(self, line: str) -> None:
        """Take a line into memory at once; `keep` writes it."""
        if line.strip() and len(line) <= LONGEST:
            self.lines = [*(old for old in self.lines if old != line), line][-KEPT:]

    def keep(self, line: str) -> None:
        """Append a line to the file. May wait for another console, so not in the event loop."""
        if not line.strip() or len(line) > LONGEST:
            return
        with contextlib.suppress(OSError), self._locked():
            self._append(line)
            if len(self._file.read_bytes().splitlines()) > 2 * KEPT:
                self._shorten()

    def before(self, at: int, typed: str, *, anywhere: bool = False) -> int | None:
        """Index of the next older line than `at` that begins with (or has) what was typed."""
        for index in range(min(at, len(self.lines)) - 1, -1, -1):
            line = self.lines[index]
            if (typed in line) if anywhere else line.startswith(typed):
                return index
        return None

    def after(self, at: int, typed: str) -> int | None:
        """Index of the next newer line that begins with what was typed."""
        for index in range(at + 1, len(self.lines)):
            if self.lines[index].startswith(typed):
                return index
        return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        # Another file than the lines: those are replaced, and a lock belongs to the file opened.
        fd = os.open(self._file.with_suffix(".lock"), flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _read(self) -> list[str]:
        try:
            fd = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return []
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return []
            data = file.read(MOST_BYTES)
        found = (_line(raw) for raw in data.splitlines())
        # The latest of equal lines counts.
        unique = dict.fromkeys(reversed([line for line in found if line]))
        return list(reversed(unique))[-KEPT:]

    def _append(self, line: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._file, flags, 0o600)
        with open(fd, "ab") as file:
            # A line that a full disk cut short must not spoil this one.
            file.write(b"\n" * _torn(self._file) + json.dumps(line).encode() + b"\n")

    def _shorten(self) -> None:
        fresh = self._file.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.writelines(json.dumps(line).encode() + b"\n" for line in self._read())
        fresh.replace(self._file)


def _torn(file: Path) -> int:
    """1 when the file does not end at a line's end."""
    data = file.read_bytes()
    return int(bool(data) and not data.endswith(b"\n"))


def _line(raw: bytes) -> str:
    """One line of the file; "" for what is no line of ours."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return ""
    good = isinstance(line, str) and len(line) <= LONGEST and line.isprintable()
    return line if good else ""
