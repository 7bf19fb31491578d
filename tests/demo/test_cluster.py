"""The embedded cluster over real ssh: real commands, the unmodified agent, broken connections."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from console.demo import scratch
from console.demo.cluster import DemoCluster
from console.demo.performance import LEVELS
from console.demo.scenario import Fault, Scenario
from inventory.node import Node
from probes.bundle import AgentConfig, payload, remote_command
from tests.conftest import Lab

DEADLINE_S = 150.0


def scenario(*faults: Fault, nodes: tuple[str, ...] = ("d1", "d2")) -> Scenario:
    return Scenario(name="test", seed=4, nodes=nodes, hardware="h100", faults=faults)


@pytest.fixture
async def demo() -> AsyncIterator[DemoCluster]:
    lost = Fault(node="d2", kind="gpu_lost", gpu=4)
    async with DemoCluster(scenario=scenario(lost)) as cluster:
        yield cluster


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        await asyncio.sleep(0.05)


def ssh_argv(demo: DemoCluster, name: str, command: str) -> list[str]:
    config = str(demo.inventory.ssh_config)
    return ["ssh", "-F", config, "-o", "BatchMode=yes", name, "--", command]


async def ssh(
    demo: DemoCluster, name: str, command: str, data: bytes = b""
) -> tuple[int | None, str, str]:
    """OpenSSH's own client, with the demo's own configuration."""
    process = await asyncio.create_subprocess_exec(
        *ssh_argv(demo, name, command),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate(data)
    return process.returncode, out.decode(), err.decode()


def node(demo: DemoCluster, name: str) -> Node:
    return next(n for n in demo.inventory.nodes if n.name == name)


def frames(output: bytes, marker: str) -> list[dict[str, Any]]:
    head = marker.encode() + b" "
    lines = [line for line in output.split(b"\n") if line.startswith(head)]
    return [json.loads(line[len(head) :]) for line in lines]


async def one_pass(demo: DemoCluster, name: str) -> list[dict[str, Any]]:
    """The real remote command and payload over an ssh connection of our own client library."""
    from probes.ssh import asyncssh

    target = node(demo, name)
    config = AgentConfig(mode="pass", root=target.root)
    async with (
        asyncio.timeout(DEADLINE_S),
        asyncssh.connect(
            target.address, target.port, username=target.user, client_keys=[target.identity],
            known_hosts=demo.inventory.known_hosts[0], config=None,
        ) as connection,
        connection.create_process(remote_command(target), encoding=None) as process,
    ):  # fmt: skip
        process.stdin.write(payload(config))
        output = await process.stdout.read()
    return frames(output, config.marker)


def by_probe(answers: list[dict[str, Any]], probe: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for frame in answers:
        if frame["k"] == "s" and frame["p"] == probe:
            found.update(frame["d"])
    return found


async def test_the_real_agent_tells_what_the_story_says(demo: DemoCluster) -> None:
    answers = await one_pass(demo, "d1")
    assert answers[0]["k"] == "hello"
    assert answers[-1]["k"] == "end"
    gpus = by_probe(answers, "gpu")
    assert len(gpus) == 8
    story = demo.story.nvml("d1", demo.story_time())["gpus"]
    for told in story:
        read = gpus[told["pci"]]
        assert read["power_limit_w"] == told["power_limit_w"]
        assert abs(read["temp_c"] - told["temp"]) <= 3
    assert by_probe(answers, "inventory")[story[0]["pci"]]["uuid"] == story[0]["uuid"]
    assert by_probe(answers, "infiniband")["mlx5_0/1"]["state_text"]


async def test_openssh_and_the_real_agent_see_a_lost_gpu(demo: DemoCluster, lab: Lab) -> None:
    lab.programs("ssh", "ssh", package="openssh-client")
    target = node(demo, "d2")
    config = AgentConfig(mode="pass", root=target.root)
    process = await asyncio.create_subprocess_exec(
        *ssh_argv(demo, "d2", remote_command(target)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(payload(config))
    async with asyncio.timeout(DEADLINE_S):
        output = await process.stdout.read()
        process.stdin.close()
        assert await process.wait() == 0
    answers = frames(output, config.marker)
    gpus = by_probe(answers, "gpu")
    lost = gpus["0000:9d:00.0"]
    assert lost["nvml_rc"] == 15
    assert sum("temp_c" in values for values in gpus.values()) == 7
    rows = [row for f in answers if f["k"] == "s" and f["p"] == "kernel_log" for row in f["r"]]
    assert any("79, " in row["text"] and "9d:00" in row["text"] for row in rows)


async def test_openssh_runs_commands_with_status_and_both_streams(
    demo: DemoCluster, lab: Lab
) -> None:
    lab.programs("ssh", "ssh", package="openssh-client")
    assert await ssh(demo, "d1", "cat; echo oops >&2; exit 7", b"in\n") == (7, "in\n", "oops\n")
    code, out, _ = await ssh(demo, "d2", "nvidia-smi")
    assert code == 0
    assert out.count("MiB /") == 7
    assert "GPU4: 0000:9d:00.0: GPU is lost" in out
    code, out, _ = await ssh(demo, "d1", "env")
    names = {line.split("=")[0] for line in out.splitlines()}
    assert names <= {
        "HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "SHLVL", "SSH_CONNECTION", "USER", "_",
        "OLDPWD",
    }  # fmt: skip


async def test_a_login_is_a_shell_on_a_terminal(demo: DemoCluster, lab: Lab) -> None:
    lab.programs("ssh", "ssh", package="openssh-client")
    argv = [*ssh_argv(demo, "d2", "")[:-2], "-tt"]
    argv[argv.index("d2")], argv[-1] = argv[-1], "d2"
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(DEADLINE_S):
        typed = b"tty; stty size; nvidia-smi | grep -c lost; exit 5\n"
        out, _ = await process.communicate(typed)
    assert process.returncode == 5
    assert b"(simulated)$" in out
    assert b"/dev/pts/" in out
    assert b"\n1\r\n" in out


async def test_openssh_refuses_a_changed_host_key(lab: Lab) -> None:
    lab.programs("ssh", "ssh", package="openssh-client")
    async with DemoCluster(scenario=scenario(Fault(node="d1", kind="host_key"))) as demo:
        code, _, err = await ssh(demo, "d1", "true")
        assert code == 255
        assert "HOST IDENTIFICATION HAS CHANGED" in err
        assert (await ssh(demo, "d2", "true"))[0] == 0


def connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_a_node_goes_away_and_comes_back_on_the_same_port(lab: Lab) -> None:
    lab.programs("ssh", "ssh", package="openssh-client")
    gone = Fault(node="d1", kind="unreachable", at_s=1000, for_s=1000)
    async with DemoCluster(scenario=scenario(gone)) as demo:
        port = node(demo, "d1").port or 0
        assert connects(port)
        demo._started -= 1000
        await until(lambda: not connects(port), "the port closes")
        demo._started -= 1000
        await until(lambda: connects(port), "the port opens again")
        assert (await ssh(demo, "d1", "echo back"))[:2] == (0, "back\n")


async def test_a_silent_node_accepts_and_says_nothing() -> None:
    async with DemoCluster(scenario=scenario(Fault(node="d1", kind="silent"))) as demo:
        reader, writer = await asyncio.open_connection("127.0.0.1", node(demo, "d1").port)
        writer.write(b"SSH-2.0-test\r\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await reader.read(1)
        writer.close()


async def test_an_all_reduce_runs_on_an_idle_node(demo: DemoCluster) -> None:
    binary = node(demo, "d1").nccl_tests
    request = {"op": "run", "id": "t1", "what": "nccl", "args": {"binary": binary}}
    states: list[str] = []
    summary: dict[str, Any] = {}
    connection, process, config = await _agent(demo, "d1")
    async with asyncio.timeout(DEADLINE_S), connection:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        while not {"done", "failed", "refused"} & set(states):
            for frame in frames(await process.stdout.readline(), config.marker):
                states += [frame["state"]] if frame["k"] == "job" else []
                if frame["k"] == "s" and frame["p"] == "nccl":
                    summary = frame["d"].get("summary", summary)
        process.stdin.write_eof()
    assert states[-1] == "done"
    assert (summary["ok"], summary["ranks"], summary["engine"]) == (True, 8, "nccl-tests")
    assert 300 < summary["busbw_max_gb_s"] < LEVELS["h100"].nvls_gb_s


async def test_values_move_while_an_agent_watches(demo: DemoCluster) -> None:
    path = demo.machine("d1").directory / "nvml.json"
    first = path.read_text()
    await until(lambda: path.read_text() != first, "the state changes")


async def test_nothing_is_left_when_the_cluster_ends() -> None:
    async with DemoCluster(scenario=scenario()) as demo:
        clients = [await _watch(demo, name) for name in ("d1", "d2")]
        await until(lambda: len(demo.pids) == 2, "two agents run")
        directory, trees, pids = demo.directory, demo.trees, demo.pids
        assert all((path.stat().st_mode & 0o777) == 0o700 for path in (directory, trees))
    assert exist(directory, trees) == [False, False]
    await until(lambda: not any(_alive(pid) for pid in pids), "both agents leave")
    await until(lambda: _mentioning(trees) == [], "nothing runs there")
    for client in clients:
        client.close()


async def test_a_call_that_hangs_is_told_and_does_not_outlive_the_cluster() -> None:
    hang = Fault(node="d1", kind="driver_hang", gpu=1)
    async with DemoCluster(scenario=scenario(hang)) as demo:
        connection, process, config = await _agent(demo, "d1", deadline_s=0.3)
        kinds: list[str] = []
        async with asyncio.timeout(DEADLINE_S):
            while "hung" not in kinds:
                line = await process.stdout.readline()
                kinds += [frame["k"] for frame in frames(line, config.marker)]
        pids = demo.pids
        assert len(pids) == 1
    await until(lambda: not any(_alive(pid) for pid in pids), "the agent leaves")
    connection.close()


async def _watch(demo: DemoCluster, name: str) -> Any:
    """A connection on which an agent streams, seen to be alive by its first frame."""
    connection, process, _ = await _agent(demo, name)
    async with asyncio.timeout(DEADLINE_S):
        assert await process.stdout.readline()
    return connection


async def _agent(
    demo: DemoCluster, name: str, deadline_s: float = 5.0
) -> tuple[Any, Any, AgentConfig]:
    """Connection, process and config of an agent that was started to watch."""
    from probes.ssh import asyncssh

    target = node(demo, name)
    connection = await asyncssh.connect(
        target.address, target.port, username=target.user, client_keys=[target.identity],
        known_hosts=demo.inventory.known_hosts[0], config=None,
    )  # fmt: skip
    process = await connection.create_process(remote_command(target), encoding=None)
    config = AgentConfig(mode="watch", root=target.root, deadline_s=deadline_s)
    process.stdin.write(payload(config))
    return connection, process, config


def exist(*paths: Path) -> list[bool]:
    return [path.exists() for path in paths]


def _alive(pid: int) -> bool:
    """Whether it runs: an orphan that pid 1 has not reaped yet is dead."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _mentioning(directory: Path) -> list[int]:
    """Processes with the directory in their command line."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(directory) in word for word in process.info["cmdline"] or []):
            found.append(process.pid)
    return found


HOST = """
import asyncio, json, sys, tempfile
from pathlib import Path
from console.demo import scratch
from console.demo.scenario import Fault
from tests.demo.test_cluster import _watch, scenario
from console.demo.cluster import DemoCluster
from console.demo.performance import LEVELS

