"""The terminal as it really behaves: it stalls, and it vanishes.

Textual's writer blocks the event loop once 30 frames wait for a stalled terminal, and dies when
the terminal is gone; its reader then spins on end-of-file at 100 % of a core (measured). Here a
stalled terminal loses frames instead of blocking (and is repainted when it reads again), and a
vanished one is noticed by poll(2) hang-up, whether or not a SIGHUP comes.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.message import Message

from console import charset, written
from console.above import above
from console.tui.keymap import Keymap
from console.tui.text import ascii_only
from console.tui.theme import ASCII, Look
from console.tui.typed import Typed

QUEUED_WRITES = 12
"""Writes that may wait for the terminal before frames are left out: four frames of three writes.
Textual's queue blocks the loop at 30."""
READ_BYTES = 4096
WAIT_MS = 100
"""For a key; then the parser may decide that an escape was the key."""


class _Screen:
    """The output stream, made safe: once the terminal is gone, writing does nothing."""

    def __init__(
        self, stream: TextIO | None, drained: Callable[[], None], look: Look | None = None
    ) -> None:
        self._stream = stream
        self._drained = drained
        self._look = look
        self.gone = False

    def write(self, text: str) -> None:
        """Write, or notice that nobody is there."""
        if self.gone or self._stream is None:
            return
        try:
            data = self._shown(text).encode(self._stream.encoding, self._stream.errors or "strict")
            written.whole(self._stream.fileno(), data)
        except (OSError, ValueError):
            self.gone = True

    def _shown(self, text: str) -> str:
        """What this terminal can show: frames and notices of Textual's have signs of their own."""
        return ascii_only(text) if self._look and self._look.glyphs is ASCII else text

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
        """Same options as LinuxDriver; the app may have a `repaint` that sends the whole screen."""
        super().__init__(app, **options)
        look: Look | None = getattr(app, "look", None)
        self._file = _Screen(self._file, self._drained, look)  # type: ignore[assignment]
        self._asleep = True
        self._behind = False
        self._repaint: Callable[[], object] = getattr(app, "repaint", app.refresh)
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self._taken: Callable[[], object] = getattr(app, "terminal_taken", lambda: None)
        keys: Keymap = getattr(app, "keymap", {})
        alt = any(key.startswith("alt+") for mine in keys.values() for key in mine)
        self._typed = Typed(0.0 if alt else ESCAPE_DELAY / 2)
        self._flooded: Callable[[], object] = getattr(app, "flooded", app.bell)

    def confirms(self, shown_at: float) -> bool:
        """The last key was pressed, not pasted, by somebody who had seen what is shown since then
        (monotonic seconds)."""
        return self._typed.confirms(shown_at)

    def run_input_thread(self) -> None:
        """Read keys until the application ends."""
        parser = XTermParser(self._debug)
        decode = codecs.getincrementaldecoder(charset.for_keys(charset.here()))("replace").decode
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        while not self.exit_event.is_set():
            if poll.poll(WAIT_MS):
                data = self._read()
                if text := self._sieved(decode(data)):
                    self._pass(parser.feed(text))
                elif not data:
                    # At the end of file poll returns at once; whoever watches for it ends us.
                    self.exit_event.wait(WAIT_MS / 1000)
            self._pass(parser.tick())

    def _read(self) -> bytes:
        try:
            return os.read(self.fileno, READ_BYTES)
        except OSError:
            return b""

    def _pass(self, typed: Iterable[Message]) -> None:
        for event in typed:
            self.process_message(event)

    def _sieved(self, text: str) -> str:
        floods = self._typed.floods
        kept = self._typed.take(text, time.monotonic()) if text else ""
        if self._typed.floods > floods and self._running_loop is not None:
            self._running_loop.call_soon_threadsafe(self._flooded)
        return kept

    def start_application_mode(self) -> None:
        """Take the terminal over (also after another program had it)."""
        self._asleep = False
        self._taken()
        self._running_loop = asyncio.get_running_loop()
        size = self._get_terminal_size()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        # Textual's own handler runs inside itself when sizes follow each other quickly, and then
        # the size that was read first is told last.
        self._running_loop.add_signal_handler(signal.SIGWINCH, self._resized)
        if size != self._get_terminal_size():
            self._resized()

    def _resized(self) -> None:
        if not self._in_band_window_resize:
            size = Size(*self._get_terminal_size())
            self._app.post_message(events.Resize(size, size))

    def _enable_mouse_support(self) -> None:
        """Not in GNU screen: while the mouse is on it keeps a lone escape until the next key comes
        (4.9, tried), and the two are then one key with Alt."""
        if not _in_screen(os.environ):
            super()._enable_mouse_support()

    def stop_application_mode(self) -> None:
        """Leave a clean screen: mosh and, as it comes, GNU screen have no second one to go back
        from, and what comes next would be written into ours."""
        self.write("\x1b[0m\x1b[H\x1b[2J")
        super().stop_application_mode()

    def _sigcont_application(self, *signal_and_frame: object) -> None:
        """Take the terminal back after SIGTSTP only.

        A hang-up sends SIGCONT too: Textual would start its reader a second time, also when the
        app has ended, and nobody would stop that thread again.
        """
        if self._must_signal_resume:
            super()._sigcont_application(*signal_and_frame)

    def _get_terminal_size(self) -> tuple[int, int]:
        """What the terminal says; exported COLUMNS and LINES are from before it was resized."""
        try:
            width, height = os.get_terminal_size(self.fileno)
        except OSError:
            return super()._get_terminal_size()
        return (width, height) if width and height else super()._get_terminal_size()

    def ready(self) -> bool:
        """Whether a frame may be sent; if not, the whole screen follows once the terminal reads.

        Frames are left out whole: each ends in the style and mode it began with.
        """
        writer = self._writer_thread
        if self._asleep or writer is None:
            return False
        if writer._queue.qsize() >= QUEUED_WRITES:
            # Looked at again, as the writer may have told of its end before it could know of this.
            self._behind = True
            self._behind = bool(writer._queue.qsize())
        return not self._behind

    def write(self, data: str) -> None:
        """Queue for the terminal, unless another program has it."""
        if not self._asleep and self._writer_thread is not None:
            self._writer_thread.write(data)

    def close(self) -> None:
        """Give the terminal back."""
        self._asleep = True
        super().close()

    def _drained(self) -> None:
        """Called in the writer's thread."""
        loop = self._running_loop
        if self._behind and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._catch_up)

    def _catch_up(self) -> None:
        if self._behind:
            self._behind = False
            self._repaint()


def _in_screen(environ: Mapping[str, str]) -> bool:
    """Whether GNU screen is next above us, as far as can be told; both inherit the other's names.

    Over ssh only TERM comes along: `screen.xterm-256color` is its own, `screen` is also tmux'.
    """
    if environ.get("TERM", "").startswith("screen."):
        return True
    if not environ.get("STY"):
        return False
    nearest = (name for name in above() if name.startswith(("screen", "tmux")))
    return next(nearest, "screen").startswith("screen")


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
