"""Memory health in detail, links and fabric, down to ctypes, under each Python a node may have."""

from __future__ import annotations

import pytest

from console.demo import sysfs
from probes.node.nvlink_fields import error_rate
from tests.probes_node.rig import Machine

BUS = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]
OLD = ("29", "30", "31")
UUID = "00112233445566778899aabbccddeeff"


def test_memory_in_detail(each_machine: Machine) -> None:
    each_machine.gpu(
        0, ecc_vol_ue=5, ecc_agg_ce=9, ecc_sram={"vol_ue": 2, "agg_ce": 4}, ecc_pending=0,
        sram={"bThresholdExceeded": 1, "aggregateUncBucketSm": 3, "volatileUncParity": 2},
        banks=[630, 5, 3, 1, 1], fields={"9": 11, "18": 12, "17": 13, "303": 2, "307": 1},
    )  # fmt: skip
    with each_machine.session() as session:
        ecc = session.collect("ecc")[BUS[0]]
    assert (ecc["ecc_mode"], ecc["ecc_mode_pending"], ecc["ecc_mode_default"]) == (
        True, False, True,
    )  # fmt: skip
    assert ecc["ecc_uncorrected_volatile_dram"] == 3
    assert ecc["ecc_uncorrected_volatile_sram"] == 2
    assert (ecc["ecc_corrected_aggregate_dram"], ecc["ecc_corrected_aggregate_sram"]) == (5, 4)
    assert ecc["sram_threshold_exceeded"] is True
    assert (ecc["sram_aggregate_sm"], ecc["sram_parity_volatile"]) == (3, 2)
    banks = [ecc[f"remap_banks_{name}"] for name in ("max", "high", "partial", "low", "none")]
    assert banks == [630, 5, 3, 1, 1]
    assert ecc["ecc_corrected_volatile_l2"] == 11
    assert ecc["ecc_corrected_aggregate_l1"] == 12
    assert ecc["ecc_uncorrected_volatile_cbu"] == 13
    assert (ecc["bank_remaps"], ecc["bank_remap_pending"]) == (2, True)
    assert "retired_double" not in ecc
    assert "nvml_rc" not in ecc


def test_retired_pages(each_machine: Machine) -> None:
    each_machine.gpu(0, remap=None, retired=[3, 2, 1])
    each_machine.gpu(1, remap=None, retired=[3, 2, 1], fields=dict.fromkeys(OLD, "!3"))
    with each_machine.session() as session:
        ecc = session.collect("ecc")
    for device in BUS[:2]:
        values = ecc[device]
        assert (values["retired_single"], values["retired_double"]) == (3, 2)
        assert values["retired_pending"] is True
    assert "remap_banks_max" not in ecc[BUS[0]]


def test_nvlink5(each_machine: Machine) -> None:
    each_machine.gpu(
        0, nvlink5=True, link_mbps=53125,
        link={
            "4": {"recoveries": 6, "recoveries_ok": 5, "recoveries_failed": 1, "malformed": 7},
            "5": {"overruns": 8, "receive_errors": 9, "effective_ber": 5 << 8 | 9},
            "6": {"symbol_ber": 1 << 8 | 11, "fec": [5, 4, 3, 2, 1] + [0] * 11},
        },
    )  # fmt: skip
    with each_machine.session() as session:
        links = session.collect("nvlink")[BUS[0]]
        ends = session.ask(op="collect", probe="nvlink_ends")
    assert [links[f"link4_{n}"] for n in ("recoveries", "recoveries_ok", "recoveries_failed")] == [
        6, 5, 1,
    ]  # fmt: skip
    assert (links["link4_malformed"], links["link5_overruns"], links["link5_receive_errors"]) == (
        7, 8, 9,
    )  # fmt: skip
    assert links["effective_ber"] == pytest.approx(5e-9)
    assert links["effective_ber_link"] == 5
    assert links["symbol_ber"] == pytest.approx(1e-11)
    assert links["symbol_ber_link"] == 6
    assert "link4_crc" not in links
    assert len(links) <= 256
    assert ends["devices"][BUS[0]]["fec_worst_bin"] == 4
    row = next(r for r in ends["rows"] if r["gpu"] == BUS[0] and r["link"] == 5)
    assert row["effective_ber"] == pytest.approx(5e-9)


