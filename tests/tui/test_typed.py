"""What is typed at the prompt: completion, history, and any text as a filter or a command."""

from __future__ import annotations

import multiprocessing
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.tui import commandline, completing
from console.tui.commands import BY_ID
from console.tui.completing import World
from console.tui.filter import MAX_CHARS, Filter, FilterError, toggled, without_field
from console.tui.history import KEPT, LONGEST, History
from console.tui.widgets.entry import one_line
from inventory.errors import UsageError
from tests.tui.test_filter import SICK

WORLD = World(
    words=["fleet", "drained", "drain", "open", "sort", "mark", "filter", "explain", "next-view"],
    nodes=["gpu001", "gpu002", "cpu1"],
    orders=["verdict", "node"],
    labels=["rack"],
    rules=lambda: ["gpu.lost", "xid.79"],
    values=lambda field: {"job": {"812", "813"}, "label.rack": {"r7", "row 8"}}.get(field, ()),
)
TERMS = [
    "state:crit", "temp>85", "temp:80..90C", "power>3kW", "node~^gpu", "~lost", "is:fault",
    "label.rack:r7", "!job:812", "lost", '"is lost"', "age<1h", "|", "xid:79,48", "nonsense:3",
    "(", "~(", "temp>", "!",
]  # fmt: skip


T = TypeVar("T")


def tried(make: Callable[[], T]) -> T | UsageError:
    """What was made, or why not."""
    try:
        return make()
    except UsageError as error:
        return error


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("dr", "drain "),
        ("drain", "drain "),
        ("open gp", "open gpu001"),
        ("sort n", "sort node"),
        ("explain xid", "explain xid.79"),
        ("mark n", "mark none"),
        ("mark state:cr", "mark state:critical"),
        ("filter te", "filter temp>"),
        ("next", "next-view"),
    ],
)
def test_a_command_is_completed(line: str, first: str) -> None:
    """The likeliest first; a word that takes others ends in a space."""
    assert completing.command(line, WORLD)[0] == first


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("st", "state:"),
        ("lost !jo", "lost !job:"),
        ("job:81", "job:812"),
        ("job:812,8", "job:812,812"),
        ("label.r", "label.rack:"),
        ("label.rack:ro", 'label.rack:"row 8"'),
        ("is:f", "is:fault"),
        ('"a b" te', '"a b" temp>'),
    ],
)
def test_a_filter_is_completed(line: str, first: str) -> None:
    """The last term only; values are those that nodes have now."""
    assert completing.filtering(line, WORLD)[0] == first


@given(st.text(max_size=40))
def test_completions_carry_on_what_is_there(line: str) -> None:
    """Any line: what is offered begins with its words, and none of it fails."""
    for found in completing.command(line, WORLD):
        assert found.split(" ")[0].startswith(line.partition(" ")[0])
    kept = completing._split(line)[0]
    assert all(found.startswith(kept) for found in completing.filtering(line, WORLD))


@given(st.text(max_size=60))
def test_any_command_line_is_a_request_or_one_sentence(line: str) -> None:
    """Nothing else comes out of what people type or paste."""
    request = tried(lambda: commandline.parse(line, read_only=True))
    if isinstance(request, UsageError):
        assert str(request)
    else:
        assert not BY_ID[request.id].acts


FILTERS = st.one_of(
    st.text(max_size=60), st.lists(st.sampled_from(TERMS), max_size=8).map(" ".join)
)


@given(FILTERS)
def test_any_filter_works_or_says_where_it_does_not(text: str) -> None:
    """A column inside the text, or an answer."""
    found = tried(lambda: Filter(text))
    if isinstance(found, FilterError):
        assert 1 <= found.at <= len(text) + 1
        assert f"column {found.at}" in str(found)
    else:
        assert isinstance(found, Filter)
        assert found(SICK) in (True, False)


