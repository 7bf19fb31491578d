"""The view of stragglers: ranks, peers drawn, who waits, who was not compared."""

from __future__ import annotations

import functools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from console.fleet import Fleet
from console.tui.screens.stragglers import StragglersScreen
from console.tui.text import LEVELS, line_text
from console.tui.theme import ASCII, UNICODE, Depth, Look
from console.tui.views.peers import Why, reading
from console.tui.views.straggler_words import current
from console.tui.views.stragglers import MOVES, Stragglers
from console.tui.views.strip import LEAST, scaled, strip
from inventory.node import Inventory, Node
from probes.event import Event, Finding, Sample, Scalar, Severity
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.test_goldens import SIZES, compare

NAMES = [f"gpu{i:03d}" for i in range(1, 9)]
HOT: dict[str, Scalar] = {"temp_c": 91, "sm_clock_mhz": 960, "reasons": 0x48}
IDLE: dict[str, Scalar] = {"util_percent": 0, "reasons": 1, "sm_clock_mhz": 345, "power_w": 70.0}
READINGS = st.lists(st.floats(1, 3000), max_size=40)


class World:
    """Eight nodes of one job that answer every ten seconds."""

    def __init__(self) -> None:
        """Nobody has answered yet."""
        self.at = synthetic.NOW
        nodes = tuple(Node(name=name, gpus=8) for name in NAMES)
        self.fleet = Fleet(Inventory(nodes=nodes), clock=lambda: self.at)
        self.table = Stragglers(self.fleet)
        self.odd: dict[tuple[str, str], dict[str, Scalar]] = {}
        self.silent: set[str] = set()

    def answer(self, times: int = 1) -> None:
        """All nodes say what they read, and are judged."""
        for _ in range(times):
            self.at += 10.0
            for name in NAMES:
                if name not in self.silent:
                    for event in (*synthetic.slow(name, self.at), *synthetic.fast(name, self.at)):
                        self.fleet.apply(self._said(event))
            self.fleet.tick(self.at)
            self.fleet.tick(self.at)
            self.table.update(self.fleet.take_dirty(), self.at)

    def _said(self, event: Event) -> Event:
        if not isinstance(event, Sample) or event.probe != "gpu":
            return event
        other = self.odd.get((event.node, event.device), {})
        return msgspec.structs.replace(event, values={**event.values, **other})

    def rows(self, shown: list[str] | None = None) -> list[str]:
        """Keys of the table."""
        return self.table.rows(NAMES if shown is None else shown, self.at)

    def kinds(self, kind: str) -> list[str]:
        """Keys of one kind of row."""
        return [key for key in self.rows() if self.table.row(key).kind == kind]


@given(READINGS, st.floats(1, 3000), st.integers(1, 80))
def test_a_strip_is_as_wide_as_asked_and_marks_one_place(
    values: list[float], own: float, width: int
) -> None:
    """Whatever was read."""
    drawn = strip(values, own, width, "▲")
    assert cell_len(drawn) == width
    assert drawn.count("▲") == (1 if values else 0)
    assert cell_len(scaled(values, own, width + LEAST + 16, "▲", 1000.0)) == width + LEAST + 16


@given(st.lists(st.floats(100, 3000), min_size=2, max_size=40), st.integers(8, 80))
def test_lower_readings_are_further_left(values: list[float], width: int) -> None:
    """The lowest one is where the strip begins, unless all are near each other."""
    low, high = min(values), max(values)
    at_low, at_high = (strip(values, one, width, "▲").index("▲") for one in (low, high))
    assert at_low <= at_high == width - 1
    assert at_low == 0 or low > 0.85 * high


@given(READINGS, st.integers(1, 80))
def test_every_reading_is_drawn(values: list[float], width: int) -> None:
    """A single one among hundreds has a bar too."""
    drawn = strip(values, None, width, "▲")
    assert (drawn.strip() == "") == (not values)
    assert set(drawn) <= {" ", *LEVELS}


def test_a_slow_gpu_is_ranked_with_its_peers() -> None:
    """Share, votes, distance and the readings it was judged by."""
    world = World()
    world.odd[NAMES[2], synthetic.pci(5)] = HOT
    world.answer(10)
    (key,) = world.kinds("slow")
    row, told = world.table.row(key), world.table.reading(key)
    assert (row.rank, row.names, row.severity) == (1, (NAMES[2],), Severity.WARN)
    assert told is not None
    assert sorted(told.values) == [960, *[1755] * 7]
    assert told.z is not None
    assert told.z > 3.5
    columns = {c.name: i for i, c in enumerate(world.table.columns(160))}
    cells = world.table.cells(key, world.table.columns(160), UNICODE, world.at)
    text = {name: cells[i].text.strip() for name, i in columns.items()}
    assert text["slower"] == "-45%"
    assert (text["sure"], text["agree"]) == ("certain", "peers+max")
    assert text["reason"] == "HW thermal slowdown"
    assert text["strip"].startswith("0.96 ▲")


