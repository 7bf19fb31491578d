"""The third comparison, a GPU with its own past, and the traps around all three."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.event import Finding, Row, Scalar, Severity
from probes.loaded import HW_THERMAL_BIT, POWER_CAP_BIT
from probes.own import NONE, Baseline, Own
from probes.slow_limits import Limits
from probes.spread import Level, level, spread
from probes.straggler import compare
from tests.judging.build import NOW, RULES, SLOTS, Built, fleet

LIMITS = Limits.of(RULES)


def past(mhz: float = 1950.0, n: int = 20, **metrics: float) -> Own:
    told = {"sm_clock_mhz": mhz, **metrics}
    return {
        ("gpu001", slot, metric): Baseline(value, n, NOW - 1e6)
        for slot in SLOTS for metric, value in told.items()
    }  # fmt: skip


def alone(mhz: float = 1500, reasons: int = 0, watts: float = 500.0) -> Built:
    """The only GPU of its node: no peers."""
    node = Built()
    for slot in SLOTS[1:]:
        node.put("gpu", slot, gone=True)
    node.change("gpu", SLOTS[0], sm_clock_mhz=mhz, reasons=reasons, power_w=watts)
    return node


def found(*nodes: Built, own: Own = NONE) -> list[Finding]:
    return compare((node.facts for node in nodes), RULES, NOW, own)


def rules(*nodes: Built, own: Own = NONE) -> list[str]:
    return [finding.rule for finding in found(*nodes, own=own)]


def job(node: Built, name: str, indices: range = range(8)) -> None:
    rows: list[Row] = [{"gpu": SLOTS[i], "pid": 1000 + i, "job": name} for i in indices]
    before = node.facts.get("processes")
    node.put("processes", "", rows=[*(before.rows if before else []), *rows])


def everyone(node: Built, **values: Scalar) -> None:
    for slot in SLOTS:
        node.change("gpu", slot, 0.0, **values)


# Its own past


def test_catalogue_and_own_past_agree_where_there_are_no_peers() -> None:
    (finding,) = found(alone(), own=past())
    assert finding.rule == "straggler.gpu"
    text = " ".join(finding.evidence)
    assert "own history: slow (usual 1950, 20 readings)" in text
    assert "two of three comparisons agree" in text


@pytest.mark.parametrize(
    "own",
    [NONE, past(1550.0), past(n=5), past(0.0), past(power_w=400.0)],
    ids=["no past", "as ever", "too short a past", "no clock", "another load"],
)
def test_without_a_usable_past_the_catalogue_alone_is_a_suspicion(own: Own) -> None:
    assert rules(alone(), own=own) == ["straggler.suspect"]


def test_at_its_power_limit_the_past_of_a_lighter_load_says_nothing() -> None:
    assert rules(alone(reasons=POWER_CAP_BIT, watts=690.0), own=past()) == []


def test_a_clock_that_somebody_set_is_no_fault() -> None:
    assert rules(alone(reasons=0x2), own=past()) == []


@pytest.mark.parametrize("share", [0.98, 0.95, 0.91])
def test_day_and_night_are_no_fault(share: float) -> None:
    assert "straggler.gpu" not in rules(alone(1950 * share), own=past())


def test_a_past_under_another_power_limit_does_not_accuse_a_healthy_group() -> None:
    """The memory forgets at a new limit; even if it did not, peers that are no faster acquit."""
    node = Built()
    everyone(node, sm_clock_mhz=1400, power_limit_w=450.0, power_w=448.0, reasons=POWER_CAP_BIT)
    assert rules(node, own=past()) == []


def test_peers_that_are_as_slow_acquit_a_gpu_whatever_its_past() -> None:
    nodes = [Built(), *fleet(8)[1:]]
    for node in nodes:
        everyone(node, sm_clock_mhz=1500, reasons=0, power_w=500.0)
    assert rules(*nodes, own=past()) == []


def test_a_whole_node_below_its_own_past_is_named() -> None:
    nodes = fleet(8)
    everyone(nodes[0], sm_clock_mhz=1400, reasons=0, power_w=450.0)
    (finding,) = found(*nodes, own=past())
    assert (finding.rule, finding.node) == ("straggler.node", "gpu001")
    assert "own history: slow" in " ".join(finding.evidence)


def test_all_three_comparisons_with_hardware_evidence_and_eight_gpus() -> None:
    node = Built()
    node.change("gpu", SLOTS[3], sm_clock_mhz=1300, reasons=HW_THERMAL_BIT, power_w=400.0)
    (finding,) = found(node, own=past())
    assert "all three comparisons agree and hardware evidence" in " ".join(finding.evidence)


# Memory clock


def memory(node: Built, usual: float = 2619.0) -> None:
    for slot in SLOTS:
        node.change("gpu", slot, mem_clock_mhz=usual, mem_clock_max_mhz=2619.0)


def test_a_low_memory_clock_is_named() -> None:
    node = Built()
    memory(node)
    node.change("gpu", SLOTS[6], mem_clock_mhz=1593.0)
    (finding,) = found(node)
    assert finding.rule == "straggler.gpu"
    assert finding.say.startswith(
        "GPU6 memory clock is at 1.59 of 2.62 GHz, 39 % below its 7 peers"
    )


def test_a_memory_clock_that_is_the_same_everywhere_is_a_setting() -> None:
    node = Built()
    memory(node, 1593.0)
    assert rules(node) == []


# Traps


def test_power_tensor_activity_and_traffic_never_accuse() -> None:
    """The rank that waits longest shows the least; the late one the most."""
    node = Built()
    for index, slot in enumerate(SLOTS):
        late = index == 2
        node.put("gpm", slot, tensor_percent=60.0 if late else 12.0,
                 sm_util_percent=95.0 if late else 15.0, dram_percent=40.0 if late else 6.0,
                 nvlink_rx_bytes_per_s=1e9, nvlink_tx_bytes_per_s=1e9)  # fmt: skip
        node.change("gpu", slot, power_w=640.0 if late else 260.0, reasons=0)
    assert "straggler.gpu" not in rules(node)
    assert "straggler.suspect" not in rules(node)


def test_stages_of_a_pipeline_that_clock_apart_are_not_slow() -> None:
    node = Built()
    for index, slot in enumerate(SLOTS):
        busy = index < 4
        node.change("gpu", slot, sm_clock_mhz=1440 if busy else 1980, reasons=4 if busy else 0,
                    power_w=695.0 if busy else 310.0)  # fmt: skip
    assert rules(node) == []


@pytest.mark.parametrize("util", [52, 60, 70])
def test_uneven_load_of_inference_is_not_compared(util: int) -> None:
    node = Built()
    node.change("gpu", SLOTS[1], util_percent=util, sm_clock_mhz=1410, power_w=250.0,
                reasons=POWER_CAP_BIT, power_limit_w=260.0)  # fmt: skip
    for slot in SLOTS[2:]:
        node.change("gpu", slot, power_limit_w=260.0, power_w=250.0, reasons=POWER_CAP_BIT)
    node.change("gpu", SLOTS[0], power_limit_w=260.0, power_w=250.0, reasons=POWER_CAP_BIT)
    assert rules(node) == []


def test_one_gpu_for_a_server_process_is_compared_with_none() -> None:
    node = Built()
    job(node, "77", range(7))
    node.put("processes", "", rows=[
        *(node.facts.latest["processes", ""].rows),
        {"gpu": SLOTS[7], "pid": 9, "user": "svc", "command": "vllm"},
    ])  # fmt: skip
    node.change("gpu", SLOTS[7], sm_clock_mhz=1400, power_w=690.0, reasons=POWER_CAP_BIT)
    assert rules(node) == []


def test_memory_scrubbing_on_a_gpu_without_a_process_is_not_compared() -> None:
    node = Built()
    job(node, "77", range(4))
    for slot in SLOTS[4:]:
        node.change("gpu", slot, util_percent=100, sm_clock_mhz=1200, power_w=150.0, reasons=0)
    assert "straggler.gpu" not in rules(node)
    assert [f for f in found(node) if f.rule == "straggler.suspect" and f.device == SLOTS[5]]


def test_an_xid_that_says_hardware_is_evidence() -> None:
    node = Built()
    everyone(node, power_w=690.0, reasons=POWER_CAP_BIT)
    node.change("gpu", SLOTS[2], sm_clock_mhz=1400)
    assert rules(node) == ["straggler.suspect"]
    node.kernel(f"NVRM: Xid (PCI:{SLOTS[2][:-2]}): 62, pid=12, name=python, 0c5a(2f8c) 00000000")
    (finding,) = found(node)
    assert finding.rule == "straggler.gpu"
    assert finding.severity is Severity.WARN
    assert "hardware evidence: Xid 62" in " ".join(finding.evidence)


# Statistics of the whole rule

CLOCKS = st.lists(st.floats(min_value=800, max_value=2000), min_size=8, max_size=8)


def grade(value: float, others: list[float], factor: float = 1.0) -> Level:
    group = spread([value, *others])
    assert group is not None
    gates = LIMITS.warn, LIMITS.crit
    return level(value, group, *gates, LIMITS.floor, LIMITS.quantum_mhz * factor)


@given(CLOCKS, st.sampled_from([0.25, 2.0, 1024.0]))
def test_a_unit_changes_no_level(clocks: list[float], factor: float) -> None:
    value, *others = clocks
    scaled = [other * factor for other in others]
    assert grade(value, others) == grade(value * factor, scaled, factor)


@given(CLOCKS, st.floats(min_value=0.01, max_value=600))
def test_a_slower_reading_is_never_less_slow(clocks: list[float], less: float) -> None:
    value, *others = clocks
    assert grade(value - less, others) >= grade(value, others)


@given(CLOCKS)
def test_very_slow_is_slow(clocks: list[float]) -> None:
    value, group = clocks[0], spread(clocks)
    assert group is not None
    eased = LIMITS.warn.eased()
    grades = [
        level(value, group, gates, LIMITS.crit, LIMITS.floor, LIMITS.quantum_mhz) > Level.FINE
        for gates in (LIMITS.crit, LIMITS.warn, eased)
    ]
    assert grades == sorted(grades)  # what the stricter gates flag, the wider ones do too


@pytest.mark.parametrize("value", [0.0, 1755.0])
def test_equal_readings_are_fine_and_so_are_zeros(value: float) -> None:
    assert grade(value, [value] * 7) is Level.FINE


def test_one_huge_reading_does_not_make_the_others_slow() -> None:
    assert grade(1755.0, [1755.0] * 6 + [1e9]) is Level.FINE


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_fine_and_moves_nobody(bad: float) -> None:
    assert grade(bad, [1755.0] * 7) is Level.FINE
    assert grade(1200.0, [1755.0] * 6 + [bad]) is Level.CRIT


@pytest.mark.parametrize(("slow", "expected"), [(0.94, Level.FINE), (0.90, Level.WARN),
                                                (0.84, Level.CRIT)])  # fmt: skip
def test_three_bad_of_eight_are_seen_by_the_ratio_to_p75(slow: float, expected: Level) -> None:
    assert grade(1755 * slow, [1755 * slow] * 2 + [1755.0] * 5) is expected


@settings(max_examples=30, deadline=None)
@given(
    st.permutations(range(8)), st.lists(st.sampled_from([1200, 1500, 1755]), min_size=8, max_size=8)
)
def test_which_gpu_has_which_clock_does_not_matter(order: list[int], clocks: list[int]) -> None:
    told: list[set[Any]] = []
    for places in (list(range(8)), order):
        node = Built()
        for place, mhz in zip(places, clocks, strict=True):
            node.change("gpu", SLOTS[place], sm_clock_mhz=mhz)
        at = {SLOTS[place]: number for number, place in enumerate(places)}
        told.append({(f.rule, at.get(f.device)) for f in found(node)})
    assert told[0] == told[1]
