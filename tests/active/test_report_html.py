"""The HTML report: opens offline, is well-formed, never runs what a node said, stays small."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
import zlib
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from console.active import html, markup, matrix, picture, style, svg
from console.active.results import Campaign, Level, Progress, Verdict
from console.memory.lemon import Lemon
from tests.active import campaigns
from tests.active.strategies import WORDS, any_campaign

ATTACK = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&<style>*{display:none}</style>"
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "section", "h1", "h2", "h3",
    "p", "span", "dl", "dt", "dd", "figure", "figcaption", "div", "table", "thead", "tbody", "tr",
    "th", "td", "ul", "li", "pre", "img", "svg", "g", "rect", "line", "polyline", "circle", "text",
}  # fmt: skip


def tree(page: str) -> ET.Element:
    """The page as XML; raises when it is not well-formed."""
    first, _, rest = page.partition("\n")
    assert first == "<!DOCTYPE html>"
    return ET.fromstring(rest)


def words(element: ET.Element) -> str:
    """All text of an element but the style."""
    return " ".join(
        t
        for part in element.iter()
        if part.tag != "style"
        for t in (part.text or "", part.tail or "")
    )


def check_harmless(page: str) -> ET.Element:
    """Only our elements, no handler, nothing to fetch; HTML's own reader sees the same elements."""
    root = tree(page)
    assert {part.tag for part in root.iter()} <= ALLOWED
    for part in root.iter():
        for name, value in part.attrib.items():
            assert not name.startswith("on")
            assert name not in ("href", "style", "srcset", "action")
            assert name != "src" or value.startswith("data:image/png;base64,")
    assert len(list(root.iter("style"))) == 1
    assert _html_tags(page) == [part.tag for part in root.iter()]
    return root


def _html_tags(page: str) -> list[str]:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            found.append(tag)

    Reader().feed(page)
    return found


@pytest.mark.parametrize("level", campaigns.LEVELS)
def test_each_level_has_its_verdict_its_figures_and_its_charts(level: str) -> None:
    campaign = campaigns.LEVELS[level]()
    root = check_harmless(html.render(campaign))
    told = words(root)
    for verdict in campaign.verdicts:
        if verdict.verdict.rank:
            assert verdict.say in told
            assert verdict.provenance in told
            assert verdict.next_step in told
    assert len(list(root.iter("svg"))) >= 1
    assert all(chart.find("title") is not None for chart in root.iter("svg"))
    assert len(list(root.iter("table"))) >= 1


def test_the_policy_forbids_everything_but_our_style_and_pictures() -> None:
    root = tree(html.render(campaigns.pairs()))
    policies = [
        part.get("content")
        for part in root.iter("meta")
        if part.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_nothing_is_fetched() -> None:
    for name, make in campaigns.LEVELS.items():
        page = html.render(make())
        assert not re.search(r"https?://|//[a-z]|@import|url\(", page), name


def lemon(text: str, points: int = 40) -> Lemon:
    """A node with a past."""
    return Lemon(node=text, points=points, now=0, history=points, reasons=(text,) * 4)


def test_the_past_of_the_nodes_is_told_worst_first() -> None:
    past = {"gpu001": lemon("gpu001", 10), "gpu007": lemon("gpu007", 70), "gpu002": lemon("x", 0)}
    told = words(tree(html.render(campaigns.pairs(), past)))
    first, second = told.index("gpu007: lemon score 70"), told.index("gpu001: lemon score 10")
    assert first < second
    assert "lemon score 0" not in told


def hostile(attack: str) -> Campaign:
    """Every word of a campaign of each kind is the attack."""
    base = campaigns.pairs()
    nodes = (attack, f"{attack}2", f"{attack}3")
    runs = tuple(
        replace(
            run, group=replace(run.group, nodes=(nodes[i % 3], nodes[(i + 1) % 3]), why=attack),
            engine=attack, version=attack, clues=(attack,), error=attack,
            state=Progress.DONE if i % 2 else Progress.FAILED,
        )
        for i, run in enumerate(base.runs)
    )  # fmt: skip
    verdicts = tuple(
        replace(
            v, name=attack, nodes=nodes, say=attack, evidence=(attack,), cause=attack,
            next_step=attack, unit=attack, provenance=attack, expected=1.0,
        )
        for v in base.verdicts
    )  # fmt: skip
    return replace(
        base, id=attack, nodes=nodes, runs=runs, verdicts=verdicts, refused={attack: attack},
        drain=attack, exclude=attack,
    )  # fmt: skip


@pytest.mark.parametrize("level", list(Level))
def test_hostile_words_stay_words(level: Level) -> None:
    campaign = replace(hostile(ATTACK), level=level)
    root = check_harmless(html.render(campaign, {ATTACK: lemon(ATTACK)}))
    assert "<script>alert(1)</script>" in words(root)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_campaign(), st.dictionaries(WORDS, WORDS.map(lambda text: lemon(text)), max_size=2))
def test_any_campaign_makes_a_harmless_page(campaign: Campaign, lemons: dict[str, Lemon]) -> None:
    page = html.render(campaign, lemons)
    check_harmless(page)
    page.encode("utf-8")
    assert not re.search(r'="-?(nan|inf)', page)


