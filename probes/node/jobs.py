"""Active tests as children of the agent: one at a time, with a deadline, cancelled or killed whole.

A child may start children in sessions of their own (torch's launcher does), so a kill walks the
process tree. The agent is made a "child subreaper", so that orphans of the tree come back to it and
the walk finds them too.
"""

import importlib
import os
import signal
import threading

from probes.node.errors import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from probes.node.context import Context
    from probes.node.frames import Writer

JOBS = {"nccl": "probes.node.nccl", "evidence": "probes.node.evidence"}
"""What "run" orders may name -> the module whose run(job, args) does it."""

GRACE_S = 0.3
"""Between SIGTERM and SIGKILL. Leaving as a whole must take less than a second."""

START_S = 0.2
"""A program on a file system that hangs may never be started: leaving does not wait for it."""

LINE_BYTES = 65536
"""Longest line read from a child; the rest of a longer one is a line of its own."""

TEXT_CHARS = 500
"""Longest text in a job frame."""

BLOB_BYTES = 131072
"""Of a file in one frame: incompressible and in base64 it is 175 KB of the frame's 256."""

BLOB_WAIT_S = 30.0
"""How long one frame may wait for a slow reader."""

PROC_SELF = "/proc/self"
"""Missing where /proc is not mounted."""

SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER, linux/prctl.h, since Linux 3.4."""


class Refused(Exception):
    """The job must not start; the text says why and what to do."""


class Job:
    """One running test: frames about it and the children it may start."""

    def __init__(self, name: "str", ctx: "Context", writer: "Writer", probe: "str") -> "None":
        self.name = name
        self.ctx = ctx
        self.probe = probe
        self.cancelled = threading.Event()
        self.timed_out = threading.Event()
        self._starting = threading.Lock()
        self.child: "subprocess.Popen[bytes] | None" = None
        self.folder = ""
        """A temporary folder of its own; it goes with the agent, too."""
        self._writer = writer

    def state(self, state: "str", text: "str" = "", rc: "int | None" = None) -> "None":
        """Send a job frame: started, progress, done, failed or refused."""
        frame: "dict[str, object]" = {"k": "job", "id": self.name, "state": state}
        if text:
            frame["text"] = text[:TEXT_CHARS]
        if rc is not None:
            frame["rc"] = rc
        self._writer.send(frame)

    def sample(self, device: "str", values: "dict[str, object]") -> "None":
        """Send one answer of the job's probe."""
        self._writer.send({"k": "s", "p": self.probe, "t": self.ctx.mono(), "d": {device: values}})

    def blob(self, name: "str", data: "bytes", note: "str" = "") -> "None":
        """Send a file in chunks, each compressed; waits for the reader, so nothing is dropped."""
        import base64
        import zlib

        chunks = [data[at : at + BLOB_BYTES] for at in range(0, len(data), BLOB_BYTES)] or [b""]
        for number, chunk in enumerate(chunks):
            packed = base64.b64encode(zlib.compress(chunk, 6)).decode("ascii")
            frame: "dict[str, object]" = {"k": "blob", "id": self.name, "f": name, "z": packed}
            if number == len(chunks) - 1:
                frame.update(end=True, note=note[:TEXT_CHARS])
            self._writer.send(frame)
            self._writer.drain(BLOB_WAIT_S)

    def spawn(self, argv: "list[str]", env: "dict[str, str]") -> "subprocess.Popen[bytes]":
        """A child whose output comes through a pipe. OSError when it cannot start.

        Once the job is cancelled none does: the agent may be leaving, and it would stay behind.
        """
        import errno
        import subprocess

        with self._starting:
            if self.cancelled.is_set():
                raise OSError(errno.ECANCELED, "cancelled")
            self.child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(os.environ, **env),
            )
            return self.child

    def start_no_more(self) -> "None":
        """No child is started after this; one that is being started is waited for."""
        waited = self._starting.acquire(True, START_S)
        self.cancelled.set()
        if waited:
            self._starting.release()

    def lines(
        self, argv: "list[str]", timeout_s: "float", env: "dict[str, str]"
    ) -> "Iterator[str]":
        """Run a child (argv, never a shell) and yield its lines, stderr among them.

        Past `timeout_s` the child's tree is killed and `timed_out` is set. OSError when it cannot
        start. The exit status is in `child.returncode` afterwards.
        """
        child = self.spawn(argv, env)
        assert child.stdout is not None
        output = child.stdout
        timer = threading.Timer(timeout_s, self._expire)
        timer.daemon = True
        timer.start()
        try:
            for raw in iter(lambda: output.readline(LINE_BYTES), b""):
                yield raw.decode("utf-8", "replace").rstrip("\r\n")
            child.wait()
        finally:
            timer.cancel()
            kill_tree(child.pid)
            child.wait()
            output.close()

    def cancel(self) -> "None":
        """Stop the job; its thread reports the end."""
        self.start_no_more()
        if self.child is not None:
            kill_tree(self.child.pid)

    def _expire(self) -> "None":
        self.timed_out.set()
        if self.child is not None:
            kill_tree(self.child.pid)


