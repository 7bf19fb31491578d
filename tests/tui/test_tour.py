"""The guided tour: the table of steps, and a whole tour on a running console."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.tui.screens.confirm import Confirm
from console.tui.tour import CONFIRM, HELP, NODE, STEPS, Progress, Scene, Step, begin
from console.tui.views import VIEW_IDS
from console.tui.widgets.grid import Grid
from console.tui.widgets.tour import Tour, TourPanel, scene
from probes.event import Severity
from tests.tui.conftest import Console, Opener
from tests.tui.test_goldens import compare

DEADLINE_S = 150.0


def key(command: str) -> str:
    """A key of the usual length."""
    return "ctrl-t"


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.id)
def test_each_step_says_one_short_sentence_and_how_to_get_there(step: Step) -> None:
    """Two lines at 60 columns."""
    assert 20 < len(step.say(key)) <= 116
    if step.where:
        assert 10 < len(step.astray(key)) <= 116
        assert set(step.where) <= {*VIEW_IDS, NODE, CONFIRM}


def test_no_step_is_followed_by_doing_nothing() -> None:
    """But the first, which waits for the demo."""
    still = Scene(ours=frozenset({"a"}))
    for at in range(1, len(STEPS)):
        screen = {"outcome": CONFIRM, "resumed": CONFIRM, "back": NODE, "end": HELP}
        now = Scene(
            screen=screen.get(STEPS[at].id, "fleet"),
            ours=still.ours if STEPS[at].id == "resume" else frozenset(),
            filter="x" if STEPS[at].id == "unfilter" else "",
        )
        assert Progress(at, now).follow(now).at == at, STEPS[at].id


SCENES = st.builds(
    Scene,
    screen=st.sampled_from([*VIEW_IDS, NODE, CONFIRM, HELP, "other"]),
    sick=st.booleans(),
    cursor=st.sampled_from([None, "a", "b"]),
    moved=st.booleans(),
    on_critical=st.booleans(),
    walking=st.booleans(),
    marked=st.integers(0, 3),
    plan=st.sampled_from(["", "drain", "resume"]),
    ours=st.frozensets(st.sampled_from("ab")),
    filter=st.sampled_from(["", "x"]),
    typing=st.booleans(),
)


@given(st.lists(SCENES, max_size=60))
def test_it_only_goes_forward_a_step_at_a_time_and_always_has_a_sentence(
    scenes: list[Scene],
) -> None:
    tour = begin(Scene())
    for now in scenes:
        after = tour.follow(now)
        assert after.at in (tour.at, tour.at + 1)
        tour = after
        if tour.over:
            return
        assert tour.text(now, key)


@given(SCENES)
def test_skipping_ends_it(now: Scene) -> None:
    tour = begin(now)
    for _ in STEPS:
        assert not tour.over
        tour = tour.skip(now)
    assert tour.over


def step_of(c: Console) -> str:
    """The step shown now, after a look."""
    assert c.app.tour is not None
    c.app.tour.follow()
    # Following may have ended it.
    tour: Tour | None = c.app.tour
    return tour.step if tour is not None else ""


def dialog(c: Console) -> Confirm:
    """The plan on the screen."""
    assert isinstance(c.app.screen, Confirm)
    return c.app.screen


def ready(c: Console) -> bool:
    """Whether the plan was made."""
    return dialog(c).phase == "ready"


def takes_nodes(c: Console) -> bool:
    """Whether it would do something."""
    plan = dialog(c).plan
    return plan is not None and bool(plan.nodes)


async def at_step(c: Console, name: str) -> None:
    """Wait for a step of a running tour; its panel is on the screen then."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            await c.until(lambda: step_of(c) == name)
    except TimeoutError:
        now = scene(c.app)
        pytest.fail(f"step {name} never came; now {now}:\n{c.text}")
    await c.until(lambda: any(panel.size.height for panel in c.app.screen.query(TourPanel)))
    panel = c.app.screen.query_one(TourPanel)
    assert all(len(line) <= c.app.size.width for line in panel.text.splitlines())
    overlaps = [
        widget
        for widget in c.app.screen.children
        if widget is not panel and widget.display and widget.region.overlaps(panel.region)
    ]
    assert not overlaps
    assert panel.region.bottom <= c.app.size.height


async def begun(c: Console) -> None:
    c.app.demo = True
    await c.press("ctrl+t")
    await at_step(c, "find")


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (160, 50)])
async def test_the_whole_tour(console: Opener, size: tuple[int, int]) -> None:
    """Everything is done by keys, and each is recognised."""
    async with console(size=size) as c:
        await begun(c)
        await c.press("n", "N")
        while (
            c.app.fleet.verdict(c.app.screen.query_one(Grid).cursor or "") is not Severity.CRITICAL
        ):
            await c.press("n")
        await at_step(c, "open")
        await c.press("enter")
        await at_step(c, "why")
        await c.press("n")
        await at_step(c, "back")
        await c.press("escape")
        await at_step(c, "mark")
        await c.press("space")
        await at_step(c, "plan")
        await c.press("D")
        await at_step(c, "drain")
        await c.until(lambda: ready(c))
        await c.press("y")
        await at_step(c, "outcome")
        await c.until(lambda: dialog(c).phase == "over")
        await c.press("escape")
        await at_step(c, "drained")
        await c.press("8")
        await at_step(c, "return")
        await c.press("U")
        await at_step(c, "resume")
        await c.until(lambda: ready(c))
        await c.press("I")
        await c.until(lambda: ready(c) and takes_nodes(c))
        await c.press("y")
        await at_step(c, "resumed")
        await c.until(lambda: dialog(c).phase == "over")
        await c.press("escape", "1")
        await at_step(c, "filter")
        await c.press("slash")
        await c.type("state:crit")
        await c.press("enter")
        await at_step(c, "unfilter")
        await c.press("escape")
        await at_step(c, "views")
        await c.press("2")
        step_of(c)
        await c.press("4")
        step_of(c)
        await c.press("8")
        await at_step(c, "help")
        await c.press("question_mark")
        await at_step(c, "end")
        await c.press("escape")
        await c.until(lambda: c.app.tour is None)
        assert not c.app.screen.query(TourPanel)


async def test_it_can_be_skipped_and_left(console: Opener) -> None:
    async with console() as c:
        await begun(c)
        for _ in STEPS:
            if c.app.tour is not None:
                await c.press("ctrl+t")
        await c.until(lambda: c.app.tour is None and not c.app.screen.query(TourPanel))
        await begun(c)
        await c.press("escape")
        await c.until(lambda: c.app.tour is None and not c.app.screen.query(TourPanel))


async def test_whoever_strays_is_told_the_way(console: Opener) -> None:
    async with console() as c:
        await begun(c)
        await c.press("7")
        await c.until(
            lambda: step_of(c) == "find" and "fleet: 1" in c.app.screen.query_one(TourPanel).text
        )
        await c.press("1")
        await at_step(c, "find")
        assert "n and N" in c.app.screen.query_one(TourPanel).text


async def test_a_real_cluster_has_no_tour(console: Opener) -> None:
    """It drains a node."""
    async with console() as c:
        await c.press("ctrl+t")
        assert c.app.tour is None
        assert ["--tour" in told.message for told in c.app._notifications] == [True]
        assert scene(c.app).screen == "fleet"


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (160, 50)])
async def test_golden(console: Opener, size: tuple[int, int]) -> None:
    async with console(size=size) as c:
        await begun(c)
        await c.tick()
        compare(f"tour_{size[0]}x{size[1]}", c.text)
