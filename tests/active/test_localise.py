"""Simulated fabrics: faults are named, healthy nodes never for sure. More: benchmarks.localise."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from benchmarks import localise
from benchmarks.fabric import Fabric, Outcome, campaign
from console.active.expect import Expected, NodeSpec, metric
from console.active.localise import localiser
from console.active.results import (
    Confidence,
    Group,
    Level,
    Localiser,
    Progress,
    Row,
    Run,
    Verdict,
)
from probes.event import Severity
from probes.own import Baseline

CASES = {case.name: case for case in localise.CASES}
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def names(n: int) -> tuple[str, ...]:
    return tuple(f"gpu{i:03}" for i in range(1, n + 1))


def of(
    nodes: Sequence[str],
    level: Level = Level.PAIRS,
    seed: int = 1,
    scheme: str = "auto",
    expected: Expected | None = None,
    solo: Sequence[Run] = (),
    labels: dict[str, dict[str, str]] | None = None,
) -> Localiser:
    return localiser(
        level, nodes, seed=seed, scheme=scheme, expected=expected or Expected(), solo=solo,
        labels=labels or {},
    )  # fmt: skip


def run_on(fabric: Fabric, seed: int = 1, **how: object) -> Outcome:
    found = of(fabric.nodes, seed=seed, **how)  # type: ignore[arg-type]
    return campaign(found, fabric, random.Random(seed))


def warned(outcome: Outcome) -> list[Verdict]:
    return [v for v in outcome.verdicts if v.verdict is not Severity.OK]


def one(outcome: Outcome, kind: str) -> Verdict:
    (found,) = [v for v in warned(outcome) if v.kind == kind]
    return found


# Simulated fabrics


SIZED = [
    (name, n) for name, case in CASES.items() for n in (8, 16, 64) if case.least <= n <= case.most
]


@pytest.mark.parametrize(("name", "n"), SIZED)
def test_the_fault_is_named_and_no_healthy_node_for_sure(name: str, n: int) -> None:
    told = localise.measure(CASES[name], n, 8 if n < 64 else 3)
    assert told.wrongly_certain == 0
    assert told.wrongly_drained == 0
    assert told.right == 1.0, f"seeds {told.wrong}"


def test_512_nodes_take_a_handful_of_rounds() -> None:
    told = localise.measure(CASES["2 bad nodes"], 512, 2)
    assert (told.right, told.wrongly_certain) == (1.0, 0)
    assert max(told.rounds) <= 8


def test_one_bad_node_is_likely_after_two_rounds_and_certain_after_three() -> None:
    nodes = names(64)
    fabric = Fabric(nodes=nodes, sigma=0.01, bad={"gpu007": 0.5})
    found = of(nodes)
    runs: list[Run] = []
    seen = []
    for number in (1, 2, 3):
        runs += fabric.round(found.next_round(runs), number, random.Random(number))
        seen.append(next(v for v in found.verdicts(runs) if "gpu007" in v.nodes))
    assert [(v.kind, v.confidence) for v in seen] == [
        ("path", Confidence.SUSPECTED), ("node", Confidence.LIKELY), ("node", Confidence.CERTAIN),
    ]  # fmt: skip
    assert [v.drains for v in seen] == [False, True, True]
    assert found.next_round(runs) == []


# What a verdict tells


def test_a_verdict_names_partners_figures_rounds_cause_and_step() -> None:
    verdict = one(run_on(Fabric(nodes=names(16), sigma=0.01, bad={"gpu007": 0.4})), "node")
    assert verdict.name == "gpu007"
    assert "with 3 known-good partners" in verdict.say
    assert "gpu007: 7" in verdict.say  # 76 of 190 GB/s
    assert any(line.startswith("round 1 with gpu") for line in verdict.evidence)
    assert verdict.cause
    assert "drain gpu007" in verdict.next_step
    assert verdict.expected == pytest.approx(190, rel=0.03)
    assert "good pairs of this test" in verdict.provenance


def test_a_node_that_is_slow_alone_is_not_told_to_have_a_bad_nic() -> None:
    nodes = names(8)
    solo = [
        Run(group=Group(nodes=(n,)), round=1, state=Progress.DONE, engine="nccl-tests", ranks=8,
            busbw_gb_s=200.0 if n == "gpu003" else 470.0)
        for n in nodes
    ]  # fmt: skip
    own = {("gpu003", "", metric(Level.NODE, "busbw", "nccl-tests")): Baseline(470.0, 9, 0.0)}
    fabric = Fabric(nodes=nodes, sigma=0.01, bad={"gpu003": 0.4})
    verdict = one(run_on(fabric, solo=solo, expected=Expected(own=own)), "node")
    assert "busbw 200 of 470" in verdict.cause
    assert "NVLink" in verdict.next_step


def test_both_ends_of_a_bad_path_are_told_to_be_fine() -> None:
    nodes = names(16)
    (first, *_) = of(nodes).next_round([])
    fabric = Fabric(nodes=nodes, sigma=0.01, bad_path={frozenset(first.nodes): 0.3})
    verdict = one(run_on(fabric), "path")
    assert set(verdict.nodes) == set(first.nodes)
    assert verdict.confidence is Confidence.LIKELY
    assert not verdict.drains
    assert "drain neither" in verdict.next_step


def test_two_nodes_alone_cannot_tell_which_one() -> None:
    nodes = names(2)
    dead = Fabric(nodes=nodes, mute=frozenset(nodes[:1]))
    verdict = one(run_on(dead), "path")
    assert "cannot tell" in verdict.cause
    assert not verdict.drains


def test_software_that_is_missing_is_no_hardware_fault() -> None:
    nodes = names(16)
    fabric = Fabric(nodes=nodes, mute=frozenset({"gpu005"}))
    found = of(nodes)
    runs: list[Run] = []
    while groups := found.next_round(runs):
        number = max((r.round for r in runs), default=0) + 1
        said = "/opt/all_reduce_perf cannot be started: No such file or directory"
        runs += [
            structs.replace(run, error=said, state=Progress.FAILED)
            if run.state is Progress.TIMED_OUT
            else run
            for run in fabric.round(groups, number, random.Random(number))
        ]
    (verdict,) = [v for v in found.verdicts(runs) if "gpu005" in v.nodes]
    assert verdict.verdict is Severity.UNKNOWN
    assert not verdict.drains
    assert "software" in verdict.cause


def test_all_slow_names_nobody_and_calls_nobody_fine() -> None:
    nodes = names(16)
    expected = Expected(nodes={n: NodeSpec(gpus=8, nic_gb_s=400.0) for n in nodes})
    outcome = run_on(Fabric(nodes=nodes, sigma=0.02, overall=0.5), expected=expected)
    verdict = one(outcome, "fabric")
    assert "95" in verdict.say
    assert "[chs]" in verdict.provenance
    assert verdict.expected == pytest.approx(240)
    others = [v for v in outcome.verdicts if v.kind == "node"]
    assert {v.verdict for v in others} == {Severity.UNKNOWN}


def test_cpu_engines_are_never_held_against_the_nics() -> None:
    nodes = names(8)
    expected = Expected(nodes={n: NodeSpec(gpus=8, nic_gb_s=400.0) for n in nodes})
    fabric = Fabric(nodes=nodes, sigma=0.02, overall=0.004, engine="torch-gloo")
    assert warned(run_on(fabric, expected=expected)) == []


def test_slower_than_their_own_past_is_told() -> None:
    nodes = names(8)
    key = metric(Level.PAIRS, "busbw", "nccl-tests")
    own = {(n, "", key): Baseline(190.0, 20, 0.0) for n in nodes}
    fabric = Fabric(nodes=nodes, sigma=0.01, overall=0.7)
    assert "of their own past" in one(run_on(fabric, expected=Expected(own=own)), "fabric").say


def test_refused_nodes_are_unknown_and_stop_nothing() -> None:
    nodes = names(16)
    outcome = run_on(Fabric(nodes=nodes, sigma=0.01, refusing=frozenset({"gpu009"})))
    assert [(v.nodes, v.verdict) for v in warned(outcome)] == [(("gpu009",), Severity.UNKNOWN)]


def test_a_node_that_lost_nics_is_measured_against_its_kind() -> None:
    nodes = names(16)
    specs = {n: NodeSpec(gpus=8, nic_gb_s=400.0) for n in nodes}
    specs["gpu004"] = NodeSpec(gpus=8, nic_gb_s=200.0)
    outcome = run_on(
        Fabric(nodes=nodes, sigma=0.01, overall=2.0, bad={"gpu004": 0.5}),
        expected=Expected(nodes=specs),
    )
    verdict = one(outcome, "node")
    assert (verdict.name, verdict.drains) == ("gpu004", True)
    assert "200 of 400 GB/s" in verdict.cause


def test_a_bad_leaf_is_called_by_its_label_and_drains_nobody() -> None:
    fabric = Fabric(nodes=names(32), sigma=0.02, leaf_size=8, bad_leaf={2: 0.4})
    outcome = run_on(fabric, labels=fabric.labels())
    verdict = one(outcome, "group")
    assert verdict.name == "leaf l2"
    assert set(verdict.nodes) == set(names(32)[16:24])
    assert "drain nobody" in verdict.next_step
    assert not any(v.drains for v in outcome.verdicts)


# Rails and cluster


def test_one_nic_of_a_rail_is_named_with_its_rail() -> None:
    fabric = Fabric(nodes=names(8), sigma=0.02, bad_nic={("gpu006", 3): 0.5})
    outcome = run_on(fabric, level=Level.RAILS)
    verdict = one(outcome, "node")
    assert (verdict.name, verdict.drains) == ("gpu006", True)
    assert "rail 3" in verdict.say
    assert "NIC of GPU3" in verdict.cause
    pairs = [r.group for r in outcome.runs if len(r.group.nodes) == 2]
    assert {group.rail for group in pairs} == {3}


def test_a_whole_rail_is_its_switch() -> None:
    outcome = run_on(Fabric(nodes=names(8), sigma=0.02, bad_rail={5: 0.5}), level=Level.RAILS)
    verdict = one(outcome, "rail")
    assert (verdict.name, verdict.confidence) == ("rail 5", Confidence.LIKELY)
    assert "leaf switch" in verdict.cause


def test_there_are_as_many_rails_as_gpus() -> None:
    nodes = names(4)
    expected = Expected(nodes={n: NodeSpec(gpus=4) for n in nodes})
    outcome = run_on(Fabric(nodes=nodes, sigma=0.01), level=Level.RAILS, expected=expected)
    assert [r.group.rail for r in outcome.runs] == [0, 1, 2, 3]
    assert warned(outcome) == []


def test_a_cluster_that_scales_tells_its_wire_rate() -> None:
    nodes = names(16)
    nic = 190.0 * 15 / 127 / 0.8 * 8
    expected = Expected(nodes={n: NodeSpec(gpus=8, nic_gb_s=nic) for n in nodes})
    outcome = run_on(Fabric(nodes=nodes, sigma=0.01), level=Level.CLUSTER, expected=expected)
    assert [len(r.group.nodes) for r in outcome.runs] == [2, 2, 4, 4, 8, 8, 16]
    assert warned(outcome) == []
    wire = next(v for v in outcome.verdicts if v.name == "wire rate of 16 nodes")
    assert "73% of" in wire.provenance


def test_a_cluster_that_falls_between_its_halves_accuses_no_node() -> None:
    fabric = Fabric(nodes=names(16), sigma=0.01, leaf_size=8, bad_leaf={1: 0.4})
    outcome = run_on(fabric, level=Level.CLUSTER)
    verdict = one(outcome, "fabric")
    assert "it falls at 16 nodes" in verdict.say
    assert "between its halves" in verdict.cause
    assert not any(v.drains for v in outcome.verdicts)


def test_levels_without_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="judge_solo"):
        of(names(2), level=Level.GPU)


# Properties


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Small fabrics with any mixture of faults."""
    nodes = names(draw(st.integers(2, 13)))
    factor = st.floats(0.2, 0.9)
    return Fabric(
        nodes=nodes,
        leaf_size=draw(st.sampled_from([2, 4, 16])),
        sigma=draw(st.sampled_from([0.0, 0.02, 0.05])),
        bad=draw(st.dictionaries(st.sampled_from(nodes), factor, max_size=3)),
        bad_leaf=draw(st.dictionaries(st.integers(0, 3), factor, max_size=1)),
        flaky=draw(st.sampled_from([0.0, 0.1])),
        refusing=draw(st.frozensets(st.sampled_from(nodes), max_size=1)),
        mute=draw(st.frozensets(st.sampled_from(nodes), max_size=1)),
    )


