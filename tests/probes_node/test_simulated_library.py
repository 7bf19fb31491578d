"""What nvml.json says is what NVIDIA's own binding returns, on every Python a node may have."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.probes_node.rig import Machine

GPU = {
    "name": "NVIDIA H200", "uuid": "GPU-11112222-3333-4444-5555-666677778888",
    "serial": "1650523001234", "vbios": "96.00.A5.00.01", "device_id": "233510de",
    "subsystem_id": "18be10de", "minor": 5, "util": 31, "mem_util": 7, "mem_total_mib": 143771,
    "mem_used_mib": 1234, "mem_reserved_mib": 777, "temp": 44, "temp_max": 90, "mem_temp": 51,
    "power_w": 123.456, "power_limit_w": 650, "sm_mhz": 1755, "sm_max_mhz": 1981, "mem_mhz": 3201,
    "mem_max_mhz": 3202, "reasons": 0x48, "pstate": 2, "persistence": 0, "ecc": 1,
    "ecc_vol_ue": 11, "ecc_vol_ce": 12, "ecc_agg_ue": 13, "ecc_agg_ce": 2**33,
    "remap": [1, 2, 1, 0], "pcie": [4, 5, 8, 16], "pcie_replays": 99, "links": 4,
    "link_mbps": 53125, "fabric": [2, 7], "recovery": 4,
    "link": {"2": {"up": 0, "crc": 3, "replays": 4, "recoveries": 5}},
    "fields": {"270": 10**13, "161.1": 77, "94": "!15"}, "procs": [[4242, 500], [4243, 501]],
}  # fmt: skip

CALLS: dict[tuple[Any, ...], Any] = {
    ("nvmlDeviceGetName",): "NVIDIA H200",
    ("nvmlDeviceGetUUID",): GPU["uuid"],
    ("nvmlDeviceGetSerial",): "1650523001234",
    ("nvmlDeviceGetVbiosVersion",): "96.00.A5.00.01",
    ("nvmlDeviceGetIndex",): 3,
    ("nvmlDeviceGetMinorNumber",): 5,
    ("nvmlDeviceGetUtilizationRates",): {"gpu": 31, "memory": 7},
    ("nvmlDeviceGetTemperature", 0): 44,
    ("nvmlDeviceGetTemperatureV", 0): 44,
    ("nvmlDeviceGetMarginTemperature",): 46,
    ("nvmlDeviceGetTemperatureThreshold", 3): 90,
    ("nvmlDeviceGetPowerUsage",): 123456,
    ("nvmlDeviceGetEnforcedPowerLimit",): 650000,
    ("nvmlDeviceGetClockInfo", 1): 1755,
    ("nvmlDeviceGetClockInfo", 2): 3201,
    ("nvmlDeviceGetMaxClockInfo", 1): 1981,
    ("nvmlDeviceGetMaxClockInfo", 2): 3202,
    ("nvmlDeviceGetCurrentClocksEventReasons",): 0x48,
    ("nvmlDeviceGetCurrentClocksThrottleReasons",): 0x48,
    ("nvmlDeviceGetPerformanceState",): 2,
    ("nvmlDeviceGetPersistenceMode",): 0,
    ("nvmlDeviceGetEccMode",): [1, 1],
    ("nvmlDeviceGetMigMode",): [0, 0],
    ("nvmlDeviceGetTotalEccErrors", 1, 0): 11,
    ("nvmlDeviceGetTotalEccErrors", 0, 0): 12,
    ("nvmlDeviceGetTotalEccErrors", 1, 1): 13,
    ("nvmlDeviceGetTotalEccErrors", 0, 1): 2**33,
    ("nvmlDeviceGetRemappedRows",): [1, 2, 1, 0],
    ("nvmlDeviceGetCurrPcieLinkGeneration",): 4,
    ("nvmlDeviceGetMaxPcieLinkGeneration",): 5,
    ("nvmlDeviceGetCurrPcieLinkWidth",): 8,
    ("nvmlDeviceGetMaxPcieLinkWidth",): 16,
    ("nvmlDeviceGetPcieReplayCounter",): 99,
    ("nvmlDeviceGetNvLinkState", 1): 1,
    ("nvmlDeviceGetNvLinkState", 2): 0,
    ("nvmlDeviceGetNvLinkState", 4): {"rc": 2},
    ("nvmlDeviceGetNvLinkErrorCounter", 2, 2): 3,
    ("nvmlDeviceGetGraphicsRunningProcesses",): [],
}


def test_every_call_returns_what_the_state_says(each_machine: Machine) -> None:
    each_machine.gpu(3, **GPU)
    with each_machine.session() as session:
        session.collect("nvml")  # initialises the library
        for (name, *args), wanted in CALLS.items():
            assert session.call(name, 3, *args) == wanted, (name, args)


def test_structures_are_filled(each_machine: Machine) -> None:
    each_machine.gpu(3, **GPU)
    mib = 1 << 20
    with each_machine.session() as session:
        session.collect("nvml")
        pci = session.call("nvmlDeviceGetPciInfo", 3)
        first = session.call("nvmlDeviceGetMemoryInfo", 3)
        second = session.call("nvmlDeviceGetMemoryInfo", 3, 0x02000028)
        fabric = session.call("nvmlDeviceGetGpuFabricInfoV", 3, "new c_nvmlGpuFabricInfoV_t")
        processes = session.call("nvmlDeviceGetComputeRunningProcesses", 3)
    assert pci["busId"] == "00000000:61:00.0"
    assert (pci["bus"], pci["pciDeviceId"], pci["pciSubSystemId"]) == (0x61, 0x233510DE, 0x18BE10DE)
    assert (first["total"], first["used"]) == (143771 * mib, (1234 + 777) * mib)
    assert (second["used"], second["reserved"]) == (1234 * mib, 777 * mib)
    assert first["free"] == second["free"] == (143771 - 1234 - 777) * mib
    assert (fabric["state"], fabric["status"]) == (2, 7)
    assert [(p["pid"], p["usedGpuMemory"]) for p in processes] == [
        (4242, 500 * mib), (4243, 501 * mib),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "member", "value"),
    [
        ([270, 0], "ullVal", 10**13),
        ([161, 1], "ullVal", 77),
        ([161, 2], "ullVal", 4),
        ([164, 1], "uiVal", 53125),
        ([164, 2], "uiVal", 0),
        ([82, 0], "uiVal", 51),
        ([91, 0], "uiVal", 4),
        ([230, 0], "uiVal", 4),
        ([144, 0], "uiVal", 1),
        ([5, 0], "ullVal", 2**33),
        ([194, 0], "siVal", -2),
    ],
)
def test_a_field_value(machine: Machine, field: list[int], member: str, value: int) -> None:
    machine.gpu(3, **GPU)
    with machine.session() as session:
        session.collect("nvml")
        (found,) = session.call("nvmlDeviceGetFieldValues", 3, [field])
    assert found["nvmlReturn"] == 0
    assert found["value"][member] == value
    assert ["dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal"][found["valueType"]] == member


def test_each_field_has_its_own_return_code(machine: Machine) -> None:
    machine.gpu(3, **GPU)
    fields = [[94, 0], [270, 0], [9999, 0], [161, 17]]
    with machine.session() as session:
        session.collect("nvml")
        found = session.call("nvmlDeviceGetFieldValues", 3, fields)
    assert [one["nvmlReturn"] for one in found] == [15, 0, 3, 2]


def test_system_calls(each_machine: Machine) -> None:
    each_machine.state.update(driver="550.90.07", nvml="12.550.90.07", cuda=12040)
    each_machine.write()
    with each_machine.session() as session:
        session.collect("nvml")
        assert session.call("nvmlSystemGetDriverVersion") == "550.90.07"
        assert session.call("nvmlSystemGetNVMLVersion") == "12.550.90.07"
        assert session.call("nvmlSystemGetCudaDriverVersion") == 12040
        assert session.call("nvmlDeviceGetCount") == 8
        assert session.call("nvmlErrorString", None, 15) == "GPU is lost"


def test_null_is_not_supported(machine: Machine) -> None:
    machine.gpu(0, power_w=None, procs=None, links=None)
    with machine.session() as session:
        session.collect("nvml")
        assert session.call("nvmlDeviceGetPowerUsage", 0) == {"rc": 3}
        assert session.call("nvmlDeviceGetComputeRunningProcesses", 0) == {"rc": 3}
        assert session.call("nvmlDeviceGetNvLinkState", 0, 0) == {"rc": 3}
        assert session.call("nvmlDeviceGetPowerUsage", 1) == 620000


def test_the_file_may_change_while_it_is_in_use(machine: Machine) -> None:
    with machine.session() as session:
        session.collect("nvml")
        assert session.call("nvmlDeviceGetTemperature", 2, 0) == 55
        machine.gpu(2, temp=91)
        assert session.call("nvmlDeviceGetTemperature", 2, 0) == 91
        (machine.directory / "nvml.json").write_text("{half a file")
        assert session.call("nvmlDeviceGetTemperature", 2, 0) == 91


def test_numbers_drift_with_the_age_of_the_file(machine: Machine) -> None:
    machine.gpu(1, drift={"ecc_vol_ce": 5, "fields.270": 1e8, "link.7.replays": 2})
    path = machine.directory / "nvml.json"
    before = path.stat().st_mtime - 1000
    os.utime(path, (before, before))
    with machine.session() as session:
        session.collect("nvml")
        errors = session.call("nvmlDeviceGetTotalEccErrors", 1, 0, 0)
        field, replays = session.call("nvmlDeviceGetFieldValues", 1, [[270, 0], [161, 7]])
        others = session.call("nvmlDeviceGetTotalEccErrors", 0, 0, 0)
    assert 5000 <= errors < 5500
    assert 1000 * 1e8 <= field["value"]["ullVal"] < 1100 * 1e8
    assert 2000 <= replays["value"]["ullVal"] < 2200
    assert others == 0


def test_handles_belong_to_cards_not_to_indices(machine: Machine) -> None:
    with machine.session() as session:
        session.collect("nvml")
        assert session.call("nvmlDeviceGetMinorNumber", 3) == 3
        del machine.state["gpus"][2]
        machine.write()
        assert session.call("nvmlDeviceGetMinorNumber", 2) == 3
        assert session.call("nvmlDeviceGetCount") == 7
        assert session.call("nvmlDeviceGetMinorNumber", 7) == {"rc": 2}


def test_look_up_by_address_and_uuid(machine: Machine) -> None:
    with machine.session() as session:
        session.collect("nvml")
        for wanted in ("0000:52:00.0", "00000000:52:00.0"):
            assert "rc" not in str(session.call("nvmlDeviceGetHandleByPciBusId", None, wanted))
        missing = session.call("nvmlDeviceGetHandleByPciBusId", None, "0000:99:00.0")
        assert missing == {"rc": 6}


def test_the_interpreter_is_otherwise_untouched(each_machine: Machine) -> None:
    with each_machine.session() as session:
        found = session.ask(op="python")
    assert (found["isolated"], found["no_site"]) == (1, 1)
    assert found["argv"][0] == "-c"
    assert found["name"] == "__main__"
    assert not [place for place in found["path"] if place.endswith("nvml")]
