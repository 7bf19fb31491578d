"""The whole kernel log of a node: read over a connection, made harmless, followed and bounded."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import node_log
from console.node_log import AHEAD_BYTES, LINES_MOST, NodeLog
from console.tui.kernel_view import WHEN, log_lines
from console.tui.screens.kernel import KernelScreen
from console.tui.screens.node import NodeScreen
from console.tui.text import line_text
from inventory.errors import UsageError
from inventory.node import Node
from probes.transport import Channel, Exit, Failure, LocalTransport, Receiver, Transport
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.synthetic import NOW, pci
from tests.tui.test_goldens import SIZES, compare

XID = "NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus."


class Wire:
    """A Transport and its Channel: the test says what the node sends."""

    def __init__(self) -> None:
        self.receiver: Receiver | None = None
        self.command = ""
        self.paused = self.stopped = self.closed = False
        self.refuses: Failure | None = None

    async def start(
        self, node: Node, command: str, receiver: Receiver, timeout_s: float = 15.0
    ) -> Channel:
        if self.refuses is not None:
            raise self.refuses
        self.command, self.receiver = command, receiver
        return self

    def send(self, *lines: str) -> None:
        assert self.receiver is not None
        self.receiver.data("".join(f"{line}\n" for line in lines).encode())

    def write(self, data: bytes) -> None: ...

    def eof(self) -> None: ...

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    async def stop(self, grace_s: float = 1.0) -> None:
        self.stopped = True

    async def close(self) -> None:
        self.closed = True


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_whatever_a_node_sends_is_printable_and_bounded(chunks: list[bytes]) -> None:
    """Escape sequences, other encodings, lines that never end."""
    log = NodeLog(Node(name="n1"))
    for chunk in chunks:
        log.data(chunk)
    log.closed(Exit(rc=0))
    assert all(line.isprintable() for line in log.lines)
    assert all(len(line) <= node_log.LINE_CHARS for line in log.lines)


def test_a_flood_is_held_back_until_somebody_looked() -> None:
    """And only the newest lines are kept; a line without end is cut."""

    async def flood() -> None:
        wire, log = Wire(), NodeLog(Node(name="n1"))
        await log.follow(wire)
        for _ in range(3):
            log.data(b"x\n" * (AHEAD_BYTES // 4))
        assert wire.paused
        assert len(log.lines) == LINES_MOST
        assert log.count == 3 * AHEAD_BYTES // 4
        log.looked()
        assert not wire.paused
        log.data(b"y" * 100_000)
        assert len(log.lines[-1]) == node_log.LINE_CHARS

    asyncio.run(flood())


def test_the_command_is_one_constant_behind_become() -> None:
    """Nothing of the inventory is a word of the shell's."""
    words = shlex.split(node_log.command(Node(name="a; rm -rf /", become=("sudo", "-n"))))
    assert words == ["sudo", "-n", "sh", "-c", node_log.FOLLOW]


