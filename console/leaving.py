"""Signals end a run, also one that waits in the kernel for somebody else.

The event loop hears no signal meanwhile. So a signal also starts a timer, and what still waits when
it goes off is cut: a write to stdout whose rest nobody reads, or the read of keys that the terminal
dropped as it sent Ctrl-C, after it had said that they are there.
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
    """A write or read was waiting for the other side, and the run is told to end."""


class _Call:
    """The write or read that is going on, if any."""

    waits = False
    was_cut = False


def was_cut() -> bool:
    """Whether one was given up."""
    return _Call.was_cut


@contextlib.contextmanager
def cuttable() -> Iterator[None]:
    """A write or read that is given up after a signal; raises Cut then."""
    _Call.waits = True
    try:
        yield
    finally:
        _Call.waits = False


def _late(_number: int, _frame: FrameType | None) -> None:
    if _Call.waits:
        _Call.was_cut = True
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
