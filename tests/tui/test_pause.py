"""A pause: everything shown is of its moment, wherever the operator goes; acts are of the present.

The same console in which nothing happened tells what a paused one has to show.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator

import pytest

from console.tui.screens.table import TableScreen
from console.tui.views import VIEW_IDS, VIEWS
from inventory.scheduler import Job
from probes.event import Event, Sample
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.synthetic import pci
from tests.tui.test_kernel_log import Wire

SIZE = (220, 44)
"""Room in the status line also for what is new."""
PLACES = (*VIEW_IDS, "node")
LOOK = ("down", "n", "space", "ctrl+z", "ctrl+z", "enter")
BACK = "left_square_bracket"
KEYS = {
    "fleet": ("w", "down", ":sort temp", "o", "/age<5", "escape", "ctrl+z", "escape", "y"),
    "findings": (*LOOK, "g", ":copy json"),
    "stragglers": (*LOOK, "g", "enter"),
    "gpus": ("n", "m", "m", "/temp>80", "escape", ":mark temp<70", ":copy markdown"),
    "fabric": (*LOOK, BACK, "o"),
    "jobs": (*LOOK, "S", "S"),
    "tests": ("down", "up"),
    "drained": (*LOOK, BACK, "S"),
    "drift": (*LOOK, "g", "enter"),
    "log": (*LOOK, BACK, "/age<30", "escape"),
    "node": ("n", "tab", "m", "t", "/temp_c", "n", "escape", ":copy markdown"),
}
"""What only looks around, and copies."""
BAND = re.compile(r" \d+ new |PAUSED \S+")


def storm(at: float) -> Iterator[Event]:
    """Of every kind something: heat, a lost card, another driver, a node that is gone, jobs."""
    for number in range(1, 65):
        name = f"gpu{number:03d}"
        if number == 20:
            yield synthetic.unreachable(name, at)
            continue
        mine = [*synthetic.slow(name, at), *synthetic.fast(name, at, 5)]
        mine = [e for e in mine if not (isinstance(e, Sample) and e.probe == "hello")]
        for gpu in range(8):
            mine = synthetic.changed(
                mine, "gpu", pci(gpu), temp_c=83, util_percent=7, power_w=111.0, sm_clock_mhz=345
            )
        mine = synthetic.changed(mine, "infiniband", "mlx5_1/1", rate_gbps=200.0)
        if number % 7 == 0:
            mine = synthetic.changed(mine, "inventory", "", driver_version="999.99.99")
            mine = synthetic.changed(mine, "versions", "", driver="999.99.99")
            mine = synthetic.changed(mine, "ecc", pci(1), remap_failure=True)
        yield from mine
    yield synthetic.xid("gpu017", at, pci(0), 48, "an error nobody saw before")


async def happen(c: Console) -> None:
    """A good minute in which much happens, and the console ticks."""
    scheduler = c.engine.schedulers["memory"]
    assert isinstance(scheduler, synthetic.MemoryScheduler)
    scheduler.reasons["gpu003"] = "somebody drained it meanwhile"
    scheduler.jobs = {"gpu030": Job(id="999", user="mallory", name="late", nodes=1)}
    for _ in range(4):
        c.engine.at += 20.0
        scheduler.now = c.engine.at
        c.engine.feed_all(storm(c.engine.at))
        await c.engine.refresh()
        await c.tick()


async def nothing(c: Console) -> None:
    """As long, and nothing happens."""
    for _ in range(4):
        await c.tick(20.0)


async def go(c: Console, place: str) -> None:
    """To a view, or to gpu017."""
    if place in VIEW_IDS:
        await c.press(next(view.key for view in VIEWS if view.id == place))
    else:
        c.app.open_node("gpu017")
    await settled(c)


async def settled(c: Console) -> None:
    """Until nothing on the screen changes by itself."""
    for _ in range(2):
        await c.pilot.pause()
        await c.until(lambda: not busy(c.app.screen))
        await c.tick()


def busy(screen: object) -> bool:
    """Whether it is still reading."""
    news = isinstance(screen, TableScreen) and bool(screen._news)
    return news or any(getattr(screen, what, False) for what in ("_reading", "building"))


async def seen(
    c: Console, place: str, late: bool, meanwhile: Callable[[Console], Awaitable[None]]
) -> list[list[str]]:
    """The screen after each step of a pause in which something happens; then, the pause over."""
    if not late:
        await go(c, place)
    await c.press("p")
    assert c.app.paused
    await meanwhile(c)
    if late:
        await go(c, place)
    shown = [body(c)]
    for key in KEYS[place]:
        if key[0] in ":/":
            await c.type(key)
            await c.press("enter")
        else:
            await c.press(key)
        await settled(c)
        shown.append([*body(c), c.app.clipboard])
    await c.press("p")
    await settled(c)
    assert not c.app.paused
    return [*shown, body(c)]


def body(c: Console) -> list[str]:
    """The screen without the keys and what tells of the pause itself."""
    lines = c.text.splitlines()[:-1]
    return [" ".join(BAND.sub(" ", line).split()) for line in lines]


@pytest.mark.parametrize("late", [False, True], ids=["before", "meanwhile"])
@pytest.mark.parametrize("place", PLACES)
async def test_a_pause_shows_its_own_moment_everywhere(
    console: Opener, place: str, late: bool
) -> None:
    """Opened before it or in it, whatever is pressed; and then all of the present at once."""
    told = []
    for meanwhile in (nothing, happen):
        names = [node.name for node in synthetic.inventory(64).nodes]
        scheduler = synthetic.MemoryScheduler(names, synthetic.jobs())
        scheduler.reasons["gpu050"] = "its port is down"
        async with console(size=SIZE, scheduler=scheduler) as c:
            told.append(await seen(c, place, late, meanwhile))
    quiet, stormy = told
    if place == "tests" and late:  # nobody knows how they stood then
        assert all("LIVE, opened while paused" in screen[0] for screen in stormy[:-1])
        return
    for was, now, key in zip(quiet[:-1], stormy[:-1], ("", *KEYS[place]), strict=True):
        assert was == now, f"after {key!r}"
    assert place == "tests" or quiet[-1] != stormy[-1]


async def test_the_line_tells_what_came_and_then_all_is_there_at_once(console: Opener) -> None:
    """The cursor stays on its row."""
    async with console(size=SIZE) as c:
        await c.press("down", "down", "down")
        grid = c.app.get_default_screen().grid
        row = grid.cursor
        await c.tick(70.0)  # what a node told in its first minute is no news
        await c.press("p")
        await c.tick(120.0)
        assert " new " not in c.text.splitlines()[0]
        text = "GPU has fallen off the bus."
        for name in ("gpu003", "gpu004", "gpu005"):
            c.engine.feed(synthetic.xid(name, c.engine.at, pci(1), 79, text))
        await c.tick()
        assert "3 new" in c.text.splitlines()[0]
        assert "PAUSED 2m" in c.text.splitlines()[0]
        assert "gpu004 " not in c.text.splitlines()[2]
        await c.press("p")
        assert grid.cursor == row
        assert [name for name in grid.order[:5] if name in ("gpu003", "gpu004", "gpu005")]
        assert "PAUSED" not in c.text
        assert "79" in next(line for line in c.text.splitlines() if "gpu004" in line)


async def test_acknowledging_in_a_pause_is_seen_in_it_and_after(console: Opener) -> None:
    """Each press takes the next finding, of those that are shown."""
    async with console(size=SIZE) as c:
        c.app.open_node("gpu041")
        await c.pilot.pause()
        await c.press("p")
        await c.press("a")
        await c.tick(1.0)
        assert "acknowledged" in c.text
        assert all(f.acknowledged for f in c.engine.fleet.findings["gpu041"])
        await c.press("p")
        await c.tick(1.0)
        assert "acknowledged" in c.text


async def test_a_plan_over_a_paused_screen_is_of_the_present(console: Opener) -> None:
    """Its reason is what is found now, and it says so."""
    async with console(size=SIZE) as c:
        c.app.open_node("gpu001")
        await c.pilot.pause()
        await c.press("p")
        text = "GPU has fallen off the bus."
        c.engine.feed(synthetic.xid("gpu001", c.engine.at, pci(1), 79, text))
        await c.tick(2.0)
        screen = await c.planned("D")
        assert "as of now: the screen behind this plan is paused" in c.text
        assert "79" in screen.reason


async def test_a_kernel_log_stands_too_unless_it_was_opened_in_the_pause(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then there is no earlier moment of it: it says that it is live."""
    wires = []

    def wire() -> Wire:
        wires.append(Wire())
        return wires[-1]

    async with console(size=SIZE) as c:
        monkeypatch.setattr(c.engine, "transport", wire)
        c.app.open_node("gpu017")
        await c.pilot.pause()
        await c.press("l")
        await c.until(lambda: bool(wires) and wires[0].receiver is not None)
        wires[0].send("[ 1.0] one")
        await c.until(lambda: "one" in c.text)
        await c.press("p")
        wires[0].send("[ 2.0] two")
        await c.tick(5.0)
        await c.pilot.resize_terminal(100, 30)
        await c.tick(5.0)
        assert "one" in c.text
        assert "two" not in c.text
        assert "1 line " in c.text
        assert "PAUSED 10s" in c.text
        await c.press("p")
        await c.until(lambda: "two" in c.text)
        assert "PAUSED" not in c.text
        await c.press("p", "escape", "l")
        await c.until(lambda: len(wires) == 2 and wires[1].receiver is not None)
        wires[1].send("[ 3.0] three")
        await c.until(lambda: "three" in c.text)
        assert "LIVE, opened while paused" in c.text
        assert "PAUSED" not in c.text
