"""Figures of active tests of one node: product's mark, siblings, how it ran meanwhile."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.event import Action, Finding, Severity
from tests.judging.build import SLOTS, Built, by_rule, findings

HEALTHY: dict[str, Any] = {
    "gemm_bf16_tflops": 731.0, "gemm_fp8_tflops": 1310.0, "hbm_copy_gb_s": 2790.0,
    "h2d_gb_s": 55.1, "d2h_gb_s": 54.2, "power_w": 688.0, "sm_clock_mhz": 1590.0, "temp_c": 62.0,
    "reasons": 0x4, "pcie_gen": 5, "pcie_width": 16,
}  # fmt: skip


def measured(node: Built, *, pairs: float = 391.0) -> Built:
    """A node after a GPU test in which everything was well."""
    for index, slot in enumerate(SLOTS):
        node.put("gpu_test", slot, id="t1", index=index, **HEALTHY)
    for one, other in itertools.permutations(SLOTS, 2):
        node.put("gpu_test", f"{one}>{other}", id="t1", p2p_gb_s=pairs, peer=True)
    node.put("gpu_test", "summary", id="t1", ok=True, engine="torch-cuda", rc=0)
    return node


def told(node: Built) -> dict[str, Finding]:
    return {rule: one for rule, one in by_rule(findings(node)).items() if "test" in rule}


def test_a_healthy_node_has_no_finding() -> None:
    assert told(measured(Built())) == {}


def test_a_gpu_below_mark_and_siblings_is_to_be_drained_and_says_why() -> None:
    node = measured(Built())
    node.change("gpu_test", SLOTS[5], gemm_bf16_tflops=512.0, sm_clock_mhz=1140.0, reasons=0x44)
    gemm = told(node)["gpu_test.gemm"]
    assert (gemm.severity, gemm.action, gemm.label) == (Severity.CRITICAL, Action.DRAIN, "GPU5")
    assert gemm.say == "GEMM bf16 512 TFLOPS, the node's median 731, it should reach 676"
    assert gemm.cause.startswith("heat")
    assert any("1140 MHz" in line and "median 1590" in line for line in gemm.evidence)


def test_a_slow_gpu_at_the_clock_of_its_siblings_is_not_blamed_on_heat() -> None:
    node = measured(Built())
    node.change("gpu_test", SLOTS[2], gemm_bf16_tflops=670.0)
    gemm = told(node)["gpu_test.gemm"]
    assert gemm.severity is Severity.WARN
    assert gemm.cause.startswith("not the clock")


def test_a_whole_node_that_is_slow_is_seen_by_the_products_mark() -> None:
    node = measured(Built())
    for slot in SLOTS:
        node.change("gpu_test", slot, gemm_bf16_tflops=520.0)
    slow = [f for f in findings(node) if f.rule == "gpu_test.gemm"]
    assert len(slow) == 8
    assert {f.severity for f in slow} == {Severity.WARN}
    assert "hardware.yaml H100-SXM5-80" in slow[0].source


def test_an_unknown_product_is_compared_with_its_siblings_only() -> None:
    node = Built()
    node.inventory(device_id="9999", name="NVIDIA X900")
    measured(node, pairs=120.0)
    for slot in SLOTS:
        node.change("gpu_test", slot, gemm_bf16_tflops=90.0)
    assert told(node) == {}
    node.change("gpu_test", SLOTS[0], gemm_bf16_tflops=70.0)
    assert told(node)["gpu_test.gemm"].severity is Severity.WARN


def test_slow_memory_and_fp8_are_told() -> None:
    node = measured(Built())
    node.change("gpu_test", SLOTS[1], hbm_copy_gb_s=1710.0)
    node.change("gpu_test", SLOTS[3], gemm_fp8_tflops=1100.0)
    assert told(node)["gpu_test.memory"].severity is Severity.CRITICAL
    assert told(node)["gpu_test.gemm"].say.startswith("GEMM fp8 1100 TFLOPS")


@pytest.mark.parametrize(
    ("gen", "lanes", "rate", "slow"),
    [(5, 16, 49.0, False), (5, 16, 47.0, True), (4, 16, 22.0, False), (4, 16, 20.0, True),
     (5, 8, 25.0, False), (5, 8, 22.0, True), (3, 16, 11.0, False), (6, 16, 1.0, False)],
)  # fmt: skip
def test_host_copies_are_measured_by_the_slot(
    gen: int, lanes: int, rate: float, slow: bool
) -> None:
    node = measured(Built())
    for slot in SLOTS:
        node.change("pcie", slot, gen_max=gen, width_max=lanes)
        node.change("gpu_test", slot, h2d_gb_s=60.0, d2h_gb_s=60.0)
    node.change("gpu_test", SLOTS[0], d2h_gb_s=rate)
    assert ("gpu_test.host_copy" in told(node)) is slow


def test_a_link_that_trained_low_is_the_cause() -> None:
    node = measured(Built())
    node.change("gpu_test", SLOTS[0], h2d_gb_s=24.0, d2h_gb_s=24.5, pcie_gen=4)
    host = told(node)["gpu_test.host_copy"]
    assert host.cause == "its PCIe link ran at Gen4 only"
    assert host.value == 24.0


def test_the_gpu_that_slow_pairs_share_is_named_and_not_its_partners() -> None:
    node = measured(Built())
    for other in SLOTS:
        if other != SLOTS[3]:
            for pair in (f"{SLOTS[3]}>{other}", f"{other}>{SLOTS[3]}"):
                node.change("gpu_test", pair, p2p_gb_s=201.0)
    slow = [f for f in findings(node) if f.rule == "gpu_test.peer_copy"]
    assert [(f.label, f.severity) for f in slow] == [("GPU3", Severity.CRITICAL)]
    assert "14 of 14" in slow[0].say


def test_a_single_slow_pair_is_a_path_and_proposes_no_drain() -> None:
    node = measured(Built())
    node.change("gpu_test", f"{SLOTS[0]}>{SLOTS[4]}", p2p_gb_s=90.0, peer=False)
    (slow,) = [f for f in findings(node) if f.rule == "gpu_test.peer_copy"]
    assert (slow.label, slow.action) == ("GPU0>GPU4", Action.WATCH)
    assert slow.cause.startswith("peer access is off")


def test_a_gpu_without_a_figure_is_unknown_and_hides_no_other() -> None:
    node = measured(Built())
    node.put("gpu_test", SLOTS[4], id="t1", error="start: its process ended with status 1")
    node.change("gpu_test", SLOTS[5], gemm_bf16_tflops=500.0)
    assert told(node)["gpu_test.failed"].severity is Severity.UNKNOWN
    assert told(node)["gpu_test.gemm"].label == "GPU5"


def test_figures_of_a_cpu_and_of_an_earlier_test_are_not_judged() -> None:
    node = Built()
    node.put("gpu_test", "cpu", id="t", gemm_bf16_tflops=0.1, hbm_copy_gb_s=3.0)
    node.put("gpu_test", "summary", id="t", ok=True, engine="torch-cpu", rc=0)
    assert told(node) == {}
    node = measured(Built())
    node.change("gpu_test", SLOTS[0], gemm_bf16_tflops=100.0, id="t0")
    assert told(node) == {}


@given(factor=st.floats(min_value=0.5, max_value=1.0), at=st.integers(0, 7))
def test_whoever_is_named_is_the_slow_one(factor: float, at: int) -> None:
    node = measured(Built())
    node.change("gpu_test", SLOTS[at], gemm_bf16_tflops=731.0 * factor)
    named = [f.device for f in findings(node) if f.rule == "gpu_test.gemm"]
    assert named == ([SLOTS[at]] if 731.0 * factor < 0.85 * 795 or factor < 0.9 else [])


def reduced(
    node: Built, busbw: float, ring: float | None = None, **more: Any
) -> dict[str, Finding]:
    """Findings after an all-reduce over the node's 8 GPUs."""
    values = {"id": "a", "ok": True, "engine": "nccl-tests", "rc": 0, "ranks": 8, **more}
    node.put("nccl", "summary", busbw_max_gb_s=busbw, **values)
    if ring is not None:
        node.put("nccl", "ring", busbw_max_gb_s=ring, **values)
    return {rule: f for rule, f in by_rule(findings(node)).items() if rule.startswith("nccl.")}


