"""GPU memory: each fault is found within two intervals, each healthy way of being is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from probes.event import Action, Severity
from tests.scenes.products import become
from tests.scenes.rig import Scene

GPU3 = "0000:61:00.0"
FAULTS: dict[str, tuple[dict[str, Any], str, Severity]] = {
    "uncorrected in DRAM": ({"ecc_vol_ue": 2}, "ecc.uncorrected", Severity.CRITICAL),
    "SRAM limit": (
        {"sram": {"bThresholdExceeded": 1, "aggregateUncBucketL2": 3, "aggregateUncBucketSm": 2}},
        "ecc.sram_limit", Severity.CRITICAL,
    ),
    "SRAM, no verdict": (
        {"sram": None, "ecc_agg_ue": 7, "ecc_sram": {"agg_ue": 6}}, "ecc.sram_many", Severity.WARN,
    ),
    "ECC off": ({"ecc": 0}, "ecc.off", Severity.WARN),
    "remap pending": ({"remap": [0, 1, 1, 0]}, "remap.pending", Severity.WARN),
    "remap failed": ({"remap": [0, 9, 0, 1]}, "remap.failure", Severity.CRITICAL),
    "rows used up": ({"remap": [0, 512, 0, 0]}, "remap.rows_used", Severity.CRITICAL),
    "banks spent": ({"banks": [637, 1, 0, 1, 1]}, "remap.banks", Severity.WARN),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_within_two_intervals(name: str, scene: Scene) -> None:
    changes, rule, severity = FAULTS[name]
    scene.interval()
    assert scene.rules() == set()
    scene.gpu(3, **changes)
    scene.interval(2)
    assert scene.rules() == {rule}
    found = scene.rule(rule)
    assert (found.device, found.label, found.severity) == (GPU3, "GPU3", severity)


RECOVERIES = {
    1: (Severity.CRITICAL, Action.RESET_GPU, "GPU reset"),
    2: (Severity.CRITICAL, Action.REBOOT, "node reboot"),
    3: (Severity.WARN, Action.WATCH, "drain P2P"),
    4: (Severity.WARN, Action.DRAIN, "drain and reset"),
    5: (Severity.CRITICAL, Action.RESTART_SERVICE, "recover IMEX"),
    6: (Severity.CRITICAL, Action.REBOOT, "bus reset"),
    7: (Severity.CRITICAL, Action.REBOOT, "system reboot"),
    99: (Severity.CRITICAL, Action.DRAIN, "code 99"),
}


@pytest.mark.parametrize("code", RECOVERIES)
def test_the_driver_names_the_recovery(code: int, scene: Scene) -> None:
    severity, action, words = RECOVERIES[code]
    scene.interval()
    scene.gpu(3, recovery=code)
    scene.interval()
    found = scene.rule("gpu.recovery_action", GPU3)
    assert (found.severity, found.action) == (severity, action)
    assert words in found.say


def test_where_the_errors_sit_is_said(scene: Scene) -> None:
    scene.gpu(3, ecc_vol_ue=5, ecc_sram={"vol_ue": 2})
    scene.interval()
    assert "3 in DRAM, 2 in SRAM" in scene.rule("ecc.uncorrected").evidence[0]


def test_the_units_of_a_sram_fault_are_said(scene: Scene) -> None:
    scene.gpu(3, sram={"bThresholdExceeded": 1, "aggregateUncBucketL2": 3})
    scene.interval()
    found = scene.rule("ecc.sram_limit")
    assert "3 in L2" in found.evidence[0]
    assert found.action is Action.REPLACE


def test_a_storm_of_corrected_errors_is_a_rate(scene: Scene) -> None:
    """A total says nothing: 40 million that stand still are no storm."""
    scene.gpu(3, ecc_vol_ce=40_000_000)
    scene.interval(3)
    assert scene.findings() == []
    for count in (40_300_000, 40_600_000):
        scene.gpu(3, ecc_vol_ce=count)
        scene.interval()
    found = scene.rule("ecc.corrected", GPU3)
    assert found.severity is Severity.WARN
    assert found.value == 20_000
    assert "300000 in DRAM" in found.evidence[0]


def test_a_slow_rise_is_information(scene: Scene) -> None:
    for count in (0, 300, 600):
        scene.gpu(3, ecc_vol_ce=count)
        scene.interval()
    assert scene.rule("ecc.corrected").severity is Severity.INFO


def test_counters_that_were_reset_do_not_alarm(scene: Scene) -> None:
    scene.gpu(3, ecc_vol_ce=40_000_000)
    scene.interval(2)
    scene.gpu(3, ecc_vol_ce=9_000_000)  # the driver was loaded anew
    scene.interval(2)
    assert scene.findings() == []


def test_a_change_of_mode_waits(scene: Scene) -> None:
    scene.interval()
    scene.gpu(3, ecc_pending=0)
    scene.interval(2)
    found = scene.rule("ecc.mode_pending", GPU3)
    assert found.severity is Severity.INFO
    assert "off after the next reset" in found.say
    assert scene.rules() == set()


def test_ecc_that_comes_back_with_the_next_reset_is_no_second_finding(scene: Scene) -> None:
    scene.gpu(3, ecc=0, ecc_pending=1)
    scene.interval(2)
    assert {f.rule for f in scene.findings() if f.rule.startswith("ecc.")} == {"ecc.mode_pending"}


PAGES: dict[str, tuple[list[int], str, Severity]] = {
    "pending": ([2, 1, 1], "pages.pending", Severity.WARN),
    "too many": ([40, 23, 0], "pages.retired", Severity.CRITICAL),
    "many uncorrected": ([0, 16, 0], "pages.retired", Severity.WARN),
}


@pytest.mark.parametrize("name", PAGES)
def test_pages_before_ampere(name: str, scene: Scene) -> None:
    pages, rule, severity = PAGES[name]
    become(scene, "V100-SXM2").interval()
    assert scene.rules() == set()
    scene.gpu(3, retired=pages)
    scene.interval(2)
    assert scene.rules() == {rule}
    assert scene.rule(rule, GPU3).severity is severity


def test_a_page_that_was_retired_is_over(scene: Scene) -> None:
    become(scene, "V100-SXM2").gpu(3, retired=[2, 1, 1])
    scene.interval()
    assert scene.rules() == {"pages.pending"}
    scene.gpu(3, retired=[2, 2, 0])
    scene.interval(4)
    assert scene.findings() == []


def test_retired_pages_by_their_own_call(scene: Scene) -> None:
    """A driver without the fields lists the pages."""
    become(scene, "V100-SXM2").gpus(fields={"29": "!3", "30": "!3", "31": "!3"})
    scene.interval()
    values = scene.sample("ecc", GPU3).values
    assert [values[f"retired_{kind}"] for kind in ("single", "double", "pending")] == [2, 1, False]


QUIET: dict[str, Callable[[Scene], object]] = {
    "RTX with ECC off as delivered": lambda scene: become(scene, "RTX6000-Ada, ECC off"),
    "V100 with retired pages": lambda scene: become(scene, "V100-SXM2"),
    "MIG": lambda scene: scene.gpus(mig=1, util=None, mem_util=None),
    "old remaps": lambda scene: scene.gpus(remap=[3, 7, 0, 0], banks=[633, 7, 0, 0, 0]),
    "old SRAM errors below the limit": lambda scene: scene.gpus(
        ecc_agg_ue=6, ecc_sram={"agg_ue": 6}, sram={"aggregateUncBucketL2": 6}
    ),
    "a driver without the calls": lambda scene: scene.state.update(
        missing=[
            "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetRowRemapperHistogram",
            "nvmlDeviceGetMemoryErrorCounter", "nvmlDeviceGetDefaultEccMode",
            "nvmlDeviceGetFieldValues", "nvmlDeviceGetRetiredPages",
        ]
    ),
    "no rights": lambda scene: scene.gpus(
        rc={"nvmlDeviceGetSramEccErrorStatus": 4, "nvmlDeviceGetRowRemapperHistogram": 4}
    ),
    "no ECC at all": lambda scene: scene.gpus(ecc=None, remap=None),
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_health_is_not_reported(name: str, scene: Scene) -> None:
    QUIET[name](scene)
    scene.save()
    scene.interval(3)
    assert scene.rules() == set()


def test_ecc_off_as_delivered_is_information(scene: Scene) -> None:
    become(scene, "RTX6000-Ada, ECC off").interval(2)
    found = [f for f in scene.findings() if f.rule == "ecc.off"]
    assert len(found) == 8
    assert {(f.severity, f.action) for f in found} == {(Severity.INFO, Action.NONE)}
