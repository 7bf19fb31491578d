"""Slow GPUs are named with their reason; healthy groups and the known traps are not."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.scheduler import Allocation, Job
from probes.event import Action, Finding, NodeState, Row, Scalar, Severity
from probes.loaded import BRAKE_BIT, HW_SLOWDOWN_BIT, HW_THERMAL_BIT, POWER_CAP_BIT
from probes.spread import Gates, below, high, low, spread
from probes.straggler import compare
from tests.judging.build import NOW, RULES, SLOTS, Built, fleet

CASES = Path(__file__).parents[3] / "shared" / "cases"
GATES = Gates(3.5, 0.95, 0.93)
CLOCKS = st.lists(st.floats(min_value=750, max_value=2100), min_size=4, max_size=64)
HOT = HW_THERMAL_BIT | HW_SLOWDOWN_BIT


def alter(node: Built, probe: str, device: str, **values: Scalar) -> None:
    before = node.facts.get(probe, device)
    assert before is not None
    node.put(probe, device, rows=None, **{**before.values, **values})


def gpu(node: Built, index: int, **values: Scalar) -> None:
    alter(node, "gpu", SLOTS[index], **values)


def job(node: Built, name: str, indices: range = range(8)) -> None:
    before = node.facts.get("processes")
    rows: list[Row] = [*(before.rows if before else [])]
    rows += [{"gpu": SLOTS[i], "pid": 1000 + i, "job": name} for i in indices]
    node.put("processes", "", rows=rows)


def throttled(node: Built, index: int = 5, **values: Scalar) -> None:
    said: dict[str, Scalar] = {
        "sm_clock_mhz": 1200, "reasons": HOT, "temp_c": 93, "power_w": 420.0, **values,
    }  # fmt: skip
    gpu(node, index, **said)


def found(*nodes: Built) -> list[Finding]:
    return compare((node.facts for node in nodes), RULES, NOW)


def only(*nodes: Built) -> Finding:
    (finding,) = found(*nodes)
    return finding


# What must be found


def test_a_thermal_straggler_is_named_with_its_reason_and_the_chain() -> None:
    node = Built()
    throttled(node)
    finding = only(node)
    assert finding.rule == "straggler.gpu"
    assert finding.severity is Severity.WARN
    assert (finding.device, finding.label) == (SLOTS[5], "GPU5")
    assert finding.say == (
        "GPU5 runs at 1.20 of 1.98 GHz, 32 % below its 7 peers: HW thermal slowdown at 93 °C"
    )
    text = " | ".join(finding.evidence)
    for piece in (
        "median 1755",
        "P75 1755",
        "8 alike",
        "0x48",
        "HW thermal",
        "likely",
        "420 W",
        "68 % of P75",
        "one look",
        "power 420 W, median 650",
    ):
        assert piece in text, piece
    assert finding.cause == (
        "cooling (fan, heat sink, coolant, inlet air) → HW thermal slowdown at 93 °C → SM clock "
        "1.20 of 1.98 GHz → up to 32 % slower than its 7 peers → every kernel takes longer, and "
        "the whole job waits for this rank"
    )
    assert finding.next_step
    assert finding.value == pytest.approx(1200 / 1755, abs=0.001)


def test_below_half_speed_with_hardware_evidence_is_critical_and_drains() -> None:
    node = Built()
    throttled(node, sm_clock_mhz=435)
    finding = only(node)
    assert finding.severity is Severity.CRITICAL
    assert finding.action is Action.DRAIN


def test_a_clock_alone_is_never_critical() -> None:
    node = Built()
    throttled(node, sm_clock_mhz=300, reasons=0)
    finding = only(node)
    assert finding.severity is Severity.WARN  # peers and catalogue agree
    assert "no reason bit" in finding.say


def test_one_comparison_alone_is_a_suspicion() -> None:
    node = Built()
    for index in range(8):
        gpu(node, index, power_w=690.0)
    gpu(node, 2, sm_clock_mhz=1500)  # as capped as its peers: the catalogue cannot tell
    finding = only(node)
    assert finding.rule == "straggler.suspect"
    assert finding.severity is Severity.INFO
    assert "suspected: one comparison alone" in " ".join(finding.evidence)


def test_time_spent_throttling_counts_when_the_bit_is_off_just_now() -> None:
    node = Built()
    for index in range(8):
        gpu(node, index, power_w=690.0)
    node.change(
        "gpu", SLOTS[2], after_s=2.0, sm_clock_mhz=1500, thermal_hw_ns=int(0.3e9), temp_c=90
    )
    assert "HW thermal slowdown" in only(node).say


def test_three_bad_of_eight_are_all_named() -> None:
    node = Built()
    for index in (1, 4, 6):
        throttled(node, index)
    assert {f.label for f in found(node)} == {"GPU1", "GPU4", "GPU6"}


def test_a_power_brake_on_all_gpus_is_one_finding_about_the_node() -> None:
    node = Built()
    for index in range(8):
        gpu(node, index, sm_clock_mhz=435 + 15 * (index % 2), power_w=168.4 + 2 * index,
            reasons=BRAKE_BIT | HW_SLOWDOWN_BIT)  # fmt: skip
    finding = only(node)
    assert finding.rule == "straggler.node"
    assert finding.device == ""
    assert finding.severity is Severity.CRITICAL
    for piece in ("all 8", "22 %", "175 of 700 W", "HW power brake"):
        assert piece in finding.say, piece
    assert "PSU" in finding.next_step


def test_a_slow_node_among_the_nodes_of_its_job_is_named() -> None:
    nodes = fleet(5)
    for node in nodes:
        job(node, "77")
    for index in range(8):
        gpu(nodes[2], index, sm_clock_mhz=1300, reasons=0, power_w=500.0)
    finding = only(*nodes)
    assert (finding.rule, finding.node) == ("straggler.node", "gpu003")
    assert finding.severity is Severity.WARN
    assert "4 other nodes of job 77" in finding.say
    assert "weak, 5 nodes" in " ".join(finding.evidence)


def test_a_slow_node_without_hardware_evidence_is_never_critical() -> None:
    nodes = fleet(5)
    for node in nodes:
        job(node, "77")
    for index in range(8):
        gpu(nodes[2], index, sm_clock_mhz=400, reasons=0, power_w=200.0)
    assert only(*nodes).severity is Severity.WARN


def test_a_small_slow_node_is_one_finding_not_one_a_gpu() -> None:
    nodes = fleet(8)
    for node in nodes:
        job(node, "77")
        for slot in SLOTS[2:]:
            node.put("gpu", slot, gone=True)
    for index in range(2):
        throttled(nodes[3], index)
    finding = only(*nodes)
    assert (finding.rule, finding.node) == ("straggler.node", "gpu004")


def test_nodes_with_few_gpus_are_compared_across_the_job() -> None:
    nodes = fleet(8)
    for node in nodes:
        job(node, "77")
        for slot in SLOTS[1:]:
            node.put("gpu", slot, gone=True)
    throttled(nodes[3], 0)
    finding = only(*nodes)
    assert (finding.node, finding.label) == ("gpu004", "GPU0")
    assert "7 peers of job 77" in finding.say


def test_a_job_that_waits_is_not_the_nodes_fault() -> None:
    nodes = fleet(2)
    for node in nodes:
        job(node, "48177")
        for index in range(8):
            gpu(node, index, power_w=230.0, util_percent=100, sm_clock_mhz=1980, reasons=0)
    waits = found(*nodes)
    assert [(f.rule, f.severity, f.node) for f in waits] == [
        ("straggler.job_waits", Severity.INFO, "gpu001"),
        ("straggler.job_waits", Severity.INFO, "gpu002"),
    ]
    assert "the job waits, not the node" in waits[0].say
    assert "48177" in waits[0].say


@pytest.mark.parametrize(
    "values",
    [{"power_w": 500.0}, {"util_percent": 60}, {"sm_clock_mhz": 1400}, {"power_limit_w": 0.0}],
    ids=["computes", "half busy", "low clock", "no limit"],
)
def test_a_node_that_does_not_fit_the_pattern_does_not_wait(values: dict[str, Scalar]) -> None:
    node = Built()
    waits: dict[str, Scalar] = {
        "power_w": 230.0, "util_percent": 100, "sm_clock_mhz": 1980, "reasons": 0,
    }  # fmt: skip
    for index in range(8):
        gpu(node, index, **{**waits, **values})
    assert found(node) == []


@pytest.mark.parametrize("fault", ["slow", "idle"])
def test_a_waiting_job_names_the_gpu_it_may_wait_for(fault: str) -> None:
    nodes = fleet(2)
    for node in nodes:
        job(node, "9")
        for index in range(8):
            gpu(node, index, power_w=230.0, util_percent=100, sm_clock_mhz=1980, reasons=0)
    if fault == "slow":
        throttled(nodes[1], 3)
    else:
        gpu(nodes[1], 3, util_percent=0, power_w=90.0)
    waits = [f for f in found(*nodes) if f.rule == "straggler.job_waits" and f.node == "gpu001"]
    assert "gpu002 GPU3" in waits[0].say


# What must stay quiet


def test_healthy_nodes_are_quiet() -> None:
    assert found(*fleet(4)) == []
    assert compare([], RULES, NOW) == []


def test_idle_gpus_are_not_compared() -> None:
    node = Built()
    gpu(node, 1, util_percent=0, sm_clock_mhz=345, reasons=0x1, pstate=8, power_w=70.0)
    gpu(node, 2, util_percent=60, sm_clock_mhz=345, reasons=0x1)
    assert found(node) == []


def test_the_sw_power_cap_alone_is_normal() -> None:
    node = Built()
    for index in range(8):
        gpu(node, index, reasons=POWER_CAP_BIT, power_w=698.0, sm_clock_mhz=1300 + 10 * index)
    assert found(node) == []


def test_a_capped_gpu_whose_peers_wait_works_harder() -> None:
    node = Built()
    for index in range(8):
        gpu(node, index, power_w=500.0, sm_clock_mhz=1980, reasons=0)
    gpu(node, 4, power_w=699.0, sm_clock_mhz=1500, reasons=POWER_CAP_BIT)
    assert found(node) == []


def test_low_power_at_a_normal_clock_is_no_straggler() -> None:
    node = Built()
    gpu(node, 4, power_w=300.0, reasons=0)
    assert found(node) == []


def test_mixed_power_limits_are_not_compared() -> None:
    node = Built()
    for index in range(4):
        gpu(node, index, power_limit_w=500.0, power_w=495.0, sm_clock_mhz=1400)
    assert found(node) == []


@pytest.mark.parametrize(
    ("probe", "values"),
    [
        ("inventory", {"pci_device_id": "26b9", "name": "NVIDIA L40S"}),
        ("inventory", {"pci_subsystem_id": "17c110de"}),
        ("ecc", {"ecc_mode": False}),
    ],
)
def test_mixed_products_boards_and_modes_are_not_compared(
    probe: str, values: dict[str, Scalar]
) -> None:
    node = Built()
    for index in range(3):
        alter(node, probe, SLOTS[index], **values)
        gpu(node, index, sm_clock_mhz=1400, power_w=699.0)
    assert found(node) == []


def test_mig_parents_are_not_compared() -> None:
    node = Built()
    node.change("inventory", SLOTS[3], mig_mode=True)
    gpu(node, 3, sm_clock_mhz=600, reasons=0)
    assert found(node) == []
    node.drop("gpu", SLOTS[3], "util_percent")
    assert found(node) == []


def test_different_jobs_are_not_compared() -> None:
    node = Built()
    job(node, "1", range(4))
    job(node, "2", range(4, 8))
    for index in range(4, 8):
        gpu(node, index, sm_clock_mhz=1400, power_w=699.0)
    assert found(node) == []


def test_with_several_jobs_and_no_processes_nothing_is_compared() -> None:
    node = Built()
    jobs = (Job(id="1"), Job(id="2"))
    node.facts.apply(Allocation(node="gpu001", at=NOW, scheduler="slurm", state="mixed", jobs=jobs))
    gpu(node, 5, sm_clock_mhz=1400, power_w=699.0)
    assert found(node) == []


def test_another_role_or_driver_is_not_compared_across_nodes() -> None:
    nodes = [*fleet(3), Built("login1", role="login"), Built("gpu009")]
    for node in nodes:
        job(node, "77")
    nodes[4].change("inventory", "", driver_version="535.1")
    for node in nodes[3:]:
        for index in range(8):
            gpu(node, index, sm_clock_mhz=1400, reasons=0)
    assert found(*nodes) == []


def test_an_old_reading_of_a_hung_probe_is_not_compared() -> None:
    node = Built()
    throttled(node)
    node.at += 60
    node.put("host", "", load1=1.0)
    for slot in (*SLOTS[:5], *SLOTS[6:]):
        node.change("gpu", slot)
    assert found(node) == []


@pytest.mark.parametrize("state", [NodeState.UNREACHABLE, NodeState.STALE, NodeState.PENDING])
def test_a_node_that_does_not_answer_is_not_compared(state: NodeState) -> None:
    node = Built()
    throttled(node)
    node.status(state)
    assert found(node) == []


@pytest.mark.parametrize("number", [1, 2, 3])
def test_up_to_three_gpus_have_no_peers(number: int) -> None:
    node = Built()
    for slot in SLOTS[number:]:
        node.put("gpu", slot, gone=True)
    gpu(node, 0, sm_clock_mhz=1400, power_w=690.0)  # capped: the catalogue cannot tell either
    assert found(node) == []
    gpu(node, 0, sm_clock_mhz=1400, power_w=500.0, reasons=0)
    assert [f.rule for f in found(node)] == ["straggler.suspect"]
    throttled(node, 0)
    assert found(node)[0].severity is Severity.WARN


@pytest.mark.parametrize("number", [4, 7])
def test_small_groups_are_called_weak(number: int) -> None:
    node = Built()
    for slot in SLOTS[number:]:
        node.put("gpu", slot, gone=True)
    throttled(node, 0)
    finding = only(node)
    assert f"weak, {number} GPUs" in " ".join(finding.evidence)


@pytest.mark.parametrize("bad", [math.nan, "N/A", True, None])
@pytest.mark.parametrize(
    "metric", ["sm_clock_mhz", "sm_clock_max_mhz", "power_w", "power_limit_w", "temp_c", "reasons"]
)
def test_what_cannot_be_read_neither_fails_nor_accuses(metric: str, bad: Any) -> None:
    node = Built()
    if bad is None:
        node.drop("gpu", SLOTS[2], metric)
    else:
        gpu(node, 2, **{metric: bad})
    assert found(node) == []
    throttled(node, 5)
    assert [f.label for f in found(node)] == ["GPU5"]


# A lowered power limit (field case)


def test_case_sw_power_cap_normal_vs_straggler() -> None:
    path = CASES / "nvidia-smi-sw-power-cap-normal-vs-straggler.txt"
    if not path.exists():
        pytest.skip("the field cases are not beside this checkout")
    node = Built()
    for slot in SLOTS[4:]:
        node.put("gpu", slot, gone=True)
    for line in path.read_text().splitlines()[1:]:
        index, _, util, power, limit, _, clock, reasons = line.split(", ")
        gpu(node, int(index), util_percent=int(util), power_w=float(power),
            reasons=int(reasons, 16), power_limit_w=float(limit), sm_clock_mhz=int(clock),
            sm_clock_max_mhz=1530)  # fmt: skip
    finding = only(node)
    assert finding.severity is Severity.WARN
    assert finding.label == "GPU2"
    for piece in ("150 W", "300 W", "61 %"):
        assert piece in finding.say, piece
    assert finding.action is Action.FIX_CONFIG


# Statistics


@given(CLOCKS, st.randoms(use_true_random=False))
def test_the_order_of_readings_does_not_matter(values: list[float], rng: random.Random) -> None:
    shuffled = values[:]
    rng.shuffle(shuffled)
    assert spread(shuffled) == spread(values)


@given(CLOCKS, st.sampled_from([2.0, 4.0, 8.0]))
def test_scaling_all_readings_changes_no_verdict(values: list[float], factor: float) -> None:
    one, other = spread(values), spread([v * factor for v in values])
    assert one is not None
    assert other is not None
    for value in values:
        assert below(value, one, 0.02, 15) == pytest.approx(below(value * factor, other, 0.02, 15))
        assert low(value, one, GATES, 0.02, 15) == low(value * factor, other, GATES, 0.02, 15)


@given(st.floats(min_value=1, max_value=3000), st.integers(min_value=1, max_value=64))
def test_equal_readings_never_stand_out(value: float, number: int) -> None:
    group = spread([value] * number)
    assert group is not None
    assert below(value, group, 0.02, 15) == pytest.approx(0)
    assert not low(value, group, GATES, 0.02, 15)
    assert not high(value, group, GATES, 0.02, 15)


@given(CLOCKS, st.sampled_from([math.nan, math.inf, -math.inf]))
def test_what_is_not_finite_is_left_out(values: list[float], bad: float) -> None:
    assert spread([bad, *values, bad]) == spread(values)
    group = spread(values)
    assert group is not None
    assert not low(bad, group, GATES, 0.02, 15)
    assert spread([bad]) is None


@given(CLOCKS, st.floats(min_value=0, max_value=50))
def test_a_lower_reading_is_never_less_suspect(values: list[float], less: float) -> None:
    group = spread(values)
    assert group is not None
    for value in values:
        if low(value, group, GATES, 0.02, 15):
            assert low(value - less, group, GATES, 0.02, 15)


def test_quartiles_and_deviation_of_a_known_group() -> None:
    group = spread([1.0, 2.0, 3.0, 4.0, 100.0])
    assert group == (5, 3.0, 1.0, 4.0)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(6)), st.integers(min_value=0, max_value=7))
def test_the_order_of_nodes_changes_no_finding(order: list[int], slow: int) -> None:
    nodes = fleet(6)
    for node in nodes:
        job(node, "1")
    throttled(nodes[4], slow)
    straight = {(f.node, f.device, f.say) for f in found(*nodes)}
    assert {(f.node, f.device, f.say) for f in found(*(nodes[i] for i in order))} == straight
    assert len(straight) == 1


# Simulated groups (seeded)


def simulated(rng: random.Random, node: Built, sigma: float = 0.01) -> None:
    for index in range(8):
        clock = 1755 * rng.gauss(1, sigma)
        gpu(node, index, sm_clock_mhz=round(clock / 15) * 15, power_w=rng.gauss(650, 12),
            temp_c=round(rng.gauss(62, 3)), reasons=POWER_CAP_BIT)  # fmt: skip


def test_healthy_groups_raise_less_than_one_false_alarm_in_a_thousand() -> None:
    rng = random.Random(11)
    node = Built()
    alarms = 0
    for _ in range(3000):
        simulated(rng, node)
        alarms += bool(found(node))
    assert alarms < 3


@pytest.mark.parametrize(("slow", "least"), [(0.10, 0.95), (0.08, 0.80)])
def test_a_slow_gpu_with_a_thermal_bit_is_found(slow: float, least: float) -> None:
    rng = random.Random(12)
    node = Built()
    hits = 0
    for _ in range(400):
        simulated(rng, node)
        victim = rng.randrange(8)
        clock = 1755 * (1 - slow) * rng.gauss(1, 0.01)
        throttled(node, victim, sm_clock_mhz=round(clock / 15) * 15, temp_c=88, power_w=600.0)
        named = [(f.rule, f.device) for f in found(node)]
        assert set(named) <= {("straggler.gpu", SLOTS[victim])}
        hits += bool(named)
    assert hits / 400 >= least
