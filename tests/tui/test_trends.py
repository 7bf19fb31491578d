"""Trends in the fleet's rows: always as wide, gaps blank."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.fleet import Fleet
from console.tui import trends, view
from console.tui.summary import summarise
from console.tui.text import LEVELS
from console.tui.theme import UNICODE
from console.tui.trends import CELL_S, CELLS, GAP, WIDTH, Trends
from probes.event import Event
from tests.tui import synthetic
from tests.tui.conftest import Opener
from tests.tui.synthetic import NOW, pci

BEGIN = NOW - NOW % CELL_S


def used(at: float, percent: int) -> list[Event]:
    """All eight GPUs at this use."""
    events = synthetic.fast("gpu001", at)
    for index in range(8):
        events = synthetic.changed(events, "gpu", pci(index), util_percent=percent)
    return events


def fleet(*told: list[Event]) -> Fleet:
    found = Fleet(synthetic.inventory(1), clock=lambda: NOW)
    for events in told:
        for event in events:
            found.apply(event)
    return found


@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=CELLS, max_size=CELLS))
def test_a_picture_is_always_as_wide(values: list[float | None]) -> None:
    text = trends.drawn(values, UNICODE)
    assert len(text) == WIDTH
    for cell, value in zip(text, values, strict=False):
        assert (cell == GAP) == (value is None)
        assert cell in (GAP, *LEVELS)


def test_a_minute_without_answers_is_blank() -> None:
    seen = [BEGIN + second for second in (*range(0, 30, 2), *range(90, 122, 2))]
    told = trends.means(fleet(*(used(at, 80) for at in seen)), "gpu001", int(BEGIN // CELL_S) + 8)
    assert told == [80.0, 80.0, None, None, None, None, 80.0, 80.0]


def test_a_job_that_stopped_has_an_arrow() -> None:
    early = [used(BEGIN + second, 100) for second in range(0, 90, 2)]
    late = [used(BEGIN + second, 0) for second in range(90, 122, 2)]
    text = Trends().of(fleet(*early, *late), "gpu001", UNICODE)
    assert text == LEVELS[-1] * 6 + LEVELS[0] * 2 + " " + UNICODE.down


def test_a_lost_gpu_does_not_keep_its_old_use() -> None:
    """What it told before is of another time."""
    told = [used(BEGIN + second, 100) for second in range(0, 60, 2)]
    lost = [
        synthetic.changed(synthetic.lost(used(BEGIN + second, 0), pci(0)), "gpu", pci(1))
        for second in range(60, 122, 2)
    ]
    found = trends.means(fleet(*told, *lost), "gpu001", int(BEGIN // CELL_S) + 8)
    assert found[-1] == 0.0


def test_it_stands_still_within_a_piece_of_time() -> None:
    now = fleet(*(used(BEGIN + second, 50) for second in range(0, 122, 2)))
    ours = Trends()
    before = ours.of(now, "gpu001", UNICODE)
    for event in used(BEGIN + 124, 100):
        now.apply(event)
    assert ours.of(now, "gpu001", UNICODE) == before
    for event in used(BEGIN + 150, 100):
        now.apply(event)
    assert ours.of(now, "gpu001", UNICODE) != before


def test_nvlinks_of_a_lost_gpu_are_expected() -> None:
    """126 of 144, not 126 of 126; a node that says nothing of GPUs expects nothing."""
    inventory = synthetic.inventory(64)
    engine = synthetic.LocalEngine(inventory, None)
    engine.feed_faults(inventory)
    facts, found = engine.fleet.nodes["gpu017"], engine.fleet.findings["gpu017"]
    told = summarise(facts, found, engine.fleet.verdict("gpu017"), NOW)
    assert told.links == (126, 144)
    healthy = engine.fleet.nodes["gpu001"]
    assert summarise(healthy, [], engine.fleet.verdict("gpu001"), NOW).links == (144, 144)
    silent = engine.fleet.nodes["gpu009"]
    assert summarise(silent, [], engine.fleet.verdict("gpu009"), None).links is None


async def test_wide_terminals_have_the_column(console: Opener) -> None:
    """And only they."""
    for size, there in (((200, 30), True), ((80, 24), False)):
        async with console(size=size) as c:
            assert (view.TREND.title in c.text) == there