@given(st.text())
def test_text_is_escaped_by_construction(text: str) -> None:
    made = markup.tag("p", text, title=text)
    root = ET.fromstring(made)
    assert list(root) == []
    assert root.text == root.get("title") or not (root.text or root.get("title"))


def test_512_nodes_in_every_pair_stay_below_the_bound() -> None:
    page = html.render(campaigns.round_robin(512, slow=("gpu007", "gpu300")))
    assert len(page.encode()) < 1 << 20
    root = check_harmless(page)
    assert [part.get("alt") for part in root.iter("img")] == ["130816 pairs of 512 nodes"]


def test_the_worst_campaign_stays_below_the_bound() -> None:
    nasty = '"' * 400
    nodes = [f"{nasty}{i}" for i in range(60)]
    runs = [
        replace(campaigns.run(pair, 1.0, expect=10.0, why=nasty), clues=(nasty,) * 20, error=nasty)
        for listed in campaigns.rounds(nodes)
        for pair in listed
    ]
    base = hostile(nasty).verdicts[-1]
    verdicts = tuple(replace(base, evidence=(nasty,) * 100, nodes=tuple(nodes)) for _ in range(500))
    campaign = campaigns.campaign(
        Level.PAIRS, nodes, runs, verdicts=verdicts, refused={n: f"{n}{n}" for n in nodes}
    )
    assert len(html.render(campaign, dict.fromkeys(nodes, lemon(nasty))).encode()) < html.MAX_BYTES


def test_the_heat_map_has_a_title_on_every_cell() -> None:
    found = matrix.matrix(campaigns.pairs())
    assert found is not None
    root = ET.fromstring(svg.heat(found))
    titles = [box.findtext("title") for box in root.iter("rect")]
    assert len(titles) == 2 * 28
    assert "gpu001 + gpu007: 22%" in titles
    assert "gpu005 + gpu002: no figure" in titles


def test_the_picture_has_a_pixel_for_each_pair() -> None:
    found = matrix.matrix(campaigns.round_robin(64))
    assert found is not None
    side, pixels = read_png(picture.png(found))
    assert side == 64
    assert {pixels[6][i] for i in range(64) if i != 6} == {4}
    assert {pixels[i][6] for i in range(64) if i != 6} == {4}
    assert pixels[0][0] == 0
    assert {pixels[1][i] for i in range(64) if i not in (1, 6)} == {1}


def read_png(data: bytes) -> tuple[int, list[bytes]]:
    """Side and rows of an 8-bit palette picture, each chunk's checksum checked."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, side, body = 8, 0, b""
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, chunk = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(kind + chunk)
        side = struct.unpack_from(">I", chunk)[0] if kind == b"IHDR" else side
        body += chunk if kind == b"IDAT" else b""
        at += 12 + length
    raw = zlib.decompress(body)
    return side, [raw[i * (side + 1) + 1 : (i + 1) * (side + 1)] for i in range(side)]


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """WCAG 2 contrast ratio."""
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_text_has_contrast_on_its_ground(colours: dict[str, str]) -> None:
    for name in ("ink", "soft", "critical", "warn", "unknown", "info", "ok"):
        for ground in ("ground", "panel"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    for name in ("critical", "warn", "unknown"):
        # A digit is written on the cell in the colour of the page.
        assert contrast(colours["ground"], colours[name]) >= 4.5, name
    assert contrast(colours["bar"], colours["ground"]) >= 2.9


@given(st.floats(1e-9, 1e149))
def test_ticks_reach_the_top_in_few_round_steps(top: float) -> None:
    found = svg.ticks(top)
    assert found[0] == 0
    assert 2 <= len(found) <= 12
    assert found[-1] >= top * (1 - 1e-6)


def test_a_sick_figure_among_many_is_marked() -> None:
    values = [185.0] * 5000 + [40.0]
    drawn = svg.distribution("all", values, [svg.Strip("gpu007", (40.0,))], "GB/s", 185.0)
    root = ET.fromstring(drawn)
    boxes = [(float(b.get("x") or 0), float(b.get("height") or 0)) for b in root.iter("rect")]
    assert len(boxes) == 2
    assert min(high for _, high in boxes) >= 2
    assert [c.findtext("title") for c in root.iter("circle")] == ["gpu007: 40.0 GB/s"]


def test_verdicts_beyond_the_bound_are_counted() -> None:
    base = campaigns.pairs().verdicts[-1]
    many = tuple(replace(base, name=f"n{i}", say=f"n{i} is slow") for i in range(100))
    root = tree(html.render(replace(campaigns.pairs(), verdicts=many)))
    sections = list(root.iter("section"))
    assert len(sections) == 60
    assert "and 40 more, in the JSON" in words(root)


def test_one_verdict_has_its_words_in_order() -> None:
    verdict: Verdict = campaigns.pairs().verdicts[-1]
    root = tree(html.render(campaigns.pairs()))
    section = next(root.iter("section"))
    assert section.get("class") == "verdict critical"
    assert [dt.text for dt in section.iter("dt")][:1] == ["expected"]
    assert verdict.cause in [dd.text for dd in section.iter("dd")]
