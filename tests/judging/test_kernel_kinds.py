"""Kernel lines that point at host, network, storage and PCIe: each kind, recovery, consequences."""

from __future__ import annotations

import pytest

from console.diagnose import kernel_records
from probes.checks import (
    host_log,
    kernel,
    kernel_events,
    kernel_net,
    kernel_pcie,
    kernel_processes,
    kernel_storage,
    xid,
)
from probes.event import Action, Finding, Row, Severity
from probes.kernel_lines import KernelEvent, parse
from probes.kernel_nvlink import meaning
from probes.node import kernel_log as node_log
from tests.judging.build import RULES, SLOTS, Built, by_rule, findings

MODULES = (host_log, kernel, kernel_net, kernel_pcie, kernel_processes, kernel_storage, xid)
WATCHED = [
    rule for module in MODULES
    for rule in module.RULES if rule.id != "kernel_log.crash_dump"
]  # fmt: skip
INFO, WARN, CRITICAL = Severity.INFO, Severity.WARN, Severity.CRITICAL


def told(*texts: str, ago_s: float = 60.0, step_s: float = 0.001) -> dict[str, Finding]:
    node = Built()
    node.clock = 400_000.0
    node.put("host", "", uptime_s=400_000.0)
    rows: list[Row] = [
        {"mono": node.clock - ago_s + number * step_s, "text": text}
        for number, text in enumerate(texts)
    ]
    node.put("kernel_log", "", source="kmsg", readable=True, rows=rows)
    return by_rule(findings(node))


KINDS = [
    ("watchdog: Watchdog detected hard LOCKUP on cpu 12", "host.hard_lockup", CRITICAL, "CPU 12"),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "host.hard_lockup", CRITICAL, "CPU 3"),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "host.rcu_stall", WARN, "RCU"),
    ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "host.rcu_stall", WARN, "RCU"),
    ("INFO: rcu_sched self-detected stall on CPU { 3}", "host.rcu_stall", WARN, "RCU"),
    ("Kernel panic - not syncing: Fatal machine check", "host.panic", CRITICAL, "Fatal machine"),
    ("BUG: unable to handle page fault for address: ffffc9000", "host.kernel_bug", WARN, "page"),
    ("kernel BUG at mm/slub.c:4021!", "host.kernel_bug", WARN, "mm/slub.c:4021"),
    ("Oops: general protection fault, 0000 [#1] SMP NOPTI", "host.kernel_bug", WARN, "Oops"),
    ("CPU12: Package temperature above threshold, cpu clock throttled (total events = 42)",
     "host.cpu_hot", WARN, "42 events"),
    ("python3[4711]: segfault at 0 ip 00007f00 sp 00007ffd error 4 in libnccl.so.2.21.5[7f00+1]",
     "host.library_crash", INFO, "libnccl.so.2.21.5"),
    ("DMAR: [DMA Write NO_PASID] Request device [43:00.0] fault addr 0xfd [fault reason 0x05] PTE",
     "pcie.iommu_fault", WARN, "GPU1"),
    ("nvidia 0000:43:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0014 address=0x0]",
     "pcie.iommu_fault", WARN, "GPU1"),
    ("AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:43:00.0 domain=0x0014 address=0x0]",
     "pcie.iommu_fault", WARN, "GPU1"),
    ("pcieport 0000:40:01.1: pciehp: Slot(3): Link Down", "pcie.slot_down", WARN, "slot 3"),
    ("nvidia 0000:43:00.0: Unable to change power state from D3cold to D0, device inaccessible",
     "pcie.inaccessible", CRITICAL, "GPU1"),
    ("mlx5_core 0000:ab:00.0: wait_func:1150:(pid 1): ACCESS_REG(0x805) timeout. Will cause a leak "
     "of a command resource", "kernel_log.mlx5", CRITICAL, "command timed out"),
    ("mlx5_core 0000:ab:00.0: poll_health:800:(pid 0): device's health compromised - reached miss "
     "count", "kernel_log.mlx5", CRITICAL, "health"),
    ("mlx5_core 0000:ab:00.0: temp_warn:190:(pid 0): High temperature on sensors with bit set 0x1",
     "kernel_log.mlx5", WARN, "adapter too hot"),
    ("mlx5_core 0000:ab:00.0 ens1np0: TX timeout detected", "kernel_log.mlx5", WARN, "hung"),
    ("efa 0000:00:1d.0 rdmap0s29: The device didn't send any completion for admin cmd GET(8)",
     "kernel_log.efa", CRITICAL, "rdmap0s29"),
    ("ixgbe 0000:01:00.0 eno1: Detected Tx Unit Hang", "kernel_log.nic", WARN, "eno1"),
    ("ice 0000:17:00.0 ens2f0: tx_timeout: VSI_num: 6, Q 12, NTC: 0x1", "kernel_log.nic", WARN,
     "ens2f0"),
    ("NETDEV WATCHDOG: eth0 (ice): transmit queue 12 timed out", "kernel_log.nic", WARN, "eth0"),
    ("ena 0000:00:05.0 eth0: Keep alive watchdog timeout.", "kernel_log.nic", WARN, "eth0"),
    ("nvme nvme0: Disabling device after reset failure: -19", "storage.nvme", CRITICAL, "gave"),
    ("nvme nvme0: I/O 23 QID 4 timeout, reset controller", "storage.nvme", WARN, "nvme0"),
    ("blk_update_request: critical medium error, dev sdb, sector 7", "storage.disk", WARN, "sdb"),
    ("md/raid1:md0: Disk failure on sda1, disabling device.", "storage.disk", WARN, "md0"),
    ("Aborting journal on device sda2-8.", "storage.filesystem", WARN, "sda2: "),
    ("Aborting journal on device dm-8.", "storage.filesystem", WARN, "dm-8: "),
    ("EXT4-fs (loop0): Remounting filesystem read-only", "storage.filesystem", WARN, "loop0: "),
    ("BTRFS: error (device sda2) in __btrfs_free_extent: errno=-5 IO failure; forced readonly",
     "storage.filesystem", CRITICAL, ""),
    ("LustreError: 167-0: s-MDT0000-mdc-ff: This client was evicted by s-MDT0000; in progress x",
     "storage.lustre", WARN, "evicted"),
    ("NVRM: GPU3 knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
     "nvlink.rx_detect", WARN, "GPU3"),
    ("nvidia-modeset: ERROR: GPU:0: Error while waiting for GPU progress: 0x0000c67d:0",
     "driver.modeset", INFO, "progress"),
    ("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further",
     "driver.peermem", INFO, "invalid context"),
    ("NVRM: rm_init_adapter failed, device minor number 3", "driver.init_failed", CRITICAL,
     "minor 3"),
    ("Memory failure: 0x1234: recovery action for dirty LRU page: Recovered",
     "host.hardware_error", CRITICAL, "uncorrected"),
    ("[Hardware Error]: Corrected error, no action required.", "host.corrected_errors", INFO, "1"),
    ("mce: [Hardware Error]: MC17_STATUS[Over|UE|MiscV|AddrV|-|PCC]: 0xbe00", "host.hardware_error",
     CRITICAL, "uncorrected"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rule", "severity", "said"), KINDS, ids=[k[0][:50] for k in KINDS]
)
def test_each_kind(text: str, rule: str, severity: Severity, said: str) -> None:
    if rule == "driver.init_failed":
        node = Built()
        node.inventory(SLOTS[:7])
        node.facts.latest.pop(("gpu", SLOTS[7]))
        node.kernel(text)
        found = by_rule(findings(node))
    else:
        found = told(text)
        assert found.keys() == {rule}
    assert found[rule].severity is severity
    assert said in found[rule].say
    past = told(text, ago_s=200_000.0) if rule != "driver.init_failed" else {}
    assert all(finding.severity is INFO and not finding.hard for finding in past.values())


