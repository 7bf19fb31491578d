"""Slow GPUs and jobs that only wait, from the driver's answers to what the console shows."""

from __future__ import annotations

from typing import Any

import pytest

from console.demo import sysfs
from console.demo.story import SPINNING
from probes.event import Action, Severity
from tests.scenes.rig import INTERVAL_S, Scene

BUS = [f"0000:{bus}:00.0" for bus in sysfs.GPU_BUSES]
CAPPED = {"reasons": 0x4, "power_w": 695.0, "sm_mhz": 1755}
MINUTE = int(60 / INTERVAL_S)


def straggler(scene: Scene) -> set[tuple[str, str]]:
    return {(f.rule, f.label) for f in scene.findings() if f.rule.startswith("straggler.")}


def capped(scene: Scene) -> None:
    """All at their power limit, as training keeps them."""
    scene.gpus(**CAPPED)
    scene.interval()


def test_a_hot_gpu_is_named_at_once_and_a_drain_proposed_when_it_lasts(scene: Scene) -> None:
    capped(scene)
    scene.gpu(5, sm_mhz=1200, reasons=0x48, power_w=400.0, temp=88)
    scene.interval(2)
    finding = scene.rule("straggler.gpu")
    assert (finding.label, finding.action) == ("GPU5", Action.WATCH)
    assert "HW thermal slowdown at 88 °C → SM clock 1.20 of 1.98 GHz" in finding.cause
    scene.interval(MINUTE)
    assert scene.rule("straggler.gpu").action is Action.DRAIN
    assert scene.rule("straggler.gpu").severity is Severity.WARN


def test_a_slow_gpu_without_a_reason_takes_a_minute(scene: Scene) -> None:
    capped(scene)
    scene.gpu(2, sm_mhz=1300, reasons=0, power_w=500.0)
    scene.interval(MINUTE)
    assert straggler(scene) == set()
    scene.interval(3)
    assert straggler(scene) == {("straggler.gpu", "GPU2")}
    scene.gpu(2, **CAPPED)
    scene.interval(6)
    assert straggler(scene) == set()


def test_a_card_that_needs_more_power_is_a_suspicion(scene: Scene) -> None:
    capped(scene)
    scene.gpu(2, sm_mhz=1500)
    scene.interval(MINUTE + 3)
    assert straggler(scene) == {("straggler.suspect", "GPU2")}
    assert scene.worst() is Severity.INFO


def test_a_power_brake_on_all_gpus_is_the_node(scene: Scene) -> None:
    capped(scene)
    scene.gpus(sm_mhz=435, reasons=0x88, power_w=170.0)
    scene.interval(2)
    finding = scene.rule("straggler.node")
    assert (finding.severity, finding.action) == (Severity.CRITICAL, Action.DRAIN)
    assert straggler(scene) == {("straggler.node", "")}


def test_a_lowered_power_limit_is_a_setting(scene: Scene) -> None:
    capped(scene)
    scene.gpu(2, power_limit_w=350.0, power_w=349.0, sm_mhz=1200)
    scene.interval(2)
    assert straggler(scene) == {("straggler.power_limit", "GPU2")}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpm": SPINNING}, "waiting in a collective"),
        ({"gpm": {**SPINNING, "2": 70.0}}, "tiny kernels"),
        ({"gpm": {**SPINNING, "60": 300_000.0, "61": 300_000.0}}, "communication bound"),
        ({"gpm": None}, "waiting or in tiny kernels"),
    ],
)
def test_a_job_that_computes_nothing_is_not_the_nodes_fault(
    scene: Scene, changes: dict[str, Any], said: str
) -> None:
    scene.gpus(util=100, mem_util=2, power_w=190.0, reasons=0, sm_mhz=1980, **changes)
    scene.interval(MINUTE + 3)
    finding = scene.rule("straggler.job_waits")
    assert "not the node" in finding.say
    assert said in finding.say
    assert (finding.severity, finding.action) == (Severity.INFO, Action.NONE)
    assert straggler(scene) == {("straggler.job_waits", "")}


def test_the_end_of_a_job_is_no_recovery_and_no_fault(scene: Scene) -> None:
    capped(scene)
    scene.gpu(2, sm_mhz=1300, reasons=0, power_w=500.0)
    scene.interval(MINUTE + 3)
    scene.gpus(util=0, sm_mhz=345, reasons=1, power_w=70.0)
    scene.interval(5)
    finding = scene.rule("straggler.gpu")
    assert any("not under load" in line for line in finding.evidence)
