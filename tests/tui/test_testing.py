"""Active tests on the screen: asked first, shown while they run, stopped, found again, drained."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from console.active import store
from console.active.ask import Asked
from console.active.results import Campaign, Level
from console.tui import commands
from console.tui.screens.ask import Ask
from console.tui.screens.campaigns import CampaignScreen, CampaignsScreen
from console.tui.screens.fleet import FleetScreen
from console.tui.screens.launch import Launch
from console.tui.theme import ASCII, UNICODE, Depth, Look
from probes.event import Severity
from tests.active import campaigns
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.test_goldens import SIZES, compare
from tests.tui.testing import Figures, heard, idle, measure_by

NOW = synthetic.NOW
FOUR = ["gpu001", "gpu002", "gpu003", "gpu004"]


def keep(c: Console, *found: Campaign) -> None:
    """Campaigns of an earlier console."""
    for campaign in found:
        asked = Asked(nodes=campaign.nodes, level=campaign.level)
        store.save(c.engine.state / "tests", store.Kept(asked=asked, campaign=campaign))


def earlier(level: str, *, hours: int = 1, number: int = 0) -> Campaign:
    """A campaign that ended some hours ago."""
    return replace(
        campaigns.LEVELS[level](),
        id=f"20251129T{10 - hours:02d}{number:02d}00Z-{level}",
        at=NOW - 3600 * hours,
    )


async def asked(c: Console, *keys: str) -> Launch:
    """The dialog with a plan, after T and some keys."""
    await c.press("T", *keys)
    screen = c.app.screen
    assert isinstance(screen, Launch)
    await c.until(lambda: screen.phase == "ready")
    await c.pilot.pause()
    return screen


async def listed(c: Console) -> CampaignsScreen:
    """The list with its files read."""
    await c.press("7")
    screen = c.app.screen
    assert isinstance(screen, CampaignsScreen)
    await c.until(lambda: screen.read_at is not None)
    await c.pilot.pause()
    return screen


async def shown(c: Console) -> CampaignScreen:
    """The campaign on the screen with its report drawn."""
    screen = c.app.screen
    assert isinstance(screen, CampaignScreen)
    await c.until(lambda: screen.drawn is not None)
    await c.pilot.pause()
    return screen


async def begun(c: Console, figures: Figures, *, key: str = "n") -> CampaignScreen:
    """A test of four idle nodes, under way."""
    idle(c, FOUR)
    await c.tick()
    measure_by(c, figures)
    await c.press("colon", *"mark", "space", *"all", "enter")
    dialog = await asked(c, key)
    assert dialog.blocked() == ""
    await c.press("y")
    await c.until(lambda: isinstance(c.app.screen, CampaignScreen))
    screen = c.app.screen
    assert isinstance(screen, CampaignScreen)
    return screen


async def test_keys_typed_ahead_of_the_dialog_are_not_for_the_fleet(console: Opener) -> None:
    """The dialog is there before the next key is looked at."""
    async with console() as c:
        fleet = c.app.screen
        assert isinstance(fleet, FleetScreen)
        fleet.action_test()
        assert isinstance(c.app.screen, Launch)
        await c.pilot.pause()


async def test_busy_nodes_are_refused_with_why_and_y_does_nothing(console: Opener) -> None:
    async with console() as c:
        dialog = await asked(c)
        assert "job 812 alice" in c.text
        assert dialog.blocked() == "there is nothing to test"
        await c.press("y", "enter")
        assert c.app.screen is dialog
        await c.press("escape")
        assert isinstance(c.app.screen, FleetScreen)
        assert c.app.bench.running is None


async def test_a_node_that_was_not_read_yet_can_be_tested_once_it_is(console: Opener) -> None:
    """Opened in the first seconds, the dialog does not stay with "not read yet"."""
    async with console(nodes=4, faults=False) as c:
        idle(c, FOUR)
        facts = c.engine.fleet.nodes["gpu001"]
        read = facts.latest.pop(("inventory", ""))
        await c.tick()
        dialog = await asked(c)
        assert "its GPUs are not read yet" in c.text
        c.engine.feed(read)
        await c.until(lambda: dialog.blocked() == "")
        assert dialog.plan is not None
        assert dialog.plan.willing == ("gpu001",)


async def test_enter_starts_nothing_and_y_does(console: Opener) -> None:
    figures = Figures()
    async with console(nodes=4, faults=False) as c:
        idle(c, FOUR)
        await c.tick()
        measure_by(c, figures)
        dialog = await asked(c)
        await c.press("enter")
        assert c.app.screen is dialog
        assert figures.measured == []
        await c.press("y")
        await c.until(lambda: figures.measured == [("gpu001",)])


async def test_each_level_is_planned_again_by_its_letter(console: Opener) -> None:
    async with console(nodes=4, faults=False) as c:
        idle(c, FOUR)
        await c.tick()
        await c.press("colon", *"mark", "space", *"all", "enter")
        dialog = await asked(c)
        for key, level in (("g", Level.GPU), ("p", Level.PAIRS), ("n", Level.NODE)):
            await c.press(key)
            await c.until(lambda: dialog.phase == "ready")
            assert dialog.plan is not None
            assert dialog.plan.asked.level is level
            assert dialog.plan.willing == tuple(FOUR)
        await c.press("c")
        await c.until(lambda: dialog.phase == "ready")
        await c.pilot.pause()
        # Four nodes in service are more than a fifth of four: the cap speaks.
        assert "20%" in c.text
        await c.press("I")
        await c.until(lambda: dialog.phase == "ready")
        await c.pilot.pause()
        assert dialog.plan is not None
        assert dialog.plan.asked.force
        assert "MINE" in c.text


async def test_a_running_test_shows_each_node_and_then_its_report(console: Opener) -> None:
    figures = Figures(held=True)
    async with console(nodes=4, faults=False, size=(100, 40)) as c:
        screen = await begun(c, figures)
        await c.until(lambda: any(run.state == "running" for run in live(c).runs))
        await c.tick()
        assert "Testing:" in c.text
        assert "› gpu001" in c.text
        figures.gate.set()
        await c.until(lambda: c.app.bench.running is None)
        await c.tick()
        await c.until(lambda: screen.drawn is not None and screen.drawn[0] is screen.campaign)
        assert screen.campaign is not None
        assert sorted(figures.measured) == [(name,) for name in FOUR]
        assert "Testing:" not in c.text
        assert "100.0" in c.text


def live(c: Console) -> Campaign:
    """What is known of the running one."""
    assert c.app.bench.running is not None
    return c.app.bench.running.campaign


async def test_the_list_has_the_running_one_first_and_then_the_newest(console: Opener) -> None:
    figures = Figures(held=True)
    async with console(nodes=4, faults=False, size=(120, 30)) as c:
        keep(c, earlier("pairs", hours=2), earlier("rails", hours=1), earlier("gpu", hours=3))
        await begun(c, figures)
        await c.press("escape")
        screen = await listed(c)
        levels = [screen.entries[name].level for name in screen.grid.order]
        assert levels == ["node", "rails", "pairs", "gpu"]
        assert screen.entries[screen.grid.order[0]].running
        assert "1 running" in c.text
        figures.gate.set()
        await c.until(lambda: c.app.bench.running is None)
        await c.tick()
        await c.until(lambda: not any(entry.running for entry in screen.entries.values()))
        assert [screen.entries[name].level for name in screen.grid.order] == levels


async def test_stopping_asks_and_keeps_what_was_measured(console: Opener) -> None:
    figures = Figures(held=True)
    async with console(nodes=4, faults=False, size=(100, 40)) as c:
        screen = await begun(c, figures)
        await c.until(lambda: any(run.state == "running" for run in live(c).runs))
        await c.press("X")
        await c.until(lambda: isinstance(c.app.screen, Ask))
        await c.press("escape")
        assert c.app.bench.running is not None
        await c.press("X")
        await c.until(lambda: isinstance(c.app.screen, Ask))
        await c.press("y")
        await c.until(lambda: c.app.bench.running is None)
        assert figures.broken_off
        kept = store.load(c.engine.state / "tests", "last").campaign
        assert kept.interrupted
        assert kept.id == screen.about


async def test_stopping_nothing_says_so(console: Opener) -> None:
    async with console(nodes=4, faults=False) as c:
        await listed(c)
        told = heard(c)
        await c.press("X")
        assert told == ["no test is running"]
        assert isinstance(c.app.screen, CampaignsScreen)


async def test_one_test_at_a_time(console: Opener) -> None:
    figures = Figures(held=True)
    async with console(nodes=4, faults=False) as c:
        await begun(c, figures)
        await c.press("escape")
        dialog = await asked(c)
        assert dialog.blocked() == "a test is running already (7)"
        await c.press("y")
        assert c.app.screen is dialog


async def test_leaving_with_a_running_test_asks_once_and_ends_it(console: Opener) -> None:
    figures = Figures(held=True)
    async with console(nodes=4, faults=False) as c:
        await begun(c, figures)
        await c.until(lambda: any(run.state == "running" for run in live(c).runs))
        told = heard(c)
        await c.press("q")
        assert told == ["a test is running; again to leave anyway"]
        assert c.app.bench.running is not None
        await c.pilot.press("q")
        await c.until(lambda: c.app.bench.running is None)
        assert store.load(c.engine.state / "tests", "last").campaign.interrupted


async def test_the_drain_proposal_leads_into_the_usual_confirmation(console: Opener) -> None:
    held = synthetic.MemoryScheduler([f"gpu{i:03d}" for i in range(1, 65)], synthetic.jobs())
    async with console(scheduler=held) as c:
        keep(c, earlier("pairs"))
        await listed(c)
        await c.press("enter")
        screen = await shown(c)
        assert screen.chosen() == ["gpu007"]
        confirm = await c.planned("D")
        assert confirm.names == ["gpu007"]
        assert "41 of 186 GB/s" in confirm.reason
        await c.press("enter")
        assert held.writes == []
        await c.press("y")
        await c.until(lambda: confirm.phase == "over")
        assert held.writes == [("hold", "gpu007")]
        await c.press("escape", "y")
        assert c.app.clipboard == "gpu007"


async def test_nothing_sure_is_nothing_to_drain(console: Opener) -> None:
    async with console() as c:
        keep(c, earlier("rails"))
        await listed(c)
        told = heard(c)
        await c.press("y", "enter")
        await shown(c)
        await c.press("D")
        assert told == ["nothing to drain: no verdict is sure enough"] * 2
        assert isinstance(c.app.screen, CampaignScreen)
        assert c.app.clipboard == ""


async def test_a_drain_list_of_strangers_chooses_nobody(console: Opener) -> None:
    async with console(nodes=4, faults=False) as c:
        keep(c, replace(earlier("pairs"), drain="gpu007,$(reboot)"))
        await listed(c)
        await c.press("enter")
        assert (await shown(c)).chosen() == []


async def test_read_only_shows_tests_and_offers_none(console: Opener) -> None:
    async with console(read_only=True) as c:
        keep(c, earlier("pairs"))
        await c.press("T")
        assert isinstance(c.app.screen, FleetScreen)
        await listed(c)
        await c.press("X", "enter")
        await shown(c)
        await c.press("D", "X")
        assert isinstance(c.app.screen, CampaignScreen)
        keys = c.text.splitlines()[-1]
        assert "drain" not in keys
        assert "stop" not in keys


async def test_a_file_that_is_none_of_ours_is_left_out(console: Opener) -> None:
    async with console(nodes=4, faults=False) as c:
        keep(c, earlier("pairs"))
        folder = c.engine.state / "tests"
        (folder / "20251129T100000Z-gpu.json").write_text("{")
        (folder / "notes.json").write_text("{}")
        screen = await listed(c)
        assert [entry.level for entry in screen.entries.values()] == ["pairs"]


HOSTILE = "\x1b[2J\x1b]0;pwned\x07[bold red]x[/bold red]\r\n\u202e$(reboot)"


async def test_hostile_words_of_a_campaign_do_nothing(console: Opener) -> None:
    base = earlier("pairs")
    bad = replace(
        base,
        nodes=(HOSTILE, "gpu001"),
        refused={HOSTILE: HOSTILE},
        runs=tuple(replace(run, error=HOSTILE, clues=(HOSTILE,)) for run in base.runs),
        verdicts=tuple(replace(v, say=HOSTILE, next_step=HOSTILE) for v in base.verdicts),
        drain=HOSTILE,
    )
    async with console(nodes=4, faults=False, size=(160, 60)) as c:
        keep(c, bad)
        await listed(c)
        first = c.text
        await c.press("enter")
        await shown(c)
        for text in (first, c.text):
            assert all(char == "\n" or char.isprintable() for char in text)
        assert "[bold red]x[/bold red]" in first


@pytest.mark.parametrize("size", [*SIZES.values(), (20, 6)])
async def test_every_size_survives(console: Opener, size: tuple[int, int]) -> None:
    async with console(size=size) as c:
        keep(c, earlier("pairs"), earlier("gpu", hours=2))
        await asked(c)
        await c.press("escape")
        await listed(c)
        await c.press("enter")
        screen = await shown(c)
        await c.pilot.resize_terminal(100, 30)
        await c.tick()
        await c.until(lambda: screen.drawn is not None and 90 < screen.drawn[1] <= 100)
        assert all(len(line) <= 100 for line in c.text.splitlines())


STEPS = {"launch": ("T",), "tests": ("7",), "campaign": ("7", "enter")}


async def walked(c: Console, screen: str) -> str:
    """The screen after its keys."""
    if screen == "launch":
        idle(c, ["gpu003", "gpu004", "gpu005"])
        await c.press("colon", *"mark", "space", *"node:gpu00*", "enter")
        await asked(c, "p")
    else:
        keep(c, earlier("pairs"), earlier("gpu", hours=2), earlier("node", hours=5))
        await listed(c)
        if screen == "campaign":
            await c.press("enter")
            await shown(c)
    return c.text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", STEPS)
async def test_goldens(console: Opener, screen: str, size: str) -> None:
    async with console(size=SIZES[size]) as c:
        text = await walked(c, screen)
    width, height = SIZES[size]
    assert len(text.splitlines()) == height
    assert all(len(line) <= width for line in text.splitlines())
    compare(f"{screen}_{size}", text)


@pytest.mark.parametrize("screen", STEPS)
async def test_ascii_terminal(console: Opener, screen: str) -> None:
    async with console(size=(80, 24), look=Look(ASCII, Depth(16))) as c:
        text = await walked(c, screen)
    # Borders and the scroll bar are Textual's own.
    lines = [line for line in text.splitlines() if line[:1].isascii()]
    inner = [line.strip("│").rstrip(" ▁▂▃▄▅▆▇█│") for line in lines]
    assert all(line.isascii() for line in inner)
    compare(f"{screen}_ascii", text)


async def test_no_colour_is_needed_to_see_the_sick(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    async with console(look=Look(UNICODE, Depth(0)), size=(80, 24)) as c:
        text = await walked(c, "campaign")
        strips = c.app.screen._compositor.render_strips()
        styles = [s.style for strip in strips for s in strip if s.style is not None]
        assert all(
            colour is None or colour.is_default for s in styles for colour in (s.color, s.bgcolor)
        )
    compare("campaign_80x24", text)
    assert "✗ crit" in text


def test_what_acts_has_an_upper_case_key() -> None:
    for command in commands.COMMANDS:
        if command.acts:
            assert command.shown.isupper()
    assert "stop" not in {c.id for c in commands.offered("campaign", read_only=True)}
    assert Severity.CRITICAL.rank > Severity.UNKNOWN.rank
