"""Active tests as children of the agent: one at a time, with a deadline, cancelled or killed whole.

What a child starts outside of our process tree, a container, has a command of its own that ends it.
"""

import importlib
import os
import threading

from probes.node.errors import describe
from probes.node.process_tree import PROC_SELF, become_subreaper, kill_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from probes.node.context import Context
    from probes.node.frames import Writer

JOBS = {
    "nccl": "probes.node.nccl",
    "gpu_test": "probes.node.gpu_test",
    "evidence": "probes.node.evidence",
}
"""What "run" orders may name -> the module whose run(job, args) does it."""

BURY_S = 15.0
"""How long ending a container may take: docker itself gives one ten seconds."""

START_S = 0.2
"""A program on a file system that hangs may never be started: leaving does not wait for it."""

LINGER_S = 2.0
"""How long a killed child may keep its output open."""

LINE_BYTES = 65536
"""Longest line read from a child; the rest of a longer one is a line of its own."""

TEXT_CHARS = 500
"""Longest text in a job frame."""

BLOB_BYTES = 131072
"""Of a file in one frame: incompressible and in base64 it is 175 KB of the frame's 256."""

BLOB_WAIT_S = 30.0
"""How long one frame may wait for a slow reader."""


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
        self.bury: "list[str]" = []
        """argv that ends what the child started outside of our process tree: a container."""
        self._writer = writer

    def state(self, state: "str", text: "str" = "", rc: "int | None" = None) -> "None":
        """Send a job frame: started, progress, done, failed or refused."""
        frame: "dict[str, object]" = {"k": "job", "id": self.name, "state": state}
        if text:
            frame["text"] = text[:TEXT_CHARS]
        if rc is not None:
            frame["rc"] = rc
        self._writer.send(frame)

    def sample(
        self,
        device: "str",
        values: "dict[str, object]",
        rows: "list[dict[str, object]] | None" = None,
    ) -> "None":
        """Send one answer of the job's probe; `rows` are about this device."""
        frame: "dict[str, object]" = {"k": "s", "p": self.probe, "t": self.ctx.mono()}
        frame["d"] = {device: values}
        if rows:
            frame.update(r=rows, on=device)
        self._writer.send(frame)

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
        timer = threading.Timer(timeout_s, self._expire)
        timer.daemon = True
        timer.start()
        try:
            for raw in self._output(child):
                yield raw.decode("utf-8", "replace").rstrip("\r\n")
        finally:
            timer.cancel()
            kill_tree(child.pid)
            self._reap(child)
            if child.returncode != 0:
                _buried(self.bury, BURY_S)

    def _output(self, child: "subprocess.Popen[bytes]") -> "Iterator[bytes]":
        """Lines of its output, until the end or LINGER_S after it should have ended.

        Whoever hangs in the driver outlives SIGKILL and keeps the pipe open.
        """
        import select
        import time

        assert child.stdout is not None
        handle, partial, quiet_since = child.stdout.fileno(), b"", time.monotonic()
        while True:
            data = None
            if select.select([handle], [], [], 0.2)[0]:
                data = os.read(handle, LINE_BYTES)
                quiet_since = time.monotonic()
            over = self.cancelled.is_set() or self.timed_out.is_set() or child.poll() is not None
            if data == b"" or (over and time.monotonic() - quiet_since > LINGER_S):
                break
            lines = (partial + (data or b"")).split(b"\n")
            partial = lines.pop()
            if len(partial) > LINE_BYTES:
                lines, partial = lines + [partial], b""
            for line in lines:
                yield line
        if partial:
            yield partial

    def _reap(self, child: "subprocess.Popen[bytes]") -> "None":
        """Take its exit status; one that hangs in the kernel is left."""
        import subprocess

        try:
            child.wait(LINGER_S)
        except subprocess.TimeoutExpired:
            child.returncode = -9
        assert child.stdout is not None
        child.stdout.close()

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

        The running test's container and folder go with them.
        """
        job = self._job
        bury: "list[str]" = []
        if job is not None:
            job.start_no_more()
            bury, job.bury = job.bury, []  # run by its thread it would be killed below
        child = None if job is None else job.child
        if child is not None and child.returncode is None and not os.path.exists(PROC_SELF):
            kill_tree(child.pid)
        kill_tree(os.getpid(), itself=False)
        _buried(bury, 0.0)
        if job is not None and job.folder:
            import shutil

            shutil.rmtree(job.folder, ignore_errors=True)

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


def _buried(argv: "list[str]", wait_s: "float") -> "None":
    """Run a job's `bury`. With no time to wait it outlives us: we are leaving."""
    import subprocess

    if not argv:
        return
    nowhere = subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            argv, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
        if wait_s:
            child.wait(wait_s)
    except (OSError, subprocess.TimeoutExpired):
        pass
