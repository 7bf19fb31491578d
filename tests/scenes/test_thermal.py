"""Heat, power brake, fans and sensors: what holds a GPU back, and what only looks like it."""

from __future__ import annotations

from typing import Any

import pytest

from console.demo import sysfs
from probes.event import Action, Severity
from tests.scenes.gpu_kinds import v100
from tests.scenes.rig import Scene
from tests.scenes.test_gpu import OURS

BUS = [f"0000:{bus}:00.0" for bus in sysfs.GPU_BUSES]
SECOND = int(1e9)


def spent(scene: Scene, field: int, gpu: int, seconds: float, before: float = 3.0) -> None:
    """An interval without, then one in which the GPU spent so long for this reason."""
    scene.gpu(gpu, fields={str(field): int(before * SECOND)})
    scene.interval()
    scene.gpu(gpu, fields={str(field): int((before + seconds) * SECOND)})
    scene.interval()
    scene.gpu(gpu, fields={str(field): int((before + 2 * seconds) * SECOND)})
    scene.interval()


@pytest.mark.parametrize(
    ("field", "rule", "seconds"),
    [
        (270, "thermal.hw_slowdown", 3.0), (269, "thermal.sw_slowdown", 6.0),
        (271, "power.brake", 1.5),
    ],
)  # fmt: skip
def test_a_share_of_time_is_found(scene: Scene, field: int, rule: str, seconds: float) -> None:
    scene.interval()
    spent(scene, field, 3, seconds)
    finding = scene.rule(rule)
    assert (finding.device, finding.severity) == (BUS[3], Severity.WARN)
    assert finding.value == pytest.approx(seconds / 15, abs=0.01)
    assert scene.rules() & OURS == {rule}


@pytest.mark.parametrize("field", [74, 77, 79])
def test_limits_at_full_load_are_no_fault(scene: Scene, field: int) -> None:
    scene.interval()
    scene.gpus(reasons=0x4)
    spent(scene, field, 3, 14.0)
    assert scene.rules() & OURS == set()


def test_an_older_driver_counts_heat_as_a_whole(scene: Scene) -> None:
    v100(scene)
    scene.interval()
    old = dict(scene.state["gpus"][3]["fields"])
    for seconds in (3, 9, 15):
        scene.gpu(3, fields={**old, "75": seconds * SECOND})
        scene.interval()
    assert scene.rule("thermal.sw_slowdown").device == BUS[3]


def test_hw_slowdown_without_a_reason(scene: Scene) -> None:
    scene.interval()
    scene.gpu(3, reasons=0x8, sm_mhz=600)
    scene.interval(2)
    finding = scene.rule("clocks.hw_slowdown")
    assert (finding.device, finding.severity) == (BUS[3], Severity.WARN)
    assert "0.60 of 1.98 GHz" in finding.say


@pytest.mark.parametrize(("temp", "severity"), [(87, "warn"), (89, "warn"), (90, "critical")])
def test_the_cards_own_margin(scene: Scene, temp: int, severity: str) -> None:
    """Operating limit 87 C; the hardware slows down 2 C above it."""
    scene.interval()
    scene.gpu(3, temp=temp)
    scene.interval(2)
    finding = scene.rule("thermal.margin")
    assert finding.severity == severity
    assert f"margin {87 - temp} °C, hardware slows down at -2 °C" in finding.evidence[0]
    assert (finding.action is Action.DRAIN) == (severity == "critical")


def test_a_card_without_limits_is_judged_by_its_temperature(scene: Scene) -> None:
    scene.gpus(temp_max=None)
    scene.interval(2)
    assert scene.rules() & OURS == set()
    scene.gpu(3, temp=91)
    scene.interval(2)
    assert "no limit of its own" in scene.rule("thermal.margin").say


def test_memory_against_the_cards_own_limit(scene: Scene) -> None:
    scene.gpus(temp_max=95, temp=60)  # memory limit 103
    scene.gpu(3, mem_temp=101)
    scene.interval(2)
    assert "thermal.memory" not in scene.rules()
    scene.gpu(3, mem_temp=103)
    scene.interval(2)
    assert scene.rule("thermal.memory").limit == 103


def test_a_fan_that_stands_still(scene: Scene) -> None:
    scene.gpus(fan=60, fan_rpm=3000)
    scene.interval()
    scene.gpu(3, fan_rpm=0)
    scene.interval(2)
    assert (scene.rule("thermal.fan").device, scene.rule("thermal.fan").value) == (BUS[3], 0)


def test_a_fan_that_cannot_be_read(scene: Scene) -> None:
    """ERR! in nvidia-smi; never read as 0 %, and one finding, not two."""
    scene.gpus(fan=60, fan_rpm=3000)
    scene.interval()
    scene.gpu(3, rc={"nvmlDeviceGetFanSpeed": 999})
    scene.interval(2)
    assert scene.rule("thermal.fan").device == BUS[3]
    assert scene.rules() & OURS == {"thermal.fan"}
    assert "fan_percent" not in scene.sample("gpu", BUS[3]).values


@pytest.mark.parametrize("change", [{"power_w": 0}, {"power_w": 1400}])
def test_power_that_cannot_be(scene: Scene, change: dict[str, Any]) -> None:
    scene.interval()
    scene.gpu(3, **change)
    scene.interval(2)
    assert scene.rule("power.reading").device == BUS[3]


def test_the_brake_on_all_gpus_is_the_nodes_supply(scene: Scene) -> None:
    scene.interval()
    scene.gpus(reasons=0x88, sm_mhz=900)
    scene.interval(2)
    brake = scene.rule("power.brake")
    assert brake.device == ""
    assert "all 8 GPUs" in brake.say
    assert "clocks.hw_slowdown" not in scene.rules()
