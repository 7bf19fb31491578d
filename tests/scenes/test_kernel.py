"""The kernel log of a living node: each fault shows within two intervals, nothing healthy does."""

from __future__ import annotations

import pytest

from probes.checks import (
    host_log,
    kernel,
    kernel_net,
    kernel_pcie,
    kernel_processes,
    kernel_storage,
    xid,
)
from probes.event import Severity
from tests.diagnose.test_kernel_log import HEALTHY
from tests.scenes.rig import Scene

BUS = "nvidia 0000:9d:00.0: PCIe Bus Error: severity="
FAULTS = {
    "xid.79": "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
    "gpu.off_bus": "NVRM: GPU 0000:43:00.0: GPU has fallen off the bus.",
    "sxid": "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    "driver.mismatch": "NVRM: API mismatch: the client has the version 580.95.05, but this kernel "
    "module has the version 580.82.07.",
    "nvlink.rx_detect": "NVRM: GPU3 knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update",
    "pcie.aer_uncorrected": f"{BUS}Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
    "pcie.iommu_fault": "DMAR: [DMA Write] Request device [41:00.0] fault addr 0xfd",
    "pcie.slot_down": "pcieport 0000:40:01.1: pciehp: Slot(3): Link Down",
    "pcie.inaccessible": "nvidia 0000:61:00.0: Unable to change power state from D3cold to D0, "
    "device inaccessible",
    "kernel_log.mlx5": "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
    "kernel_log.efa": "efa 0000:00:1d.0 rdmap0s29: Admin queue is closed",
    "kernel_log.nic": "ixgbe 0000:01:00.0 eno1: Detected Tx Unit Hang",
    "host.hardware_error": "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0",
    "host.hard_lockup": "watchdog: Watchdog detected hard LOCKUP on cpu 12",
    "host.panic": "Kernel panic - not syncing: Fatal machine check",
    "host.lockup": "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:3301]",
    "host.rcu_stall": "rcu: INFO: rcu_sched self-detected stall on CPU",
    "host.kernel_bug": "BUG: unable to handle page fault for address: ffffc90000000000",
    "host.hung_task": "INFO: task python3:3301 blocked for more than 120 seconds.",
    "host.oom": "Out of memory: Killed process 812 (slurmd) total-vm:8kB",
    "host.cpu_hot": "CPU1: Package temperature above threshold, cpu clock throttled",
    "storage.nfs": "nfs: server 192.0.2.40 not responding, still trying",
    "storage.lustre": "Lustre: s-OST0003-osc-f: Connection to s-OST0003 (at 192.0.2.51@tcp) was "
    "lost; in progress operations will wait",
    "storage.nvme": "nvme nvme0: I/O 23 QID 4 timeout, aborting",
    "storage.disk": "blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ)",
    "storage.filesystem": "EXT4-fs error (device sda2): ext4_find_entry:1455: inode #2",
}
INFORMATION = {"driver.modeset", "driver.peermem", "host.library_crash", "kernel_log.unreadable",
               "kernel_log.crash_dump"}  # fmt: skip
"""Rules that never rise above info."""
OTHERWISE = {"driver.init_failed", "pcie.aer_corrected", "host.corrected_errors", "xid"}
"""Shown below: they need several lines, or another reading beside the line."""
MODULES = (host_log, kernel, kernel_net, kernel_pcie, kernel_processes, kernel_storage, xid)
OURS = {rule.id for module in MODULES
        for rule in module.RULES}  # fmt: skip


def test_every_rule_about_the_log_is_in_a_scene() -> None:
    assert set(FAULTS) - {"xid.79"} == OURS - INFORMATION - OTHERWISE


@pytest.fixture
def quiet(scene: Scene) -> Scene:
    """One healthy interval behind it."""
    scene.interval()
    assert scene.rules() == set()
    return scene


def test_each_fault_is_found_within_two_intervals(quiet: Scene) -> None:
    switch = FAULTS["sxid"]
    quiet.kernel(switch, ago_s=400.0)  # before the burst of the GPU, so that it stands for itself
    quiet.kernel(*(text for text in FAULTS.values() if text != switch))
    quiet.kernel(*[f"{BUS}Corrected, type=Physical Layer, (Receiver ID)"] * 3)
    quiet.kernel("EDAC MC0: 40 CE memory read error on CPU_SrcID#0_DIMM#0", ago_s=9.0)
    quiet.interval(2)
    wanted = {*FAULTS, "pcie.aer_corrected", "host.corrected_errors"}
    assert quiet.rules() & {*OURS, "xid.79"} == wanted
    assert quiet.rule("driver.mismatch").severity is Severity.WARN  # NVML works here


def test_a_healthy_boot_and_what_came_back_show_nothing(quiet: Scene) -> None:
    texts = [line.partition("] ")[2] for line in HEALTHY.splitlines()]
    quiet.kernel(*texts, "nfs: server 192.0.2.40 not responding, still trying")
    quiet.kernel("nfs: server 192.0.2.40 OK", ago_s=0.5)
    quiet.kernel("CPU1: Core temperature above threshold, cpu clock throttled", ago_s=0.4)
    quiet.kernel("CPU1: Core temperature/speed normal", ago_s=0.3)
    quiet.interval(3)
    assert quiet.rules() == set()
    assert "and is back" in quiet.rule("storage.nfs").say


def test_a_log_that_may_not_be_read_is_said_to_be_so(scene: Scene) -> None:
    scene.remove("dev/kmsg")
    scene.interval(2)
    assert scene.rules() == set()
    assert scene.rule("kernel_log.unreadable").severity is Severity.INFO


def test_dumps_of_a_crashed_kernel_are_information(scene: Scene) -> None:
    scene.write("sys/fs/pstore/dmesg-efi-170000000001001", "")
    scene.write("sys/fs/pstore/console-ramoops-0", "")
    scene.interval(2)
    assert scene.rules() == set()
    assert scene.rule("kernel_log.crash_dump").value == 1