def test_the_strip_is_drawn_from_what_the_votes_saw() -> None:
    """The group of the verdict has as many members and the same median."""
    world = World()
    world.odd[NAMES[2], synthetic.pci(5)] = HOT
    world.answer(10)
    row = world.table.row(world.kinds("slow")[0])
    assert row.slow is not None
    assert row.slow.votes is not None
    assert world.fleet.compared is not None
    told = reading(world.fleet.compared.comparison, row.slow)
    assert told is not None
    assert told.usual == row.slow.votes.group


def test_a_slow_gpu_that_recovers_is_no_longer_shown_as_slow_now() -> None:
    """The finding stands for three looks; the row says that the latest one was fine."""
    world = World()
    world.odd[NAMES[2], synthetic.pci(5)] = HOT
    world.answer(10)
    world.odd.clear()
    world.answer()
    (key,) = world.kinds("slow")
    assert not current(world.table, world.table.row(key))
    cells = world.table.cells(key, world.table.columns(160), UNICODE, world.at)
    assert any("fine in the last look" in cell.text for cell in cells)
    assert {cell.style for cell in cells if cell.text.strip() == "-45%"} == {"stale"}


def test_a_comparison_that_stopped_is_not_shown_as_present() -> None:
    """The headline says how old it is, and what was slow is grey."""
    world = World()
    world.odd[NAMES[2], synthetic.pci(5)] = HOT
    world.answer(10)
    world.at += 75.0
    (key,) = world.kinds("slow")
    assert world.table.headline() == "1 slow of 64 compared 75s ago"
    assert not current(world.table, world.table.row(key))


def test_ranks_do_not_swap_for_noise() -> None:
    """Two nearly as slow keep their order until one is clearly slower."""
    world = World()
    first, second = (NAMES[1], synthetic.pci(2)), (NAMES[4], synthetic.pci(2))
    world.odd = {first: {**HOT, "sm_clock_mhz": 960}, second: {**HOT, "sm_clock_mhz": 975}}
    world.answer(10)
    before = world.kinds("slow")
    assert [world.table.nodes(key) for key in before] == [(NAMES[1],), (NAMES[4],)]
    world.odd[second] = {**HOT, "sm_clock_mhz": 945}
    world.answer(2)
    assert world.kinds("slow") == before
    world.odd[second] = {**HOT, "sm_clock_mhz": int(945 - 2 * MOVES * 1755)}
    world.answer(2)
    assert world.kinds("slow") == before[::-1]


def test_nothing_slow_says_how_many_were_compared() -> None:
    """64 GPUs, none of them left out."""
    world = World()
    world.answer(3)
    assert not world.kinds("slow")
    assert not world.kinds("left")
    (key,) = world.kinds("compared")
    assert (world.table.row(key).gpus, world.table.row(key).groups) == (64, 1)
    assert world.table.headline() == "0 slow of 64 compared"


def test_who_was_not_compared_is_named_with_the_reason() -> None:
    """Idle GPUs, a node that does not answer, a GPU without a clock."""
    world = World()
    world.silent = {NAMES[7]}
    world.odd = {(NAMES[0], synthetic.pci(i)): IDLE for i in range(8)}
    world.odd[NAMES[3], synthetic.pci(3)] = {"sm_clock_mhz": "nonsense"}
    world.answer(3)
    rows = [world.table.row(key) for key in world.kinds("left")]
    told = {row.left.why: (row.left.gpus, row.left.names) for row in rows if row.left is not None}
    assert told[Why.IDLE] == (8, (NAMES[0],))
    assert told[Why.UNREAD] == (9, (NAMES[3], NAMES[7]))
    (compared,) = world.kinds("compared")
    assert world.table.row(compared).gpus == 64 - 8 - 9
    unread = next(row for row in rows if row.left is not None and row.left.why is Why.UNREAD)
    assert unread.severity is Severity.UNKNOWN


def test_before_the_first_comparison_nothing_is_claimed() -> None:
    """No row, and a sentence that does not mean ok."""
    world = World()
    world.table.update(set(NAMES), world.at)
    assert world.rows() == []
    assert world.table.empty == "the first comparison of peers is under way"
    assert world.table.headline() == "not compared yet"


