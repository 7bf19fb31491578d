"""The findings of a test and the verdicts of its campaign say the same of the same figures."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from console.active import votes
from console.active.expect import of_facts
from console.active.measured import run_of
from console.active.results import Group, Level, Progress, Run
from console.active.solo import judge_solo
from probes.event import Finding, Sample, Severity
from probes.rules import Rules
from tests.judging.build import RULES, SLOTS, Built, findings, with_limit

ALONE = Run(group=Group(nodes=("gpu001",)), round=1, state=Progress.RUNNING)
HEALTHY: dict[str, Any] = {
    "gemm_bf16_tflops": 731.0, "gemm_fp8_tflops": 1310.0, "hbm_copy_gb_s": 2790.0,
    "h2d_gb_s": 55.1, "d2h_gb_s": 54.2,
}  # fmt: skip
PAIRS = list(itertools.permutations(SLOTS, 2))
Worst = dict[str, Severity]


def run_on(node: Built) -> Run:
    """The campaign's run, of the same Samples that the findings are made from."""
    samples = [s for s in node.facts.latest.values() if isinstance(s, Sample)]
    return run_of(ALONE, samples, Progress.DONE)


def worst_of(found: list[tuple[str, Severity]]) -> Worst:
    """Device -> the worst that is said of it; fine ones are left out."""
    told: Worst = {}
    for device, severity in found:
        if severity.rank > told.get(device, Severity.OK).rank:
            told[device] = severity
    return told


def about(node: Built, rules: Rules, prefix: str) -> list[Finding]:
    return [f for f in findings(node, rules=rules) if f.rule.startswith(prefix)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(HEALTHY)), st.integers(0, 7), st.floats(0.3, 1.05)
        ), max_size=12,
    ),
    st.floats(0.5, 1.05),
    st.sampled_from([(3, 8), (4, 16), (5, 16)]),
    st.floats(0.7, 0.98),
)  # fmt: skip
def test_single_gpus(
    changes: list[tuple[str, int, float]], all_of: float, slot: tuple[int, int], floor: float
) -> None:
    node, rules = Built("gpu001"), with_limit("gpu_test.gemm_floor", floor)
    for index, device in enumerate(SLOTS):
        node.change("pcie", device, gen_max=slot[0], width_max=slot[1])
        values: dict[str, Any] = {name: value * all_of for name, value in HEALTHY.items()}
        for name, at, factor in changes:
            if at == index:
                values[name] *= factor
        node.put("gpu_test", device, id="t", index=index, **values)
    node.put("gpu_test", "summary", id="t", ok=True, engine="torch-cuda")
    expected = of_facts([node.facts], rules)
    items = votes.items(Level.GPU, [run_on(node)], expected)
    by_verdict = worst_of([(i.reading.device, i.severity) for i in items])
    by_finding = worst_of([(f.device, f.severity) for f in about(node, rules, "gpu_test.")])
    assert by_verdict == by_finding


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.integers(0, 55), st.floats(50.0, 395.0), max_size=20),
    st.sets(st.integers(0, 7), max_size=3),
)
def test_peer_copies(slow: dict[int, float], bad: set[int]) -> None:
    node = Built("gpu001")
    for index, device in enumerate(SLOTS):
        node.put("gpu_test", device, id="t", index=index, **HEALTHY)
    for place, (one, other) in enumerate(PAIRS):
        rate = 120.0 if {SLOTS.index(one), SLOTS.index(other)} & bad else slow.get(place, 391.0)
        node.put("gpu_test", f"{one}>{other}", id="t", p2p_gb_s=rate, peer=True)
    node.put("gpu_test", "summary", id="t", ok=True, engine="torch-cuda")
    verdicts = judge_solo(Level.GPU, [run_on(node)], of_facts([node.facts], RULES))
    found = about(node, RULES, "gpu_test.")
    gpus = {f.label: f.severity for f in found if ">" not in f.device}
    assert {v.name.split()[1]: v.verdict for v in verdicts if v.kind == "gpu"} == gpus
    # Findings tell a few pairs only, and each direction by itself.
    assert any(v.kind == "path" for v in verdicts) == any(">" in f.device for f in found)


@settings(max_examples=60, deadline=None)
@given(st.floats(150.0, 500.0), st.floats(330.0, 500.0), st.sampled_from([8, 7, 2]))
def test_whole_nodes(busbw: float, ring: float, ranks: int) -> None:
    """A slow ring has no finding of its own, hence none is made here."""
    node = Built("gpu001")
    values: dict[str, Any] = {"busbw_largest_gb_s": busbw, "busbw_max_gb_s": busbw, "ranks": ranks}
    rings = {**values, "busbw_largest_gb_s": ring, "busbw_max_gb_s": ring}
    node.put("nccl", "summary", id="t", ok=True, engine="torch-nccl", nnodes=1, **values)
    node.put("nccl", "ring", id="t", ok=True, **rings)
    found = about(node, RULES, "nccl.")
    (verdict,) = judge_solo(Level.NODE, [run_on(node)], of_facts([node.facts], RULES))
    worst = max((f.severity for f in found), key=lambda s: s.rank, default=Severity.OK)
    assert verdict.verdict is (worst if ranks == 8 else Severity.UNKNOWN)


def test_healthy_gpus_of_the_demo_are_fine() -> None:
    """726 to 731 TFLOPS are below 92 % of an H100's best 795, and above the mark of the rules."""
    node = Built("gpu001")
    for index, device in enumerate(SLOTS):
        node.put("gpu_test", device, id="t", index=index, gemm_bf16_tflops=726.0 + index % 6)
    node.put("gpu_test", "summary", id="t", ok=True, engine="torch-cuda")
    expected = of_facts([node.facts], RULES)
    assert {v.verdict for v in judge_solo(Level.GPU, [run_on(node)], expected)} == {Severity.OK}
    strict = structs.replace(expected, limits={**expected.limits, "gpu_test.gemm_floor": 0.92})
    assert judge_solo(Level.GPU, [run_on(node)], strict)[0].verdict is Severity.WARN