async def main():
    tempfile.tempdir, scratch.MEMORY = sys.argv[1], Path(sys.argv[2])
    hang = Fault(node="d1", kind="driver_hang", gpu=1)
    async with DemoCluster(scenario=scenario(hang)) as demo:
        clients = [await _watch(demo, name) for name in ("d1", "d2")]
        clients += [await clients[0].create_process(c) for c in ("nvidia-smi", "exec sleep 600")]
        while len(demo.pids) < 4:
            await asyncio.sleep(0.05)
        print(json.dumps([str(demo.directory), str(demo.trees), demo.pids]), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_kill_9_of_the_host_leaves_no_process_and_the_next_start_cleans_up(
    tmp_path: Path, own_places: Path, lab: Lab
) -> None:
    lab.programs("setpriv", "setpriv", package="util-linux")
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOST, str(tmp_path / "tmp"), str(own_places), stdout=subprocess.PIPE
    )
    assert host.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        told = json.loads(await host.stdout.readline())
    directory, trees, pids = Path(told[0]), Path(told[1]), told[2]
    assert len(pids) == 4
    assert all(_alive(pid) for pid in pids)
    assert len(_mentioning(trees)) >= 3
    assert scratch.remove_stale(directory.parent) == [], "a living demo keeps its directory"
    os.kill(host.pid, signal.SIGKILL)
    await host.wait()
    await until(lambda: not any(_alive(pid) for pid in pids), "all four leaders are gone")
    await until(lambda: not _mentioning(trees), "all others are gone")
    assert exist(directory, trees) == [True, True]
    async with DemoCluster(scenario=scenario()):
        assert exist(directory, trees) == [False, False]


