"""Keys of the operator's own, the `:` and `/` lines, explanations, faults, views and the trail."""

from __future__ import annotations

import pytest
from textual import events

from console.preferences import Preferences, Remap
from console.tui.app import ConsoleApp
from console.tui.screens.explain import Explanation
from console.tui.screens.fleet import FleetScreen
from console.tui.screens.node import NodeScreen
from console.tui.trail import Place
from console.tui.widgets.entry import Entry
from console.tui.widgets.prompt import Prompt
from tests.tui.conftest import Console, Opener


def fleet(c: Console) -> FleetScreen:
    """The fleet, whatever is on top."""
    return c.app.get_default_screen()


def entry(c: Console) -> Entry:
    """Where text is typed."""
    return c.app.screen.query_one(Entry)


def complaint(c: Console) -> str:
    """What the prompt says about the text."""
    return str(c.app.screen.query_one("#complaint").render())


def keys(**wanted: str) -> Preferences:
    """Preferences with some keys."""
    remaps = (Remap(command, (key,), "console.yaml:2") for command, key in wanted.items())
    return Preferences(keys=tuple(remaps))


async def test_a_remapped_command_is_on_its_key_in_footer_help_and_palette(
    console: Opener,
) -> None:
    """The new key works and is what people read; the old one does nothing."""
    async with console(preferences=keys(pause="f5"), size=(160, 50)) as c:
        await c.press("p")
        assert not c.app.paused
        assert "f5 pause" in c.text
        await c.press("f5")
        assert c.app.paused
        await c.press("question_mark")
        assert "f5 " in c.text
        await c.press("escape", "ctrl+p", *"paus")
        await c.until(lambda: "pause (f5)" in c.text)


async def test_moving_keys_can_be_remapped(console: Opener) -> None:
    """Down is where the operator put it, and no longer on j."""
    async with console(preferences=keys(down="f6")) as c:
        grid = fleet(c).grid
        first = grid.cursor
        await c.press("j")
        assert grid.cursor == first
        await c.press("f6")
        assert grid.cursor == grid.order[1] != first


async def test_keys_of_two_commands_can_be_exchanged(console: Opener) -> None:
    """Neither takes the other's away."""
    async with console(preferences=keys(wide="o", stream="w")) as c:
        await c.press("o")
        assert (fleet(c).wide, fleet(c).stream_size) == (True, "small")
        await c.press("w")
        assert (fleet(c).wide, fleet(c).stream_size) == (True, "large")


async def test_what_is_typed_is_completed(console: Opener) -> None:
    """Tab takes the likeliest; again, the next; nodes are completed behind open."""
    async with console() as c:
        await c.press("colon", *"op", "tab")
        assert entry(c).value == "open "
        await c.press(*"gpu04", "tab")
        assert entry(c).value == "open gpu040"
        assert "[gpu040] gpu041" in complaint(c)
        await c.press("tab", "shift+tab", "tab", "enter")
        assert isinstance(c.app.screen, NodeScreen)
        assert c.app.screen.node == "gpu041"


async def test_the_likeliest_is_shown_dim_and_right_takes_it(console: Opener) -> None:
    """A suggestion is no text until it is taken."""
    async with console() as c:
        await c.press("slash", *"sta")
        await c.until(lambda: "state:" in c.text)
        assert entry(c).value == "sta"
        await c.press("right")
        assert entry(c).value == "state:"


async def test_lines_of_before_come_back(console: Opener) -> None:
    """Up and down by how a line begins, ctrl-r by what is in it; a new console knows them too."""
    async with console() as c:
        for line in ("sort temp", "mark none", "sort node"):
            await c.press("colon")
            await c.type(line)
            await c.press("enter")
        await c.press("colon", *"sort", "up", "up")
        assert entry(c).value == "sort temp"
        await c.press("down")
        assert entry(c).value == "sort node"
        await c.press("down")
        assert entry(c).value == "sort"
        await c.press("ctrl+u", *"one", "ctrl+r")
        assert entry(c).value == "mark none"
    async with console() as c:
        await c.press("colon", "up")
        assert entry(c).value == "sort node"


