"""Storage in the real agent: a server that is away costs its own mount, whatever the Python.

The mounts are real FUSE file systems in a mount namespace of their own. The program behind one of
them is stopped, so that calls hang in the kernel as they do with a file server that is down.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.node.storage import name
from tests.conftest import Lab
from tests.payload.rig import AgentProcess, Frame, config, kind, sample, until

pytestmark = pytest.mark.netns
FUSE = Path(__file__).with_name("fuse_mount.py")


class World:
    """A mount namespace with two FUSE mounts, `dead` (after `stop`) and `alive`."""

    def __init__(self, directory: Path) -> None:
        self.places = {name: directory / name for name in ("dead", "alive")}
        self.programs: list[subprocess.Popen[str]] = []
        enter = ["unshare", "-m", "--propagation", "private"]
        for place in self.places.values():
            place.mkdir()
            words = [*enter, sys.executable, str(FUSE), str(place), "fuse.sshfs"]
            program = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            self.programs.append(program)
            enter = ["nsenter", "-m", "-t", str(self.programs[0].pid)]
        self.shell = str(directory / "shell")
        Path(self.shell).write_text(f'#!/bin/sh\nexec {" ".join(enter)} sh "$@"\n')
        os.chmod(self.shell, stat.S_IRWXU)

    def stop(self) -> None:
        """The server goes away."""
        self.programs[0].send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It comes back."""
        self.programs[0].send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Unmount both; the namespace goes with its last process."""
        self.go_on()
        for program in reversed(self.programs):
            program.communicate(timeout=30)


@pytest.fixture
def world(lab: Lab, tmp_path: Path) -> Iterator[World]:
    """Needs root, /dev/fuse and util-linux."""
    lab.root("mounts")
    lab.programs("mount namespaces", "unshare", "nsenter", package="util-linux")
    lab.require("FUSE", os.access("/dev/fuse", os.R_OK | os.W_OK), "no /dev/fuse")
    made = World(tmp_path)
    yield made
    made.end()


def told(place: Path, wanted: Callable[[dict[str, Any]], bool]) -> Callable[[Frame], bool]:
    """An answer of the storage probe in which a place is as wanted."""

    def matches(frame: Frame) -> bool:
        values = frame.get("d", {}).get(name(str(place))) if frame.get("p") == "storage" else None
        return values is not None and wanted(values)

    return matches


def waiting(pid: int) -> int:
    """Threads of a process that wait for a FUSE program."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it may just have ended
            found += (task / "wchan").read_text() == "request_wait_answer"
    return found


def test_a_dead_mount_costs_itself_only(world: World, node_python: str) -> None:
    settings = config("storage", "host", slow_s=0.3, fast_s=0.3, deadline_s=5.0)
    dead, alive = world.places["dead"], world.places["alive"]
    with AgentProcess(settings, shell=world.shell, python=node_python) as agent:
        hello = agent.wait_for(lambda frame: frame["k"] == "hello")
        healthy = agent.wait_for(told(dead, lambda values: "size_bytes" in values))
        world.stop()
        agent.wait_for(told(dead, lambda values: values.get("hung_s", 0) > 2.0))
        frames = len(agent.frames)
        hung = told(dead, lambda values: values.get("hung_s", 0) > 4.0)
        answers = told(alive, lambda values: values.get("used_percent") == 50.0)
        later = agent.wait_for(lambda frame: hung(frame) and answers(frame))
        assert until(lambda: waiting(hello["pid"]) == 1), "no second call is stacked on it"
        assert "size_bytes" not in later["d"][name(str(dead))]
        agent.wait_for(sample("host"), after=frames)
        world.go_on()
        back = told(dead, lambda values: "hung_s" not in values and "size_bytes" in values)
        agent.wait_for(back, after=len(agent.frames))
        world.stop()
        agent.wait_for(told(dead, lambda values: "hung_s" in values), after=len(agent.frames))
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        assert agent.finish() == 0, "it leaves although a thread hangs"
    assert healthy["d"][name(str(dead))]["source"] == "server:/export"
    assert not [frame for frame in agent.frames if frame["k"] in ("hung", "err")]


def test_one_pass_ends_with_a_dead_mount(world: World) -> None:
    world.stop()
    settings = config("storage", mode="pass", deadline_s=10.0, window_s=0.1)
    with AgentProcess(settings, shell=world.shell) as agent:
        frames = agent.collect(lambda found: any(frame["k"] == "end" for frame in found))
    (answer,) = [frame for frame in frames if frame.get("p") == "storage"]
    assert answer["d"][name(str(world.places["dead"]))]["hung_s"] >= 0
    assert answer["d"][name(str(world.places["alive"]))]["used_percent"] == 50.0


def test_a_local_disk_that_hangs_is_the_watchs_matter(lab: Lab, tmp_path: Path) -> None:
    """A FUSE mount that mountinfo calls ext4 stands for a disk whose statvfs does not return."""
    lab.root("mounts")
    lab.require("FUSE", os.access("/dev/fuse", os.R_OK | os.W_OK), "no /dev/fuse")
    place = tmp_path / "scratch"
    place.mkdir()
    words = [sys.executable, str(FUSE), str(place), "fuse"]
    program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    number = place.stat().st_dev
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(
        f"31 1 {os.major(number)}:{os.minor(number)} / /scratch rw - ext4 /dev/sda1 rw\n"
    )
    settings = config("storage", slow_s=0.3, deadline_s=1.0, root=str(tmp_path))
    try:
        with AgentProcess(settings) as agent:
            agent.wait_for(lambda f: "size_bytes" in f.get("d", {}).get("/scratch", {}))
            program.send_signal(signal.SIGSTOP)
            hung = agent.wait_for(kind("hung", dev="/scratch"))
            agent.wait_for(sample("storage"), after=len(agent.frames))
            program.send_signal(signal.SIGCONT)
            agent.wait_for(kind("unhung", dev="/scratch"))
    finally:
        program.send_signal(signal.SIGCONT)
        program.communicate(timeout=30)
    assert hung["call"] == "statvfs /scratch"


@pytest.mark.skipif(shutil.which("df") is None, reason="no df")
def test_sizes_are_those_of_df(tmp_path: Path) -> None:
    """Of the file system of this machine's root, which is a real one."""
    with AgentProcess(config("storage", mode="pass", window_s=0.05)) as agent:
        frames = agent.collect(lambda found: any(frame["k"] == "end" for frame in found))
    (answer,) = [frame for frame in frames if frame.get("p") == "storage"]
    if "/" not in answer["d"]:
        pytest.skip("the root is an overlay, an image or memory")
    words = ["df", "-B1", "--output=size,itotal,fstype", "/"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[-3:]
    values = answer["d"]["/"]
    assert [str(values["size_bytes"]), values["fstype"]] == [said[0], said[2]]
    if "inodes" in values:
        assert str(values["inodes"]) == said[1]
