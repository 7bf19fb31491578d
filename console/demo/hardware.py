"""The GPU models a scenario may name, as the driver of a simulated node reports them.

Ids, power, clocks and link counts: `probes/data/hardware.yaml` gives the source of each; NVLink
rates are signalling rates as NVML reports them (26,562 MB/s a link on Hopper, 25,781 on Ampere).
"""

from __future__ import annotations

from msgspec import Struct

from console.demo.sysfs import GPU_BUSES

PORTS = tuple(f"mlx5_{index}/1" for index in range(8))
"""RDMA ports of an HGX node: one 400 Gb/s rail a GPU."""

GPU_PCI = tuple(f"0000:{bus}:00.0" for bus in GPU_BUSES)
"""PCI addresses of the eight GPUs."""


class Hardware(Struct, frozen=True, kw_only=True):
    """One GPU model and how many of it a node holds."""

    product: str
    device_id: str
    """PCI device and vendor as NVML packs them: "233010de"."""
    subsystem_id: str
    tdp_w: int
    idle_w: int
    sm_max_mhz: int
    sm_load_mhz: int
    """Where the clock settles under full load, next to the power limit."""
    sm_idle_mhz: int
    mem_mhz: int
    mem_mib: int
    links: int
    link_mbps: int
    pcie_gen: int
    throttle_c: int
    """Core temperature at which it begins to lower its clock."""
    gpus: int = 8
    ports: tuple[str, ...] = PORTS


HARDWARE = {
    "h100": Hardware(
        product="NVIDIA H100 80GB HBM3", device_id="233010de", subsystem_id="16c110de",
        tdp_w=700, idle_w=71, sm_max_mhz=1980, sm_load_mhz=1755, sm_idle_mhz=345, mem_mhz=2619,
        mem_mib=81559, links=18, link_mbps=26562, pcie_gen=5, throttle_c=87,
    ),
    "h200": Hardware(
        product="NVIDIA H200", device_id="233510de", subsystem_id="18be10de",
        tdp_w=700, idle_w=76, sm_max_mhz=1980, sm_load_mhz=1755, sm_idle_mhz=345, mem_mhz=3201,
        mem_mib=143771, links=18, link_mbps=26562, pcie_gen=5, throttle_c=87,
    ),
    "a100": Hardware(
        product="NVIDIA A100-SXM4-80GB", device_id="20b210de", subsystem_id="146310de",
        tdp_w=400, idle_w=58, sm_max_mhz=1410, sm_load_mhz=1365, sm_idle_mhz=210, mem_mhz=1593,
        mem_mib=81920, links=12, link_mbps=25781, pcie_gen=4, throttle_c=85,
    ),
}  # fmt: skip
