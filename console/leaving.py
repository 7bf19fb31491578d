"""Signals end a run, also one that waits for a reader of stdout who does not read.

The event loop hears no signal while a write waits in the kernel. So a signal also starts a timer,
and the write that still waits when it goes off is cut: nobody reads the rest.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

GRACE_S = 2.0
"""For the last lines after a signal; then again and again, as there may be more to write."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Cut(BaseException):
    """The write was waiting for its reader, and the run is told to end."""


class _Write:
    """The write to stdout that is going on, if any."""

    waits = False
    was_cut = False


def was_cut() -> bool:
    """Whether the reader of stdout lacks something."""
    return _Write.was_cut


@contextlib.contextmanager
def cuttable() -> Iterator[None]:
    """A write that is given up after a signal; raises Cut then."""
    _Write.waits = True
    try:
        yield
    finally:
        _Write.waits = False


def _late(_number: int, _frame: FrameType | None) -> None:
    if _Write.waits:
        _Write.was_cut = True
        raise Cut


@contextlib.contextmanager
def heard(loop: asyncio.AbstractEventLoop, leave: Callable[[], object]) -> Iterator[None]:
    """Let the loop call `leave` on SIGTERM and SIGHUP; SIGINT goes to who had it, asyncio's runner.

    A signal that is ignored stays so: nohup and a shell's background jobs mean it.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: theirs for number, theirs in before.items() if theirs != signal.SIG_IGN}

    def told(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, GRACE_S, GRACE_S)
        theirs = before[signal.Signals(number)]
        if number == signal.SIGINT and callable(theirs):
            theirs(number, frame)

    alarm = signal.signal(signal.SIGALRM, _late)
    for number in before:
        if number != signal.SIGINT:
            loop.add_signal_handler(number, leave)
        signal.signal(number, told)  # after the loop's: theirs lets the kernel resume a write
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, theirs in (*before.items(), (signal.SIGALRM, alarm)):
            signal.signal(number, theirs)
