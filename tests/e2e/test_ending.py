"""Whatever ends the client, in whatever phase: no agent, no shell, no test is left on a node."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.lab import QUICK, SIGNALS, Site, ended, until
from tests.ssh.lab import alive

pytestmark = [pytest.mark.sshd, pytest.mark.slurm]


def end(console: subprocess.Popen[bytes], number: signal.Signals) -> str:
    """Send a signal; what it said on stderr. Its exit status must be the one for that signal."""
    os.kill(console.pid, number)
    code, _, err = ended(console)
    assert code == (-number if number is signal.SIGKILL else 130), err
    if number is not signal.SIGKILL:
        assert err.splitlines()[-1:] in ([], ["gpuconsole: interrupted"]), err
    return err


@pytest.mark.parametrize("number", SIGNALS)
def test_while_connecting(desk: Site, number: signal.Signals) -> None:
    """A black hole holds the connection; nothing has been started anywhere."""
    port = desk.hole.getsockname()[1]
    with desk.started("-w", "n5", "--json", "--timeout", "250") as console:
        until(lambda: established(console.pid, port), "a connection to the black hole")
        end(console, number)  # within 60 s, while the hole holds it for 100
    desk.nothing_left()


def established(pid: int, port: int) -> bool:
    """Whether a process has a TCP connection to this port."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[2].rpartition(":")[2], 16) == port and fields[3] == "01":
                return True
    return False


@pytest.fixture
def slow_start(site: Site) -> Callable[[str], str]:
    """Makes an inventory whose n1 runs `script` where its interpreter would be."""

    def make(script: str) -> str:
        path = site.ssh.script("slow-python", script)
        text = site.inventory.read_text().replace("n1: {", f"n1: {{python: {path}, ")
        return site.file("slow-start.yaml", text)

    return make


USABLE = 'case "$*" in *sys.exit*) exit 0;; esac\n'
"""The loader first asks whether an interpreter is usable."""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    ("phase", "body"),
    [
        ("upload", "exec sleep 303"),  # reads nothing of the payload
        ("hello", "cat >/dev/null; exit 0"),  # reads it, says nothing
    ],
)
def test_before_the_agent_speaks(
    site: Site,
    slow_start: Callable[[str], str],
    number: signal.Signals,
    phase: str,
    body: str,
) -> None:
    """`exec sleep` does not even look at its stdin: sshd ends it with the session."""
    inventory = slow_start(f"#!/bin/sh\n{USABLE}{body}\n")
    word = "sleep 303" if phase == "upload" else "cat"
    with site.started("-w", "n1", "--json", "--timeout", "60", inventory=inventory) as console:
        until(lambda: site.named(word), "the stand-in on the node")
        end(console, number)
    if phase == "upload":
        # A program that ignores the end of its stdin outlives its session under any ssh client.
        for pid in site.named(word):
            os.kill(pid, signal.SIGKILL)
    site.nothing_left()


@pytest.mark.parametrize("number", SIGNALS)
def test_while_streaming(site: Site, number: signal.Signals) -> None:
    with site.started("-w", "n[1-4]", "watch", "--json") as console:
        assert console.stdout is not None
        greeted = set()
        for line in console.stdout:
            if b'"probe":"gpu"' in line:
                greeted.add(line.partition(b'"node":"')[2][:2])
            if len(greeted) == 4:
                break
        pids = site.processes()
        assert len(pids) >= 4
        end(console, number)
    site.nothing_left()
    assert not any(alive(pid) for pid in pids)


def test_while_a_driver_call_hangs(site: Site) -> None:
    """The agent leaves although one of its threads never comes back."""
    site.gpus["n4"].change(2, hang={"nvmlDeviceGetPowerUsage": 600})
    with site.started("-w", "n4", "watch", "--json") as console:
        assert console.stdout is not None
        for line in console.stdout:
            if b"nvmlDeviceGetPowerUsage" in line:
                break
        end(console, signal.SIGINT)
    site.nothing_left()


# ---------------------------------------------------------------------- at the prompt


