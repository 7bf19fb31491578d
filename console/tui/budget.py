"""A bound on processor time for what cannot be trusted to end: regular expressions of operators.

CPython's `re` looks for signals while it matches, so a timer that raises ends a search that would
take years. The timer counts the process's own processor time (SIGVTALRM), not the clock: a busy
machine makes no expression slow. It works in the main thread, where the screen runs; elsewhere
nothing is bounded.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

_T = TypeVar("_T")


class OutOfTime(Exception):  # noqa: N818 - an event, not a fault of the program
    """The time was up."""


def within(budget_s: float, work: Callable[[], _T]) -> _T:
    """What `work()` returns. Raises OutOfTime when it takes longer than `budget_s`."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    running = True

    def stop(_number: int, _frame: FrameType | None) -> None:
        # The signal may come when the work is over and only its result is on the way.
        if running:
            raise OutOfTime

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, budget_s)
    try:
        return work()
    finally:
        running = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