async def test_closing_ends_what_follows_on_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real shell: a dmesg that follows for ever is gone once the connection is."""
    told = tmp_path / "pid"
    dmesg = tmp_path / "dmesg"
    dmesg.write_text(f'#!/bin/sh\necho $$ >"{told}"\necho "[ 1.0] {XID}"\nexec sleep 600\n')
    dmesg.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    transport, log = LocalTransport(), NodeLog(Node(name="n1", transport="local"))
    await log.follow(transport)
    while not log.lines:  # noqa: ASYNC110 - a process of the system's, not ours
        await asyncio.sleep(0.01)
    assert log.lines[0].endswith(XID)
    pid = int(told.read_text())
    assert running(pid)
    await log.close()
    await transport.close()
    while running(pid):  # noqa: ASYNC110 - a process of the system's, not ours
        await asyncio.sleep(0.01)


def running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (Exit(rc=1, stderr=b"x\ndmesg: read kernel buffer failed: Operation not permitted\n"),
         "dmesg: read kernel buffer failed: Operation not permitted"),
        (Exit(rc=0), "this system cannot follow it: read once"),
        (Exit(lost=Failure("lost", "the connection broke")), "the connection broke"),
        (Exit(signal="SIGKILL"), "ended with signal SIGKILL"),
    ],
)  # fmt: skip
def test_the_end_says_why(how: Exit, said: str) -> None:
    log = NodeLog(Node(name="n1"))
    log.closed(how)
    assert log.ended == said


def test_lines_have_our_clock_and_stand_out_where_there_is_trouble() -> None:
    lines = log_lines(f"[  100.500000] {XID}", NOW - 3600, NOW, 60)
    assert all(len(line_text(line)) <= 60 for line in lines)
    assert [line[1].style for line in lines] == ["warn"] * len(lines)
    assert line_text(lines[0])[:WHEN].strip().count(":") == 2
    calm = log_lines("[  100.500000] usb 1-1: new device", None, NOW, 60)
    assert calm[0][1].style == "text"
    assert calm[0][0].text.strip() == "100.500000"


async def opened(c: Console, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> KernelScreen:
    """The log of gpu017, asked for by its key."""
    monkeypatch.setattr(c.engine, "transport", lambda: wire)
    c.app.open_node("gpu017")
    await c.pilot.pause()
    await c.press("l")
    screen = c.app.screen
    assert isinstance(screen, KernelScreen)
    return screen


async def test_it_follows_until_the_operator_scrolls(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New lines come into sight at the bottom; n stops at trouble; f follows again."""
    wire = Wire()
    async with console(size=(80, 24)) as c:
        screen = await opened(c, wire, monkeypatch)
        await c.until(lambda: wire.receiver is not None)
        wire.send(f"[ 1.0] {XID}", *(f"[ {n}.0] calm {n}" for n in range(2, 200)))
        await c.until(lambda: "calm 199" in c.text)
        assert "following" in c.text.splitlines()[0]
        await c.press("n")
        assert "Xid" in c.text
        assert not screen.following
        wire.send("[ 300.0] the newest")
        await c.until(lambda: "200 lines" in c.text)
        assert "the newest" not in c.text
        await c.press("f")
        await c.until(lambda: "the newest" in c.text)
        await c.press("escape")
        assert isinstance(c.app.screen, NodeScreen)
        await c.until(lambda: wire.stopped and wire.closed)


async def test_find_in_the_log(console: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are counted and walked; esc ends the search first."""
    wire = Wire()
    async with console(size=(80, 24)) as c:
        screen = await opened(c, wire, monkeypatch)
        await c.until(lambda: wire.receiver is not None)
        wire.send(*(f"[ {n}.0] calm {n}" for n in range(100)))
        await c.until(lambda: "100 lines" in c.text)
        await c.press("slash", *"calm", "space", "4", "2", "enter")
        assert "calm 42" in c.text
        assert "/calm 42 1" in c.text.splitlines()[0]
        await c.press("escape")
        assert c.app.screen is screen
        assert screen.find == ""


async def test_a_node_that_is_not_reached_shows_what_its_agent_sent(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says that this is less."""
    wire = Wire()
    wire.refuses = Failure("timeout", "no answer within 10 s")
    async with console(size=(160, 24)) as c:
        await opened(c, wire, monkeypatch)
        await c.until(lambda: "no answer within 10 s" in c.text)
        assert "only what the agent found relevant" in c.text
        assert "fallen off the bus" in c.text


async def test_a_replay_has_no_node_to_ask(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence, no connection."""

    def none() -> Transport:
        raise UsageError("a recording has no nodes to ask")

    async with console(size=(160, 24)) as c:
        monkeypatch.setattr(c.engine, "transport", none)
        c.engine.feed(synthetic.xid("gpu017", NOW, pci(3), 79, "fallen off"))
        await c.type(":kernel_log gpu017")
        await c.press("enter")
        await c.until(lambda: "a recording has no nodes to ask" in c.text)


@pytest.mark.parametrize("size", SIZES)
async def test_golden(console: Opener, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log at each size, long lines wrapped under themselves."""
    wire = Wire()
    async with console(size=SIZES[size]) as c:
        await opened(c, wire, monkeypatch)
        await c.until(lambda: wire.receiver is not None)
        wire.send("[    1.000000] Linux version 5.14.0", f"[  990.000000] {XID} " + "word " * 30,
                  "[  991.000000] \x1b[31mred\x1b[0m \x1b]0;title\x07 end")  # fmt: skip
        await c.until(lambda: "3 lines" in c.text)
        compare(f"kernel_log_{size}", c.text)
