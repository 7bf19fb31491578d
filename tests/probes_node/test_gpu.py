"""The NVML probes on healthy, sick, old and absent drivers."""

from __future__ import annotations

import pytest

from console.demo import sysfs
from tests.probes_node.rig import Machine

BUS = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]
PROBES = ("nvml", "gpm", "ecc", "pcie", "nvlink", "nvlink_ends", "fabric", "inventory")


def test_healthy_node(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    each_machine.gpu(5, temp=71, power_w=688.5, reasons=4, sm_mhz=1410)
    with each_machine.session() as session:
        found = {probe: session.collect(probe) for probe in PROBES}
    assert list(found["nvml"]) == BUS
    gpu = found["nvml"]["0000:c3:00.0"]
    assert (gpu["index"], gpu["temp_c"], gpu["power_w"], gpu["reasons"]) == (5, 71, 688.5, 4)
    assert (gpu["sm_clock_mhz"], gpu["sm_clock_max_mhz"]) == (1410, 1980)
    assert gpu["thermal_margin_c"] == 87 - 71
    assert gpu["mem_used_bytes"] == 70000 << 20
    assert found["ecc"]["0000:1b:00.0"]["ecc_mode"] is True
    assert found["ecc"]["0000:1b:00.0"]["remap_pending"] is False
    assert found["pcie"]["0000:1b:00.0"]["gen"] == 5
    assert found["pcie"]["0000:1b:00.0"]["aer_correctable"] == 0
    assert found["nvlink"]["0000:1b:00.0"]["links"] == 18
    assert found["nvlink"]["0000:1b:00.0"]["link17_mbps"] == 26562
    assert found["fabric"]["0000:1b:00.0"]["fabric_state"] == 3
    assert found["inventory"]["0000:1b:00.0"]["pci_device_id"] == "2330"
    assert found["inventory"]["0000:1b:00.0"]["pci_subsystem_id"] == "16c110de"
    node = found["inventory"][""]
    assert (node["gpu_count"], node["pci_gpu_count"], node["nvml_library"]) == (8, 8, True)
    assert node["cuda_version"] == "13.0"
    assert not [v for d in found.values() for v in d.values() if "nvml_rc" in v]


def test_every_metric_is_declared() -> None:
    from probes.catalog import PROBES as CATALOG

    wanted = {"gpu", "ecc", "pcie", "nvlink", "inventory", "infiniband"}
    assert wanted <= set(CATALOG)


@pytest.mark.parametrize("probe", PROBES)
def test_metrics_sent_are_metrics_declared(machine: Machine, probe: str) -> None:
    import importlib
    import re

    sysfs.build(machine.root)
    machine.gpu(1, rc={"nvmlDeviceGetTemperature": 16})
    declared = importlib.import_module(f"probes.node.{probe}").METRICS
    with machine.session() as session:
        devices = session.collect(probe)
    sent = {re.sub(r"^link\d+_", "linkN_", name) for d in devices.values() for name in d}
    assert sent <= set(declared)


def test_one_failing_call_leaves_the_rest(each_machine: Machine) -> None:
    each_machine.gpu(2, rc={"nvmlDeviceGetPowerUsage": 16})
    with each_machine.session() as session:
        gpu = session.collect("nvml")["0000:52:00.0"]
    assert (gpu["nvml_rc"], gpu["nvml_call"]) == (16, "nvmlDeviceGetPowerUsage")
    assert "power_w" not in gpu
    assert gpu["temp_c"] == 55


def test_lost_outranks_other_failures(machine: Machine) -> None:
    rc = {"nvmlDeviceGetPowerUsage": 999, "nvmlDeviceGetTemperature": 15}
    machine.gpu(2, rc=rc)
    with machine.session() as session:
        gpu = session.collect("nvml")["0000:52:00.0"]
    assert gpu["nvml_rc"] == 15


def test_a_gpu_lost_in_a_session_keeps_its_address(each_machine: Machine) -> None:
    with each_machine.session() as session:
        session.collect("inventory")
        each_machine.gpu(3, rc={"*": 15})
        gpus = session.collect("nvml")
        inventory = session.collect("inventory")
    assert list(gpus) == BUS
    assert gpus["0000:61:00.0"]["nvml_rc"] == 15
    assert "temp_c" not in gpus["0000:61:00.0"]
    assert [d for d, values in gpus.items() if "nvml_rc" not in values] == BUS[:3] + BUS[4:]
    assert inventory["0000:61:00.0"]["nvml_rc"] == 15
    assert inventory["0000:61:00.0"]["nvml_call"] == "nvmlDeviceGetHandleByIndex_v2"


def test_a_gpu_that_comes_back_is_read_again(machine: Machine) -> None:
    machine.gpu(3, rc={"*": 15})
    sysfs.build(machine.root)
    with machine.session() as session:
        assert session.collect("nvml")["0000:61:00.0"]["nvml_rc"] == 15
        machine.gpu(3, rc={})
        session.collect("inventory")
        assert session.collect("nvml")["0000:61:00.0"]["temp_c"] == 55


def test_a_lost_gpu_without_an_address_is_named_by_index(machine: Machine) -> None:
    machine.gpu(3, rc={"*": 15})
    with machine.session() as session:  # no sysfs, no earlier answer
        gpus = session.collect("nvml")
    assert gpus["index:3"] == {
        "index": 3, "nvml_rc": 15, "nvml_call": "nvmlDeviceGetHandleByIndex_v2",
    }  # fmt: skip
    assert len(gpus) == 8


def test_two_lost_gpus_are_told_apart_by_bus_order(machine: Machine) -> None:
    sysfs.build(machine.root)
    machine.gpu(1, rc={"*": 15})
    machine.gpu(6, rc={"*": 15})
    with machine.session() as session:
        gpus = session.collect("nvml")
    assert {d: v["index"] for d, v in gpus.items() if "nvml_rc" in v} == {BUS[1]: 1, BUS[6]: 6}


def test_elimination_does_not_guess(machine: Machine) -> None:
    """Two lost, and the driver does not number in bus order: which is which stays open."""
    sysfs.build(machine.root)
    machine.state["gpus"].reverse()
    machine.gpu(1, rc={"*": 15})
    machine.gpu(6, rc={"*": 15})
    with machine.session() as session:
        gpus = session.collect("nvml")
    assert {d for d, v in gpus.items() if "nvml_rc" in v} == {"index:1", "index:6"}


def test_nothing_supported_is_nothing_wrong(each_machine: Machine) -> None:
    each_machine.gpu(4, rc={"*": 3, "nvmlDeviceGetHandleByIndex_v2": 0})
    with each_machine.session() as session:
        first = {probe: session.collect(probe) for probe in PROBES}
        second = {probe: session.collect(probe) for probe in PROBES}
    for answers in (first, second):
        for probe in ("nvml", "ecc", "pcie", "nvlink", "inventory"):
            values = [v for d, v in answers[probe].items() if d.startswith(("index:4", "0000:9d"))]
            assert values == [{"index": 4}], probe
            assert len([d for d in answers[probe] if d]) == 8


def test_unsupported_calls_are_not_repeated(machine: Machine) -> None:
    """Once NOT_SUPPORTED, an answer that would come now is not asked for."""
    machine.gpu(0, rc={"nvmlDeviceGetPowerUsage": 3}, fields={"82": "!3"})
    with machine.session() as session:
        session.collect("nvml")
        machine.gpu(0, rc={}, fields={})
        gpu = session.collect("nvml")[BUS[0]]
        assert "power_w" not in gpu
        assert "mem_temp_c" not in gpu
        assert gpu["power_limit_w"] == 700.0


def test_mig_is_no_fault_and_its_end_reopens_the_questions(each_machine: Machine) -> None:
    each_machine.gpu(0, mig=1)
    with each_machine.session() as session:
        inventory = session.collect("inventory")[BUS[0]]
        gpu = session.collect("nvml")[BUS[0]]
        ecc = session.collect("ecc")[BUS[0]]
        nvlink = session.collect("nvlink")[BUS[0]]
        each_machine.gpu(0, mig=0)
        session.collect("inventory")
        after = session.collect("nvml")[BUS[0]]
    assert inventory["mig_mode"] is True
    assert "util_percent" not in gpu
    assert gpu["temp_c"] == 55
    assert "remap_pending" not in ecc
    assert "links" not in nvlink
    assert not [values for values in (gpu, ecc, nvlink) if "nvml_rc" in values]
    assert after["util_percent"] == 97


def test_driver_library_mismatch(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    each_machine.state["init_rc"] = 18
    each_machine.write()
    with each_machine.session() as session:
        assert session.collect("nvml") == {}
        node = session.collect("inventory")[""]
        rows = session.rows("inventory")
    assert (node["nvml_rc"], node["nvml_call"]) == (18, "nvmlInitWithFlags")
    assert node["nvml_library"] is True
    assert node["pci_gpu_count"] == 8
    assert "gpu_count" not in node
    assert node["driver_version"] == "580.95.05"  # of the loaded module
    assert not [row for row in rows if "in_nvml" in row]


def test_no_library(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    each_machine.state["library"] = False
    each_machine.write()
    with each_machine.session() as session:
        for probe in ("nvml", "ecc", "pcie", "nvlink"):
            assert session.collect(probe) == {}
        node = session.collect("inventory")[""]
    assert node["nvml_library"] is False
    assert node["nvml_rc"] == 12
    assert node["pci_gpu_count"] == 8


def test_no_gpus_is_no_error(each_machine: Machine) -> None:
    each_machine.state["gpus"] = []
    each_machine.write()
    with each_machine.session() as session:
        node = session.collect("inventory")[""]
    assert (node["gpu_count"], node["pci_gpu_count"]) == (0, 0)
    assert "nvml_rc" not in node


def test_old_driver_without_the_new_symbols(each_machine: Machine) -> None:
    each_machine.state["missing"] = [
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetGpuFabricInfoV",
    ]  # fmt: skip
    each_machine.gpu(0, reasons=0x20, temp=80)
    with each_machine.session() as session:
        gpu = session.collect("nvml")[BUS[0]]
        fabric = session.collect("fabric")[BUS[0]]
    assert gpu["reasons"] == 0x20
    assert gpu["mem_used_bytes"] == (70000 + 500) << 20
    assert gpu["thermal_margin_c"] == 7
    assert fabric["fabric_state"] == 3  # by the oldest call
    assert "nvml_rc" not in gpu
    assert "nvml_rc" not in fabric


def test_driver_without_field_values(each_machine: Machine) -> None:
    each_machine.state["missing"] = ["nvmlDeviceGetFieldValues"]
    link = {"7": {"up": 0, "crc": 9, "replays": 8, "recoveries": 7}}
    each_machine.gpu(0, ecc_agg_ue=3, remap=[0, 1, 1, 0], pcie_replays=5, link=link, links=12)
    with each_machine.session() as session:
        ecc = session.collect("ecc")[BUS[0]]
        pcie = session.collect("pcie")[BUS[0]]
        nvlink = session.collect("nvlink")[BUS[0]]
    assert ecc["ecc_uncorrected_aggregate"] == 3
    assert (ecc["remap_uncorrectable"], ecc["remap_pending"]) == (1, True)
    assert pcie["replays"] == 5
    assert nvlink["links"] == 12
    assert (nvlink["link7_up"], nvlink["link7_crc"], nvlink["link7_replays"]) == (False, 9, 8)
    assert "nvml_rc" not in nvlink


def test_links_and_their_errors(machine: Machine) -> None:
    down = {"up": 0, "crc": 41, "replays": 2, "recoveries": 3}
    machine.gpu(6, link={"7": down, "8": {"mbps": 13281}})
    with machine.session() as session:
        links = session.collect("nvlink")[BUS[6]]
    assert [n for n in range(18) if not links[f"link{n}_up"]] == [7]
    assert (links["link7_crc"], links["link7_replays"], links["link7_recoveries"]) == (41, 2, 3)
    assert "link7_mbps" not in links
    assert (links["link8_mbps"], links["link9_mbps"]) == (13281, 26562)


def test_a_link_that_comes_up_is_asked_again(machine: Machine) -> None:
    silent = {"161.7": "!3", "162.7": "!3", "163.7": "!3"}
    machine.state["missing"] = ["nvmlDeviceGetNvLinkErrorCounter"]
    machine.gpu(6, link={"7": {"up": 0}}, fields=silent)
    with machine.session() as session:
        assert "link7_replays" not in session.collect("nvlink")[BUS[6]]
        machine.gpu(6, link={"7": {"replays": 12}}, fields={})
        assert session.collect("nvlink")[BUS[6]]["link7_replays"] == 12


def test_nvlink5_counts_under_their_own_names(machine: Machine) -> None:
    unsupported = {str(number): "!3" for number in (161, 162, 163)}
    machine.gpu(0, fields={**unsupported, "215.4": 6, "214.4": 1, "221.4": 900})
    with machine.session() as session:
        links = session.collect("nvlink")[BUS[0]]
    assert links["link4_recoveries"] == 6
    assert links["link4_recoveries_failed"] == 1
    assert links["link4_symbol_errors"] == 900
    assert "nvml_rc" not in links


def test_pcie_cards_without_bridges_have_links_that_are_down(machine: Machine) -> None:
    machine.gpu(0, links=12, link={str(n): {"up": 0} for n in range(12)}, fabric=None)
    machine.gpu(1, links=0, fabric=None)
    with machine.session() as session:
        found = session.collect("nvlink")
    assert found[BUS[0]]["links"] == 12
    assert not any(found[BUS[0]][f"link{n}_up"] for n in range(12))
    assert found[BUS[1]] == {"index": 1, "links": 0}


def test_recovery_action_and_remapping(machine: Machine) -> None:
    machine.gpu(0, recovery=4, remap=[2, 9, 0, 1], ecc_vol_ue=1)
    with machine.session() as session:
        ecc = session.collect("ecc")[BUS[0]]
    assert ecc["recovery_action"] == 4
    assert (ecc["remap_uncorrectable"], ecc["remap_failure"]) == (9, True)
    assert ecc["ecc_uncorrected_volatile"] == 1


def test_ecc_off_has_no_counts(machine: Machine) -> None:
    machine.gpu(0, ecc=0)
    with machine.session() as session:
        ecc = session.collect("ecc")[BUS[0]]
    assert ecc["ecc_mode"] is False
    assert not [name for name in ecc if name.startswith(("ecc_un", "ecc_corr"))]
    assert "nvml_rc" not in ecc


def test_hang_on_one_gpu_costs_that_gpu(each_machine: Machine) -> None:
    each_machine.gpu(3, hang={"*": 3600})
    with each_machine.session() as session:
        session.ask(op="background", probe="nvml")
        session.stick("0000:61:00.0", "nvmlDeviceGetUtilizationRates")
        gpus = session.collect("nvml")
        ecc = session.collect("ecc")
        each_machine.gpu(3, hang={})
    assert list(gpus) == list(ecc) == BUS[:3] + BUS[4:]


def test_a_card_that_stops_hanging_is_read_at_once(machine: Machine) -> None:
    """Even when the list of handles was renewed while it hung."""
    with machine.session() as session:
        session.collect("nvml")
        machine.gpu(3, hang={"*": 3600})
        session.ask(op="background", probe="nvml")
        session.stick("0000:61:00.0", "nvmlDeviceGetUtilizationRates")
        assert len(session.collect("inventory")) == 8  # seven GPUs and the node
        machine.gpu(3, hang={})
        session.ask(op="free")
        assert list(session.collect("nvml")) == BUS


def test_a_card_that_hangs_before_it_has_a_handle(machine: Machine) -> None:
    sysfs.build(machine.root)
    machine.gpu(3, hang={"nvmlDeviceGetHandleByIndex_v2": 3600})
    with machine.session() as session:
        session.ask(op="background", probe="nvml")
        session.stick("index:3", "nvmlDeviceGetHandleByIndex_v2")
        gpus = session.collect("nvml")
        rows = session.rows("inventory")
    assert list(gpus) == BUS[:3] + BUS[4:]
    assert all(row["in_nvml"] for row in rows)


def test_hung_driver_is_no_answer_at_all(machine: Machine) -> None:
    machine.state["hang"] = {"nvmlInitWithFlags": 3600}
    machine.write()
    sysfs.build(machine.root)
    with machine.session() as session:
        session.ask(op="background", probe="nvml")
        session.stick("", "nvmlInitWithFlags")
        assert "stuck" in session.ask(op="collect", probe="nvml")
        node = session.collect("inventory")[""]
    assert node["pci_gpu_count"] == 8
    assert "gpu_count" not in node


def test_counting_the_bus(machine: Machine) -> None:
    """An NVSwitch is no GPU, a passed-through card is nobody's fault, a dead one reads ff."""
    sysfs.build(machine.root)
    sysfs.lose_gpu(machine.root, BUS[4])
    (machine.root / "sys/bus/pci/drivers/vfio-pci").mkdir()
    link = machine.root / "sys/bus/pci/devices" / BUS[7] / "driver"
    link.unlink()
    link.symlink_to("../../../bus/pci/drivers/vfio-pci")
    del machine.state["gpus"][7], machine.state["gpus"][4]
    machine.write()
    with machine.session() as session:
        node = session.collect("inventory")[""]
        rows = {row["pci"]: row for row in session.rows("inventory")}
    assert (node["gpu_count"], node["pci_gpu_count"]) == (6, 7)
    assert sorted(rows) == BUS
    assert rows[BUS[4]] == {
        "pci": BUS[4], "device_id": "2330", "in_nvml": False, "config_ok": False,
        "driver": "nvidia", "slot": "SXM5",
    }  # fmt: skip
    assert rows[BUS[0]]["config_ok"] is True
    assert rows[BUS[7]]["driver"] == "vfio-pci"
