"""What is not known is not called well, in any view; and what stands still says so."""

from __future__ import annotations

import errno
import os
import random

import pytest

from console.tui.app import ConsoleApp
from console.tui.theme import Look
from console.tui.views import VIEWS
from inventory.errors import UsageError
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.synthetic import LocalEngine
from tests.tui.test_replay import notices, replay

HEADLINES = {
    "gpus": "gpus: 0 odd, 8 unheard",
    "fabric": "fabric: 0 with findings, 8 unheard",
    "drift": "drift: nothing compared",
    "stragglers": "stragglers: 0 slow of 0 compared",
    "findings": "findings: 1 kind on 8 nodes",
}


@pytest.mark.parametrize("view", HEADLINES)
async def test_a_fleet_that_nobody_heard_of_is_not_called_well(console: Opener, view: str) -> None:
    async with console(8, (100, 12), faults=False) as c:
        c.app.go(view)
        await c.until(lambda: HEADLINES[view] in c.text)


@pytest.mark.parametrize("view", ["gpus", "fabric"])
async def test_a_headline_is_about_the_nodes_shown(console: Opener, view: str) -> None:
    """The filter's nodes are well and heard; elsewhere is trouble."""
    async with console(64, (120, 12)) as c:
        c.app.go(view)
        await c.until(lambda: "1 unheard" in c.text)
        await c.type("/node:gpu00[1-4]")
        await c.press("enter")
        await c.until(lambda: "4/64" in c.text)
        assert f"{view}: 0 " in c.text
        assert "unheard" not in c.text


async def test_without_a_scheduler_nobody_knows_who_is_drained() -> None:
    inventory = synthetic.inventory(8, scheduler=None)
    engine = LocalEngine(inventory, None)
    app = ConsoleApp(engine, look=Look(), clock=lambda: engine.at, tick_s=None)
    async with app.run_test(size=(100, 12)) as pilot:
        c = Console(app, pilot, engine)
        await c.press("8")
        await c.tick(1.0)
        assert "drained: none known, 8 nodes without a scheduler's word" in c.text
        assert "who is out of work is not known" in c.text


async def test_a_paused_node_says_so_and_how_long_it_stands(console: Opener) -> None:
    """Facts and their ages are of the moment of the pause, whatever key is pressed."""
    async with console(64, (110, 40)) as c:
        c.app.open_node("gpu017")
        await c.press("p")
        await c.tick(0.0)
        seen = c.text
        assert "PAUSED 0s" in seen
        c.engine.feed(synthetic.unreachable("gpu017", c.engine.at))
        await c.tick(240.0)
        assert "PAUSED 4m" in c.text
        assert "  up  " in c.text.splitlines()[0]
        await c.press("n")
        await c.tick(0.0)
        assert "  up  " in c.text.splitlines()[0]
        assert c.text.splitlines()[0] == seen.splitlines()[0]
        assert "PAUSED 4m" in c.text
        await c.press("p")
        assert "unreachable" in c.text.splitlines()[0]
        assert "data 4m" in c.text.splitlines()[0]


async def test_in_a_paused_node_what_is_acknowledged_is_what_is_shown(console: Opener) -> None:
    async with console(64, (110, 40)) as c:
        c.app.open_node("gpu041")
        await c.tick(1.0)
        shown = c.app.fleet.findings["gpu041"][0].rule
        await c.press("p")
        text = "GPU has fallen off the bus."
        c.engine.feed(synthetic.xid("gpu041", c.engine.at, synthetic.pci(1), 79, text))
        await c.tick(2.0)
        assert c.app.fleet.findings["gpu041"][0].rule == "xid.79"
        await c.press("a")
        told = {f.rule: f.acknowledged for f in c.app.fleet.findings["gpu041"]}
        assert told[shown]
        assert not told["xid.79"]


async def test_a_replay_logs_in_nowhere() -> None:
    """Nodes of a recording are names in a file."""
    async with replay() as r:
        with pytest.raises(UsageError, match="log in"):
            r.engine.ssh_command(next(iter(r.app.fleet.nodes)))


async def test_a_full_disk_is_told_without_a_file(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """write(2) does not say which file it was."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("console.tui.shots.keep", full)
    async with console(8, (100, 20)) as c:
        said = notices(c.app)
        await c.press("ctrl+s")
        assert said == ["No space left on device"]


KEYS = (
    *"1234567890jkgGhlnNaxDUTXeycpmotzwSfIOr", "tab", "shift+tab", "enter", "escape", "left",
    "right", "pageup", "pagedown", "space", "ctrl+@", "asterisk", "ctrl+backslash", "slash",
    "colon", "question_mark", "left_square_bracket", "right_square_bracket", "ctrl+z", "ctrl+r",
    "ctrl+p", "backspace", "comma",
)  # fmt: skip
"""All but those that leave."""
SHAPES = ((80, 24), (160, 50), (60, 20), (20, 5), (10, 3), (1, 1))


async def test_keys_of_somebody_who_leans_on_the_keyboard(console: Opener) -> None:
    """Any keys in any size while nodes come and go: then every view can still be shown."""
    dice = random.Random(6)
    async with console(8, faults=False) as c:
        for number in range(60):
            if number % 20 == 0:
                await c.pilot.resize_terminal(*dice.choice(SHAPES))
            if number % 10 == 0:
                name = f"gpu{dice.randrange(1, 9):03d}"
                news = [synthetic.unreachable(name, c.engine.at)]
                seen = [*synthetic.slow(name, c.engine.at), *synthetic.fast(name, c.engine.at)]
                c.engine.feed_all(dice.choice([news, seen]))
                await c.tick(dice.choice((1.0, 60.0)))
            await c.pilot.press(dice.choice(KEYS))
        await c.pilot.resize_terminal(80, 24)
        for view in VIEWS:
            c.app.go(view.id)
            c.app.screen.set_focus(None)
            await c.tick(1.0)
            assert c.app.view == view.id
            assert "? help" in c.text
