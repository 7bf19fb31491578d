"""The view of findings: kinds, what unknown nodes become, marks, acknowledging, unfolding."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from console.fleet import Fleet
from console.tui.screens.findings import FindingsScreen
from console.tui.screens.node import NodeScreen
from console.tui.text import line_text
from console.tui.theme import ASCII, UNICODE, Depth, Look
from console.tui.views.finding_words import KindRow
from console.tui.views.findings import Findings
from console.tui.views.hosts import FOLDED, Places, folded, said, tail
from console.tui.views.kinds import UNSEEN, Kind, kind_of, title
from console.tui.widgets.grid import Grid
from inventory.expressions import expand
from inventory.node import Inventory, Node
from inventory.scheduler import Allocation, Job
from probes.event import Finding, NodeState, NodeStatus, Severity
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.test_goldens import SIZES, compare

NAMES = [f"gpu{i:03d}" for i in range(1, 13)]
RULES = ["gpu.lost", "xid.79", "service.down", "storage.readonly", "drift.node"]
DEVICES = ["", "0000:1b:00.0", "0000:2b:00.0", "mlx5_0/1", "slurmd", "/home", "driver"]
FINDINGS = st.builds(
    Finding,
    rule=st.sampled_from(RULES),
    severity=st.sampled_from([Severity.INFO, Severity.WARN, Severity.CRITICAL]),
    node=st.sampled_from(NAMES),
    device=st.sampled_from(DEVICES),
    say=st.text(max_size=12),
    since=st.floats(1, 1000),
    acknowledged=st.booleans(),
    latched=st.booleans(),
)


def fleet(labels: dict[str, dict[str, str]] | None = None) -> Fleet:
    """Nobody was asked yet."""
    told = labels or {}
    nodes = tuple(Node(name=name, gpus=8, labels=told.get(name, {})) for name in NAMES)
    return Fleet(Inventory(nodes=nodes), clock=lambda: 1000.0)


def hold(one: Fleet, found: Iterable[Finding]) -> set[str]:
    """Give the Fleet these findings; the nodes that have any now or had before."""
    lists: dict[str, dict[tuple[str, str], Finding]] = {name: {} for name in one.nodes}
    for finding in found:
        lists[finding.node][finding.rule, finding.device] = finding
    for name, mine in lists.items():
        one.findings[name] = list(mine.values())
    return set(one.nodes)


def shape(table: Findings, shown: list[str]) -> list[tuple[object, ...]]:
    """Rows without the order of equals."""
    rows = [table._by_key[key] for key in table.rows(shown, 1000.0)]
    return [
        (row.kind, row.names, row.severity, len(row.found), row.acknowledged, row.latched)
        for row in rows
        if isinstance(row, KindRow)
    ]


@given(st.lists(FINDINGS, max_size=30), st.sets(st.sampled_from(NAMES)))
def test_every_finding_of_a_shown_node_is_in_one_row(found: list[Finding], some: set[str]) -> None:
    """Folding loses nothing, invents nothing, and shows nothing that the filter hides."""
    one, shown = fleet(), [name for name in NAMES if name in some]
    table = Findings(one)
    table.update(hold(one, found), 1000.0)
    rows = [table.findings(key) for key in table.rows(shown, 1000.0)]
    told = sorted((f.node, f.rule, f.device) for row in rows for f in row)
    real = sorted((f.node, f.rule, f.device) for name in shown for f in one.findings[name])
    assert told == real


@given(st.lists(FINDINGS, max_size=30))
def test_a_node_that_was_not_judged_is_never_missing(found: list[Finding]) -> None:
    """Whatever else it has; nothing here was ever asked."""
    one = fleet()
    table = Findings(one)
    table.update(hold(one, found), 1000.0)
    keys = table.rows(NAMES, 1000.0)
    blind = {n for key in keys for n in table.nodes(key) if key.startswith(UNSEEN)}
    assert blind == set(NAMES)
    assert {table.severity(key) for key in keys if key.startswith(UNSEEN)} == {Severity.UNKNOWN}


@given(st.lists(st.lists(FINDINGS, max_size=12), min_size=1, max_size=5))
def test_news_lead_to_the_same_rows_as_a_first_look(steps: list[list[Finding]]) -> None:
    """However the findings came and went."""
    one = fleet()
    table = Findings(one)
    for found in steps:
        table.update(hold(one, found), 1000.0)
        table.rows(NAMES, 1000.0)
    fresh = Findings(one)
    fresh.update(set(NAMES), 1000.0)
    assert shape(table, NAMES) == shape(fresh, NAMES)


@given(st.lists(FINDINGS, max_size=20))
def test_worst_first_then_most_nodes_then_newest(found: list[Finding]) -> None:
    """The order of the rows."""
    one = fleet()
    table = Findings(one)
    table.update(hold(one, found), 1000.0)
    rows = [table._by_key[key] for key in table.rows(NAMES, 1000.0)]
    kinds = [row for row in rows if isinstance(row, KindRow)]
    places = [(-row.severity.rank, -len(row.names), -row.newest) for row in kinds]
    assert places == sorted(places)


@given(st.lists(FINDINGS, max_size=20), st.integers(30, 250))
def test_cells_are_as_wide_as_their_columns(found: list[Finding], width: int) -> None:
    """Folded and unfolded, whatever a node said."""
    one = fleet()
    table = Findings(one)
    table.update(hold(one, found), 1000.0)
    for key in list(table.rows(NAMES, 1000.0)):
        table.toggle(key)
    columns = table.columns(width)
    for key in table.rows(NAMES, 1000.0):
        cells = table.cells(key, columns, UNICODE, 1000.0)
        assert [cell_len(cell.text) for cell in cells] == [c.width for c in columns]
        assert cell_len(line_text(table.why(key, UNICODE, width))) <= width


@pytest.mark.parametrize(
    ("rule", "device", "what"),
    [
        ("gpu.lost", "0000:1b:00.0", ""),
        ("ib.state", "mlx5_3/1", ""),
        ("service.down", "slurmd", "slurmd"),
        ("storage.hung", "/scratch2", "/scratch2"),
        ("drift.split", "sysctl net.ipv4.tcp_rmem", "sysctl net.ipv4.tcp_rmem"),
        ("drift.gpu", "0000:1b:00.0", ""),
        ("disk.health", "nvme0n1", ""),
    ],
)
def test_a_number_tells_devices_apart_and_a_name_problems(
    rule: str, device: str, what: str
) -> None:
    """Eight lost GPUs are one kind; two services that do not run are two."""
    facts = fleet().nodes["gpu001"]
    finding = Finding(rule=rule, severity=Severity.WARN, node="gpu001", device=device, say="")
    assert kind_of(finding, facts) == Kind(rule, what)


def test_reasons_of_silence_are_kinds_of_their_own() -> None:
    """Refused, timed out and a changed key want different hands."""
    one = fleet()
    for name, state, reason in (
        ("gpu001", NodeState.UNREACHABLE, "timeout"),
        ("gpu002", NodeState.UNREACHABLE, "refused"),
        ("gpu003", NodeState.HOST_KEY_CHANGED, "host_key"),
        ("gpu004", NodeState.HOST_KEY_CHANGED, "host_key"),
        ("gpu005", NodeState.CONNECTING, ""),
    ):
        one.apply(NodeStatus(node=name, at=990.0, state=state, reason=reason, text=reason))
    one.tick(1000.0)
    table = Findings(one)
    table.update(set(NAMES), 1000.0)
    told = {(row[0], row[1]) for row in shape(table, NAMES)}
    assert (Kind("node.unreachable", "timeout"), ("gpu001",)) in told
    assert (Kind("node.unreachable", "refused"), ("gpu002",)) in told
    assert (Kind("node.host_key", ""), ("gpu003", "gpu004")) in told
    assert (Kind(UNSEEN, "connecting"), ("gpu005",)) in told
    assert (Kind(UNSEEN, "pending"), tuple(NAMES[5:])) in told


def test_a_common_rack_is_named_and_chance_is_not() -> None:
    """Four of four in a rack of four of twelve; not two of four."""
    racks = {name: {"rack": f"r{i // 4}"} for i, name in enumerate(NAMES)}
    places = Places(fleet(racks))
    shared = places.shared(NAMES[4:8])
    assert shared is not None
    assert (shared.label, shared.value, shared.inside, shared.asked) == ("rack", "r1", 4, 4)
    assert places.shared(NAMES[2:6]) is None
    assert places.shared(NAMES[4:6]) is None
    assert places.shared(NAMES) is None


def test_a_common_job_is_named_until_it_is_over() -> None:
    """Jobs come and go; nothing is kept of one that ended."""
    one = fleet()
    places = Places(one)

    def runs(names: list[str], *jobs: Job) -> None:
        for name in names:
            told = Allocation(node=name, at=1.0, scheduler="slurm", state="idle", jobs=jobs)
            one.apply(told)
        places.update(names)

    runs(NAMES[2:6], Job(id="812"))
    shared = places.shared(NAMES[2:6])
    assert shared is not None
    assert (shared.label, shared.value) == ("job", "812")
    assert said(shared) == "4 of 4 are in job 812"
    runs(NAMES[2:6])
    assert places.shared(NAMES[2:6]) is None
    assert ("job", "812") not in places._totals


def test_what_tells_kinds_apart_comes_first() -> None:
    """A narrow column cuts the end."""
    rules = fleet().rules
    assert title(Kind("node.unreachable", "timeout"), rules) == "timeout: The node does not answer"
    assert title(Kind("drift.node", "cuda"), rules).startswith("CUDA of the driver: ")
    assert title(Kind("xid.79", ""), rules).startswith("Xid 79 GPU has fallen off")
    assert title(Kind("xid.9999", ""), rules) == "Xid 9999"


def test_the_why_line_names_the_rack() -> None:
    """Where an operator at night looks first."""
    racks = {name: {"rack": f"r{i // 4}"} for i, name in enumerate(NAMES)}
    one = fleet(racks)
    found = [
        Finding(rule="thermal.hw", severity=Severity.CRITICAL, node=name, say="hot", cause="no air")
        for name in NAMES[4:8]
    ]
    table = Findings(one)
    table.update(hold(one, found), 1000.0)
    key = table.rows(NAMES, 1000.0)[0]
    assert line_text(table.why(key, UNICODE, 80)) == "› 4 of 4 are in rack r1  no air"


@given(st.integers(1, 40), st.data())
def test_tail_is_the_hypergeometric_one(total: int, data: st.DataObject) -> None:
    """Against the sum as it is written in the books."""
    inside, drawn = data.draw(st.integers(0, total)), data.draw(st.integers(0, total))
    least = data.draw(st.integers(0, drawn))
    ways = range(least, min(drawn, inside) + 1)
    exact = sum(math.comb(inside, k) * math.comb(total - inside, drawn - k) for k in ways)
    assert tail(least, drawn, inside, total) == pytest.approx(
        exact / math.comb(total, drawn), rel=1e-6, abs=1e-12
    )


@given(st.sets(st.integers(1, 2000), min_size=1, max_size=FOLDED))
def test_folded_names_can_be_read_back(numbers: set[int]) -> None:
    """As long as they are few enough to be folded whole."""
    names = tuple(f"n{number}" for number in sorted(numbers))
    assert expand(folded(names)) == list(names)


def test_very_many_names_are_counted() -> None:
    """Folding 4,000 names of two numbers would hold up a key for 170 ms."""
    names = tuple(f"r{i // 16}n{i % 16}" for i in range(4000))
    assert folded(names).endswith(f",+{4000 - FOLDED}")


# ---------------------------------------------------------------------- on the screen


async def worsened(c: Console) -> None:
    """A memory error on three more nodes, one of them twice acknowledged by nobody."""
    text = "pid='<unknown>', name=<unknown>, Contained memory error"
    for number, name in enumerate(("gpu003", "gpu004", "gpu005")):
        c.engine.feed(synthetic.xid(name, c.engine.at, synthetic.pci(number), 94, text))
    await c.tick()
    await c.press("2")


def table_of(c: Console) -> Findings:
    """The model below the screen shown."""
    screen = c.app.screen
    assert isinstance(screen, FindingsScreen)
    assert isinstance(screen.table, Findings)
    return screen.table


async def to_kind(c: Console, rule: str) -> str:
    """Cursor on the row of a rule."""
    screen = c.app.screen
    assert isinstance(screen, FindingsScreen)
    key = next(key for key in screen.grid.order if key.startswith(rule))
    screen.grid.move_to(key)
    await c.pilot.pause()
    return key


async def test_enter_unfolds_a_kind_and_opens_a_device(console: Opener) -> None:
    """In place, and the node opens at that finding."""
    async with console() as c:
        await worsened(c)
        key = await to_kind(c, "xid.94")
        await c.press("enter")
        assert sum(k.startswith(key) for k in c.app.screen.query_one("#grid", Grid).order) == 4
        await c.press("down", "down", "enter")
        assert isinstance(c.app.screen, NodeScreen)
        assert c.app.screen.node == "gpu004"
        assert c.app.screen.selected == ("xid.94", synthetic.pci(1))
        await c.press("escape", "up", "up", "enter")
        assert table_of(c).unfolded(key) is False


async def test_a_kind_on_one_device_opens_it_at_once(console: Opener) -> None:
    """No empty step in between, and the finding is in sight."""
    async with console(size=(60, 20)) as c:
        await worsened(c)
        await to_kind(c, "xid.79")
        await c.press("enter")
        assert isinstance(c.app.screen, NodeScreen)
        assert c.app.screen.selected == ("xid.79", synthetic.pci(3))
        await c.tick()
        assert "Xid 79" in c.text


async def test_a_kind_is_marked_and_acknowledged_whole(console: Opener) -> None:
    """Its nodes are what an action is about; one notice for all of them."""
    async with console() as c:
        await worsened(c)
        key = await to_kind(c, "xid.94")
        await c.press("space")
        assert c.app.roster.marked == {"gpu003", "gpu004", "gpu005"}
        await to_kind(c, "xid.94")
        await c.press("a")
        assert len(c.app._notifications) == 1
        await c.tick(1)
        assert all(f.acknowledged for f in table_of(c).findings(key))


async def test_the_cursor_stays_on_its_kind(console: Opener) -> None:
    """While worse things appear above it."""
    async with console() as c:
        await worsened(c)
        key = await to_kind(c, "xid.94")
        for name in ("gpu020", "gpu021", "gpu022", "gpu023"):
            c.engine.feed(synthetic.unreachable(name, c.engine.at))
        await c.tick(1)
        assert c.app.screen.query_one("#grid", Grid).cursor == key


async def test_the_filter_is_the_rows(console: Opener) -> None:
    """Kinds of hidden nodes are gone, and counts are of the nodes shown."""
    async with console() as c:
        await worsened(c)
        table = table_of(c)
        await c.press("slash")
        await c.type("node:gpu004")
        await c.press("enter")
        await c.tick(1)
        keys = table.rows(["gpu004"], c.engine.at)
        assert [table.nodes(key) for key in keys] == [("gpu004",)]
        assert "1 kind on one node" in c.text


async def test_a_calm_fleet_says_that_it_was_judged(console: Opener) -> None:
    """An empty table is a statement, so it is made in words."""
    async with console(nodes=4, faults=False) as c:
        for node in c.engine.fleet.nodes:
            c.engine.feed_all(synthetic.slow(node, c.engine.at))
            c.engine.feed_all(synthetic.fast(node, c.engine.at))
        await c.tick()
        await c.press("2")
        assert "no finding on the 4 nodes shown, and each of them was judged" in c.text


async def test_hostile_words_stay_words(console: Opener) -> None:
    """Bidi overrides, escapes and brackets of a node do not reach the terminal."""
    hostile = "\x1b[2J‮[bold]\x07\x1f"
    async with console(nodes=4) as c:
        status = synthetic.unreachable("gpu002", c.engine.at)
        c.engine.feed(msgspec.structs.replace(status, reason=hostile, text=hostile, hint=hostile))
        await c.tick()
        await c.press("2")
        assert all(char.isprintable() or char == "\n" for char in c.text)


@pytest.mark.parametrize("size", SIZES)
async def test_golden(console: Opener, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folded, with one kind open."""
    async with console(size=SIZES[size]) as c:
        await worsened(c)
        await to_kind(c, "xid.94")
        await c.press("enter")
        await c.tick(90)
        compare(f"findings_{size}", c.text)


async def test_golden_ascii(console: Opener) -> None:
    """The same in ASCII."""
    async with console(size=(80, 24), look=Look(ASCII, Depth(16))) as c:
        await worsened(c)
        lines = [line[:-1] if len(line) == 80 else line for line in c.text.splitlines()]
        assert all(line.isascii() for line in lines)
        compare("findings_ascii", c.text)