@pytest.mark.parametrize(("packed", "rate"), [
    (15 << 8 | 255, 0.0), (0, 0.0), (1 << 8 | 12, 1e-12), (9 << 8 | 6, 9e-6), (15 << 8, 15.0),
])  # fmt: skip
def test_bit_error_rates(packed: int, rate: float) -> None:
    assert error_rate(packed) == pytest.approx(rate)


def test_remote_ends(each_machine: Machine) -> None:
    link = {"3": {"up": 0}, "4": {"remote": [2, "0000:09:00.0"]}}
    each_machine.gpu(0, remote=[0, "0000:43:00.0"], link=link)
    each_machine.gpu(1, rc={"nvmlDeviceGetNvLinkRemotePciInfo_v2": 3})
    with each_machine.session() as session:
        answer = session.ask(op="collect", probe="nvlink_ends")
    rows = {(r["gpu"], r["link"]): r for r in answer["rows"]}
    assert rows[BUS[0], 0] == {
        "gpu": BUS[0], "link": 0, "up": True, "remote": "gpu", "remote_pci": "0000:43:00.0",
    }  # fmt: skip
    assert rows[BUS[0], 3] == {"gpu": BUS[0], "link": 3, "up": False}
    assert rows[BUS[0], 4]["remote"] == "switch"
    assert rows[BUS[1], 0] == {"gpu": BUS[1], "link": 0, "up": True, "remote": "switch"}
    assert (answer["devices"][BUS[0]]["to_gpus"], answer["devices"][BUS[0]]["to_switches"]) == (
        16, 1,
    )  # fmt: skip


