"""One simulated node's sshd.

Only public-key login with the demo's own key is possible, and only from this machine: the listening
sockets are bound to 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from console.demo.execution import Exec
from probes.ssh import asyncssh

LOOPBACK = "127.0.0.1"


class Account(asyncssh.SSHServer):
    """One connection to a node."""

    def __init__(self, session: Callable[[], Exec], open_connections: set[Any]) -> None:
        """`session` makes the handler of each session channel."""
        self._session = session
        self._open = open_connections
        self._connection: Any = None

    def connection_made(self, conn: Any) -> None:
        """Remember the connection, so that a fault can cut it."""
        self._connection = conn
        self._open.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._open.discard(self._connection)

    def session_requested(self) -> Exec:
        """A session channel."""
        return self._session()


class Port:
    """A node's TCP port: it serves ssh, refuses, or accepts and says nothing."""

    def __init__(self, key: Any, authorized: Any, session: Callable[[], Exec]) -> None:
        """Reserves a free port of 127.0.0.1; nothing listens yet."""
        self._key = key
        self._authorized = authorized
        self._session = session
        self._open: set[Any] = set()
        self._listener: Any = None
        self._held = self._bound(0)
        self.number: int = self._held.getsockname()[1]
        self.answers = "refused"

    def _bound(self, number: int) -> socket.socket:
        """A bound socket that does not listen yet: connects are refused.

        One such socket keeps the number for as long as the cluster lives (hence SO_REUSEPORT).
        """
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((LOOPBACK, number))
        return held

    async def answer(self, how: str) -> None:
        """Become "ssh", "refused" or "silent"; open connections are cut unless it is ssh."""
        if how == self.answers:
            return
        self._withdraw()
        if how == "ssh":
            self._listener = await asyncssh.listen(
                sock=self._bound(self.number),
                server_factory=lambda: Account(self._session, self._open),
                server_host_keys=[self._key],
                authorized_client_keys=self._authorized,
                encoding=None,
                password_auth=False,
                kbdint_auth=False,
                gss_host=None,
                host_based_auth=False,
                line_editor=False,
                agent_forwarding=False,
                x11_forwarding=False,
                compression_algs=None,
            )
        elif how == "silent":
            self._listener = await asyncio.start_server(
                self._stay_silent, sock=self._bound(self.number)
            )
        self.answers = how

    def _withdraw(self) -> None:
        """Only the held socket is left, which refuses."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            for connection in list(self._open):
                connection.abort()
        self.answers = "refused"

    async def _stay_silent(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Read and throw away until the client gives up."""
        connection = _Silent(writer)
        self._open.add(connection)
        try:
            while await reader.read(4096):
                pass
        except OSError:
            pass
        finally:
            self._open.discard(connection)
            writer.close()

    async def close(self) -> None:
        """Stop answering and give the port back."""
        self._withdraw()
        self._held.close()


class _Silent:
    """A connection that nobody serves, with the one method of those that are served."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def abort(self) -> None:
        self._writer.transport.abort()