class Jobs:
    """The jobs of an agent. One at a time: two tests would only measure each other.

    Their thread starts before the agent lowers its priority (on Linux a thread's own), so that the
    tests run at the priority the login gave.
    """

    def __init__(self, ctx: "Context", writer: "Writer") -> "None":
        self._ctx = ctx
        self._writer = writer
        self._change = threading.Condition()
        self._job: "Job | None" = None
        self._args: "dict[str, object] | None" = None
        thread = threading.Thread(target=self._serve, name="jobs")
        thread.daemon = True
        thread.start()

    def start(self, name: "str", what: "str", args: "dict[str, object]") -> "None":
        """Hand a job to the jobs' thread, or refuse it with a job frame."""
        job = Job(name, self._ctx, self._writer, what)
        with self._change:
            if what not in JOBS:
                job.state("refused", "this agent knows no test called %s" % what)
            elif self._job is not None:
                job.state("refused", "test %s still runs; cancel it first" % self._job.name)
            else:
                self._job = job
                self._args = args
                self._change.notify_all()

    def cancel(self, name: "str") -> "None":
        """Cancel a running job; one that is over is left alone."""
        job = self._job
        if job is not None and job.name == name:
            job.cancel()

    def kill_all(self) -> "None":
        """Kill every descendant of this process; without /proc, the running test's child.

        The running test's folder goes with them.
        """
        if self._job is not None:
            self._job.start_no_more()
        child = None if self._job is None else self._job.child
        if child is not None and child.returncode is None and not os.path.exists(PROC_SELF):
            kill_tree(child.pid)
        kill_tree(os.getpid(), itself=False)
        if self._job is not None and self._job.folder:
            import shutil

            shutil.rmtree(self._job.folder, ignore_errors=True)

    def _serve(self) -> "None":
        while True:
            with self._change:
                while self._args is None:
                    self._change.wait()
                job, args = self._job, self._args
                self._args = None
            assert job is not None
            become_subreaper()
            self._run(job, args)
            with self._change:
                self._job = None

    def _run(self, job: "Job", args: "dict[str, object]") -> "None":
        try:
            importlib.import_module(JOBS[job.probe]).run(job, args)
        except Refused as error:
            job.state("refused", str(error))
        except Exception as error:
            job.state("failed", describe(error))


def become_subreaper() -> "None":
    """Adopt orphaned descendants; without it (old kernel) only live ancestors lead to them."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def descendants(root: "int") -> "list[int]":
    """Live processes below `root`, children before grandchildren. Zombies are not counted."""
    below: "dict[int, list[int]]" = {}
    for name in _listed("/proc"):
        if name.isdigit():
            parent = _parent(int(name))
            if parent is not None:
                below.setdefault(parent, []).append(int(name))
    found, queue = [], [root]
    while queue:
        children = below.get(queue.pop(0), [])
        found.extend(children)
        queue.extend(children)
    return found


def _listed(place: "str") -> "list[str]":
    """Names there; [] in a container without /proc, where only the child itself can be killed."""
    try:
        return os.listdir(place)
    except OSError:
        return []


def _parent(pid: "int") -> "int | None":
    """The parent's pid; None for a zombie or a process that has gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else int(parent)


def _lives(pid: "int") -> "bool":
    """Whether it is there to be killed; without /proc a zombie counts too."""
    if os.path.exists(PROC_SELF):
        return _parent(pid) is not None
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def kill_tree(root: "int", itself: "bool" = True) -> "None":
    """SIGTERM to a process and all below it, then SIGKILL to what is left after GRACE_S.

    Who was below stays a target when its parent dies first.
    """
    pids: "list[int]" = []
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 0.1), (signal.SIGKILL, 0.0)):
        for top in [root] + pids:
            pids = pids + [pid for pid in descendants(top) if pid not in pids]
        if itself and root not in pids:
            pids.append(root)
        pids = [pid for pid in pids if _lives(pid)]
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, number)
            except OSError:
                pass
        _wait_gone(pids, wait_s)


def _wait_gone(pids: "list[int]", limit_s: "float") -> "None":
    """Until none of them lives, or the time is over."""
    pause = threading.Event()
    for _ in range(int(limit_s / 0.02)):
        if not any(_lives(pid) for pid in pids):
            return
        pause.wait(0.02)
