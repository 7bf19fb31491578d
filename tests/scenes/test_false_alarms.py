"""Healthy nodes of every kind: nothing above info, whatever they lack by design.

A false alarm costs the operator's trust, so each way of being healthy that we know is here once.
Every variant is asked for four intervals: a finding that needs two passes has had them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from probes.event import Severity
from probes.rules import Product, load_rules
from tests.scenes.rig import Scene

PRODUCTS = load_rules().products
INTERVALS = 4

IDLE: dict[str, Any] = {
    "util": 0, "mem_util": 0, "mem_used_mib": 4, "power_w": 71, "sm_mhz": 345, "reasons": 1,
    "pstate": 8, "temp": 31, "mem_temp": 38, "pcie": [1, 5, 16, 16],
}  # fmt: skip
"""An idle Hopper: low clocks with reason bit 0x1, PCIe trained down to generation 1."""

Change = Callable[[Scene], None]


def product(name: str) -> Change:
    """All GPUs of the node are of this product, busy, each reading as its catalogue entry says."""

    def change(scene: Scene) -> None:
        known = PRODUCTS[name]
        scene.gpus(**_shape(known))
        for address in [entry["pci"] for entry in scene.state["gpus"]]:
            scene.write(f"sys/bus/pci/devices/{address}/device", f"0x{known.pci_ids[0]}\n")

    return change


def _shape(known: Product) -> dict[str, Any]:
    links = 0 if known.nvlink_bridge else known.nvlink_links
    generation = known.pcie_gen or 5
    return {
        "name": known.nvml_names[0],
        "device_id": f"{known.pci_ids[0]}10de",
        "mem_total_mib": int(known.mem_gb * 1000),
        "mem_used_mib": 1000,
        "power_limit_w": known.tdp_w,
        "power_w": known.tdp_w * 0.8,
        "links": links,
        "link_mbps": known.nvlink_mbps or int(known.nvlink_gb_s * 1000),
        "pcie": [generation, generation, 16, 16],
        **({"fabric": None} if known.nvlink_gen < 4 else {}),
    }


def idle(scene: Scene) -> None:
    """Nobody works here."""
    scene.gpus(**IDLE)


def mixed_load(scene: Scene) -> None:
    """Four GPUs work, four wait."""
    for index in range(4):
        scene.gpu(index, **IDLE)


def power_capped(scene: Scene) -> None:
    """Full GEMM at the power limit: reason 0x4 is normal."""
    scene.gpus(reasons=0x4, power_w=699, sm_mhz=1650)


def inference(scene: Scene) -> None:
    """Memory full, little work."""
    scene.gpus(util=12, mem_used_mib=76000, power_w=180, sm_mhz=1980)


def mig(scene: Scene) -> None:
    """MIG: utilisation and remap counts are not supported on the parent device."""
    scene.gpus(mig=1, util=None, mem_util=None, remap=None)


def no_persistence(scene: Scene) -> None:
    """The driver is unloaded between clients."""
    scene.gpus(persistence=0)


def no_ecc(scene: Scene) -> None:
    """A card without ECC."""
    scene.gpus(ecc=None, ecc_vol_ue=None, ecc_vol_ce=None, ecc_agg_ue=None, ecc_agg_ce=None)


def old_scars(scene: Scene) -> None:
    """Errors of an earlier life: aggregate counts, remapped rows, replays, all standing still."""
    scene.gpus(ecc_agg_ue=3, ecc_agg_ce=4711, remap=[2, 1, 0, 0], pcie_replays=120)
    scene.gpu(2, link={"4": {"replays": 9, "recoveries": 1, "crc": 12}})


def day_night(scene: Scene) -> None:
    """GPUs of one node differ by a few per cent, as silicon and cooling do."""
    for index in range(8):
        scene.gpu(index, sm_mhz=1950 - 12 * index, temp=52 + 2 * index, power_w=610 + 5 * index)


def old_counters(scene: Scene) -> None:
    """Port counters that were full long before we looked."""
    for name, full in (("symbol_error", 65535), ("link_downed", 255), ("port_rcv_errors", 65535)):
        scene.counter("mlx5_1/1", name, full)


def no_port_counters(scene: Scene) -> None:
    """A virtual function without PMA."""
    for name in ("symbol_error", "link_downed", "port_rcv_data"):
        scene.write(f"sys/class/infiniband/mlx5_0/ports/1/counters/{name}", "N/A (no PMA)\n")


def congested(scene: Scene) -> None:
    """Congestion notifications are how RoCE and IB work."""
    for index in range(8):
        scene.counter(f"mlx5_{index}/1", "np_cnp_sent", 120_000)
        scene.counter(f"mlx5_{index}/1", "rp_cnp_handled", 90_000)


def talkative_kernel(scene: Scene) -> None:
    """Lines that name a GPU or an error and mean nothing."""
    scene.kernel(
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 234",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05",
        "nvidia 0000:1b:00.0: enabling device (0140 -> 0142)",
        "EDAC MC: Ver: 3.0.0",
        "mlx5_core 0000:18:00.0: Port module event: module 0, Cable plugged",
        "mce: CPU0: Thermal monitoring enabled (TM1)",
        "nvme nvme0: 128/0/0 default/read/poll queues",
        "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode",
        "pcieport 0000:15:01.0: AER: enabled with IRQ 34",
        priority=6,
    )


def old_driver(scene: Scene) -> None:
    """A driver of 2021 lacks half of today's calls."""
    scene.state["driver"] = "470.256.02"
    scene.state["missing"] = [
        "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo", "nvmlGpmQueryDeviceSupport",
        "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetTemperatureV", "nvmlDeviceGetSramEccErrorStatus",
    ]  # fmt: skip
    scene.save()