@given(FILTERS)
def test_faults_only_can_be_taken_back(text: str) -> None:
    """On, only faults are left; off, what was before is let through again."""
    try:
        before = Filter(text)
    except FilterError:
        return
    if "is:fault" in text:
        return
    on = toggled(text, "is:fault")
    healthy = msgspec.structs.replace(SICK, severity=type(SICK.severity).OK)
    assert not Filter(on)(healthy)
    assert Filter(on)(SICK) == before(SICK)
    assert Filter(toggled(on, "is:fault"))(SICK) == before(SICK)


@pytest.mark.parametrize("low", ["", "80"])
@given(limit=st.floats(-50, 150).map(lambda value: round(value, 1)))
def test_a_range_is_two_comparisons(low: str, limit: float) -> None:
    """Both ends count."""
    least = f"temp>={low} " if low else ""
    ranged = tried(lambda: Filter(f"temp:{low}..{limit}"))
    if isinstance(ranged, UsageError):
        assert "empty" in str(ranged)
        assert limit < 80
    else:
        assert ranged(SICK) == Filter(f"{least}temp<={limit}")(SICK)


@pytest.mark.parametrize(
    ("text", "left"),
    [("te", ""), ("lost !te", "lost"), ("nvlink", "nvlink"), ("", ""), ("lab", ""), ("a:b", "a:b")],
)
def test_an_unfinished_field_is_left_out(text: str, left: str) -> None:
    """Until its operator is there."""
    assert without_field(text) == left


def test_a_filter_has_a_longest() -> None:
    """A pasted file is no filter."""
    with pytest.raises(FilterError) as raised:
        Filter("x" * (MAX_CHARS + 1))
    assert raised.value.at == MAX_CHARS + 1


@given(st.text(max_size=200), st.integers(-5, 100))
def test_a_paste_is_one_printable_line(text: str, room: int) -> None:
    """Whatever it was."""
    line = one_line(text, room)
    assert len(line) <= max(0, room)
    assert line.isprintable()


def test_history_is_private_bounded_and_survives_rubbish(tmp_path: Path) -> None:
    """Another console's lines, torn lines and binary do no harm; the latest of equals counts."""
    one = History(tmp_path / "typed", "commands")
    for number in range(3 * KEPT):
        one.keep(f"line {number % (KEPT + 5)}")
    file = tmp_path / "typed" / "commands.history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_bytes().splitlines()) <= 2 * KEPT
    with file.open("ab") as out:
        out.write(b'\xff\x00\n["no"]\n' + b"[" * 100_000 + b'\n"\\u001b[2J"\n"torn')
    one.keep("after the torn one")
    one.keep("x" * (LONGEST + 1))
    two = History(tmp_path / "typed", "commands")
    two.load()
    assert len(two.lines) == KEPT
    assert two.lines[-1] == "after the torn one"
    assert len(set(two.lines)) == KEPT
    assert all(line.isprintable() for line in two.lines)


def test_a_history_that_cannot_be_kept_is_no_trouble(tmp_path: Path) -> None:
    """A file in the place of the folder: lines are remembered while the console runs."""
    (tmp_path / "typed").write_text("")
    history = History(tmp_path / "typed", "commands")
    history.load()
    history.remember("sort temp")
    history.keep("sort temp")
    assert history.lines == ["sort temp"]


def _keep_many(folder: Path, who: int) -> None:
    history = History(folder, "commands")
    for number in range(100):
        history.keep(f"{who} {number}")
    os._exit(0)


def test_two_consoles_lose_nothing(tmp_path: Path) -> None:
    """Two processes append at the same time, and the file is shortened meanwhile."""
    for number in range(2 * KEPT - 50):
        History(tmp_path, "commands").keep(f"old {number}")
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_keep_many, args=(tmp_path, who)) for who in (1, 2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    history = History(tmp_path, "commands")
    history.load()
    assert set(history.lines) == {f"{who} {number}" for who in (1, 2) for number in range(100)}