LEVELS = st.sampled_from([Level.PAIRS, Level.RAILS, Level.CLUSTER])
SCHEMES = st.sampled_from(["auto", "shift", "full"])


@QUICK
@given(fabrics(), LEVELS, SCHEMES, st.integers(0, 99))
def test_rounds_are_disjoint_bounded_and_leave_nobody_out(
    fabric: Fabric, level: Level, scheme: str, seed: int
) -> None:
    outcome = run_on(fabric, seed, level=level, scheme=scheme)
    for number in range(1, outcome.rounds + 1):
        nodes = [n for r in outcome.runs if r.round == number for n in r.group.nodes]
        assert len(nodes) == len(set(nodes))
    assert outcome.rounds <= len(fabric.nodes) + 40
    told = {node for v in outcome.verdicts if v.kind == "node" for node in v.nodes}
    named = {node for v in outcome.verdicts for node in v.nodes}
    assert told | named == set(fabric.nodes)
    if level is not Level.CLUSTER:
        assert {n for r in outcome.runs for n in r.group.nodes} == set(fabric.nodes)


@QUICK
@given(fabrics(), LEVELS, st.integers(0, 99), st.data())
def test_an_interrupted_campaign_goes_on_to_the_same_verdicts(
    fabric: Fabric, level: Level, seed: int, data: st.DataObject
) -> None:
    whole = run_on(fabric, seed, level=level)
    cut = data.draw(st.integers(0, len(whole.runs)))
    figures = {(r.round, r.group.nodes, r.group.rail): r for r in whole.runs}
    gone = [structs.replace(r, state=Progress.CANCELLED) for r in whole.runs[cut:]]
    runs = whole.runs[:cut]
    found = of(fabric.nodes, level=level, seed=seed)
    left = found.next_round([*runs, *gone[:1]])
    number = whole.runs[cut].round if cut < len(whole.runs) else whole.rounds + 1
    while left:
        runs += [figures[number, g.nodes, g.rail] for g in left]
        left, number = found.next_round(runs), number + 1
    assert {(r.round, r.group) for r in runs} == {(r.round, r.group) for r in whole.runs}
    assert {v.say for v in found.verdicts(runs)} == {v.say for v in whole.verdicts}


