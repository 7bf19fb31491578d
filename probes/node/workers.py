"""One thread per probe, ticks that are skipped rather than queued, and the watch over all of them.

A worker whose call is past its deadline is reported as hung. When that call is booked on a device
(so that nobody can stack a second one on it), another worker takes over the probe without that
device; the first one reports `unhung` and ends when its call returns, if ever.
"""

import sys
import threading
import traceback

from probes.node.context import Stuck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from probes.node.context import Call, Context
    from probes.node.frames import Writer

HUNG_REPEAT_S = 5.0
"""How often a hung call is reported again (wire protocol)."""

WATCH_S = 1.0
"""How often the watch looks at most; a fifth of the deadline when that is shorter."""

ERROR_CHARS = 600
"""One line on the operator's screen and some source lines."""


class Worker:
    """Runs one probe in its own daemon thread."""

    def __init__(self, module: "ModuleType", crew: "Crew", round_: "int" = 0) -> "None":
        self.module = module
        self.name: "str" = module.NAME
        self.crew = crew
        self.ctx = crew.ctx
        self.round = round_
        """How many answers this probe has given; a pass wants one, or two of counters."""
        self.abandoned = False
        self.hung_call: "Call | None" = None
        self.reported = 0.0
        self.done = False
        self.last_error = ""
        self.ident = 0
        self.wake = threading.Event()

    def start(self) -> "None":
        """Start the thread."""
        thread = threading.Thread(target=self._run, name=self.name)
        thread.daemon = True
        thread.start()

    def _run(self) -> "None":
        self.ident = threading.get_ident()
        try:
            if self.module.INTERVAL == "stream" and not self.crew.one_pass:
                self._follow()
            elif self.crew.one_pass:
                self._pass()
            else:
                self._repeat()
        finally:
            self.done = True
            self.ctx.release(self.ident)
            self.crew.finished()

    def _repeat(self) -> "None":
        due = self.ctx.mono()
        while not self.abandoned:
            self.tick()
            now = self.ctx.mono()
            interval = self.crew.interval_s(self.module.INTERVAL)
            late = int((now - due) // interval)
            self.crew.skipped_ticks += late
            due += (late + 1) * interval
            while not self.abandoned and self.wake.wait(max(0.0, due - self.ctx.mono())):
                self.wake.clear()
                due = now + self.crew.interval_s(self.module.INTERVAL)

    def _pass(self) -> "None":
        rounds = 2 if self.module.COUNTERS else 1
        first = self.ctx.mono()
        while self.round < rounds and not self.abandoned:
            if self.round:
                self.wake.wait(max(0.0, first + self.crew.window_s - self.ctx.mono()))
            self.tick()
            self.round += 1

    def _follow(self) -> "None":
        try:
            self.module.follow(self.ctx, self._emit)
        except Exception as error:
            self._failed(error)

    def tick(self) -> "None":
        """Ask once and send the answer. Never raises."""
        at = self.ctx.mono()
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
        self._recovered()
        if devices is not None and not self.abandoned:
            self._emit(devices, rows, at)

    def _emit(
        self,
        devices: "dict[str, dict[str, object]]",
        rows: "list[dict[str, object]]",
        at: "float | None" = None,
    ) -> "None":
        frame: "dict[str, object]" = {
            "k": "s",
            "p": self.name,
            "t": self.ctx.mono() if at is None else at,
            "d": devices,
        }
        if rows:
            frame["r"] = rows
        gone = self.crew.gone(self.name, set(devices), self.ctx.refused(self.ident))
        if gone:
            frame["gone"] = gone
        once = "" if self.module.INTERVAL == "stream" else self.name
        self.crew.writer.send(frame, once)

    def _failed(self, error: "Exception") -> "None":
        text = describe(error)
        if text != self.last_error:
            self.last_error = text
            sys.stderr.write(traceback.format_exc())
            sys.stderr.flush()
        self.crew.error(self.name, text)

    def _recovered(self) -> "None":
        call = self.hung_call
        if call is not None:
            self.hung_call = None
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
        self._change = threading.Condition()

    def hire(self, modules: "list[ModuleType]") -> "None":
        """Start a worker for each probe, and the watch."""
        self.workers = [Worker(module, self) for module in modules]
        for worker in list(self.workers):
            worker.start()
        watch = threading.Thread(target=self._watch, name="watch")
        watch.daemon = True
        watch.start()

    def interval_s(self, name: "str") -> "float":
        """The interval's length now."""
        return self.intervals[name]

    def retime(self, intervals: "dict[str, float]") -> "None":
        """Change intervals; each probe's next tick follows the new one."""
        self.intervals.update(intervals)
        for worker in self.workers:
            worker.wake.set()

    def finished(self) -> "None":
        """A worker's thread has ended."""
        with self._change:
            self._change.notify_all()

    def wait(self, limit_s: "float") -> "bool":
        """Until each probe has given its answers of a pass; hung ones do not count."""
        with self._change:
            return self._change.wait_for(lambda: not self._unfinished(), limit_s)

    def give_up(self) -> "None":
        """Report each probe that has not answered in a pass and is not reported yet."""
        for worker in self._unfinished():
            call = self.ctx.current(worker.ident)
            if call is not None and worker.hung_call is None:
                self._hung(worker, call)

    def gone(self, probe: "str", now: "set[str]", partial: "bool") -> "list[str]":
        """Devices of the answers before that are not in this one; none when it is `partial`."""
        before = self._seen.get(probe, set())
        self._seen[probe] = before | now if partial else now
        return [] if partial else sorted(before - now)

    def error(self, probe: "str", text: "str") -> "None":
        """Send an err frame."""
        self.writer.send({"k": "err", "p": probe, "text": text, "t": self.ctx.mono()})

    def _unfinished(self) -> "list[Worker]":
        return [w for w in self.workers if not w.done and not w.abandoned]

    def _watch(self) -> "None":
        pause = threading.Event()
        while not pause.wait(min(WATCH_S, self.ctx.deadline_s / 5)):
            for worker in list(self.workers):
                if worker.done:  # its thread's number may already be another's
                    self.workers.remove(worker)
                else:
                    self._check(worker)

    def _check(self, worker: "Worker") -> "None":
        now = self.ctx.mono()
        if worker.hung_call is not None:
            if now - worker.reported >= HUNG_REPEAT_S:
                self._report(worker, worker.hung_call, now)
            return
        call = self.ctx.current(worker.ident)
        if call is not None and now - call.since >= self.ctx.deadline_s and not worker.abandoned:
            self._hung(worker, call)

    def _hung(self, worker: "Worker", call: "Call") -> "None":
        worker.hung_call = call
        self._report(worker, call, self.ctx.mono())
        if self.ctx.holds(call):
            self.ctx.abandon(worker.ident)
            worker.abandoned = True
            other = Worker(worker.module, self, worker.round)
            self.workers.append(other)
            other.start()

    def _report(self, worker: "Worker", call: "Call", now: "float") -> "None":
        worker.reported = now
        self.writer.send({
            "k": "hung", "p": worker.name, "dev": call.device,
            "call": call.call or "its own code", "since": call.since, "t": now,
        })  # fmt: skip


def describe(error: "BaseException") -> "str":
    """An exception as one line: what, then the innermost source lines."""
    what = traceback.format_exception_only(type(error), error)[-1].strip()
    steps = [
        "%s:%s %s: %s" % (frame.filename, frame.lineno, frame.name, frame.line)
        for frame in traceback.extract_tb(error.__traceback__)[-3:]
    ]
    return "; ".join([what] + steps[::-1])[:ERROR_CHARS]
