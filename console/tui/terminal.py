"""The terminal as it really behaves: it stalls, and it vanishes.

Textual's writer blocks the event loop once 30 frames wait for a stalled terminal, and dies when
the terminal is gone; its reader then spins on end-of-file at 100 % of a core (perf.md 4a). Here a
stalled terminal loses frames instead of blocking (and is repainted when it reads again), and a
vanished one is noticed by poll(2) hang-up, whether or not a SIGHUP comes.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable
from typing import IO, Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

QUEUED_FRAMES = 8
"""Frames that may wait for the terminal; more would only show the operator the past."""


class _Screen:
    """The output stream, made safe: once the terminal is gone, writing does nothing."""

    def __init__(self, stream: IO[str] | None, drained: Callable[[], None]) -> None:
        self._stream = stream
        self._drained = drained
        self.gone = False

    def write(self, text: str) -> None:
        """Write, or notice that nobody is there."""
        if self.gone or self._stream is None:
            return
        try:
            self._stream.write(text)
        except (OSError, ValueError):
            self.gone = True

    def flush(self) -> None:
        """Called by the writer thread when no frame is waiting."""
        if self.gone or self._stream is None:
            return
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self.gone = True
        self._drained()

    def fileno(self) -> int:
        """Where it goes."""
        return self._stream.fileno() if self._stream is not None else -1


class Terminal(LinuxDriver):
    """Textual's Linux driver that neither blocks nor dies with the terminal."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        """Same options as LinuxDriver."""
        super().__init__(app, **options)
        self._file = _Screen(self._file, self._drained)  # type: ignore[assignment]
        self._asleep = True
        self._behind = False
        self._running_loop: asyncio.AbstractEventLoop | None = None

    def start_application_mode(self) -> None:
        """Take the terminal over (also after another program had it)."""
        self._asleep = False
        self._running_loop = asyncio.get_running_loop()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def write(self, data: str) -> None:
        """Queue a frame; dropped while another program has the terminal or it does not read."""
        writer = self._writer_thread
        if self._asleep or writer is None:
            return
        if writer._queue.qsize() >= QUEUED_FRAMES:
            self._behind = True
            return
        writer.write(data)

    def close(self) -> None:
        """Give the terminal back."""
        self._asleep = True
        super().close()

    def _drained(self) -> None:
        if self._behind and self._running_loop is not None and not self._running_loop.is_closed():
            self._behind = False
            self._running_loop.call_soon_threadsafe(self._repaint)

    def _repaint(self) -> None:
        if not self._asleep:
            self._app.refresh(layout=True)


class HangUp:
    """Calls `lost` in the event loop once the terminal behind `fileno` is gone."""

    def __init__(self, fileno: int, lost: Callable[[], object]) -> None:
        """Start watching. Needs a running event loop."""
        self._fileno = fileno
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._wake, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="terminal hang-up", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        poll = select.poll()
        # An empty mask reports only hang-up, error and a closed descriptor: typing wakes nobody.
        poll.register(self._fileno, 0)
        poll.register(self._wake, select.POLLIN)
        for fileno, _event in poll.poll():
            if fileno == self._fileno:
                self._loop.call_soon_threadsafe(self._lost)

    def close(self) -> None:
        """Stop watching."""
        os.write(self._stop, b".")
        self._thread.join()
        os.close(self._stop)
        os.close(self._wake)