def numbers_not_supported(scene: Scene) -> None:
    """A vGPU guest is told little."""
    scene.gpus(
        temp=None, power_w=None, power_limit_w=None, mem_temp=None, remap=None, links=0,
        fabric=None, recovery=None, pcie_replays=None,
    )  # fmt: skip


def no_rdma(scene: Scene) -> None:
    """A node with Ethernet only."""
    shutil.rmtree(scene.root / "sys/class/infiniband")


def storage_and_management_down(scene: Scene) -> None:
    """The port with the default route is Ethernet of another speed."""
    scene.write("sys/class/infiniband/mlx5_8/ports/1/rate", "10 Gb/sec (1X QDR)\n")


def locked_kernel_log(scene: Scene) -> None:
    """No right to read the kernel log: absent with a hint."""
    (scene.root / "dev/kmsg").unlink()


def unified_memory(scene: Scene) -> None:
    """Grace parts: one memory for CPU and GPU, so a share of it means nothing."""
    product("GB200-NVL72")(scene)
    scene.gpus(mem_used_mib=None, mem_total_mib=None)


VARIANTS: dict[str, Change | tuple[Change, dict[str, Any]]] = {
    **{f"all {name}": product(name) for name in PRODUCTS},
    "idle": idle,
    "half idle": mixed_load,
    "power capped": power_capped,
    "inference": inference,
    "MIG": mig,
    "no persistence": no_persistence,
    "no ECC": no_ecc,
    "old scars": old_scars,
    "differences of silicon": day_night,
    "full counters": old_counters,
    "N/A counters": no_port_counters,
    "congestion": congested,
    "talkative kernel": talkative_kernel,
    "old driver": old_driver,
    "vGPU guest": numbers_not_supported,
    "no RDMA": no_rdma,
    "slow management": storage_and_management_down,
    "kernel log locked": locked_kernel_log,
    "unified memory": unified_memory,
    "four GPUs by design": (idle, {"gpus": 4, "hcas": 4}),
    "one GPU": (idle, {"gpus": 1, "hcas": 1}),
    "alone in its role": (idle, {"peers": 0}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_above_info(name: str, scenes: Callable[..., Scene]) -> None:
    variant = VARIANTS[name]
    change, settings = variant if isinstance(variant, tuple) else (variant, {})
    scene = scenes(**settings)
    change(scene)
    scene.interval(INTERVALS)
    told = [
        f"{f.severity} {f.rule} {f.label}: {f.say}"
        for f in scene.findings()
        if f.severity.rank > Severity.INFO.rank
    ]
    assert told == []


def test_there_are_enough_of_them() -> None:
    assert len(VARIANTS) >= 30
