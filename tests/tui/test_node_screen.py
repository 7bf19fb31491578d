"""The node screen as its user has it: sections, search, plots of live and remembered time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from console.memory.memory import Memory
from console.tui import node_raw
from console.tui.node_history import METRICS
from console.tui.node_view import Ask, NodeSheet, node_sheet
from console.tui.screens.fleet import FleetScreen
from console.tui.screens.node import NodeScreen
from console.tui.text import line_text
from console.tui.theme import ASCII, UNICODE, Depth, Look
from inventory.scheduler import Allocation
from probes.event import Sample
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.synthetic import NOW, pci
from tests.tui.test_goldens import SIZES, compare


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


async def node(c: Console, name: str = "gpu017") -> NodeScreen:
    """The node's screen, open."""
    c.app.open_node(name)
    await c.pilot.pause()
    screen = c.app.screen
    assert isinstance(screen, NodeScreen)
    return screen


async def test_tab_goes_through_the_sections_and_back(console: Opener) -> None:
    """Each press has the next section's title on the screen, with the pointer."""
    async with console(size=(80, 24)) as c:
        screen = await node(c)
        ids = [place.id for place in screen.sheet.sections]
        assert ids[1:4] == ["gpus", "findings", "history"]
        for expected in ids[1:]:
            await c.press("tab")
            assert screen.section == expected
            title = next(p.title for p in screen.sheet.sections if p.id == expected)
            assert f"{UNICODE.pointer} {title[:40]}" in c.text
        await c.press("shift+tab", "shift+tab")
        assert screen.section == ids[-3]


