"""Half floats and medians: what thinning may and may not do to a reading."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from console.memory.metrics import GPU, METRICS, PORT, SCALES, Thin, merged, middle, pack, unpack

reading = st.floats(min_value=1.0, max_value=60_000, width=32)
maybe = st.one_of(st.just(math.nan), reading)
values = st.lists(maybe, min_size=12, max_size=12)


def rows(most: int = 12) -> st.SearchStrategy[list[Thin]]:
    one = st.builds(
        lambda n, good, told: Thin(n, good, packed(told)), st.integers(1, 10), st.booleans(), values
    )
    return st.lists(one, min_size=1, max_size=most)


def packed(told: list[float]) -> bytes:
    return pack(GPU, [value * unit for value, unit in zip(told, SCALES[GPU], strict=True)])


@given(values)
def test_what_was_read_comes_back_within_a_twentieth_of_a_percent(told: list[float]) -> None:
    for before, after, unit in zip(told, unpack(GPU, packed(told)), SCALES[GPU], strict=True):
        assert math.isnan(before) == math.isnan(after)
        assert math.isnan(before) or math.isclose(before * unit, after, rel_tol=5e-4)


@given(st.binary(max_size=40), st.sampled_from([GPU, PORT]))
def test_any_bytes_are_as_many_numbers_as_there_are_metrics(raw: bytes, kind: int) -> None:
    assert len(unpack(kind, raw)) == len(METRICS[kind])


def test_what_no_half_float_holds_is_not_kept() -> None:
    assert math.isnan(unpack(PORT, pack(PORT, [1e30, 2e9]))[0])
    assert math.isnan(unpack(PORT, pack(PORT, [math.inf, 2e9]))[0])
    assert pack(GPU, [math.nan] * 12) == b""


@given(rows())
def test_a_merged_median_is_one_of_its_group(group: list[Thin]) -> None:
    found = merged(GPU, group)
    kept = [row for row in group if row.good] or group
    assert found.good is kept[0].good
    assert found.n == sum(row.n for row in kept)
    for value, column in zip(
        unpack(GPU, found.packed), zip(*(unpack(GPU, r.packed) for r in kept), strict=True),
        strict=True,
    ):  # fmt: skip
        read = [one for one in column if not math.isnan(one)]
        assert math.isnan(value) if not read else value in read


@given(rows(), rows())
def test_merging_knows_no_order(first: list[Thin], second: list[Thin]) -> None:
    assert merged(GPU, first + second) == merged(GPU, second + first)


def test_many_readings_outweigh_few() -> None:
    few, many = (
        Thin(1, True, pack(GPU, [1000.0] + [math.nan] * 11)),
        Thin(9, True, pack(GPU, [1755.0] + [math.nan] * 11)),
    )
    assert unpack(GPU, merged(GPU, [few, few, many]).packed)[0] == 1755


def test_a_sick_hour_tells_its_healthy_part() -> None:
    sick, well = (
        Thin(10, False, pack(GPU, [900.0] + [math.nan] * 11)),
        Thin(2, True, pack(GPU, [1755.0] + [math.nan] * 11)),
    )
    assert unpack(GPU, merged(GPU, [sick, well]).packed)[0] == 1755


def test_nothing_has_no_middle() -> None:
    assert math.isnan(middle([math.nan]))
    assert middle([math.nan, 3.0, 1.0]) == 2.0
