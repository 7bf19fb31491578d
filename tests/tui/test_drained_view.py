"""Nodes out of work: whose, since when, what was found then, whether they may go back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import evidence, since
from console.audit import who
from console.fleet import Fleet
from console.settings import private
from console.since import Before, of_drain
from console.tui.screens.drained import DrainedScreen
from console.tui.theme import ASCII, UNICODE, Depth, Look
from console.tui.views.drained import DrainedTable
from console.tui.views.drained_judge import Was, advise, gone, whose, work
from inventory.errors import UsageError
from inventory.scheduler import KEPT, MARKER, Allocation, Job
from probes.event import Finding, Row, Sample, Scalar, Severity
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.synthetic import NOW
from tests.tui.test_goldens import SIZES, _utc, compare, settled

__all__ = ["_utc"]
OURS = f"{MARKER} xid 79"


def out(node: str = "gpu001", state: str = "drained", **more: object) -> Allocation:
    told = {"reason": OURS, "reason_by": "root", "reason_at": NOW - 3600, "raw": state.upper()}
    return Allocation(node=node, at=NOW, scheduler="memory", state=state, **{**told, **more})  # type: ignore[arg-type]


def finding(say: str = "GPU3 is lost", rule: str = "gpu.lost", **more: object) -> Finding:
    told = {"severity": Severity.CRITICAL, "next_step": "reseat it", **more}
    return Finding(rule=rule, node="gpu001", say=say, **told)  # type: ignore[arg-type]


def was(*found: Finding, passed: bool | None = None) -> Was:
    """With a bundle of the time of the drain."""
    manifest = evidence.Manifest(
        schema=1, node="gpu001", at=NOW - 3600, by=who(), why="drain", answered=True, note="",
        verdict=Severity.CRITICAL, files=[],
    )  # fmt: skip
    known = evidence.Known(samples=[], kernel=[], status=None)
    return Was(Before(manifest, known, list(found)), passed)


# ------------------------------------------------------------------ whose decision


@pytest.mark.parametrize(
    ("told", "word", "foreign"),
    [
        (out(), "ours", False),
        (out(reason=f"{MARKER} x{KEPT}mara: bad DIMM)"), "shared", True),
        (out(reason="NHC: check_fs_mount", reason_by="root"), "tool", True),
        (out(reason="Not responding", reason_by="slurm", state="down"), "Slurm", False),
        (out(reason="Kill task failed", reason_by="root"), "Slurm", False),
        (out(reason="RMA 8817", reason_by="dcops"), "person", True),
        (out(reason="RMA 8817", reason_by="root"), "root", True),
        (out(reason="RMA", reason_by=""), "unknown", True),
        (out(reason="", reason_by="", state="down"), "itself", False),
    ],
)
def test_whose(told: Allocation, word: str, foreign: bool) -> None:
    assert whose(told) == (word, foreign)


# ------------------------------------------------------------------ what still runs


def run(fleet: Fleet, *rows: Row) -> None:
    fleet.apply(Sample(node="gpu001", probe="processes", at=NOW, rows=list(rows)))


def test_what_runs_and_whether_it_is_safe() -> None:
    fleet = Fleet(synthetic.inventory(1), clock=lambda: NOW)
    facts = fleet.nodes["gpu001"]
    busy = out(state="draining", jobs=(Job(id="812"), Job(id="813")))
    assert work(busy, facts, True) == ("812,813", False)
    assert work(out(state="draining"), facts, True) == ("ending", False)
    assert work(out(), facts, True) == ("no job", True)
    assert work(out(state="down"), facts, True) == ("no job", None), "nobody can say"
    run(fleet, {"pid": 7, "alive": True}, {"pid": 7, "alive": True}, {"pid": 8, "ours": True})
    assert work(out(), facts, True) == ("1 process", False)
    assert work(out(), facts, False) == ("no job", True), "what it said long ago does not count"
    run(fleet, {"pid": 8, "ours": True}, {"pid": 9, "alive": False})
    assert work(out(), facts, True) == ("nothing", True)


# ------------------------------------------------------------------ whether it may go back

LOST = finding()


@pytest.mark.parametrize(
    ("told", "verdict", "found", "then", "changes", "word"),
    [
        (out(state="off"), Severity.OK, [], None, [], "off"),
        (out(state="draining"), Severity.CRITICAL, [LOST], None, [], "wait"),
        (out(), Severity.CRITICAL, [LOST], was(LOST), ["rebooted since"], "no"),
        (out(), Severity.UNKNOWN, [], was(LOST), ["rebooted since"], "no"),
        (out(reason="RMA", reason_by="mara"), Severity.OK, [], was(LOST), ["rebooted"], "ask"),
        (out(), Severity.OK, [], None, [], "read"),
        (out(), Severity.OK, [], Was(None, None), [], "test"),
        (out(), Severity.OK, [], Was(None, True), [], "yes"),
        (out(), Severity.OK, [], was(LOST, passed=False), ["rebooted since"], "no"),
        (out(), Severity.OK, [], was(LOST), ["rebooted since"], "yes"),
        (out(), Severity.OK, [], was(LOST), [], "test"),
        (out(reason=f"{MARKER} slow"), Severity.OK, [], was(LOST), ["rebooted"], "test"),
        (out(reason=f"{MARKER} slow"), Severity.OK, [], was(LOST, passed=True), [], "yes"),
    ],
)
def test_advice(
    told: Allocation, verdict: Severity, found: list[Finding], then: Was | None,
    changes: list[str], word: str,
) -> None:  # fmt: skip
    advice = advise(told, verdict, found, then, changes)
    assert advice.word == word
    assert (word == "yes") == (advice.severity is Severity.OK), "only a yes looks like one"


SEVERITIES = st.sampled_from(list(Severity))


@given(
    verdict=SEVERITIES, state=st.sampled_from(["drained", "draining", "down"]),
    by=st.sampled_from(["root", "mara", "", "slurm"]),
    reason=st.sampled_from([OURS, f"{MARKER} slow", "RMA", "NHC: x", ""]),
    then=st.sampled_from([None, Was(None, None), Was(None, True), Was(None, False), was(LOST)]),
    changes=st.sampled_from([[], ["rebooted since"]]), jobs=st.booleans(),
)  # fmt: skip
def test_never_yes_while_anything_stands_against_it(
    verdict: Severity, state: str, by: str, reason: str, then: Was | None, changes: list[str],
    jobs: bool,
) -> None:  # fmt: skip
    told = out(
        state=state, reason=reason, reason_by=by, jobs=(Job(id="1"),) if jobs else ()
    )  # fmt: skip
    if advise(told, verdict, [], then, changes).severity is Severity.OK:
        assert verdict.rank < Severity.WARN.rank
        assert not jobs
        assert state != "draining"
        assert not whose(told).foreign
        assert then is not None
        assert then.passed or (then.before is not None and changes)


def test_gone_is_what_is_not_found_any_more() -> None:
    assert gone([LOST], [])
    assert not gone([LOST], [LOST])
    assert gone([LOST], [msgspec.structs.replace(LOST, latched=True)]), "no longer seen"
    assert gone([finding(severity=Severity.INFO)], [finding(severity=Severity.INFO)])


def test_a_bundle_of_another_drain_is_not_then(tmp_path: Path) -> None:
    folder = tmp_path
    for stamp in ("20251101T000000Z", "20251129T060600Z", "20251129T080000Z"):
        (folder / f"gpu001-{stamp}.tar.gz").touch()
    chosen = of_drain("gpu001", folder, NOW - 40)  # 07:06:00
    assert chosen is None or "20251129T060600Z" in chosen.name
    assert of_drain("gpu001", folder, NOW - 3600) == folder / "gpu001-20251129T060600Z.tar.gz"
    assert of_drain("gpu001", folder, NOW - 86400) is None
    assert of_drain("gpu001", folder, None) == folder / "gpu001-20251129T080000Z.tar.gz"


# ------------------------------------------------------------------ order


@given(st.lists(st.one_of(st.none(), st.integers(0, 1000)), min_size=1, max_size=12))
def test_longest_first_and_the_other_way(ages: list[int | None]) -> None:
    """Those of unknown age come last either way."""
    fleet = Fleet(synthetic.inventory(len(ages)), clock=lambda: NOW)
    table = DrainedTable(lambda: fleet)
    for name, age in zip(fleet.nodes, ages, strict=True):
        fleet.apply(out(name, reason_at=None if age is None else NOW - age))
    table.update(list(fleet.nodes), NOW)
    by_name = dict(zip(fleet.nodes, ages, strict=True))
    known = sorted(age for age in ages if age is not None)
    unknown: list[int | None] = [None] * ages.count(None)
    shown = [by_name[name] for name in table.rows(list(fleet.nodes), NOW)]
    assert shown == [*reversed(known), *unknown]
    table.sort_by()
    assert [by_name[name] for name in table.rows(list(fleet.nodes), NOW)] == [*known, *unknown]


def test_a_node_back_in_work_goes() -> None:
    fleet = Fleet(synthetic.inventory(2), clock=lambda: NOW)
    table = DrainedTable(lambda: fleet)
    assert "not known" in table.empty
    fleet.apply(out())
    table.update(["gpu001"], NOW)
    assert table.rows(["gpu001", "gpu002"], NOW) == ["gpu001"]
    assert table.rows(["gpu002"], NOW) == [], "the filter decides"
    fleet.apply(out(state="idle", reason=""))
    table.update(["gpu001"], NOW)
    assert table.rows(["gpu001"], NOW) == []
    assert table.empty == "no node is out of work"
    with pytest.raises(UsageError, match="longest newest ready"):
        table.sort_by("oldest")


def test_hostile_reasons_move_no_cursor() -> None:
    fleet = Fleet(synthetic.inventory(1), clock=lambda: NOW)
    table = DrainedTable(lambda: fleet)
    fleet.apply(out(reason="\x1b[2J\r\n\u202ex", reason_by="\x1b]0;x\x07"))
    table.was["gpu001"] = was(finding("\x1b[31mred"))
    table.update(["gpu001"], NOW)
    for width in (60, 200):
        cells = table.cells("gpu001", table.columns(width), UNICODE, NOW)
        text = "".join(cell.text for cell in (*cells, *table.why("gpu001", UNICODE, width)))
        assert text.isprintable()


# ------------------------------------------------------------------ the screen


def feed(c: Console) -> None:
    c.engine.feed_all(
        [
            out("gpu017", reason=f"{MARKER} xid 79", reason_at=NOW - 7200),
            out("gpu020", reason="RMA 8817: riser swap", reason_by="dcops",
                reason_at=NOW - 9 * 86400),
            out("gpu021", state="down", reason="Not responding", reason_by="slurm",
                reason_at=NOW - 600),
            out("gpu022", reason="NHC: check_fs_mount", reason_at=NOW - 60000),
            out("gpu019", state="draining", reason=f"{MARKER} slow", reason_at=NOW - 60,
                jobs=(Job(id="812", user="alice", nodes=4),)),
            out("gpu024", reason=f"{MARKER} row remap", reason_at=None),
        ]
    )  # fmt: skip


async def opened(c: Console) -> DrainedScreen:
    await c.press("8")
    await c.until(lambda: isinstance(c.app.screen, DrainedScreen))
    screen = c.app.screen
    assert isinstance(screen, DrainedScreen)
    await c.tick()
    await c.until(lambda: not screen.model.wanted() and not screen._reading)
    await c.tick()
    return screen


async def test_then_and_now_of_a_node_that_was_mended(console: Opener) -> None:
    """A real bundle of the time of the drain; since then another driver."""
    async with console(faults=False) as c:
        c.engine.feed_all([*synthetic.slow("gpu002", NOW), *synthetic.fast("gpu002", NOW)])
        c.app.fleet.findings["gpu002"] = [msgspec.structs.replace(LOST, node="gpu002")]
        kept = evidence.write(c.engine, "gpu002", {}, "", "drain", private(c.engine.bundles))
        at = since.read(Path(kept.path)).manifest.at
        c.engine.at = at + 900
        c.app.fleet.findings["gpu002"] = []
        driver: dict[str, Scalar] = {"driver_version": "580.95.05", "pci_gpu_count": 8}
        later = [*synthetic.slow("gpu002", at + 900), *synthetic.fast("gpu002", at + 900)]
        c.engine.feed_all(later)
        c.engine.feed(Sample(node="gpu002", probe="inventory", at=at + 900, values=driver))
        c.engine.feed(out("gpu002", reason_at=at + 5))
        screen = await opened(c)
        assert "GPU3 is lost" in screen.model._then("gpu002")
        advice = screen.model.advice("gpu002", c.engine.at)
        assert (advice.word, advice.why) == (
            "yes", "fixed since: driver 570.86.15 then, 580.95.05 now",
        )  # fmt: skip
        assert "fixed since: driver" in c.text


async def test_resume_of_the_row(console: Opener) -> None:
    async with console() as c:
        scheduler = c.engine.schedulers["memory"]
        async for _ in scheduler.drain(["gpu030"], "bad DIMM"):
            pass
        await c.engine.refresh()
        screen = await opened(c)
        assert screen.grid.order == ["gpu030"]
        await c.press("U")
        await c.until(lambda: getattr(c.app.screen, "phase", "") == "ready")
        await c.press("y")
        await c.until(lambda: getattr(c.app.screen, "phase", "") == "over")
        await c.press("escape")
        await c.tick(1)
        assert c.app.screen is screen
        assert screen.grid.order == []


async def test_orders_by_key(console: Opener) -> None:
    async with console() as c:
        feed(c)
        screen = await opened(c)
        assert screen.grid.order[0] == "gpu020"
        await c.press("S")
        assert screen.grid.order[0] == "gpu019"
        assert "newest first" in c.text


@pytest.mark.parametrize("size", SIZES)
async def test_golden(console: Opener, size: str) -> None:
    async with console(size=SIZES[size]) as c:
        feed(c)
        await opened(c)
        compare(f"drained_{size}", await settled(c, ()))


async def test_golden_ascii(console: Opener) -> None:
    async with console(size=(80, 24), look=Look(ASCII, Depth(16))) as c:
        feed(c)
        await opened(c)
        text = await settled(c, ())
    assert text.isascii()
    compare("drained_ascii", text)
