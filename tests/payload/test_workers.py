"""When an answer was read, which hang is told, what a slow reader may miss: nothing of a pass."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from probes.answers import EARLY_MAX_S, Answers
from probes.event import Sample
from probes.node import frames
from probes.node.context import Context
from probes.node.workers import Crew, Worker
from probes.wire import Hello, Tick, read_frame
from tests.payload.rig import WAIT_S, AgentProcess, Frame, config, kind, probe, sample, until

SLOW_START = probe(
    """
import threading
def collect(ctx):
    seen = ctx.memory(NAME)
    if not seen:
        threading.Event().wait(0.4)
    seen["n"] = seen.get("n", 0) + 1
    return {"a": {"read": ctx.mono()}}, []
""",
    name="slow_start",
    counters=True,
)
"""Its counter is the clock itself; its first answer needs longer than the window."""

TWO_DEVICES = probe(
    """
import threading
def collect(ctx):
    with ctx.busy("nvmlX", "a"):
        first = ctx.mono()
    threading.Event().wait(0.2)
    with ctx.busy("nvmlX", "b"):
        second = ctx.mono()
    return {"a": {"read": first}, "b": {"read": second}}, []
""",
    name="two",
)

OWN_CODE_THEN_DEVICE = probe(
    """
import os, threading
from probes.node.context import Stuck
def wait_for(path):
    while not os.path.exists(path):
        threading.Event().wait(0.02)
def collect(ctx):
    wait_for(ctx.path("go"))
    devices = {}
    for device in ("0000:1b:00.0", "0000:43:00.0"):
        try:
            with ctx.busy("nvmlDeviceGetPowerUsage", device):
                if device.startswith("0000:1b"):
                    wait_for(ctx.path("free"))
                devices[device] = {"power_w": 1.0}
        except Stuck:
            continue
    return devices, []
""",
    name="both",
)

INSIDE = probe(
    """
import threading
def collect(ctx):
    with ctx.busy("nvmlDeviceGetPowerUsage", "0000:1b:00.0"):
        open(ctx.path("inside"), "w").close()
        threading.Event().wait(3600)
""",
    name="inside",
)

STUCK = probe(
    """
import threading
def collect(ctx):
    threading.Event().wait(3600)
""",
    name="stuck",
)

WORDY = probe(
    """
def collect(ctx):
    seen = ctx.memory(NAME)
    seen["n"] = seen.get("n", 0) + 1
    open(ctx.path("asked%d" % seen["n"]), "w").close()
    return {"a": {"n": seen["n"], "text": "x" * 100000}}, []
