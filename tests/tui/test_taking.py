"""Copies, screenshots and news: what leaves the screen is bounded, whole and harmless."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.fleet import Fleet
from console.preferences import Preferences
from console.tui import copying, shots
from console.tui.announce import RING_EVERY_S, SETTLING_S, SHOWN_S, Announcer, line, notice
from console.tui.screens.fleet import FleetScreen
from console.tui.screens.node import NodeScreen
from console.tui.theme import UNICODE
from inventory.node import Inventory, Node
from probes.event import Finding, NodeStatus, Severity
from tests.tui import synthetic
from tests.tui.conftest import Console, Opener
from tests.tui.synthetic import NOW, pci

HOSTILE = "a|b`c\x1b]0;x\x07[d](http://e)<f>\u202e#g"


def sick(name: str = "gpu017") -> Fleet:
    """The faulty fleet, judged."""
    inventory = synthetic.inventory(64)
    engine = synthetic.LocalEngine(inventory, None)
    engine.feed_faults(inventory)
    return engine.fleet


def copied(form: str, fleet: Fleet, names: list[str]) -> str:
    """These nodes in a form, by version 9.9."""
    parts = [copying.part(form, fleet, name, NOW, "9.9") for name in names]
    return copying.whole(form, parts, fleet.inventory.cluster, NOW, "9.9")


def test_json_is_the_document_of_these_nodes() -> None:
    """As --json writes them, with the version and the cluster."""
    text = copied("json", sick(), ["gpu017", "gpu001"])
    told = msgspec.json.decode(text)
    assert [node["name"] for node in told["nodes"]] == ["gpu017", "gpu001"]
    assert told["nodes"][0]["verdict"] == "critical"
    assert told["nodes"][0]["findings"][0]["rule"] == "gpu.lost"
    assert (told["cluster"], told["console"], told["at"]) == ("lab", "9.9", NOW)


def test_a_ticket_has_all_an_engineer_asks() -> None:
    """Node, verdict, finding, since when, evidence, cause, next step, version."""
    fleet = sick()
    finding = fleet.findings["gpu017"][0]
    text = copied("markdown", fleet, ["gpu017"])
    assert text.startswith("### gpu017 (lab): critical\n")
    for wanted in (finding.rule, *finding.evidence, finding.cause, finding.next_step):
        assert wanted in text
    assert "- since 2025-11-29 07:06:" in text
    assert "gpuconsole 9.9, 2025-11-29 07:06:40 UTC" in text


def test_many_nodes_are_many_chapters() -> None:
    """In the order that was asked for."""
    names = ["gpu050", "gpu017", "gpu001"]
    text = copied("markdown", sick(), names)
    assert re.findall(r"^### (\w+)", text, re.MULTILINE) == names
    assert "no findings" in text


@given(st.text(max_size=80))
def test_no_node_writes_markdown_of_its_own(told: str) -> None:
    """Links, tags, headings and control characters stay text."""
    fleet = Fleet(Inventory(nodes=(Node(name="n1"),)), clock=lambda: NOW)
    hostile = HOSTILE + told
    fleet.apply(synthetic.hostile_status("n1", NOW, hostile))
    fleet.findings["n1"] = [
        Finding(node="n1", rule="x.y", severity=Severity.WARN, say=hostile, cause=hostile,
                evidence=(hostile,), next_step=hostile)
    ]  # fmt: skip
    text = copying.markdown(fleet, "n1", NOW, "1")
    assert all(char.isprintable() or char == "\n" for char in text)
    for row in text.splitlines():
        if row.startswith("- evidence: "):
            assert row.count("`") == 2
            continue
        bare = re.sub(r"\\.", "", row)
        assert not re.search(r"\]\(|<\w", bare)
    assert sum(row.startswith("#") for row in text.splitlines()) == 1


@pytest.mark.parametrize("environ", [{}, {"TMUX": "x,1,0"}, {"STY": "1.pts"}])
@given(text=st.text(max_size=3000))
def test_osc52_carries_the_text_whole(environ: dict[str, str], text: str) -> None:
    """Through tmux and screen too, whose wrapping comes off again."""
    sent = copying.osc52(text, environ)
    if "TMUX" in environ:
        plainly, _, wrapped = sent.partition("\x1bPtmux;")
        assert wrapped.removesuffix("\x1b\\").replace("\x1b\x1b", "\x1b") == plainly
        sent = plainly
    if "STY" in environ:
        parts = re.findall(r"\x1bP(.*?)\x1b\\", sent, re.DOTALL)
        assert all(len(part) <= copying.SCREEN_PART for part in parts)
        sent = "".join(parts)
    assert sent.startswith("\x1b]52;c;")
    assert base64.b64decode(sent[7:-1]).decode() == text


def test_too_much_is_not_sent() -> None:
    """A terminal would cut it without a word."""
    assert copying.osc52("x" * 100_000, {}) == ""
    assert copying.osc52("x" * 13_000, {})
    assert copying.osc52("x" * 13_000, {"TMUX": "x,1,0"}) == ""
    assert len(copying.osc52("x" * 12_000, {"TMUX": "x,1,0"}).partition("\x1bP")[0]) < 16_383


def notices(c: Console, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the app says from now on; a test run shows no toasts."""
    said: list[str] = []
    monkeypatch.setattr(c.app, "notify", lambda message, **_: said.append(message))
    return said


