"""One thread per probe, ticks that are skipped rather than queued, and the watch over all of them.

A worker whose call is past its deadline is reported as hung. When that call is booked on a device
(so that nobody can stack a second one on it), another worker takes over the probe without that
device; the first one reports `unhung` and ends when its call returns, if ever.
"""

import threading

from probes.node.context import Stuck
from probes.node.errors import describe, grumble, trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from probes.node.context import Call, Context
    from probes.node.frames import Writer

HUNG_REPEAT_S = 5.0
"""How often a hung call is reported again (wire protocol)."""

BEAT_S = 0.5
"""How often the watch comes by at most; a tenth of the deadline when that is shorter. So much of a
stall is blamed on a call: half of what driver.call_s allows. A beat costs up to 0.2 ms of CPU."""

LOOK_BEATS = 2
"""It looks at the calls in flight each so many times."""

SPREAD_S = 0.05
"""A device read so much before its answer's time carries its own: a rate over the shortest window
of a pass (1 s) is then at most 5 % off, although the probe waited for another device meanwhile."""


class Worker:
    """Runs one probe in its own daemon thread."""

    def __init__(
        self,
        module: "ModuleType",
        crew: "Crew",
        round_: "int" = 0,
        since: "float | None" = None,
    ) -> "None":
        self.module = module
        self.name: "str" = module.NAME
        self.follows: "bool" = module.INTERVAL == "stream" and not crew.one_pass
        self.crew = crew
        self.ctx = crew.ctx
        self.round = round_
        """How many answers this probe has given; a pass wants one, or two of counters."""
        self.since = since
        """When the first answer of a pass was complete: its window runs from there."""
        self.abandoned = False
        self.hung_call: "Call | None" = None
        self.reported = 0.0
        self.done = False
        self.last_error = ""
        self.ident = 0
        self.wake = threading.Event()

    def start(self) -> "None":
        """Start the thread; where the system gives none (ulimit), that costs this probe only."""
        thread = threading.Thread(target=self._run, name=self.name)
        thread.daemon = True
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            self.done = True
            self.crew.error(self.name, "no thread for this probe: %s" % describe(error))
            self.crew.changed()

    def _run(self) -> "None":
        self.ident = threading.get_ident()
        try:
            if self.follows:
                self._follow()
            elif self.crew.one_pass:
                self._pass()
            else:
                self._repeat()
        finally:
            self.done = True
            self.ctx.release(self.ident)
            self.crew.changed()

    def _repeat(self) -> "None":
        due = self.ctx.mono()
        while not self.abandoned:
            self.tick()
            now = self.ctx.mono()
            interval = self._interval_s()
            late = int((now - due) // interval)
            self.crew.skipped_ticks += late
            due += (late + 1) * interval
            while not self.abandoned and self.wake.wait(max(0.0, due - self.ctx.mono())):
                self.wake.clear()
                due = now + self._interval_s()

    def _interval_s(self) -> "float":
        """A rare answer that is not complete is asked for again at the next slow tick."""
        interval = self.crew.interval_s(self.module.INTERVAL)
        partial = self.ctx.refused(self.ident)
        return min(interval, self.crew.interval_s("slow")) if partial else interval

    def _pass(self) -> "None":
        rounds = 2 if self.module.COUNTERS else 1
        while self.round < rounds and not self.abandoned:
            if self.since is not None:
                self._until(self.since + self.crew.window_s)
            self.tick()
            self.since = self.ctx.mono()
            self.round += 1

    def _until(self, due: "float") -> "None":
        while self.ctx.mono() < due:
            self.wake.wait(due - self.ctx.mono())
            self.wake.clear()

    def _follow(self) -> "None":
        try:
            self.module.follow(self.ctx, self._emit)
        except Exception as error:
            self._failed(error)

    def tick(self) -> "None":
        """Ask once and send the answer. Never raises."""
        self.ctx.tick(self.ident)
        try:
            devices, rows = self.module.collect(self.ctx)
        except Stuck:
            devices, rows = None, None
        except Exception as error:
            self._failed(error)
            devices, rows = None, None
        finally:
            self.ctx.end(self.ident)
        self.recovered()
        if devices is not None and not self.abandoned:
            self._emit(devices, rows)

    def _emit(
        self,
        devices: "dict[str, dict[str, object]]",
        rows: "list[dict[str, object]]",
    ) -> "None":
        now = self.ctx.mono()
        frame: "dict[str, object]" = {"k": "s", "p": self.name, "t": now, "d": devices}
        read = self.ctx.answered(self.ident)
        early = {one: at for one, at in read.items() if one in devices and now - at > SPREAD_S}
        if early:
            frame["at"] = early
        if rows:
            frame["r"] = rows
        partial = self.ctx.refused(self.ident)
        gone = [] if partial else self.crew.gone(self.name, set(devices))
        if gone:
            frame["gone"] = gone
        once = "" if self.module.INTERVAL == "stream" else self.name
        if self.crew.writer.send(frame, once):
            self.crew.saw(self.name, set(devices), partial)

    def _failed(self, error: "Exception") -> "None":
        text = describe(error)
        if text != self.last_error:
            self.last_error = text
            grumble(trace())
        self.crew.error(self.name, text)

    def recovered(self) -> "None":
        """The call that was reported hung is over; say so once."""
        with self.crew.change:
            call, self.hung_call = self.hung_call, None
        if call is not None:
            self.crew.writer.send(
                {"k": "unhung", "p": self.name, "dev": call.device, "t": self.ctx.mono()}
            )


class Crew:
    """All workers of an agent, their intervals and the watch over them."""

    def __init__(
        self,
        ctx: "Context",
        writer: "Writer",
        intervals: "dict[str, float]",
        window_s: "float | None" = None,
    ) -> "None":
        """`intervals` in seconds by name; with `window_s` each probe runs for one pass only."""
        self.ctx = ctx
        self.writer = writer
        self.intervals = intervals
        self.one_pass = window_s is not None
        self.window_s = window_s or 0.0
        self.workers: "list[Worker]" = []
        self.skipped_ticks = 0
        self._seen: "dict[str, set[str]]" = {}
        self.change = threading.Condition()
        """Guards each worker's hung call; notified when one ends or hangs."""

    def hire(self, modules: "list[ModuleType]") -> "None":
        """A worker for each probe, not yet started, and the watch."""
        self.workers = [Worker(module, self) for module in modules]
        watch = threading.Thread(target=self._watch, name="watch")
        watch.daemon = True
        watch.start()

    def start(self) -> "None":
        """Start the workers."""
        for worker in list(self.workers):
            worker.start()

    def interval_s(self, name: "str") -> "float":
        """The interval's length now."""
        return self.intervals[name]

    def retime(self, intervals: "dict[str, float]") -> "None":
        """Change intervals; each probe's next tick follows the new one."""
        self.intervals.update(intervals)
        for worker in self.workers:
            worker.wake.set()

    def changed(self) -> "None":
        """A worker has ended or hangs: a pass may be over."""
        with self.change:
            self.change.notify_all()

    def wait(self, limit_s: "float") -> "bool":
        """Until each probe has given its answers of a pass; hung ones do not count.

        The limit is of seconds in which this process could run.
        """
        spent_s = self.ctx.timer()
        with self.change:
            while self._unfinished():
                left_s = limit_s - spent_s()
                if left_s <= 0:
                    return False
                self.change.wait(left_s)
        return True

    def give_up(self) -> "None":
        """Report each probe that has not answered in a pass and is not reported yet."""
        for worker in self._unfinished():
            call = self.ctx.current(worker.ident)
            if call is not None:
                self._hung(worker, call)

    def gone(self, probe: "str", now: "set[str]") -> "list[str]":
        """Devices of the answers sent before that are not in this one."""
        return sorted(self._seen.get(probe, set()) - now)

    def saw(self, probe: "str", now: "set[str]", partial: "bool") -> "None":
        """Remember the devices of an answer that was sent; a `partial` one lacks stuck devices."""
        self._seen[probe] = self._seen.get(probe, set()) | now if partial else now

    def error(self, probe: "str", text: "str") -> "None":
        """Send an err frame."""
        self.writer.send({"k": "err", "p": probe, "text": text, "t": self.ctx.mono()})

    def _unfinished(self) -> "list[Worker]":
        return [w for w in self.workers if not (w.done or w.abandoned or w.hung_call)]

    def _watch(self) -> "None":
        pause = threading.Event()
        period_s = min(BEAT_S, self.ctx.deadline_s / 10)
        while True:
            for _ in range(LOOK_BEATS):
                self.ctx.beat(period_s)
                pause.wait(period_s)
            self._look()

    def _look(self) -> "None":
        for worker in list(self.workers):
            if worker.done:  # its thread's number may already be another's
                self.workers.remove(worker)
            else:
                self._check(worker)

    def _check(self, worker: "Worker") -> "None":
        now = self.ctx.mono()
        call = self.ctx.current(worker.ident)
        hung = worker.hung_call
        if hung is not None and hung is call:
            if now - worker.reported >= HUNG_REPEAT_S:
                self._report(worker, hung, now)
            return
        if hung is not None:  # it went on to something else, which may hang in its turn
            worker.recovered()
        if call is None or worker.abandoned or (worker.follows and not call.call):
            return  # a stream waits for news in its own code
        if self.ctx.age_s(call) >= self.ctx.deadline_s:
            self._hung(worker, call)

    def _hung(self, worker: "Worker", call: "Call") -> "None":
        with self.change:
            if self.ctx.current(worker.ident) is not call:
                return  # it came back just now
            worker.hung_call = call
            self._report(worker, call, self.ctx.mono())
            if self.ctx.holds(call):
                self.ctx.abandon(worker.ident)
                worker.abandoned = True
                other = Worker(worker.module, self, worker.round, worker.since)
                self.workers.append(other)
                other.start()
            self.change.notify_all()

    def _report(self, worker: "Worker", call: "Call", now: "float") -> "None":
        worker.reported = now
        self.writer.send({
            "k": "hung", "p": worker.name, "dev": call.device,
            "call": call.call or "its own code", "since": call.since, "t": now,
        })  # fmt: skip
