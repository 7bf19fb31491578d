"""Plots stay in their frame, and a gap stays a gap."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from console.tui import plots
from console.tui.plots import GAP, Reading, Scale
from console.tui.text import LEVELS, line_text

numbers = st.floats(-1e12, 1e12)
odd = st.one_of(numbers, st.just(math.nan), st.just(math.inf), st.just(-math.inf))
readings = st.lists(
    st.builds(
        lambda at, held, value: Reading(at, at + held, value),
        st.floats(-5e5, 5e5), st.floats(0.0, 1e5), odd,
    ),
    max_size=60,
)  # fmt: skip


@given(readings, st.integers(1, 200), st.integers(1, 12), st.floats(1.0, 7e5))
def test_nothing_is_drawn_outside_and_gaps_stay(
    told: list[Reading], width: int, height: int, span_s: float
) -> None:
    begin = -span_s
    values = plots.bins(told, begin, 0.0, width)
    axis = plots.scale([r.value for r in told], 10.0)
    rows = plots.plot(values, height, axis)
    assert len(rows) == height
    for row in rows:
        assert len(row) == cell_len(row) == width
        assert set(row) <= {*LEVELS, GAP}
    for column, value in enumerate(values):
        cells = [row[column] for row in rows]
        if value is None:
            assert set(cells) == {GAP}
        else:
            assert cells[-1] != GAP, "what was read is never drawn like what was not"
            lowest = min(i for i, cell in enumerate(cells) if cell != GAP)
            assert GAP not in cells[lowest:], "a bar stands on the bottom"


@given(readings, st.integers(1, 200), st.integers(2, 12), st.floats(1.0, 7e5))
def test_a_frame_is_its_axis_wider(
    told: list[Reading], width: int, height: int, span_s: float
) -> None:
    values = plots.bins(told, -span_s, 0.0, width)
    axis = plots.scale([r.value for r in told], 10.0)
    lines = plots.framed(values, height, axis, "GB/s", span_s)
    assert len(lines) == height + 1
    assert {cell_len(line_text(line)) for line in lines} == {plots.AXIS + width}


@given(st.integers(2, 60), st.integers(0, 59), st.data())
def test_a_reading_is_only_where_it_holds(width: int, at: int, data: st.DataObject) -> None:
    first = min(at, width - 1)
    last = data.draw(st.integers(first, width - 1))
    values = plots.bins([Reading(first, last + 1, 7.0)], 0.0, float(width), width)
    assert [i for i, value in enumerate(values) if value is not None] == [*range(first, last + 1)]


@given(st.lists(odd, max_size=20), st.floats(1e-3, 1e6))
def test_a_scale_has_room_for_all(values: list[float], least: float) -> None:
    axis = plots.scale(values, least)
    known = [value for value in values if math.isfinite(value)]
    assert axis.high > axis.low
    for value in known:
        assert axis.low <= value <= axis.high
    assert axis.high - axis.low >= least / 2


@pytest.mark.parametrize("width", range(1, 120))
@pytest.mark.parametrize("span_s", [120.0, 3600.0, 86400.0, 604800.0])
def test_the_time_axis_ends_now(width: int, span_s: float) -> None:
    line = plots.time_axis(width, span_s)
    assert len(line) == width
    assert not line.strip() or line.endswith("now")


def test_a_high_value_is_higher() -> None:
    axis = Scale(0.0, 100.0)
    low, high = plots.plot([0.0], 4, axis), plots.plot([100.0], 4, axis)
    assert [row for row in low if row.strip()] == [LEVELS[0]]
    assert high == [LEVELS[-1]] * 4