""",
    name="wordy",
    counters=True,
)


def test_an_answer_is_dated_when_it_was_read_and_the_window_follows_it(node_python: str) -> None:
    settings = config(mode="pass", window_s=0.2, extra={"slow_start": SLOW_START})
    with AgentProcess(settings, python=node_python) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
    first, second = filter(sample("slow_start"), said)
    assert first["t"] >= first["d"]["a"]["read"]
    assert second["t"] >= second["d"]["a"]["read"]
    assert second["d"]["a"]["read"] - first["t"] >= 0.2


def test_a_device_read_long_before_the_answer_carries_its_own_time() -> None:
    with AgentProcess(config(mode="pass", extra={"two": TWO_DEVICES})) as agent:
        frame = agent.wait_for(sample("two"))
    read = {device: values["read"] for device, values in frame["d"].items()}
    assert read["a"] <= frame["at"]["a"] < read["b"]
    assert frame["at"].get("b", frame["t"]) >= read["b"]


def test_a_sample_is_dated_by_its_own_device() -> None:
    samples = answered({"a": {"n": 1}, "b": {"n": 2}}, {"a": 105.0, "c": 1.0})
    assert (samples["a"].clock, samples["b"].clock) == (105.0, 110.0)
    assert samples["b"].at - samples["a"].at == pytest.approx(5.0)


@pytest.mark.parametrize("at", [111.0, 110.0 - 2 * EARLY_MAX_S, -1e308, 1e308])
def test_a_time_that_cannot_be_is_not_taken(at: float) -> None:
    samples = answered({"a": {"n": 1}, "b": {"n": 2}}, {"a": at})
    assert samples["a"].clock == samples["b"].clock == 110.0
    assert samples["a"].at == samples["b"].at


def answered(devices: dict[str, Any], at: dict[str, float]) -> dict[str, Sample]:
    """What the bastion makes of one tick at 110 s of a node that said hello at 100 s."""
    answers = Answers("n")
    answers.hello(Hello(mono=100.0), 500.0, 9000.0)
    raw = json.dumps({"k": "s", "p": "gpu", "t": 110.0, "d": devices, "at": at}).encode()
    frame = read_frame(raw)
    assert isinstance(frame, Tick)
    return {one.device: one for one in answers.tick(frame, 510.0, 9010.0)}


def test_a_device_that_hangs_after_the_probes_own_code_hung_is_told(tmp_path: Path) -> None:
    settings = config(
        extra={"both": OWN_CODE_THEN_DEVICE}, fast_s=0.2, deadline_s=3.0, root=str(tmp_path)
    )
    with AgentProcess(settings) as agent:
        agent.wait_for(kind("hung", dev=""))
        (tmp_path / "go").touch()
        agent.wait_for(kind("unhung", dev=""))
        hung = agent.wait_for(kind("hung", dev="0000:1b:00.0"))
        assert hung["call"] == "nvmlDeviceGetPowerUsage"
        assert set(agent.wait_for(sample("both"))["d"]) == {"0000:43:00.0"}
        (tmp_path / "free").touch()
        agent.wait_for(kind("unhung", dev="0000:1b:00.0"))
        said = agent.collect(lambda found: any(len(f["d"]) == 2 for f in found if "d" in f))
    assert [f["dev"] for f in said if f["k"] == "unhung"] == ["", "0000:1b:00.0"]


def test_an_agent_that_was_stopped_blames_no_driver_for_it(tmp_path: Path) -> None:
    """As on a node without a CPU to spare, or when a virtual machine is moved."""
    deadline_s = 2.0
    settings = config(extra={"inside": INSIDE}, deadline_s=deadline_s, root=str(tmp_path))
    with AgentProcess(settings) as agent:
        assert until((tmp_path / "inside").exists)
        pid = agent.wait_for(kind("hello"))["pid"]
        os.kill(pid, signal.SIGSTOP)
        stopped = time.monotonic()
        assert until(lambda: time.monotonic() > stopped + 2 * deadline_s)
        continued = time.monotonic()
        os.kill(pid, signal.SIGCONT)
        hangs = kind("hung", dev="0000:1b:00.0")
        hung = agent.wait_for(lambda frame: hangs(frame) and frame["t"] > continued)
    could_run_s = (stopped - hung["since"]) + (hung["t"] - continued)
    assert could_run_s >= deadline_s


def test_a_probe_stuck_in_its_own_code_does_not_delay_the_end_of_a_pass() -> None:
    """The window is so long that only a pass that does not wait for the probe can end."""
    settings = config("agent", mode="pass", extra={"stuck": STUCK}, deadline_s=3.0, window_s=3600)
    with AgentProcess(settings) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
    assert {f["p"] for f in said if f["k"] == "hung"} == {"stuck"}
    assert any(map(sample("agent"), said))


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for handle in (reading, writing):
        os.close(handle)


def everything(reading: int, writer: frames.Writer) -> list[Frame]:
    """What a writer has to say, read until it has said it."""
    text = bytearray()
    done = threading.Event()

    def read() -> None:
        os.set_blocking(reading, False)
        while True:
            try:
                text.extend(os.read(reading, 65536))
            except BlockingIOError:
                if done.is_set():
                    return
                done.wait(0.01)

    thread = threading.Thread(target=read)
    thread.start()
    assert writer.drain(WAIT_S)
    done.set()
    thread.join(WAIT_S)
    return [json.loads(line.partition(b" ")[2]) for line in bytes(text).splitlines()]


@pytest.mark.parametrize("keep_all", [True, False])
def test_a_slow_reader_gets_every_answer_of_a_pass(pipe: tuple[int, int], keep_all: bool) -> None:
    reading, writing = pipe
    writer = frames.Writer("m", writing, keep_all)
    for n in range(12):  # 2.4 MB: more than the queue of a watching agent holds
        writer.send({"n": n, "text": "x" * 200_000}, once="counters")
    said = [frame["n"] for frame in everything(reading, writer)]
    assert said == (list(range(12)) if keep_all else [0])
    assert writer.skipped == 12 - len(said)


def test_a_pass_ends_when_the_slow_reader_has_everything(tmp_path: Path) -> None:
    settings = config(
        mode="pass", window_s=0.05, deadline_s=3.0, root=str(tmp_path), extra={"wordy": WORDY}
    )
    with AgentProcess(settings, read=False) as agent:
        assert until((tmp_path / "asked2").exists)
        # longer than the deadline, which must not end it: nobody has read anything yet
        assert not until(lambda: agent.process.poll() is not None, 4.0)
        agent.start_reading()
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
    assert [f["d"]["a"]["n"] for f in said if sample("wordy")(f)] == [1, 2]


def test_a_device_that_vanishes_while_the_reader_is_slow_is_gone_later(
    pipe: tuple[int, int], tmp_path: Path
) -> None:
    reading, writing = pipe
    writer = frames.Writer("m", writing)
    crew = Crew(Context(str(tmp_path)), writer, {"fast": 1.0})
    answers: list[dict[str, Any]] = [{"a": {"text": "x" * 100_000}, "b": {}}, {"a": {}}, {"a": {}}]
    worker = Worker(module(answers), crew)
    worker.tick()
    worker.tick()
    assert writer.skipped == 1
    first = everything(reading, writer)
    worker.tick()
    second = everything(reading, writer)
    assert [frame.get("gone") for frame in first + second] == [None, ["b"]]


def module(answers: list[dict[str, Any]]) -> ModuleType:
    """A probe that gives these answers in turn."""
    made = ModuleType("made")
    left = iter(answers)
    made.__dict__.update(
        NAME="made", INTERVAL="fast", COUNTERS=False, collect=lambda ctx: (next(left), [])
    )
    return made


def test_an_agent_that_can_start_no_thread_says_so_and_goes_on(
    pipe: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = pipe
    writer = frames.Writer("m", writing)
    crew = Crew(Context(str(tmp_path)), writer, {"fast": 1.0}, window_s=0.0)
    worker = Worker(module([{}]), crew)
    crew.workers.append(worker)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        worker.start()
    assert crew.wait(0.0)
    (said,) = everything(reading, writer)
    assert said["k"] == "err"
    assert "can't start new thread" in said["text"]
