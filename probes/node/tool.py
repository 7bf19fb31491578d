"""A short look through one of the system's own tools: argv, no shell, bounded in time."""

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from probes.node.context import Context

PLACES = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the system keeps its tools; PATH may have been set by anybody."""

OUTPUT_BYTES = 65536

STARVED_MOST_S = 20.0
"""What a program is given at most for the CPU it did not get; our choice."""
LOOK_S = 0.1
"""How often a late one is looked at; our choice."""


def output(ctx: "Context", argv: "list[str]", timeout_s: "float") -> "str | None":
    """What it prints, or None when it is not there, fails, says too much or takes too long.

    Booked on the tool's name: one that cannot even be killed is not started a second time.
    Raises Stuck then.
    """
    import subprocess

    program = _which(argv[0])
    if program is None:
        return None
    env = {"PATH": PLACES, "LC_ALL": "C", "HOME": "/"}
    with ctx.busy("run " + argv[0], argv[0]) as call:
        try:
            child = subprocess.Popen(
                [program] + argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=env, cwd="/",
            )  # fmt: skip
        except (OSError, ValueError):
            return None
        call.tool = Patience(child.pid, timeout_s, ctx.timer())
        assert child.stdout is not None
        with child.stdout as pipe:
            raw, ended = read(pipe.fileno(), call.tool, OUTPUT_BYTES)
        try:
            failed = child.wait(timeout_s if ended else 0)
        except subprocess.TimeoutExpired:
            child.kill()
            failed = child.wait()
    if failed or not ended or len(raw) > OUTPUT_BYTES:
        return None
    return raw.decode("utf-8", "replace")


def _which(name: "str") -> "str | None":
    """As shutil's, which would bring three compressors along."""
    paths = [os.path.join(place, name) for place in PLACES.split(":")]
    return next((p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK)), None)


class Patience:
    """How long a program may take: seconds in which it ran or waited, not those without a CPU."""

    __slots__ = ("_before", "_began", "_limit_s", "_pid", "_ran_s")

    def __init__(
        self, pid: "int", limit_s: "float", timer: "Callable[[], float] | None" = None
    ) -> "None":
        """From now on, for a child nobody has waited for yet; `timer` is Calls.timer() of now."""
        self._limit_s = limit_s
        self._pid = pid
        self._ran_s = timer
        self._before = _scheduled(pid)
        self._began = time.monotonic()

    def starved_s(self) -> "float":
        """Seconds in which it, or this process, could not run, at most STARVED_MOST_S."""
        spent_s = time.monotonic() - self._began
        (ran_s, queued_s, ready), before = _scheduled(self._pid), self._before
        lost_s = queued_s - before[1]
        if ready:  # the kernel adds a wait when it ends, and this one may still be in it
            lost_s = max(lost_s, spent_s - (ran_s - before[0]))
        if self._ran_s is not None:
            lost_s = max(lost_s, spent_s - self._ran_s())
        return max(0.0, min(STARVED_MOST_S, lost_s))

    def readable(self, handle: "int") -> "bool":
        """Wait until something can be read; False when the time is over first."""
        poll = select.poll()  # select() refuses descriptors from 1024 on
        poll.register(handle, select.POLLIN)
        wait_s = self._left_s()
        while not poll.poll(1000.0 * max(0.0, wait_s)):
            if self._left_s() + self.starved_s() <= 0:
                return False
            wait_s = LOOK_S
        return True

    def _left_s(self) -> "float":
        return self._limit_s - (time.monotonic() - self._began)


def _scheduled(pid: "int") -> "tuple[float, float, bool]":
    """Seconds it ran, seconds it queued for a CPU, whether it is ready to run now.

    /proc/PID/schedstat in ns (Linux, Documentation/scheduler/sched-stats.rst) and /proc/PID/stat;
    zeros where the kernel keeps none.
    """
    try:
        with open("/proc/%d/schedstat" % pid) as file:
            ran_ns, queued_ns = file.read(128).split()[:2]
        with open("/proc/%d/stat" % pid) as file:
            state = file.read(512).rpartition(")")[2].split()[0]
        return int(ran_ns) / 1e9, int(queued_ns) / 1e9, state == "R"
    except (OSError, ValueError, IndexError):
        return 0.0, 0.0, False


def read(handle: "int", patience: "Patience", most: "int") -> "tuple[bytes, bool]":
    """What a program prints, and whether it ended or passed `most` bytes in time."""
    raw = b""
    while len(raw) <= most:
        if not patience.readable(handle):
            return raw, False
        part = os.read(handle, most)
        if not part:
            break
        raw += part
    return raw, True


def here(ctx: "Context") -> "bool":
    """Whether the root is this kernel's own: a tool or system call then tells of the same node."""
    place = "/proc/sys/kernel/random/boot_id"
    try:
        with open(place) as file:
            ours = file.read()
    except OSError:
        return os.path.realpath(ctx.root) == "/"
    return (ctx.read("proc/sys/kernel/random/boot_id") or "").strip() == ours.strip()
