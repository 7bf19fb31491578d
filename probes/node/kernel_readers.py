"""Readers of the kernel log: /dev/kmsg (or a plain file in its form), dmesg, journalctl.

Each offers `lines()` (what is there now), `wait()` (until there is more; False when the source has
ended), `lost` (lines overwritten before they were read) and `stalled` (a program stopped half-way).
A program that hangs, even one that cannot be killed, is waited for only so long.
"""

import errno
import os
import re
import select
import stat
import threading
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from probes.node.context import Context

Line = namedtuple("Line", "mono prio text")
"""Seconds since boot, syslog level 0-7 or -1 where the source has none, the message."""

POLL_S = 0.5
"""How often a plain file (a simulated node's) is looked at; a device wakes us itself."""

KMSG = os.makedev(1, 11)
"""Device number of /dev/kmsg (Linux, Documentation/admin-guide/devices.txt)."""

RECORD_BYTES = 8192
"""The kernel's own limit of a /dev/kmsg record (CONSOLE_EXT_LOG_MAX)."""

CHUNK_BYTES = 65536

ANSWER_S = 4.0
"""How long dmesg or journalctl may be silent before its end; below the deadline."""

REAP_S = 0.5
"""How long a killed program may take to go: one that waits for a dead disk does not go at all."""

DMESG = re.compile(r"<(\d+)>\[\s*(\d+\.\d+)\] ?(.*)")
JOURNAL = re.compile(r"\[\s*(\d+\.\d+)\] \S+ kernel: (.*)")

COMMANDS = {
    "dmesg": (["dmesg", "-r"], ["-w"]),
    "journal": (
        ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic", "-n", "2000"],
        ["-f"],
    ),
}
"""argv that prints what is there, and what makes it follow. -r keeps level and stamp apart."""


BEFORE = [
    "journalctl", "-k", "-b", "-1", "-q", "--no-pager", "-o", "short-monotonic", "-n", "2000",
]  # fmt: skip
"""argv that prints the end of the boot before this one; nothing where the journal is not kept."""

BEFORE_S = 2.0
"""How long that may be silent: it is history, and the pass has five seconds for all of the log."""


def before_boot(ctx: "Context") -> "list[Line]":
    """The last kernel lines of the boot before this one; [] without a journal, or for another root.

    What a journal that hangs half-way has printed counts.
    """
    if os.path.realpath(ctx.root) != "/":
        return []
    try:
        program = Program(BEFORE, JOURNAL, answer_s=min(BEFORE_S, ANSWER_S))
    except OSError:
        return []
    with program as log:
        return list(log.lines())


def choose(ctx: "Context") -> "str":
    """kmsg, dmesg, journal, or "" when none may be read.

    The programs see the running kernel, so they are no answer for another root.
    """
    if _may_open(ctx.path("dev", "kmsg")):
        return "kmsg"
    if os.path.realpath(ctx.root) == "/":
        for source in ("dmesg", "journal"):
            if _prints(COMMANDS[source][0]):
                return source
    return ""


def opened(ctx: "Context", source: "str", follow: "bool") -> "Kmsg | Program":
    """The reader of a source that `choose` named; a context manager. OSError when it has gone."""
    if source == "kmsg":
        return Kmsg(ctx.path("dev", "kmsg"))
    argv, following = COMMANDS[source]
    return Program(argv + following if follow else argv, DMESG if source == "dmesg" else JOURNAL)


