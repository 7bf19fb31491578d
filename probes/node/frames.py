"""Frames out: `MARKER SP JSON LF`, capped in length, written by one thread that may block.

Whoever sends never blocks. While the bastion does not read, samples of a probe whose earlier sample
still waits are skipped and counted; everything else waits in a queue with a byte limit. In a pass
nothing is left out: its probes answer twice at most, which is what bounds the queue there.
"""

import json
import os
import threading
from collections import deque

FRAME_BYTES = 262144
"""Longest line: 500 process rows of 250 B are half of it. The reader refuses longer lines."""

QUEUE_BYTES = 4 * FRAME_BYTES
"""What may wait while stdout blocks; 1 MiB keeps the agent inside its 30 MB."""


def encode(marker: "bytes", frame: "dict[str, object]") -> "bytes":
    """One line. Text that is not Unicode is replaced; NaN and infinity are left out.

    A frame over the cap loses its last rows ("cut" says how many); without rows it becomes an err.
    """
    line = _line(marker, frame)
    while len(line) > FRAME_BYTES:
        rows = frame.get("r")
        if not isinstance(rows, list) or not rows:
            text = "a frame of %d bytes was not sent" % len(line)
            blame = {"k": "err", "p": frame.get("p", ""), "t": frame.get("t", 0.0), "text": text}
            return _line(marker, blame)
        cut = frame.get("cut")
        lost = len(rows) - len(rows) // 2 + (cut if isinstance(cut, int) else 0)
        frame = dict(frame, r=rows[: len(rows) // 2], cut=lost)
        line = _line(marker, frame)
    return line


def _line(marker: "bytes", frame: "dict[str, object]") -> "bytes":
    try:
        text = json.dumps(frame, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(clean(frame), separators=(",", ":"))
    if "\\ud" in text:
        text = json.dumps(clean(frame), separators=(",", ":"))
    return marker + b" " + text.encode("ascii") + b"\n"


def clean(value: "object") -> "object":
    """The same structure without lone surrogates and without non-finite numbers."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        kept = {str(clean(key)): clean(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


class Writer:
    """Sends frames from any thread through one daemon thread to a file descriptor."""

    def __init__(self, marker: "str", handle: "int" = 1, keep_all: "bool" = False) -> "None":
        """`handle` is written to; `keep_all` is for a pass."""
        self._keep_all = keep_all
        self._marker = marker.encode("ascii")
        self._handle = handle
        self._ready = threading.Condition()
        self._queue: "deque[tuple[str, bytes]]" = deque()
        self._bytes = 0
        self._waiting: "set[str]" = set()
        self._writing = False
        self.skipped = 0
        """Samples not sent because the one before was still waiting."""
        self.dropped = 0
        """Other frames not sent because the queue was full."""
        self.sent = 0
        self.broken = threading.Event()
        """Set when the reader has gone."""
        thread = threading.Thread(target=self._run, name="writer")
        thread.daemon = True
        thread.start()

    def send(self, frame: "dict[str, object]", once: "str" = "") -> "bool":
        """Queue a frame; `once` names what must not wait twice (a probe's samples).

        False when it was skipped or dropped.
        """
        with self._ready:
            if once in self._waiting and not self._keep_all:
                self.skipped += 1
                return False
        line = encode(self._marker, frame)
        with self._ready:
            if self._bytes + len(line) > QUEUE_BYTES and not self._keep_all:
                self.dropped += 1
                return False
            if once:
                self._waiting.add(once)
            self._queue.append((once, line))
            self._bytes += len(line)
            self._ready.notify_all()
        return True

    def drain(self, timeout_s: "float | None") -> "bool":
        """Wait until everything queued is written; False when it is not within the time.

        None waits as long as there is a reader.
        """
        with self._ready:
            return self._ready.wait_for(
                lambda: self.broken.is_set() or not (self._queue or self._writing), timeout_s
            )

    def _run(self) -> "None":
        try:
            self._serve()
        finally:  # whatever ended it: an agent that cannot speak must not stay
            self.broken.set()
            with self._ready:
                self._ready.notify_all()

    def _serve(self) -> "None":
        while not self.broken.is_set():
            with self._ready:
                while not self._queue:
                    self._ready.wait()
                once, line = self._queue.popleft()
                self._bytes -= len(line)
                self._writing = True
            self._write(line)
            with self._ready:
                self._waiting.discard(once)
                self._writing = False
                self.sent += 1
                self._ready.notify_all()

    def _write(self, line: "bytes") -> "None":
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._handle, view) :]
        except OSError:
            self.broken.set()
