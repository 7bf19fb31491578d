"""The fabric view: what a node adds up to, where its links lead, and the screen."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from console.fleet import Fleet
from console.tui.text import line_text
from console.tui.theme import ASCII, UNICODE, Depth, Look
from console.tui.views import fabric_node
from console.tui.views.fabric import FabricTable, per_s
from inventory.node import Inventory, Node
from probes.event import Event, Finding, NodeState, NodeStatus, Row, Sample, Scalar, Severity
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.synthetic import NOW, pci
from tests.tui.test_goldens import SIZES, compare

SWITCHES = [f"0000:{bus:02x}:00.0" for bus in (7, 8, 9, 10)]


def ends(name: str, at: float) -> Sample:
    """Eighteen links of eight GPUs over four switches; GPU2's link 7 is down."""
    rows: list[Row] = [
        {
            "gpu": pci(gpu),
            "link": link,
            "up": (gpu, link) != (2, 7),
            "remote": "switch",
            "remote_pci": SWITCHES[link % 4],
        }
        for gpu in range(8)
        for link in range(18)
    ]
    return Sample(node=name, probe="nvlink_ends", at=at, clock=at, rows=rows)


def topology(name: str, at: float) -> list[Sample]:
    """Each GPU has its own adapter; GPU5's is a socket away."""

    def distance(gpu: int, nic: int) -> str:
        near = "SYS" if gpu == 5 else "PIX"
        return near if gpu == nic else "NODE" if gpu // 4 == nic // 4 else "SYS"

    rows: list[Row] = [
        {"gpu": pci(gpu), "nic": f"mlx5_{nic}", "distance": distance(gpu, nic)}
        for gpu in range(8)
        for nic in range(8)
    ]
    samples = [Sample(node=name, probe="topology", at=at, clock=at, rows=rows)]
    for gpu in range(8):
        values: dict[str, Scalar] = {
            "numa": gpu // 4,
            "nic": f"mlx5_{gpu}",
            "nic_distance": distance(gpu, gpu),
        }
        samples.append(
            Sample(node=name, probe="topology", device=pci(gpu), at=at, clock=at, values=values)
        )
    return samples


def step(name: str, at: float, step: int) -> list[Event]:
    """One answer of the slow probes: counters grow from step to step; hello comes once."""
    found: list[Event] = [
        e for e in synthetic.slow(name, at)
        if isinstance(e, Sample) and (step == 1 or e.probe != "hello")
    ]  # fmt: skip
    for i in range(8):
        # 400 Gb/s is 12.5 G words of four bytes a second; here a quarter of that.
        words = 3_125_000_000 * 10 * step
        found = synthetic.changed(
            found, "infiniband", f"mlx5_{i}/1", port_rcv_data=words, port_xmit_data=words // 2,
            width=4, gpu_distance="PIX", symbol_error=20 * step if i == 3 else 0,
        )  # fmt: skip
    link7: dict[str, Scalar] = {"link7_up": False}
    found = synthetic.changed(found, "nvlink", pci(2), **link7)
    crc: dict[str, Scalar] = {"link4_crc": 30 * step}
    return synthetic.changed(found, "nvlink", pci(0), **crc)


def fleet_of(events: Iterable[Event], *names: str) -> Fleet:
    """A judged fleet."""
    nodes = tuple(Node(name=name, gpus=8) for name in names)
    fleet = Fleet(Inventory(nodes=nodes, cluster="lab", source="test"), clock=lambda: NOW)
    for event in events:
        fleet.apply(event)
    fleet.tick(NOW)
    return fleet


def busy(name: str = "gpu001") -> list[Event]:
    """Two answers ten seconds apart, with ends and distances."""
    up = NodeStatus(node=name, at=NOW - 10, state=NodeState.UP)
    return [
        up,
        *step(name, NOW - 10, 1),
        *step(name, NOW, 2),
        ends(name, NOW),
        *topology(name, NOW),
    ]


def read(fleet: Fleet) -> FabricTable:
    """The table over everything."""
    table = FabricTable(fleet)
    table.update(fleet.nodes, NOW)
    return table


def panel(table: FabricTable, name: str, width: int = 100, now: float = NOW) -> list[str]:
    """The panel's lines."""
    found = fabric_node.lines(name, table.node(name), UNICODE, width, now)
    return [line_text(line).rstrip() for line in found]


def test_a_node_adds_up() -> None:
    """144 links, one down; 8 ports at 100 Gb/s in; two symbol errors and three CRC a second."""
    sums = read(fleet_of(busy(), "gpu001")).sums("gpu001")
    assert sums.links == (143, 144)
    assert sums.link_errors == pytest.approx(3.0)
    assert sums.ports == (8, 8)
    assert sums.speed == 400.0
    assert sums.received == pytest.approx(800.0)
    assert sums.sent == pytest.approx(400.0)
    assert sums.errors == pytest.approx(2.0)
    assert sums.near == "SYS"