class Terminal:
    """A command line with a terminal of its own."""

    def __init__(self, site: Site, *arguments: str, inventory: str | None = None) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            argv = site.argv(arguments, inventory)
            os.chdir(site.folder)
            os.execve(argv[0], argv, {**site.environment, "TERM": "xterm"})
        self.shown = ""

    def expect(self, text: str) -> None:
        """Read until it shows this."""
        self._read(lambda: text in self.shown)
        assert text in self.shown

    def _read(self, enough: Callable[[], bool]) -> None:
        """Read until that holds or the terminal is left; AssertionError at the deadline."""
        deadline = time.monotonic() + 150
        while not enough():
            assert time.monotonic() < deadline, self.shown
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    data = os.read(self.fd, 4096)
                except OSError:
                    return
                if not data:
                    return
                self.shown += data.decode(errors="replace")

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.fd, text.encode())

    def finish(self) -> int:
        """Read to the end; the exit status, negative for a signal."""
        self._read(lambda: False)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(site: Site) -> Iterator[Callable[..., Terminal]]:
    """Starts command lines in terminals and leaves none behind."""
    made: list[Terminal] = []

    def start(*arguments: str, inventory: str | None = None) -> Terminal:
        made.append(Terminal(site, *arguments, inventory=inventory))
        return made[-1]

    yield start
    for one in made:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)
        os.close(one.fd)


def test_yes_at_the_prompt(site: Site, terminal: Callable[..., Terminal]) -> None:
    console = terminal("drain", "n1", "--reason", "slow", *QUICK)
    console.expect("drain n1? [y/N]:")
    assert site.slurm.words()["n1"] == "idle"
    console.type("y\r")
    assert console.finish() == 0, console.shown
    assert site.slurm.words()["n1"] == "drained"


@pytest.mark.parametrize(
    ("key", "code"),
    [("n\r", 3), ("\r", 3), ("maybe\rNo\r", 3), ("\x03", 130), ("\x04", 130)],
)
def test_anything_else_at_the_prompt(
    site: Site, terminal: Callable[..., Terminal], key: str, code: int
) -> None:
    """No, nothing, no after an answer that is none, one Ctrl-C, Ctrl-D."""
    console = terminal("drain", "n1", "--reason", "slow", *QUICK)
    console.expect("drain n1? [y/N]:")
    console.type(key)
    assert console.finish() == code, console.shown
    assert site.slurm.words()["n1"] == "idle"
    assert site.audit == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_prompt(
    site: Site, terminal: Callable[..., Terminal], number: signal.Signals
) -> None:
    console = terminal("drain", "n1", "--reason", "slow", *QUICK)
    console.expect("drain n1? [y/N]:")
    os.kill(console.pid, number)
    assert console.finish() in (-number, 130)
    assert site.slurm.words()["n1"] == "idle"
    site.nothing_left()


def test_the_number_at_the_prompt(site: Site, terminal: Callable[..., Terminal]) -> None:
    console = terminal("drain", "n[1-2]", "--reason", "slow", *QUICK)
    console.expect("Type the number of nodes to drain")
    console.type("3\r")
    assert console.finish() == 64, console.shown
    assert set(site.slurm.words().values()) == {"idle"}
    console = terminal("drain", "n[1-2]", "--reason", "slow", *QUICK)
    console.expect("Type the number of nodes to drain")
    console.type("two\r2\r")
    assert console.finish() == 0, console.shown
    assert site.slurm.words()["n2"] == "drained"


@pytest.mark.parametrize(("key", "code"), [("n\r", 3), ("\x03", 130)])
def test_a_forced_test_asks_first(
    site: Site, terminal: Callable[..., Terminal], key: str, code: int
) -> None:
    text = site.inventory.read_text().replace("gpus: 8", "gpus: 8\n    torch_python: /bin/false")
    able = site.file("able.yaml", text)
    job = site.slurm.submit("n1")
    try:
        console = terminal(
            "test", "n1", "--level", "gpu", "--i-own-these-nodes", *QUICK, inventory=able
        )
        console.expect("test n1 all the same? [y/N]:")
        console.type(key)
        assert console.finish() == code, console.shown
        assert "disturbs" in console.shown
    finally:
        site.slurm.cancel(job)
    site.nothing_left()
