"""Writing a recording beside the screen: the Events of `watch --json`, by a thread of its own.

The event loop only encodes and appends; a disk that is full or slow costs the recording and one
sentence, never the console. The file belongs to its owner only, never replaces another, and ends
at a size. Killed at any moment, it can be read up to the second before.
"""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from msgspec import structs

from console import units
from inventory.errors import UsageError
from probes.event import Event, Sample, encoder
from probes.facts import NodeFacts

MOST_BYTES = 1 << 30
"""Of the file: 6 hours of 16 nodes with 8 GPUs, or 6 minutes of 1,000."""
WAITING_MOST = 64 << 20
"""Bytes that may wait for the disk: 10 seconds of 2,000 nodes."""
FLUSH_S = 1.0
CLOSE_S = 5.0
"""How long leaving waits for the disk."""
PRIVATE = 0o600


class Recorder:
    """One file being written."""

    def __init__(
        self, path: Path, *, most_bytes: int = MOST_BYTES, known: Iterable[NodeFacts] = ()
    ) -> None:
        """Make the file; `known` is written first, for a recording that begins amid things.

        Raises UsageError when the file is there already or cannot be made.
        """
        self.path = path
        self.written = 0
        """Bytes of the file."""
        self.trouble = ""
        """Why it ended early, or what it lacks; "" when it is whole."""
        self.ended = False
        self._most = most_bytes
        self._known = {facts.node.name: facts for facts in known}
        self._waiting = bytearray()
        self._lost = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._raw = _new(path)
        self._file: IO[bytes] = self._raw
        if path.suffix == ".gz":
            # Level 1 packs 20 MB/s on one core to a tenth; 1,000 nodes tell 3 MB/s.
            self._file = gzip.GzipFile("", "wb", 1, self._raw)  # type: ignore[assignment]
        self._thread = threading.Thread(target=self._write, name="recording", daemon=True)
        self._thread.start()

    def tap(self, event: Event) -> None:
        """Take one Event. Never waits and never raises."""
        if self.ended or event.node in self._known:
            return  # what is known of a node is written first, and holds this
        line = encoder.encode(event) + b"\n"
        with self._lock:
            if len(self._waiting) + len(line) > WAITING_MOST:
                self._lost += 1
                self.trouble = f"{self._lost} Events lost, the disk is too slow"
                return
            self._waiting += line

    @property
    def size(self) -> str:
        """Of the file, for people."""
        return units.size(float(self.written))

    def close(self) -> None:
        """Write what waits and end the file. A disk that hangs is left alone after CLOSE_S."""
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_S)

    def _write(self) -> None:
        try:
            with self._raw, self._file:
                self._begin()
                while not self.ended:
                    self._wake.wait(FLUSH_S)
                    closing = self._closing
                    self._put(self._take())
                    self._file.flush()
                    if closing:
                        return
        except (OSError, ValueError) as error:
            self.trouble = f"stopped: {getattr(error, 'strerror', None) or error}"
        finally:
            self.ended = True
            self._take()

    def _begin(self) -> None:
        """What is known, the newest Event of all first: replays begin at the first one's time."""
        newest = max(
            (e for f in self._known.values() for e in list(f.latest.values())),
            key=lambda event: event.at, default=None,
        )  # fmt: skip
        if newest is not None:
            self._put(encoder.encode(newest) + b"\n")
        for name, facts in list(self._known.items()):
            # From here on its Events are taken: one may be written twice, none is missing.
            del self._known[name]
            self._put(b"".join(encoder.encode(event) + b"\n" for event in _told(facts)))

    def _take(self) -> bytes:
        with self._lock:
            data = bytes(self._waiting)
            self._waiting.clear()
        return data

    def _put(self, data: bytes) -> None:
        """Write whole lines, as many as the file may still hold."""
        room = self._most - self._raw.tell()
        if len(data) > room:
            data = data[: data.rfind(b"\n", 0, max(0, room)) + 1]
            self.trouble = f"stopped: it has its {units.size(float(self._most))}"
            self.ended = True
        if data:
            self._file.write(data)
        self.written = self._raw.tell()


def _new(path: Path) -> IO[bytes]:
    try:
        fileno = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    except FileExistsError:
        raise UsageError(
            "is there already, and a recording replaces nothing", where=str(path),
            instead="another name",
        ) from None  # fmt: skip
    except OSError as error:
        raise UsageError(f"{error.strerror}", where=str(path)) from error
    return os.fdopen(fileno, "wb")


def _told(facts: NodeFacts) -> Iterator[Event]:
    """What one node has told and still stands, in an order in which it can be taken in again."""
    hello = facts.latest.get(("hello", ""))
    if hello is not None:
        yield hello
    if facts.status is not None:
        yield facts.status
    latest = [sample for sample in list(facts.latest.values()) if sample is not hello]
    for sample in sorted(latest, key=lambda one: one.at):
        yield _with_lines(sample, facts)
    yield from [*facts.hung.values(), *facts.troubles.values()]
    if facts.allocation is not None:
        yield facts.allocation


def _with_lines(sample: Sample, facts: NodeFacts) -> Sample:
    """Of the kernel log all lines that are kept, not those of the last answer."""
    if sample.probe != "kernel_log":
        return sample
    return structs.replace(sample, rows=list(facts.kernel))
