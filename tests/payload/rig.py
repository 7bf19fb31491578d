"""A real agent in a real subprocess over pipes, and how to wait for what it says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from inventory.node import Node
from probes import bundle

WAIT_S = 200.0
"""Longest wait for anything: two loaded cores, never a measure."""

Frame = dict[str, Any]


def probe(body: str, name: str = "testing", interval: str = "fast", counters: bool = False) -> str:
    """Source of a probe module of its own for a test."""
    head = f"NAME={name!r}\nINTERVAL={interval!r}\nCOUNTERS={counters}\nMETRICS={{}}\n"
    return head + body


def config(*probes: str, extra: dict[str, str] | None = None, **changes: Any) -> bundle.AgentConfig:
    """Settings with the named probes; `extra` are test probes by name, whose source is given."""
    ours = {name: f"site_{name}" for name in extra or {}}
    made = bundle.AgentConfig(probes=[*probes, *ours], **changes)
    made.modules.update(ours)
    made.extra.update({ours[name]: source for name, source in (extra or {}).items()})
    return made


def limits(settings: bundle.AgentConfig, module: str, **values: float) -> bundle.AgentConfig:
    """The settings again: the payload's module has these numbers instead of its own."""
    source = Path(bundle.__file__).with_name("node").joinpath(f"{module}.py").read_text()
    for name, value in values.items():
        source, found = re.subn(rf"(?m)^{name} = [0-9.]+$", f"{name} = {value!r}", source)
        assert found == 1, name
    settings.extra[f"probes.node.{module}"] = source
    return settings


class AgentProcess:
    """The payload's own command under a shell; what it prints, sorted into frames and noise."""

    def __init__(
        self,
        settings: bundle.AgentConfig,
        *,
        python: str | None = None,
        shell: str = "sh",
        node: Node | None = None,
        env: dict[str, str] | None = None,
        cwd: str | Path = "/",
        read: bool = True,
    ) -> None:
        """Start it and write the payload."""
        self.settings = settings
        command = bundle.remote_command(node or Node(name="n", python=python))
        self.process = subprocess.Popen(
            [shell, "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            bufsize=0,
        )
        self.frames: list[Frame] = []
        self.noise: list[bytes] = []
        self.errors = b""
        self.longest = 0
        self._news = threading.Condition()
        self._ended = False
        self._threads = [threading.Thread(target=self._read_errors, daemon=True)]
        if read:
            self._threads.append(threading.Thread(target=self._read, daemon=True))
        for thread in self._threads:
            thread.start()
        self.write(bundle.payload(settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(WAIT_S)
            finally:
                self.process.kill()
        self.process.wait(WAIT_S)
        for thread in self._threads:
            thread.join(WAIT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()

    def start_reading(self) -> None:
        """For a test that began without a reader."""
        thread = threading.Thread(target=self._read, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _read(self) -> None:
        marker = self.settings.marker.encode() + b" "
        assert self.process.stdout is not None
        with open(self.process.stdout.fileno(), "rb", closefd=False) as lines:
            for line in lines:
                with self._news:
                    self.longest = max(self.longest, len(line))
                    if line.startswith(marker):
                        self.frames.append(json.loads(line[len(marker) :]))
                    else:
                        self.noise.append(line)
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        try:
            while block := os.read(self.process.stderr.fileno(), 65536):
                self.errors += block
        except OSError:
            pass

    def write(self, data: bytes) -> None:
        """Bytes to the agent's stdin; a process that has gone is no error here."""
        assert self.process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[self.process.stdin.write(view) :]
        except BrokenPipeError:
            pass

    def order(self, **fields: Any) -> None:
        """One control line."""
        self.write(json.dumps(fields).encode() + b"\n")

    def close(self) -> None:
        """End the agent's stdin."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait_for(self, wanted: Callable[[Frame], bool], after: int = 0) -> Frame:
        """The first frame (from index `after`) that fits; AssertionError when none comes."""
        frames = self.collect(lambda found: any(map(wanted, found[after:])))
        return next(filter(wanted, frames[after:]))

    def collect(self, enough: Callable[[list[Frame]], bool]) -> list[Frame]:
        """All frames as soon as they are enough; AssertionError with what came instead."""
        with self._news:
            self._news.wait_for(lambda: self._ended or enough(self.frames), WAIT_S)
            said = f"{self.frames!r} {self.noise!r} {self.errors.decode(errors='replace')}"
            assert enough(self.frames), f"the agent said only {said}"
            return list(self.frames)

    def finish(self) -> int:
        """Exit status once it has ended and everything it said is read."""
        status = self.process.wait(WAIT_S)
        for thread in self._threads:
            thread.join(WAIT_S)
        return status


def sample(name: str) -> Callable[[Frame], bool]:
    """Is it a sample of this probe?"""
    return lambda frame: frame["k"] == "s" and frame["p"] == name


def kind(name: str, **fields: Any) -> Callable[[Frame], bool]:
    """Is it a frame of this kind with these fields?"""
    return lambda frame: frame["k"] == name and all(frame.get(k) == v for k, v in fields.items())


def alive(pid: int) -> bool:
    """Whether a process lives (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def gone(*pids: int) -> bool:
    """Wait until none of them lives."""
    return until(lambda: not any(map(alive, pids)))


def until(true: Callable[[], bool], limit_s: float = WAIT_S) -> bool:
    """Poll until a condition holds; its last value."""
    pause = threading.Event()
    deadline = time.monotonic() + limit_s
    while not true() and time.monotonic() < deadline:
        pause.wait(0.01)
    return true()
