"""A program in a pty of its own that is its controlling terminal: Ctrl-C, hang-up and modes are
real. For what a screen looks like, tests use tmux (tests/tui/test_tmux.py)."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

ROOT = Path(__file__).parents[1]
DEADLINE_S = 150.0
ENTERED = b"\x1b[?1049h"
LEFT = b"\x1b[?1049l"
CURSOR = b"\x1b[?25h"
_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b\[[0-9;?<>=$ ]*[a-zA-Z~]|\x1b[=>()][0-9A-B]?"
)


def gpuconsole(*arguments: str) -> list[str]:
    """argv of the program as it is installed."""
    return [sys.executable, "-m", "console.start", *arguments]


def patient(*arguments: str) -> list[str]:
    """The same with more time for what comes and goes by the clock."""
    return [sys.executable, "-m", "tests.patient", *arguments]


class Pty:
    """One program in one terminal. Everything it prints is read at once, and kept."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        size: tuple[int, int] = (80, 24),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start it. `env` is added to the test's own environment."""
        self.master, slave = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *argv],
            stdin=slave, stdout=slave, stderr=slave, cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
        )  # fmt: skip
        self._slave: int | None = slave
        self.seen = b""
        self._reading = threading.Lock()
        self._closed = False
        self._go = threading.Event()
        self._go.set()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """End what is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.hang_up()

    def _read(self) -> None:
        while not self._closed:
            if self._go.wait(0.05) and self._waits(20) and not self._take():
                return

    def _take(self) -> bool:
        """Read what waits; whether there may be more."""
        with self._reading:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                return False
        return True

    def _waits(self, timeout_ms: int) -> bool:
        """Whether output waits. A poll object serves one thread; select() ends at 1,024 files."""
        poll = select.poll()
        poll.register(self.master, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(timeout_ms))

    def resize(self, width: int, height: int) -> None:
        """Change the size; the kernel sends SIGWINCH."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def send(self, keys: str | bytes) -> None:
        """Type or paste; returns when all of it was taken."""
        data = keys.encode() if isinstance(keys, str) else keys
        while data:
            data = data[os.write(self.master, data[:1024]) :]

    def stall(self) -> None:
        """Read nothing for now."""
        self._go.clear()

    def read_on(self) -> None:
        """Read again."""
        self._go.set()

    def signal(self, number: signal.Signals) -> None:
        """Send it to the program."""
        self.process.send_signal(number)

    @property
    def text(self) -> str:
        """Everything seen, without control sequences."""
        return plain(self.seen)

    def until(self, pattern: str | bytes, *, after: int = 0) -> str:
        """Wait for a pattern in the text (or for bytes as they came) beyond byte `after`."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None and not self._more()
            seen = self.seen[after:]
            if pattern in seen if isinstance(pattern, bytes) else re.search(pattern, plain(seen)):
                return plain(seen)
            if ended:
                break
            time.sleep(0.01)
        pytest.fail(f"never saw {pattern!r}; exit {self.process.poll()}:\n{self.text[-3000:]}")

    def wait(self) -> int:
        """The exit code; all of its output was read then."""
        code = self.process.wait(DEADLINE_S)
        while self._more():
            time.sleep(0.01)
        return code

    def _more(self) -> bool:
        """Whether output waits, or is on its way into `seen`."""
        with self._reading:
            return self._waits(0)

    @property
    def restored(self) -> bool:
        """Whether the terminal's modes are what they were before the program."""
        assert self._slave is not None
        return _modes(termios.tcgetattr(self._slave)) == _modes(self.before)

    def hang_up(self) -> None:
        """Close the terminal under it."""
        if self._closed:
            return
        self._closed = True
        self._go.set()
        self._thread.join()
        if self._slave is not None:
            os.close(self._slave)
            self._slave = None
        os.close(self.master)


def _modes(attributes: list[Any]) -> list[Any]:
    return attributes[:4]


def plain(seen: bytes) -> str:
    """Text of terminal output: sequences gone, lines as they came."""
    return _SEQUENCE.sub("", seen.decode("utf-8", "replace")).replace("\r", "")
