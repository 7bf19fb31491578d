"""Nodes and GPUs alone: two of catalogue, peers and past; or one with hardware evidence."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from console.active import expect, schemes
from console.active.expect import Expected, NodeSpec, capacities, metric, of_facts, wire_gb_s
from console.active.level import grade, level
from console.active.localise import judge_solo, with_expected
from console.active.results import (
    Confidence,
    Group,
    Level,
    Progress,
    Reading,
    Row,
    Run,
    Verdict,
)
from probes.event import Finding, Severity
from probes.own import Baseline
from tests.judging.build import IB, RULES, SLOTS, Built

H100 = RULES.product("2330")
assert H100 is not None
NODES = [f"gpu{i:03}" for i in range(1, 9)]
CATALOGUE = Expected(nodes={n: NodeSpec(product=H100, gpus=8) for n in NODES})
BUSBW = metric(Level.NODE, "busbw", "nccl-tests")


def node(name: str, busbw: float | None = 470.0, ring: float | None = None, **how: Any) -> Run:
    readings: tuple[Reading, ...] = ()
    if ring is not None:
        readings = (Reading(what="busbw_ring", value=ring, unit="GB/s", node=name),)
    fields: dict[str, Any] = {
        "state": Progress.DONE, "engine": "nccl-tests", "ranks": 8, "busbw_gb_s": busbw,
        "readings": readings, "rows": (Row(size_bytes=4 << 30),), **how,
    }  # fmt: skip
    return Run(group=Group(nodes=(name,)), round=1, **fields)


def gpus(name: str, engine: str = "torch-cuda", **changed: dict[int, float]) -> Run:
    """GEMM, HBM copy and peer copies of eight GPUs; `what={index: value}` changes single ones."""
    rng = random.Random(name)
    usual = {"gemm_bf16": 790.0, "hbm_copy": 2600.0, "h2d": 55.0}
    readings = [
        Reading(
            what=what, unit="GB/s", node=name, device=SLOTS[i], label=f"GPU{i}",
            value=changed.get(what, {}).get(i, value * rng.uniform(0.99, 1.01)),
        )
        for what, value in usual.items() for i in range(8)
    ]  # fmt: skip
    slow = changed.get("p2p", {})
    readings += [
        Reading(
            what="p2p", unit="GB/s", node=name, device=f"{SLOTS[a]}>{SLOTS[b]}",
            label=f"GPU{a}>GPU{b}", value=slow.get(a * 8 + b, slow.get(b * 8 + a, 390.0)),
        )
        for a in range(8) for b in range(a + 1, 8)
    ]  # fmt: skip
    return Run(
        group=Group(nodes=(name,)), round=1, state=Progress.DONE, engine=engine,
        readings=tuple(readings),
    )  # fmt: skip


def bad(level_: Level, runs: list[Run], expected: Expected = CATALOGUE) -> list[Verdict]:
    return [v for v in judge_solo(level_, runs, expected) if v.verdict is not Severity.OK]


# Nodes


def test_healthy_nodes_are_ok_with_what_was_expected_and_by_whom() -> None:
    verdicts = judge_solo(Level.NODE, [node(n) for n in NODES], CATALOGUE)
    assert {v.verdict for v in verdicts} == {Severity.OK}
    assert [v.name for v in verdicts] == NODES
    assert verdicts[0].expected == pytest.approx(0.9 * 460)
    assert "hardware.yaml H100-SXM5-80" in verdicts[0].provenance


def test_catalogue_and_peers_make_a_slow_node_likely() -> None:
    (verdict,) = bad(Level.NODE, [node(n, 200.0 if n == "gpu003" else 470.0) for n in NODES])
    assert (verdict.kind, verdict.name) == ("node", "gpu003")
    assert (verdict.verdict, verdict.confidence) == (Severity.CRITICAL, Confidence.LIKELY)
    assert verdict.drains
    assert any(line.startswith("busbw catalogue: 200 of 414") for line in verdict.evidence)
    assert any("median of 8 of 8 nodes" in line for line in verdict.evidence)


def test_one_comparison_alone_is_a_suspicion_and_drains_nobody() -> None:
    (verdict,) = bad(Level.NODE, [node("gpu001", 200.0)])
    assert (verdict.verdict, verdict.confidence) == (Severity.WARN, Confidence.SUSPECTED)
    assert not verdict.drains
    assert "before draining" in verdict.next_step


def test_all_three_are_certain_and_hard_evidence_makes_one_likely() -> None:
    own = {("gpu003", "", BUSBW): Baseline(470.0, 20, 0.0)}
    expected = structs.replace(CATALOGUE, own=own)
    runs = [node(n, 200.0 if n == "gpu003" else 470.0) for n in NODES]
    (verdict,) = bad(Level.NODE, runs, expected)
    assert verdict.confidence is Confidence.CERTAIN
    hard = structs.replace(CATALOGUE, hard={("gpu001", ""): "nvlink.down: link 7 is down"})
    (verdict,) = bad(Level.NODE, [node("gpu001", 200.0)], hard)
    assert verdict.drains
    assert verdict.cause == "nvlink.down: link 7 is down"


def test_a_bad_link_shows_in_the_ring_where_nvls_hides_it() -> None:
    runs = [node(n, 470.0, 190.0 if n == "gpu005" else 365.0) for n in NODES]
    (verdict,) = bad(Level.NODE, runs)
    assert verdict.name == "gpu005"
    assert "busbw_ring 190 of 328" in verdict.say
    assert "NVLS hides it" in verdict.cause
    assert verdict.drains


def test_a_node_that_does_not_use_nvls_is_told_so() -> None:
    runs = [node(n, 362.0 if n == "gpu002" else 470.0, 360.0) for n in NODES]
    (verdict,) = bad(Level.NODE, runs)
    assert "NVLS does not seem to be used" in verdict.cause


def test_what_is_faster_than_any_ring_uses_nvls() -> None:
    assert bad(Level.NODE, [node(n, 458.0, 458.0) for n in NODES], CATALOGUE) == []


def test_wrong_data_is_a_fault_and_a_missing_program_is_not() -> None:
    runs = [node(n) for n in NODES[:5]]
    runs.append(node("gpu006", None, state=Progress.FAILED, error="128 wrong values"))
    runs.append(node("gpu007", None, state=Progress.FAILED, error="cannot be started: not found"))
    runs.append(node("gpu008", None, state=Progress.TIMED_OUT))
    wrong, missing, late = bad(Level.NODE, runs)
    assert wrong.drains
    assert "corrupts" in wrong.cause
    assert [v.verdict for v in (missing, late)] == [Severity.UNKNOWN, Severity.WARN]
    assert [v.drains for v in (missing, late)] == [False, False]


def test_without_anything_to_compare_with_nobody_is_ok() -> None:
    (verdict,) = bad(Level.NODE, [node("gpu001", 470.0)], Expected())
    assert verdict.verdict is Severity.UNKNOWN
    assert "nothing to compare with" in verdict.say


def test_cpu_figures_are_compared_with_each_other_only() -> None:
    runs = [node(n, 0.5, engine="torch-gloo") for n in NODES]
    own = {("gpu001", "", metric(Level.NODE, "busbw", "torch-gloo")): Baseline(9.0, 9, 0.0)}
    assert bad(Level.NODE, runs, structs.replace(CATALOGUE, own=own)) == []
    runs[3] = node(NODES[3], 0.05, engine="torch-gloo")
    (verdict,) = bad(Level.NODE, runs)
    assert (verdict.name, verdict.confidence) == (NODES[3], Confidence.SUSPECTED)
    lone = bad(Level.NODE, [node("gpu001", 0.5, engine="torch-gloo")])
    assert [v.verdict for v in lone] == [Severity.UNKNOWN]


# GPUs


def test_a_slow_gpu_is_named_by_catalogue_and_its_seven_peers() -> None:
    (verdict,) = bad(Level.GPU, [gpus("gpu001", gemm_bf16={5: 520.0})])
    assert (verdict.kind, verdict.name, verdict.drains) == ("gpu", "gpu001 GPU5", True)
    assert "gemm_bf16 520 of" in verdict.say
    assert "thermal" in verdict.cause
    assert bad(Level.GPU, [gpus("gpu001")]) == []


def test_a_whole_slow_node_is_one_verdict_not_eight() -> None:
    slow = gpus("gpu002", gemm_bf16=dict.fromkeys(range(8), 500.0))
    others = [gpus(n) for n in NODES if n != "gpu002"]
    (verdict,) = bad(Level.GPU, [slow, *others])
    assert (verdict.kind, verdict.name) == ("node", "gpu002")
    assert verdict.confidence is Confidence.LIKELY


def test_peer_copies_name_a_gpu_when_all_of_its_are_slow_else_the_path() -> None:
    of_three = {3 * 8 + other: 150.0 for other in range(8)}
    (verdict,) = bad(Level.GPU, [gpus("gpu001", p2p=of_three)])
    assert (verdict.kind, verdict.name) == ("gpu", "gpu001 GPU3")
    (verdict,) = bad(Level.GPU, [gpus("gpu001", p2p={1 * 8 + 6: 150.0})])
    assert (verdict.kind, verdict.name) == ("path", "gpu001 GPU1-GPU6")
    assert not verdict.drains


def test_readings_are_given_back_with_expectation_and_verdict() -> None:
    (run,) = with_expected(Level.GPU, [gpus("gpu001", hbm_copy={2: 900.0})], CATALOGUE)
    told = {(r.what, r.label): r for r in run.readings}
    slow, fine = told["hbm_copy", "GPU2"], told["hbm_copy", "GPU3"]
    assert (slow.verdict, fine.verdict) == (Severity.CRITICAL, Severity.OK)
    assert fine.expected == 1905
    assert "hardware.yaml" in fine.provenance


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.98, 1.02), min_size=8, max_size=8), st.sampled_from([1e-3, 1.0, 50.0]))
def test_peers_agree_whatever_the_unit(shares: list[float], factor: float) -> None:
    runs = [node(n, 400.0 * factor * s) for n, s in zip(NODES, shares, strict=True)]
    assert bad(Level.NODE, runs, Expected()) == []


# What is expected


def test_expectations_come_from_what_the_probes_read() -> None:
    built = Built("gpu001")
    down = IB[3]
    before = built.facts.get("infiniband", down)
    assert before is not None
    built.put("infiniband", down, rows=None, **{**before.values, "state": 1, "rate_gbps": 10.0})
    hard = Finding(rule="ib.down", severity=Severity.CRITICAL, node="gpu001", say="port", hard=True)
    found = of_facts([built.facts], RULES, findings=[hard, structs.replace(hard, hard=False)])
    spec = found.spec("gpu001")
    assert spec.product == H100
    assert (spec.gpus, spec.nic_gb_s) == (8, 400.0)
    assert found.hard == {("gpu001", ""): "ib.down: port"}
    assert found.spec("other") == NodeSpec()


def test_a_kind_of_node_needs_three_of_them() -> None:
    def of(*sums: float) -> dict[str, float]:
        names = [f"n{i}" for i in range(len(sums))]
        specs = {n: NodeSpec(nic_gb_s=s or None) for n, s in zip(names, sums, strict=True)}
        return capacities(Expected(nodes=specs), names)

    assert set(of(*[400.0] * 6, 200.0, 200.0).values()) == {400.0}
    assert list(of(*[400.0] * 4, *[200.0] * 4).values()) == [400.0] * 4 + [200.0] * 4
    assert of(400.0, 0.0, 0.0) == {}
    assert set(of(400.0, 400.0, 0.0).values()) == {400.0}


def test_the_wire_rate_of_published_figures() -> None:
    assert wire_gb_s(387.0, 8, 64) == pytest.approx(43.0)
    assert wire_gb_s(382.0, 4, 32) == pytest.approx(0.74 * 50, rel=0.01)
    run = Run(
        group=Group(nodes=tuple(NODES[:4])), round=1, state=Progress.DONE, engine="nccl-tests",
        ranks=32, busbw_gb_s=382.0, rows=(Row(size_bytes=16 << 30),),
    )  # fmt: skip
    mark = expect.wire(run, 400.0)
    assert mark is not None
    assert mark.value == pytest.approx(36.5)
    assert expect.wire(structs.replace(run, engine="torch-gloo"), 400.0) is None
    assert expect.wire(structs.replace(run, rows=(Row(size_bytes=16 << 20),)), 400.0) is None
    assert expect.wire(structs.replace(run, group=Group(nodes=("a", "b"))), 400.0) is None


# Schemes and levels


@given(st.integers(2, 70))
def test_a_round_robin_meets_each_pair_once(n: int) -> None:
    nodes = [str(i) for i in range(n)]
    met = [
        frozenset(pair)
        for i in range(schemes.full_rounds(n))
        for pair in schemes.full_round(nodes, i)
    ]
    assert len(met) == len(set(met)) == n * (n - 1) // 2


@given(st.integers(2, 70))
def test_a_shift_uses_everybody_and_lets_another_one_rest_each_time(n: int) -> None:
    nodes = [str(i) for i in range(n)]
    resting = []
    assert schemes.shift_rounds(n) == math.ceil(math.log2(n))
    for i in range(schemes.shift_rounds(n)):
        ran = [node for pair in schemes.shift_round(nodes, i) for node in pair]
        assert len(ran) == len(set(ran)) == n - n % 2
        resting += sorted(set(nodes) - set(ran))
    assert len(set(resting)) == len(resting)


def test_sizes_double_up_to_all() -> None:
    assert schemes.doubling(64) == [2, 4, 8, 16, 32, 64]
    assert schemes.doubling(12) == [2, 4, 8, 12]
    assert schemes.doubling(3) == [2, 3]
    assert schemes.doubling(1) == []


def test_the_good_level_is_found_below_any_number_of_bad_runs() -> None:
    rng = random.Random(3)
    good = [190 * rng.gauss(1, 0.03) for _ in range(40)]
    found = level([*good, *(90.0 for _ in range(60))])
    assert found is not None
    assert found.value == pytest.approx(190, rel=0.02)
    assert found.noise == pytest.approx(0.03, abs=0.01)
    few = level([60.0, 70.0, 80.0, 188.0])
    assert few is not None
    assert (few.value, few.n) == (188.0, 1)
    assert level([]) is None
    assert level([0.0]) is None


def test_a_grade_needs_effect_and_evidence() -> None:
    assert grade([0.5], 0.03) is Severity.CRITICAL
    assert grade([0.88], 0.05) is Severity.OK
    assert grade([0.88] * 9, 0.05) is Severity.CRITICAL
    assert grade([0.93] * 9, 0.03) is Severity.WARN
    assert grade([0.96] * 99, 0.03) is Severity.OK
    assert grade([], 0.03) is Severity.UNKNOWN
