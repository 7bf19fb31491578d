"""The view of drift: majorities, odd ones, splits, what is unknown, the site's word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from console.fleet import Fleet
from console.tui.screens.drift import DriftScreen
from console.tui.text import line_text
from console.tui.theme import ASCII, UNICODE, Depth, Look
from console.tui.views.drift import Drift, Row
from inventory.node import Inventory, Node
from probes.event import Event, Sample, Scalar, Severity
from probes.rules import load_rules
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.test_goldens import SIZES, compare

NAMES = [f"gpu{i:03d}" for i in range(1, 9)]
DRIVERS = ["570.86.15", "580.95.05", "555.42.02"]


class World:
    """Eight nodes of one role, each with the versions the test gives it."""

    def __init__(self, overlay: Path | None = None, roles: dict[str, str] | None = None) -> None:
        """`overlay`: the site's word."""
        self.at = synthetic.NOW
        nodes = tuple(Node(name=n, gpus=8, role=(roles or {}).get(n, "compute")) for n in NAMES)
        rules = load_rules(overlay)
        self.fleet = Fleet(Inventory(nodes=nodes), rules, clock=lambda: self.at)
        self.table = Drift(self.fleet)
        self.values: dict[tuple[str, str], dict[str, Scalar | None]] = {}
        """(node, probe) -> metrics instead of the usual ones; None: not told."""
        self.silent: set[str] = set()

    def driver(self, name: str, version: str | None) -> None:
        """What a node runs; None: it cannot tell."""
        self.values[name, "inventory"] = {"driver_version": version}
        self.values[name, "versions"] = {"driver": version}

    def answer(self) -> None:
        """Everybody says everything, and roles are counted."""
        self.at += 20.0
        for name in NAMES:
            if name not in self.silent:
                for event in (*synthetic.slow(name, self.at), *synthetic.fast(name, self.at)):
                    self.fleet.apply(self._said(event))
        for _ in range(3):
            self.fleet.tick(self.at)
        self.table.update(set(NAMES), self.at)

    def _said(self, event: Event) -> Event:
        if not isinstance(event, Sample):
            return event
        other = self.values.get((event.node, event.probe), {})
        told = {k: v for k, v in other.items() if k in event.values}
        kept = {k: told.get(k, v) for k, v in event.values.items()}
        values = {k: v for k, v in kept.items() if v is not None}
        return msgspec.structs.replace(event, values=values) if told else event

    def rows(self, shown: list[str] | None = None) -> list[Row]:
        """The rows."""
        keys = self.table.rows(NAMES if shown is None else shown, self.at)
        return [self.table.row(key) for key in keys]

    def fact(self, name: str) -> Row | None:
        """The row of a fact, if it has one."""
        facts = (row for row in self.rows() if row.kind == "fact" and row.fact is not None)
        return next((row for row in facts if row.fact is not None and row.fact.fact == name), None)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([*DRIVERS, None]), min_size=8, max_size=8))
def test_a_majority_accuses_the_rest_and_a_split_nobody(drivers: list[str | None]) -> None:
    """Against counting by hand; nobody is lost on the way."""
    world = World()
    for name, driver in zip(NAMES, drivers, strict=True):
        world.driver(name, driver)
    world.answer()
    counts = Counter(driver for driver in drivers if driver is not None)
    (value, most), *rest = counts.most_common() or [("", 0)]
    second = rest[0][1] if rest else 0
    clear = most * 2 > counts.total() >= 3 and most >= 2 * second
    row = world.fact("driver")
    unknown = tuple(n for n, d in zip(NAMES, drivers, strict=True) if d is None)
    if counts.total() < 3:
        assert row is None
    elif not clear:
        assert row is not None
        assert row.fact is not None
        assert row.fact.split
        assert row.names == ()
        assert {odd.value: len(odd.names) for odd in row.fact.odd} == dict(counts)
    elif len(counts) == 1 and not unknown:
        assert row is None
    else:
        assert row is not None
        assert row.fact is not None
        odd = tuple(n for n, d in zip(NAMES, drivers, strict=True) if d is not None and d != value)
        assert row.names == (odd or unknown)
        assert (row.fact.usual, row.fact.agreeing, row.fact.total) == (value, most, counts.total())
        assert row.fact.unknown == unknown
        assert row.severity is (Severity.WARN if odd else Severity.UNKNOWN)


