"""Programs of the node: slow, silent, too talkative, or queueing for a CPU that others have."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from probes.node.calls import Calls
from probes.node.tool import Patience, read

HOG = "print(flush=True)\nwhile True: pass"
STARVED = """
import os, sys, time
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print(flush=True)
sys.stdin.readline()
end = time.process_time() + 0.01
while time.process_time() < end: pass
print("answer")
"""
"""10 ms of work; SCHED_IDLE gets 3 of 1027 parts of a CPU beside a usual process: 3.4 s."""
LIMIT_S = 1.0


@pytest.fixture
def children() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def child(stack: ExitStack, *argv: str, pinned: bool = False) -> subprocess.Popen[bytes]:
    cpu = min(os.sched_getaffinity(0))
    started = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        preexec_fn=(lambda: os.sched_setaffinity(0, {cpu})) if pinned else None,
    )  # fmt: skip
    stack.enter_context(started)
    stack.callback(started.kill)
    return started


def handle(started: subprocess.Popen[bytes]) -> int:
    assert started.stdout is not None
    return started.stdout.fileno()


def ready(started: subprocess.Popen[bytes]) -> None:
    """Its first byte, an end of line: it runs now."""
    assert os.read(handle(started), 1) == b"\n"


def test_a_program_without_a_cpu_is_waited_for_and_not_blamed(children: ExitStack) -> None:
    """`taskset -c 0 chrt -i 0`, beside a busy process there: it waits for nothing but a CPU."""
    patient = child(children, sys.executable, "-c", STARVED, pinned=True)
    ready(patient)
    ready(child(children, sys.executable, "-c", HOG, pinned=True))
    calls = Calls()
    assert patient.stdin is not None
    with calls.busy("run it", "it") as call:
        call.tool = Patience(patient.pid, LIMIT_S)
        patient.stdin.write(b"go\n")
        patient.stdin.flush()
        answer, in_time = read(handle(patient), call.tool, 4096)
        assert call.tool.starved_s() > LIMIT_S  # or this test shows nothing
        assert calls.age_s(call) <= calls.clock() - call.since - LIMIT_S
    assert (answer, in_time) == (b"answer\n", True)


def test_a_pause_of_ours_is_no_delay_of_the_program(children: ExitStack) -> None:
    """The timer of a process that did not run at all meanwhile: a virtual machine on the move."""
    late = child(children, "/bin/sh", "-c", "sleep 0.6; echo answer")
    patience = Patience(late.pid, 0.2, timer=lambda: 0.0)
    assert read(handle(late), patience, 4096) == (b"answer\n", True)


def test_a_program_that_waits_is_cut_off_with_what_it_said(children: ExitStack) -> None:
    silent = child(children, "/bin/sh", "-c", "echo begun; exec sleep 600")
    calls = Calls(deadline_s=0.2)
    with calls.busy("run it", "it") as call:
        call.tool = Patience(silent.pid, 0.5)
        assert read(handle(silent), call.tool, 4096) == (b"begun\n", False)
        assert calls.stuck() == {"it"}


def test_a_program_that_computes_for_ever_is_cut_off(children: ExitStack) -> None:
    busy = child(children, sys.executable, "-c", HOG)
    assert read(handle(busy), Patience(busy.pid, 0.5), 4096)[1] is False


def test_more_than_asked_for_is_in_time_and_not_read_on(children: ExitStack) -> None:
    yes = child(children, "yes")
    said, in_time = read(handle(yes), Patience(yes.pid, 60.0), 4096)
    assert in_time
    assert 4096 < len(said) <= 8192


def test_what_came_before_the_time_was_over_is_heard_after_it(children: ExitStack) -> None:
    """As of an agent that was stopped meanwhile."""
    quick = child(children, "echo", "answer")
    quick.wait()
    assert read(handle(quick), Patience(quick.pid, 0.0), 4096)[0] == b"answer\n"


def test_of_a_program_that_is_gone_nothing_is_known(children: ExitStack) -> None:
    gone = child(children, "true")
    gone.wait()
    assert Patience(gone.pid, 1.0).starved_s() == 0.0
