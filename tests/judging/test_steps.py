"""Step times: seen from outside in power readings, and told by the jobs themselves."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.event import Finding, Row, Sample, Severity
from probes.jobs_seen import Jobs
from probes.steps import step_estimate, step_seen
from probes.steps_told import Growth, blame
from tests.judging.build import NOW, RULES, Built


def train(period_s: float, *, readings: int = 60, every_s: float = 1.0, seed: int = 1,
          busy: float = 0.8, noise_w: float = 8.0) -> list[float]:  # fmt: skip
    """Power of a GPU that computes for `busy` of each step, in means over an interval."""
    rng = random.Random(seed)
    phase = rng.uniform(0, period_s)
    parts = 8
    return [
        sum(
            650.0 if ((at + part / parts) * every_s + phase) % period_s < busy * period_s else 300.0
            for part in range(parts)
        )
        / parts
        + rng.gauss(0, noise_w)
        for at in range(readings)
    ]  # fmt: skip


@pytest.mark.parametrize("every_s", [1.0, 2.0])
@pytest.mark.parametrize("in_step", [3.0, 4.7, 6.2, 8.0, 11.3, 15.0])
def test_the_period_of_a_job_is_found(in_step: float, every_s: float) -> None:
    period_s = in_step * every_s
    for seed in range(20):
        found = step_estimate(train(period_s, every_s=every_s, seed=seed, busy=0.6), every_s)
        assert found is not None, (period_s, seed)
        assert found.period_s == pytest.approx(period_s, rel=0.03)
        assert found.strength >= 0.9


@given(st.floats(0.1, 1e4), st.floats(-1e6, 1e6))
@settings(max_examples=40, deadline=None)
def test_scale_and_level_do_not_matter(scale: float, level: float) -> None:
    plain = step_estimate(train(8.0), 1.0)
    assert plain is not None
    moved = step_estimate([level + scale * value for value in train(8.0)], 1.0)
    if moved is not None:  # far above zero the same swing is a sensor's noise
        assert moved.period_s == pytest.approx(plain.period_s, rel=0.01)


@given(st.floats(-1e9, 1e9), st.integers(0, 300), st.floats(0.1, 60))
def test_a_constant_has_no_period(value: float, readings: int, every_s: float) -> None:
    assert step_estimate([value] * readings, every_s) is None


def test_noise_drift_and_jumps_have_no_period() -> None:
    """Some hundred seeds each; benchmarks/step_period.py draws more."""
    for seed in range(300):
        rng = random.Random(seed)
        white = [500 + rng.gauss(0, 50) for _ in range(60)]
        walk = [500.0]
        for _ in range(59):
            walk.append(walk[-1] + rng.gauss(0, 20))
        jump = rng.randrange(60)
        jumps = [300.0 if at < jump else 600.0 for at in range(60)]
        for readings in (white, walk, jumps):
            assert step_estimate(readings, 1.0) is None, seed


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_readings_that_are_none(bad: float) -> None:
    assert step_estimate([*train(8.0), bad], 1.0) is None
    assert step_estimate(train(8.0), 0.0) is None
    assert step_estimate(train(8.0)[:20], 1.0) is None


def sensed(
    period_s: float, *, every_s: float = 2.0, sensor_s: float = 1.0, seed: int = 1,
    tail: float = 0.25, low_w: float = 350.0,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """(A sensor's means over its last `sensor_s`, means of whole intervals) of 60 readings."""
    rng = random.Random(seed)
    phase, cut = rng.uniform(0, period_s), 0.02

    def mean(until: float, span_s: float) -> float:
        parts = max(1, round(span_s / cut))
        times = (until - span_s * (part + 0.5) / parts + phase for part in range(parts))
        low = sum(time % period_s >= (1 - tail) * period_s for time in times) / parts
        return 650.0 + (low_w - 650.0) * low

    ticks = [1000 + at * every_s + rng.gauss(0, 0.02) for at in range(60)]
    before = [ticks[0] - every_s, *ticks]
    return (
        [mean(at, sensor_s) + rng.gauss(0, 4) for at in ticks],
        [mean(at, at - then) + rng.gauss(0, 2) for then, at in zip(before, ticks, strict=False)],
    )


@pytest.mark.parametrize("sensor_s", [0.02, 1.0])
@pytest.mark.parametrize("period_s", [9.6, 11.2, 14.0, 22.0, 29.0])
def test_a_step_that_readings_and_energy_show_is_told(period_s: float, sensor_s: float) -> None:
    for seed in range(5):
        found = step_seen(*sensed(period_s, sensor_s=sensor_s, seed=seed), 2.0)
        assert found is not None, seed
        assert found.period_s == pytest.approx(period_s, rel=0.03)


@pytest.mark.parametrize("sensor_s", [0.02, 1.0])
def test_a_step_too_fast_for_the_readings_is_never_told_as_a_slow_one(sensor_s: float) -> None:
    """From 0.3 to 5.5 s in steps of 3 %: many of them look slow in the readings alone."""
    deceived = 0
    for number in range(100):
        period_s = 0.3 * 1.03**number
        readings, means = sensed(period_s, sensor_s=sensor_s, seed=number)
        deceived += step_estimate(readings, 2.0) is not None
        found = step_seen(readings, means, 2.0)
        assert found is None or found.period_s == pytest.approx(period_s, rel=0.05), period_s
    assert deceived > 5


def test_without_means_or_with_readings_a_second_apart_nothing_is_told() -> None:
    readings, means = sensed(12.0)
    assert step_seen(readings, means, 2.0)
    assert step_seen(readings, [], 2.0) is None
    assert step_seen(readings, [math.nan] * 60, 2.0) is None
    assert step_seen(readings, [*means[:-1], math.nan], 2.0) is None
    assert step_seen(readings, [math.nan, *means[1:]], 2.0)
    assert step_seen(*sensed(6.0, every_s=1.0), 1.0) is None


# ------------------------------------------------------------------ told by the job


class Told:
    """A job of some ranks, four a node, that tells its steps every half minute."""

    def __init__(self, ranks: int = 8) -> None:
        self.count, self.jobs, self.step, self.at = ranks, Jobs(), 0, NOW
        self.built = [Built(f"gpu{node + 1:03}") for node in range((ranks + 3) // 4)]

    def look(self, looks: int = 1, **changes: dict[int, float] | float) -> None:
        """`changes`: a part for all ranks, or by rank with -1 for the others."""
        for _ in range(looks):
            self.step, self.at = self.step + 20, self.at + 30.0
            for node, built in enumerate(self.built):
                mine = range(node * 4, min(self.count, node * 4 + 4))
                self.tell(built.facts.node.name, [self.row(r, **changes) for r in mine])

    def row(self, rank: int, **changes: dict[int, float] | float) -> Row:
        row: Row = {"job": "48211", "rank": str(rank), "step": self.step, "age_s": 0.4}
        for name, value in {"t_total": 1.0, "t_data": 0.1, "t_comm": 0.2, **changes}.items():
            told = value.get(rank, value.get(-1)) if isinstance(value, dict) else value
            if told is not None:
                row[name] = told
        return row

    def tell(self, node: str, rows: list[Row]) -> None:
        self.jobs.add(Sample(node=node, probe="steps", at=self.at, clock=self.at, rows=rows))

    def findings(self) -> list[Finding]:
        facts = tuple(built.facts for built in self.built)
        return [f for f in self.jobs.in_steps(facts, RULES, self.at) if f is not None]


def test_steps_as_before_are_fine() -> None:
    job = Told()
    job.look(40)
    assert job.findings() == []
    job.look(20, t_total=1.08)
    assert job.findings() == [], "below a tenth"


def test_compute_of_one_rank_is_named_by_who_waits_least() -> None:
    job = Told()
    job.look(12)
    job.look(8, t_total=1.3, t_comm={6: 0.2, -1: 0.5})
    (found,) = job.findings()
    assert (found.rule, found.node, found.severity) == ("job.slow_step", "gpu002", Severity.WARN)
    assert "1.30 times" in found.say
    assert "compute on rank 6, for which the others wait" in found.say
    assert found.value == pytest.approx(1.3)


def test_data_loading_of_one_rank_and_of_all() -> None:
    job = Told()
    job.look(12)
    job.look(8, t_total=1.2, t_data={1: 0.3, -1: 0.1}, t_comm={1: 0.2, -1: 0.4})
    (found,) = job.findings()
    assert (found.node, found.severity) == ("gpu001", Severity.INFO)
    assert "data loading on rank 1" in found.say
    job = Told()
    job.look(12)
    job.look(8, t_total=1.2, t_data=0.3)
    assert "data loading on most ranks" in job.findings()[0].say


def test_communication_is_nobodys_rank() -> None:
    job = Told()
    job.look(12)
    job.look(8, t_total=1.4, t_comm=0.6)
    assert "communication, on all ranks alike" in job.findings()[0].say


def test_a_job_that_tells_only_its_step_is_timed_by_us() -> None:
    job = Told()
    nothing: dict[str, Any] = {"t_total": {}, "t_data": {}, "t_comm": {}}
    job.look(13, **nothing)
    assert job.findings() == []
    for _ in range(8):
        job.at += 30.0
        job.look(**nothing)
    (found,) = job.findings()
    assert "2.00 times" in found.say
    assert "does not tell its parts" in found.say


def test_a_restart_begins_anew_and_old_lines_say_nothing() -> None:
    job = Told()
    job.look(12)
    job.step = 0
    job.look(8, t_total=3.0)
    assert job.findings() == [], "another run of the job has steps of its own"
    job.look(12, t_total=9.0)
    assert job.findings()
    job.at += 600.0
    assert job.findings() == []


@given(st.permutations(range(8)), st.floats(1.0, 2.0), st.floats(0.0, 0.5))
@settings(deadline=None)
def test_the_order_of_ranks_does_not_matter(order: list[int], now: float, comm: float) -> None:
    ranks = [
        Growth(job="1", rank=str(at), node=f"n{at}", now_s=now + 0.01 * at, before_s=1.0,
               data_s=0.0, comm_s=comm, own_s=0.05 * at, tells_parts=True)
        for at in range(8)
    ]  # fmt: skip
    assert blame(ranks) == blame([ranks[at] for at in order])


ROW = st.dictionaries(
    st.sampled_from(["job", "rank", "step", "t_total", "t_data", "t_comm", "tokens", "age_s"]),
    st.one_of(st.integers(-5, 1 << 63), st.floats(allow_nan=False), st.booleans(), st.text()),
)


@given(st.lists(st.lists(ROW, max_size=4), max_size=30))
@settings(max_examples=100, deadline=None)
def test_any_rows_are_survived(looks: list[list[Row]]) -> None:
    job = Told(1)
    for rows in looks:
        job.at += 30.0
        job.tell("gpu001", rows)
    job.findings()