def test_the_view_grades_as_the_checks_do() -> None:
    """What warns on a node warns here, and the other way round."""
    world = World()
    world.driver("gpu003", "555.42.02")
    world.values["gpu005", "versions"] = {"kernel": "6.1.0"}
    for _ in range(3):
        world.answer()
    assert any(f.rule == "drift.node" for f in world.fleet.findings["gpu003"])
    found = [f for name in NAMES for f in world.fleet.findings[name] if f.rule == "drift.node"]
    told = {(f.node, f.severity) for f in found}
    assert told == {
        (name, row.severity)
        for row in world.rows()
        if row.kind == "fact" and row.severity is not Severity.UNKNOWN
        for name in row.names
    }


def test_the_sites_word_goes_first(tmp_path: Path) -> None:
    """Most have the wrong driver: the majority is odd, and file and line say who says so."""
    overlay = tmp_path / "site.yaml"
    overlay.write_text("roles:\n  compute: {driver: ['580.95.05']}\n", encoding="utf-8")
    world = World(overlay)
    world.driver("gpu001", "580.95.05")
    world.answer()
    row = world.fact("driver")
    assert row is not None
    assert row.fact is not None
    assert row.names == tuple(NAMES[1:])
    assert (row.fact.usual, row.fact.agreeing) == ("580.95.05", 1)
    assert row.fact.source.endswith("site.yaml:2")
    key = world.table.rows(NAMES, world.at)[0]
    assert "site.yaml:2" in line_text(world.table.why(key, UNICODE, 160))


def test_roles_are_counted_apart() -> None:
    """Two login nodes with another driver are no odd compute nodes."""
    world = World(roles={"gpu007": "login", "gpu008": "login"})
    world.driver("gpu007", "555.42.02")
    world.driver("gpu008", "555.42.02")
    world.answer()
    assert world.fact("driver") is None


def test_a_node_that_told_nothing_has_a_row_and_no_fact_is_blamed_for_it() -> None:
    """One row of unknown, not forty."""
    world = World()
    world.silent = {"gpu004"}
    world.answer()
    rows = world.rows()
    assert [(row.kind, row.names) for row in rows] == [("silent", ("gpu004",)), ("alike", ())]
    assert rows[0].severity is Severity.UNKNOWN


def test_gpus_are_counted_and_named() -> None:
    """One card of 64 with another VBIOS, on the row and below it."""
    world = World()
    world.answer()
    world.fleet.apply(msgspec.structs.replace(_card("gpu002", 5), at=world.at, clock=world.at))
    world.fleet.tick(world.at + 11)
    world.fleet.tick(world.at + 11)
    world.table.update({"gpu002"}, world.at)
    row = world.fact("vbios")
    assert row is not None
    assert row.fact is not None
    assert (row.fact.agreeing, row.fact.total, row.fact.per) == (63, 64, "gpu")
    assert row.names == ("gpu002",)
    key = next(k for k in world.table.rows(NAMES, world.at) if world.table.row(k) is row)
    assert world.table.toggle(key)
    below = [one for one in world.rows() if one.kind == "node"]
    assert [(one.names, one.devices, one.value) for one in below] == [
        (("gpu002",), ("GPU5",), "96.00.74.00.01")
    ]


def _card(name: str, index: int) -> Sample:
    cards = (
        event
        for event in synthetic.slow(name, synthetic.NOW)
        if isinstance(event, Sample)
        and (event.probe, event.device) == ("inventory", synthetic.pci(index))
    )
    card = next(cards)
    values: dict[str, Scalar] = {**card.values, "vbios": "96.00.74.00.01"}
    return msgspec.structs.replace(card, values=values)


def test_a_service_that_runs_nearly_everywhere_is_missed() -> None:
    """As a fact like the others."""
    world = World()
    world.answer()
    rows: list[dict[str, Scalar]] = [{"service": "slurmd", "running": False}]
    seen: dict[str, Scalar] = {"sees_processes": True, "manager": "systemd"}
    world.fleet.apply(
        Sample(node="gpu006", probe="services", at=world.at, clock=1e4, values=seen, rows=rows)
    )
    world.fleet.tick(world.at + 11)
    world.fleet.tick(world.at + 11)
    world.table.update({"gpu006"}, world.at)
    told = {row.fact.label: row.names for row in world.rows() if row.fact is not None}
    assert told["service slurmd"] == ("gpu006",)


