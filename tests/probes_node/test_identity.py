"""What a GPU and its node are: modes, firmware, limits, slots; and what may hide GPUs."""

from __future__ import annotations

import os
from typing import Any

import pytest

from console.demo import sysfs
from tests.probes_node.rig import Machine

BUS = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]


def inventory(machine: Machine) -> dict[str, dict[str, Any]]:
    with machine.session() as session:
        return session.collect("inventory")


def test_a_healthy_h100(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    found = inventory(each_machine)
    gpu = found[BUS[2]]
    wanted = {
        "virtualization_mode": "none", "compute_mode": "default", "addressing_mode": "hmm",
        "gsp_version": "580.95.05", "gsp_mode": True, "inforom_image": "G520.0200.00.05",
        "inforom_oem": "2.1", "inforom_ecc": "7.16", "board_part": "692-2G520-0200-000",
        "power_default_w": 700.0, "power_min_w": 200.0, "power_max_w": 700.0,
        "temp_max_c": 87, "temp_slowdown_c": 89, "temp_shutdown_c": 92, "mem_temp_max_c": 95,
        "tlimit_slowdown_c": -2, "tlimit_shutdown_c": -5, "tlimit_max_c": 0, "tlimit_mem_c": 0,
        "sm_clock_app_mhz": 1980, "sm_clock_app_default_mhz": 1980, "mig_mode": False,
        "mig_pending": False, "slot": "SXM3",
    }  # fmt: skip
    assert {name: gpu.get(name) for name in wanted} == wanted
    assert not {"inforom_power", "numa_node", "host_vgpu_mode", "mig_instances", "nvml_rc"} & set(
        gpu
    )
    node = found[""]
    assert (node["cc_mode"], node["driver_loaded"], node["device_files"]) == ("off", True, True)
    assert not {"cc_ready", "confined", "excluded_gpus"} & set(node)


def test_modes_by_name(each_machine: Machine) -> None:
    each_machine.gpu(0, virtualization=2, compute_mode=2, addressing=2, numa_node=4, mig=1,
                     mig_devices=3, mig_pending=0)  # fmt: skip
    each_machine.gpu(1, virtualization=3, host_vgpu=1, compute_mode=9, numa_node=-1)
    each_machine.state["cc"] = {"on": 1, "ready": 0}
    each_machine.write()
    found = inventory(each_machine)
    one, two, node = found[BUS[0]], found[BUS[1]], found[""]
    assert (one["virtualization_mode"], one["compute_mode"], one["addressing_mode"]) == (
        "vgpu", "prohibited", "ats",
    )  # fmt: skip
    assert (one["numa_node"], one["mig_mode"], one["mig_instances"], one["mig_pending"]) == (
        4, True, 3, False,
    )  # fmt: skip
    assert (two["virtualization_mode"], two["host_vgpu_mode"], two["compute_mode"]) == (
        "host_vgpu", "sriov", "9",
    )  # fmt: skip
    assert "numa_node" not in two
    assert (node["cc_mode"], node["cc_ready"]) == ("on", False)


def test_what_an_old_driver_lacks_is_missing(each_machine: Machine) -> None:
    lacks = [
        "nvmlDeviceGetGspFirmwareVersion", "nvmlDeviceGetGspFirmwareMode",
        "nvmlDeviceGetAddressingMode", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetMigMode",
        "nvmlSystemGetConfComputeState", "nvmlGetExcludedDeviceCount",
        "nvmlDeviceGetBoardPartNumber", "nvmlDeviceGetHostVgpuMode",
    ]  # fmt: skip
    each_machine.state["missing"] = lacks
    each_machine.gpu(0, inforom=None, temp_max=None, power_span_w=None)
    found = inventory(each_machine)
    gone = {"gsp_version", "gsp_mode", "addressing_mode", "mig_mode", "board_part", "nvml_rc",
            "inforom_image", "temp_max_c", "tlimit_slowdown_c", "power_min_w"}  # fmt: skip
    assert not gone & set(found[BUS[0]])
    assert not {"cc_mode", "nvml_rc"} & set(found[""])
    assert found[BUS[0]]["name"] == "NVIDIA H100 80GB HBM3"


def test_excluded_gpus_are_named(machine: Machine) -> None:
    sysfs.build(machine.root)
    machine.state["excluded"] = [BUS[2]]
    del machine.state["gpus"][2]
    machine.write()
    assert inventory(machine)[""]["excluded_gpus"] == BUS[2]


@pytest.mark.parametrize(
    ("path", "content", "where"),
    [
        ("proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_4711/step_0\n", "job 4711"),
        ("proc/self/cgroup", "3:devices:/slurm/uid_7/job_12/step_batch\n", "job 12"),
        ("proc/self/cgroup", "0::/system.slice/node01_slurmstepd.scope/s1AbC\n", "a Slurm job"),
        ("proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-0\n",
         "a container"),
        (".dockerenv", "", "a container"),
        ("run/.containerenv", "", "a container"),
        ("proc/self/cgroup", "0::/user.slice/user-0.slice/session-3.scope\n", None),
    ],
)  # fmt: skip
def test_what_hides_gpus(machine: Machine, path: str, content: str, where: str | None) -> None:
    sysfs.write(machine.root, path, content)
    assert inventory(machine)[""].get("confined") == where


def test_bus_rows_say_which_driver_has_the_card(machine: Machine) -> None:
    sysfs.build(machine.root)
    devices = machine.root / "sys/bus/pci/devices"
    os.unlink(devices / BUS[1] / "driver")
    link = devices / BUS[2] / "driver"
    link.unlink()
    link.symlink_to("../../../bus/pci/drivers/nouveau")
    with machine.session() as session:
        rows = {row["pci"]: row for row in session.rows("inventory")}
    assert [rows[BUS[n]]["driver"] for n in range(3)] == ["nvidia", "", "nouveau"]
    assert rows[BUS[1]]["slot"] == "SXM2"


def test_a_node_whose_driver_is_not_loaded(machine: Machine) -> None:
    machine.state["init_rc"] = 9
    machine.write()
    node = inventory(machine)[""]
    assert (node["nvml_rc"], node["driver_loaded"], node["device_files"]) == (9, False, False)
