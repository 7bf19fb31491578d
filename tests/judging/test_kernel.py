"""Kernel lines other than Xids: what each kind means, and what is only history."""

from __future__ import annotations

import pytest

from probes.event import Finding, Severity
from probes.kernel_lines import parse
from tests.judging.build import IB, SLOTS, Built, by_rule, findings
from tests.judging.test_xid import lines

OFF = "NVRM: GPU 0000:43:00.0: GPU has fallen off the bus."
LOAD = (
    "NVRM: The NVIDIA GPU 0000:43:00.0",
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
UNSUPPORTED = (
    "NVRM: The NVIDIA GPU 0000:43:00.0 (PCI ID: 10de:1234)",
    "NVRM: installed in this system is not supported by the",
    "NVRM: NVIDIA 580.95.05 driver release.",
)


def told(*texts: str, ago_s: float = 60.0) -> dict[str, Finding]:
    node = Built()
    node.clock = 400_000.0
    node.put("host", "", uptime_s=400_000.0)
    node.kernel(*texts, ago_s=ago_s)
    return by_rule(findings(node))


@pytest.mark.parametrize(
    "texts", [(OFF,), LOAD, (r"\x0a".join(LOAD),)], ids=["plain", "three lines", "one record"]
)
def test_a_gpu_off_the_bus_without_an_xid(texts: tuple[str, ...]) -> None:
    found = told(*texts)["gpu.off_bus"]
    assert (found.severity, found.hard) == (Severity.CRITICAL, True)
    assert (found.device, found.label) == (SLOTS[1], "GPU1")


def test_a_card_that_the_driver_does_not_support_is_not_off_the_bus() -> None:
    assert told(*UNSUPPORTED) == {}
    assert told(UNSUPPORTED[0], UNSUPPORTED[1], OFF).keys() == {"gpu.off_bus"}
    assert parse(UNSUPPORTED[0]) is None


def test_an_xid_79_says_it_already() -> None:
    xid = "NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus."
    assert told(xid, OFF).keys() == {"xid.79"}


def test_a_flood_of_corrected_pcie_errors_warns_with_its_rate_and_single_ones_do_not() -> None:
    node = Built()
    node.change("infiniband", IB[0], pci="0000:c4:00.0")
    node.kernel(*lines("kernel-log-aer-corrected-flood"))
    found = {f.device: f for f in findings(node) if f.rule == "pcie.aer_corrected"}
    flood = found.pop("0000:41:00.0")
    assert (flood.severity, flood.count) == (Severity.WARN, 4)
    assert "5 a second" in flood.say
    assert "Physical Layer" in flood.say
    assert {f.severity for f in found.values()} == {Severity.INFO}
    assert found["0000:c4:00.0"].label.startswith(IB[0])
    assert set(found) == {"0000:c4:00.0", "0000:00:1c.0"}


@pytest.mark.parametrize("word", ["Uncorrected (Fatal)", "Uncorrected (Non-Fatal)"])
def test_an_uncorrected_pcie_error_is_critical(word: str) -> None:
    bus = f"nvidia 0000:43:00.0: PCIe Bus Error: severity={word}, type=Transaction Layer, (x)"
    found = told(bus)["pcie.aer_uncorrected"]
    assert (found.severity, found.hard) == (Severity.CRITICAL, True)
    assert found.label.startswith("GPU1")


@pytest.mark.parametrize(
    "texts",
    [
        ("EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0",),
        ("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 5: be00000000800400",),
        ("{1}[Hardware Error]: Hardware error from APEI",
         "{1}[Hardware Error]: event severity: fatal"),
    ],
)  # fmt: skip
def test_uncorrected_host_errors_are_critical(texts: tuple[str, ...]) -> None:
    found = told(*texts)
    assert found.keys() == {"host.hardware_error"}
    assert found["host.hardware_error"].severity is Severity.CRITICAL


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_DIMM#0", Severity.INFO),
        ("EDAC MC0: 40 CE memory read error on CPU_SrcID#0_DIMM#0", Severity.WARN),
        ("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: 8c00004000010090", Severity.INFO),
    ],
)
def test_corrected_host_errors_count(text: str, severity: Severity) -> None:
    found = told(text)
    assert found.keys() == {"host.corrected_errors"}
    assert found["host.corrected_errors"].severity is severity


def test_a_file_server_is_judged_by_its_last_word() -> None:
    found = told(*lines("host-lustre-nfs-hung"))
    assert found["storage.lustre"].severity is Severity.CRITICAL
    assert "scratch-OST0003" in found["storage.lustre"].say
    assert found["storage.nfs"].severity is Severity.INFO
    assert "192.0.2.40" in found["storage.nfs"].say
    assert found["host.hung_task"].severity is Severity.WARN
    assert "python3 (pid 3301) hung for 120 s" in found["host.hung_task"].say
    assert not any(rule.startswith(("gpu.", "driver.")) for rule in found)