@settings(max_examples=20, deadline=None)
@given(st.sets(st.sampled_from(NAMES)), st.integers(40, 200))
def test_rows_follow_the_filter_and_cells_their_columns(some: set[str], width: int) -> None:
    """Counts stay those of the whole role: peers are peers."""
    world = World()
    world.driver("gpu003", "555.42.02")
    world.silent = {"gpu004"}
    world.answer()
    shown = [name for name in NAMES if name in some]
    for key in list(world.table.rows(shown, world.at)):
        world.table.toggle(key)
    columns = world.table.columns(width)
    for key in world.table.rows(shown, world.at):
        assert set(world.table.nodes(key)) <= some
        cells = world.table.cells(key, columns, UNICODE, world.at)
        assert [cell_len(cell.text) for cell in cells] == [c.width for c in columns]
        assert cell_len(line_text(world.table.why(key, UNICODE, width))) <= width
    facts = [row for row in world.rows(shown) if row.kind == "fact"]
    assert bool(facts) == ("gpu003" in some)
    assert all(row.fact is not None and row.fact.total == 7 for row in facts)


# ---------------------------------------------------------------------- on the screen


async def shown(c: Console) -> DriftScreen:
    """Three nodes with an old driver, half the nodes with another kernel."""
    for _ in range(3):
        c.engine.at += 20.0
        c.engine.feed_all(_versions(list(c.engine.fleet.nodes), c.engine.at))
        await c.tick()
        await c.tick()
    await c.press("9")
    screen = c.app.screen
    assert isinstance(screen, DriftScreen)
    return screen


def _versions(names: list[str], at: float) -> Iterator[Event]:
    for i, name in enumerate(names):
        other: dict[str, Scalar] = {"kernel": "6.1.0"} if i % 2 else {}
        old: dict[str, Scalar] = {}
        if name in ("gpu020", "gpu021", "gpu030"):
            other["driver"] = old["driver_version"] = "555.42.02"
        whole = synthetic.changed(synthetic.slow(name, at), "inventory", "", **old)
        told = synthetic.changed(whole, "versions", "", **other)
        if name != "gpu009":
            yield from (e for e in told if _is(e, "versions", "") or _is(e, "inventory", ""))


def _is(event: Event, probe: str, device: str) -> bool:
    return isinstance(event, Sample) and (event.probe, event.device) == (probe, device)


def _fact(screen: DriftScreen, name: str) -> str:
    return next(k for k in screen.grid.order if k.startswith("fact") and f"\x1f{name}\x1f" in k)


async def test_marking_marks_the_odd_ones(console: Opener) -> None:
    """And of a split nobody."""
    async with console() as c:
        screen = await shown(c)
        screen.grid.move_to(_fact(screen, "driver"))
        await c.press("space")
        assert c.app.roster.marked == {"gpu020", "gpu021", "gpu030"}
        await c.press("ctrl+backslash")
        screen.grid.move_to(_fact(screen, "kernel"))
        await c.press("space")
        assert c.app.roster.marked == set()


async def test_enter_unfolds_to_hosts_and_opens_one(console: Opener) -> None:
    """At its finding about drift."""
    async with console() as c:
        screen = await shown(c)
        screen.grid.move_to(_fact(screen, "driver"))
        await c.press("enter", "down", "down", "enter")
        assert getattr(c.app.screen, "node", "") == "gpu021"
        assert getattr(c.app.screen, "selected", None) == ("drift.node", "driver")


async def test_both_sides_of_a_split_can_be_marked(console: Opener) -> None:
    """Below the row, where each side is on its own."""
    async with console() as c:
        screen = await shown(c)
        screen.grid.move_to(_fact(screen, "kernel"))
        await c.press("enter", "down", "space")
        marked = c.app.roster.marked
        assert len(marked) == 32
        assert all(int(name[3:]) % 2 == 0 for name in marked)


@pytest.mark.parametrize("size", SIZES)
async def test_golden(console: Opener, size: str) -> None:
    """An odd driver, a split kernel, a silent node, and what is alike."""
    async with console(size=SIZES[size]) as c:
        screen = await shown(c)
        screen.grid.move_to(_fact(screen, "driver"))
        await c.press("enter")
        compare(f"drift_{size}", c.text)


async def test_golden_ascii(console: Opener) -> None:
    """The same in ASCII."""
    async with console(size=(80, 24), look=Look(ASCII, Depth(16))) as c:
        await shown(c)
        lines = [line[:-1] if len(line) == 80 else line for line in c.text.splitlines()]
        assert all(line.isascii() for line in lines)
        compare("drift_ascii", c.text)
