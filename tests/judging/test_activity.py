"""What busy GPUs are busy with, whom a job waits for, and what its power buys."""

from __future__ import annotations

from typing import Any

import pytest

from probes import loaded
from probes.activity import Activity, Bounds, activity
from probes.efficiency import Efficiency, Use, efficiency, estimate, idle_burn
from probes.event import Finding, Row, Scalar
from probes.loaded import HW_THERMAL_BIT, Gpu
from probes.straggler import compare
from tests.judging.build import NOW, RULES, SLOTS, Built, fleet

BOUNDS = Bounds.of(RULES)
H100 = RULES.product("2330")
SPINS: dict[str, Any] = {
    "tensor_percent": 1.0, "sm_util_percent": 12.0, "dram_percent": 2.0,
    "nvlink_rx_bytes_per_s": 1e9, "nvlink_tx_bytes_per_s": 1e9, "pcie_rx_bytes_per_s": 1e8,
    "pcie_tx_bytes_per_s": 1e8,
}  # fmt: skip
IDLE_LOOK: dict[str, Scalar] = {
    "util_percent": 100, "power_w": 210.0, "sm_clock_mhz": 1980, "reasons": 0,
}  # fmt: skip


def node(name: str = "gpu001", job: str = "9", gpm: dict[str, Any] | None = SPINS,
         **gpu: Any) -> Built:  # fmt: skip
    built = Built(name)
    rows: list[Row] = [{"gpu": slot, "pid": 1, "job": job} for slot in SLOTS]
    built.put("processes", "", rows=rows)
    for slot in SLOTS:
        built.change("gpu", slot, 0.0, **{**IDLE_LOOK, **gpu})
        if gpm is not None:
            built.put("gpm", slot, **gpm)
    return built


def first(built: Built) -> Gpu:
    return next(loaded.read(built.facts, RULES))


def what(gpm: dict[str, Any] | None, **gpu: Any) -> Activity | None:
    return activity(first(node(gpm=gpm, **gpu)), BOUNDS, H100)


def found(*nodes: Built) -> list[Finding]:
    return compare((one.facts for one in nodes), RULES, NOW)


@pytest.mark.parametrize(
    ("gpm", "gpu", "expected"),
    [
        (SPINS, {}, Activity.WAITING),
        (SPINS | {"nvlink_rx_bytes_per_s": 2e11, "nvlink_tx_bytes_per_s": 2e11}, {},
         Activity.COMMUNICATION),
        (SPINS | {"pcie_rx_bytes_per_s": 3e10}, {}, Activity.COMMUNICATION),
        (SPINS | {"sm_util_percent": 60.0}, {}, Activity.SMALL),
        (SPINS | {"dram_percent": 70.0}, {}, Activity.MEMORY),
        (SPINS | {"tensor_percent": 45.0}, {"power_w": 650.0}, Activity.HEALTHY),
        (SPINS | {"tensor_percent": 45.0},
         {"power_w": 400.0, "sm_clock_mhz": 1200, "reasons": HW_THERMAL_BIT}, Activity.THROTTLED),
        (SPINS, {"power_w": 600.0}, Activity.HEALTHY),
        (None, {}, Activity.LITTLE),
        (None, {"power_w": 650.0}, Activity.HEALTHY),
        (None, {"sm_clock_mhz": 1300}, None),
        (SPINS, {"util_percent": 70}, None),
        (SPINS, {"util_percent": 3}, None),
        ({"tensor_percent": "N/A"}, {}, Activity.LITTLE),
    ],
)  # fmt: skip
def test_classes(
    gpm: dict[str, Any] | None, gpu: dict[str, Any], expected: Activity | None
) -> None:
    assert what(gpm, **gpu) is expected


def test_a_host_under_pressure_makes_half_busy_gpus_host_bound() -> None:
    built = node(util_percent=70)
    built.put("host", "", pressure_cpu_percent=60.0)
    assert activity(first(built), BOUNDS, H100) is Activity.HOST


def test_an_old_gpm_reading_says_nothing() -> None:
    built = node()
    built.at += 120
    for slot in SLOTS:
        built.change("gpu", slot)
    assert activity(first(built), BOUNDS, H100) is Activity.LITTLE


@pytest.mark.parametrize(
    ("gpm", "said"),
    [
        (SPINS, "the job waits, not the node: 8 GPUs of job 9 are busy at 210 of 700 W, waiting"),
        (SPINS | {"sm_util_percent": 60.0}, "tiny kernels, not the node"),
        (SPINS | {"pcie_rx_bytes_per_s": 3e10}, "communication bound, not the node"),
        (None, "the job waits, not the node"),
    ],
)
def test_not_the_node_is_said_first(gpm: dict[str, Any] | None, said: str) -> None:
    (finding,) = found(node(gpm=gpm))
    assert finding.rule == "straggler.job_waits"
    assert finding.say.startswith(said)
    assert (finding.severity.value, finding.action.value) == ("info", "none")
    assert finding.value == pytest.approx((210 - 70) / 630, abs=0.01)


def test_a_memory_bound_job_is_no_finding() -> None:
    assert found(node(gpm=SPINS | {"dram_percent": 70.0})) == []


