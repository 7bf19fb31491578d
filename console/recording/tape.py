"""Reading a recording: Events in the order of the file, in bounded memory, from any place.

A recording whose writer was killed ends in the middle of a line: it is read up to there.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from inventory.errors import UsageError
from inventory.expressions import natural_key
from inventory.node import Inventory, Node
from inventory.scheduler import Allocation, Step
from probes.event import Finding, NodeStatus, Sample, decoder

Answer: TypeAlias = Sample | NodeStatus | Allocation | Step
"""What was observed, as opposed to judged."""

_T = TypeVar("_T")
_NEVER = float("-inf")
LINE_MOST = 16 << 20
"""Bytes of the longest Event that is read; the largest real ones, topologies, have 80 kB."""
INSTEAD = "record with `gpuconsole --record FILE` or `gpuconsole watch --json > FILE`"


class Place(NamedTuple):
    """Where to read on: before this byte of the (unpacked) file, which begins this line."""

    offset: int = 0
    line: int = 1


START = Place()


class Span(NamedTuple):
    """What one look over the whole file tells."""

    names: tuple[str, ...]
    """Nodes, in natural order."""
    start: float
    """Epoch seconds of the first Event. One that began amid things tells first what was known, and
    of that the newest at the very first (Recorder)."""
    end: float
    """The same of the latest one."""

    @property
    def seconds(self) -> int:
        """Its length, rounded up."""
        return max(1, math.floor(self.end - self.start) + 1)


class _Head(Struct):
    """The part of an Event that the first look needs; decoding it costs a third of the whole."""

    type: str
    node: str
    at: float = _NEVER


def _silent(_text: str) -> None:
    """Nobody wants to hear it."""


class Tape:
    """One file, read as often as needed."""

    def __init__(self, path: Path, told: Callable[[str], None] = _silent) -> None:
        """`told` hears when the last line is cut short. Raises UsageError for no regular file."""
        if path.exists() and not path.is_file():
            # It is read several times, and a device or a pipe may never end.
            raise UsageError(
                "not a regular file", where=str(path), instead="save the recording first"
            )
        self.path = path
        self._told = told

    def events(self, start: Place = START) -> Iterator[tuple[Answer, Place]]:
        """Every Event but findings, each with the place behind it.

        Raises UsageError naming the bad line.
        """
        for place, line in self._lines(start):
            event = self._decoded(decoder, place.line - 1, line) if line.strip() else None
            if event is not None and not isinstance(event, Finding):
                yield event, place

    def span(self, watched: Callable[[int], object] = lambda offset: None) -> Span:
        """Nodes and times of the whole file. Raises UsageError when it is no recording.

        `watched` hears how many bytes were read, now and then.
        """
        names: set[str] = set()
        start = end = _NEVER
        for place, line in self._lines(START):
            head = self._decoded(_heads, place.line - 1, line) if line.strip() else None
            if head is not None and head.type != "finding":
                names.add(head.node)
                start, end = (head.at if start == _NEVER else start), max(end, head.at)
            if place.line % 10_000 == 0:
                watched(place.offset)
        if not names or not math.isfinite(end):
            raise UsageError("holds no Events", where=str(self.path), instead=INSTEAD)
        return Span(tuple(sorted(names, key=natural_key)), start, end)

    def _lines(self, start: Place) -> Iterator[tuple[Place, bytes]]:
        """Each line with the place behind it."""
        offset, number = start
        try:
            with self._open() as file:
                file.seek(offset)
                while line := file.readline(LINE_MOST):
                    offset, number = offset + len(line), number + 1
                    yield Place(offset, number), line
        except (EOFError, zlib.error):
            self._told(f"{self.path}: the end is cut short; read up to line {number - 1}")
        except gzip.BadGzipFile as error:
            raise UsageError(f"{error}", where=str(self.path)) from error
        except OSError as error:
            raise UsageError(f"{error.strerror}", where=str(self.path)) from error

    def _open(self) -> IO[bytes]:
        if self.path.suffix == ".gz":
            return cast("IO[bytes]", gzip.open(self.path, "rb"))
        return self.path.open("rb")

    def _decoded(self, how: msgspec.json.Decoder[_T], number: int, line: bytes) -> _T | None:
        """One line; None for a last one that was never finished."""
        try:
            return how.decode(line)
        except msgspec.MsgspecError as error:
            if number > 1 and not line.endswith(b"\n") and len(line) < LINE_MOST:
                self._told(f"{self.path}:{number}: the last line is cut short; read up to there")
                return None
            raise UsageError(
                f"not an Event: {error}", where=f"{self.path}:{number}", instead=INSTEAD
            ) from error


_heads = msgspec.json.Decoder(_Head)


def inventory_of(path: Path, names: tuple[str, ...], known: Inventory | None = None) -> Inventory:
    """The nodes a recording speaks of.

    What the site expects of them (roles, GPU counts) is in its inventory, `known`, not in the file.
    """
    nodes = {node.name: node for node in known.nodes} if known else {}
    return Inventory(
        nodes=tuple(nodes.get(name) or Node(name=name) for name in names),
        cluster=f"recording {path.name}",
        source=str(path),
    )