LINES = [
    *(kind[0] for kind in KINDS),
    *(entry.example.replace("CODE", str(code)) for code, entry in RULES.xids.items()),
    *(entry.example.replace("CODE", str(code)) for code, entry in RULES.sxids.items()),
    *(rule.example for rule in WATCHED if rule.id != "kernel_log.unreadable"),
    "nvidia 0000:43:00.0:    [ 6] BadTLP", "pcieport 0000:40:01.1: AER: Multiple Corrected error "
    "message received from 0000:43:00.0", "nvidia 0000:41:00.0:   device [10de:2330] error "
    "status/mask=00000001/0000e000", "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)",
    "Out of memory: Killed process 1 (a)", "nfs: server a OK", "Lustre: x: Connection restored to",
    "__ratelimit: 57 callbacks suppressed", "CPU3: Core temperature/speed normal",
    "ixgbe 0000:01:00.0 eno1: NIC Link is Up 10 Gbps", "ib0: Lost carrier", "ib0: Gained carrier",
    "mlx5_core 0000:ab:00.0 ens5np0: Link up", "lockd: server a not responding, still trying",
    "NFS: nfs4_reclaim_open_state: Lock reclaim failed!",
]  # fmt: skip


@pytest.mark.parametrize("text", LINES)
def test_no_filter_holds_back_what_a_check_needs(text: str) -> None:
    """Neither that of the node nor those of a log on paper."""
    assert node_log.WANTED.search(text)
    if parse(text) is not None:
        assert kernel_records.may_matter(text)
        assert kernel_records.WANTED.search(text)


