"""LocalTransport, the shared pieces of SshTransport, and what importing asyncssh starts."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inventory.node import Inventory, Node
from probes.bundle import AgentConfig
from probes.event import NodeState
from probes.session import Session
from probes.ssh_hops import Hop, Shared, Turns, read_hop
from probes.transport import Exit, Failure, LocalTransport, connections
from tests.ssh.lab import alive, wait_for
from tests.ssh.record import Record

ROOT = Path(__file__).parents[2]


class Sink:
    """A Receiver that keeps everything."""

    def __init__(self) -> None:
        self.out = b""
        self.how = Exit()
        self.turns = 0
        self.over = asyncio.Event()
        self.line = asyncio.Event()

    def connecting(self) -> None:
        self.turns += 1

    def data(self, chunk: bytes) -> None:
        self.out += chunk
        if b"\n" in self.out:
            self.line.set()

    def closed(self, how: Exit) -> None:
        self.how = how
        self.over.set()


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    return not alive(pid)


HERE = Node(name="here", transport="local")


async def test_local_command_talks_and_ends() -> None:
    sink, transport = Sink(), LocalTransport()
    channel = await transport.start(HERE, "read line; echo got $line; echo no >&2; exit 7", sink)
    channel.write(b"this\n")
    await asyncio.wait_for(sink.over.wait(), 200)
    await channel.stop()
    assert (sink.out, sink.how.rc, sink.how.stderr, sink.turns) == (b"got this\n", 7, b"no\n", 1)


async def test_local_signal_is_named() -> None:
    sink, transport = Sink(), LocalTransport()
    await transport.start(HERE, "kill -TERM $$", sink)
    await asyncio.wait_for(sink.over.wait(), 200)
    assert (sink.how.rc, sink.how.signal) == (None, "SIGTERM")


async def test_local_stop_ends_stubborn_process_groups(tmp_path: Path) -> None:
    sink, transport = Sink(), LocalTransport()
    command = f"trap '' TERM HUP; sleep 1000 & echo $! > {tmp_path}/child; echo $$; sleep 1000"
    channel = await transport.start(HERE, command, sink)
    async with asyncio.timeout(200):
        await sink.line.wait()
    await channel.stop(grace_s=0.1)
    for pid in (int(sink.out), int((tmp_path / "child").read_text())):
        wait_for(functools.partial(gone, pid), what=f"end of {pid}")


async def test_local_inventory_needs_no_ssh() -> None:
    transport = connections(Inventory(nodes=(HERE,)))
    assert isinstance(transport, LocalTransport)


async def test_real_agent_here_leaves_when_cancelled() -> None:
    record = Record()
    transport = connections(Inventory(nodes=(HERE,)))
    session = Session(HERE, transport, AgentConfig(probes=["host"]), record)
    task = asyncio.ensure_future(session.run())
    await record.until(lambda: record.samples("here", "host"))
    pid = int(record.samples("here", "hello")[0].values["pid"])
    assert alive(pid)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await transport.close()
    wait_for(lambda: not alive(pid), what="end of the agent")
    assert record.last("here").state is NodeState.UP


def test_importing_asyncssh_starts_no_process() -> None:
    """No gcc, ld or ldconfig: seen by the interpreter's own audit events."""
    code = (
        "import sys\n"
        "seen = []\n"
        "names = {'subprocess.Popen', 'os.posix_spawn', 'os.fork', 'os.forkpty', 'os.exec'}\n"
        "sys.addaudithook(lambda n, args: seen.append((n, args)) if n in names else None)\n"
        "import ctypes.util\n"
        "before = ctypes.util.find_library\n"
        "import probes.ssh, probes.session\n"
        "assert ctypes.util.find_library is before\n"
        "assert 'asyncssh' in sys.modules\n"
        "assert not seen, seen\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=250)


def test_the_audit_would_see_a_child() -> None:
    """The guard is needed: without it the same import starts compilers."""
    code = (
        "import sys\n"
        "seen = []\n"
        "names = {'subprocess.Popen', 'os.posix_spawn', 'os.fork'}\n"
        "sys.addaudithook(lambda n, args: seen.append(n) if n in names else None)\n"
        "import ctypes.util, asyncssh\n"
        "sys.exit(0 if seen else 5)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=250)
    if done.returncode == 5:
        pytest.skip("no gcc or ldconfig here, so there is nothing to guard against")
    assert done.returncode == 0


def test_session_alone_does_not_import_asyncssh() -> None:
    code = "import sys, probes.session, probes.transport; assert 'asyncssh' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=250)


def test_open_files_are_raised() -> None:
    code = (
        "import resource\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, hard), hard))\n"
        "from inventory.node import Inventory\n"
        "from probes.ssh_transport import SshTransport\n"
        "SshTransport(Inventory(nodes=()))\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, timeout=250, env={**os.environ}
    )


@pytest.mark.parametrize(
    ("text", "hop"),
    [
        ("bastion", Hop("bastion")),
        ("me@bastion:2200", Hop("bastion", "me", 2200)),
        ("a@b@host", Hop("host", "a@b")),
        ("[fe80::1]:22", Hop("fe80::1", None, 22)),
        ("fe80::1", Hop("fe80::1")),
        ("ssh://u@h:1", Hop("h", "u", 1)),
    ],
)
def test_hops(text: str, hop: Hop) -> None:
    assert read_hop(text) == hop


@pytest.mark.parametrize("text", ["", "host:", "host:port", "[::1", "a b:c"])
def test_bad_hops(text: str) -> None:
    with pytest.raises(Failure):
        read_hop(text)


async def test_shared_opens_once_for_all_and_again_when_dead() -> None:
    opened: list[int] = []
    gate = asyncio.Event()

    async def open_it() -> dict[str, bool]:
        opened.append(len(opened))
        await gate.wait()
        return {"alive": True}

    shared = Shared(open_it, lambda thing: thing["alive"])
    users = [asyncio.ensure_future(shared.get()) for _ in range(10)]
    await asyncio.sleep(0)
    users[0].cancel()
    gate.set()
    things = await asyncio.gather(*users[1:])
    assert len(opened) == 1
    assert len({id(thing) for thing in things}) == 1
    things[0]["alive"] = False
    assert (await shared.get())["alive"]
    assert len(opened) == 2


async def test_shared_failure_is_not_repeated_for_every_user() -> None:
    tries = []

    async def open_it() -> dict[str, bool]:
        tries.append(1)
        raise Failure("refused", "no")

    shared = Shared(open_it, lambda _thing: True)
    for _user in range(5):
        with pytest.raises(Failure):
            await shared.get()
    assert len(tries) == 1


async def test_turns_bound_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.ssh_hops.SLOW_S", 60.0)
    turns = Turns(2)
    inside: list[int] = []
    most: list[int] = []
    gate = asyncio.Event()

    async def quick() -> None:
        async with turns.turn():
            inside.append(1)
            most.append(len(inside))
            await asyncio.sleep(0)
            inside.pop()

    async def stuck() -> None:
        async with turns.turn():
            await gate.wait()

    await asyncio.gather(*(quick() for _ in range(20)))
    assert max(most) == 2
    monkeypatch.setattr("probes.ssh_hops.SLOW_S", 0.05)
    slow = [asyncio.ensure_future(stuck()) for _ in range(4)]
    await asyncio.wait_for(quick(), 200)
    gate.set()
    await asyncio.gather(*slow)
    monkeypatch.setattr("probes.ssh_hops.SLOW_S", 60.0)
    most.clear()
    await asyncio.gather(*(quick() for _ in range(20)))
    assert max(most) == 2, "a place is given back once only"
