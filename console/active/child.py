"""A program that follows one run from this machine: its lines as they come, and its sure end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence

END_S = 3.0
"""Between SIGTERM and SIGKILL: srun tells the nodes first."""
LINE_BYTES = 1 << 16
PDEATHSIG = 1
"""PR_SET_PDEATHSIG, linux/prctl.h."""
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def _die_with_us() -> None:
    """In the child: SIGTERM when the console is gone, however it went."""
    _prctl(PDEATHSIG, signal.SIGTERM, 0, 0, 0)


async def follow(
    argv: Sequence[str],
    env: Mapping[str, str],
    line: Callable[[str], None],
    limit_s: float,
) -> tuple[int, bool]:
    """(exit status, whether it ran past its limit). Its lines, stderr among them, go to `line`.

    argv, never a shell. Raises OSError when it cannot be started. Cancelled, it is ended first.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C.UTF-8", **env},
        limit=LINE_BYTES,
        start_new_session=True,
        preexec_fn=_die_with_us,
    )
    try:
        async with asyncio.timeout(limit_s):
            await _lines(process, line)
            return await process.wait(), False
    except TimeoutError:
        return -1, True
    finally:
        await end(process)


async def _lines(process: asyncio.subprocess.Process, line: Callable[[str], None]) -> None:
    assert process.stdout is not None
    while True:
        try:
            raw = await process.stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError as rest:
            if rest.partial:
                line(rest.partial.decode("utf-8", "replace"))
            return
        except asyncio.LimitOverrunError as long:
            raw = await process.stdout.readexactly(long.consumed or LINE_BYTES)
        line(raw.decode("utf-8", "replace").rstrip("\r\n"))


async def end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM to its session, SIGKILL after END_S. Nothing happens to one that has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await process.wait()