def test_nodes_that_wait_are_below_and_accused_of_nothing() -> None:
    """One row a job; folded until asked."""
    world = World()
    world.answer(3)
    for name in NAMES[4:6]:
        waits = Finding(
            rule="straggler.job_waits", severity=Severity.INFO, node=name, say="the job waits"
        )
        world.fleet.findings[name] = [waits]
    world.table.update(set(NAMES), world.at)
    (key,) = world.kinds("waits")
    assert world.table.nodes(key) == tuple(NAMES[4:6])
    cells = world.table.cells(key, world.table.columns(160), UNICODE, world.at)
    assert any(cell.text.strip() == "waits, not slow" for cell in cells)
    assert world.table.toggle(key)
    below = [world.table.nodes(inner) for inner in world.kinds("node")]
    assert below == [(NAMES[4],), (NAMES[5],)]


@given(st.sets(st.sampled_from(NAMES)))
def test_only_shown_nodes_have_rows(some: set[str]) -> None:
    """Groups stay whole: peers are peers, shown or not."""
    shown = [name for name in NAMES if name in some]
    keys = _sick().rows(shown)
    about = {name for key in keys for name in _sick().table.nodes(key)}
    assert about <= some
    slow = [key for key in keys if _sick().table.row(key).kind == "slow"]
    assert {_sick().table.nodes(key)[0] for key in slow} == some & {NAMES[2]}
    groups = [_sick().table.field(key) for key in keys if _sick().table.row(key).kind == "field"]
    assert all(field is not None and len(field.values) == 63 for field in groups)
    for key in keys:
        for width in (60, 80, 160):
            columns = _sick().table.columns(width)
            cells = _sick().table.cells(key, columns, UNICODE, _sick().at)
            assert [cell_len(cell.text) for cell in cells] == [c.width for c in columns]
            assert cell_len(line_text(_sick().table.why(key, UNICODE, width))) <= width


@functools.cache
def _sick() -> World:
    world = World()
    world.odd[NAMES[2], synthetic.pci(5)] = HOT
    world.odd[NAMES[6], synthetic.pci(1)] = IDLE
    world.answer(10)
    return world


# ---------------------------------------------------------------------- on the screen


async def shown(c: Console) -> StragglersScreen:
    """The view, on a fleet with a hot GPU and one that is idle."""
    idle = synthetic.changed(synthetic.fast("gpu005", c.engine.at), "gpu", synthetic.pci(0), **IDLE)
    c.engine.feed_all(idle)
    await c.tick(6)
    await c.tick(6)
    await c.press("3")
    screen = c.app.screen
    assert isinstance(screen, StragglersScreen)
    return screen


async def test_enter_opens_the_slow_gpu(console: Opener) -> None:
    """At the finding that accuses it."""
    async with console() as c:
        screen = await shown(c)
        key = next(key for key in screen.grid.order if key.startswith("slow"))
        screen.grid.move_to(key)
        await c.press("enter")
        assert getattr(c.app.screen, "node", "") == "gpu033"
        assert getattr(c.app.screen, "selected", None) == ("straggler.gpu", synthetic.pci(5))


async def test_groups_fold_and_the_cursor_stays(console: Opener) -> None:
    """What was compared may be folded away."""
    async with console() as c:
        screen = await shown(c)
        screen.grid.move_to("compared")
        assert any(key.startswith("field") for key in screen.grid.order)
        await c.press("enter")
        assert not any(key.startswith("field") for key in screen.grid.order)
        assert screen.grid.cursor == "compared"


@pytest.mark.parametrize("size", SIZES)
async def test_golden(console: Opener, size: str) -> None:
    """Slow, unread, compared, idle."""
    async with console(size=SIZES[size]) as c:
        await shown(c)
        compare(f"stragglers_{size}", c.text)


async def test_golden_ascii(console: Opener) -> None:
    """Bars and mark have twins."""
    async with console(size=(80, 24), look=Look(ASCII, Depth(16))) as c:
        await shown(c)
        lines = [line[:-1] if len(line) == 80 else line for line in c.text.splitlines()]
        assert all(line.isascii() for line in lines)
        compare("stragglers_ascii", c.text)


def test_the_mark_is_not_a_level() -> None:
    """Own reading and peers stay apart in ASCII as well."""
    from console.tui.text import LEVELS_ASCII

    assert UNICODE.up not in LEVELS
    assert ASCII.up not in LEVELS_ASCII
