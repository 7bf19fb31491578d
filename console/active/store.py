"""Campaigns on disk: one file each, written after every run, so that an interrupted one goes on.

`state/tests/ID.json` holds what was asked and the document of `gpuconsole test --json`; only its
owner can read it. One lock for the folder: two campaigns at once would measure each other, and
neither could keep the cap.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from console.active.ask import Asked
from console.active.results import Campaign, Progress
from console.said import plainly
from console.settings import private
from inventory.errors import ConsoleError, UsageError

SCHEMA = 1
"""Version of the campaign document."""
FILE_BYTES = 256 << 20
"""Largest file read; 512 nodes in a full round robin are about 80 MB (our estimate)."""
LISTED = 200
ID = re.compile(r"\d{8}T\d{6}Z-(?:gpu|node|pairs|rails|cluster)(?:-\d{1,3})?")
ENDED = (Progress.DONE, Progress.FAILED, Progress.TIMED_OUT, Progress.REFUSED)
"""States of a run that is not run again when its campaign goes on."""


class Kept(Struct, frozen=True, kw_only=True):
    """One campaign as it lies in its file."""

    asked: Asked
    campaign: Campaign


class _Version(Struct):
    schema: int


class _Marked(Struct):
    """Of a file from whatever version, all that has to be there."""

    campaign: _Version


def save(folder: Path, kept: Kept) -> None:
    """Write it whole or not at all. Raises OSError."""
    path = private(folder) / f"{kept.campaign.id}.json"
    part = folder / f".{kept.campaign.id}.{os.getpid()}"
    data = msgspec.json.encode(kept, enc_hook=plainly)
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def load(folder: Path, name: str) -> Kept:
    """The campaign of this id, or the last one that was interrupted. Raises UsageError."""
    if name == "last":
        found = next((kept for kept in listed(folder) if kept.campaign.interrupted), None)
        if found is None:
            raise UsageError("no campaign was interrupted", where="--resume")
        return found
    if not ID.fullmatch(name):
        raise UsageError(
            f"{name!r} is no campaign", where="--resume", instead="`gpuconsole test --list`"
        )
    try:
        return _read(folder / f"{name}.json")
    except OSError as error:
        raise UsageError(
            f"{name}: {error.strerror}", where="--resume", instead="`gpuconsole test --list`"
        ) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise UsageError(f"{name} cannot be read: {error}", where="--resume") from None


def listed(folder: Path) -> list[Kept]:
    """Newest first; files that are none of ours are left out."""
    try:
        names = sorted((p for p in folder.iterdir() if ID.fullmatch(p.stem)), reverse=True)
    except OSError:
        return []
    found = []
    for path in names[:LISTED]:
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            found.append(_read(path))
    return found


def _read(path: Path) -> Kept:
    with path.open("rb") as file:
        data = file.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise ValueError(f"larger than {FILE_BYTES >> 20} MiB")
    found = msgspec.json.decode(data, type=_Marked).campaign.schema
    if found != SCHEMA:
        raise ValueError(f"it has schema {found}, this gpuconsole reads {SCHEMA}")
    return msgspec.json.decode(data, type=Kept)


def free_id(folder: Path, wanted: str) -> str:
    """An id that no file has yet."""
    number, name = 1, wanted
    while (folder / f"{name}.json").exists():
        number += 1
        name = f"{wanted}-{number}"
    return name


@contextlib.contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Hold the folder's lock. Raises UsageError while another campaign runs, or ConsoleError."""
    try:
        path = private(folder) / "running"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConsoleError(f"{folder}: {error.strerror}; nothing was done") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
            raise UsageError(
                f"a test runs already: {other or 'unknown'}", instead="wait for its end, or end it"
            ) from None
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its words
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{what}, pid {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