@QUICK
@given(fabrics(), LEVELS, st.integers(0, 99), st.randoms(use_true_random=False))
def test_other_names_get_the_same_verdicts(
    fabric: Fabric, level: Level, seed: int, chance: random.Random
) -> None:
    others = [f"n{i}" for i in range(len(fabric.nodes))]
    chance.shuffle(others)
    new = dict(zip(fabric.nodes, others, strict=True))
    renamed = structs.replace(
        fabric,
        nodes=tuple(others),
        bad={new[n]: f for n, f in fabric.bad.items()},
        refusing=frozenset(new[n] for n in fabric.refusing),
        mute=frozenset(new[n] for n in fabric.mute),
    )
    before, after = (run_on(f, seed, level=level) for f in (fabric, renamed))
    assert [tuple(new[n] for n in r.group.nodes) for r in before.runs] == [
        r.group.nodes for r in after.runs
    ]
    told = [(v.kind, {new[n] for n in v.nodes}, v.verdict, v.confidence) for v in before.verdicts]
    assert told == [(v.kind, {*v.nodes}, v.verdict, v.confidence) for v in after.verdicts]


@QUICK
@given(fabrics(), LEVELS, st.integers(0, 99), st.sampled_from([1e-3, 0.5, 8.0]))
def test_without_a_catalogue_only_ratios_count(
    fabric: Fabric, level: Level, seed: int, factor: float
) -> None:
    scaled = structs.replace(fabric, overall=factor)
    before, after = (run_on(f, seed, level=level) for f in (fabric, scaled))
    assert [r.group for r in before.runs] == [r.group for r in after.runs]
    told = [(v.kind, v.nodes, v.verdict, v.confidence) for v in before.verdicts]
    assert told == [(v.kind, v.nodes, v.verdict, v.confidence) for v in after.verdicts]


