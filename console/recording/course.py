"""A Fleet led along a recording, second by second, always in the same way.

A moment is `k` seconds after the first Event: everything recorded before it is applied, and judged
at each full second, as often as while it was recorded: hysteresis counts the looks. So what is
known at a moment depends on the recording alone, not on speed, seeking or this machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from console.fleet import Fleet
from console.recording.checkpoint import Checkpoint
from console.recording.tape import START, Answer, Place, Tape
from inventory.node import Inventory
from probes.rules import Rules

STEP_S = 1.0
GAP_S = 120
"""Seconds without an Event that are still judged one by one; a suspended recorder may leave days.
After it everything is stale and every streak is over."""


class Clock:
    """The recording's own time, epoch seconds."""

    def __init__(self, now: float) -> None:
        """It stands until somebody sets `now`."""
        self.now = now

    def __call__(self) -> float:
        """Now."""
        return self.now


class Mark:
    """A moment to begin at: the Fleet then, and where the file goes on."""

    def __init__(self, course: Course) -> None:
        """Take it; see Checkpoint."""
        self.second = course.second
        self.place = course.place
        self.silent = course.silent
        self.latest = course.latest
        self.checkpoint = Checkpoint(course.fleet)


class Course:
    """One Fleet and its place in the recording."""

    def __init__(
        self,
        tape: Tape,
        start: float,
        inventory: Inventory,
        rules: Rules,
    ) -> None:
        """At the beginning, nothing known. `start`: epoch seconds of the first Event."""
        self.clock = Clock(start)
        self.fleet = Fleet(inventory, rules, clock=self.clock)
        self.tape, self.start = tape, start
        self.second = 0
        """Full seconds since the start."""
        self.place = START
        """Behind the last Event that was applied."""
        self.silent = 0
        """Seconds since an Event."""
        self.latest = start
        """The highest time read so far: arrival is what counts, and it never goes back."""
        self.ended = False
        self._next: tuple[Answer, Place] | None = None
        self._events = tape.events()

    def begin_at(self, mark: Mark) -> None:
        """Be at the moment of a mark of the same recording. Takes a while; for a thread."""
        mark.checkpoint.restore(self.fleet)
        self.second, self.place = mark.second, mark.place
        self.silent, self.latest = mark.silent, mark.latest
        self.clock.now = self.start + self.second
        self.ended = False
        self._events = self.tape.events(self.place)
        self._next = next(self._events, None)

    def become(self, other: Course) -> None:
        """Be where another course of the same recording is, which must not be used any more."""
        self.fleet.become(other.fleet)
        self.second, self.place, self.ended = other.second, other.place, other.ended
        self.silent, self.latest = other.silent, other.latest
        self._events, self._next = other._events, other._next
        self.clock.now = other.clock.now

    def advance(self) -> Iterator[None]:
        """To the next second, in pieces of about a millisecond. Raises UsageError."""
        until = self.start + self.second + STEP_S
        silent = True
        while (following := self._peek()) is not None:
            event, place = following
            at = max(self.latest, event.at)
            if at >= until:
                break
            self.fleet.apply(event)
            self.place, self.latest, self._next, silent = place, at, None, False
            yield
        self.silent = self.silent + 1 if silent else 0
        self.second += 1
        if self.silent > GAP_S and following is not None:
            self.second = max(self.second, int(max(self.latest, following[0].at) - self.start))
        self.clock.now = self.start + self.second
        yield from self.fleet.thorough(self.clock.now)
        self.ended = following is None

    def _peek(self) -> tuple[Answer, Place] | None:
        if self._next is None:
            self._next = next(self._events, None)
        return self._next
