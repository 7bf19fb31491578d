"""The terminal stalls, vanishes, hangs up: the console must neither block, spin nor stay."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.app import App

from console.tui.terminal import QUEUED_WRITES, Terminal

ROOT = Path(__file__).parents[2]


class Child:
    """A console in a pty without a controlling terminal: closing it sends no SIGHUP."""

    def __init__(self, nodes: int = 40, blocking: bool = True) -> None:
        """Start it at 80x24; ssh and node leave a terminal that is not `blocking`."""
        self.master, slave = pty.openpty()
        os.set_blocking(slave, blocking)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        read, write = os.pipe()
        self.report = os.fdopen(read, "r")
        env = {
            **os.environ,
            "TERM": "xterm-256color",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.tui.pty_child", str(write), str(nodes)],
            stdin=slave, stdout=slave, stderr=slave, pass_fds=[write], cwd=ROOT, env=env,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        os.close(write)
        self.seen = b""
        self._reading = threading.Event()
        self._reading.set()
        self._closed = False
        # select() refuses descriptors above 1023, which a long test run may reach.
        self._poll = select.poll()
        self._poll.register(self.master, select.POLLIN)
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while not self._closed:
            if not self._reading.wait(0.05):
                continue
            if self._poll.poll(50):
                try:
                    self.seen += os.read(self.master, 65536)
                except OSError:
                    return

    def stall(self) -> None:
        """Stop reading what it draws."""
        self._reading.clear()

    def read_on(self) -> None:
        """Read again."""
        self._reading.set()

    def hang_up(self) -> None:
        """Close the terminal under it."""
        self._closed = True
        self._thread.join()
        os.close(self.master)

    def line(self) -> str:
        """The next report; the test's timeout is the deadline."""
        return self.report.readline().strip()

    def until(self, word: str) -> str:
        """Skip reports up to one that begins with `word`; "" at the end of reports."""
        for line in iter(self.report.readline, ""):
            if line.startswith(word):
                return line.strip()
        return ""


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    """A console that is drawing."""
    made = Child(blocking=getattr(request, "param", True))
    try:
        assert made.until("beat 3")
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        made.report.close()
        if not made._closed:
            made.hang_up()


def cpu_ticks(pid: int) -> int:
    """User and system clock ticks used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_vanished_terminal_ends_the_console_without_sighup(child: Child) -> None:
    """Collecting is cancelled first, so agents are told to leave; exit code as for a hang-up."""
    child.hang_up()
    assert child.until("gone") == "gone"
    assert child.until("left") == "left 129"
    assert child.process.wait() == 0


def threads(pid: int) -> int:
    """How many there are."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_a_continue_signal_starts_nothing_anew(child: Child) -> None:
    """The kernel sends SIGCONT with each hang-up; one reader of the keyboard is enough."""
    before = threads(child.process.pid)
    child.process.send_signal(signal.SIGCONT)
    assert child.until("beat")
    assert child.until("beat")
    assert threads(child.process.pid) == before
    os.write(child.master, b"q")
    assert child.until("left") == "left 0"
    assert child.process.wait() == 0


@pytest.mark.parametrize("number", [0, signal.SIGHUP, signal.SIGTERM, signal.SIGCONT])
def test_a_terminal_that_vanishes_under_another_program_ends_it(child: Child, number: int) -> None:
    """The console takes the terminal back when that program ends: no thread may stay behind."""
    os.write(child.master, b"s")
    while b"\x1b[?1049l" not in child.seen:
        assert child.until("beat")
    child.process.send_signal(number)
    child.hang_up()
    assert child.until("left") == "left 129"
    assert child.process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_ends_it_in_good_order(child: Child, number: signal.Signals) -> None:
    """The terminal is given back: alternate screen left, cursor shown."""
    child.process.send_signal(number)
    assert child.until("gone") == "gone"
    assert child.until("left") == "left 129"
    assert child.process.wait() == 0
    child.hang_up()
    assert child.seen.count(b"\x1b[?1049l") == 1
    assert b"\x1b[?25h" in child.seen


def test_ctrl_c_leaves(child: Child) -> None:
    """Like q: collecting is cancelled, exit code 0."""
    os.write(child.master, b"\x03")
    assert child.until("gone") == "gone"
    assert child.until("left") == "left 0"


@pytest.mark.parametrize("child", [True, False], indirect=True, ids=["blocking", "non-blocking"])
def test_a_stalled_terminal_does_not_stall_the_loop(child: Child) -> None:
    """Sessions live in the same loop: it must turn while nobody reads the screen."""
    child.stall()
    first = int(child.until("beat").split()[1])
    # A pty holds a few kB; 200 beats are far more frames than fit there and in the queue.
    while int(child.until("beat").split()[1]) < first + 200:
        pass
    before = len(child.seen)
    child.read_on()
    with contextlib.suppress(StopIteration):
        while b"VERDICT" not in child.seen[before:]:
            assert child.line().startswith("beat")
    os.write(child.master, b"q")
    assert child.until("left") == "left 0"


class Emptied:
    """A writer that takes all that waits right after somebody looked how much it is."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal, self.waiting = terminal, QUEUED_WRITES

    @property
    def _queue(self) -> Emptied:
        return self

    def qsize(self) -> int:
        waiting, self.waiting = self.waiting, 0
        if waiting:
            self.terminal._drained()
        return waiting


async def test_a_terminal_that_reads_again_in_that_moment_is_drawn_to() -> None:
    """Nobody tells a second time that all was read: frames would be left out for ever."""
    terminal = Terminal(App())
    terminal._asleep = False
    terminal._writer_thread = Emptied(terminal)  # type: ignore[assignment]
    assert terminal.ready()


def test_a_terminal_that_vanishes_while_stalled_ends_it_too(child: Child) -> None:
    """The writer is blocked in write(2) when the terminal goes away."""
    child.stall()
    first = int(child.until("beat").split()[1])
    while int(child.until("beat").split()[1]) < first + 100:
        pass
    child.hang_up()
    assert child.until("left") == "left 129"
    assert child.process.wait() == 0
