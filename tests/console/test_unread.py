"""A reader of stdout who does not read (a stuck log shipper, say) cannot keep the console alive."""

from __future__ import annotations

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.payload.rig import until
from tests.processes import descendants, gone

COMMAND = [sys.executable, "-m", "console.cli", "--demo", "--nodes", "2", "--timeout", "200"]
Started = tuple[subprocess.Popen[bytes], int]


@pytest.fixture
def unread() -> Iterator[Callable[..., Started]]:
    """Starts a command line whose stdout holds one page; the process and the end to read from."""
    running: list[Started] = []

    def start(
        *words: str, before: tuple[str, ...] = (), blocking: bool = True, unbuffered: str = ""
    ) -> Started:
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(writing, blocking)
        process = subprocess.Popen(
            [*before, *COMMAND, *words],
            stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE,
            start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
        os.close(writing)
        running.append((process, reading))
        return running[-1]

    yield start
    for process, reading in running:
        process.kill()
        process.communicate(timeout=250)
        os.close(reading)


def waits_for_the_reader(process: subprocess.Popen[bytes], call: str = "pipe_write") -> bool:
    return call in Path(f"/proc/{process.pid}/wchan").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("words", [("watch", "--json"), ("--json",)])
def test_a_signal_ends_it(
    unread: Callable[..., Started], words: tuple[str, ...], number: signal.Signals
) -> None:
    process, _ = unread(*words)
    assert until(lambda: waits_for_the_reader(process))
    agents = descendants(process.pid)
    process.send_signal(number)
    _, errors = process.communicate(timeout=250)
    assert process.returncode == 130, errors
    assert b"Traceback" not in errors
    assert gone(agents)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_who_reads_late_gets_everything(
    unread: Callable[..., Started], unbuffered: str
) -> None:
    """Also where the write was interrupted (^Z and fg) and Python itself would not go on."""
    process, reading = unread("--json", unbuffered=unbuffered)
    assert until(lambda: waits_for_the_reader(process))
    process.send_signal(signal.SIGSTOP)
    assert until(lambda: waits_for_the_reader(process, "signal_stop"))
    process.send_signal(signal.SIGCONT)
    with os.fdopen(os.dup(reading), "rb") as stream:
        document = json.loads(stream.read())
    assert [node["name"] for node in document["nodes"]] == ["gpu001", "gpu002"]
    assert process.wait(timeout=250) != 130


def test_a_descriptor_that_does_not_block_is_waited_for(unread: Callable[..., Started]) -> None:
    process, reading = unread("--json", blocking=False)
    assert until(lambda: waits_for_the_reader(process, "poll") and unread_bytes(reading) > 0)
    with os.fdopen(os.dup(reading), "rb") as stream:
        assert len(json.loads(stream.read())["nodes"]) == 2
    assert process.wait(timeout=250) == 0


def unread_bytes(reading: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(reading, termios.FIONREAD, count)
    return count[0]


def test_a_signal_that_is_ignored_stays_so(unread: Callable[..., Started]) -> None:
    process, reading = unread("watch", "--json", before=("nohup",))
    with os.fdopen(os.dup(reading), "rb") as stream:
        assert stream.readline()
        process.send_signal(signal.SIGHUP)
        told = time.time()
        assert any(json.loads(line).get("at", 0) > told + 1 for line in stream)
        process.send_signal(signal.SIGTERM)
        stream.read()
    assert process.wait(timeout=250) == 130


@pytest.mark.parametrize("reader", ["left", "closed"])
def test_a_drain_is_done_whole_though_nobody_listens(tmp_path: Path, reader: str) -> None:
    """As with `2>&1 | head -1`: what is told must not decide what is done."""
    reading, writing = os.pipe()
    os.close(reading)
    words = ["drain", "gpu012,gpu015", "--demo", "--reason", "x", "--yes", "--no-evidence"]
    argv = [sys.executable, "-m", "console.cli", *words, "--timeout", "200"]
    if reader == "closed":
        argv = ["sh", "-c", 'exec "$@" 2>&-', "sh", *argv]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(argv, env=env, stderr=writing, stdout=writing, timeout=250, check=False)
    os.close(writing)
    assert done.returncode == 0
    lines = (tmp_path / "gpuconsole" / "demo" / "audit.jsonl").read_text().splitlines()
    outcomes = [entry for entry in map(json.loads, lines) if entry["what"] == "outcome"]
    assert sorted(entry["node"] for entry in outcomes) == ["gpu012", "gpu015"]


def test_a_mistake_keeps_its_exit_code_though_nobody_listens() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "console.cli", "--no-such-option"]
    assert subprocess.run(argv, stderr=writing, timeout=250, check=False).returncode == 64
    os.close(writing)
