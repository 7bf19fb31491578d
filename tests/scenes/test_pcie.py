"""PCIe: width, generation under load, slots and the links above them, errors as rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from probes.event import Action, Severity
from tests.scenes.products import become
from tests.scenes.rig import Scene

GPU3 = "0000:61:00.0"
DEVICES = "sys/bus/pci/devices"
SWITCH, ROOT_PORT, SLOT = "0000:5c:00.0", "0000:5b:01.0", "0000:5d:01.0"
"""Above GPU3: upstream port of its switch, root port, and the port it sits in."""

AER = {
    "correctable": ("RxErr", "TOTAL_ERR_COR"),
    "nonfatal": ("UnsupReq", "TOTAL_ERR_NONFATAL"),
    "fatal": ("DLP", "TOTAL_ERR_FATAL"),
}


def lanes(scene: Scene, address: str, width: int, most: int = 16) -> None:
    """What sysfs says of one end of a link."""
    scene.write(f"{DEVICES}/{address}/current_link_width", f"{width}\n")
    scene.write(f"{DEVICES}/{address}/max_link_width", f"{most}\n")


def aer(scene: Scene, address: str, kind: str, total: int, first: int = 0) -> None:
    """An aer_dev_* file: its first line and its total."""
    name, sum_name = AER[kind]
    scene.write(f"{DEVICES}/{address}/aer_dev_{kind}", f"{name} {first}\n{sum_name} {total}\n")


def test_the_path_of_a_gpu(scene: Scene) -> None:
    scene.interval()
    values = scene.sample("pcie", GPU3).values
    assert values["path"] == f"{SLOT} {SWITCH} {ROOT_PORT}"
    assert (values["card_width_max"], values["slot_width_max"], values["slot_gen_max"]) == (
        16, 16, 5,
    )  # fmt: skip
    rows = {row["bridge"]: row for row in scene.sample("pcie").rows}
    assert len(rows) == 8
    assert rows[SWITCH] == {
        "bridge": SWITCH, "above": ROOT_PORT, "gen": 5, "width": 16, "gen_max": 5, "width_max": 16,
    }  # fmt: skip


def test_a_card_that_trained_at_half_width(scene: Scene) -> None:
    scene.interval()
    scene.gpu(3, pcie=[5, 5, 8, 16])
    lanes(scene, GPU3, 8)
    scene.interval(2)
    assert scene.rules() == {"pcie.width"}
    found = scene.rule("pcie.width", GPU3)
    assert found.severity is Severity.CRITICAL
    assert found.evidence == ("x8 of x16; card x16, slot x16",)


def test_a_riser_that_passes_eight_lanes_is_not_the_card(scene: Scene) -> None:
    """NVML's maximum is 8 then: the card's own maximum and the siblings tell."""
    scene.interval()
    scene.gpu(3, pcie=[5, 5, 8, 8])
    lanes(scene, GPU3, 8, most=16)
    lanes(scene, SLOT, 8, most=8)
    scene.interval(2)
    assert scene.rules() == {"pcie.slot"}
    found = scene.rule("pcie.slot", GPU3)
    assert "offers PCIe x8, most have x16" in found.say
    assert SLOT in found.evidence[0]
    assert "card x16" in found.evidence[0]
    assert "card is not at fault" in found.next_step


def test_a_slot_that_the_bios_limits(scene: Scene) -> None:
    scene.interval()
    scene.gpu(3, pcie=[4, 4, 16, 16])
    scene.interval(2)
    assert "Gen4, most have Gen5" in scene.rule("pcie.slot", GPU3).say


def test_all_slots_alike_are_by_design(scenes: Callable[..., Scene]) -> None:
    scene = scenes()
    scene.gpus(pcie=[5, 5, 8, 8])
    for entry in scene.state["gpus"]:
        lanes(scene, entry["pci"], 8, most=16)
    scene.interval(3)
    assert scene.rules() == set()
    assert scene.rule("pcie.slot").say == "all slots offer x8, the GPUs could use more"


def test_all_slots_below_those_of_the_peers(scene: Scene) -> None:
    scene.interval()
    scene.gpus(pcie=[5, 5, 8, 8])
    for entry in scene.state["gpus"]:
        lanes(scene, entry["pci"], 8, most=16)
    scene.interval(2)
    found = [f for f in scene.findings() if f.rule == "pcie.slot"]
    assert [f.severity for f in found] == [Severity.WARN] * 8


@pytest.mark.parametrize(("width", "found"), [(8, True), (16, False)])
def test_a_link_above_a_switch_without_peers(
    width: int, found: bool, scenes: Callable[..., Scene]
) -> None:
    """The other seven uplinks of the node tell what is usual."""
    scene = scenes(peers=0)
    lanes(scene, SWITCH, width)
    lanes(scene, ROOT_PORT, width)
    scene.interval(3)
    assert ("pcie.path" in scene.rules()) is found


def test_a_single_narrow_uplink_that_nothing_compares_with(scenes: Callable[..., Scene]) -> None:
    scene = scenes(gpus=1, hcas=1, peers=0)
    lanes(scene, "0000:16:00.0", 8)
    lanes(scene, "0000:15:01.0", 8)
    scene.interval(3)
    assert scene.rules() == set()
    assert scene.rule("pcie.path").severity is Severity.INFO


def test_the_link_above_a_switch(scene: Scene) -> None:
    scene.interval()
    lanes(scene, SWITCH, 8)
    lanes(scene, ROOT_PORT, 8)
    scene.interval(2)
    assert scene.rules() == {"pcie.path"}
    found = scene.rule("pcie.path", SWITCH)
    assert found.say == f"PCIe x8 of x16 at bridge {SWITCH}, above GPU3"
    assert "most nodes have x16" in found.evidence[0]
    assert found.action is Action.DRAIN


def test_a_narrow_link_above_all_switches_is_by_design(scene: Scene) -> None:
    for bus in ("15", "3d", "4c", "5b", "97", "bd", "cb", "d9"):
        lanes(scene, f"0000:{int(bus, 16) + 1:02x}:00.0", 8)
        lanes(scene, f"0000:{bus}:01.0", 8)
    scene.interval(3)
    assert scene.rules() == set()
    assert len([f for f in scene.findings() if f.rule == "pcie.path"]) == 8


def test_a_slow_link_above_a_switch_counts_under_load(scene: Scene) -> None:
    scene.interval()
    for address in (SWITCH, ROOT_PORT):
        scene.write(f"{DEVICES}/{address}/current_link_speed", "8.0 GT/s PCIe\n")
    scene.gpus(util=0)
    scene.interval(2)
    assert scene.rules() == set()
    scene.gpu(3, util=97)
    scene.interval(2)
    assert "Gen3 of Gen5" in scene.rule("pcie.path", SWITCH).say


def test_generation_is_judged_only_under_load(scene: Scene) -> None:
    scene.gpus(util=0, pcie=[1, 5, 16, 16])
    scene.interval(3)
    assert scene.rules() == set()
    scene.gpu(3, util=97, pcie=[2, 5, 16, 16])
    scene.interval(2)
    assert scene.rules() == {"pcie.generation"}
    assert "Gen2 of Gen5" in scene.rule("pcie.generation", GPU3).say


REPLAYS: dict[str, tuple[list[int], int, bool]] = {
    "Gen3 x16 above 0.48 a lane": ([3, 3, 16, 16], 6, True),
    "Gen3 x16 below": ([3, 3, 16, 16], 1, False),
    "Gen5 x8 above": ([5, 5, 8, 8], 6, True),
    "Gen5 x16 above 1.92 a lane": ([5, 5, 16, 16], 9, True),
    "Gen5 x16 below": ([5, 5, 16, 16], 7, False),
    "Gen5 while it is idle": ([1, 5, 16, 16], 9, True),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_replays_are_a_rate_per_lane(name: str, scene: Scene) -> None:
    link, each_interval, found = REPLAYS[name]
    scene.gpus(pcie=link, util=10)
    for number in range(4):
        scene.gpu(3, pcie_replays=each_interval * number)
        scene.interval()
    assert ("pcie.replays" in scene.rules()) is found


@pytest.mark.parametrize("kind", ["nonfatal", "fatal"])
@pytest.mark.parametrize("address", [GPU3, SLOT])
def test_uncorrected_errors_of_card_and_port(kind: str, address: str, scene: Scene) -> None:
    aer(scene, address, kind, 4)
    scene.interval()
    assert scene.rules() == set()
    aer(scene, address, kind, 5)
    scene.interval()
    assert scene.rules() == {"pcie.errors"}
    assert scene.rule("pcie.errors").device == GPU3


def test_requests_that_are_not_supported_are_no_damage(scene: Scene) -> None:
    for number in range(3):
        aer(scene, GPU3, "nonfatal", 4 + number, first=4 + number)
        scene.interval()
    assert scene.rules() == set()


def test_corrected_errors_are_a_rate(scene: Scene) -> None:
    aer(scene, SLOT, "correctable", 100_000)
    scene.interval(3)
    assert scene.findings() == []
    for number in (1, 2):
        aer(scene, SLOT, "correctable", 100_000 + 40 * number)
        scene.interval()
    found = scene.rule("pcie.corrected", GPU3)
    assert found.severity is Severity.WARN
    assert found.value == 160
    assert "slot_aer_correctable +40" in found.evidence[0]


def test_counters_that_were_reset_do_not_alarm(scene: Scene) -> None:
    aer(scene, GPU3, "correctable", 90_000)
    aer(scene, GPU3, "fatal", 9)
    scene.gpu(3, pcie_replays=90_000)
    scene.interval(2)
    aer(scene, GPU3, "correctable", 5_000)
    aer(scene, GPU3, "fatal", 1)
    scene.gpu(3, pcie_replays=5_000)
    scene.interval(2)
    assert scene.findings() == []


def test_nvml_and_the_kernel_disagree(scene: Scene) -> None:
    scene.interval()
    lanes(scene, GPU3, 4)
    scene.interval(2)
    assert scene.rule("pcie.disagree", GPU3).severity is Severity.INFO
    assert scene.rules() == set()


def test_traffic_is_a_metric(scene: Scene) -> None:
    scene.gpu(2, pcie_errors=False)
    scene.gpu(3, fields={"197": 5_000_000, "198": 7_000_000})
    scene.interval()
    counted, sampled = (scene.sample("pcie", d).values for d in (GPU3, "0000:52:00.0"))
    assert (counted["tx_bytes"], counted["rx_bytes"]) == (5_000_000, 7_000_000)
    assert "tx_kb_per_s" not in counted
    assert (sampled["tx_kb_per_s"], sampled["rx_kb_per_s"]) == (1200, 3400)
    assert "tx_bytes" not in sampled


def vm(scene: Scene) -> None:
    """A guest: cards right on the root bus, link files say nothing."""
    for entry in scene.state["gpus"]:
        address = entry["pci"]
        for name in ("current_link_width", "max_link_width"):
            scene.write(f"{DEVICES}/{address}/{name}", "0\n")
        for name in ("current_link_speed", "max_link_speed"):
            scene.write(f"{DEVICES}/{address}/{name}", "Unknown\n")
        link = scene.root / DEVICES / address
        place = link.resolve()
        link.unlink()
        target = scene.root / "sys/devices/pci0000:00" / address
        target.parent.mkdir(parents=True, exist_ok=True)
        place.rename(target)
        link.symlink_to(target)


QUIET: dict[str, Callable[[Scene], object]] = {
    "idle": lambda scene: scene.gpus(util=0, pcie=[1, 5, 16, 16]),
    "Grace": lambda scene: become(scene, "GB200"),
    "virtual machine": vm,
    "no readings": lambda scene: scene.gpus(pcie=None, pcie_replays=None, pcie_errors=False,
                                            pcie_kb=None),
    "MIG": lambda scene: scene.gpus(mig=1, util=None, mem_util=None, pcie=[1, 5, 16, 16]),
    "old scars": lambda scene: scene.gpus(pcie_replays=4711),
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_health_is_not_reported(name: str, scene: Scene) -> None:
    QUIET[name](scene)
    scene.interval(3)
    assert scene.rules() == set()


def test_a_guest_has_no_path(scene: Scene) -> None:
    vm(scene)
    scene.interval()
    values: dict[str, Any] = scene.sample("pcie", GPU3).values
    assert values["width"] == 16
    assert not {"path", "slot", "card_width_max", "sysfs_width"} & set(values)
