"""False alarms and recall by seeded simulation: a small part of benchmarks/straggler_rates.py."""

from __future__ import annotations

import pytest

from benchmarks.straggler_rates import alarms, one_look, over_time, recall
from probes.slow_limits import Limits
from tests.judging.build import RULES, with_limit

LIMITS = Limits.of(RULES)


def test_healthy_groups_of_eight_raise_no_alarm_in_ten_thousand() -> None:
    assert alarms(LIMITS, 10_000, 8, 0.01, 5, plain=False) < 1e-4


def test_without_the_floor_and_the_ratio_the_same_simulation_does() -> None:
    """So the bound above can fail: the raw robust z fires on some 8 % of groups."""
    loose = Limits.of(with_limit("straggler.r_warn", 1.0))
    assert alarms(loose, 1_000, 8, 0.01, 5, plain=True, floor=0.0) > 0.03


@pytest.mark.parametrize(("slow", "n", "least"), [(0.08, 8, 0.95), (0.10, 8, 0.99), (0.08, 4, 0.8)])
def test_slow_gpus_are_found(slow: float, n: int, least: float) -> None:
    assert recall(LIMITS, 1_500, n, slow, 5, plain=False) >= least


def test_three_bad_of_eight_need_the_ratio_to_p75() -> None:
    assert recall(LIMITS, 500, 8, 0.10, 5, plain=False, bad=3) >= 0.98
    assert recall(LIMITS, 500, 8, 0.10, 5, plain=True, bad=3) < 0.8


def test_nodes_with_live_readings_over_a_minute() -> None:
    wrong, right = over_time(RULES, 80, 5, 0.08)
    assert wrong == 0
    assert right >= 0.95


def test_healthy_nodes_with_live_readings() -> None:
    assert one_look(RULES, 400, 5, 0.0) == (0, 0)
    assert over_time(RULES, 40, 5, 0.0) == (0, 0)
