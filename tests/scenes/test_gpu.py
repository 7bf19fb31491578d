"""GPUs that are lost, hidden, slow to answer or set up oddly; and kinds of nodes that are well."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from console.demo import sysfs
from probes.checks.gpu import RULES as GPU_RULES
from probes.checks.processes import RULES as PROCESS_RULES
from probes.checks.setup import RULES as SETUP_RULES
from probes.checks.thermal import RULES as THERMAL_RULES
from probes.event import Action, Severity
from tests.scenes.gpu_kinds import KINDS
from tests.scenes.rig import Scene

OURS = {rule.id for rule in (*GPU_RULES, *SETUP_RULES, *THERMAL_RULES, *PROCESS_RULES)}
BUS = [f"0000:{bus}:00.0" for bus in sysfs.GPU_BUSES]
Make = Callable[..., Scene]


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_node_of_another_kind(scene: Scene, kind: str) -> None:
    KINDS[kind](scene)
    scene.interval(3)
    assert scene.rules() & OURS == set()
    assert scene.sample("inventory").values["gpu_count"] in (1, 2, 6, 8)


@pytest.mark.parametrize("kind", ["idle", "mig", "l40s", "v100", "old_symbols"])
def test_a_healthy_node_that_becomes_another_kind_while_watched(scene: Scene, kind: str) -> None:
    scene.interval(2)
    KINDS[kind](scene)
    scene.interval(3)
    assert scene.rules() & OURS == set()


def test_on_every_interpreter(scenes: Make, node_python: str) -> None:
    scene = scenes(python=node_python)
    scene.interval(2)
    assert scene.rules() & OURS == set()
    scene.gpu(2, rc={"nvmlDeviceGetTemperature": 16})
    scene.interval()
    assert scene.rules() & OURS == {"gpu.reset_required"}


def test_a_lost_gpu_is_named_by_slot_and_the_others_stay(scene: Scene) -> None:
    scene.interval()
    scene.gpu(3, rc={"*": 15})
    sysfs.lose_gpu(scene.root, BUS[3])
    scene.interval()
    lost = scene.rule("gpu.lost")
    assert lost.device == BUS[3]
    assert "slot SXM4" in lost.say
    assert lost.label == "GPU3"
    assert "7 others" in lost.say
    assert f"{BUS[3]} config space reads ff" in lost.evidence
    assert scene.worst() is Severity.CRITICAL


def test_a_vanished_gpu_is_named_by_address_and_slot_though_indices_moved(scene: Scene) -> None:
    scene.interval()
    del scene.state["gpus"][2]
    scene.save()
    sysfs.lose_gpu(scene.root, BUS[2])
    scene.interval(2)
    count = scene.rule("gpu.count")
    assert count.say.startswith(f"7 of 8 GPUs present; missing {BUS[2]} (slot SXM3)")
    assert f"{BUS[2]} is on the bus list but its config space reads ff" in count.evidence
    assert {f.device for f in scene.findings() if f.rule == "gpu.gone"} == {BUS[2]}


@pytest.mark.parametrize(
    ("driver", "fate"),
    [
        (None, "is on the bus but no driver is bound to it"),
        ("nouveau", "is bound to nouveau, not to nvidia"),
    ],
)
def test_a_card_that_the_driver_does_not_have(scene: Scene, driver: str | None, fate: str) -> None:
    scene.interval()
    link = scene.root / f"sys/bus/pci/devices/{BUS[5]}/driver"
    os.unlink(link)
    if driver is not None:
        link.symlink_to(f"../../../bus/pci/drivers/{driver}")
    del scene.state["gpus"][5]
    scene.save()
    scene.interval()
    assert f"{BUS[5]} {fate}" in scene.rule("gpu.count").evidence


def test_a_card_that_left_the_bus_too(scene: Scene) -> None:
    scene.interval()
    sysfs.remove_gpu(scene.root, BUS[7])
    del scene.state["gpus"][7]
    scene.save()
    scene.interval()
    count = scene.rule("gpu.count")
    assert BUS[7] in count.say
    assert f"{BUS[7]} is not on the PCI bus" in count.evidence


def test_an_excluded_card_is_the_sites_own_decision(scene: Scene) -> None:
    scene.interval()
    scene.state["excluded"] = [BUS[7]]
    del scene.state["gpus"][7]
    scene.save()
    scene.interval(2)
    count = scene.rule("gpu.count")
    assert (count.severity, count.action) == (Severity.WARN, Action.FIX_CONFIG)
    assert "NVreg_ExcludedGpus" in count.next_step


def test_hidden_cards_are_no_missing_cards(scenes: Make) -> None:
    for kind, rule, say in (
        ("in_a_job", "gpu.count", "this login is in job 4711"),
        ("host_of_guests", "gpu.given_away", "2 GPUs are given to guests"),
    ):
        scene = scenes()
        KINDS[kind](scene)
        scene.interval(2)
        finding = scene.rule(rule)
        assert finding.severity is Severity.INFO
        assert say in finding.say


CODES = (
    (1, 2, 3, 4, 5, 6, 7, 13),
    (19, 21, 22, 24, 25, 26, 27, 29),
    (8, 10, 11, 14, 17, 20, 23, 28),
    (31, 77, 999),
)
SEVERITY = {
    8: Severity.CRITICAL, 14: Severity.CRITICAL, 17: Severity.INFO,
    **dict.fromkeys((10, 11, 20, 23, 28, 31, 77, 999), Severity.WARN),
}  # fmt: skip
"""All others are no fault where one reading fails so and the rest is there. After a timeout nothing
more is asked, so that GPU gives no reading at all."""


@pytest.mark.parametrize("codes", CODES)
def test_every_return_code_of_a_call(scene: Scene, codes: tuple[int, ...]) -> None:
    scene.interval()
    for gpu, code in enumerate(codes):
        scene.gpu(gpu, rc={"nvmlDeviceGetUtilizationRates": code})
    scene.interval(2)
    found = {f.device: f for f in scene.findings() if f.rule == "gpu.nvml_error"}
    for gpu, code in enumerate(codes):
        finding = found.get(BUS[gpu])
        assert (None if finding is None else finding.severity) is SEVERITY.get(code), code
        assert finding is None or f"returned {code} (" in finding.evidence[0]
    assert scene.rules() & OURS <= {"gpu.nvml_error"}


def test_a_gpu_that_this_login_may_not_open(scene: Scene) -> None:
    scene.gpu(4, rc={"nvmlDeviceGetHandleByIndex_v2": 4})
    scene.gpu(5, rc={"nvmlDeviceGetPowerUsage": 4})
    scene.interval(2)
    assert scene.rule("gpu.nvml_error").severity is Severity.INFO
    assert scene.rules() & OURS == set()
    assert "nvmlDeviceGetPowerUsage" in str(scene.sample("gpu", BUS[5]).values["hint"])


@pytest.mark.parametrize(("code", "rule"), [(15, "gpu.lost"), (16, "gpu.reset_required")])
def test_codes_with_a_rule_of_their_own(scene: Scene, code: int, rule: str) -> None:
    scene.interval()
    scene.gpu(4, rc={"nvmlDeviceGetUtilizationRates": code})
    scene.interval()
    assert scene.rule(rule).device == BUS[4]


def test_a_gpu_that_only_times_out_is_no_healthy_gpu(scene: Scene) -> None:
    scene.interval()
    scene.gpu(4, rc={"*": 10, "nvmlDeviceGetHandleByIndex_v2": 0})
    scene.interval(2)
    assert "gives no reading" in scene.rule("gpu.nvml_error", BUS[4]).say


def test_a_login_without_rights_has_not_read_the_gpus(scene: Scene) -> None:
    scene.state["init_rc"] = 4
    scene.save()
    scene.interval()
    driver = scene.rule("driver.unusable")
    assert driver.severity is Severity.UNKNOWN
    assert "sudo" in driver.say + driver.next_step


@pytest.mark.parametrize("code", [9, 18, 999])
def test_a_driver_that_does_not_start(scene: Scene, code: int) -> None:
    scene.state["init_rc"] = code
    scene.save()
    scene.interval()
    driver = scene.rule("driver.unusable")
    assert driver.severity is Severity.CRITICAL
    assert f"returned {code}" in driver.evidence[0]
    assert "kernel module nvidia is loaded" in driver.evidence


@pytest.mark.parametrize("fault", [{"init_rc": 9}, {"init_rc": 999}, {"library": False}])
def test_a_container_without_the_driver_is_unknown(scene: Scene, fault: dict[str, Any]) -> None:
    scene.write(".dockerenv", "")
    scene.state.update(fault)
    scene.save()
    scene.interval()
    driver = scene.rule("driver.unusable")
    assert driver.severity is Severity.UNKNOWN
    assert "a container" in driver.say


def test_a_driver_that_takes_its_time(scene: Scene) -> None:
    scene.interval()
    scene.gpu(6, hang={"nvmlDeviceGetPowerUsage": 2.0})
    scene.interval(2)
    slow = scene.rule("driver.slow")
    assert (slow.severity, slow.device) == (Severity.WARN, BUS[6])
    assert "nvmlDeviceGetPowerUsage" in slow.say


def test_a_pause_of_one_interval_is_no_wedge(scene: Scene) -> None:
    scene.interval()
    scene.gpu(6, hang={"nvmlDeviceGetPowerUsage": 1.1})
    scene.interval()
    scene.gpu(6, hang={})
    scene.interval(2)
    assert "driver.slow" not in scene.rules()


def test_persistence_off_is_advice(scene: Scene) -> None:
    scene.gpus(persistence=0)
    scene.interval(2)
    advice = scene.rule("gpu.persistence")
    assert (advice.severity, advice.action) == (Severity.INFO, Action.FIX_CONFIG)
    assert "8 of 8" in advice.say


SETUPS: list[tuple[str, dict[int, dict[str, Any]], str]] = [
    ("gpu.compute_mode", {3: {"compute_mode": 2}}, "GPU3"),
    ("gpu.memory_size", {2: {"mem_total_mib": 80000}}, "GPU2 has less memory"),
]
ADVICE: list[tuple[str, dict[int, dict[str, Any]], str]] = [
    ("gpu.mig", {1: {"mig_pending": 1}}, "next reset on GPU1"),
    ("gpu.mig", {0: {"mig": 1}, 1: {"mig": 1}, 2: {"mig": 1}}, "3 of 8 GPUs only"),
    ("gpu.firmware_mixed", {5: {"vbios": "96.00.74.00.1A"}}, "GPU5 has VBIOS 96.00.74.00.1A, 7"),
    ("gpu.firmware_mixed", {5: {"gsp": "570.1"}}, "GPU5 has GSP firmware 570.1"),
    ("power.limit_lowered", {n: {"power_limit_w": 500, "power_default_w": 700} for n in range(8)},
     "power limit 500 W, default 700 W, on 8 of 8"),
    ("clocks.app_setting", {4: {"sm_app_mhz": 1155}}, "1155 of 1980 MHz on GPU4"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "changes", "say"), SETUPS)
def test_a_setting_that_costs_work_is_a_warning(
    scene: Scene, rule: str, changes: dict[int, dict[str, Any]], say: str
) -> None:
    scene.interval()
    for gpu, change in changes.items():
        scene.gpu(gpu, **change)
    scene.interval(2)
    finding = scene.rule(rule)
    assert finding.severity is Severity.WARN
    assert say in finding.say


@pytest.mark.parametrize(("rule", "changes", "say"), ADVICE)
def test_other_settings_are_information(
    scene: Scene, rule: str, changes: dict[int, dict[str, Any]], say: str
) -> None:
    scene.interval()
    for gpu, change in changes.items():
        scene.gpu(gpu, **change)
    scene.interval(2)
    finding = scene.rule(rule)
    assert finding.severity is Severity.INFO
    assert say in finding.say
    assert scene.rules() & OURS == set()


def test_confidential_gpus_that_take_no_work(scene: Scene) -> None:
    KINDS["confidential"](scene)
    scene.interval(2)
    assert "gpu.cc_not_ready" not in scene.rules()
    scene.state["cc"]["ready"] = 0
    scene.save()
    scene.interval(2)
    assert "-srs 1" in scene.rule("gpu.cc_not_ready").next_step
