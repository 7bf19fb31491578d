"""Pure parts: text, columns, rows, bars, commands."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from console.tui import bars, commandline, commands, view
from console.tui.summary import Gpus, Summary
from console.tui.text import Column, ascii_only, choose, cut, fit, plain, wrap
from console.tui.theme import ASCII, UNICODE, depth_of, glyphs_for
from inventory.errors import UsageError
from probes.event import NodeState, Severity

NAMES = [f"gpu{i:03d}" for i in range(64)]
NODE = Summary(
    name="gpu001",
    severity=Severity.OK,
    status=NodeState.UP,
    group="h100",
    sched="idle",
    gpus=Gpus(
        answering=8, expected=8, util_percent=97.0, temp_c=60.0, power_w=5200.0, clock_mhz=1755.0
    ),
    latest=100.0,
)


@given(st.text(), st.integers(0, 40))
def test_fit_is_exactly_as_wide_as_asked(text: str, width: int) -> None:
    """Double-width characters included."""
    assert cell_len(fit(plain(text), width)) == width
    assert cell_len(cut(plain(text), width)) <= width


@given(st.text(), st.integers(1, 40))
def test_wrap_loses_no_word_character(text: str, width: int) -> None:
    """Only spaces may go at a break, and no line is too long."""
    safe = plain(text)
    rows = wrap(safe, width)
    assert "".join("".join(rows).split()) == "".join(safe.split())
    assert all(cell_len(row) <= max(width, 2) for row in rows)


@given(st.text())
def test_plain_text_cannot_drive_a_terminal(text: str) -> None:
    """No control, format, surrogate or bidi character survives."""
    assert all(char.isprintable() for char in plain(text))
    plain(text).encode("utf-8")


def test_plain_keeps_what_is_harmless() -> None:
    """Brackets are brackets; an escape sequence becomes visible rubbish."""
    assert plain("[bold red]x[/]") == "[bold red]x[/]"
    assert plain("a\x1b[31mb\x07") == "a·[31mb·"
    assert plain("節点") == "節点"


@given(st.text())
def test_ascii_is_ascii(text: str) -> None:
    """Whatever it was."""
    assert ascii_only(text).isascii()


def test_glyphs_follow_the_encoding() -> None:
    """UTF-8 has the signs, Latin-1 and nothing have ASCII ones of the same number."""
    assert glyphs_for("utf-8") == UNICODE
    assert glyphs_for("iso-8859-1") == ASCII
    assert glyphs_for(None) == ASCII
    assert all(len(a) == len(u) == 1 for a, u in zip(ASCII, UNICODE, strict=True))
    assert len(set(ASCII[:5])) == 5


@pytest.mark.parametrize(
    ("environ", "colours"),
    [
        ({"NO_COLOR": "", "TERM": "xterm-256color"}, 0),
        ({"TERM": "xterm-256color"}, 256),
        ({"TERM": "linux"}, 16),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, 256),
        ({}, 16),
    ],
)
def test_depth(environ: dict[str, str], colours: int) -> None:
    """NO_COLOR counts even when empty."""
    assert depth_of(environ).colours == colours


@pytest.mark.parametrize("width", range(40, 220, 7))
@pytest.mark.parametrize("wide", [False, True])
def test_columns_fill_the_width_and_never_overflow(width: int, wide: bool) -> None:
    """Dropped whole; verdict and node never are."""
    columns = view.columns(width, NAMES, wide=wide)
    names = [column.name for column in columns]
    assert sum(c.width for c in columns) + len(columns) - 1 <= width
    assert names[:3] == ["mark", "severity", "node"]
    cells = view.row(NODE, columns, UNICODE, 101.0)
    assert [cell_len(cell.text) for cell in cells] == [c.width for c in columns]


def test_more_width_never_costs_a_column() -> None:
    """From the smallest supported terminal on, widening only adds."""
    before: set[str] = set()
    for width in range(60, 119):
        now = {column.name for column in view.columns(width, NAMES)}
        assert before <= now
        before = now


def test_choose_stops_at_the_first_column_that_does_not_fit() -> None:
    """A less important column never takes the place of a more important one."""
    columns = [Column("a", "", 5, 0), Column("b", "", 20, 1), Column("c", "", 2, 2)]
    assert [c.name for c in choose(columns, 12)] == ["a"]


def test_unknown_is_a_dash_and_stale_is_grey() -> None:
    """Never zero, never as if it were current."""
    columns = view.columns(160, NAMES)
    silent = Summary(name="x", severity=Severity.UNKNOWN, status=NodeState.UNREACHABLE, group="g")
    by_name = dict(
        zip([c.name for c in columns], view.row(silent, columns, UNICODE, 0.0), strict=True)
    )
    for reading in ("util", "temp", "power", "clock", "links", "ports", "load", "gpus"):
        assert by_name[reading].text.strip() == "–"
    old = view.row(NODE, columns, UNICODE, 100.0 + 3600)
    stale = dict(zip([c.name for c in columns], old, strict=True))
    assert stale["temp"] == ("60C".rjust(4), "stale")
    assert stale["age"].text.strip() == "60m"
    fresh = dict(
        zip([c.name for c in columns], view.row(NODE, columns, UNICODE, 101.0), strict=True)
    )
    assert fresh["temp"].style == "text"
    assert fresh["age"].text.strip() == "now"


def test_a_missing_gpu_is_coloured_even_before_it_is_judged() -> None:
    """7 of 8 is never by design."""
    columns = view.columns(120, NAMES)
    lost = msgspec.structs.replace(NODE, gpus=msgspec.structs.replace(NODE.gpus, answering=7))
    cells = dict(
        zip([c.name for c in columns], view.row(lost, columns, UNICODE, 101.0), strict=True)
    )
    assert cells["gpus"] == ("  7/8", "critical")


def test_status_drops_parts_but_never_marks_or_the_filter() -> None:
    """What an action would reach must stay on the screen."""
    state = bars.State(
        cluster="a-cluster-with-a-long-name",
        nodes=1000,
        counts={Severity.CRITICAL: 3, Severity.OK: 997},
        oldest_s=2.0,
        shown=12,
        filter="state:crit",
        sort="temp",
        marked=5,
        hidden=2,
        paused_s=None,
        read_only=False,
        errors=(),
        answered=1000,
    )
    told = "drift: facts that differ: 12, nodes: 40, splits: 3"
    for width, named in itertools.product((45, 60, 80, 160), ("", told)):
        state = state._replace(view=named, paused_s=60.0 if named else None)
        line = "".join(cell.text for cell in bars.status(state, UNICODE, width))
        assert cell_len(line) <= width
        assert "5 marked (2 hidden)" in line
        assert "/state:crit 12/1000" in line


@pytest.mark.parametrize("width", [60, 80, 110, 160])
def test_a_failed_scheduler_is_told_beside_any_view(width: int) -> None:
    """What it said before is still on the screen."""
    state = bars.State(
        cluster="lab",
        nodes=64,
        counts={Severity.CRITICAL: 3, Severity.WARN: 2, Severity.OK: 59},
        oldest_s=2.0,
        shown=64,
        filter="",
        sort="verdict",
        marked=2,
        hidden=0,
        paused_s=None,
        read_only=True,
        errors=("slurm: scontrol: unable to contact slurm controller", "another"),
        answered=64,
        view="drained: 6 nodes (1 Slurm, 3 ours, 1 person, 1 tool), longest first",
    )
    line = "".join(cell.text for cell in bars.status(state, UNICODE, width))
    assert cell_len(line) <= width
    assert "! slurm: scontrol" in line
    assert "2 marked" in line
    assert "drained: 6" in line


def test_read_only_has_no_acting_command() -> None:
    """Neither key, nor footer, nor palette, nor help, nor `:`."""
    acting = {c.id for c in commands.COMMANDS if c.acts}
    assert acting == {"drain", "resume", "test", "stop"}
    assert all(c.shown.isupper() for c in commands.COMMANDS if c.acts)
    for screen in ("fleet", "node"):
        assert not acting & {c.id for c in commands.offered(screen, read_only=True)}
        assert not acting & {c for c, _, _ in commands.footer(screen, read_only=True)}
    with pytest.raises(UsageError, match="read-only"):
        commandline.parse("drain now", read_only=True)


def test_keys_are_unique_per_screen() -> None:
    """Two commands never share a key."""
    for screen in ("fleet", "node"):
        keys = [key for c in commands.offered(screen, read_only=False) for key in c.keys]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("drain bad link", ("drain", "bad link")),
        ("q", ("quit", "")),
        ("sort temp", ("sort", "temp")),
        ("mark state:crit", ("mark", "state:crit")),
        ("  filter   temp>85 ", ("filter", "temp>85")),
        ("mark-clear", ("mark_clear", "")),
    ],
)
def test_command_line(line: str, wanted: tuple[str, str]) -> None:
    """Word and rest."""
    request = commandline.parse(line, read_only=False)
    assert (request.id, request.text) == wanted


@pytest.mark.parametrize(("line", "says"), [("drian x", "drain"), ("pause now", "nothing after")])
def test_command_line_errors(line: str, says: str) -> None:
    """The nearest command, or what is too much."""
    with pytest.raises(UsageError, match=says):
        commandline.parse(line, read_only=False)