class Kmsg:
    """/dev/kmsg: one record per read. A plain file holds the same records as lines."""

    stalled = False

    def __init__(self, path: "str") -> "None":
        self.lost = 0
        self._path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._plain = stat.S_ISREG(os.fstat(self._handle).st_mode)
        self._rest = b""
        self._next: "int | None" = None
        self._pause = threading.Event()

    def __enter__(self) -> "Kmsg":
        return self

    def __exit__(self, *error: "object") -> "None":
        os.close(self._handle)

    def wait(self) -> "bool":
        """Until more can be read. Never False: neither a device nor a file ends."""
        if not self._plain:
            select.select([self._handle], [], [])
            return True
        about = os.fstat(self._handle)
        at = os.lseek(self._handle, 0, os.SEEK_CUR)
        seen = (about.st_ino, about.st_dev, at)
        while os.fstat(self._handle).st_size == at:
            self._pause.wait(POLL_S)
            if self._now() != seen:
                self._replaced()
                at = os.lseek(self._handle, 0, os.SEEK_CUR)
        return True

    def _now(self) -> "tuple[int, int, int] | None":
        try:
            there = os.stat(self._path)
        except OSError:
            return None
        return there.st_ino, there.st_dev, there.st_size

    def lines(self) -> "Iterator[Line]":
        """All records that are there now."""
        for raw in self._records():
            line = self._parse(raw)
            if line is not None:
                yield line

    def _records(self) -> "Iterator[bytes]":
        while True:
            try:
                raw = os.read(self._handle, CHUNK_BYTES if self._plain else RECORD_BYTES)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # overwritten; the next record's number says how many
                if error.errno == errno.EAGAIN:
                    return
                raise
            if not raw:
                return
            if self._plain:
                parts = (self._rest + raw).split(b"\n")
                self._rest = parts.pop()[-RECORD_BYTES:]
                for part in parts:
                    yield part
            else:
                yield raw

    def _parse(self, raw: "bytes") -> "Line | None":
        """A record is "6,1201,9103456789,-;text"; lines after it with a leading blank are not."""
        head, found, rest = raw.partition(b";")
        fields = head.split(b",")
        if not found or raw[:1] == b" " or len(fields) < 3:
            return None
        try:
            prio, number, micros = int(fields[0]), int(fields[1]), int(fields[2])
        except ValueError:
            return None
        if self._next is not None and number > self._next:
            self.lost += number - self._next
        self._next = number + 1
        text = rest.split(b"\n")[0].decode("utf-8", "replace")
        return Line(micros / 1e6, prio & 7, text)

    def _replaced(self) -> "None":
        """Open a plain file again when it was truncated or another took its place."""
        try:
            there, here = os.stat(self._path), os.fstat(self._handle)
        except OSError:
            return
        at = os.lseek(self._handle, 0, os.SEEK_CUR)
        if (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev) and there.st_size >= at:
            return
        handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.dup2(handle, self._handle, inheritable=False)
        os.close(handle)
        self._rest = b""
        self._next = None


class Program:
    """A child that prints the log: to its end, or for ever."""

    def __init__(
        self, argv: "list[str]", form: "re.Pattern[str]", answer_s: "float | None" = None
    ) -> "None":
        self.lost = 0
        self.stalled = False
        self._answer_s = ANSWER_S if answer_s is None else answer_s
        self._form = form
        self._following = "-w" in argv or "-f" in argv
        self._rest = b""
        self._ended = False
        self._child = _child(argv)
        assert self._child.stdout is not None
        self._output = self._child.stdout

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *error: "object") -> "None":
        _end(self._child)

    def wait(self) -> "bool":
        """Until more can be read; False once the child has ended."""
        if not self._ended:
            select.select([self._output], [], [])
        return not self._ended

    def lines(self) -> "Iterator[Line]":
        """What the child has printed by now, or when it does not follow all it will print."""
        handle = self._output.fileno()
        while True:
            if not select.select([handle], [], [], 0 if self._following else self._answer_s)[0]:
                self.stalled = not self._following
                return
            raw = os.read(handle, CHUNK_BYTES)
            if not raw:
                self._ended = True
                return
            parts = (self._rest + raw).split(b"\n")
            self._rest = parts.pop()[-RECORD_BYTES:]
            for part in parts:
                line = self._parse(part.decode("utf-8", "replace"))
                if line is not None:
                    yield line

    def _parse(self, text: "str") -> "Line | None":
        found = self._form.match(text)
        if found is None:
            return None
        if self._form is DMESG:
            return Line(float(found.group(2)), int(found.group(1)) & 7, found.group(3))
        return Line(float(found.group(1)), -1, found.group(2))


def _may_open(path: "str") -> "bool":
    """Whether records can be read; a container's /dev/null in its place is no kernel log."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        about = os.fstat(handle)
        if stat.S_ISCHR(about.st_mode) and about.st_rdev != KMSG:
            return False
        os.read(handle, RECORD_BYTES)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EPIPE)
    finally:
        os.close(handle)
    return True


def _child(argv: "list[str]") -> "subprocess.Popen[bytes]":
    import subprocess

    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ, LC_ALL="C"),
    )


def _prints(argv: "list[str]") -> "bool":
    """Whether the program prints anything: a kernel log that may be read is never empty."""
    try:
        child = _child(argv)
    except OSError:
        return False
    assert child.stdout is not None
    try:
        ready = select.select([child.stdout], [], [], ANSWER_S)[0]
        return bool(ready) and bool(os.read(child.stdout.fileno(), 1))
    finally:
        _end(child)


def _end(child: "subprocess.Popen[bytes]") -> "None":
    """Kill it, and do not wait for one that sleeps uninterruptibly."""
    import subprocess

    child.kill()
    try:
        child.wait(REAP_S)
    except subprocess.TimeoutExpired:
        pass
    if child.stdout is not None:
        child.stdout.close()
