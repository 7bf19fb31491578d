"""The agent: hello first, then probes in threads, control lines from stdin, gone at EOF.

stdin is the lifeline: when it ends, for whatever reason, children are killed and the process
leaves through os._exit, so that a thread in an uninterruptible driver call cannot keep it.
"""

import importlib
import json
import os
import signal
import threading

from probes.node import hello
from probes.node.context import Context
from probes.node.errors import describe, grumble, trace
from probes.node.frames import Writer
from probes.node.jobs import Job, Jobs
from probes.node.workers import Crew

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType
    from typing import BinaryIO

CONTROL_BYTES = 65536
"""Longest control line; a longer one is refused whole."""

GIVE_UP_DEADLINES = 10
"""A pass ends after so many deadlines at most. What hangs is not waited for: these are for probes
that get on slowly, on a node without a CPU to spare, when --timeout gives them the time."""

INTERVAL_S = (0.2, 86400.0)
"""Shortest and longest interval accepted: five ticks a second, one a day."""

STACK_BYTES = 2 << 20
"""Of a thread, instead of 8 MiB: sixteen threads then fit where `ulimit -v` is 250 MB."""

M_ARENA_MAX = -8
"""glibc, malloc.h."""

DRAIN_S = 0.3
"""How long leaving may wait for stdout; leaving as a whole must take less than a second."""


class Agent:
    """One session on one node."""

    def __init__(self, config: "dict[str, object]") -> "None":
        """`config` as in probes/node/__init__.py; the bastion has checked it."""
        self.config = config
        self.ctx = Context(str(config["root"]), _number(config["deadline_s"]))
        one_pass = config["mode"] == "pass"
        self.writer = Writer(str(config["marker"]), keep_all=one_pass)
        intervals = {name: _number(config[name + "_s"]) for name in ("fast", "slow", "rare")}
        window_s = _number(config["window_s"]) if one_pass else None
        self.crew = Crew(self.ctx, self.writer, intervals, window_s)
        self.jobs = Jobs(self.ctx, self.writer)
        self.ctx.statistics = self._statistics
        self._leaving = threading.Lock()

    def start(self) -> "None":
        """Say hello and let the probes run."""
        modules, failed = self._modules()
        for module in modules:
            prepare = getattr(module, "prepare", None)
            try:
                if prepare is not None:
                    prepare(self.ctx)
            except Exception as error:
                failed.append((module.NAME, describe(error)))
        self.writer.send(hello.hello(self.ctx, [module.NAME for module in modules]))
        for name, text in failed:
            self.crew.error(name, text)
        self.crew.hire(modules)
        if self.crew.one_pass:
            _watch(self._pass)  # before the workers: with few threads to have, it matters more
        self.crew.start()

    def _statistics(self) -> "dict[str, int]":
        return {
            "frames": self.writer.sent,
            "skipped_ticks": self.crew.skipped_ticks + self.writer.skipped,
            "dropped_frames": self.writer.dropped,
        }

    def _modules(self) -> "tuple[list[ModuleType], list[tuple[str, str]]]":
        """The probes asked for, and (name, why) of those that cannot even be imported."""
        known = self.config["modules"]
        assert isinstance(known, dict)
        wanted = self.config.get("probes")
        modules, failed = [], []
        for name in sorted(known) if not isinstance(wanted, list) else wanted:
            try:
                modules.append(importlib.import_module(known[name]))
            except KeyError:
                failed.append((str(name), "no such probe"))
            except Exception as error:
                failed.append((name, describe(error)))
        return modules, failed

    def _pass(self) -> "None":
        limit_s = GIVE_UP_DEADLINES * self.ctx.deadline_s + self.crew.window_s
        if not self.crew.wait(limit_s):
            self.crew.give_up()
        self.writer.send({"k": "end", "t": self.ctx.mono()})
        self.writer.drain(None)  # a slow reader gets all of it; one that left ends us by EOF
        self.leave()

    def listen(self, stream: "BinaryIO") -> "None":
        """Obey control lines until stdin ends."""
        while True:
            line = _line(stream)
            if not line:
                return
            if not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = _line(stream)
                self.crew.error("agent", "a control line is too long or cut short")
            elif line.strip():
                self._obey(line)

    def _obey(self, line: "bytes") -> "None":
        try:
            order = json.loads(line.decode("utf-8"))
            op = order["op"]
            if op == "run":
                self.jobs.start(str(order["id"]), str(order["what"]), dict(order.get("args") or {}))
            elif op == "cancel":
                self.jobs.cancel(str(order["id"]))
            elif op == "intervals":
                self.crew.retime(_intervals(order))
            elif op == "nvml" and isinstance(order["open"], bool):
                _watch(self._nvml, str(order["id"]), order["open"])
            else:
                raise ValueError("unknown op %r" % (op,))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.crew.error("agent", "control line not understood: %s" % describe(error)[:200])

    def _nvml(self, name: "str", wanted: "bool") -> "None":
        """Open or close NVML in a thread of its own: the driver may hang."""
        job = Job(name, self.ctx, self.writer, "nvml")
        try:
            (self.ctx.open_nvml if wanted else self.ctx.close_nvml)()
            job.state("done", "NVML is open" if wanted else "NVML is closed")
        except Exception as error:
            job.state("failed", describe(error))

    def leave(self, status: "int" = 0) -> "None":
        """Kill the children and end the process, whatever its threads do."""
        if not self._leaving.acquire(False):
            threading.Event().wait()
        try:
            self.jobs.kill_all()
            self.writer.drain(DRAIN_S)
        finally:
            os._exit(status)


