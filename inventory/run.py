"""Run: argv in, Completed out. The only way this package starts a program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class Completed(Struct, frozen=True, kw_only=True):
    """What a finished program left behind."""

    argv: tuple[str, ...]
    rc: int
    """Exit status; -1 when it could not be started or was killed at the deadline."""
    stdout: str
    stderr: str
    timed_out: bool = False
    missing: bool = False
    """The program does not exist here."""


class Run(Protocol):
    """Runs argv somewhere and waits for it, at most `timeout_s`."""

    async def __call__(self, argv: Sequence[str], timeout_s: float = 10.0) -> Completed:
        """Never raises for what the program did; see Completed."""
        ...


OUTPUT_BYTES = 512 << 20
"""Most of one program; the pods of 4,000 Kubernetes nodes are about 200 MB."""


class LocalRun:
    """Runs programs on this machine, in their own process group, without a shell."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        """`env` is added to the environment; LC_ALL=C.UTF-8 keeps messages parsable."""
        self.env = {**os.environ, "LC_ALL": "C.UTF-8", **(env or {})}

    async def __call__(self, argv: Sequence[str], timeout_s: float = 10.0) -> Completed:
        """Run argv; a program past its deadline is killed with its process group."""
        try:
            proc = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self.env,
                start_new_session=True,
            )
        except OSError as error:
            return _not_started(argv, error)
        try:
            async with asyncio.timeout(timeout_s):
                both = _printed(proc, proc.stdout), _printed(proc, proc.stderr)
                out, err = await asyncio.gather(*both)
                await proc.wait()
        except TimeoutError:
            await _kill(proc)
            text = f"no answer within {timeout_s:g} s"
            return Completed(argv=tuple(argv), rc=-1, stdout="", stderr=text, timed_out=True)
        except asyncio.CancelledError:
            await _kill(proc)
            raise
        if max(len(out), len(err)) > OUTPUT_BYTES:
            text = f"stopped: it printed more than {OUTPUT_BYTES >> 20} MB"
            return Completed(argv=tuple(argv), rc=-1, stdout="", stderr=text)
        return Completed(
            argv=tuple(argv),
            rc=proc.returncode if proc.returncode is not None else -1,
            stdout=out.decode("utf-8", "replace"),
            stderr=err.decode("utf-8", "replace"),
        )


def _not_started(argv: Sequence[str], error: OSError) -> Completed:
    missing = isinstance(error, FileNotFoundError)
    text = f"{argv[0]}: not found" if missing else f"{argv[0]}: {error.strerror}"
    return Completed(argv=tuple(argv), rc=-1, stdout="", stderr=text, missing=missing)


async def _printed(proc: asyncio.subprocess.Process, stream: asyncio.StreamReader | None) -> bytes:
    """All of it; a program that prints more than OUTPUT_BYTES is ended, and a bit more is left."""
    assert stream is not None
    data = bytearray()
    while part := await stream.read(1 << 18):
        if len(data) <= OUTPUT_BYTES:
            data += part
        elif proc.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(proc.pid, signal.SIGKILL)
    return bytes(data)


async def _kill(proc: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(proc.pid, signal.SIGKILL)
    # A client in uninterruptible sleep (hung munge socket) does not die: do not wait for it.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            # A pipe that is not read to its end is never closed.
            await asyncio.gather(_emptied(proc.stdout), _emptied(proc.stderr))
            await proc.wait()


async def _emptied(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(1 << 18):
        continue