def test_what_was_never_read_is_a_dash() -> None:
    """One answer has no rates; a node without one has nothing. Nothing is 0."""
    up = NodeStatus(node="gpu001", at=NOW, state=NodeState.UP)
    table = read(fleet_of([up, *step("gpu001", NOW, 1)], "gpu001", "gpu002"))
    sums = table.sums("gpu001")
    assert (sums.link_errors, sums.received, sums.errors) == (None, None, None)
    assert table.sums("gpu002").links is None
    columns = table.columns(160)
    texts = [c.text.strip() for c in table.cells("gpu002", columns, UNICODE, NOW)]
    assert set(texts) == {"", "gpu002", "–"}


def test_a_gpu_that_tells_of_no_links_is_not_counted_as_whole() -> None:
    """Seven of eight answer: 126 of 144 are known to be up, not 126 of 126."""
    events = [e for e in busy() if not (
        isinstance(e, Sample) and (e.probe, e.device) == ("nvlink", pci(4))
    )]  # fmt: skip
    assert read(fleet_of(events, "gpu001")).sums("gpu001").links == (125, 144)


def test_the_panel_shows_which_link_and_where_it_led() -> None:
    """GPU2's link 7 is down: a cross at its place, and three of four to the last switch."""
    lines = panel(read(fleet_of(busy(), "gpu001")), "gpu001")
    gpu0 = next(line for line in lines if line.startswith("GPU0 "))
    gpu2 = next(line for line in lines if line.startswith("GPU2 "))
    assert gpu0.split()[1] == "····!·············"
    assert gpu2.split()[1] == "·······✗··········"
    assert gpu2.split()[-4:] == ["5", "5", "4", "3/4"]
    assert any(SWITCHES[0] in line for line in lines)
    assert any("GPU2: NVLink 7 down" in line for line in lines)


def test_the_panel_has_ports_and_distances() -> None:
    """A line a port with rates, a matrix as nvidia-smi topo -m tells it."""
    lines = panel(read(fleet_of(busy(), "gpu001")), "gpu001")
    port = next(line for line in lines if "mlx5_3/1" in line).split()
    at = port.index("4x")
    assert port[at : at + 7] == ["4x", "100", "50.0", "2", "0", "GPU3", "PIX"]
    gpu5 = [line for line in lines if line.startswith("GPU5 ")][-1].split()
    assert gpu5[1:4] == ["1", "SYS", "mlx5_5"]
    assert gpu5[4:] == ["SYS", "SYS", "SYS", "SYS", "NODE", "SYS", "NODE", "NODE"]


def test_ports_come_first_when_the_worst_is_about_one() -> None:
    """On 24 lines the rest has to be scrolled to."""
    node = read(fleet_of(busy(), "gpu001")).node("gpu001")
    assert node is not None
    for rule, first in (("nvlink.down", "NVLINK"), ("ib.link_downed", "PORT")):
        top = Finding(rule=rule, severity=Severity.CRITICAL, node="gpu001", say="told")
        found = msgspec.structs.replace(node, findings=(top,))
        lines = fabric_node.lines("gpu001", found, UNICODE, 100, NOW)
        words = [line_text(line).split()[:1] for line in lines]
        assert next(word for word in words if word in (["NVLINK"], ["PORT"])) == [first]


def test_gpus_linked_to_each_other_make_a_matrix_of_gpus() -> None:
    """Without switches the columns are the other GPUs, in their order."""
    rows: list[Row] = [
        {"gpu": pci(a), "link": link, "up": True, "remote": "gpu", "remote_pci": pci(b)}
        for a in range(4)
        for link, b in enumerate(b for b in range(4) if b != a)
    ]
    told = Sample(node="gpu001", probe="nvlink_ends", at=NOW, clock=NOW, rows=rows)
    events = [e for e in busy() if not isinstance(e, Sample) or e.probe != "nvlink_ends"]
    lines = panel(read(fleet_of([*events, told], "gpu001")), "gpu001")
    heads = next(line for line in lines if line.startswith("NVLINK"))
    assert heads.split()[-4:] == ["G0", "G1", "G2", "G3"]
    gpu1 = next(line for line in lines if line.startswith("GPU1 ")).split()
    assert gpu1[-4:] == ["1", "–", "1", "1"]


def test_worst_node_first_then_in_order() -> None:
    """By findings about links and ports alone: a hot GPU is no reason here."""
    names = [f"gpu{i:03d}" for i in (1, 2, 3)]
    quiet = [e for name in names[:2] for e in synthetic.slow(name, NOW)]
    table = read(fleet_of([*quiet, *busy("gpu003")], *names))
    assert table.rows(names, NOW) == ["gpu003", "gpu001", "gpu002"]
    assert table.findings("gpu003")[0].rule.startswith("nvlink.")
    assert table.findings("gpu001") == ()