@pytest.mark.parametrize("key", ["tab", "shift+tab", "z", "m", "t", "n", "N", "o"])
async def test_a_key_typed_ahead_of_the_first_drawing_ends_nothing(
    console: Opener, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    async with console(size=(80, 24)) as c:
        screen = await node(c)
        with monkeypatch.context() as without:
            without.setattr(screen, "draw_sheet", lambda *_: None)  # its width is not known yet
            screen.sheet = NodeSheet([], [], [])
            await c.press(key)
        await c.press("tab")
        assert c.app.screen is screen


async def test_a_section_folds_and_stays_folded(console: Opener) -> None:
    """Its lines go, its title stays; again brings them back."""
    async with console(size=(80, 40)) as c:
        screen = await node(c)
        await c.press("tab")
        assert "PCIE" in c.text
        await c.press("z")
        assert "PCIE" not in c.text
        assert "GPUs" in c.text
        await c.tick(2)
        assert "PCIE" not in c.text
        await c.press("z")
        assert "PCIE" in c.text
        assert screen.section == "gpus"


async def test_wide_terminals_list_the_sections(console: Opener) -> None:
    """Beside the sheet, where the pointer tells the section; a click goes there."""
    async with console(size=(160, 50)) as c:
        screen = await node(c)
        panel = screen.query_one("#sections")
        assert panel.display
        await c.press("tab", "tab")
        row = next(line for line in c.text.splitlines() if line.startswith(UNICODE.pointer))
        assert "findings" in row
        storage = next(i for i, place in enumerate(screen.sheet.sections) if place.id == "storage")
        await c.pilot.click("#sections", offset=(5, storage + 1))
        await c.pilot.pause()
        assert screen.section == "storage"
        await c.pilot.resize_terminal(80, 24)
        await c.pilot.pause()
        assert not panel.display


async def test_search_opens_everything_and_n_goes_on(console: Opener) -> None:
    """A metric that only the raw facts have is found, counted and walked; esc ends it first."""
    async with console(size=(80, 24)) as c:
        screen = await node(c)
        await c.press("slash", *"link17_crc", "enter")
        hits = screen.searching
        assert hits.startswith("/link17_crc 1/")
        assert "link17_crc" in c.text
        before = screen.body.scroll_offset.y
        await c.press("n", "n", "n")
        assert screen.searching.startswith("/link17_crc 4/")
        assert screen.body.scroll_offset.y > before
        await c.press("N")
        assert screen.searching.startswith("/link17_crc 3/")
        await c.press("escape")
        assert screen.searching == ""
        assert c.app.screen is screen
        await c.press("escape")
        assert isinstance(c.app.screen, FleetScreen)


async def test_search_complains_where_nothing_is(console: Opener) -> None:
    """And nothing moves."""
    async with console(size=(80, 24)) as c:
        screen = await node(c)
        await c.press("slash", *"zzzz")
        assert "nothing here has it" in c.text
        await c.press("escape")
        assert screen.find == ""


def test_every_reading_is_among_the_raw_facts() -> None:
    """With its device, unit and meaning, and the source of its probe."""
    inventory = synthetic.inventory(64)
    engine = synthetic.LocalEngine(inventory, None)
    engine.feed_faults(inventory)
    facts = engine.fleet.nodes["gpu041"]
    lines = [line_text(line) for line in node_raw.raw_lines(facts, 160, NOW, {})]
    text = "\n".join(lines)
    for (probe, _device), sample in facts.latest.items():
        assert any(line.split(" ")[0] == probe for line in lines)
        for name in sample.values:
            assert f" {name[:29]}" in text
    reading = next(line for line in lines if " temp_c " in line)
    name, value, unit, kind = reading.split()[:4]
    assert (name, kind) == ("temp_c", "gauge")
    assert int(value) == facts.value("gpu", pci(0), "temp_c")
    assert unit.endswith("C")
    assert "probes.node.nvml" in text


def test_raw_facts_are_made_again_only_where_something_came() -> None:
    """And ages go on."""
    inventory = synthetic.inventory(1)
    engine = synthetic.LocalEngine(inventory, None)
    engine.feed_all([*synthetic.slow("gpu001", NOW), *synthetic.fast("gpu001", NOW)])
    facts = engine.fleet.nodes["gpu001"]
    kept: node_raw.Kept = {}
    node_raw.raw_lines(facts, 100, NOW, kept)
    before = dict(kept)
    news = synthetic.fast("gpu001", NOW + 2, 1)
    engine.feed_all(news)
    lines = node_raw.raw_lines(facts, 100, NOW + 5, kept)
    changed = {key for key in kept if kept[key] is not before[key]}
    assert changed == {(e.probe, e.device) for e in news if isinstance(e, Sample)}
    ages = {line_text(line).split("  ")[-1] for line in lines if "ago" in line_text(line)}
    assert ages == {"3s ago", "5s ago"}


def test_stale_facts_are_grey_with_their_age() -> None:
    """Never shown like present ones."""
    inventory = synthetic.inventory(1)
    engine = synthetic.LocalEngine(inventory, None)
    engine.feed_all([*synthetic.slow("gpu001", NOW), *synthetic.fast("gpu001", NOW)])
    facts = engine.fleet.nodes["gpu001"]
    lines = node_raw.raw_lines(facts, 100, NOW + 3600, {})
    reading = next(line for line in lines if " temp_c " in line_text(line))
    assert reading[1].style == "stale"
    heading = next(line_text(line) for line in lines if line_text(line).startswith("gpu "))
    assert "(60m old)" in heading


async def test_plots_change_metric_and_time(console: Opener) -> None:
    """m and t show another plot at once, and bring it into sight."""
    async with console(size=(80, 24)) as c:
        screen = await node(c)
        await c.press("m")
        assert METRICS[screen.wish.metric].id == "sm_clock_mhz"
        assert "SM clock, last 2 min" in c.text
        assert "MHz │" in c.text
        await c.press("t")
        assert "SM clock, last hour" in c.text
        assert "no memory is kept in this session" in c.text


async def test_a_gap_in_the_readings_is_a_gap_in_the_plot(console: Opener) -> None:
    """A minute without an answer is not bridged."""
    async with console(nodes=1, faults=False, size=(100, 60)) as c:
        for second in (*range(0, 30, 2), *range(90, 120, 2)):
            c.engine.feed_all(synthetic.fast("gpu001", NOW + second, second))
        await c.tick(120)
        await node(c, "gpu001")
        row = next(line for line in c.text.splitlines() if line.startswith("GPU3 "))
        bars = row[6:70]
        assert bars.strip() != bars.strip().replace(" ", ""), "there must be a hole inside"
        assert len(bars.strip().split("  ")) > 1


async def test_a_lost_gpu_has_a_row_without_bars(console: Opener) -> None:
    """It is missing from no list; nothing is drawn for it."""
    async with console(size=(100, 60)) as c:
        await node(c)
        row = next(line for line in c.text.splitlines() if line.startswith("GPU3 "))
        assert row.split() == ["GPU3", "–"]


def busy(name: str, at: float) -> list[Sample]:
    """What the memory takes in: a GPU under load."""
    events = [e for e in synthetic.slow(name, at) if isinstance(e, Sample)]
    cards = [e for e in events if e.probe in ("inventory", "hello")]
    return [*cards, *(e for e in synthetic.fast(name, at) if isinstance(e, Sample))]


def remember(memory: Memory, at: float) -> None:
    """Two hours of readings, five minutes apart, and a drain by the scheduler."""
    memory.tap(
        Allocation(node="gpu017", at=at, scheduler="memory", state="drained", raw="DRAINED",
                   reason="bad cable", reason_by="root")
    )  # fmt: skip
    for step in range(240):
        for event in busy("gpu017", at + 30.0 * step):
            memory.tap(event)


async def test_the_past_is_read_while_the_screen_is_there(console: Opener, tmp_path: Path) -> None:
    """First it says that it reads; then lemon score, drain and plots are there."""
    async with console(size=(100, 80)) as c:
        memory = Memory(tmp_path / "memory.sqlite", clock=lambda: c.engine.at)
        c.engine.memory = memory
        began = NOW - 7200
        c.engine.at = began
        remember(memory, began)
        c.engine.at = NOW
        assert memory.flush()
        screen = await node(c)
        await c.until(lambda: screen.past.told is not None)
        await c.press("m", "t")
        assert "SM clock, last hour" in c.text
        row = next(line for line in c.text.splitlines() if line.startswith("GPU2 "))
        assert "1755" in row
        assert "lemon score" in c.text
        assert "bad cable" in c.text
        memory.close()


async def test_a_broken_memory_costs_one_sentence(console: Opener, tmp_path: Path) -> None:
    """The rest of the screen is there."""
    async with console(size=(100, 60)) as c:
        path = tmp_path / "memory.sqlite"
        path.mkdir()
        c.engine.memory = Memory(path, clock=lambda: c.engine.at)
        screen = await node(c)
        await c.until(lambda: "memory.sqlite" in screen.past.trouble)
        await c.pilot.pause()
        assert "is not a file" in " ".join(c.text.split())
        assert "GPU3 at 0000:4b:00.0 is lost" in c.text


def test_the_sheet_fits_every_width() -> None:
    """No line is wider than asked for, with everything open."""
    inventory = synthetic.inventory(64)
    engine = synthetic.LocalEngine(inventory, None)
    engine.feed_faults(inventory)
    for width in (40, 60, 79, 80, 120, 200):
        sheet = node_sheet(engine.fleet, "gpu033", UNICODE, width, NOW, Ask(folded=frozenset()))
        wide = [line_text(line) for line in sheet.lines if len(line_text(line).rstrip()) > width]
        assert wide == []


@pytest.mark.parametrize("size", SIZES)
async def test_goldens(console: Opener, size: str) -> None:
    """History and past, raw facts, at each size."""
    async with console(size=SIZES[size]) as c:
        await node(c, "gpu033")
        await c.press("tab", "tab", "tab", "m")
        compare(f"node_history_{size}", c.text)
        await c.press("shift+tab", "slash", *"temp_c", "enter")
        compare(f"node_find_{size}", c.text)


async def test_ascii(console: Opener) -> None:
    """Plots in a terminal that carries ASCII only."""
    async with console(size=(80, 24), look=Look(ASCII, Depth(16))) as c:
        await node(c, "gpu033")
        await c.press("m")
        lines = [line[:-1] if len(line) == 80 else line for line in c.text.splitlines()]
        assert all(line.isascii() for line in lines)
        assert not any("?" in line for line in lines[:-1])
        compare("node_history_ascii", c.text)
