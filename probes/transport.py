"""Transport: run one command on a node and move bytes. ssh, local; srun, kubectl exec fit behind.

A Transport knows nothing of agents or frames. It calls a Receiver in the event loop and gives back
a Channel. What goes wrong before the command runs is a Failure; what ends it is an Exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from inventory.errors import ConsoleError
from inventory.node import Inventory, Node
from probes.event import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable

STDERR_KEPT = 4096
"""Bytes of a command's stderr kept for the operator: enough for a traceback's end."""

TERM_S = 1.0
"""From EOF on the agent's stdin to SIGKILL of its process group (wire protocol: gone in 1 s)."""


_STATES = dict.fromkeys(
    ("auth", "ssh_config", "local", "control_path_too_long"), NodeState.AUTH_FAILED
)
"""Reasons that are ours, not the node's: it is not called unreachable for them."""


class Failure(ConsoleError):  # noqa: N818 - an answer about a node, not an error of ours
    """Why a command could not be started on a node, or why it ended.

    `reason` is the stable code of NodeStatus.reason, `state` how the node is shown, `fixed` says
    that trying again soon cannot help (keys, accounts, policy).
    """

    def __init__(
        self,
        reason: str,
        text: str,
        hint: str = "",
        *,
        state: NodeState | None = None,
        fixed: bool = False,
    ) -> None:
        """`text` is one sentence about the node without its name; `hint` the next step.

        `state` follows from the reason when it is not given.
        """
        super().__init__(text, hint)
        self.reason = reason
        self.state = state or _STATES.get(reason, NodeState.UNREACHABLE)
        self.fixed = fixed


class Exit(Struct, frozen=True, kw_only=True):
    """How a command ended."""

    rc: int | None = None
    """Exit status; None when there was none (killed by a signal, connection lost)."""
    signal: str = ""
    lost: Failure | None = None
    """The connection broke, and how."""
    stderr: bytes = b""
    """The last STDERR_KEPT bytes."""


class Receiver(Protocol):
    """Takes what one command does. Every method is called in the event loop and must not block."""

    def connecting(self) -> None:
        """The node's turn has come: its handshake starts now. Called at most once per start."""
        ...

    def data(self, chunk: bytes) -> None:
        """Bytes of stdout, in order."""
        ...

    def closed(self, how: Exit) -> None:
        """The command is over; nothing follows. Called exactly once after a successful start."""
        ...


class Channel(Protocol):
    """A running command."""

    def write(self, data: bytes) -> None:
        """Queue bytes for stdin; dropped when the command is over."""
        ...

    def eof(self) -> None:
        """Close stdin after what is queued."""
        ...

    def pause(self) -> None:
        """Stop calling Receiver.data; the command blocks once the window is full."""
        ...

    def resume(self) -> None:
        """Go on calling Receiver.data."""
        ...

    async def stop(self, grace_s: float = TERM_S) -> None:
        """EOF, wait at most `grace_s` for the command to leave, then break off. Never raises."""
        ...


class Transport(Protocol):
    """Starts commands on nodes."""

    async def start(
        self, node: Node, command: str, receiver: Receiver, timeout_s: float = 15.0
    ) -> Channel:
        """Run a shell command line on the node. Raises Failure, or UsageError for bad settings.

        `timeout_s` runs from Receiver.connecting to the command's start.
        """
        ...

    async def close(self) -> None:
        """End everything that is still open. Bounded; never raises."""
        ...


def connections(inventory: Inventory, *, fanout: int = 64) -> Transport:
    """The Transport for an inventory. SSH is imported only when a node needs it."""
    if all(node.transport == "local" for node in inventory.nodes):
        return LocalTransport()
    from probes.ssh_transport import SshTransport

    return SshTransport(inventory, fanout=fanout)


class Tail:
    """The last bytes of a stream."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        """Nothing yet."""
        self.kept = b""

    def add(self, chunk: bytes) -> None:
        """Append, forgetting all but the last STDERR_KEPT bytes."""
        self.kept = (self.kept + chunk[-STDERR_KEPT:])[-STDERR_KEPT:]


class LocalTransport:
    """Runs commands on this machine under /bin/sh, each in its own process group."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._running: set[_LocalChannel] = set()

    async def start(
        self, node: Node, command: str, receiver: Receiver, timeout_s: float = 15.0
    ) -> Channel:
        """See Transport.start; the only Failure is a process that cannot be made."""
        receiver.connecting()
        loop = asyncio.get_running_loop()
        try:
            process, channel = await loop.subprocess_exec(
                lambda: _LocalChannel(receiver, self._running.discard),
                "/bin/sh",
                "-c",
                command,
                start_new_session=True,
            )
        except OSError as error:
            text = f"no process could be started here: {error.strerror}"
            raise Failure("local", text, "see ulimit -u and free memory") from error
        channel.attach(process)
        self._running.add(channel)
        return channel

    async def close(self) -> None:
        """See Transport.close."""
        await asyncio.gather(*(channel.stop() for channel in list(self._running)))


class _LocalChannel(asyncio.SubprocessProtocol):
    """One process: its pipes to a Receiver."""

    def __init__(self, receiver: Receiver, done: Callable[[_LocalChannel], None]) -> None:
        self._receiver = receiver
        self._done = done
        self._stderr = Tail()
        self._process: asyncio.SubprocessTransport | None = None
        self._pid = 0
        self._over = asyncio.Event()

    def attach(self, process: asyncio.SubprocessTransport) -> None:
        """The process exists: remember it."""
        self._process = process
        self._pid = process.get_pid() or 0

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """stdout goes on, the end of stderr is kept."""
        if fd == 1:
            self._receiver.data(data)
        else:
            self._stderr.add(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The process ended and its pipes are closed."""
        rc = None
        if self._process is not None:
            rc = self._process.get_returncode()
            self._process.close()
        name = _signal_name(-rc) if rc is not None and rc < 0 else ""
        self._over.set()
        self._done(self)
        kept = self._stderr.kept
        self._receiver.closed(Exit(rc=None if name else rc, signal=name, stderr=kept))

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return None if self._process is None else self._process.get_pipe_transport(fd)

    def write(self, data: bytes) -> None:
        """See Channel."""
        pipe = cast("asyncio.WriteTransport | None", self._pipe(0))
        if pipe is not None and not pipe.is_closing():
            pipe.write(data)

    def eof(self) -> None:
        """See Channel."""
        pipe = self._pipe(0)
        if pipe is not None and not pipe.is_closing():
            pipe.close()

    def pause(self) -> None:
        """See Channel."""
        pipe = cast("asyncio.ReadTransport | None", self._pipe(1))
        if pipe is not None and not pipe.is_closing():
            pipe.pause_reading()

    def resume(self) -> None:
        """See Channel."""
        pipe = cast("asyncio.ReadTransport | None", self._pipe(1))
        if pipe is not None and not pipe.is_closing():
            pipe.resume_reading()

    async def stop(self, grace_s: float = TERM_S) -> None:
        """See Channel; what does not leave is killed with its process group."""
        self.eof()
        self.resume()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._over.wait()
        if self._pid and not self._over.is_set():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        if self._process is not None:
            self._process.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
