"""What a probe is given: roots, clocks, the shared NVML object, and the book of calls in flight.

Annotations are strings because `typing` and postponed evaluation cost start-up time or do not exist
on Python 3.6. The rules about hung calls live here so that every probe obeys the same ones:

* each call into a driver is made inside `with ctx.busy(call, device):`;
* one call per device at a time; a second caller waits until the first is past its deadline, then
  gets `Stuck` and must leave that device out of its answer (the agent reports the hung call);
* while NVML is closed for a GPU reset, every NVML call raises `Stuck`;
* two stuck NVML devices, or one stuck NVML call without a device, mean the driver is stuck: every
  NVML call raises `Stuck` until one of them returns.
"""

import os
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from probes.node.nvml import Library

READ_BYTES = 65536
"""A /sys or /proc file is never longer than what a probe may hold (environ and kallsyms aside)."""

DRIVER_STUCK_DEVICES = 2
"""One hung GPU is a GPU fault; from two on every further call would only hang one more thread."""


class Stuck(Exception):
    """The device or the whole driver has a call in flight past its deadline. Leave it out."""


class Call:
    """One call in flight: its name, the device (""), since when (mono seconds), which thread."""

    __slots__ = ("call", "device", "since", "thread")

    def __init__(self, call: "str", device: "str", since: "float", thread: "int") -> "None":
        self.call = call
        self.device = device
        self.since = since
        self.thread = thread


class Busy:
    """Context manager made by `Context.busy`; not for direct use."""

    __slots__ = ("_call", "_ctx")

    def __init__(self, ctx: "Context", name: "str", device: "str") -> "None":
        self._ctx = ctx
        self._call = Call(name, device, 0.0, threading.get_ident())

    def __enter__(self) -> "None":
        self._ctx.enter(self._call)

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        trace: "TracebackType | None",
    ) -> "None":
        self._ctx.leave(self._call)


class Context:
    """Shared by all probes of one agent. Safe to use from several threads."""

    def __init__(
        self,
        root: "str" = "/",
        deadline_s: "float" = 5.0,
        clock: "Callable[[], float]" = time.monotonic,
    ) -> "None":
        """`root` is where the node's /sys, /proc, /dev and /run are; `deadline_s` is per call."""
        self.root = os.fsdecode((root or "/").encode("utf-8"))  # in the C locale of 3.6 too
        self.deadline_s = deadline_s
        self.missing: "dict[str, str]" = {}
        """What is not there -> why and what to do; sent with the hello frame."""
        self.statistics: "Callable[[], dict[str, int]]" = dict
        """Counts of the agent itself (frames, skipped_ticks), set by the agent."""
        self._clock = clock
        self._free = threading.Condition()
        self._held: "dict[str, Call]" = {}
        self._current: "dict[int, Call]" = {}
        self._answered: "dict[int, dict[str, float]]" = {}
        self._abandoned: "set[int]" = set()
        self._refused: "set[int]" = set()
        self._memory: "dict[str, dict[str, object]]" = {}
        self._library: "Library | None" = None
        self._library_tried = False
        self._nvml_closed = False

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
        self._current[thread] = Call("read " + path, "", self._clock(), thread)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
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
        text = self.read(*parts)
        try:
            return None if text is None else int(text.strip(), 0)
        except ValueError:
            return int(text) if text is not None and text.strip().isdigit() else None

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
        return self._clock()

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

    # ------------------------------------------------------------------ calls in flight

    def busy(self, call: "str", device: "str" = "") -> "Busy":
        """Record that this thread is inside `call` on `device`; raises Stuck instead of stacking.

        NVML calls are named as in the C API ("nvmlDeviceGetPowerUsage"); the prefix matters.
        """
        return Busy(self, call, device)

    def enter(self, call: "Call") -> "None":
        """Book a call, waiting for another thread's call on the device. Raises Stuck."""
        with self._free:
            while True:
                self._check(call)
                holder = self._held.get(call.device)
                if holder is None or holder.thread == call.thread:
                    break
                now = self._clock()
                wait_s = holder.since + self.deadline_s - now
                if wait_s <= 0:
                    self._refuse(call, "%s hangs in %s" % (call.device or "it", holder.call))
                self._current[call.thread] = Call("wait for " + holder.call, "", now, call.thread)
                self._free.wait(wait_s)
            call.since = self._clock()
            if holder is None:
                self._held[call.device] = call
            self._current[call.thread] = call

    def leave(self, call: "Call") -> "None":
        """The call has returned."""
        with self._free:
            if self._held.get(call.device) is call:
                del self._held[call.device]
            self.begin(call.thread)
            self._answered.setdefault(call.thread, {})[call.device] = self._clock()
            self._free.notify_all()

    def tick(self, thread: "int") -> "None":
        """This thread begins a tick: nothing has been refused to it or answered yet."""
        self._refused.discard(thread)
        self._answered[thread] = {}
        self.begin(thread)

    def answered(self, thread: "int") -> "dict[str, float]":
        """When each device's last call of this thread's tick returned, in mono seconds."""
        return self._answered.get(thread, {})

    def refused(self, thread: "int") -> "bool":
        """Whether a call of this thread was refused in this tick: its answer is not complete."""
        return thread in self._refused

    def begin(self, thread: "int") -> "None":
        """This thread runs a probe's own code from now on."""
        self._current[thread] = Call("", "", self._clock(), thread)

    def end(self, thread: "int") -> "None":
        """This thread is outside any probe."""
        self._current.pop(thread, None)

    def abandon(self, thread: "int") -> "None":
        """Let every further call of this thread raise Stuck: another has taken its place."""
        with self._free:
            self._abandoned.add(thread)

    def release(self, thread: "int") -> "None":
        """The thread ends; its number may be used again."""
        with self._free:
            self._abandoned.discard(thread)
            self._refused.discard(thread)
            self._answered.pop(thread, None)
            self.end(thread)

    def current(self, thread: "int") -> "Call | None":
        """What a thread does right now; `call` is "" in a probe's own code, None outside."""
        return self._current.get(thread)

    def holds(self, call: "Call") -> "bool":
        """Whether a second call like this one would be refused rather than stacked."""
        holder = self._held.get(call.device)
        return holder is not None and holder.thread == call.thread

    def stuck(self) -> "set[str]":
        """Devices with a call past its deadline."""
        with self._free:
            return {device for device, call in self._held.items() if self._late(call)}

    @property
    def driver_stuck(self) -> "bool":
        """Whether NVML calls are refused for now."""
        with self._free:
            return self._driver_stuck()

    def _check(self, call: "Call") -> "None":
        if call.thread in self._abandoned:
            self._refuse(call, "this thread hung too long")
        if call.call.startswith("nvml") and self._driver_stuck():
            self._refuse(call, "the NVIDIA driver does not answer")
        if call.call.startswith("nvml") and self._nvml_closed:
            self._refuse(call, "NVML is closed")

    def _refuse(self, call: "Call", why: "str") -> "None":
        self._refused.add(call.thread)
        self.begin(call.thread)
        raise Stuck(why)

    def _late(self, call: "Call") -> "bool":
        return self._clock() - call.since >= self.deadline_s

    def _driver_stuck(self) -> "bool":
        late = [call for call in self._in_nvml() if self._late(call)]
        return len(late) >= DRIVER_STUCK_DEVICES or any(not call.device for call in late)

    def _in_nvml(self) -> "list[Call]":
        return [call for call in self._held.values() if call.call.startswith("nvml")]


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
