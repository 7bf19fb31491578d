"""GPU products as their driver reports them in good health, as entries of a simulated node.

What differs between products is what false alarms are made of: links that need a bridge, links that
stay down by design, ECC that is off as delivered, counters that do not exist. Figures of a product
are those of hardware.yaml; what a driver of it supports is how we know such nodes.
"""

from __future__ import annotations

from typing import Any

from tests.scenes.rig import Scene

GPU_END, NPU_END, SWITCH_END = 0, 1, 2
HEALTHY_MASK = 0x1AA
"""Every field of the fabric's health mask that has a "no fault" says so."""
CLUSTER = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"

NO_FABRIC: dict[str, Any] = {"fabric": None}
BEFORE_HOPPER: dict[str, Any] = {"pcie_errors": False, "sram": None}
NO_NVLINK: dict[str, Any] = {"links": 0, **NO_FABRIC}


def down(*numbers: int) -> dict[str, Any]:
    """Entries of "link" for links that are not active."""
    return {str(number): {"up": 0} for number in numbers}


def pair(index: int) -> list[Any]:
    """The other card of a bridged pair: 0 and 1, 2 and 3."""
    from console.demo.sysfs import GPU_BUSES

    return [GPU_END, f"0000:{GPU_BUSES[index ^ 1]}:00.0"]


PRODUCTS: dict[str, dict[str, Any]] = {
    "V100-SXM2": {
        "name": "Tesla V100-SXM2-32GB", "device_id": "1db510de", "links": 6, "link_mbps": 25781,
        "pcie": [3, 3, 16, 16], "remap": None, "banks": None, "retired": [2, 1, 0],
        "ecc_sram": False, "recovery": None, "power_limit_w": 300, "power_w": 280,
        "mem_total_mib": 32510, "mem_used_mib": 30000, **BEFORE_HOPPER, **NO_FABRIC,
    },
    "A100-PCIE pair": {
        "name": "NVIDIA A100 80GB PCIe", "device_id": "20b510de", "links": 12, "link_mbps": 25781,
        "pcie": [4, 4, 16, 16], "power_limit_w": 300, "power_w": 280, **BEFORE_HOPPER, **NO_FABRIC,
    },
    "H100-PCIE without bridge": {
        "name": "NVIDIA H100 PCIe", "device_id": "233110de", "links": 12,
        "link": down(*range(12)), "power_limit_w": 350, "power_w": 330, **NO_FABRIC,
    },
    "H100-NVL": {
        "name": "NVIDIA H100 NVL", "device_id": "232110de", "links": 18,
        "link": down(*range(12, 18)), "power_limit_w": 400, "power_w": 380, **NO_FABRIC,
    },
    "H20": {
        "name": "NVIDIA H20", "device_id": "232910de", "power_limit_w": 500, "power_w": 400,
        "mem_total_mib": 97871,
    },
    "H800": {
        "name": "NVIDIA H800", "device_id": "232410de", "links": 8,
    },
    "L40S": {
        "name": "NVIDIA L40S", "device_id": "26b910de", "pcie": [4, 4, 16, 16],
        "mem_total_mib": 46068, "mem_used_mib": 40000, "power_limit_w": 350, "power_w": 300,
        "mem_temp": None, "recovery": None, **NO_NVLINK,
    },
    "RTX6000-Ada, ECC off": {
        "name": "NVIDIA RTX 6000 Ada Generation", "device_id": "26b110de", "ecc": 0,
        "ecc_default": 0, "pcie": [4, 4, 16, 16], "mem_total_mib": 49140, "mem_used_mib": 40000,
        "power_limit_w": 300, "power_w": 280, "mem_temp": None, "recovery": None, "remap": None,
        "banks": None, "sram": None, **NO_NVLINK,
    },
    "B200": {
        "name": "NVIDIA B200", "device_id": "290110de", "nvlink5": True, "link_mbps": 53125,
        "power_limit_w": 1000, "power_w": 900, "mem_total_mib": 183359,
        "fabric": [3, 0, HEALTHY_MASK, 0, CLUSTER, 1],
    },
    "GH200 by itself": {
        "name": "NVIDIA GH200 480GB", "device_id": "234210de", "link": down(*range(18)),
        "power_limit_w": 900, "power_w": 600, "mem_total_mib": 97871, "pcie": [1, 4, 1, 16],
        "c2c": {"links": 10, "mbps": 44712}, "fabric": [0, 0],
    },
    "GB200": {
        "name": "NVIDIA GB200", "device_id": "294110de", "nvlink5": True, "link_mbps": 53125,
        "power_limit_w": 1200, "power_w": 1000, "mem_total_mib": 189471,
        "pcie": [1, 5, 1, 16], "c2c": {"links": 10, "mbps": 44712},
        "fabric": [3, 0, HEALTHY_MASK, 32766, CLUSTER, 1],
    },
}  # fmt: skip


def become(scene: Scene, name: str) -> Scene:
    """Make every GPU of a scene one of PRODUCTS."""
    shape = PRODUCTS[name]
    scene.gpus(**shape)
    if name == "A100-PCIE pair":
        for index in range(len(scene.state["gpus"])):
            scene.gpu(index, remote=pair(index))
    for entry in scene.state["gpus"]:
        device = "0x" + str(shape["device_id"])[:4]
        scene.write(f"sys/bus/pci/devices/{entry['pci']}/device", f"{device}\n")
    return scene