async def test_a_wrong_line_stays_to_be_mended(console: Opener) -> None:
    """Enter on what cannot be carried out says why and leaves it there."""
    async with console() as c:
        await c.press("colon")
        await c.type("drian")
        await c.press("enter")
        assert entry(c).value == "drian"
        assert "did you mean :drain" in complaint(c)
        await c.press("ctrl+u")
        await c.type("open gpu999")
        await c.press("enter")
        assert "no node 'gpu999'" in complaint(c)
        await c.press("escape")
        assert not c.app.screen.query_one(Prompt).display


async def test_a_filter_that_cannot_be_read_hides_nothing(console: Opener) -> None:
    """While it is wrong, and while a field's name is not finished, nodes stay in sight."""
    async with console() as c:
        everything = list(fleet(c).grid.order)
        await c.press("slash")
        for char in "temp>8":
            await c.type(char)
            assert fleet(c).grid.order
        await c.type("x")
        assert "temp is not in x at column 7" in complaint(c)
        assert fleet(c).grid.order == everything
        await c.press("enter")
        assert entry(c).value == "temp>8x"
        await c.press("backspace", "0", "enter")
        assert fleet(c).grid.order == ["gpu033"]


async def test_an_expression_that_takes_forever_is_refused(console: Opener) -> None:
    """The console answers, says so, and keeps the filter of before."""
    async with console() as c:
        await c.press("slash")
        entry(c).value = "~([a-z0-9]+.?)+#"
        await c.until(lambda: "too long" in complaint(c))
        assert len(fleet(c).grid.order) == 64
        await c.press("escape")
        assert c.app.roster.filter.text == ""


async def test_a_paste_is_text_and_runs_nothing(console: Opener) -> None:
    """Newlines, controls and a megabyte: one line, cut, and no command was carried out."""
    bomb = "drain evil\r\nquit\n\x1b[2J\x00" + "x" * 1_000_000
    async with console() as c:
        await c.press("colon")
        c.app.post_message(events.Paste(bomb))
        await c.until(lambda: entry(c).value != "")
        assert entry(c).value.startswith("drain evil quit [2J" + "x" * 100)
        assert len(entry(c).value) == 400
        await c.press("escape")
        c.app.post_message(events.Paste("D\n" + bomb))
        await c.press("escape")
        assert c.app.screen is fleet(c)
        assert c.app.roster.filter.text == ""


async def test_explain_tells_of_the_finding_under_the_cursor(console: Opener) -> None:
    """x opens the rule's page, at a width of 60 too; `:explain RULE` any page."""
    async with console(size=(60, 20)) as c:
        assert fleet(c).grid.cursor == "gpu017"
        rule = c.app.fleet.findings["gpu017"][0].rule
        await c.press("x")
        assert isinstance(c.app.screen, Explanation)
        assert rule in c.text
        assert "next step" in c.text
        assert all(len(line) <= 60 for line in c.text.splitlines())
        await c.press("escape", "colon")
        await c.type("explain gpu.lost")
        await c.press("enter")
        await c.until(lambda: isinstance(c.app.screen, Explanation))
        assert "gpu.lost" in c.text
        await c.press("q", "colon")
        await c.type("explain gpu.lots")
        await c.press("enter")
        assert "did you mean gpu.lost" in complaint(c)


async def test_explain_in_a_node_is_about_the_selected_finding(console: Opener) -> None:
    """n goes to the second one; x tells of that."""
    async with console() as c:
        await c.press("enter", "n", "n")
        screen = c.app.screen
        assert isinstance(screen, NodeScreen)
        assert len(screen.findings) > 1
        rule = screen.findings[1].rule
        await c.press("x")
        assert isinstance(c.app.screen, Explanation)
        assert c.app.screen.topic == rule


