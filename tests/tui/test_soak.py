"""Hours of a fleet in trouble: what the console holds does not grow. Counts, not megabytes."""

from __future__ import annotations

import threading
from collections import Counter, deque

import pytest
from textual.pilot import Pilot

from console.tui.app import ConsoleApp
from console.tui.screens.drained import DrainedScreen
from console.tui.theme import Look
from console.tui.views import log as log_view
from console.tui.views.drained_judge import Was
from tests.tui import synthetic
from tests.tui.conftest import Opener
from tests.tui.soaking import PHASE, PHASES, Day, census, live
from tests.tui.synthetic import LocalEngine

NODES = 4
LOOK = PHASE * len(PHASES) // 2 + 1
"""Ticks between two counts: in six of them every node goes three times through every phase, and
the operator is at six places of what he does."""
LOOKS = 6
RING = 20
"""Happenings kept in this test: rings that are full early cannot hide what grows beside them."""
FEW = 60
"""Objects of one type more or less: weak references, tasks, what a screen has open."""
CACHED = ("builtins.tuple", "builtins.list", "fractions.Fraction", "textual.geometry.")
"""Textual remembers some thousand results of its layouts, which takes hours to fill."""
CACHED_MOST = 500


def grown(before: Counter[str], after: Counter[str]) -> dict[str, tuple[int, int]]:
    """Types with more objects than chance and caches explain."""
    return {
        name: (before[name], number)
        for name, number in after.items()
        if number - before[name] > (CACHED_MOST if name.startswith(CACHED) else FEW)
    }


async def most(app: ConsoleApp, day: Day, pilot: Pilot[None]) -> Counter[str]:
    """The most objects of each type in an hour: what a pause froze is held by views and by the
    comparison of peers until they read anew, so that one count is now high and now low."""
    found: Counter[str] = Counter()
    for _ in range(LOOKS):
        await live(app, day, LOOK, pilot)
        found |= census()
    return found


@pytest.mark.timeout(1500)
async def test_hours_of_trouble_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_view, "KEPT", RING)
    engine = LocalEngine(synthetic.inventory(NODES), None)
    engine.fleet.stream = deque(maxlen=RING)
    engine.fleet.log = deque(maxlen=RING)
    app = ConsoleApp(engine, look=Look(), clock=lambda: engine.at, tick_s=None)
    day = Day(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        first = await most(app, day, pilot)
        then = await most(app, day, pilot)
    assert len(engine.fleet.log) == RING, "much happened"
    assert len(app._views) >= 7, "the operator looked around"
    assert not grown(first, then)


@pytest.mark.timeout(250)
async def test_a_view_that_was_left_reads_for_nobody(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is still to be read when the operator leaves must not keep the console busy."""
    may = threading.Event()

    def slow(*_: object) -> Was:
        may.wait()
        return Was(None, None)

    monkeypatch.setattr(DrainedScreen, "_was", slow)
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 5)])
    held.reasons = dict.fromkeys(held.names, "loose cable")
    async with console(nodes=4, scheduler=held) as c:
        await c.press("8")
        assert any(w.group == "drained" for w in c.app.workers)
        await c.press("1")
        may.set()
        await c.until(lambda: not any(w.group == "drained" for w in c.app.workers))
