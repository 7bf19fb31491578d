"""Jump hosts: how they are written, and one connection that many share."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

from msgspec import Struct

from probes.transport import Failure

T = TypeVar("T")

REMEMBER_FAILURE_S = 10.0
"""Nodes that arrive this soon after a jump host failed get the same answer, not a new wait."""

SLOW_S = 2.0
"""A handshake that takes longer gives its place to the next: black holes hold up nobody."""


class Hop(Struct, frozen=True):
    """One jump host: [user@]host[:port], IPv6 in brackets, optionally as ssh:// URI."""

    host: str
    user: str | None = None
    port: int | None = None


def read_hop(text: str) -> Hop:
    """Parse one entry of ProxyJump. Raises Failure."""
    bare = text.strip().removeprefix("ssh://")
    user, at, rest = bare.rpartition("@")
    found = re.fullmatch(
        r"(?:\[([^\]]+)\]|([^:\[\]]+|[0-9A-Fa-f:]+:[0-9A-Fa-f:]*))(?::(\d+))?", rest
    )
    if found is None or not (found.group(1) or found.group(2)):
        raise Failure(
            "ssh_config", f"jump host {text!r} is not [user@]host[:port]", "correct it", fixed=True
        )
    port = int(found.group(3)) if found.group(3) else None
    return Hop(found.group(1) or found.group(2), user if at else None, port)


class Shared(Generic[T]):
    """One thing that is opened once for many users, and again when it is found dead."""

    def __init__(self, open_it: Callable[[], Awaitable[T]], alive: Callable[[T], bool]) -> None:
        """`open_it` makes it, `alive` says whether it can still be used."""
        self._open = open_it
        self._alive = alive
        self._task: asyncio.Task[T] | None = None
        self._failed: tuple[float, Failure] | None = None

    async def get(self) -> T:
        """The open thing; waits for the one attempt that is under way. Raises Failure."""
        task = self._task
        if task is not None and task.done() and not self._usable(task):
            task = None
        if task is None:
            self._repeat_failure()
            task = self._task = asyncio.ensure_future(self._attempt())
        return await asyncio.shield(task)

    def _usable(self, task: asyncio.Task[T]) -> bool:
        return not task.cancelled() and task.exception() is None and self._alive(task.result())

    def _repeat_failure(self) -> None:
        if self._failed is not None and time.monotonic() - self._failed[0] < REMEMBER_FAILURE_S:
            raise self._failed[1]

    async def _attempt(self) -> T:
        try:
            found = await self._open()
        except Failure as failure:
            self._failed = (time.monotonic(), failure)
            raise
        self._failed = None
        return found

    async def end(self) -> T | None:
        """Stop an attempt under way; what was opened, if anything."""
        task = self._task
        if task is None:
            return None
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Failure):
                await task
        return task.result() if not task.cancelled() and task.exception() is None else None


class Turns:
    """At most so many handshakes at a time, not counting the slow ones."""

    def __init__(self, most: int) -> None:
        """`most` handshakes begin at once."""
        self._slots = asyncio.Semaphore(most)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place; keep it until the handshake ends or SLOW_S passed."""
        await self._slots.acquire()
        slow = asyncio.get_running_loop().call_later(SLOW_S, self._slots.release)
        try:
            yield
        finally:
            if slow.when() > asyncio.get_running_loop().time() and not slow.cancelled():
                slow.cancel()
                self._slots.release()
