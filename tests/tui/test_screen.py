"""The running console: cursor, marks, filter, pause, acting. State and messages, not pixels."""

from __future__ import annotations

import pytest

from console.tui.screens.fleet import FleetScreen
from console.tui.screens.marking import MarkingScreen
from console.tui.screens.node import NodeScreen
from console.tui.widgets.prompt import Prompt
from inventory.scheduler import MARKER
from probes.event import Event, Severity
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.test_replay import notices

NOW = synthetic.NOW


def fleet_screen(console: Console) -> FleetScreen:
    """The screen at the bottom of the stack."""
    screen = console.app.screen_stack[0]
    assert isinstance(screen, FleetScreen)
    return screen


def gone(console: Console, name: str) -> None:
    """The node's GPUs are too hot for the filter `temp<80` now."""
    events = synthetic.fast(name, console.engine.at + 1)
    for gpu in range(8):
        events = synthetic.changed(events, "gpu", synthetic.pci(gpu), temp_c=84)
    console.engine.feed_all(events)


async def test_worst_nodes_come_first_and_the_cursor_waits_there(console: Opener) -> None:
    """Opened at 3 a.m., the first line is the node to look at."""
    async with console() as c:
        grid = fleet_screen(c).grid
        ranks = [c.engine.fleet.verdict(name).rank for name in grid.order]
        assert ranks == sorted(ranks, reverse=True)
        assert ranks[0] == Severity.CRITICAL.rank
        assert grid.cursor == grid.order[0] == "gpu017"


async def test_cursor_stays_on_its_node_when_the_order_changes(console: Opener) -> None:
    """A node that becomes sick moves up; the cursor does not change nodes."""
    async with console() as c:
        grid = fleet_screen(c).grid
        await c.press("G")
        assert grid.cursor == "gpu064"
        before = grid.order.index("gpu064")
        c.engine.feed_all([synthetic.unreachable("gpu064", NOW)])
        await c.tick(1)
        assert grid.cursor == "gpu064"
        assert grid.order.index("gpu064") < before
        assert "gpu064" in c.text
        await c.press("colon", *"sort", "space", *"node", "enter")
        assert grid.order[:2] == ["gpu001", "gpu002"]
        assert grid.cursor == "gpu064"


async def test_cursor_goes_to_the_nearest_node_when_its_own_is_filtered_out(
    console: Opener,
) -> None:
    """And stays put when it is not."""
    async with console() as c:
        grid = fleet_screen(c).grid
        await c.type(":open gpu033")
        await c.press("enter", "escape", "slash", *"node", "colon", *"gpu05", "asterisk", "enter")
        assert grid.order
        assert all(name.startswith("gpu05") for name in grid.order)
        assert grid.cursor in grid.order
        await c.press("escape")
        assert len(grid.order) == 64


async def test_no_key_acts_on_a_node_that_the_filter_hides(console: Opener) -> None:
    """Nothing is shown: nothing is under the cursor, and it returns with its node."""
    async with console() as c:
        screen = fleet_screen(c)
        await c.press("G", "slash", "at", "enter")
        assert screen.grid.order == []
        await c.press("ctrl+@", "space", "asterisk", "a", "D", "T", "enter")
        assert c.app.screen_stack == [screen]
        assert screen.roster.marked == set()
        await c.press("escape")
        assert screen.grid.cursor == "gpu064"


async def test_marks_survive_sort_filter_and_updates(console: Opener) -> None:
    """Marks belong to names."""
    async with console() as c:
        screen = fleet_screen(c)
        await c.press("space", "space")
        marked = set(screen.roster.marked)
        assert marked == set(screen.grid.order[:2])
        await c.press("colon", *"sort", "space", *"temp", "enter")
        c.engine.feed_all(synthetic.fast("gpu001", NOW + 2, 9))
        await c.tick(2)
        await c.press("slash", *"node", "colon", *"gpu001", "enter")
        assert screen.grid.order == ["gpu001"]
        assert screen.roster.marked == marked
        assert "2 marked (2 hidden)" in c.text
        assert screen.chosen() == sorted(marked)
        await c.press("ctrl+backslash")
        assert not screen.roster.marked