QUIET = [
    "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 3100): ACCESS_REG(0x805) op_mod(0x1) failed",
    "net_ratelimit: 42 callbacks suppressed", "NVRM: GPU at PCI:0000:43:00: GPU-aaaaaaaa-0000-4000"
    "-8000-000000000105", "pcieport 0000:00:1c.0: AER: enabled with IRQ 122",
    "CPU3: Core temperature/speed normal", "blk_update_request: I/O error, dev sr0, sector 0",
    "I/O error, dev loop0, sector 0", "ixgbe 0000:01:00.0 eno1: NIC Link is Up 10 Gbps",
    "DMAR: IOMMU enabled", "rcu: Hierarchical SRCU implementation.",
    "watchdog: Enabled 'softdog'", "traps: python3[1] general protection fault ip:7f in python3.11",
    "python3[1]: segfault at 0 ip 0 sp 0 error 4 in python3.11[55+1]",
]  # fmt: skip


@pytest.mark.parametrize("text", QUIET)
def test_what_means_nothing_says_nothing(text: str) -> None:
    assert {f.rule for f in told(text).values() if f.severity.rank > INFO.rank} <= {
        "host.kernel_bug" if text.startswith("traps") else ""
    }


# ------------------------------------------------------------------ recovery


def test_a_link_that_came_back_tells_how_long_and_is_not_forgotten() -> None:
    down, up = (
        f"mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link {word}" for word in ("DOWN", "ACTIVE")
    )
    found = told(down, up, step_s=7.0)["kernel_log.mlx5"]
    assert found.severity is WARN
    assert "for 7 s, it is up again" in found.say
    assert "up again" not in told(up, down, step_s=7.0)["kernel_log.mlx5"].say


def test_links_that_train_after_boot_are_no_flap() -> None:
    node = Built()
    node.kernel(
        "[   12.0] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
        "[   14.0] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
    )
    assert by_rule(findings(node))["kernel_log.mlx5"].severity is INFO
    node.kernel("[   16.0] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN")
    assert by_rule(findings(node))["kernel_log.mlx5"].severity is WARN


def test_a_server_that_comes_and_goes_is_not_well() -> None:
    away, back = "nfs: server a not responding, still trying", "nfs: server a OK"
    once = told(away, back, step_s=30.0, ago_s=600.0)["storage.nfs"]
    often = told(*[away, back] * 3, step_s=30.0, ago_s=600.0)["storage.nfs"]
    still = told(*[away, back] * 3, away, step_s=30.0, ago_s=600.0)["storage.nfs"]
    assert (once.severity, often.severity, still.severity) == (INFO, WARN, CRITICAL)
    assert "30 s and is back" in once.say
    assert "3 times" in often.say
    assert "away 3 times before" in still.say


def test_cpus_that_cooled_down_are_information() -> None:
    hot = "CPU{}: Core temperature above threshold, cpu clock throttled (total events = 9)"
    normal = "CPU{}: Core temperature/speed normal"
    one = told(hot.format(1), hot.format(2), normal.format(1), step_s=5.0)["host.cpu_hot"]
    both = told(hot.format(1), hot.format(2), normal.format(1), normal.format(2), step_s=5.0)
    assert one.severity is WARN
    assert "CPU 2 throttles" in one.say
    assert both["host.cpu_hot"].severity is INFO
    assert "normal again after 15 s" in both["host.cpu_hot"].say


# ------------------------------------------------------------------ killed processes

OOM = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,"
    "oom_memcg=/system.slice/slurmstepd.scope/job_77,task_memcg=/system.slice/slurmstepd.scope/"
    "job_77/step_0,task={comm},pid={pid},uid=1000",
    "Memory cgroup out of memory: Killed process {pid} ({comm}) total-vm:8000kB, "
    "anon-rss:2097152kB, file-rss:0kB",
)  # fmt: skip


def test_two_lines_of_one_kill_are_one_victim_with_cgroup_and_memory() -> None:
    found = told(*(line.format(comm="python3", pid=4711) for line in OOM))["host.oom"]
    assert (found.severity, found.count) == (INFO, 1)
    for part in ("job_77", "python3 (pid 4711)", "2.0 GiB"):
        assert part in found.say


def test_a_killed_daemon_is_the_nodes_business() -> None:
    found = told("Out of memory: Killed process 812 (slurmd) total-vm:8kB")["host.oom"]
    assert (found.severity, found.action) == (WARN, Action.RESTART_SERVICE)
    assert "slurmd" in found.next_step


# ------------------------------------------------------------------ PCIe


def test_lines_of_one_pcie_error_are_one_and_name_their_bits() -> None:
    found = told(
        "pcieport 0000:40:01.1: AER: Multiple Corrected error message received from 0000:43:00.0",
        "nvidia 0000:43:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver)",
        "nvidia 0000:43:00.0:   device [10de:2330] error status/mask=00000040/0000e000",
        "nvidia 0000:43:00.0:    [ 6] BadTLP",
        "nvidia 0000:43:00.0:    [ 7] BadDLLP                (First)",
    )["pcie.aer_corrected"]
    assert (found.severity, found.count) == (INFO, 1)
    assert "Data Link Layer, BadDLLP, BadTLP" in found.say


