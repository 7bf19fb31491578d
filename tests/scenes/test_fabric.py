"""NVLink fabric, NVSwitches and C2C: each fault within two intervals, each design in peace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from console.demo import sysfs
from probes.checks.fabric_health import FIELDS, parts
from probes.event import Action, Severity
from tests.scenes.products import CLUSTER, HEALTHY_MASK, become
from tests.scenes.rig import Scene

GPU3 = "0000:61:00.0"


def uptime(scene: Scene, seconds: float) -> None:
    scene.clock = seconds
    scene.write("proc/uptime", f"{seconds:.2f} 0.00\n")


@pytest.mark.parametrize(("state", "words"), [(1, "not started"), (2, "in progress")])
def test_gpus_that_wait_are_found_and_for_how_long(state: int, words: str, scene: Scene) -> None:
    scene.interval()
    scene.gpus(fabric=[state, 0])
    scene.interval()
    found = scene.rule("nvlink.fabric")
    assert found.severity is Severity.CRITICAL
    assert f"8 GPUs wait for the NVLink fabric (state {words}" in found.say
    assert "802" in found.say
    assert "nvidia-fabricmanager" in found.next_step


def test_the_wait_is_timed_on_the_node(scene: Scene) -> None:
    scene.gpu(3, fabric=[2, 0])
    scene.interval()
    values = scene.sample("fabric", GPU3).values
    waiting = values["fabric_waiting_s"]
    assert isinstance(waiting, float)
    assert waiting >= 0
    scene.gpu(3, fabric=[3, 0])
    scene.interval()
    assert "fabric_waiting_s" not in scene.sample("fabric", GPU3).values


def test_a_node_that_has_just_booted_may_wait(scene: Scene) -> None:
    uptime(scene, 90.0)
    scene.gpus(fabric=[2, 0])
    scene.interval(2)
    found = scene.rule("nvlink.fabric")
    assert found.severity is Severity.INFO
    assert "node up for" in found.evidence[0]
    assert scene.rules() == set()
    uptime(scene, 900.0)
    scene.interval(2)
    assert scene.rules() == {"nvlink.fabric"}


def test_a_registration_that_failed(scene: Scene) -> None:
    scene.interval()
    scene.gpu(3, fabric=[3, 999])
    scene.interval()
    found = scene.rule("nvlink.fabric")
    assert "1 GPU failed to join the NVLink fabric (status 999)" in found.say


def test_a_rack_has_no_fabric_manager_on_the_node(scene: Scene) -> None:
    become(scene, "GB200").gpu(3, fabric=[2, 0])
    scene.interval()
    found = scene.rule("nvlink.fabric")
    assert "no fabric manager runs on this node" in found.next_step
    assert "nvidia-fabricmanager" not in found.next_step


PARTS: dict[str, tuple[int, int, Severity]] = {
    "bandwidth degraded": (0, 1, Severity.WARN),
    "route recovery in progress": (2, 1, Severity.WARN),
    "route unhealthy": (4, 1, Severity.CRITICAL),
    "recovery from an access timeout in progress": (6, 1, Severity.WARN),
    "wrong system GUID": (8, 2, Severity.WARN),
    "wrong chassis serial number": (8, 3, Severity.WARN),
    "no partition": (8, 4, Severity.WARN),
    "too few NVLinks": (8, 5, Severity.CRITICAL),
    "GPU firmware does not fit": (8, 6, Severity.WARN),
    "wrong place in the rack": (8, 7, Severity.WARN),
    "GPU state invalid": (8, 8, Severity.CRITICAL),
    "no partition assigned": (12, 2, Severity.INFO),
    "fabric manager disconnected": (14, 2, Severity.WARN),
}
"""What is said, and where in the mask it is: shift, value, severity."""


def mask(shift: int, value: int) -> int:
    """A healthy mask with one field changed."""
    width = 0xF if shift == 8 else 0x3
    return HEALTHY_MASK & ~(width << shift) | value << shift


@pytest.mark.parametrize("say", PARTS)
def test_each_part_of_the_health_mask(say: str, scene: Scene) -> None:
    shift, value, severity = PARTS[say]
    become(scene, "GB200").interval()
    assert scene.findings() == []
    scene.gpu(3, fabric=[3, 0, mask(shift, value), 32766, CLUSTER, 1])
    scene.interval(2)
    found = scene.rule("fabric.health", GPU3)
    assert found.severity is severity
    assert found.say == f"GPU3: NVLink fabric: {'incorrect configuration: ' * (shift == 8)}{say}"


def test_every_value_of_the_mask_that_has_a_name_is_here() -> None:
    known = {(field.shift, value) for field in FIELDS for value in field.values}
    assert known == {(shift, value) for shift, value, _ in PARTS.values()}


def test_what_is_not_supported_is_silent() -> None:
    assert parts(0) == []
    assert parts(HEALTHY_MASK) == []


@pytest.mark.parametrize(("summary", "severity"), [(2, Severity.CRITICAL), (3, Severity.WARN)])
def test_a_summary_without_a_reason(summary: int, severity: Severity, scene: Scene) -> None:
    become(scene, "GB200").interval()
    scene.gpu(3, fabric=[3, 0, HEALTHY_MASK, 32766, CLUSTER, summary])
    scene.interval(2)
    assert scene.rule("fabric.health", GPU3).severity is severity


def test_domain_and_clique_are_told(scene: Scene) -> None:
    become(scene, "GB200").interval()
    values = scene.sample("fabric", GPU3).values
    assert values["fabric_cluster"] == "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
    assert (values["fabric_clique"], values["fabric_health"], values["fabric_summary"]) == (
        32766, HEALTHY_MASK, 1,
    )  # fmt: skip


def test_gpus_of_one_node_in_two_domains(scene: Scene) -> None:
    become(scene, "GB200").interval()
    scene.gpu(3, fabric=[3, 0, HEALTHY_MASK, 32766, "ab" * 16, 1])
    scene.interval(2)
    assert scene.rules() == {"fabric.split"}
    assert scene.rule("fabric.split").say.startswith("GPU3 in another NVLink domain than 7 GPUs")


def test_an_nvswitch_that_died(scene: Scene) -> None:
    scene.interval()
    assert scene.sample("fabric").values == {"nvswitches": 4}
    sysfs.lose_gpu(scene.root, "0000:08:00.0")
    scene.interval()
    assert scene.rules() == {"fabric.nvswitch"}
    assert scene.rule("fabric.nvswitch").device == "0000:08:00.0"


C2C: dict[str, tuple[dict[str, Any], str, Severity, str]] = {
    "down": ({"down": [3, 7]}, "c2c.down", Severity.CRITICAL, "C2C link 3, 7 down, 8 of 10 up"),
    "slow": ({"mbps": 22356}, "c2c.slow", Severity.WARN, "slowest C2C link at 22.36 GB/s"),
}


@pytest.mark.parametrize("name", C2C)
def test_c2c_links(name: str, scene: Scene) -> None:
    changes, rule, severity, say = C2C[name]
    become(scene, "GB200").interval()
    values = scene.sample("fabric", GPU3).values
    assert (values["c2c_links"], values["c2c_up"], values["c2c_mbps"]) == (10, 10, 447_120)
    scene.gpu(3, c2c={"links": 10, "mbps": 44712, **changes})
    scene.interval(2)
    assert scene.rules() == {rule}
    found = scene.rule(rule, GPU3)
    assert found.severity is severity
    assert say in found.say


def test_c2c_errors_are_information(scene: Scene) -> None:
    become(scene, "GB200")
    for number in range(3):
        scene.gpu(3, c2c={"links": 10, "mbps": 44712, "crc": 7 * number})
        scene.interval()
    found = scene.rule("c2c.errors", GPU3)
    assert (found.severity, found.action) == (Severity.INFO, Action.WATCH)
    assert "c2c_crc +7" in found.say


def one_by_one(scene: Scene) -> None:
    """A partitioned rack: each GPU in a clique of its own, one domain."""
    become(scene, "GB200")
    for index in range(len(scene.state["gpus"])):
        scene.gpu(index, fabric=[3, 0, HEALTHY_MASK, index, CLUSTER, 1])


def old_driver(structure: int, scene: Scene) -> None:
    """A driver that knows only older structures of the registration."""
    scene.state["missing"] = ["nvmlDeviceGetGpuFabricInfoV"] if structure == 1 else []
    scene.gpus(rc={"nvmlDeviceGetGpuFabricInfoV": 25} if structure == 2 else {})
    scene.save()


def no_switches(scene: Scene) -> None:
    """HGX B200: the switches are no PCI devices of NVIDIA."""
    for bus in sysfs.NVSWITCH_BUSES:
        scene.remove(f"sys/bus/pci/devices/0000:{bus}:00.0")


QUIET: dict[str, Callable[[Scene], object]] = {
    "HGX": lambda _: None,
    "B200": lambda scene: become(scene, "B200"),
    "GB200": lambda scene: become(scene, "GB200"),
    "cards without a fabric": lambda scene: become(scene, "L40S"),
    "state not supported": lambda scene: scene.gpus(fabric=[0, 0]),
    "cliques of one": one_by_one,
    "the oldest call": lambda scene: old_driver(1, scene),
    "a refused structure": lambda scene: old_driver(2, scene),
    "MIG": lambda scene: scene.gpus(mig=1, util=None, mem_util=None),
    "no rights": lambda scene: scene.gpus(rc={"nvmlDeviceGetGpuFabricInfoV": 4}),
    "no NVSwitch on the bus": no_switches,
}


@pytest.mark.parametrize("name", QUIET)
def test_health_is_not_reported(name: str, scene: Scene) -> None:
    QUIET[name](scene)
    scene.interval(3)
    assert scene.rules() == set()
