"""Tests in containers: what is put in front, and that a container ends with its test."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.node.jobs import Refused
from probes.node.wrapped import contained, spreads, wrapped
from tests.payload.rig import AgentProcess, alive, config, gone, kind, until

CLIENT = Path(__file__).parent / "container_engine"
STAND_IN = Path(__file__).parent / "all_reduce_perf"


class Daemon:
    """Runs containers as children of this process; out of the agent's reach but for `rm -f`."""

    def __init__(self, place: Path) -> None:
        self._starting = threading.Lock()
        self.containers: dict[str, subprocess.Popen[bytes]] = {}
        self.orders: list[list[str]] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(place))
        self._server.listen(8)
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._answer, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _answer(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as asked:
            said = asked.readline()
            if not said:
                return  # a client that was killed before it asked for anything
            words = json.loads(said)
            self.orders.append(words)
            if words[0] == "rm":
                with self._starting:
                    container = self.containers.get(words[-1])
                if container is not None:
                    container.kill()
                with contextlib.suppress(OSError):
                    client.sendall(b"exit 0\n")
                return
            name = words[words.index("--name") + 1]
            command = words[words.index("image") + 1 :]
            with self._starting:  # else `rm` may find none while it starts
                container = self.containers[name] = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
            assert container.stdout is not None
            with container.stdout as output:
                for line in output:
                    try:
                        client.sendall(line)
                    except OSError:
                        continue
            try:
                client.sendall(b"exit %d\n" % (container.wait() & 0xFF))
            except OSError:
                return

    def close(self) -> None:
        for container in self.containers.values():
            container.kill()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "socket")
    yield made
    made.close()


def started(tmp_path: Path, mode: str) -> tuple[AgentProcess, dict[str, Any]]:
    """An agent whose tests run in containers, and the arguments of one."""
    docker = tmp_path / "docker"
    docker.write_text(CLIENT.read_text().replace("/usr/bin/env python3", sys.executable, 1))
    binary = tmp_path / "all_reduce_perf"
    binary.write_text(STAND_IN.read_text().replace("/usr/bin/env python3", sys.executable, 1))
    for program in (docker, binary):
        program.chmod(0o755)
    env = {**os.environ, "CONTAINER_SOCKET": str(tmp_path / "socket")}
    args = {"binary": str(binary), "gpus": 8, "min_bytes": 1 << 20, "max_bytes": 1 << 22,
            "command": [str(docker), "run", "--gpus", "all", "image", "env", f"STAND_IN={mode}"],
            "env": {"NCCL_DEBUG": "WARN"}}  # fmt: skip
    return AgentProcess(config("agent"), env=env), args


def test_a_test_in_a_container_is_a_test(daemon: Daemon, tmp_path: Path) -> None:
    node, args = started(tmp_path, "")
    with node:
        node.order(op="run", id="t", what="nccl", args=args)
        assert node.wait_for(kind("job", id="t", state="done"))["rc"] == 0
    (run,) = daemon.orders
    assert run[:1] + run[3:5] == ["run", "--rm", "--init"]
    assert "NCCL_DEBUG=WARN" in run, "the environment goes in through env"


@pytest.mark.parametrize("how", ["cancel", "deadline", "eof", "kill"])
def test_the_container_ends_however_the_test_does(daemon: Daemon, tmp_path: Path, how: str) -> None:
    node, args = started(tmp_path, "hang")
    with node:
        node.order(
            op="run",
            id="t",
            what="nccl",
            args={**args, "timeout_s": 10 if how == "deadline" else 600},
        )
        assert until(lambda: bool(daemon.containers))
        (container,) = daemon.containers.values()
        if how == "cancel":
            node.order(op="cancel", id="t")
        elif how == "kill":
            node.process.terminate()
        elif how == "eof":
            node.close()
        assert gone(container.pid)
        if how in ("cancel", "deadline"):
            assert node.wait_for(kind("job", id="t", state="failed"))
        else:
            node.finish()
    assert [words[0] for words in daemon.orders] == ["run", "rm"], "asked to end it once"


def test_the_stand_in_outlives_its_client(daemon: Daemon, tmp_path: Path) -> None:
    """Else the tests above would prove nothing."""
    node, args = started(tmp_path, "hang")
    with node:
        argv = [
            *args["command"][:2],
            "--name",
            "x",
            *args["command"][2:],
            args["binary"],
            "-g",
            "2",
        ]
        env = {**os.environ, "CONTAINER_SOCKET": str(tmp_path / "socket")}
        flags = ["-b", "1", "-e", "2", "-f", "2"]
        client = subprocess.Popen([*argv, *flags], env=env, stdout=subprocess.DEVNULL)
        assert until(lambda: bool(daemon.containers))
        client.kill()
        client.wait()
        assert alive(daemon.containers["x"].pid)


@pytest.mark.parametrize("engine", ["docker", "/usr/bin/podman", "nerdctl"])
def test_engines_with_a_daemon_get_a_name_and_an_end(engine: str) -> None:
    argv, end = wrapped(["sudo", "-n", engine, "run", "--gpus", "all", "img"], {"A": "b"}, ["x"])
    assert argv[:4] == ["sudo", "-n", engine, "run"]
    assert argv[-5:] == ["all", "img", "env", "A=b", "x"]
    assert end == ["sudo", "-n", engine, "rm", "-f", argv[argv.index("--name") + 1]]


def test_the_sites_own_name_is_kept() -> None:
    argv, end = wrapped(["docker", "run", "--rm", "--name=mine", "img"], {}, ["x"])
    assert argv == ["docker", "run", "--init", "--rm", "--name=mine", "img", "env", "x"]
    assert end == ["docker", "rm", "-f", "mine"]


@pytest.mark.parametrize(
    "prefix",
    [["enroot", "start", "img"], ["apptainer", "exec", "--nv", "i.sif"],
     ["srun", "--container-image=x"], ["mpirun", "-np", "8"]],
)  # fmt: skip
def test_what_runs_below_us_is_left_as_it_is(prefix: list[str]) -> None:
    assert wrapped(prefix, {}, ["x"]) == ([*prefix, "env", "x"], [])


def test_which_prefixes_start_a_process_for_each_gpu_and_hide_files() -> None:
    assert [spreads(p) for p in ([], ["mpirun"], ["sudo", "srun"], ["docker", "run"])] == [
        False, True, True, False,
    ]  # fmt: skip
    prefixes: list[list[str]] = [[], ["mpirun"], ["srun", "--container-image=x"], ["enroot"]]
    assert [contained(prefix) for prefix in prefixes] == [False, False, True, True]


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_prefix_is_kept_word_by_word_or_refused(prefix: list[str]) -> None:
    try:
        argv, _ = wrapped(prefix, {"N": "v"}, ["x", "y"])
    except Refused:
        return
    assert argv[-2:] == ["x", "y"]
    rest = iter(argv)
    assert all(word in rest for word in prefix), "in their order"
