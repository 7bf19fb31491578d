"""Endpoints that accept a connection and then do something other than speak SSH properly."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from tests.ssh.lab import free_port

BANNER = b"SSH-2.0-OpenSSH_9.2\r\n"


class Faulty:
    """Starts misbehaving listeners on loopback; each on its own port of 127.0.0.1."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    async def start(self, kind: str, target: tuple[str, int] | None = None, count: int = 0) -> int:
        """Listen; the port. Kinds: silent, banner, reset, close, http, drip, mute, cut.

        mute and cut forward to `target` and stop after `count` bytes of its answer.
        """

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._behave(kind, reader, writer, target, count)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", free_port())
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _behave(
        self,
        kind: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        target: tuple[str, int] | None,
        count: int,
    ) -> None:
        if kind == "banner":
            writer.write(BANNER)
        elif kind == "http":
            writer.write(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n" * 10)
            await writer.drain()
            return
        elif kind == "drip":
            for byte in BANNER:
                writer.write(bytes([byte]))
                await asyncio.sleep(1)
        elif kind == "reset":
            _reset(writer)
            return
        elif kind == "close":
            return
        elif kind in ("mute", "cut") and target is not None:
            await self._forward(kind, reader, writer, target, count)
            return
        await asyncio.Event().wait()

    async def _forward(
        self,
        kind: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        target: tuple[str, int],
        left: int,
    ) -> None:
        back, forth = await asyncio.open_connection(*target)

        async def up() -> None:
            while data := await reader.read(65536):
                forth.write(data)

        task = asyncio.ensure_future(up())
        try:
            while data := await back.read(65536):
                writer.write(data[:left])
                left -= len(data)
                if left <= 0:
                    await writer.drain()
                    if kind == "cut":
                        _reset(writer)
                        return
                    await asyncio.Event().wait()
        finally:
            task.cancel()
            forth.close()

    async def close(self) -> None:
        """End everything."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
