"""Numbers never jump: bounded widths, and unknown is never a number."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import units


@given(st.floats(min_value=0, max_value=1e17))
def test_sizes_and_counts_stay_within_their_columns(value: float) -> None:
    assert len(units.size(value)) <= 6
    assert len(units.count(value)) <= 6


@given(st.floats(min_value=0, max_value=1e12))
def test_ages_take_at_most_four_cells(seconds: float) -> None:
    assert 2 <= len(units.age(seconds)) <= 4


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1.0K"), (80 * 2**30, "80.0G"), (2**40, "1.0T")],
)
def test_size_uses_binary_steps(value: float, text: str) -> None:
    assert units.size(value) == text


@pytest.mark.parametrize("format_", [units.size, units.count, units.age, units.rate, units.whole])
def test_unknown_is_a_dash_not_a_zero(format_: Callable[[float | None], str]) -> None:
    assert format_(None) == units.ABSENT
    assert format_(0.0) != units.ABSENT


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172800, "2d")]
)
def test_age_steps(seconds: float, text: str) -> None:
    assert units.age(seconds) == text
