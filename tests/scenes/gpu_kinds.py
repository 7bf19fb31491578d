"""Kinds of healthy GPU nodes that differ from a busy HGX board: traps for every rule."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from console.demo import sysfs
from tests.scenes.rig import BEGAN_S, Scene

IDLE: dict[str, Any] = {
    "util": 0, "mem_util": 0, "mem_used_mib": 4, "power_w": 71, "sm_mhz": 345, "temp": 31,
    "mem_temp": 40, "reasons": 0x1, "pstate": 0,
}  # fmt: skip

OLD_SYMBOLS = [
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo",
    "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet",
    "nvmlDeviceGetGspFirmwareVersion", "nvmlDeviceGetGspFirmwareMode",
    "nvmlDeviceGetAddressingMode", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetTemperatureV",
    "nvmlSystemGetConfComputeState", "nvmlSystemGetConfComputeGpusReadyState",
    "nvmlGetExcludedDeviceCount", "nvmlGetExcludedDeviceInfoByIndex", "nvmlDeviceGetFanSpeedRPM",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetHostVgpuMode",
    "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetBoardPartNumber",
]  # fmt: skip
"""What a driver of 2020 (450) does not export, as far as we ask for it."""

NEW_FIELDS = (*range(142, 146), *range(160, 308))
"""Field ids that a driver of 2019 does not know."""


def idle(scene: Scene) -> None:
    """Nobody has logged in, no process anywhere."""
    scene.gpus(**IDLE)


def mig(scene: Scene) -> None:
    """MIG is on everywhere: the parent knows neither utilisation nor remapped rows."""
    scene.gpus(mig=1, mig_devices=7, procs=[])


def vgpu_guest(scene: Scene) -> None:
    """A virtual GPU: no serial, no thresholds, no NVLink, memory of its own size."""
    scene.state["gpus"] = scene.state["gpus"][:1]
    for bus in sysfs.GPU_BUSES[1:]:
        sysfs.remove_gpu(scene.root, f"0000:{bus}:00.0")
    scene.gpus(
        name="NVIDIA H100-80C", virtualization=2, temp=None, temp_max=None, mem_temp=None,
        power_w=None, power_limit_w=None, power_span_w=None, links=None, fabric=None, ecc=None,
        remap=None, inforom=None, gsp=None, board_part=None, pcie=None, pcie_replays=None, gpm=None,
        recovery=None, mem_used_mib=30000, mem_total_mib=81920, persistence=1, addressing=None,
        pcie_kb=None, pcie_errors=False, procs=[], util=0,
    )  # fmt: skip


def confidential(scene: Scene) -> None:
    """Confidential computing: processes have no figures, and are not listed at all."""
    scene.state["cc"] = {"on": 1, "environment": 2, "ready": 1}
    scene.gpus(procs=[], util=0, mem_used_mib=60000, gpm=None)


def grace(scene: Scene) -> None:
    """GPU and CPU share the memory: NVML has no figure for it; the link is C2C."""
    scene.gpus(
        name="NVIDIA GB200", device_id="294110de", mem_total_mib=None, addressing=2, numa_node=8,
        pcie=None, pcie_replays=None, procs=[],
    )  # fmt: skip


def l40s(scene: Scene) -> None:
    """A PCIe card: fan-less in a server, no NVLink, no remap history, power of its own."""
    scene.gpus(
        name="NVIDIA L40S", device_id="26b910de", subsystem_id="185110de", links=None, fabric=None,
        mem_total_mib=46068, mem_used_mib=30000, mem_temp=None, power_w=280, power_limit_w=350,
        power_span_w=[100, 350], sm_mhz=2400, sm_max_mhz=2520, mem_mhz=9001, mem_max_mhz=9001,
        pcie=[4, 4, 16, 16], ecc_sram=False, sram=None, reasons=0x4, temp=71, gpm=None,
        addressing=1,
    )  # fmt: skip


def fans(scene: Scene) -> None:
    """Cards with fans of their own, one of which rests because it is cool."""
    scene.gpus(fan=45, fan_rpm=2100)
    scene.gpu(2, fan=0, fan_rpm=0)


def v100(scene: Scene) -> None:
    """A card of 2017 on an old driver: few fields, application clocks as delivered."""
    scene.state.update(driver="450.80.02", nvml="11.450.80.02", cuda=11000, missing=OLD_SYMBOLS)
    scene.gpus(
        name="Tesla V100-SXM2-32GB", device_id="1db510de", subsystem_id="124910de", remap=None,
        mem_total_mib=32510, mem_used_mib=20000, mem_temp=60, power_w=250, power_limit_w=300,
        power_span_w=[150, 300], sm_mhz=1290, sm_max_mhz=1530, sm_app_mhz=1290,
        sm_app_default_mhz=1290, mem_mhz=877, mem_max_mhz=877, reasons=0x2, links=6,
        link_mbps=25781, fabric=None, recovery=None, pcie=[3, 3, 16, 16], mig=None, gpm=None,
        addressing=None, fields={str(number): "!2" for number in NEW_FIELDS}, retired=[0, 0, 0],
    )  # fmt: skip


def old_symbols(scene: Scene) -> None:
    """An H100 with a library that lacks what is new."""
    scene.state["missing"] = [name for name in OLD_SYMBOLS if "Fabric" not in name]
    scene.save()


def persistence_off(scene: Scene) -> None:
    """Advice, no alarm."""
    scene.gpus(persistence=0)


def no_rights(scene: Scene) -> None:
    """A user without rights: counters, processes of others and ECC details are refused."""
    refused = {
        "nvmlGpmSampleGet": 4, "nvmlDeviceGetSramEccErrorStatus": 4,
        "nvmlDeviceGetComputeRunningProcesses_v3": 4, "nvmlDeviceGetRowRemapperHistogram": 4,
    }  # fmt: skip
    scene.gpus(rc=refused)


def in_a_job(scene: Scene) -> None:
    """Adopted into a Slurm job that has two of the eight GPUs."""
    scene.write("proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_4711/step_0\n")
    scene.state["gpus"] = scene.state["gpus"][2:4]
    scene.save()


def host_of_guests(scene: Scene) -> None:
    """Two cards belong to guests."""
    for bus in sysfs.GPU_BUSES[6:]:
        link = scene.root / f"sys/bus/pci/devices/0000:{bus}:00.0/driver"
        link.unlink()
        link.symlink_to("../../../bus/pci/drivers/vfio-pci")
    scene.state["gpus"] = scene.state["gpus"][:6]
    scene.save()


def vgpu_host(scene: Scene) -> None:
    """Guests' memory has no process here."""
    scene.gpus(virtualization=3, host_vgpu=1, procs=[], util=0, mem_used_mib=70000)


KINDS: dict[str, Callable[[Scene], None]] = {
    kind.__name__: kind
    for kind in (
        idle, mig, vgpu_guest, confidential, grace, l40s, fans, v100, old_symbols, persistence_off,
        no_rights, in_a_job, host_of_guests, vgpu_host,
    )
}  # fmt: skip


def process(
    scene: Scene, pid: int, *command: str, age_s: float = 1000.0, state: str = "S", **env: str
) -> None:
    """A process in the scene's /proc that began `age_s` before the first interval."""
    sysfs.process(scene.root, pid, command, environment=env, state=state)
    began = int((BEGAN_S - age_s) * os.sysconf("SC_CLK_TCK"))
    fields = " ".join(["1"] * 18)
    name = command[0].rsplit("/", 1)[-1]
    scene.write(f"proc/{pid}/stat", f"{pid} ({name}) {state} {fields} {began} 0 0\n")


def end(scene: Scene, pid: int) -> None:
    """The process ends."""
    scene.remove(f"proc/{pid}")


def ahead(scene: Scene, seconds: float) -> None:
    """The node's own clock jumps; probes that remember when something began see it pass."""
    assert scene._session is not None
    scene._session.advance(seconds)