def test_fabric_and_c2c(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    sysfs.lose_gpu(each_machine.root, "0000:09:00.0")
    c2c = {"links": 10, "mbps": 44712, "down": [3], "crc": 4, "replays": 5}
    each_machine.gpu(0, fabric=[3, 0, 0x1AA, 7, UUID, 1], c2c=c2c)
    each_machine.gpu(1, fabric=[2, 0])
    each_machine.gpu(2, fabric=None)
    with each_machine.session() as session:
        fabric = session.collect("fabric")
    assert fabric[BUS[0]] == {
        "index": 0, "fabric_state": 3, "fabric_status": 0, "fabric_clique": 7,
        "fabric_cluster": "00112233-4455-6677-8899-aabbccddeeff", "fabric_health": 0x1AA,
        "fabric_summary": 1, "c2c_links": 10, "c2c_up": 9, "c2c_down": "3", "c2c_mbps": 402_408,
        "c2c_mbps_min": 44712, "c2c_crc": 4, "c2c_replays": 5, "c2c_replays_b2b": 0,
        "c2c_low_power": 0,
    }  # fmt: skip
    assert set(fabric[BUS[1]]) == {"index", "fabric_state", "fabric_status", "fabric_waiting_s"}
    assert fabric[BUS[2]] == {"index": 2}
    assert fabric[""] == {"nvswitches": 4, "nvswitches_dead": "0000:09:00.0"}


@pytest.mark.parametrize("refused", [{"nvmlDeviceGetGpuFabricInfoV": 25}, {}])
def test_older_structures_of_the_registration(
    each_machine: Machine, refused: dict[str, int]
) -> None:
    """Without the versioned call, or with it refusing every version, the oldest call answers."""
    each_machine.state["missing"] = [] if refused else ["nvmlDeviceGetGpuFabricInfoV"]
    each_machine.gpu(0, fabric=[3, 0, 0x1AA, 7, UUID, 1], rc=refused)
    with each_machine.session() as session:
        values = session.collect("fabric")[BUS[0]]
    assert (values["fabric_state"], values["fabric_clique"]) == (3, 7)
    assert "fabric_health" not in values


def test_pcie_path_and_counters(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    each_machine.gpu(0, fields={"176": 3, "182": 4, "95": 5})
    each_machine.gpu(1, pcie_errors=False)
    sysfs.write(
        each_machine.root, f"sys/bus/pci/devices/{BUS[0]}/aer_dev_nonfatal",
        "Undefined 1\nUnsupReq 4\nTOTAL_ERR_NONFATAL 7\n",
    )  # fmt: skip
    with each_machine.session() as session:
        answer = session.ask(op="collect", probe="pcie")
    pcie = answer["devices"][BUS[0]]
    assert pcie["path"].split()[0] == pcie["slot"]
    assert len(pcie["path"].split()) == 3
    assert (pcie["bad_tlps"], pcie["lcrc_errors"], pcie["replay_rollovers"]) == (3, 4, 5)
    assert pcie["aer_nonfatal"] == 3
    assert (pcie["card_gen_max"], pcie["slot_gen_max"], pcie["sysfs_width"]) == (5, 5, 16)
    assert "bad_tlps" not in answer["devices"][BUS[1]]
    assert answer["devices"][BUS[1]]["tx_kb_per_s"] == 1200
    assert len(answer["rows"]) == 8


@pytest.mark.parametrize(("text", "generation"), [
    ("2.5 GT/s", 1), ("5 GT/s", 2), ("5.0 GT/s PCIe", 2), ("8 GT/s", 3), ("16.0 GT/s PCIe", 4),
    ("64.0 GT/s PCIe", 6),
])  # fmt: skip
def test_link_speed_of_old_and_new_kernels(machine: Machine, text: str, generation: int) -> None:
    sysfs.build(machine.root)
    sysfs.write(machine.root, f"sys/bus/pci/devices/{BUS[0]}/max_link_speed", f"{text}\n")
    with machine.session() as session:
        assert session.collect("pcie")[BUS[0]]["card_gen_max"] == generation


@pytest.mark.parametrize("text", ["Unknown", "", "99.9 GT/s PCIe", "x" * 5000, "-1"])
def test_link_files_may_hold_anything(machine: Machine, text: str) -> None:
    sysfs.build(machine.root)
    for name in ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width"):
        sysfs.write(machine.root, f"sys/bus/pci/devices/{BUS[0]}/{name}", f"{text}\n")
    with machine.session() as session:
        pcie = session.collect("pcie")[BUS[0]]
    assert not {"card_gen_max", "card_width_max", "sysfs_width"} & set(pcie)
    assert pcie["slot_width_max"] == 16


def test_a_lost_card_costs_itself_only(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    each_machine.gpu(2, rc={"*": 15})
    with each_machine.session() as session:
        for probe in ("ecc", "pcie", "nvlink", "nvlink_ends", "fabric"):
            devices = session.collect(probe)
            assert devices[BUS[2]]["nvml_rc"] == 15, probe
            assert [d for d, v in devices.items() if "nvml_rc" in v] == [BUS[2]], probe


def test_what_an_old_driver_calls_an_invalid_argument(each_machine: Machine) -> None:
    """It does not know the question: absent, and no fault of the GPU."""
    calls = (
        "nvmlDeviceGetMemoryErrorCounter", "nvmlDeviceGetSramEccErrorStatus",
        "nvmlDeviceGetRowRemapperHistogram", "nvmlDeviceGetRetiredPages",
        "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo",
        "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    )  # fmt: skip
    each_machine.gpu(0, rc=dict.fromkeys(calls, 2), fields={"197": "!2", "170": "!2"})
    with each_machine.session() as session:
        for probe in ("ecc", "pcie", "nvlink", "nvlink_ends", "fabric"):
            values = session.collect(probe)[BUS[0]]
            assert "nvml_rc" not in values, (probe, values)
    assert values == {"index": 0}
