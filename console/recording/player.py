"""Playing a recording on the screen: pace, pause, steps, seeking. Nothing can be acted on.

A seek builds the wanted moment in a Fleet of its own, from the nearest mark before it, and only the
complete one is shown: never a mixture of two moments.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from console.engine import Engine
from console.recording.course import STEP_S, Clock, Course, Mark
from console.recording.judge import known
from console.recording.moment import second_of
from console.recording.tape import Span, Tape
from console.settings import state_dir
from inventory.errors import UsageError
from probes.rules import load_rules

if TYPE_CHECKING:
    from pathlib import Path

    from console.evidence import Kept
    from console.options import Request
    from probes.transport import Transport

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
SLICE_S = 0.004
BREATH_S = 0.001
"""Work between two chances for a key, and the pause in which it passes through the loop."""
DRAW_S = 0.2
"""At least so long between two pictures, however fast it plays."""
MARK_EVERY = 15
"""Seconds between two marks at first. Between them, 16 nodes are led along in 0.2 s."""
MARK_NODES = 2000
"""Nodes in all marks together: 140 kB each with the samples that only they still hold (measured on
43 minutes of 16 nodes), so 280 MB at most."""
MARKS_LEAST = 4


class Playing(NamedTuple):
    """What a replay bar tells."""

    second: int
    """Position, full seconds since the start."""
    seconds: int
    """Length of the recording."""
    at: float
    """The position as epoch seconds."""
    speed: float
    paused: bool
    ended: bool
    target: int | None = None
    """Where a seek under way goes."""
    done: float = 0.0
    """How much of it is built, 0 to 1."""


class Marks:
    """Moments to begin at, thinned when there are too many."""

    def __init__(self, nodes: int) -> None:
        """None yet."""
        self.every = max(MARK_EVERY, nodes // 10)
        self._most = max(MARKS_LEAST, MARK_NODES // max(1, nodes))
        self._marks: list[Mark] = []

    def due(self, second: int) -> bool:
        """Whether none lies within `every` before this second."""
        before = self.before(second)
        return second - (before.second if before is not None else 0) >= self.every

    def before(self, second: int) -> Mark | None:
        """The last one that is not after this second."""
        at = bisect.bisect_right(self._marks, second, key=lambda mark: mark.second)
        return self._marks[at - 1] if at else None

    def add(self, mark: Mark) -> None:
        """Keep it; with too many, every second one goes."""
        bisect.insort(self._marks, mark, key=lambda mark: mark.second)
        if len(self._marks) > self._most:
            self._marks = self._marks[::2]
            self.every *= 2


async def _nobody() -> None:
    """Nobody looks."""


class Player:
    """Leads the Fleet on show through the recording."""

    def __init__(self, course: Course, span: Span, speed: float, begin: int = 0) -> None:
        """At the start; `begin`: the second to seek to first."""
        self.course, self.span = course, span
        self.speed, self.paused = speed, False
        self.moved: Callable[[], Awaitable[None]] = _nobody
        """Called when another moment is complete."""
        self.jumped: Callable[[], object] = lambda: None
        """Called before `moved` when it is not the next one: nothing known of before holds."""
        self.told: Callable[[], object] = lambda: None
        """Called when only the bar has news."""
        self._marks = Marks(len(course.fleet.nodes))
        self._wanted: int | None = begin or None
        self._done = 0.0
        self._poked = asyncio.Event()
        self._due = self._drawn = 0.0

    @property
    def now(self) -> Playing:
        """For the bar."""
        course, most = self.course, self.span.seconds
        return Playing(
            min(course.second, most), most, course.clock.now, self.speed, self.paused,
            course.ended, self._wanted, self._done,
        )  # fmt: skip

    @property
    def here(self) -> int:
        """Where it is, or goes to."""
        return self.course.second if self._wanted is None else self._wanted

    def seek(self, text: str) -> None:
        """Go where `text` says (moment.second_of). Raises UsageError."""
        self._go_to(second_of(text, self.here, self.span))

    def step(self, seconds: int) -> None:
        """Some seconds on or back, and stop there."""
        self.paused = True
        self._go_to(max(0, min(self.span.seconds, self.here + seconds)))

    def _go_to(self, second: int) -> None:
        self._wanted, self._done = second, 0.0
        self.poke()

    def set_speed(self, speed: float) -> None:
        """Recorded seconds per second."""
        self.speed = speed
        self.poke()

    def faster(self, steps: int) -> None:
        """The next of SPEEDS, up or down (negative)."""
        at = bisect.bisect_left(SPEEDS, self.speed) if steps < 0 else (
            bisect.bisect_right(SPEEDS, self.speed) - 1
        )  # fmt: skip
        self.set_speed(SPEEDS[max(0, min(len(SPEEDS) - 1, at + steps))])

    def toggle(self) -> None:
        """Pause or go on; at the end, from the start again."""
        self.paused = not self.paused
        if not self.paused and self.course.ended and self._wanted is None:
            self._go_to(0)
        self.poke()

    def poke(self) -> None:
        """Something is wanted: look again."""
        self._due = time.monotonic() + STEP_S / self.speed
        self._poked.set()
        self.told()

    async def run(self) -> None:
        """Play until cancelled. Raises UsageError for a line that is no Event."""
        self.poke()
        while True:
            self._poked.clear()
            if self._wanted is not None:
                await self._seek()
            elif self.paused or self.course.ended:
                await self._poked.wait()
            elif await self._waited():
                await self._play()

    async def _waited(self) -> bool:
        """Until the next second is due; False when something else is wanted first."""
        try:
            async with asyncio.timeout(max(0.0, self._due - time.monotonic())):
                await self._poked.wait()
        except TimeoutError:
            return True
        return False

    async def _play(self) -> None:
        """One second on."""
        await self._lead(self.course)
        now = time.monotonic()
        # What this machine cannot keep up with is played later, not faster.
        self._due = max(now, self._due + STEP_S / self.speed)
        if now - self._drawn >= DRAW_S or self.course.ended or self._due - now >= DRAW_S:
            await self._show()

    async def _show(self) -> None:
        self._drawn = time.monotonic()
        await self.moved()

    async def _lead(self, course: Course) -> None:
        """A course to its next second, giving way to keys; a mark there when one is due."""
        began = time.perf_counter()
        for _ in course.advance():
            if time.perf_counter() - began > SLICE_S:
                await asyncio.sleep(BREATH_S)
                began = time.perf_counter()
        if self._marks.due(course.second):
            await self._mark(course)

    async def _mark(self, course: Course) -> Mark | None:
        try:
            mark = await asyncio.to_thread(Mark, course)
        except RuntimeError:  # a screen read the Fleet at the same moment: next second again
            return None
        self._marks.add(mark)
        return mark

    async def _seek(self) -> None:
        """Build the wanted moment beside the one on show, then show it."""
        built: Course | None = None
        began = told = 0.0
        while (target := self._wanted) is not None:
            if built is None or built.second > target:
                built = await self._begin(target)
                began = built.second
                continue  # meanwhile another moment may be wanted
            if built.second >= target or built.ended:
                self._take(built)
                await self._show()
                return
            self._done = (built.second - began) / (target - began)
            if time.monotonic() - told > DRAW_S:
                told = time.monotonic()
                self.told()
            await self._lead(built)

    async def _begin(self, target: int) -> Course:
        """A course at the last known moment that is not after the target."""
        live, mark = self.course, self._marks.before(target)
        if live.second <= target and (mark is None or mark.second < live.second):
            mark = await self._mark(live) or mark
        course = Course(live.tape, live.start, live.fleet.inventory, live.fleet.rules)
        if mark is not None:
            await asyncio.to_thread(course.begin_at, mark)
        return course

    def _take(self, built: Course) -> None:
        self._wanted = None
        self.course.become(built)
        self._due = time.monotonic() + STEP_S / self.speed
        self.jumped()


class ReplayEngine(Engine):
    """A Player as the screen knows engines."""

    def __init__(
        self, request: Request, path: Path, speed: float, begin: str | None = None
    ) -> None:
        """Reads the file once. Raises UsageError when it is not a recording."""
        tape = Tape(path)
        span = tape.span()
        inventory, rules = known(request, path, span), load_rules(request.get("rules"))
        course = Course(tape, span.start, inventory, rules)
        settings = msgspec.structs.replace(request.settings(), read_only=True)
        # A folder that nobody makes: what this machine remembers is not of the recorded time.
        state = state_dir() / "replay"
        super().__init__(inventory, settings, schedulers={}, fleet=course.fleet, state=state)
        second = 0 if begin is None else second_of(begin, 0, span)
        self.player = Player(course, span, speed, second)

    @property
    def clock(self) -> Clock:
        """The time of the moment on show."""
        return self.player.course.clock

    def transport(self) -> Transport:
        """There is no node to reach."""
        raise UsageError("a recording has no nodes to ask")

    def gather(self, names: Sequence[str], why: str) -> AsyncIterator[Kept]:
        """There is no node to ask."""
        raise UsageError("a recording has no nodes to ask")

    def ssh_command(self, name: str) -> list[str]:
        """A host of that name may be another one today, or the file may name any."""
        raise UsageError("a recording has no nodes to log in to")

    async def run(self, names: Collection[str] | None = None) -> None:
        """Play it; then keep the last picture."""
        await self.player.run()