def test_a_notice_whose_detail_was_left_out_counts() -> None:
    notice = "pcieport 0000:40:01.1: AER: Uncorrectable (Fatal) error message received from {}"
    found = told(notice.format("0000:43:00.0"))["pcie.aer_uncorrected"]
    assert found.severity is CRITICAL
    assert found.label.startswith("GPU1")


def test_an_unsupported_request_is_an_answer() -> None:
    bus = (
        "nvidia 0000:43:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction, x"
    )
    lines = (bus, "nvidia 0000:43:00.0:    [20] UnsupReq               (First)")
    found = told(*lines)["pcie.aer_uncorrected"]
    assert (found.severity, found.hard) == (WARN, False)
    worse = told(bus, "nvidia 0000:43:00.0:    [14] CmpltTO                (First)")
    assert worse["pcie.aer_uncorrected"].severity is CRITICAL


# ------------------------------------------------------------------ boots, floods, codes


def test_lines_of_the_boot_before_are_history_whatever_their_stamps() -> None:
    node = Built()
    node.clock = 900.0
    rows: list[Row] = [{
        "mono": 812_000.5, "boot": -1, "src": "journal",
        "text": "NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.",
    }]  # fmt: skip
    node.put("kernel_log", "", source="kmsg", readable=True, rows=rows)
    found = by_rule(findings(node))["xid.79"]
    assert (found.severity, found.hard) == (INFO, False)
    assert "before the last boot" in found.say


def test_a_flood_does_not_push_out_an_xid() -> None:
    node = Built()
    node.kernel("NVRM: Xid (PCI:0000:43:00): 94, pid=1, name=x, Contained: SM. RST: No", ago_s=90)
    bus = "nvidia 0000:52:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver)"
    node.kernel(*[bus] * 1000)
    found = by_rule(findings(node))
    assert found["xid.94"].severity is WARN
    assert found["pcie.aer_corrected"].severity is WARN
    assert len(node.facts.kernel) <= 400


def test_crashed_kernels_that_left_a_dump_are_told() -> None:
    node = Built()
    node.put(
        "kernel_log", "", source="kmsg", readable=True, crash_dumps=2, crash_dump="dmesg-efi-1"
    )
    found = by_rule(findings(node))["kernel_log.crash_dump"]
    assert found.severity is INFO
    assert found.evidence == ("dmesg-efi-1",)


@pytest.mark.parametrize("code", sorted(RULES.xids))
def test_every_xid_of_the_catalogue_has_source_action_and_example(code: int) -> None:
    entry = RULES.xids[code]
    assert entry.source
    assert entry.next_step
    assert entry.cause
    event = parse(entry.example.replace("CODE", str(code)))
    assert event is not None
    assert (event.kind, event.code, event.pci) == ("xid", code, "0000:43:00")


@pytest.mark.parametrize("code", sorted(RULES.sxids))
def test_every_sxid_of_the_catalogue_has_source_action_and_example(code: int) -> None:
    entry = RULES.sxids[code]
    assert entry.source
    assert entry.next_step
    event = parse(entry.example.replace("CODE", str(code)))
    assert event is not None
    assert (event.kind, event.code, event.facts["switch"]) == ("sxid", code, 1)


def test_registers_of_a_74_are_read() -> None:
    assert meaning([0x10, 0, 0, 0, 0, 0, 0]) == ["ecc"]
    assert meaning([0, 0, 0b100, 0, 0, 0, 0]) == ["ecc"]
    assert meaning([1 << 21, 0, 0, 1 << 18, 0, 0, 0]) == ["marginal", "fabric_reset"]
    assert meaning([1, 0, 0, 0, 0, 0, 0]) == ["ignore"]
    assert meaning([1 << 31, 0, 0, 0, 0, 0, 0]) == ["unlisted"]
    line = "NVRM: Xid (PCI:0000:43:00): 74, pid=1, name=a, NVLink: fatal error detected on link "
    harmless = told(line + "3(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")["xid.74"]
    hard = told(line + "14(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")["xid.74"]
    assert (harmless.severity, hard.severity) == (INFO, CRITICAL)
    assert "link 14 (ECC or parity" in hard.say


def test_what_the_kernel_repeats_word_for_word_is_evidence_once() -> None:
    """The first line and the newest, each once."""
    events = [KernelEvent(kind="mlx5", text=text) for text in ("a", "b", "c", "c", "c", "c")]
    assert kernel_events.texts(events) == ("a", "c")