def test_strangers_are_not_removed(tmp_path: Path) -> None:
    link = tmp_path / f"{scratch.PREFIX}link"
    target = tmp_path / "precious"
    target.mkdir()
    link.symlink_to(target)
    young = tmp_path / f"{scratch.PREFIX}young"
    young.mkdir()
    old = tmp_path / f"{scratch.PREFIX}old"
    old.mkdir()
    os.utime(old, (1, 1))
    assert scratch.remove_stale(tmp_path) == [old]
    assert target.is_dir()
    assert young.is_dir()


def test_a_lock_is_never_there_without_being_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A demo that starts at the same moment must not take this directory for a leftover."""
    flock, seen = fcntl.flock, []

    def locking(descriptor: int, how: int) -> None:
        if how == fcntl.LOCK_EX:
            seen.append(scratch.remove_stale(tmp_path))
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", locking)
    with scratch.scratch(tmp_path) as path:
        assert path.is_dir()
        assert scratch.remove_stale(tmp_path) == []
    assert seen == [[]]


def test_programs_are_not_put_where_they_cannot_start(
    tmp_path: Path, own_places: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.root("mounting a noexec file system")
    place = tmp_path / "noexec"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "noexec,size=64k", "tmpfs", str(place)]
    done = subprocess.run(mount, check=False, capture_output=True)
    lab.require("mount", done.returncode == 0, done.stderr.decode())
    try:
        monkeypatch.setattr("tempfile.tempdir", str(place))
        found = scratch.executable_place()
        assert found != place
        assert found.is_dir()
        assert scratch.fast_place(1) == own_places
        monkeypatch.setattr(scratch, "MEMORY", place)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert scratch.fast_place(1 << 20) == tmp_path
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_importing_the_demo_imports_neither_the_screen_nor_ssh() -> None:
    code = (
        "import sys, console.demo, console.demo.cluster\n"
        "bad = {'textual', 'rich', 'asyncssh', 'console.tui'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(bad)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
