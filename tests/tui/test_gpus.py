"""The heat map: places, scale, what is odd, and the screen around it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from console.fleet import Fleet
from console.tui.text import Cell, line_text
from console.tui.theme import ASCII, UNICODE, Depth, Look
from console.tui.views import gpu_words
from console.tui.views.gpu_cells import tail
from console.tui.views.gpu_layout import GAP, arrange
from console.tui.views.gpu_metrics import BY_NAME, State
from console.tui.views.gpu_scale import SAMPLE, Scale, Usual, peers_of, scale_of, thinned
from console.tui.views.gpus import HeatMap, Weight
from console.tui.widgets.pieces import Piece, differences
from inventory.errors import UsageError
from inventory.node import Inventory, Node
from probes.event import NodeState, NodeStatus, Sample
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.test_goldens import SIZES, _colourless, compare

NOW = synthetic.NOW
TEMP = BY_NAME["temp"]
HOT = {"temp": 88}


# ------------------------------------------------------------------ places


@given(
    width=st.integers(1, 260),
    height=st.integers(1, 80),
    nodes=st.integers(1, 300),
    most=st.integers(1, 20),
    longest=st.integers(1, 60),
)
def test_every_gpu_has_one_place_and_none_is_outside(
    width: int, height: int, nodes: int, most: int, longest: int
) -> None:
    """Any terminal, any fleet: no two GPUs share a cell, and a click finds the one drawn there."""
    layout = arrange(width, height, nodes, most, longest)
    seen: set[tuple[int, int]] = set()
    for node in range(nodes):
        row, column = divmod(node, layout.columns)
        for gpu in range(most):
            line, x = layout.gpu(gpu)
            assert line < layout.height
            x += layout.left(column)
            y = row * layout.height + line
            assert x + layout.cell <= width - layout.map_width or width < 1 + layout.cell
            assert (y, x) not in seen
            seen.add((y, x))
            assert layout.hit(x, y) == (node, gpu)
    assert len(seen) == nodes * most


def test_a_wide_terminal_takes_several_nodes_a_line() -> None:
    """4,000 nodes of eight: eight columns at 160 cells, beside a minimap."""
    layout = arrange(160, 43, 4000, 8, 7)
    assert (layout.columns, layout.across, layout.height, layout.cell) == (8, 8, 1, 1)
    assert layout.map_width
    assert layout.left(layout.columns) - GAP <= 160 - layout.map_width


def test_numbers_where_they_fit_else_levels() -> None:
    """Sixteen nodes can be read; a thousand can be looked at."""
    assert arrange(160, 43, 16, 8, 6).cell > 1
    assert arrange(160, 43, 1000, 8, 7).cell == 1


@given(st.text(max_size=30), st.integers(1, 30))
def test_a_long_name_keeps_its_end(name: str, width: int) -> None:
    """The number is there."""
    assert cell_len(tail(name, width)) <= max(width, cell_len("…"))


# ------------------------------------------------------------------- scale


@given(st.lists(st.floats(40, 70), min_size=50, max_size=200), st.floats(100, 1e6))
def test_one_broken_sensor_does_not_move_the_ends(values: list[float], broken: float) -> None:
    """From the smallest to the largest, all healthy GPUs would look alike."""
    scale = scale_of([*values, broken], TEMP, None)
    assert scale.low <= min(values) + TEMP.span
    assert scale.high <= 70 + TEMP.span
    assert scale.level(broken, 7) == 7


@given(st.floats(-50, 200), st.floats(0, 50))
def test_levels_rise_with_the_reading(value: float, more: float) -> None:
    """And never leave their range."""
    scale = Scale(20, 90)
    assert 0 <= scale.level(value, 7) <= scale.level(value + more, 7) <= 7


def test_the_ends_stay_while_they_fit() -> None:
    """A degree more must not redraw every cell."""
    first = scale_of([50 + i % 10 for i in range(100)], TEMP, None)
    assert scale_of([51 + i % 10 for i in range(100)], TEMP, first) == first
    hotter = scale_of([80 + i % 10 for i in range(100)], TEMP, first)
    assert hotter.high >= 89
    assert hotter.low > first.low


def test_medians_of_many_are_taken_from_some() -> None:
    """At most SAMPLE readings, spread over all of them."""
    values = [float(i) for i in range(32_000)]
    some = thinned(values)
    assert len(some) <= SAMPLE
    peers = peers_of(values, TEMP)
    assert peers is not None
    assert abs(peers.usual.median - 16_000) < 100


def test_peers_do_the_same_job() -> None:
    """A GPU that idles in a busy job is odd, one that idles without a job is not."""
    util = BY_NAME["util"]
    groups = {("compute", "812"): [98.0] * 31 + [0.0], ("compute", ""): [0.0] * 64}
    usual = Usual(util, groups)
    busy, job = usual.peers("compute", "812")
    idle, none = usual.peers("compute", "")
    assert busy is not None
    assert idle is not None
    assert (job, none) == ("812", "")
    assert (busy.side(0.0), busy.side(98.0), idle.side(0.0)) == (-2, 0, 0)


def test_a_job_of_few_gpus_is_measured_by_its_role() -> None:
    """Four readings have no median worth the name."""
    usual = Usual(TEMP, {("compute", "1"): [90.0] * 4, ("compute", ""): [55.0] * 100})
    peers, job = usual.peers("compute", "1")
    assert peers is not None
    assert job == ""
    assert peers.side(90.0) == 2


# ------------------------------------------------------------------- model


def fleet_of(*counts: int, hot: tuple[int, int] | None = None, site: int | None = None) -> Fleet:
    """Nodes with so many GPUs each; `hot` is (node, GPU) at 88 degrees."""
    nodes = tuple(Node(name=f"n{i}", gpus=site) for i in range(len(counts)))
    fleet = Fleet(Inventory(nodes=nodes, cluster="lab", source="test"), clock=lambda: NOW)
    for i, count in enumerate(counts):
        fleet.apply(NodeStatus(node=f"n{i}", at=NOW, state=NodeState.UP))
        for gpu in range(count):
            values = synthetic.gpu_values(gpu)
            if hot == (i, gpu):
                values["temp_c"] = HOT["temp"]
            device = f"0000:{gpu:02x}:00.0"
            fleet.apply(Sample(node=f"n{i}", probe="gpu", device=device, at=NOW, values=values))
    return fleet


def built(fleet: Fleet, metric: str = "temp") -> HeatMap:
    """A heat map that has read everything."""
    heat = HeatMap(fleet)
    heat.choose(metric)
    heat.update(fleet.nodes)
    while not heat.build(1.0, NOW):
        pass
    return heat


def cells(heat: HeatMap, name: str, now: float = NOW) -> list[Cell]:
    """The GPUs of a node as drawn."""
    return list(heat.block(name, 6, 1, UNICODE, now, marked=False).gpus)


@given(st.lists(st.integers(0, 16), min_size=1, max_size=12))
def test_every_gpu_has_a_cell_whatever_the_mix(counts: list[int]) -> None:
    """One to sixteen a node; a node that told of none has one unknown cell."""
    heat = built(fleet_of(*counts))
    for i, count in enumerate(counts):
        assert len(cells(heat, f"n{i}")) == max(1, count)
    assert heat.most == max(1, *counts)


def test_a_hot_gpu_among_its_peers_is_odd() -> None:
    """An arrow in the strongest colour, on the minimap and for the jump; the others are calm."""
    heat = built(fleet_of(8, 8, 8, hot=(1, 5)))
    drawn = cells(heat, "n1")
    assert drawn[5] == (UNICODE.up, "heat7")
    assert {cell.style for cell in drawn[:5]} == {"text"}
    assert heat.weight("n1") is Weight.ODD
    assert heat.odd_gpus("n1") == [5]
    assert heat.weight("n0") is Weight.QUIET
    assert heat.headline(["n0", "n1", "n2"]) == "1 odd"


def test_unknown_is_a_dash_and_never_a_level() -> None:
    """No reading of that metric, no node heard of."""
    heat = built(fleet_of(2, 0, site=8), "hbm")
    assert [cell.text for cell in cells(built(fleet_of(2), "tensor"), "n0")] == ["–", "–"]
    assert [cell.text for cell in cells(heat, "n1")] == ["–"] * 8
    assert heat.weight("n1") is Weight.UNKNOWN


def test_a_gpu_fewer_than_expected_is_lost() -> None:
    """Eight were bought, seven answer."""
    heat = built(fleet_of(7, site=8))
    assert heat.node("n0").gpus[7].state is State.LOST
    assert cells(heat, "n0")[7] == (UNICODE.critical, "critical")


def test_a_lost_gpu_keeps_its_place() -> None:
    """NVML says lost for GPU 2: the others do not move up."""
    fleet = fleet_of(4)
    device = "0000:02:00.0"
    values: dict[str, int | float | str | bool] = {"index": 2, "nvml_rc": 15}
    fleet.apply(Sample(node="n0", probe="gpu", device=device, at=NOW, values=values))
    heat = built(fleet)
    assert [gpu.index for gpu in heat.node("n0").gpus] == [0, 1, 2, 3]
    assert cells(heat, "n0")[2] == (UNICODE.critical, "critical")


def test_old_readings_are_grey() -> None:
    """Nothing that is old looks as if it were now, a sign included."""
    heat = built(fleet_of(8, 8, hot=(0, 1)))
    assert {cell.style for cell in cells(heat, "n0", NOW + 60)} == {"stale"}


def test_numbers_carry_their_signs() -> None:
    """Where numbers fit, the arrow stands before the number."""
    heat = built(fleet_of(8, 8, hot=(0, 1)))
    block = heat.block("n0", 6, 5, UNICODE, NOW, marked=False)
    assert block.gpus[1].text == f"  {UNICODE.up}{HOT['temp']}"
    assert block.gpus[0].text == "   58"


def test_counts_stand_out_when_there_is_one() -> None:
    """Nothing is a dot; a row remapped is not."""
    fleet = fleet_of(2)
    for gpu, remapped in ((0, 0), (1, 3)):
        values: dict[str, int | float | str | bool] = {"remap_uncorrectable": remapped}
        event = Sample(node="n0", probe="ecc", device=f"0000:{gpu:02x}:00.0", at=NOW, values=values)
        fleet.apply(event)
    heat = built(fleet, "ecc")
    drawn = cells(heat, "n0")
    assert drawn[0] == ("·", "dim")
    assert drawn[1].style == "heat6"
    assert heat.odd_gpus("n0") == [1]


def test_another_metric_needs_nothing_that_came_later() -> None:
    """A frozen screen can turn to another metric; the Fleet has moved on meanwhile."""
    fleet = fleet_of(1)
    heat = built(fleet)
    values = msgspec.structs.replace(
        fleet.nodes["n0"].latest["gpu", "0000:00:00.0"], values={"index": 0, "power_w": 11.0}
    )
    fleet.apply(values)
    heat.choose("power")
    assert heat.values("n0") == (640.0,)


def test_a_metric_that_does_not_exist_is_refused() -> None:
    """With what there is."""
    with pytest.raises(UsageError, match="temp"):
        HeatMap(fleet_of(1)).choose("heat")


@given(
    st.integers(1, 200),
    st.sampled_from([UNICODE, ASCII]),
    st.sampled_from(sorted(BY_NAME)),
    st.booleans(),
)
def test_no_line_is_wider_than_the_terminal(
    width: int, glyphs: object, metric: str, numbers: bool
) -> None:
    """Legend, detail and metrics, at any width."""
    heat = built(fleet_of(8, 3, hot=(0, 2)), metric)
    table = UNICODE if glyphs is UNICODE else ASCII
    lines = [
        gpu_words.detail(heat, "n0", 2, table, width, NOW),
        gpu_words.metrics(heat.metric, width)[0],
    ]
    if width >= 40:
        lines.append(gpu_words.legend(heat, table, width, numbers=numbers))
    assert all(cell_len(line_text(line)) <= width for line in lines)


@given(
    st.lists(st.sampled_from(list(Weight)), min_size=30, max_size=400),
    st.integers(3, 40),
)
def test_the_minimap_forgets_no_critical_node(weights: list[Weight], height: int) -> None:
    """The worst of each part is what is drawn, so nothing critical can hide."""
    layout = arrange(60, height, len(weights), 8, 8)
    if not layout.map_width:
        return
    lines = gpu_words.minimap(weights, layout, height, 0, UNICODE)
    assert len(lines) == height
    assert all(sum(map(len, (cell.text for cell in line))) == layout.map_width for line in lines)
    signs = "".join(map(line_text, lines))
    assert (UNICODE.critical in signs) == (Weight.CRITICAL in weights)


def test_only_the_cells_that_differ_are_painted() -> None:
    """One GPU of a line changes: one cell is sent."""
    quiet = tuple((Cell("▃"), False) for _ in range(8))
    warm = (*quiet[:4], (Cell("▄"), False), *quiet[5:])
    was, now = [Piece(0, quiet), Piece(20, quiet)], [Piece(0, quiet), Piece(20, warm)]
    assert [(r.x, r.y, r.width) for r in differences(3, was, now, 80)] == [(24, 3, 1)]


# ------------------------------------------------------------------ screen


async def shown(c: Console, *keys: str) -> str:
    """The view after some keys, everything read."""
    await c.press("4", *keys)
    await c.until(lambda: not getattr(c.app.screen, "building", False))
    await c.tick()
    await c.until(lambda: not getattr(c.app.screen, "building", False))
    await c.pilot.pause()
    return c.text


async def test_the_jump_goes_from_odd_gpu_to_odd_gpu(console: Opener) -> None:
    """gpu017 GPU3 lost, gpu033 GPU5 hot, gpu041 GPU2 remapped; around the end."""
    async with console() as c:
        await shown(c)
        canvas = c.app.screen.canvas  # type: ignore[attr-defined]
        visited = []
        for key in "nnnnN":
            await c.press(key)
            visited.append((canvas.cursor, canvas.gpu))
        sick = [("gpu017", 3), ("gpu033", 5), ("gpu041", 2)]
        assert visited == [*sick, sick[0], sick[2]]
        assert "GPU2" in c.text
        assert "next:" in c.text


async def test_metric_by_key_and_by_word(console: Opener) -> None:
    """`m` turns, `:metric` names; a wrong one is refused and the map stays."""
    async with console() as c:
        await shown(c)
        await c.press("m")
        assert "memory temperature" in c.text
        await c.type(":metric clock")
        await c.press("enter")
        assert "SM clock" in c.text
        await c.type(":metric no")
        await c.press("enter")
        assert "SM clock" in c.text


async def test_filter_marks_and_enter_are_those_of_every_view(console: Opener) -> None:
    """What is shown, what is marked and what opens."""
    async with console() as c:
        await shown(c)
        canvas = c.app.screen.canvas  # type: ignore[attr-defined]
        await c.type("/node:gpu03*")
        await c.press("enter")
        assert canvas.order == [f"gpu{i:03d}" for i in range(30, 40)]
        await c.press("space", "space")
        assert c.app.roster.marked == {"gpu030", "gpu031"}
        assert canvas.cursor == "gpu032"
        await c.press("escape", "enter")
        assert c.app.view == "gpus"
        assert c.app.trail.here is not None
        assert c.app.trail.here.node == "gpu032"


async def test_a_click_is_where_it_looks(console: Opener) -> None:
    """The GPU that is drawn under the mouse."""
    async with console() as c:
        text = await shown(c)
        canvas = c.app.screen.canvas  # type: ignore[attr-defined]
        y, line = next((y, at) for y, at in enumerate(text.splitlines()) if "gpu033" in at)
        x = line.index("gpu033") + len("gpu033 ") + 5
        await c.pilot.click(offset=(x, y))
        assert (canvas.cursor, canvas.gpu) == ("gpu033", 5)


async def test_arrows_cross_from_node_to_node(console: Opener) -> None:
    """Right of the last GPU is the first one of the next node; down is the node below."""
    async with console() as c:
        await shown(c)
        canvas = c.app.screen.canvas  # type: ignore[attr-defined]
        await c.press(*["right"] * 8)
        assert (canvas.cursor, canvas.gpu) == ("gpu002", 0)
        await c.press("left", "left")
        assert (canvas.cursor, canvas.gpu) == ("gpu001", 6)
        await c.press("down")
        assert canvas.cursor == f"gpu{canvas.laid.columns + 1:03d}"
        await c.press("G", "g")
        assert canvas.cursor == "gpu001"


async def test_a_paused_map_stays_as_it_was(console: Opener) -> None:
    """Collecting goes on behind it, and other metrics are of the same moment."""
    async with console() as c:
        before = await shown(c, "p")
        events = synthetic.changed(
            synthetic.fast("gpu001", c.engine.at, 3), "gpu", synthetic.pci(0), power_w=99.0
        )
        c.engine.feed_all(events)
        await c.tick()
        body = before.splitlines()[1:]
        assert c.text.splitlines()[1:] == body
        await c.type(":metric power")
        await c.press("enter")
        heat = c.app.screen.heat  # type: ignore[attr-defined]
        assert heat.values("gpu001")[0] != 99.0
        await c.press("p")
        await c.tick()
        await c.until(lambda: heat.values("gpu001")[0] == 99.0)


async def test_a_minimap_where_not_all_is_in_sight(console: Opener) -> None:
    """End shows the last rows, and the bar has moved down."""
    async with console(nodes=400, size=(60, 20)) as c:
        top = await shown(c)
        await c.press("G")
        canvas = c.app.screen.canvas  # type: ignore[attr-defined]
        assert canvas.top > 0
        assert "gpu400" in c.text
        assert c.text != top
        await c.pilot.click(offset=(57, 5))
        assert canvas.top < 100
        assert canvas.cursor == "gpu400"


@pytest.mark.parametrize("size", SIZES)
async def test_golden(console: Opener, size: str) -> None:
    """With the cursor on the hot GPU."""
    async with console(size=SIZES[size]) as c:
        text = await shown(c, "n", "n")
    width, height = SIZES[size]
    assert len(text.splitlines()) == height
    assert all(len(line) <= width for line in text.splitlines())
    compare(f"gpus_{size}", text)


async def test_golden_of_many(console: Opener) -> None:
    """A fleet that does not fit, with the minimap."""
    async with console(nodes=600, size=(160, 50)) as c:
        compare("gpus_many", await shown(c, "n"))


async def test_golden_ascii(console: Opener) -> None:
    """Digits for levels."""
    async with console(nodes=200, size=(80, 24), look=Look(ASCII, Depth(16))) as c:
        text = await shown(c, "n")
    assert text.isascii()
    compare("gpus_ascii", text)


async def test_golden_no_color(console: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text without any colour; what is odd differs by its sign."""
    monkeypatch.setenv("NO_COLOR", "")
    async with console(look=Look(UNICODE, Depth(0))) as c:
        text = await shown(c, "n")
        strips = c.app.screen._compositor.render_strips()
        styles = [s.style for strip in strips for s in strip if s.style is not None]
        assert all(_colourless(style) for style in styles)
    compare("gpus_nocolor", text)