def test_a_server_that_is_still_away_is_critical_and_a_restored_one_is_not() -> None:
    lost = "Lustre: s-OST0003-osc-ffff: Connection to s-OST0003 (at 192.0.2.51@tcp) was lost; x"
    back = "Lustre: s-OST0003-osc-ffff: Connection restored to 192.0.2.51@tcp"
    assert told("nfs: server a not responding, still trying")["storage.nfs"].severity is (
        Severity.CRITICAL
    )
    assert told(lost)["storage.lustre"].severity is Severity.CRITICAL
    assert told(lost, back)["storage.lustre"].severity is Severity.INFO
    assert told(back) == {}


@pytest.mark.parametrize(
    ("text", "rule", "severity", "said"),
    [
        ("watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:3301]", "host.lockup",
         Severity.WARN, "CPU 12 was stuck for 22 s in python3"),
        ("Out of memory: Killed process 4711 (python3) total-vm:8kB", "host.oom", Severity.INFO,
         "python3 (pid 4711)"),
        ("Memory cgroup out of memory: Killed process 4711 (python3) total-vm:8kB", "host.oom",
         Severity.INFO, "python3 (pid 4711)"),
        ("nvme nvme0: I/O 23 QID 4 timeout, aborting", "storage.nvme", Severity.WARN, "nvme0"),
        ("I/O error, dev nvme1n1, sector 2048 op 0x0:(READ)", "storage.nvme", Severity.WARN,
         "nvme1n1"),
        ("EXT4-fs error (device sda2): ext4_find_entry:1455: inode #2", "storage.filesystem",
         Severity.WARN, "sda2"),
        ("EXT4-fs (sda2): Remounting filesystem read-only", "storage.filesystem",
         Severity.CRITICAL, "sda2"),
        ("XFS (nvme0n1p1): Filesystem has been shut down due to log error", "storage.filesystem",
         Severity.CRITICAL, "nvme0n1p1"),
    ],
)  # fmt: skip
def test_what_the_host_says(text: str, rule: str, severity: Severity, said: str) -> None:
    found = told(text)
    assert found.keys() == {rule}
    assert found[rule].severity is severity
    assert said in found[rule].say


MISMATCH = (
    r"NVRM: API mismatch: the client has the version 580.95.05, but\x0aNVRM: this kernel module "
    "has the version 580.82.07.  Please"
)


def test_a_driver_mismatch_is_the_nodes_only_where_nvml_fails_too() -> None:
    node = Built()
    node.kernel(MISMATCH)
    works = by_rule(findings(node))["driver.mismatch"]
    assert works.severity is Severity.WARN
    assert "580.95.05" in works.say
    assert "580.82.07" in works.say
    node.inventory((), nvml_rc=18, nvml_call="nvmlInit")
    node.drop("inventory", "", "gpu_count")
    assert by_rule(findings(node))["driver.mismatch"].severity is Severity.CRITICAL


@pytest.mark.parametrize(
    "text",
    [
        OFF, "EDAC MC1: 1 UE memory read error", "nfs: server a not responding, still trying",
        "nvidia 0000:43:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link, x",
        "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN", MISMATCH,
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    ],
)  # fmt: skip
def test_a_line_of_two_days_ago_is_history(text: str) -> None:
    fresh, past = told(text), told(text, ago_s=200_000.0)
    assert fresh.keys() == past.keys()
    for rule in fresh:
        assert fresh[rule].severity in (Severity.WARN, Severity.CRITICAL)
        assert (past[rule].severity, past[rule].hard) == (Severity.INFO, False)
        assert "days ago" in past[rule].say


@pytest.mark.parametrize(
    "text",
    [
        "nvme nvme0: Shutdown timeout set to 10 seconds", "mce: CPU supports 20 MCE banks",
        "EDAC MC0: Giving out device to module skx_edac: DEV 0000:3a:0a.0 (INTERRUPT)",
        "EXT4-fs (sda2): re-mounted. Opts: errors=remount-ro", "Lustre: Mounted scratch-client",
        "XFS (sda1): Ending clean mount", "EDAC ie31200: No ECC support",
        "[Tue Mar 99 04:05:06 2026] nothing", "2026-13-45T99:05:06+00:00 h kernel: nothing",
    ],
)  # fmt: skip
def test_what_every_boot_says_is_no_event(text: str) -> None:
    assert parse(text) is None


def test_lines_that_come_after_a_look_are_seen_at_the_next() -> None:
    """What a look made of the lines is kept only as long as they are the same."""
    node = Built()
    node.kernel("mlx5_core 0000:18:00.0: Port module event: module 0, Cable plugged")
    assert "xid.79" not in by_rule(findings(node))
    node.kernel("NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.", ago_s=1.0)
    assert "xid.79" in by_rule(findings(node))
    node.facts.kernel.clear()
    assert "xid.79" not in by_rule(findings(node))
