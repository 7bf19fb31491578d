"""Counters become rates: wrap, reset, saturation, gap; gauges and flags have none."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.node import Node
from probes.derive import (
    BUCKET_S,
    HOUR_S,
    PMA_BITS,
    SLOW,
    TRAFFIC,
    WRAPPING,
    Hour,
    Rates,
    rates,
    slow_growth,
)
from probes.event import Sample, Scalar
from probes.facts import NodeFacts

COUNTS = st.integers(min_value=0, max_value=2**48)
SECONDS = st.floats(min_value=0.5, max_value=3600, allow_nan=False)
UNKNOWN = "some_driver_counter"


def sample(probe: str, clock: float, **values: Scalar) -> Sample:
    return Sample(node="n", probe=probe, device="mlx5_0/1", at=0.0, clock=clock, values=values)


def step(probe: str, before: dict[str, Scalar], after: dict[str, Scalar], s: float = 10.0) -> Rates:
    found = rates(sample(probe, 100.0, **before), sample(probe, 100.0 + s, **after))
    assert found is not None
    return found


def test_the_rate_is_per_second_of_the_nodes_clock() -> None:
    found = step("infiniband", {UNKNOWN: 100}, {UNKNOWN: 160}, 30.0)
    assert found.deltas == {UNKNOWN: 60.0}
    assert found.per_s(UNKNOWN) == pytest.approx(2.0)
    assert found.per_s("not_there") is None


@pytest.mark.parametrize("after", [100.0, 99.0, math.nan])
def test_no_time_no_rate(after: float) -> None:
    one = sample("infiniband", 100.0, symbol_error=1)
    assert rates(one, sample("infiniband", after, symbol_error=2)) is None


def test_a_probe_that_counts_nothing_has_no_rates() -> None:
    for probe in ("inventory", "hello", "job", "made_up"):
        assert rates(sample(probe, 1.0, load1=5), sample(probe, 2.0, load1=3)) is None


@given(COUNTS, COUNTS, SECONDS)
def test_growth_is_the_difference(start: int, growth: int, seconds: float) -> None:
    found = step("infiniband", {UNKNOWN: start}, {UNKNOWN: start + growth}, seconds)
    assert found.deltas[UNKNOWN] == pytest.approx(growth)
    assert not found.reset


@given(COUNTS, COUNTS)
def test_a_fall_is_a_reset_and_the_new_value_is_the_growth(one: int, two: int) -> None:
    high, low = max(one, two) + 1, min(one, two)
    found = step("infiniband", {UNKNOWN: high}, {UNKNOWN: low})
    assert found.reset == {UNKNOWN}
    assert found.deltas[UNKNOWN] == low


@given(st.dictionaries(st.sampled_from([*PMA_BITS, *WRAPPING, UNKNOWN]), COUNTS), COUNTS, SECONDS)
def test_no_growth_is_ever_negative(before: dict[str, Scalar], now: int, seconds: float) -> None:
    found = step("infiniband", before, dict.fromkeys(before, now), seconds)
    assert all(delta >= 0 for delta in found.deltas.values())
    assert set(found.deltas) == set(before)


@given(st.lists(COUNTS, min_size=2, max_size=20))
def test_monotone_steps_add_up(values: list[int]) -> None:
    values.sort()
    total = sum(
        step("infiniband", {UNKNOWN: a}, {UNKNOWN: b}).deltas[UNKNOWN]
        for a, b in itertools.pairwise(values)
    )
    assert total == pytest.approx(values[-1] - values[0])


@given(
    st.sampled_from(sorted(WRAPPING)),
    st.integers(min_value=1, max_value=10**6),
    st.integers(min_value=0, max_value=10**6),
)
def test_queue_counters_wrap_at_32_bit(name: str, left: int, past: int) -> None:
    found = step("infiniband", {name: 2**32 - left}, {name: past})
    assert found.deltas[name] == left + past
    assert not found.reset


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [(3000, 5, 30.0), (2**31, 10, 30.0), (2**32 - 2 * 10**8, 7, 1.0), (2**33, 7, 30.0)],
    ids=["small", "half range", "too fast", "wider than 32 bit"],
)
def test_an_implausible_wrap_is_a_reset(before: int, after: int, seconds: float) -> None:
    name = "out_of_sequence"
    found = step("infiniband", {name: before}, {name: after}, seconds)
    assert found.reset == {name}
    assert found.deltas[name] == after


@pytest.mark.parametrize("name", sorted(PMA_BITS))
def test_a_full_port_counter_has_no_rate_even_without_growth(name: str) -> None:
    full = 2 ** PMA_BITS[name] - 1
    for before in (full, full - 1):
        found = step("infiniband", {name: before}, {name: full})
        assert found.saturated == {name}
        assert found.per_s(name) is None
    first = step("infiniband", {}, {name: full})
    assert first.saturated == {name}
    for beside in (full - 1, full + 1):
        assert not step("infiniband", {name: 0}, {name: beside}).saturated


def test_a_counter_cleared_at_its_maximum_was_reset() -> None:
    found = step("infiniband", {"symbol_error": 65535}, {"symbol_error": 12})
    assert found.reset == {"symbol_error"}
    assert found.per_s("symbol_error") == pytest.approx(1.2)


def test_widths_are_those_of_ports_only() -> None:
    assert not step(
        "ecc", {"ecc_corrected_volatile": 15}, {"ecc_corrected_volatile": 255}
    ).saturated
    assert step("ecc", {"remap_correctable": 9}, {"remap_correctable": 0}).reset
    assert not {"symbol_error", "link_downed"} & TRAFFIC


def test_gauges_flags_and_text_are_no_counters() -> None:
    before: dict[str, Scalar] = {
        "power_w": 650.0, "temp_c": 80, "pstate": 2, "thermal_hw_ns": 100, "nvml_call": "x",
    }  # fmt: skip
    after: dict[str, Scalar] = {
        "power_w": 80.0, "temp_c": 40, "pstate": 0, "thermal_hw_ns": 400, "nvml_call": "y",
    }  # fmt: skip
    assert step("gpu", before, after) == Rates(elapsed_s=10.0, deltas={"thermal_hw_ns": 300.0})
    ecc = step("ecc", {"remap_pending": False, "recovery_action": 2},
               {"remap_pending": True, "recovery_action": 0})  # fmt: skip
    assert ecc.deltas == {}
    port = step("infiniband", {"state": 4, "rate_gbps": 400.0, "lid": 17, "lifespan": 12},
                {"state": 1, "rate_gbps": 200.0, "lid": 0, "lifespan": 10})  # fmt: skip
    assert port.deltas == {}


def test_counters_of_numbered_links_are_known() -> None:
    found = step("nvlink", {"link17_crc": 1, "link17_mbps": 26562, "link3_replays": 5, "links": 18},
                 {"link17_crc": 4, "link17_mbps": 0, "link3_replays": 2, "links": 17})  # fmt: skip
    assert found.deltas == {"link17_crc": 3.0, "link3_replays": 2.0}
    assert found.reset == {"link3_replays"}


@pytest.mark.parametrize("bad", [True, "N/A (no PMA)", math.nan, math.inf, -3])
def test_what_is_no_count_is_left_out(bad: Scalar) -> None:
    assert step("infiniband", {UNKNOWN: bad}, {UNKNOWN: 5}).deltas == {}
    assert step("infiniband", {UNKNOWN: 5}, {UNKNOWN: bad}).deltas == {}


def test_what_is_missing_on_one_side_has_no_delta() -> None:
    assert step("infiniband", {"symbol_error": 3}, {"link_downed": 0}).deltas == {}


# --- an hour of rare counters

STEPS = st.lists(
    st.tuples(st.floats(min_value=1.0, max_value=600.0), st.integers(min_value=0, max_value=50)),
    min_size=1, max_size=200,
)  # fmt: skip
"""(seconds since the last answer, growth)"""


def hour_of(steps: list[tuple[float, int]], name: str = "symbol_error") -> tuple[Hour, float]:
    hour, clock = Hour(), 1000.0
    for seconds, growth in steps:
        clock += seconds
        hour.add(Rates(elapsed_s=seconds, deltas={name: float(growth)}), clock)
    return hour, clock


@given(STEPS)
def test_an_hour_is_what_grew_in_it_to_a_minute(steps: list[tuple[float, int]]) -> None:
    hour, clock = hour_of(steps)
    times = list(itertools.accumulate((s for s, _ in steps), initial=1000.0))[1:]
    at_least = sum(g for (_, g), t in zip(steps, times, strict=True) if clock - t < HOUR_S)
    at_most = sum(
        g for (_, g), t in zip(steps, times, strict=True) if clock - t <= HOUR_S + BUCKET_S
    )
    assert at_least <= hour.grown("symbol_error", clock) <= at_most


@given(STEPS)
def test_an_hour_is_bounded_and_forgets(steps: list[tuple[float, int]]) -> None:
    hour, clock = hour_of(steps)
    assert len(hour) <= HOUR_S / BUCKET_S + 2
    assert hour.grown("symbol_error", clock + HOUR_S + BUCKET_S) == 0
    assert hour.grown("link_downed", clock) == 0


@given(st.permutations([("symbol_error", 3), ("link_downed", 1), ("carrier_changes", 2)] * 3))
def test_the_order_of_counters_does_not_matter(order: list[tuple[str, int]]) -> None:
    hour = Hour()
    for number, (name, growth) in enumerate(order):
        step = Rates(elapsed_s=15.0, deltas={name: float(growth)})
        hour.add(step, 1000.0 + 15.0 * number)
    assert [hour.grown(n, 1200.0) for n in ("symbol_error", "link_downed", "carrier_changes")] == [
        9, 3, 6,
    ]  # fmt: skip


@given(st.floats(min_value=HOUR_S, max_value=1e6), st.integers(min_value=1, max_value=10**6))
def test_of_a_gap_an_hours_share_counts(seconds: float, growth: int) -> None:
    hour, clock = hour_of([(seconds, growth)])
    assert hour.grown("symbol_error", clock) == pytest.approx(growth * HOUR_S / seconds)


def test_what_a_reset_counter_shows_is_not_new() -> None:
    hour = Hour()
    found = step("infiniband", {"symbol_error": 900}, {"symbol_error": 300})
    assert slow_growth(found)
    hour.add(found, 1010.0)
    assert len(hour) == 0


def test_a_clock_that_jumps_back_forgets_what_lies_ahead() -> None:
    hour, clock = hour_of([(15.0, 40)])
    assert hour.grown("symbol_error", clock - 600.0) == 0


def test_nothing_that_stands_still_is_kept() -> None:
    still: dict[str, Scalar] = dict.fromkeys(SLOW, 7)
    assert not slow_growth(step("infiniband", still, still))


@given(st.lists(st.sampled_from(["infiniband", "ethtool"]), min_size=2, max_size=12))
def test_probes_may_answer_in_any_order(order: list[str]) -> None:
    """Each probe's rates are its own, whatever came between two of its answers."""
    facts = NodeFacts(Node(name="n"))
    totals = {"infiniband": 0, "ethtool": 0}
    names = {"infiniband": "symbol_error", "ethtool": "link_down_events_phy"}
    for number, probe in enumerate(order):
        totals[probe] += 2
        facts.apply(sample(probe, 100.0 + number, **{names[probe]: totals[probe]}))
    for probe, name in names.items():
        seen = facts.hours.get((probe, "mlx5_0/1"))
        grown = 0.0 if seen is None else seen.grown(name, 200.0)
        assert grown == max(0, 2 * (order.count(probe) - 1))


def test_undeclared_numbers_of_a_driver_are_counters_and_its_percentages_are_not() -> None:
    found = step("ethtool", {"rx_discards_phy": 1, "outbound_pci_stalled_wr": 60, "driver": "x"},
                 {"rx_discards_phy": 4, "outbound_pci_stalled_wr": 20, "driver": "x"})  # fmt: skip
    assert found.deltas == {"rx_discards_phy": 3.0}
    assert not found.reset
