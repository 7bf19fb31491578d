"""The embedded cluster over real ssh: real commands, the unmodified agent, faults of the connection."""

from __future__ import annotations

import asyncio
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
from console.demo.scenario import Fault, Scenario
from inventory.node import Node
from probes.bundle import AgentConfig, payload, remote_command
from tests.conftest import Lab

DEADLINE_S = 30.0


def scenario(*faults: Fault, nodes: tuple[str, ...] = ("d1", "d2")) -> Scenario:
    return Scenario(name="test", seed=4, nodes=nodes, hardware="h100", faults=faults)


@pytest.fixture(autouse=True)
def _own_temp_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories of other demos on this machine are none of our business."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


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
    gone = Fault(node="d1", kind="unreachable", at_s=40, for_s=80)
    async with DemoCluster(scenario=scenario(gone), speed=20) as demo:
        port = node(demo, "d1").port or 0
        assert connects(port)
        await until(lambda: not connects(port), "the port closes")
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


async def test_values_move_while_an_agent_watches(demo: DemoCluster) -> None:
    path = demo.machine("d1").directory / "nvml.json"
    first = path.read_text()
    await until(lambda: path.read_text() != first, "the state changes")


async def test_nothing_is_left_when_the_cluster_ends() -> None:
    async with DemoCluster(scenario=scenario()) as demo:
        clients = [await _watch(demo, name) for name in ("d1", "d2")]
        await until(lambda: len(demo.pids) == 2, "two agents run")
        directory, pids = demo.directory, demo.pids
        assert directory.is_dir()
        assert (directory.stat().st_mode & 0o777) == 0o700
    assert not directory.exists()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert _mentioning(directory) == []
    for client in clients:
        client.close()


async def _watch(demo: DemoCluster, name: str) -> Any:
    """A connection on which an agent streams, seen to be alive by its first frame."""
    from probes.ssh import asyncssh

    target = node(demo, name)
    connection = await asyncssh.connect(
        target.address, target.port, username=target.user, client_keys=[target.identity],
        known_hosts=demo.inventory.known_hosts[0], config=None,
    )  # fmt: skip
    process = await connection.create_process(remote_command(target), encoding=None)
    process.stdin.write(payload(AgentConfig(mode="watch", root=target.root)))
    async with asyncio.timeout(DEADLINE_S):
        assert await process.stdout.readline()
    return connection


def _mentioning(directory: Path) -> list[int]:
    """Processes with the directory in their command line."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(directory) in word for word in process.info["cmdline"] or []):
            found.append(process.pid)
    return found


HOST = """
import asyncio, json, sys, tempfile
from tests.demo.test_cluster import _watch, scenario
from console.demo.cluster import DemoCluster

async def main():
    tempfile.tempdir = sys.argv[1]
    async with DemoCluster(scenario=scenario()) as demo:
        clients = [await _watch(demo, name) for name in ("d1", "d2")]
        print(json.dumps([str(demo.directory), demo.pids]), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_kill_9_of_the_host_leaves_no_process_and_the_next_start_cleans_up(
    tmp_path: Path,
) -> None:
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOST, str(tmp_path), stdout=subprocess.PIPE
    )
    assert host.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        told = json.loads(await host.stdout.readline())
    directory, pids = Path(told[0]), told[1]
    assert len(pids) == 2
    assert len(_mentioning(directory)) >= 2
    assert scratch.remove_stale() == [], "a living demo keeps its directory"
    os.kill(host.pid, signal.SIGKILL)
    await host.wait()
    await until(lambda: not _mentioning(directory), "the agents are gone")
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert directory.exists()
    async with DemoCluster(scenario=scenario()):
        assert not directory.exists()


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
    assert scratch.remove_stale() == [old]
    assert target.is_dir()
    assert young.is_dir()


def test_importing_the_demo_imports_neither_the_screen_nor_ssh() -> None:
    code = (
        "import sys, console.demo, console.demo.cluster\n"
        "bad = {'textual', 'rich', 'asyncssh', 'console.tui'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(bad)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
