"""A real mosh: server, client and the console in it; what roams, and what stays when it is gone."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from tests.conftest import Lab
from tests.terminal import gpuconsole, patient
from tests.tui.test_tmux import ROOT, Tmux

pytestmark = pytest.mark.tmux

PORTS = "60400:60899"
UTF8 = {"LC_ALL": "C.UTF-8"}
CONF = """\
set -s set-clipboard on
set -s escape-time 10
set -g default-terminal tmux-256color
"""
ALIVE = r"VERDICT[\s\S]*gpu004"
TIMEOUT_S = 30
"""Without a client, or before it is there: 3 s were too few on a loaded machine."""


class Mosh:
    """A mosh-server of its own with the console in it, and a client in a pane of tmux."""

    def __init__(self, folder: Path, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """The server gives itself to init; its pid is what it says."""
        server = ["mosh-server", "new", "-i", "127.0.0.1", "-p", PORTS, "-c", "256", "--"]
        done = subprocess.run(
            [*server, *command],
            env={**os.environ, **UTF8, **environ}, cwd=ROOT, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=True, timeout=250,
        )  # fmt: skip
        said = done.stdout + done.stderr
        connect, pid = re.search(r"MOSH CONNECT (\d+) (\S+)", said), re.search(r"pid = (\d+)", said)
        assert connect is not None, said
        assert pid is not None, said
        self.server = psutil.Process(int(pid[1]))
        conf = folder / "tmux.conf"
        conf.write_text(CONF)
        client = ["env", f"MOSH_KEY={connect[2]}", "LC_ALL=C.UTF-8"]
        client += ["mosh-client", "127.0.0.1", connect[1]]
        pane = shlex.join(client) + "; echo left $?; cat"
        self.tmux = Tmux(folder / "tmux", (80, 24), pane, conf=conf)

    @property
    def client(self) -> psutil.Process:
        """The one in the pane."""
        pane = int(self.tmux._run("list-panes", "-F", "#{pane_pid}"))
        children = psutil.Process(pane).children(recursive=True)
        return next(child for child in children if child.name().startswith("mosh-client"))

    def console(self) -> list[psutil.Process]:
        """The console and its agents."""
        return self.server.children(recursive=True)

    def close(self) -> None:
        """End what is left."""
        self.tmux.close()
        with contextlib.suppress(psutil.NoSuchProcess):
            self.server.terminate()


@pytest.fixture
def mosh(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> Iterator[Mosh]:
    """The demo over mosh; the parameter is more environment for the server."""
    lab.tmux()
    lab.programs("mosh", "mosh-server", "mosh-client", package="mosh")
    made = Mosh(tmp_path, patient("--demo", "--nodes", "4"), getattr(request, "param", {}))
    try:
        made.tmux.until(ALIVE)
        yield made
    finally:
        made.close()


def leave(mosh: Mosh) -> None:
    """By the key: the console ends, then the server and the client by themselves."""
    processes = [mosh.server, *mosh.console()]
    mosh.tmux.keys("q")
    mosh.tmux.until(r"\[mosh is exiting\.\]\s+left 0")
    _, alive = psutil.wait_procs(processes, timeout=250)
    assert not alive


def test_look_filter_open_and_back(mosh: Mosh) -> None:
    """Signs, colours and every kind of key arrive; esc alone is esc."""
    tmux = mosh.tmux
    tmux.until(r"! warn +gpu003")
    tmux.until(r"3 ok")
    coloured = tmux._run("capture-pane", "-e", "-p")
    assert re.search(r"\x1b\[[0-9;]*38;5;\d+m! warn", coloured)
    assert "✓ 3 ok" in tmux.screen
    assert "── newest problems" in coloured

    tmux.keys("End")
    tmux.until(r"gpu004: no findings")
    tmux.keys("Up")
    tmux.until(r"gpu002: no findings")
    tmux.keys("Home")
    tmux.until(r"› cooling")
    tmux.keys("/", "gpu002")
    tmux.until(lambda text: "/gpu002" in text and "gpu004" not in text)
    tmux.keys("Escape")
    tmux.until(lambda text: "/gpu002" not in text and "gpu004" in text)

    tmux.keys(":", "open gpu003", "Enter")
    tmux.until(r"warn gpu003")
    tmux.keys("Escape")
    tmux.until(ALIVE)
    leave(mosh)


def test_a_shell_and_back(mosh: Mosh) -> None:
    """mosh has one screen only: what other programs write must not stand among our lines."""
    tmux = mosh.tmux
    tmux.until(r"! warn +gpu003")
    tmux.keys(":", "open gpu001", "Enter")
    tmux.until(r"ok gpu001")
    tmux.keys("s")
    screen = tmux.until(r"gpu001 \(simulated\)\$")
    assert re.fullmatch(r"\s*gpu001 \(simulated\)\$\s*", screen)
    tmux.keys("exit", "Enter")
    screen = tmux.until(r"ok gpu001")
    assert "simulated" not in screen
    tmux.keys("Escape")
    tmux.until(ALIVE)
    leave(mosh)


def test_resize_copy_and_click(mosh: Mosh) -> None:
    """What passes through mosh 1.4: the size, OSC 52 to the clipboard, the mouse."""
    tmux = mosh.tmux
    screen = tmux.until(r"! warn +gpu003")
    assert "POWER" not in screen
    tmux._run("resize-window", "-x", "160", "-y", "50")
    tmux.until("POWER")
    tmux._run("resize-window", "-x", "60", "-y", "20")
    tmux.until(lambda text: "VERDICT" in text and "POWER" not in text)

    tmux.keys("y")
    tmux.until(r"copied gpu003")
    tmux.until(lambda _: tmux._run("show-buffer") == "gpu003")
    # mosh would cut it.
    tmux.keys("*", ":", "copy json", "Enter")
    tmux.until(r"too long for the|written to")

    tmux.until(lambda _: tmux._run("list-panes", "-F", "#{mouse_any_flag}").strip() == "1")
    lines = tmux.until(r"ok +gpu004").splitlines()
    line = next(y for y, text in enumerate(lines, 1) if " gpu004 " in text)
    click = f"\x1b[<0;12;{line}M\x1b[<0;12;{line}m"
    tmux.keys("-l", click)
    tmux.until(r"gpu004: no findings")
    leave(mosh)


def agents(console: psutil.Process) -> list[psutil.Process]:
    """What the console runs now; what it only asked in passing ends by itself."""
    return console.children(recursive=True)


def test_a_client_that_vanishes_leaves_everything_running(mosh: Mosh) -> None:
    """By design: mosh-server waits for a client that may never come."""
    (console,) = mosh.server.children()
    mosh.tmux.until(lambda _: agents(console))
    mosh.client.kill()
    mosh.tmux.until(r"left 137")
    assert mosh.server.is_running()
    assert console.is_running()
    mosh.tmux.until(lambda _: agents(console))


FORGETFUL = {"MOSH_SERVER_NETWORK_TMOUT": str(TIMEOUT_S)}


@pytest.mark.parametrize("mosh", [FORGETFUL], indirect=True, ids=["forgetful"])
def test_a_server_that_gives_up_takes_console_and_agents_with_it(mosh: Mosh) -> None:
    """The site's or the operator's environment says how long it waits."""
    processes = [mosh.server, *mosh.console()]
    mosh.client.kill()
    _, alive = psutil.wait_procs(processes, timeout=250)
    assert not alive


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"MOSH_SERVER_NETWORK_TMOUT": ""}, "mosh waits for ever"),
        ({"MOSH_SERVER_NETWORK_TMOUT": "600"}, r"mosh gives up after 600 s"),
    ],
)
def test_doctor_tells_what_mosh_carries(
    lab: Lab, tmp_path: Path, environ: Mapping[str, str], told: str
) -> None:
    """It finds the server above it, whatever shell is between."""
    lab.tmux()
    lab.programs("mosh", "mosh-server", "mosh-client", package="mosh")
    shell = ["sh", "-c", f"{shlex.join(gpuconsole('doctor', '--demo'))}; cat"]
    mosh = Mosh(tmp_path, shell, {"XDG_CONFIG_HOME": str(tmp_path), **environ})
    try:
        mosh.tmux.until(told)
    finally:
        mosh.close()