@pytest.mark.parametrize("old", ["age>60", "is:stale"])
async def test_nodes_without_fresh_readings_are_marked_by_their_age(
    console: Opener, old: str
) -> None:
    """Also while no filter is shown that reads an age: `:mark` reads the clock itself."""
    async with console(nodes=8, faults=False) as c:
        screen, names = fleet_screen(c), list(c.engine.fleet.nodes)
        for name in names:
            c.engine.feed_all([*synthetic.slow(name, NOW), *synthetic.fast(name, NOW)])
        for name in names[1:]:
            c.engine.feed_all(synthetic.fast(name, NOW + 90, 9))
        await c.tick(90)
        await c.type(f":mark {old}")
        await c.press("enter")
        assert screen.roster.marked == {"gpu001"}


async def test_range_and_invert(console: Opener) -> None:
    """ctrl-space marks from the last mark to the cursor; * turns the shown ones around."""
    async with console(nodes=16, faults=False) as c:
        screen = fleet_screen(c)
        await c.press("space", "down", "down", "ctrl+@")
        assert screen.roster.marked == {"gpu001", "gpu002", "gpu003", "gpu004"}
        await c.press("asterisk")
        assert screen.roster.marked == {f"gpu{i:03d}" for i in range(5, 17)}


async def test_filter_is_live_and_complains_in_place(console: Opener) -> None:
    """A bad filter says where; escape restores what was."""
    async with console() as c:
        screen = fleet_screen(c)
        await c.press("slash", *"state", "colon", *"crit")
        shown = list(screen.grid.order)
        assert shown
        assert all(c.engine.fleet.verdict(n) is Severity.CRITICAL for n in shown)
        await c.press("space", *"tmp", "greater_than_sign", "8")
        assert "column 12" in c.text
        assert "temp" in c.text
        await c.press("escape")
        assert not screen.query_one(Prompt).display
        assert len(screen.grid.order) == 64
        assert screen.grid.has_focus


async def test_filter_by_reading_follows_the_readings(console: Opener) -> None:
    """`temp>85` finds the hot node, and lets go of it when it cools."""
    async with console() as c:
        screen = fleet_screen(c)
        await c.press("slash", *"temp", "greater_than_sign", *"85", "enter")
        assert screen.grid.order == ["gpu033"]
        c.engine.feed_all(synthetic.fast("gpu033", NOW + 2))
        await c.tick(2)
        assert screen.grid.order == []
        assert "no node matches" in c.text


async def test_pause_freezes_the_rows_and_keeps_collecting(console: Opener) -> None:
    """The table stands still, the Fleet does not."""
    async with console() as c:
        grid = fleet_screen(c).grid
        await c.press("p")
        before = [line for line in c.text.splitlines() if "gpu" in line]
        order = list(grid.order)
        c.engine.feed_all([synthetic.unreachable("gpu001", NOW + 1)])
        hot = synthetic.changed(
            synthetic.fast("gpu017", NOW + 1), "gpu", synthetic.pci(0), temp_c=77, util_percent=3
        )
        c.engine.feed_all(hot)
        await c.tick(30)
        assert [line for line in c.text.splitlines() if "gpu" in line] == before
        assert grid.order == order
        assert "PAUSED 30s" in c.text
        assert c.engine.fleet.verdict("gpu001") is Severity.UNKNOWN
        await c.press("p")
        await c.tick()
        assert grid.order.index("gpu001") < 6
        assert "PAUSED" not in c.text


async def test_next_fault_walks_around(console: Opener) -> None:
    """n visits every node that is not ok, once, then starts again."""
    async with console() as c:
        grid = fleet_screen(c).grid
        sick = [n for n in grid.order if c.engine.fleet.verdict(n).rank >= Severity.WARN.rank]
        visited = []
        for _ in range(len(sick) + 1):
            await c.press("n")
            visited.append(grid.cursor)
        assert set(visited) == set(sick)
        assert visited[0] == visited[-1] != visited[1]
        await c.press("N")
        assert grid.cursor == visited[-2]


async def test_node_screen_tells_why_and_what_next(console: Opener) -> None:
    """Enter opens the cursor's node; escape comes back to the same place."""
    async with console(size=(80, 50)) as c:
        await c.press("enter")
        assert isinstance(c.app.screen, NodeScreen)
        finding = c.engine.fleet.findings["gpu017"][0]
        text = " ".join(c.text.split())
        assert " ".join(finding.say.split()[:3]) in text
        assert "why" in text
        assert "next" in text
        assert "812" in text
        await c.press("escape")
        assert fleet_screen(c).grid.cursor == "gpu017"


