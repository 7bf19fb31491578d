"""The book of calls in flight: who is inside which driver call, since when, who must not follow.

Every probe obeys the same rules about hung calls, because they live here:

* each call into a driver is made inside `with ctx.busy(call, device):`;
* one call per device at a time; a second caller waits until the first is past its deadline, then
  gets `Stuck` and must leave that device out of its answer (the agent reports the hung call);
* while NVML is closed for a GPU reset, every NVML call raises `Stuck`;
* two stuck NVML devices, or one stuck NVML call without a device, mean the driver is stuck: every
  NVML call raises `Stuck` until one of them returns;
* no call is blamed for seconds in which this process itself could not run (no CPU to have, stopped,
  a virtual machine on the move): the watch beats, and how late it comes is taken off; nor for
  those in which the program it runs queued for a CPU.
"""

import functools
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from probes.node.tool import Patience

    Pulse = tuple[float, float | None]
    """Seconds this process could not run so far, and when the watch will be back (None: none)."""

DRIVER_STUCK_DEVICES = 2
"""One hung GPU is a GPU fault; from two on every further call would only hang one more thread."""


class Stuck(Exception):
    """The device or the whole driver has a call in flight past its deadline. Leave it out."""


class Call:
    """One call in flight: its name, the device (""), since when (mono seconds), which thread.

    `pulse` is the `Pulse` read just before `since`; `tool` is of a program that it runs.
    """

    __slots__ = ("call", "device", "pulse", "since", "thread", "tool")

    def __init__(
        self, call: "str", device: "str", since: "float", thread: "int", pulse: "Pulse"
    ) -> "None":
        self.call = call
        self.device = device
        self.since = since
        self.pulse = pulse
        self.thread = thread
        self.tool: "Patience | None" = None


class Busy:
    """Context manager made by `Calls.busy`; not for direct use."""

    __slots__ = ("_call", "_calls")

    def __init__(self, calls: "Calls", name: "str", device: "str") -> "None":
        self._calls = calls
        self._call = Call(name, device, 0.0, threading.get_ident(), (0.0, None))

    def __enter__(self) -> "Call":
        self._calls.enter(self._call)
        return self._call

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        trace: "TracebackType | None",
    ) -> "None":
        self._calls.leave(self._call)


class Calls:
    """Calls in flight, by device and by thread. Safe to use from several threads."""

    def __init__(
        self, deadline_s: "float" = 5.0, clock: "Callable[[], float]" = time.monotonic
    ) -> "None":
        """A call longer than `deadline_s` by the clock's seconds counts as hung."""
        self.deadline_s = deadline_s
        self.clock = clock
        self._free = threading.Condition()
        self._held: "dict[str, Call]" = {}
        self._current: "dict[int, Call]" = {}
        self._answered: "dict[int, dict[str, float]]" = {}
        self._abandoned: "set[int]" = set()
        self._refused: "set[int]" = set()
        self._nvml_closed = False
        self._pulse: "Pulse" = (0.0, None)

    def beat(self, period_s: "float") -> "None":
        """The watch runs and will be back in `period_s`; later than that counts as stalled.

        At most one period of each stall is missed.
        """
        now = self.clock()
        self._pulse = (_stalled_s(self._pulse, now), now + period_s)

    def timer(self) -> "Callable[[], float]":
        """Seconds from here on, without those in which this process could not run."""
        pulse = self._pulse
        return functools.partial(self._ran_s, self.clock(), pulse)

    def age_s(self, call: "Call") -> "float":
        """How long a call takes already, without the time in which it could not run."""
        ran_s = self._ran_s(call.since, call.pulse)
        if call.tool is None:
            return ran_s
        # Both may have had no CPU at the same time: the longer one is taken off, not the sum.
        return min(ran_s, self.clock() - call.since - call.tool.starved_s())

    def _ran_s(self, since: "float", pulse: "Pulse") -> "float":
        now = self.clock()
        return now - since - (_stalled_s(self._pulse, now) - _stalled_s(pulse, since))

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
                wait_s = self.deadline_s - self.age_s(holder)
                if wait_s <= 0:
                    self._refuse(call, "%s hangs in %s" % (call.device or "it", holder.call))
                self._now("wait for " + holder.call, call.thread)
                self._free.wait(wait_s)
            call.pulse = self._pulse
            call.since = self.clock()
            if holder is None:
                self._held[call.device] = call
            self._current[call.thread] = call

    def leave(self, call: "Call") -> "None":
        """The call has returned."""
        with self._free:
            if self._held.get(call.device) is call:
                del self._held[call.device]
            self.begin(call.thread)
            self._answered.setdefault(call.thread, {})[call.device] = self.clock()
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
        self._now("", thread)

    def _now(self, what: "str", thread: "int") -> "None":
        pulse = self._pulse
        self._current[thread] = Call(what, "", self.clock(), thread, pulse)

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
        if not call.call.startswith("nvml"):
            return
        if self._held and self._driver_stuck():
            self._refuse(call, "the NVIDIA driver does not answer")
        if self._nvml_closed:
            self._refuse(call, "NVML is closed")

    def _refuse(self, call: "Call", why: "str") -> "None":
        self._refused.add(call.thread)
        self.begin(call.thread)
        raise Stuck(why)

    def _late(self, call: "Call") -> "bool":
        return self.age_s(call) >= self.deadline_s

    def _driver_stuck(self) -> "bool":
        late = [call for call in self._in_nvml() if self._late(call)]
        return len(late) >= DRIVER_STUCK_DEVICES or any(not call.device for call in late)

    def _in_nvml(self) -> "list[Call]":
        return [call for call in self._held.values() if call.call.startswith("nvml")]


def _stalled_s(pulse: "Pulse", now: "float") -> "float":
    """Seconds until `now` in which this process could not run, by the pulse of just before."""
    stalled_s, due = pulse
    return stalled_s if due is None else stalled_s + max(0.0, now - due)