def main(config: "dict[str, object]", stream: "BinaryIO") -> "None":
    """Run until stdin ends. Does not return."""
    os.chdir("/")
    threading.stack_size(STACK_BYTES)
    _share_one_arena()
    agent = Agent(config)
    os.nice(int(_number(config.get("nice", 10))))  # of this thread and those it starts from now on
    signals, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _ignore)
    _watch(_leave_on_signal, agent, signals)
    _watch(_leave_when_broken, agent)
    status = 1
    try:
        agent.start()
        agent.listen(stream)
        status = 0
    except Exception:
        grumble(trace())  # leaving through os._exit would swallow it
    finally:
        agent.leave(status)


def _share_one_arena() -> "None":
    """glibc reserves 64 MB of address space per thread that allocates: too much under `ulimit -v`.

    One arena serves our threads, which hold Python's own lock anyway.
    """
    try:
        import ctypes

        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    except (ImportError, OSError, AttributeError):
        pass


def _line(stream: "BinaryIO") -> "bytes":
    """A control line, or part of one that is too long; b"" at the end, broken or not."""
    try:
        return stream.readline(CONTROL_BYTES)
    except OSError:
        return b""


def _watch(target: "Callable[..., None]", *args: "object") -> "None":
    thread = threading.Thread(target=target, args=args, name=target.__name__)
    thread.daemon = True
    thread.start()


def _ignore(number: "int", frame: "FrameType | None") -> "None":
    """The wake-up descriptor does the work: a handler could wait for the main thread for ever."""


def _leave_on_signal(agent: "Agent", signals: "int") -> "None":
    agent.leave(128 + os.read(signals, 1)[0])


def _leave_when_broken(agent: "Agent") -> "None":
    agent.writer.broken.wait()
    agent.leave()


def _intervals(order: "dict[str, object]") -> "dict[str, float]":
    """The intervals of an order in seconds; ValueError when one is out of bounds."""
    found = {}
    for name in ("fast", "slow", "rare"):
        if name + "_s" in order:
            found[name] = _number(order[name + "_s"])
            if not INTERVAL_S[0] <= found[name] <= INTERVAL_S[1]:
                raise ValueError("%s_s must be %g to %g s" % ((name,) + INTERVAL_S))
    return found


def _number(value: "object") -> "float":
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("not a number: %r" % (value,))
    return float(value)
