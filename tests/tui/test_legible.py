"""Every view at every size, in both languages: nothing cut in the middle, nothing too wide."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from console.tui import bars, plan_view, view, words
from console.tui.app import ConsoleApp
from console.tui.summary import Summary
from console.tui.text import cut, fit, line_text, plain, wrap
from console.tui.theme import UNICODE
from console.tui.views import VIEW_IDS
from console.tui.widgets.grid import Grid
from console.tui.widgets.sheet import Lines
from console.tui.words import t
from probes.event import Finding, NodeState, NodeStatus, Severity
from tests.tui.conftest import Console, Opener
from tests.tui.test_goldens import SCREENS, SIZES, compare, settled

EVERY_SIZE = ((60, 20), (72, 24), (80, 24), (100, 30), (120, 40), (160, 50), (200, 60), (250, 70))
WIDE = st.text("ab1-节点服务器计算é한ﾊｶ（", min_size=1, max_size=30)
"""Narrow, wide and half-width characters, one that takes two cells by itself, a combining one."""


@pytest.fixture(params=words.LANGUAGES)
def language(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each language once."""
    words.use(request.param)
    yield request.param
    words.use("en")


def too_wide(app: ConsoleApp) -> list[str]:
    """Lines that are longer than what shows them, and titles longer than their column."""
    found = []
    for lines in app.screen.query(Lines).results():
        width = lines.size.width
        found += [
            f"{width}: {line_text(line)}"
            for line in lines.lines
            if cell_len(line_text(line)) > width > 0
        ]
    for grid in app.screen.query(Grid).results():
        chosen = grid._columns
        room = sum(column.width for column in chosen) + len(chosen) - 1
        found += [f"{grid.size.width}: {room} of columns"] if room > grid.size.width else []
        found += [
            f"{column.title!r} in {column.width}"
            for column in chosen
            if cell_len(t(column.title)) > column.width
        ]
    return found


async def at_every_size(c: Console) -> list[tuple[tuple[int, int], list[str]]]:
    """What is too wide at each size."""
    found = []
    for width, height in EVERY_SIZE:
        await c.pilot.resize_terminal(width, height)
        await c.tick(1.0)
        found.append(((width, height), too_wide(c.app)))
    return found


@pytest.mark.parametrize("name", VIEW_IDS)
async def test_view(console: Opener, language: str, name: str) -> None:
    """Columns go as a whole, titles and bars fit, at each size from the smallest to the largest."""
    async with console() as c:
        c.app.go(name)
        await c.tick(1.0)
        assert [case for case in await at_every_size(c) if case[1]] == []


@pytest.mark.parametrize("name", ["node", "confirm", "help", "sort"])
async def test_dialog(console: Opener, language: str, name: str) -> None:
    """The same of the screens over a view."""
    async with console() as c:
        await settled(c, SCREENS[name])
        assert [case for case in await at_every_size(c) if case[1]] == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", ["fleet", "node", "confirm", "help"])
async def test_in_chinese(console: Opener, screen: str, size: str) -> None:
    """Whole screens in Chinese."""
    words.use("zh")
    try:
        async with console(size=SIZES[size]) as c:
            text = await settled(c, SCREENS[screen])
    finally:
        words.use("en")
    assert all(cell_len(line) <= SIZES[size][0] for line in text.splitlines())
    compare(f"zh_{screen}_{size}", text)


@given(WIDE, st.integers(0, 40))
def test_wide_characters_are_aligned(text: str, width: int) -> None:
    """Two cells each, never half of one."""
    shown = plain(text)
    assert cell_len(fit(shown, width)) == width
    assert cell_len(fit(shown, width, "right")) == width
    assert cell_len(cut(shown, width)) <= width
    assert all(cell_len(row) <= max(2, width) for row in wrap(shown, max(1, width)))


@given(st.lists(WIDE, min_size=1, max_size=5), st.integers(20, 250))
def test_lines_of_wide_host_names_are_aligned(names: list[str], width: int) -> None:
    """Whatever a node is called, every line of the grid is as wide as its columns."""
    shown = [plain(name) for name in names]
    columns = view.columns(width, shown)
    room = sum(column.width for column in columns) + len(columns) - 1
    for name in shown:
        node = Summary(name=name, severity=Severity.OK, status=NodeState.UP, group="a")
        cells = view.row(node, columns, UNICODE, 0.0)
        assert [cell_len(cell.text) for cell in cells] == [column.width for column in columns]
        assert sum(cell_len(cell.text) for cell in cells) + len(cells) - 1 == room


@given(WIDE, st.integers(20, 200))
def test_labels_are_aligned(text: str, width: int) -> None:
    """What stands beside a wide label begins where it does beside a narrow one."""
    for label in ("run", "执行命令", "é"):
        first = plan_view.labelled(label, plain(text), width, "text")[0]
        assert cell_len(first[0].text) == plan_view.COLUMN


@given(WIDE, WIDE, st.integers(40, 200))
def test_bars_of_wide_names_fit(node: str, text: str, width: int) -> None:
    """The newest problems end where the screen does; the other bars drop parts before that."""
    status = NodeStatus(node=plain(node), state=NodeState.UNREACHABLE, text=text, hint=text, at=0.0)
    title, entry = bars.stream([(1, 0.0, status)], UNICODE, width, 2)
    assert cell_len(line_text(title)) == cell_len(line_text(entry)) == width
    finding = Finding(
        node=node, rule="a.b", severity=Severity.WARN, say=text, cause=text * 3, next_step=text * 3
    )
    assert cell_len(line_text(bars.why(finding, "", UNICODE, width))) <= width
    footer = [("a", node, text), ("b", "x", text), ("c", "y", node)]
    line, ends = bars.keys(footer, width)
    assert cell_len(line_text(line)) == max((end for end, _ in ends), default=0) <= width


@given(st.integers(8, 60))
def test_chinese_wraps_without_breaking_words(width: int) -> None:
    """A line ends beside any Chinese character, never in a Latin word or before a full stop."""
    text = "最严重问题的规则：含义、依据和建议；:explain RULE。GPU 一直在采集。"
    rows = wrap(text, width)
    assert "".join("".join(rows).split()) == "".join(text.split())
    assert all(cell_len(row) <= width for row in rows)
    assert all(row[0] not in "。、；：" for row in rows)
    for word in (":explain", "RULE", "GPU"):
        assert any(word in row for row in rows)