def test_the_one_that_is_busy_while_the_others_wait_is_suspected_not_accused() -> None:
    nodes = [node("gpu001"), node("gpu002")]
    nodes[1].change("gpu", SLOTS[3], power_w=690.0, sm_clock_mhz=1700)
    nodes[1].put("gpm", SLOTS[3], **(SPINS | {"tensor_percent": 70.0}))
    (finding,) = found(*nodes)
    assert "gpu002 GPU3, which is busy meanwhile" in finding.say
    assert "suspected, not proven" in " ".join(finding.evidence)


def test_a_host_that_alone_is_held_up_is_suspected() -> None:
    nodes = [node(f"gpu00{n}") for n in range(1, 5)]
    for one in nodes:
        one.put("host", "", pressure_cpu_percent=2.0, steal_percent=0.0)
    nodes[2].put("host", "", pressure_cpu_percent=3.0, steal_percent=41.0)
    told = found(*nodes)
    assert len(told) == 4
    for finding in told:
        assert (
            "gpu003, whose host is held up: CPU time stolen by other machines 41 %" in finding.say
        )


def test_hosts_that_are_all_under_pressure_accuse_nobody() -> None:
    nodes = [node(f"gpu00{n}") for n in range(1, 5)]
    for one in nodes:
        one.put("host", "", pressure_cpu_percent=60.0)
    assert all("not the node" in finding.say for finding in found(*nodes))


# Estimates


def of(built: Built) -> Efficiency:
    return efficiency(built.facts, RULES)


def test_hfu_est_follows_tensor_time_and_clock() -> None:
    assert H100 is not None
    assert H100.bf16_tflops is not None
    built = node(gpm=SPINS | {"tensor_percent": 50.0}, sm_clock_mhz=1830, power_w=600.0)
    use = of(built).gpus[0]
    assert use.hfu_percent == pytest.approx(50.0)
    assert use.hfu_tflops == pytest.approx(H100.bf16_tflops / 2)
    assert use.tflops_per_w == pytest.approx(H100.bf16_tflops / 2 / 600)
    assert of(built).joules_per_pflop == pytest.approx(600 / (H100.bf16_tflops / 2 / 1000))
    slower = of(node(gpm=SPINS | {"tensor_percent": 50.0}, sm_clock_mhz=915)).gpus[0]
    assert slower.hfu_percent == pytest.approx(25.0)


def test_the_energy_counter_counts_more_than_the_sensor() -> None:
    built = node(power_w=300.0, energy_mj=1_000_000)
    built.change("gpu", SLOTS[0], after_s=2.0, energy_mj=1_000_000 + 2 * 450_000)
    assert of(built).gpus[0].watts == pytest.approx(450.0)
    assert of(built).gpus[1].watts == 300.0


@pytest.mark.parametrize("gpm", [None, {}, {"tensor_percent": "N/A"}])
def test_without_counters_there_is_no_estimate(gpm: dict[str, Any] | None) -> None:
    built = node(gpm=gpm)
    use = of(built).gpus[0]
    assert (use.hfu_percent, use.hfu_tflops, use.tflops_per_w, use.watts_per_gb_s) == (None,) * 4
    assert of(built).joules_per_pflop is None
    assert estimate(list(loaded.read(built.facts, RULES)), RULES) == ""


def test_an_estimate_says_that_it_is_one() -> None:
    line = estimate(list(loaded.read(node().facts, RULES)), RULES)
    assert line.startswith("HFU-est ")
    assert "estimate" in line
    assert "MFU" not in line.replace("HFU", "")


def test_idle_burn_is_the_power_of_a_jobs_gpus_that_do_nothing_for_long() -> None:
    nodes = [node("gpu001"), node("gpu002")]
    for one in nodes:
        for slot in SLOTS[:3]:
            one.change("gpu", slot, util_percent=0, power_w=90.0, idle_s=900.0)
        one.change("gpu", SLOTS[3], util_percent=0, power_w=90.0, idle_s=500.0)
    told = [of(one) for one in nodes]
    assert told[0].idle_burn_w == {"9": 270.0}
    assert told[0].idle_gpus == {"9": ("GPU0", "GPU1", "GPU2")}
    assert idle_burn(told) == {"9": 540.0}


def test_gpus_of_no_job_burn_nobodys_power() -> None:
    built = Built()
    for slot in SLOTS:
        built.change("gpu", slot, util_percent=0, power_w=90.0, idle_s=900.0)
    assert of(built).idle_burn_w == {}


def test_a_node_that_does_not_answer_has_no_figures() -> None:
    assert of(fleet(1)[0]).gpus
    built = Built()
    built.facts.status = None
    assert of(built) == Efficiency(gpus=(), idle_burn_w={}, idle_gpus={})
    assert all(isinstance(use, Use) for use in of(node()).gpus)


def test_a_host_a_little_above_the_others_is_not_suspected() -> None:
    nodes = [node(f"gpu00{n}") for n in range(1, 5)]
    for one in nodes:
        one.put("host", "", steal_percent=15.0)
    nodes[2].put("host", "", steal_percent=22.0)
    assert all("not the node" in finding.say for finding in found(*nodes))