async def test_drain_through_the_confirmation(console: Opener) -> None:
    """Plan, prefilled reason, y, the scheduler's own word for the outcome."""
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)], synthetic.jobs())
    async with console(scheduler=held) as c:
        confirm = await c.planned("D")
        assert "812" in c.text
        assert "hold --reason" in c.text
        top = c.engine.fleet.findings["gpu017"][0]
        assert top.rule in confirm.reason
        await c.press("enter", "enter")
        assert held.writes == [], "Enter must not confirm"
        await c.press("y")
        await c.until(lambda: confirm.phase == "over")
        assert held.writes == [("hold", "gpu017")]
        assert held.reasons["gpu017"].startswith(MARKER)
        await c.tick()
        assert "now draining" in c.text
        await c.press("escape")
        await c.tick()
        row = next(line for line in c.text.splitlines() if " gpu017 " in line)
        assert "draining" in row


async def test_a_plan_that_breaks_says_so_and_can_be_left(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of ours is on the screen: `y` does not wait for a plan that never comes."""
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)])
    async with console(scheduler=held) as c:

        async def broken(*_: object, **__: object) -> None:
            raise RuntimeError("out of order")

        monkeypatch.setattr(c.engine, "plan", broken)
        confirm = await c.planned("D")
        assert "out of order" in c.text
        assert confirm.blocked() == "there is nothing to do"
        await c.press("y", "escape")
        assert held.writes == []
        assert isinstance(c.app.screen, FleetScreen)


async def test_escape_drains_nothing(console: Opener) -> None:
    """Neither does typing y into the reason."""
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)])
    async with console(scheduler=held) as c:
        await c.press("D", "r", "y", "y", "enter", "escape")
        assert isinstance(c.app.screen, FleetScreen)
        assert held.writes == []


async def test_an_edited_reason_is_planned_again_before_y_works(console: Opener) -> None:
    """What is written is what was shown."""
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)])
    async with console(scheduler=held) as c:
        confirm = await c.planned("D")
        await c.press("r", "ctrl+u", *"cable")
        await c.press("enter", "y")
        await c.until(lambda: confirm.phase != "planning")
        if confirm.phase == "ready":
            await c.press("y")
        await c.until(lambda: confirm.phase == "over")
        assert confirm.plan is not None
        assert confirm.plan.reason == "cable"
        assert held.reasons == {"gpu017": f"{MARKER} cable"}


async def test_a_healthy_node_needs_a_typed_reason(console: Opener) -> None:
    """No finding, no proposed reason, no drain without one."""
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)])
    async with console(scheduler=held) as c:
        await c.type(":open gpu002")
        confirm = await c.planned("enter", "D")
        assert confirm.reason == ""
        await c.press("enter", "y")
        assert held.writes == []
        assert "needs a reason" in confirm.blocked()


async def test_many_nodes_need_a_typed_count(console: Opener) -> None:
    """Above the cap, y waits for the number."""
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)])
    async with console(scheduler=held) as c:
        await c.press("colon", *"mark", "space", *"all", "enter")
        confirm = await c.planned("colon", *"drain", "space", *"power", "space", *"work", "enter")
        await c.press("y")
        assert held.writes == []
        await c.press("r", "enter", *"63", "enter", "y")
        assert held.writes == []
        await c.press("r", "enter", "backspace", *"4", "enter", "y")
        await c.until(lambda: confirm.phase == "over")
        assert len(held.writes) == 64
        assert set(held.reasons.values()) == {f"{MARKER} power work"}


async def test_resume_of_a_foreign_drain_is_refused_and_shown(console: Opener) -> None:
    """Somebody else's reason is left alone unless the operator overrides it, loudly."""
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)])
    held.reasons["gpu002"] = "bad DIMM"
    async with console(scheduler=held) as c:
        await c.type(":open gpu002")
        confirm = await c.planned("enter", "U")
        assert "bad DIMM" in c.text
        await c.press("y")
        assert held.writes == []
        await c.press("O")
        await c.until(lambda: confirm.phase == "ready" and confirm.override)
        await c.pilot.pause()
        assert "OVERRIDE" in c.text
        await c.press("y")
        await c.until(lambda: confirm.phase == "over")
        assert held.writes == [("release", "gpu002")]