async def test_only_faults_and_back(console: Opener) -> None:
    """ctrl-z keeps the other terms, and nothing ok is left."""
    async with console() as c:
        await c.press("slash", *"gpu0", "enter", "ctrl+z")
        assert c.app.roster.filter.text == "is:fault gpu0"
        verdict = c.app.fleet.verdict
        assert {verdict(name).value for name in fleet(c).grid.order} == {
            "critical",
            "unknown",
            "warn",
        }
        await c.press("ctrl+z")
        assert c.app.roster.filter.text == "gpu0"


async def test_tab_walks_through_the_views(console: Opener) -> None:
    """The views in their order, and back from the first to the last."""
    async with console() as c:
        await c.press("tab")
        assert c.app.view == "findings"
        await c.press("shift+tab", "shift+tab")
        assert c.app.view == "log"


async def test_the_trail_leads_back_through_nodes_and_views(console: Opener) -> None:
    """`[` and `]` from a node, from the tests and after the filter changed."""
    async with console() as c:
        await c.press("enter", "7")
        assert c.app.view == "tests"
        await c.press("left_square_bracket")
        assert c.app.here == Place("fleet", "gpu017")
        await c.press("left_square_bracket")
        await c.press("slash", *"gpu04", "enter")
        assert c.app.here == Place("fleet")
        await c.press("right_square_bracket")
        assert c.app.here == Place("fleet", "gpu017")
        await c.press("right_square_bracket")
        assert c.app.view == "tests"


@pytest.mark.parametrize("screen", ["1", "7", "enter"])
async def test_marks_are_counted_on_every_screen(console: Opener, screen: str) -> None:
    """Also where nothing can be marked."""
    async with console() as c:
        await c.press("space", "space", "G", screen)
        await c.tick()
        assert "2 marked" in c.text


@pytest.mark.parametrize("screen", ["7", "enter"])
async def test_commands_are_typed_on_every_screen(console: Opener, screen: str) -> None:
    """`:` opens another node from wherever."""
    async with console() as c:
        await c.press(screen, "colon")
        await c.type("open gpu002")
        await c.press("enter")
        assert isinstance(c.app.screen, NodeScreen)
        assert c.app.screen.node == "gpu002"
        nodes = [s for s in c.app.screen_stack if isinstance(s, NodeScreen)]
        assert len(nodes) == 1


async def test_the_view_to_begin_with_is_chosen(console: Opener) -> None:
    """`start` of the preferences."""
    async with console(preferences=Preferences(start="tests")) as c:
        assert c.app.view == "tests"
        await c.press("escape")
        assert c.app.screen is fleet(c)


def test_the_app_refuses_keys_that_clash() -> None:
    """Whoever makes the app learns it before anything is drawn."""
    from inventory.errors import UsageError
    from tests.tui import synthetic

    inventory = synthetic.inventory(1)
    engine = synthetic.LocalEngine(inventory, synthetic.MemoryScheduler(["gpu001"]))
    with pytest.raises(UsageError, match=r"console.yaml:2: pause: w is wide in fleet"):
        ConsoleApp(engine, preferences=keys(pause="w"))


async def test_typing_a_filter_leaves_the_cursor_where_it_was(console: Opener) -> None:
    """Each letter filters anew; giving up returns to the node that the operator was at."""
    async with console(nodes=64) as c:
        grid = c.app._fleet_screen.grid
        await c.press("g", "j", "j", "j", "j", "j", "j", "j", "j")
        chosen = grid.cursor
        await c.type("/remap")
        assert grid.cursor != chosen
        await c.press("escape")
        await c.until(lambda: not c.app.roster.filter)
        assert grid.cursor == chosen
        await c.type("/zzz")
        await c.press("escape")
        await c.until(lambda: not c.app.roster.filter)
        assert grid.cursor == chosen
