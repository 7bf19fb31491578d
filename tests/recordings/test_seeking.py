"""State at a moment: the same by seeking from anywhere as by playing straight through."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.fleet import Fleet
from console.output import as_json, document
from console.recording.course import Course, Mark
from console.recording.player import Marks, Player
from console.recording.tape import Span, Tape, inventory_of
from probes.rules import load_rules

DEMO = Path(__file__).with_name("demo.ndjson.gz")
SECONDS = 40
"""Of the recording, for the test; until then a GPU is lost, an Xid is read, two are too hot."""


def state(fleet: Fleet, now: float) -> dict[str, Any]:
    """Everything a screen can show of a moment."""
    nodes = fleet.nodes.values()
    return {
        "document": as_json(document(fleet, 0.0, now), indent=False),
        "stream": list(fleet.stream),
        "log": list(fleet.log),
        "seen": dict(fleet.seen),
        "history": {
            (name, *key): bytes(ring)
            for name in fleet.nodes
            for key, ring in fleet.rings.of_node(name).items()
        },
        "latest": [dict(facts.latest) for facts in nodes],
        "rates": [
            {k: (r.elapsed_s, dict(r.deltas)) for k, r in facts.rates.items()} for facts in nodes
        ],
        "kernel": [list(facts.kernel) for facts in nodes],
    }


@functools.cache
def span() -> Span:
    """Of the whole recording."""
    return Tape(DEMO).span()


def course() -> Course:
    """At its beginning."""
    whole = span()
    return Course(Tape(DEMO), whole.start, inventory_of(DEMO, whole.names), load_rules(None))


def on(one: Course) -> None:
    """One second."""
    for _ in one.advance():
        pass


@functools.cache
def straight() -> list[dict[str, Any]]:
    """The state at every second, by playing from the start to the end once."""
    one, found = course(), []
    for _ in range(SECONDS + 1):
        found.append(state(one.fleet, one.clock.now))
        on(one)
    return found


def test_the_recording_tells_a_story() -> None:
    """Otherwise the comparison below would prove little."""
    rules = {what.rule for _, _, what in straight()[-1]["stream"] if hasattr(what, "rule")}
    assert {"gpu.lost", "xid.79", "thermal.hw_slowdown", "straggler.gpu"} <= rules
    assert len({moment["document"] for moment in straight()}) == SECONDS + 1


@pytest.mark.parametrize("second", [0, 7, 25])
def test_a_mark_holds_everything_that_matters_later(second: int) -> None:
    """Hysteresis, streaks, rates: what follows is the same, not only the moment itself."""
    one = course()
    for _ in range(second):
        on(one)
    mark = Mark(one)
    for _ in range(5):
        on(one)  # what goes on must not reach into the mark
    other = course()
    other.begin_at(mark)
    while other.second < SECONDS:
        assert state(other.fleet, other.clock.now) == straight()[other.second]
        on(other)


async def settled(player: Player, task: asyncio.Task[None]) -> None:
    """Until no seek is under way; an error of the player is raised."""
    while player.now.target is not None:
        if task.done():
            task.result()
        await asyncio.sleep(0)


Move = tuple[str, int]
moves = st.lists(
    st.one_of(
        st.tuples(st.just("seek"), st.integers(0, SECONDS)),
        st.tuples(st.just("step"), st.integers(-3, 3)),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=12, deadline=None)
@given(moves)
def test_seeking_from_anywhere_is_playing_straight_through(wanted: list[Move]) -> None:
    """Forward and back, with and without a mark between."""
    asyncio.run(_seeks(wanted))


async def _seeks(wanted: list[Move]) -> None:
    player = Player(course(), span(), 1.0)
    player.paused = True
    fleet = player.course.fleet
    task = asyncio.create_task(player.run())
    for how, where in wanted:
        target = where if how == "seek" else max(0, min(SECONDS, player.here + where))
        if how == "seek":
            player.seek(str(where))
        else:
            player.step(target - player.here)
        await settled(player, task)
        assert player.now.second == target
        assert player.course.fleet is fleet, "screens keep their Fleet"
        assert state(fleet, player.course.clock.now) == straight()[target]
    task.cancel()


async def test_a_seek_shows_nothing_until_it_is_complete() -> None:
    """The picture of before stays, whole, while the other one is built."""
    player = Player(course(), span(), 1.0)
    player.paused = True
    seen: list[bytes] = []

    def look() -> None:
        moment = state(player.course.fleet, player.course.clock.now)
        seen.append(moment["document"])

    async def moved() -> None:
        look()

    player.told = player.jumped = look
    player.moved = moved
    task = asyncio.create_task(player.run())
    player.seek("30")
    await settled(player, task)
    player.seek("4")
    await settled(player, task)
    task.cancel()
    whole = {straight()[second]["document"] for second in (0, 30, 4)}
    assert set(seen) == whole


class _Second:
    """All that Marks looks at."""

    def __init__(self, second: int) -> None:
        self.second = second


@given(st.lists(st.integers(1, 100_000), unique=True, min_size=1, max_size=300))
def test_marks_stay_few_and_the_nearest_one_is_found(seconds: list[int]) -> None:
    """Memory is bounded however long the recording."""
    marks: Any = Marks(nodes=1000)
    kept: list[int] = []
    for second in seconds:
        if marks.due(second):
            marks.add(_Second(second))
    kept = [mark.second for mark in marks._marks]
    assert kept == sorted(kept)
    assert len(kept) <= 6
    for second in seconds:
        before = marks.before(second)
        assert (before.second if before else 0) == max((k for k in kept if k <= second), default=0)


def _lines(path: Path) -> Iterator[bytes]:
    import gzip

    with gzip.open(path) as file:
        yield from file


def test_a_gap_of_days_is_not_judged_second_by_second(tmp_path: Path) -> None:
    """A laptop that slept: the replay goes on at the next Event."""
    import msgspec

    lines = list(_lines(DEMO))[:400]
    late = []
    for line in lines[-50:]:
        event = msgspec.json.decode(line)
        late.append(msgspec.json.encode({**event, "at": event["at"] + 3 * 86_400}) + b"\n")
    path = tmp_path / "slept.ndjson"
    path.write_bytes(b"".join(lines + late))
    tape = Tape(path)
    whole = tape.span()
    one = Course(tape, whole.start, inventory_of(path, whole.names), load_rules(None))
    steps = 0
    while not one.ended:
        on(one)
        steps += 1
    assert steps < 200
    assert one.second >= 3 * 86_400