def test_old_readings_are_grey_with_their_age() -> None:
    """A minute later nothing looks as if it were now."""
    table = read(fleet_of(busy(), "gpu001"))
    found = fabric_node.lines("gpu001", table.node("gpu001"), UNICODE, 100, NOW + 60)
    assert "60s old" in line_text(found[0])
    assert {cell.style for line in found[1:] for cell in line} == {"stale"}
    columns = table.columns(160)
    cells = table.cells("gpu001", columns, UNICODE, NOW + 60)
    by_name = {column.name: cell for column, cell in zip(columns, cells, strict=True)}
    assert by_name["links"].style == by_name["received"].style == "stale"


def test_a_frozen_table_does_not_follow_the_fleet() -> None:
    """Drawing reads what was taken in, not what the node says now."""
    fleet = fleet_of(busy(), "gpu001")
    table = read(fleet)
    before = panel(table, "gpu001")
    for event in step("gpu001", NOW + 10, 9):
        fleet.apply(event)
    assert panel(table, "gpu001") == before
    table.update(["gpu001"], NOW + 10)
    assert panel(table, "gpu001") != before


def test_a_node_without_news_about_links_is_not_added_up_again() -> None:
    """GPU readings come each second; links twice a minute."""
    fleet = fleet_of([*busy(), *synthetic.fast("gpu001", NOW, 0)], "gpu001")
    table = read(fleet)
    sums = table.sums("gpu001")
    for event in synthetic.fast("gpu001", NOW + 1, 1):
        fleet.apply(event)
    table.update(["gpu001"], NOW + 1)
    assert table.sums("gpu001") is sums


@given(st.integers(1, 220))
def test_no_line_of_the_panel_is_wider_than_it(width: int) -> None:
    """At any width."""
    table = read(fleet_of(busy(), "gpu001"))
    assert all(cell_len(line) <= width for line in panel(table, "gpu001", width))


def test_hostile_words_are_harmless() -> None:
    """A port's state with a cursor movement, a switch address with a newline."""
    evil = "\x1b[2J\n\u202eDOWN"
    events = synthetic.changed(busy(), "infiniband", "mlx5_1/1", state_text=evil, netdev=evil)
    rows: list[Row] = [{"gpu": pci(0), "link": 0, "up": True, "remote": evil, "remote_pci": evil}]
    events.append(Sample(node="gpu001", probe="nvlink_ends", at=NOW, clock=NOW, rows=rows))
    text = "".join(panel(read(fleet_of(events, "gpu001")), "gpu001", 220))
    assert "\x1b" not in text
    assert "\n" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0, "0"), (0.004, "<.01"), (0.25, "0.25"), (1200.0, "1.2k")]
)
def test_rare_is_not_never(value: float | None, text: str) -> None:
    """One event in five minutes is not 0 a second."""
    assert per_s(value) == text


# ------------------------------------------------------------------ screen


async def shown(c: Console, *keys: str) -> str:
    """The view with one node that has everything."""
    c.engine.feed_all(busy("gpu007"))
    await c.tick()
    await c.press("5", *keys)
    await c.tick()
    return c.text


async def test_the_panel_follows_the_cursor(console: Opener) -> None:
    """And goes through its sizes with `o`."""
    async with console(size=(160, 50)) as c:
        await shown(c)
        screen = c.app.screen
        grid = screen.grid  # type: ignore[attr-defined]
        assert f"─ {grid.cursor} " in c.text
        await c.press("down")
        assert f"─ {grid.cursor} " in c.text
        await c.press("o", "o")
        await c.pilot.pause()
        assert not screen.query_one("#pane").display


async def test_the_jump_finds_nodes_with_trouble(console: Opener) -> None:
    """gpu050 has a port down, gpu007 a link: both, and nobody else."""
    async with console() as c:
        await shown(c)
        grid = c.app.screen.grid  # type: ignore[attr-defined]
        seen = set()
        for _ in range(4):
            await c.press("n")
            seen.add(grid.cursor)
        assert seen == {"gpu007", "gpu050"}


@pytest.mark.parametrize("size", SIZES)
async def test_golden(console: Opener, size: str) -> None:
    """The node with everything is the worst one."""
    async with console(size=SIZES[size]) as c:
        text = await shown(c)
    width, height = SIZES[size]
    assert len(text.splitlines()) == height
    assert all(len(line) <= width for line in text.splitlines())
    compare(f"fabric_{size}", text)


async def test_golden_ascii(console: Opener) -> None:
    """The same facts in ASCII."""
    async with console(size=(160, 50), look=Look(ASCII, Depth(16))) as c:
        text = await shown(c)
    compare("fabric_ascii", text)
    assert "–" not in text