async def test_a_sick_node_is_resumed_only_on_its_own_key(console: Opener) -> None:
    """Other people's drains are one override, sick nodes another; what is wrong stays told."""
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)])
    held.reasons["gpu017"] = "gpuconsole: xid 79"
    async with console(scheduler=held) as c:
        await c.type(":open gpu017")
        confirm = await c.planned("enter", "U")
        await c.press("O")
        await c.until(lambda: confirm.phase == "ready" and confirm.override)
        assert confirm.plan is not None
        assert confirm.plan.nodes == ()
        await c.press("I")
        await c.until(lambda: confirm.phase == "ready" and confirm.despite)
        await c.pilot.pause()
        assert "gpu017 is still critical" in c.text
        await c.press("y")
        await c.until(lambda: confirm.phase == "over")
        assert held.writes == [("release", "gpu017")]


async def test_typing_in_the_plan_of_a_drain_is_the_reason(console: Opener) -> None:
    """And never a yes: "dying fan" has a y in it."""
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)])
    async with console(scheduler=held) as c:
        await c.type(":open gpu017")
        confirm = await c.planned("enter", "D")
        await c.type("dying fan")
        await c.until(lambda: confirm.phase == "ready")
        assert confirm.reason == "dying fan"
        assert held.writes == []


async def test_read_only_offers_nothing_that_acts(console: Opener) -> None:
    """Keys do nothing, the footer and `:` do not know them."""
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)])
    async with console(scheduler=held, read_only=True) as c:
        for key in "DUT":
            await c.press(key)
            assert isinstance(c.app.screen, FleetScreen)
        assert "READ-ONLY" in c.text
        assert "drain" not in c.text.splitlines()[-1]
        await c.press("enter", "D", "U", "T")
        assert isinstance(c.app.screen, NodeScreen)
        await c.press("escape", "colon", *"drain", "space", "x", "enter")
        assert isinstance(c.app.screen, FleetScreen)
        assert held.writes == []


async def test_copy_folds_the_marked_nodes(console: Opener) -> None:
    """The clipboard gets a host list other tools understand."""
    async with console(nodes=16, faults=False) as c:
        await c.press("space", "space", "space", "y")
        assert c.app.clipboard == "gpu[001-003]"


async def test_acknowledge_moves_on_to_the_next_finding(console: Opener) -> None:
    """The Fleet knows, and the finding stays visible."""
    async with console(size=(80, 80)) as c:
        top = c.engine.fleet.findings["gpu033"][0]
        await c.type(":open gpu033")
        await c.press("enter", "a")
        await c.tick(1)
        seen = {(f.rule, f.device): f.acknowledged for f in c.engine.fleet.findings["gpu033"]}
        assert seen[top.rule, top.device]
        assert "acknowledged" in c.text


HOSTILE = "\x1b[2J\x1b]0;pwned\x07[bold red]x[/bold red]\r\n\u202e$(reboot)"


async def test_hostile_strings_are_shown_and_do_nothing(console: Opener) -> None:
    """Escapes, markup, bidi and newlines in whatever a node can send."""
    async with console(nodes=4, faults=False, size=(160, 60)) as c:
        c.engine.feed_all([*synthetic.slow("gpu001", NOW), *synthetic.fast("gpu001", NOW)])
        bad: list[Event] = [
            synthetic.xid("gpu001", NOW, synthetic.pci(0), 79, HOSTILE),
            synthetic.hostile_processes("gpu001", NOW, HOSTILE),
            synthetic.hostile_hello("gpu001", NOW, HOSTILE),
            synthetic.hostile_status("gpu002", NOW, HOSTILE),
        ]
        c.engine.feed_all(bad)
        await c.tick(1)
        fleet = c.text
        await c.type(":open gpu001")
        await c.press("enter")
        node = c.text
        for text in (fleet, node):
            assert all(char == "\n" or char.isprintable() for char in text)
        assert "[bold red]x[/bold red]" in fleet + node
        assert "$(reboot)" in node


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (160, 50), (20, 6)])
async def test_every_size_keeps_the_grid_and_survives_resizing(
    console: Opener, size: tuple[int, int]
) -> None:
    """Also absurdly small ones."""
    async with console(size=size) as c:
        assert "gpu017" in c.text
        await c.pilot.resize_terminal(100, 30)
        await c.tick()
        assert "gpu017" in c.text
        assert all(len(line) <= 100 for line in c.text.splitlines())


async def test_only_changed_cells_are_painted(console: Opener) -> None:
    """One hotter GPU repaints one cell, an unchanged second none."""
    async with console() as c:
        grid = fleet_screen(c).grid
        await c.tick()
        painted: list[int] = []
        original = grid.refresh

        def count(*regions: object, **options: bool) -> object:
            painted.extend(region.width for region in regions)  # type: ignore[attr-defined]
            return original(*regions, **options)  # type: ignore[arg-type]

        grid.refresh = count  # type: ignore[method-assign, assignment]
        await c.tick()
        assert painted == []
        hot = synthetic.changed(
            synthetic.fast("gpu001", NOW, 4), "gpu", synthetic.pci(0), temp_c=70
        )
        c.engine.feed_all(hot)
        await c.tick()
        assert painted == [4]


