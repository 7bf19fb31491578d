"""Field cases of NVML: lost, renumbered and waiting GPUs. Facts are the cases' own."""

from __future__ import annotations

from typing import Any

import pytest

from console.demo import sysfs
from tests.probes_node.rig import Machine, case, facts

KEYS = {
    "nvmlDeviceGetTemperature": ("temp", 1),
    "nvmlDeviceGetPowerUsage": ("power_w", 1000),
    "nvmlDeviceGetMinorNumber": ("minor", 1),
    "nvmlDeviceGetName": ("name", None),
    "nvmlDeviceGetUUID": ("uuid", None),
}


def load(machine: Machine, dump: dict[str, Any]) -> None:
    """Make the machine answer as the dump does."""
    gpus = []
    for device, healthy in zip(dump["devices"], machine.state["gpus"], strict=False):
        entry: dict[str, Any] = {"pci": healthy["pci"], "rc": {}}
        for call, answer in device.items():
            if call == "index":
                continue
            if answer["rc"]:
                entry["rc"] = {"*": answer["rc"]}
            elif call in KEYS:
                key, scale = KEYS[call]
                entry[key] = answer["value"] / scale if scale else answer["value"]
            elif call == "nvmlDeviceGetPciInfo_v3":
                entry["pci"] = "0000" + answer["value"]["busId"].lower()[8:]
            elif call == "nvmlDeviceGetGpuFabricInfoV":
                entry["fabric"] = [answer["value"]["state"], answer["value"]["status"]]
        gpus.append(entry)
    machine.state["gpus"] = gpus
    machine.write()


def test_one_lost_of_eight(each_machine: Machine) -> None:
    dump, wanted = case("nvml-one-lost-of-eight"), facts("nvml-one-lost-of-eight")
    load(each_machine, dump)
    buses = [address[5:7] for address in dump["sysfs_nvidia_bdfs"]]
    sysfs.build(each_machine.root, gpus=buses)
    with each_machine.session() as session:
        gpus = session.collect("nvml")
        node = session.collect("inventory")[""]
    lost = {device: v for device, v in gpus.items() if v.get("nvml_rc") == 15}
    readable = sorted(v["index"] for d, v in gpus.items() if d not in lost and "temp_c" in v)
    assert node["gpu_count"] == wanted["count"]
    assert readable == wanted["readable"]
    assert [values["index"] for values in lost.values()] == wanted["lost"]
    assert list(lost) == [wanted["lost_pci_by_elimination"]]
    for device in dump["devices"]:
        if device["nvmlDeviceGetHandleByIndex_v2"]["rc"] == 0:
            pci = device["nvmlDeviceGetPciInfo_v3"]["value"]["busId"].lower()[4:]
            assert gpus[pci]["temp_c"] == device["nvmlDeviceGetTemperature"]["value"]
            assert gpus[pci]["power_w"] == device["nvmlDeviceGetPowerUsage"]["value"] / 1000


@pytest.mark.parametrize("new_session", [True, False])
def test_renumber_after_loss(each_machine: Machine, new_session: bool) -> None:
    dump, wanted = case("nvml-renumber-after-loss"), facts("nvml-renumber-after-loss")
    before = {one["pci"].lower()[4:]: one for one in dump["previous"]}
    sysfs.build(each_machine.root)
    with each_machine.session() as session:
        first = session.collect("inventory")
        load(each_machine, dump)
        if not new_session:
            second, rows = session.collect("inventory"), session.rows("inventory")
    if new_session:
        with each_machine.session() as session:
            second, rows = session.collect("inventory"), session.rows("inventory")
    assert {d: v["index"] for d, v in first.items() if d} == {
        d: one["index"] for d, one in before.items()
    }
    assert first[""]["gpu_count"] == wanted["expected"]
    assert second[""]["gpu_count"] == wanted["count"]
    missing = wanted["missing"]["pci"].lower()[4:]
    assert set(first) - set(second) == {missing}
    assert first[missing]["uuid"] == wanted["missing"]["uuid"]
    assert first[missing]["index"] == wanted["missing"]["old_index"]
    moves = {
        str(first[d]["index"]): second[d]["index"]
        for d in second
        if d and first[d]["index"] != second[d]["index"]
    }
    assert moves == wanted["index_moves"]
    for device in dump["devices"]:
        pci = device["nvmlDeviceGetPciInfo_v3"]["value"]["busId"].lower()[4:]
        assert second[pci]["uuid"] == device["nvmlDeviceGetUUID"]["value"]
        assert second[pci]["minor"] == device["nvmlDeviceGetMinorNumber"]["value"]
    assert [row["pci"] for row in rows if not row["in_nvml"]] == [missing]


def test_fabric_in_progress(each_machine: Machine) -> None:
    dump, wanted = case("nvml-fabric-in-progress"), facts("nvml-fabric-in-progress")
    load(each_machine, dump)
    with each_machine.session() as session:
        links = session.collect("fabric")
        gpus = session.collect("nvml")
    number = {"not_started": 1, "in_progress": 2, "completed": 3}[wanted["fabric_state"]]
    waiting = [d for d, values in links.items() if values.get("fabric_state") == number]
    assert len(waiting) == wanted["gpus_affected"]
    assert {values["temp_c"] for values in gpus.values()} == {30}