async def test_copy_of_a_cluster_goes_to_a_file(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON of all nodes is too long for a terminal: its path is told, and all are in it."""
    async with console(size=(120, 40)) as c:
        said = notices(c, monkeypatch)
        await c.press("colon", *"mark", "space", *"all", "enter")
        await c.press("colon", *"copy", "space", *"json", "enter")
        folder = c.engine.state / "copies"
        await c.until(lambda: folder.is_dir() and any(folder.iterdir()))
        await c.until(lambda: "written to" in said[-1])
        (path,) = folder.iterdir()
        assert len(msgspec.json.decode(path.read_bytes())["nodes"]) == 64
        assert path.stat().st_mode & 0o077 == 0


async def test_the_menu_copies_a_ticket(console: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """c, then m: the clipboard has the markdown of this node."""
    async with console(size=(80, 24)) as c:
        c.app.open_node("gpu017")
        await c.pilot.pause()
        said = notices(c, monkeypatch)
        await c.press("c")
        assert "copy gpu017 as" in c.text
        await c.press("m")
        await c.until(lambda: bool(said))
        assert said == ["copied gpu017 as markdown"]
        assert c.app.clipboard.startswith("### gpu017")
        await c.press("c", "escape")
        assert isinstance(c.app.screen, NodeScreen)


async def test_a_form_that_is_none_is_refused(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with what to write instead."""
    async with console(size=(80, 24)) as c:
        said = notices(c, monkeypatch)
        await c.press("colon", *"copy", "space", *"xml", "enter")
        await c.until(lambda: "no form 'xml'" in f"{said} {c.text}")
        assert c.app.clipboard == ""


async def test_a_screenshot_is_the_screen(console: Opener) -> None:
    """SVG and text, in the state directory, private; again in the same second makes others."""
    async with console(size=(80, 24)) as c:
        before = c.text
        await c.press("ctrl+s")
        folder = c.engine.state / "screenshots"
        await c.until(lambda: len(list(folder.glob("*"))) == 2)
        text = next(folder.glob("*.txt"))
        assert text.read_text() == before
        svg = next(folder.glob("*.svg")).read_text()
        drawn = "".join(ET.fromstring(svg).itertext()).replace("\xa0", " ")
        assert "gpu017" in drawn
        assert "@font-face" not in svg, "whoever looks at it fetches nothing"
        await c.press("ctrl+s")
        await c.until(lambda: len(list(folder.iterdir())) == 4)
        assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


async def test_a_screenshot_goes_where_it_is_told_and_overwrites_nothing(
    console: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`:screenshot text PATH`."""
    async with console(size=(80, 24)) as c:
        said = notices(c, monkeypatch)
        path = tmp_path / "mine.txt"
        line = f"screenshot text {path}"
        assert isinstance(c.app.screen, FleetScreen)
        c.app.screen.carry_out(line)
        assert "gpu017" in path.read_text()
        c.app.screen.carry_out(line)
        assert said == [f"screenshot: {path}", f"{path}: File exists"]


@given(st.text(min_size=1, max_size=200))
def test_names_cannot_leave_the_folder(stem: str) -> None:
    """Whatever a node is called."""
    name = shots.stem_of(stem, NOW)
    assert re.fullmatch(r"[\w+-][\w.+-]*", name, re.ASCII)
    assert name.endswith("-20251129T070640Z")


def fault(node: str = "gpu001", rule: str = "xid.79", say: str = "GPU4: Xid 79") -> Finding:
    return Finding(node=node, rule=rule, severity=Severity.CRITICAL, say=say)


class Desk:
    """An announcer over nodes that answered long ago, and its clock."""

    def __init__(self, first: float | None = NOW - SETTLING_S) -> None:
        self.now = NOW
        self.announcer = Announcer(lambda _node: first, lambda: self.now)

    def told(self, *, paused: bool = False) -> str:
        news = self.announcer.news(UNICODE, self.now, paused=paused)
        return news.text if news else ""


def test_a_new_finding_is_told_for_some_seconds() -> None:
    desk = Desk()
    desk.announcer.heard(fault())
    assert desk.told() == "new: ✗ gpu001 GPU4: Xid 79"
    desk.now += SHOWN_S - 1
    assert desk.told()
    desk.now += 2
    assert desk.told() == ""


@pytest.mark.parametrize("first", [None, NOW, NOW - SETTLING_S + 1])
def test_what_was_there_when_the_node_was_first_seen_is_not_news(first: float | None) -> None:
    desk = Desk(first)
    desk.announcer.heard(fault())
    assert desk.told() == ""
    assert desk.announcer.ring(desk.now) == ""


def test_what_is_acknowledged_over_or_seen_is_no_news() -> None:
    desk = Desk()
    replace = msgspec.structs.replace
    for change in ({"acknowledged": True}, {"latched": True}, {"severity": Severity.OK}):
        desk.announcer.heard(fault())
        desk.announcer.heard(replace(fault(), **change))
        assert desk.told() == ""
    desk.announcer.heard(fault())
    desk.announcer.saw("gpu001")
    assert desk.told() == ""


def test_a_storm_is_one_announcement_and_one_bell() -> None:
    desk = Desk()
    for number in range(500):
        desk.announcer.heard(fault(f"gpu{number:03d}"))
    assert desk.told() == "new: ✗ xid.79 on gpu[000-499]"
    assert desk.announcer.ring(desk.now) == "new: xid.79 on gpu[000-499]"
    for number in range(500):
        desk.announcer.heard(fault(f"gpu{number:03d}", rule="gpu.lost", say="lost"))
    desk.now += RING_EVERY_S - 1
    assert desk.announcer.ring(desk.now) == ""
    desk.now += 1
    assert desk.announcer.ring(desk.now) == "new: gpu.lost on gpu[000-499]"


def test_while_paused_only_a_count_and_then_the_news() -> None:
    desk = Desk()
    desk.announcer.heard(fault())
    desk.announcer.heard(fault("gpu002"))
    assert desk.told(paused=True) == "2 new"
    assert desk.announcer.ring(desk.now, paused=True) == ""
    desk.now += 600
    assert desk.told(paused=True) == "2 new"
    desk.announcer.saw("gpu001")  # as it was before the pause
    assert desk.told() == "new: ✗ xid.79 on gpu[001-002]"
    desk.now += SHOWN_S + 1
    assert desk.told() == ""


def test_a_pause_counts_what_comes_in_it() -> None:
    """Not what was told a moment before."""
    desk = Desk()
    desk.announcer.heard(fault())
    assert desk.told()
    desk.announcer.hold()
    assert desk.told(paused=True) == ""
    desk.announcer.heard(fault("gpu002"))
    assert desk.told(paused=True) == "1 new"


@given(st.text(max_size=100), st.sampled_from(["osc9", "osc777", "off"]))
def test_a_notice_is_one_sequence(say: str, kind: str) -> None:
    """What a node says cannot end it or begin another."""
    sent = notice(kind, line([fault(say=say)], None))
    if kind == "off":
        assert sent == ""
        return
    assert sent[0] == "\x1b"
    assert sent[-1] == "\x07"
    assert all(char.isprintable() for char in sent[1:-1])
    assert sent.count(";") == (1 if kind == "osc9" else 3)


async def news_of(c: Console) -> None:
    """A GPU is lost long after the start."""
    await c.tick(SETTLING_S + 5)
    name = "gpu030"
    for _ in range(4):
        at = c.engine.at + 2
        c.engine.feed_all(synthetic.lost(synthetic.fast(name, at), pci(2)))
        await c.tick(2)


async def test_the_status_line_flashes_and_calms_down(console: Opener) -> None:
    """On the fleet; opening the node is seeing it."""
    async with console(size=(160, 30)) as c:
        assert "new:" not in c.text
        await news_of(c)
        assert "new: ✗ gpu030" in c.text.splitlines()[0]
        c.app.open_node("gpu030")
        await c.pilot.pause()
        await c.press("escape")
        assert "new:" not in c.text


async def test_a_node_screen_tells_news_of_others(console: Opener) -> None:
    """At the end of its key line."""
    async with console(size=(160, 30)) as c:
        c.app.open_node("gpu017")
        await c.pilot.pause()
        await news_of(c)
        assert "new: ✗ gpu030" in c.text.splitlines()[-1]


async def test_bell_and_notice_are_of_the_preferences(
    console: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off unless wished for."""
    for wish, expected in (
        (Preferences(), ["", ""]),
        (Preferences(bell=True, notify="osc9"), ["\a", "\x1b]9;"]),
    ):
        async with console(size=(160, 30), preferences=wish) as c:
            sent: list[str] = []
            monkeypatch.setattr(c.app, "escape", sent.append)
            await news_of(c)
        rung = [text for text in sent if text]
        assert [text[: len(e)] for text, e in zip(rung, filter(None, expected), strict=True)] == [
            e for e in expected if e
        ]


def test_ages_in_the_problems_panel_go_on() -> None:
    """The panel tells a finding as it is now; of one that is over no age that stands still."""
    from console.tui import bars
    from console.tui.text import line_text

    then = fault(say="GPU4: Xid 79, 1 s ago")
    now = msgspec.structs.replace(then, say="GPU4: Xid 79, 14 s ago")
    entries: list[tuple[int, float, Finding | NodeStatus]] = [(1, NOW, then)]
    told = bars.stream(entries, UNICODE, 80, 3, {"gpu001": [now]})
    assert "14 s ago" in line_text(told[1])
    gone = bars.stream(entries, UNICODE, 80, 3, {})
    assert "ago" not in line_text(gone[1])
    assert "Xid 79" in line_text(gone[1])