async def test_the_palette_runs_the_same_commands(console: Opener) -> None:
    """Typing its words finds and runs one."""
    async with console() as c:
        await c.press("ctrl+p", *"freeze")
        await c.until(lambda: "pause" in c.text)
        await c.press("enter")
        await c.until(lambda: c.app.paused)


async def test_the_palette_takes_no_help_for_markup(console: Opener) -> None:
    """A word in brackets is shown."""
    async with console() as c:
        await c.press("ctrl+p", *"screenshot")
        await c.until(lambda: "[PATH]" in c.text)


@pytest.mark.parametrize("view", ["fleet", "gpus", "fabric"])
@pytest.mark.parametrize("key", ["a", "e", "s", "space"])
async def test_a_key_for_the_row_that_was_there_does_not_hit_the_one_that_came(
    console: Opener, key: str, view: str
) -> None:
    """The row under the cursor went just before the key: it must be pressed again."""
    async with console(nodes=64) as c:
        await c.type(f":{view}")
        await c.press("enter")
        screen = c.app.screen
        assert isinstance(screen, MarkingScreen)
        await c.type("/temp<80")
        await c.press("enter")
        await c.tick(5)
        first = screen.rows.cursor
        assert first is not None
        gone(c, first)
        await c.tick(1)
        assert first not in screen.rows.order
        said = notices(c.app)
        await c.press(key)
        told = f"the cursor has just moved to {screen.rows.cursor} by itself: press again"
        assert said == [told]
        assert not screen.roster.marked
        found = [f for told in c.engine.fleet.findings.values() for f in told]
        assert found
        assert not any(f.acknowledged for f in found)


async def test_after_a_key_the_cursor_stays_on_its_row(console: Opener) -> None:
    """A worse node came under a cursor that was never moved: the key is for the one seen twice."""
    async with console(nodes=64) as c:
        screen = fleet_screen(c)
        c.engine.feed_all([synthetic.xid("gpu001", NOW, synthetic.pci(0), 79, "fell off the bus")])
        await c.tick(1)
        assert screen.grid.cursor == "gpu001"
        await c.press("a")
        assert not any(f.acknowledged for f in c.engine.fleet.findings["gpu001"])
        await c.press("a")
        assert all(f.acknowledged for f in c.engine.fleet.findings["gpu001"])
        c.engine.feed_all([synthetic.xid("gpu002", NOW, synthetic.pci(0), 79, "fell off the bus")])
        await c.tick(1)
        assert screen.grid.cursor == "gpu001"


async def test_what_is_acknowledged_is_what_was_told(console: Opener) -> None:
    """A worse finding that came since the screen was drawn is not among it."""
    async with console(nodes=64) as c:
        fleet = c.engine.fleet
        await c.type("/node:gpu033")
        await c.press("enter")
        assert "HW the" in c.text
        c.engine.feed_all([synthetic.xid("gpu033", NOW, synthetic.pci(0), 79, "fell off the bus")])
        fleet.tick(NOW + 1)
        assert fleet.findings["gpu033"][0].severity is Severity.CRITICAL
        await c.press("a")
        await c.tick(1)
        seen = [f.severity for f in fleet.findings["gpu033"] if f.acknowledged]
        assert seen == [Severity.WARN]


@pytest.mark.parametrize(
    ("node", "told"), [("gpu017", "acknowledged: GPU3"), ("gpu033", "crit acknowledged; GPU5")]
)
async def test_a_row_says_that_what_made_it_so_bad_is_acknowledged(
    console: Opener, node: str, told: str
) -> None:
    """Else a verdict stands beside a finding that is none of it."""
    async with console(nodes=64, size=(160, 50)) as c:
        fleet = c.engine.fleet
        c.engine.feed_all([synthetic.xid("gpu033", NOW, synthetic.pci(0), 79, "fell off the bus")])
        await c.tick(1)
        for finding in [f for f in fleet.findings[node] if f.severity is Severity.CRITICAL]:
            c.app.acknowledge(finding)
        await c.tick(1)
        row = next(line for line in c.text.splitlines() if f" {node} " in line)
        assert "✗ crit" in row
        assert told in row
