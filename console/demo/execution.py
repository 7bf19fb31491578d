"""What an exec request starts on a simulated node: /bin/sh -c COMMAND, as a real sshd would."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from probes.ssh import asyncssh

GRACE_S = 2.0
"""From EOF on their stdin to SIGKILL for what still runs when the cluster ends."""
TERMINAL = "demo-terminal"
SIMULATED = b"This node is simulated: give it a command, for example nvidia-smi.\r\n"


@functools.cache
def _leash() -> tuple[str, ...]:
    """Words before a command so that it dies with this process, even of SIGKILL.

    The agent leaves at EOF by itself; this is for what does not read its stdin. util-linux has it
    since 2.33; older ones and busybox refuse the option, so it is tried first.
    """
    words = ("setpriv", "--pdeathsig", "KILL", "--")
    try:
        tried = subprocess.run([*words, "true"], capture_output=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return () if tried.returncode else words


class Children:
    """The programs that exec requests started and that still run."""

    def __init__(self) -> None:
        """None yet."""
        self._sessions: set[Exec] = set()
        self._none = asyncio.Event()

    def add(self, session: Exec) -> None:
        """A program started."""
        self._sessions.add(session)
        self._none.clear()

    def discard(self, session: Exec) -> None:
        """It ended."""
        self._sessions.discard(session)
        if not self._sessions:
            self._none.set()

    @property
    def pids(self) -> list[int]:
        """Process ids of the programs that run now."""
        return [pid for session in self._sessions if (pid := session.pid)]

    async def end(self) -> None:
        """EOF to all, a moment to leave, SIGKILL to the groups of those that stay."""
        for session in self._sessions:
            session.hang_up()
        await self._all_gone()
        for session in self._sessions:
            session.kill()
        await self._all_gone()

    async def _all_gone(self) -> None:
        """Wait until nothing runs, at most GRACE_S."""
        if self._sessions:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await self._none.wait()


class Exec(asyncssh.SSHServerSession[bytes]):
    """One session channel: a command with its three streams."""

    def __init__(self, environment: Mapping[str, str], children: Children) -> None:
        """`environment` is all the program gets besides LANG and SSH_CONNECTION."""
        self._environment = dict(environment)
        self._children = children
        self._command: str | None = None
        self._terminal = ""
        self._early: list[bytes] = []
        self._ended_early = False
        self._transport: asyncio.SubprocessTransport | None = None
        self._starting: asyncio.Task[None] | None = None
        self.channel: Any = None

    def connection_made(self, chan: Any) -> None:
        """The channel is open."""
        self.channel = chan

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Mapping[int, int]
    ) -> bool:
        """A terminal of (columns, lines, ...): tools.py's `terminal` makes it, on the node."""
        self._environment["TERM"] = term_type
        self._terminal = f"exec {TERMINAL} {term_size[0]} {term_size[1]}"
        return True

    def shell_requested(self) -> bool:
        """A login without command is a shell when there is a terminal, else one line."""
        return True

    def exec_requested(self, command: str) -> bool:
        """Remember the command line; it starts when the channel does."""
        self._command = command
        return True

    def session_started(self) -> None:
        """Start the program, or say what this is."""
        command = self._command
        if self._terminal:
            command = f"{self._terminal} {shlex.quote(command)}" if command else self._terminal
        if command is None:
            self.channel.write(SIMULATED)
            self.channel.exit(0)
        else:
            self._starting = asyncio.get_running_loop().create_task(self._start(command))

    async def _start(self, command: str) -> None:
        peer, own = (self.channel.get_extra_info(key) for key in ("peername", "sockname"))
        environment = {
            **self._environment,
            "LANG": "C.UTF-8",
            "SSH_CONNECTION": f"{peer[0]} {peer[1]} {own[0]} {own[1]}",
        }
        self._children.add(self)
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Streams(self), *_leash(), "/bin/sh", "-c", command,
                env=environment, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._children.discard(self)
            self.channel.write_stderr(f"{error}\n".encode())
            self.channel.exit(127)
            return
        self._transport = transport
        for data in self._early:
            self.data_received(data, None)
        self._early.clear()
        if self._ended_early:
            self.hang_up()

    def _stdin(self) -> asyncio.WriteTransport | None:
        pipe = self._transport.get_pipe_transport(0) if self._transport else None
        return pipe if isinstance(pipe, asyncio.WriteTransport) else None

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Bytes from the client go to the program's stdin."""
        if self._transport is None:
            self._early.append(data)
        elif (stdin := self._stdin()) is not None:
            stdin.write(data)

    def eof_received(self) -> bool:
        """The client's EOF is the program's EOF; the channel stays open for its output."""
        self.hang_up()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """As with sshd, a lost connection only closes the program's streams."""
        self.hang_up()

    def pause_writing(self) -> None:
        """The client does not read: stop reading the program."""
        self._each_output("pause_reading")

    def resume_writing(self) -> None:
        """The client reads again."""
        self._each_output("resume_reading")

    def _each_output(self, method: str) -> None:
        for fd in (1, 2):
            pipe = self._transport.get_pipe_transport(fd) if self._transport else None
            if pipe is not None:
                getattr(pipe, method)()

    def hang_up(self) -> None:
        """Close the program's stdin."""
        self._ended_early = True
        if (stdin := self._stdin()) is not None:
            stdin.close()

    @property
    def pid(self) -> int | None:
        """The program's process id, also its group's; None before it started."""
        return self._transport.get_pid() if self._transport else None

    def kill(self) -> None:
        """SIGKILL for the program's whole process group."""
        if pid := self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def finished(self, returncode: int) -> None:
        """The program is gone and its output was read."""
        self._children.discard(self)
        if self._transport is not None:
            self._transport.close()
        if self.channel.is_closing():
            return
        if returncode < 0:
            self.channel.exit_with_signal(signal.Signals(-returncode).name.removeprefix("SIG"))
        else:
            self.channel.exit(returncode)


class _Streams(asyncio.SubprocessProtocol):
    """Carries a program's output into its channel."""

    def __init__(self, session: Exec) -> None:
        self._session = session
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        channel = self._session.channel
        if channel.is_closing():
            return
        if fd == 1:
            channel.write(data)
        else:
            channel.write_stderr(data)

    def connection_lost(self, exc: Exception | None) -> None:
        returncode = self._transport.get_returncode() if self._transport else None
        self._session.finished(returncode if returncode is not None else 255)
