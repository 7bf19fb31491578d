"""One key at a time from a terminal, which is always given back as it was."""

from __future__ import annotations

import asyncio
import os
import termios
import tty
from types import TracebackType
from typing import Any, Self

from console import leaving

ESCAPE = "\x1b"
ENTER = "\n"
ERASE = ("\x7f", "\b")
MORE_S = 0.1
"""After an escape byte: an arrow key's other bytes come at once, also over a slow line."""
READ_BYTES = 4096


class Keys:
    """Keys of the terminal on a descriptor, without echo; signals work as before."""

    def __init__(self, fileno: int = 0) -> None:
        """Nothing is changed before `with`."""
        self._fileno = fileno
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        """What was typed ahead is dropped: it was not meant for a question nobody had seen."""
        self._before = termios.tcgetattr(self._fileno)
        tty.setcbreak(self._fileno, termios.TCSAFLUSH)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The terminal as it was; one that is gone needs nothing."""
        try:
            termios.tcsetattr(self._fileno, termios.TCSADRAIN, self._before)
        except termios.error:
            return

    async def typed(self) -> str:
        """What was typed or pasted since the last call, at least a character; ESCAPE alone is the
        key. Arrow keys and the like are "". Raises EOFError when the terminal is gone."""
        data = await self._bytes()
        if data == b"\x1b":
            try:
                async with asyncio.timeout(MORE_S):
                    data += await self._bytes()
            except TimeoutError:
                return ESCAPE
        if data.startswith(b"\x1b"):
            return ""
        return data.decode("utf-8", "replace").replace("\r", ENTER)

    async def _bytes(self) -> bytes:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_reader(self._fileno, _once, ready)
        try:
            await ready
        finally:
            loop.remove_reader(self._fileno)
        try:
            with leaving.cuttable():
                data = os.read(self._fileno, READ_BYTES)
        except (OSError, leaving.Cut):
            data = b""
        if not data or data == b"\x04":
            raise EOFError
        return data


def _once(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