@QUICK
@given(st.integers(2, 40), st.integers(0, 99))
def test_healthy_nodes_are_never_certain_whatever_single_runs_do(n: int, seed: int) -> None:
    rng = random.Random(seed)
    fabric = Fabric(nodes=names(n), sigma=0.05, collisions=0.1, leaf_size=4, flaky=0.02)
    outcome = campaign(of(fabric.nodes, seed=seed), fabric, rng)
    assert localise.certain(outcome) == set()


@given(st.integers(2, 33))
def test_schemes_meet_as_promised(n: int) -> None:
    nodes = names(n)
    for scheme in ("shift", "full"):
        found = of(nodes, scheme=scheme)
        outcome = campaign(found, Fabric(nodes=nodes, sigma=0.0), random.Random(0))
        met = {frozenset(r.group.nodes) for r in outcome.runs}
        if scheme == "full":
            assert len(met) == len(outcome.runs) == n * (n - 1) // 2
        assert {node for pair in met for node in pair} == set(nodes)


def test_a_run_without_a_figure_is_a_failed_one() -> None:
    nodes = names(8)
    found = of(nodes)
    runs = [
        Run(group=g, round=1, state=Progress.DONE, engine="nccl-tests",
            busbw_gb_s=None if i == 0 else 190.0, rows=(Row(size_bytes=1 << 30),))
        for i, g in enumerate(found.next_round([]))
    ]  # fmt: skip
    suspects = set(runs[0].group.nodes)
    told = [v for v in found.verdicts(runs) if v.verdict is not Severity.OK]
    assert {node for v in told for node in v.nodes} == suspects
    follow = found.next_round(runs)
    assert sum(bool(suspects & set(g.nodes)) for g in follow) == 2