def test_the_all_reduce_is_measured_by_the_products_floor() -> None:
    assert reduced(Built(), 478.0) == {}
    slow = reduced(Built(), 360.0)["nccl.busbw"]
    assert slow.severity is Severity.WARN


def test_what_nccl_says_itself_is_the_cause() -> None:
    node = Built()
    rows: list[Any] = [{"clue": "p2p_off", "text": "GPU3 and GPU4 may not reach each other"}]
    node.put("nccl", "clues", rows=rows, id="a", count=1)
    slow = reduced(node, 212.0)["nccl.busbw"]
    assert slow.cause == "GPU3 and GPU4 may not reach each other"
    assert slow.cause in slow.evidence


@pytest.mark.parametrize(
    ("nvls", "ring", "told_of"),
    [(480, 365, False), (371, 365, True), (150, 149, True), (458, 458, False)],
)
def test_nvls_that_gains_nothing_over_a_ring(nvls: float, ring: float, told_of: bool) -> None:
    assert ("nccl.nvls" in reduced(Built(), nvls, ring)) is told_of


def test_a_product_without_nvls_and_a_run_on_several_nodes_are_not_measured_so() -> None:
    node = Built()
    node.inventory(device_id="20b2")
    assert reduced(node, 233.0, 232.0) == {}
    assert reduced(Built(), 45.0, nnodes=8) == {}
    assert reduced(Built(), 45.0, collective="alltoall") == {}
    assert reduced(Built(), 0.4, engine="torch-gloo") == {}
