"""Kernel logs on paper: field cases, every prefix, several readers, boots, clocks, hosts."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.diagnose import kernel_log
from console.diagnose.command import diagnose
from console.diagnose.text import open_input
from probes.event import Severity
from tests.diagnose.support import (
    about,
    case,
    demand,
    facts,
    findings,
    of_kind,
    only,
    rules,
    severity,
    ticket,
)

CASES = [*of_kind("kernel-log", "xid"), "host-lustre-nfs-hung"]
XID = "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
MONO, WALL = 9103.456789, 1772510706
"""2026-03-03T04:05:06Z."""

# ------------------------------------------------------------------ field cases


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_its_severity_and_drain_advice(name: str) -> None:
    found = case(name)
    assert found.verdict is severity(name)
    wanted = str(demand(name)["drain"])
    first = wanted.partition(" ")[0].rstrip(",:")
    assert found.drain.startswith(first), (found.drain, wanted)


def test_seven_readers_are_one_event_with_its_time_and_level() -> None:
    found = case("kernel-log-mixed-prefix-dedupe")
    told = facts(found)
    assert (told["events"], told["copies_by_other_readers"]) == (1, 6)
    (event,) = told["xids"]
    assert (event["xid"], event["pci"], event["pid"], event["name"]) == (
        79, "0000:43:00", None, None,
    )  # fmt: skip
    assert event["monotonic_s"] == MONO
    assert event["wall"] == "2026-03-03T04:05:06Z"
    assert event["priority"] == 3
    assert about(found, "xid.79").node == "gpu-a01.cluster-x.example"
    assert "04:05:06Z" in found.say


def test_corrected_errors_are_counted_by_event_with_bits_and_rate() -> None:
    found = case("kernel-log-aer-corrected-flood")
    wanted = demand("kernel-log-aer-corrected-flood")["facts"]["by_device"]
    told = facts(found)["pcie_errors"]
    for device, entry in wanted.items():
        for name, value in entry.items():
            assert told[device][name] == pytest.approx(value), (device, name)
    assert sum(entry["uncorrected"] for entry in told.values()) == 0


def test_a_hot_cable_and_a_flap_are_told_without_the_readers_noise() -> None:
    found = case("kernel-log-mlx5-access-reg-selfinflicted")
    told = facts(found)
    assert told["self_noise"] == {"0000:d2:00.0": 3}
    by_kind = {entry["kind"]: entry for entry in told["adapters"]}
    assert by_kind["insufficient_power"]["watt"] == 27
    assert (by_kind["link_flap"]["dev"], round(by_kind["link_flap"]["down_s"])) == ("mlx5_5", 7)
    assert by_kind["cable_unplugged"]["pci"] == "0000:9a:00.0"
    assert "ACCESS_REG" in found.say
    assert not [f for f in findings(found) if "d2:00" in f.device]


def test_a_clock_that_drifts_hides_nothing_and_doubles_nothing() -> None:
    found = case("kernel-log-time-drift")
    told = facts(found)
    assert told["events"] == 2
    assert told["clock_skew_s"] == 36007
    assert told["event_age_s"] == {"xid94": 47, "link_down": 49}
    assert rules(found) == {"xid.94", "kernel_log.mlx5"}
    assert "10 h behind" in found.say
    assert "47 s ago" in about(found, "xid.94").say


def test_one_program_on_four_nodes_travels() -> None:
    found = case("xid-app-errors-13-31-fatal-by-mistake")
    told = facts(found)
    assert len(told["hosts"]) == 4
    assert told["xid_counts"] == {"31": 4, "43": 4}
    assert (told["process"], told["same_process_everywhere"]) == ("sim_app", True)
    assert "travels with the job" in found.say
    assert {f.node for f in findings(found)} == set(told["hosts"])


def test_one_lost_gpu_explains_its_switches() -> None:
    found = case("xid-xid79-plus-sxid-storm")
    assert [f.rule for f in findings(found)] == ["xid.79"]
    told = facts(found)
    assert told["events_after_grouping"] == 1
    assert told["gpus"]["0000:91:00"]["uuid"].startswith("GPU-aaaaaaaa")
    fatal = next(entry for entry in told["sxids"] if entry["sxid"] == 20034)
    assert (fatal["switch"], fatal["pci"], fatal["links"]) == (1, "0000:06:00.0", [48, 49])
    assert "consequences" in found.say


def test_lines_that_only_look_like_xids_are_counted_apart() -> None:
    told = facts(case("xid-odd-names-and-forms"))
    wanted = demand("xid-odd-names-and-forms")["facts"]
    seen = [[e["xid"], e["pci"], e["pid"], e["name"]] for e in told["xids"]]
    assert seen == wanted["xids"]
    assert told["not_xids"] == wanted["not_xids"]


def test_contained_and_uncontained_are_two_gpus() -> None:
    told = facts(case("xid-xid94-contained-triple"))["gpus"]
    wanted = demand("xid-xid94-contained-triple")["facts"]
    for pci, entry in wanted.items():
        assert {name: told[pci].get(name) for name in entry} == entry


# ------------------------------------------------------------------ prefixes

FORMS = {
    "dmesg": f"[ {MONO}] {XID}",
    "caller": f"[ {MONO}][ T1946] {XID}",
    "delta": f"[ {MONO} <    0.000003>] {XID}",
    "ctime": f"[Tue Mar  3 04:05:06 2026] {XID}",
    "dmesg-iso": f"2026-03-03T04:05:06,456789+00:00 {XID}",
    "dmesg-iso-zone": f"2026-03-03T06:05:06,456789+02:00 {XID}",
    "decoded": f"kern  :err   : [ {MONO}] {XID}",
    "decoded-ctime": f"kern  :err   : [Tue Mar  3 04:05:06 2026] {XID}",
    "raw": f"<3>[ {MONO}] {XID}",
    "kmsg": f"3,1201,9103456789,-;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:43:00.0",
    "short": f"Mar 03 04:05:06 gpu-a01 kernel: {XID}",
    "short-precise": f"Mar 03 04:05:06.457012 gpu-a01 kernel: {XID}",
    "short-full": f"Tue 2026-03-03 04:05:06 UTC gpu-a01 kernel: {XID}",
    "short-iso": f"2026-03-03T04:05:06+0000 gpu-a01 kernel: {XID}",
    "short-unix": f"{WALL}.457012 gpu-a01 kernel: {XID}",
    "short-monotonic": f"[ {MONO}] gpu-a01 kernel: {XID}",
    "rfc3164-file": f"Mar  3 04:05:06 gpu-a01 kernel: [ {MONO}] {XID}",
    "rfc3164-wire": f"<3>Mar  3 04:05:06 gpu-a01 kernel: {XID}",
    "rfc5424": f"<3>1 2026-03-03T04:05:06.457012+00:00 gpu-a01 kernel - - - {XID}",
    "rsyslog-iso": f"2026-03-03T04:05:06.457012+00:00 gpu-a01 kernel: [ {MONO}] {XID}",
    "kubectl": f"2026-03-03T04:05:06.123456789Z [ {MONO}] {XID}",
    "kubectl-pod": f"[pod/npd-x7f2/npd] 2026-03-03T04:05:06.1Z [ {MONO}] {XID}",
    "cri": f"2026-03-03T04:05:06.123456789Z stdout F [ {MONO}] {XID}",
    "clush": f"gpu-a01: [ {MONO}] {XID}",
    "plain": XID,
    "crlf": f"[ {MONO}] {XID}\r",
    "colour": f"\x1b[32m[ {MONO}] \x1b[0m\x1b[33mNVRM: \x1b[0m{XID.removeprefix('NVRM: ')}",
    "journal-json": json.dumps({
        "__REALTIME_TIMESTAMP": f"{WALL}457012", "_SOURCE_MONOTONIC_TIMESTAMP": "9103456789",
        "_TRANSPORT": "kernel", "PRIORITY": "3", "_HOSTNAME": "gpu-a01", "MESSAGE": XID,
    }),
    "journal-bytes": json.dumps({
        "__REALTIME_TIMESTAMP": f"{WALL}457012", "_TRANSPORT": "kernel", "_HOSTNAME": "gpu-a01",
        "MESSAGE": list(XID.encode()),
    }),
    "journal-export": "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1772510706457012\n_HOSTNAME=gpu-a01\n"
    f"_TRANSPORT=kernel\nPRIORITY=3\nMESSAGE={XID}\n",
    "journal-verbose": "Tue 2026-03-03 04:05:06.457012 UTC [s=a;i=1]\n    _TRANSPORT=kernel\n"
    f"    _HOSTNAME=gpu-a01\n    MESSAGE={XID}",
    "dmesg-json": json.dumps({"dmesg": [{"pri": 3, "time": MONO, "msg": XID}]}, indent=3),
    "docker": json.dumps({"log": f"[ {MONO}] {XID}\n", "time": "2026-03-03T04:05:06.1Z"}),
}  # fmt: skip
NO_TIME = {"plain", "clush"}


@pytest.mark.parametrize("form", FORMS)
def test_every_readers_form_is_the_same_event(form: str) -> None:
    found = ticket(FORMS[form])
    (finding,) = findings(found)
    assert (finding.rule, finding.severity) == ("xid.79", Severity.CRITICAL)
    assert finding.device == "0000:43:00.0"
    (event,) = facts(found)["xids"]
    assert (event["pid"], event["name"]) == (None, None)
    if MONO_IN[form]:
        assert event["monotonic_s"] == MONO
    if "gpu-a01" in FORMS[form]:
        assert finding.node == "gpu-a01"
    if "wall" in event:
        assert event["wall"] == "2026-03-03T04:05:06Z"


MONO_IN = {
    form: str(MONO) in text or "9103456789" in text or "dmesg-json" in form
    for form, text in FORMS.items()
}  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_byte_order_marks_are_understood(encoding: str) -> None:
    assert rules(ticket(FORMS["dmesg"].encode(encoding))) == {"xid.79"}


def test_gzip_files_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "kern.log.2.gz"
    path.write_bytes(gzip.compress((FORMS["short"] + "\n").encode()))
    assert rules(diagnose([open_input(str(path))])) == {"xid.79"}


def test_a_log_of_a_future_month_is_last_years() -> None:
    """New Year: on 2 January a line of December is not eleven months ahead."""
    lines = [
        f"{month} 15 04:05:06 gpu-a01 kernel: NVRM: Xid (PCI:0000:43:00): 63, Row {month}"
        for month in ("Jan", "Jun", "Dec")
    ]
    found = ticket("\n".join(lines))
    tomorrow = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86400))
    events = facts(found)["xids"]
    assert len(events) == len(lines)
    for event in events:
        assert event["wall"] <= tomorrow
        assert time.gmtime().tm_year - int(event["wall"][:4]) <= 1
    assert any("no year" in note for note in only(found).unknown)


def test_what_a_program_quotes_is_no_event() -> None:
    quoted = f"Mar 03 04:05:06 gpu-a01 gpud[33]: found in the log: {XID}"
    assert (
        findings(ticket(FORMS["short"].replace(": 79", ": 31") + "\n" + quoted, "kernel-log"))[
            0
        ].rule
        == "xid.31"
    )
    assert rules(ticket(quoted, "kernel-log")) == set()


@pytest.mark.parametrize("day", ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
def test_verbose_records_begin_with_any_day(day: str) -> None:
    assert rules(ticket(FORMS["journal-verbose"].replace("Tue", day))) == {"xid.79"}


@pytest.mark.parametrize(
    "clock",
    ["2026-03-03T14:06:00+00:00", "2026-03-03 14:06:00 UTC", "Tue Mar  3 14:06:00 UTC 2026"],
)
def test_a_stated_clock_dates_the_events(clock: str) -> None:
    found = ticket(f"### date\n{clock}\n### journalctl\n{FORMS['short-iso']}")
    assert facts(found)["event_age_s"] == {"xid79": 10 * 3600 + 54}


# ------------------------------------------------------------------ several readers, boots, hosts


def test_a_program_and_syslog_that_both_have_a_flood_count_it_once() -> None:
    aer = "nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (x)"
    dmesg = [f"[{1000 + n / 4:.6f}] {aer}" for n in range(12)]
    wall = [f"2026-03-03T04:05:{n / 4:09.6f}+00:00 gpu-a01 kernel: {aer}" for n in range(12)]
    told = facts(ticket("\n".join(["### dmesg", *dmesg, "### journalctl", *wall])))
    assert told["pcie_errors"]["0000:41:00.0"]["corrected"] == 12
    assert told["copies_by_other_readers"] == 12


BOOTS = {
    "markers": f"""-- Boot 0123456789abcdef0123456789abcdef --
2026-03-01T04:05:06+0000 gpu7 kernel: {XID}
-- Boot 1123456789abcdef0123456789abcdef --
2026-03-03T04:05:06+0000 gpu7 kernel: mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE""",
    "linux version": f"""[    0.000000] Linux version 6.8.0
[ 9103.456789] {XID}
[    0.000000] Linux version 6.8.0
[   12.000000] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE""",
    "stamps": f"[812345.456789] {XID}\n"
    "[   35.2] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
    "command": f"admin@gpu7:~$ journalctl -k -b -1\nMar 03 04:05:06 gpu7 kernel: {XID}",
}  # fmt: skip


@pytest.mark.parametrize("how", BOOTS)
def test_what_came_before_the_last_boot_is_history(how: str) -> None:
    found = ticket(BOOTS[how])
    told = about(found, "xid.79")
    assert (told.severity, found.drain) == (Severity.INFO, "no")
    assert "before the last boot" in told.say
    assert any("history" in note for note in only(found).unknown)


def test_spare_rows_do_not_come_back_with_a_boot() -> None:
    lost = "NVRM: Xid (PCI:0000:43:00): 64, Row Remapper Error: (0x0) - All reserved rows for bank"
    found = ticket(BOOTS["linux version"].replace(XID, lost))
    assert about(found, "xid.64").severity is Severity.CRITICAL


def test_lines_of_several_hosts_stay_apart() -> None:
    found = ticket(
        f"gpu-a01: [ 9103.4] {XID}\n"
        "gpu-a02: [ 9103.5] NVRM: Xid (PCI:0000:43:00): 31, pid=1, name=a, Ch 00000008"
    )
    assert about(found, "xid.79").node == "gpu-a01"
    assert about(found, "xid.31").node == "gpu-a02"
    assert found.drain == "now: gpu-a01"


def test_folded_output_of_clush_names_its_hosts() -> None:
    rule = "-" * 15
    found = ticket(f"{rule}\ngpu[01-02]\n{rule}\n[ 9103.4] {XID}\n{rule}\ngpu03\n{rule}\n"
                   "[ 12.4] NVRM: Xid (PCI:0000:44:00): 48, x\n")  # fmt: skip
    assert {f.node: f.rule for f in findings(found)} == {"gpu[01-02]": "xid.79", "gpu03": "xid.48"}


def test_no_right_to_read_is_not_a_log_without_xids() -> None:
    found = ticket("$ dmesg\ndmesg: read kernel buffer failed: Operation not permitted\n")
    assert found.verdict is Severity.UNKNOWN
    assert "root" in found.say


HEALTHY = """[    0.000000] Linux version 6.8.0-45-generic (buildd@x) (gcc 13.2.0) #45 SMP
[    0.000000] Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda2 ro iommu=pt
[    1.204211] pcieport 0000:00:1c.0: AER: enabled with IRQ 122
[    1.304211] EDAC MC0: Giving out device to module skx_edac: DEV 0000:3a:0a.0 (INTERRUPT)
[    1.404211] mce: CPU0: Thermal monitoring enabled (TM1)
[    1.504211] DMAR: IOMMU enabled
[    1.604211] rcu: Hierarchical SRCU implementation.
[    2.000000] nvme nvme0: 112/0/0 default/read/poll queues
[    2.100000] nvme nvme0: Shutdown timeout set to 10 seconds
[    8.000000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05
[    8.100000] nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver
[    9.000000] mlx5_core 0000:ab:00.0: firmware version: 28.39.2048
[    9.100000] mlx5_core 0000:ab:00.0: PCIe slot advertised sufficient power (27W).
[    9.200000] mlx5_core 0000:ab:00.0: Port module event: module 0, Cable plugged
[    9.300000] mlx5_core 0000:ab:00.0 ens5np0: Link up
[   10.000000] ixgbe 0000:01:00.0 eno1: NIC Link is Up 10 Gbps, Flow Control: RX/TX
[   11.000000] EXT4-fs (sda2): mounted filesystem with ordered data mode
[   12.000000] XFS (nvme0n1p1): Ending clean mount
[   13.000000] Lustre: Mounted scratch-client
[   14.000000] watchdog: Enabled 'softdog'
[   15.000000] oom_reaper: started
"""


def test_a_healthy_boot_says_nothing_above_info() -> None:
    found = ticket(HEALTHY)
    assert rules(found) == set()
    assert found.verdict.rank <= Severity.INFO.rank
    assert only(found).kind == "kernel-log"
    assert "no fault" in found.say


@pytest.mark.parametrize("seed", range(5))
def test_binary_garbage_is_not_recognised(seed: int) -> None:
    raw = random.Random(seed).randbytes(20_000)
    found = ticket(raw)
    assert found.verdict is Severity.UNKNOWN
    assert findings(found) == []


@pytest.mark.parametrize(
    "text",
    [
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 8589934592\n#       size  count\n   8   2  float",
        "Fri Mar  3 04:05:06 2026\n+-----+\n| NVIDIA-SMI 580.95.05 |\n",
        "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\ngpu* up infinite 4 idle gpu[01-04]\n",
        "dear all, the server is slow today\n",
    ],
)
def test_other_formats_are_not_taken(text: str) -> None:
    assert kernel_log.sniff(text) < 20


# ------------------------------------------------------------------ recovered things


def test_servers_that_came_back_say_how_long_they_were_away() -> None:
    found = ticket(
        "[100.0] nfs: server 192.0.2.40 not responding, still trying\n"
        "[142.0] nfs: server 192.0.2.40 OK\n"
        "[200.0] Lustre: s-OST0003-osc-f: Connection to s-OST0003 (at 192.0.2.51@tcp) was lost; x\n"
        "[230.0] Lustre: s-OST0003-osc-ff: Connection restored to s-OST0003 (at 192.0.2.51@tcp)\n"
    )
    nfs, lustre = about(found, "storage.nfs"), about(found, "storage.lustre")
    assert (nfs.severity, lustre.severity) == (Severity.INFO, Severity.INFO)
    assert "42 s and is back" in nfs.say
    assert "30 s and is back" in lustre.say


def test_a_server_that_all_hosts_lost_is_the_servers_trouble() -> None:
    text = "\n".join(
        f"gpu{n}: [100.0] nfs: server 192.0.2.40 not responding, still trying" for n in range(3)
    )
    found = ticket(text)
    assert found.verdict is Severity.CRITICAL
    assert found.drain == "no"
    assert "192.0.2.40 was away from 3 hosts: look at the server" in found.say


def test_what_is_only_counted_is_counted_in_full() -> None:
    down, up = (
        f"mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link {word}" for word in ("DOWN", "ACTIVE")
    )
    lines = [f"[{1000 + 20 * n}.0] {down}\n[{1007 + 20 * n}.0] {up}" for n in range(300)]
    flap = about(ticket("\n".join(lines)), "kernel_log.mlx5")
    assert flap.count == 300
    assert "300 times for 7 s" in flap.say


def test_suppressed_lines_make_counts_lower_bounds() -> None:
    aer = "nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (x)"
    lines = [f"[{1000 + n / 10}] {aer}" for n in range(5)]
    lines.append("[1000.6] __ratelimit: 57 callbacks suppressed")
    found = ticket("\n".join(lines))
    assert "at least 5" in about(found, "pcie.aer_corrected").say
    assert facts(found)["suppressed_lines"] == 57
    assert any("lower bounds" in note for note in only(found).unknown)


# ------------------------------------------------------------------ size

BIG_MB = 210
GROWTH_MB = 60
_CHILD = """
from tests import peak
from console.diagnose import detect
from console.diagnose.command import diagnose
from console.diagnose.text import open_input
from probes.rules import load_rules
load_rules(); detect.readers()
before = peak.mark()
found = diagnose([open_input("-")])
print(peak.grown_kib(before) // 1024)
print(found.verdict)
for part in found.inputs:
    for finding in part.findings:
        print(finding.rule, finding.count)
"""


def big(megabytes: int) -> Iterator[bytes]:
    """A log with one Xid 79 near its beginning, a PCIe flood behind it, and 260,000 other lines."""
    aer = "nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver)"
    yield f"[ 1000.000000] {XID}\n".encode()
    for number in range(20_000):
        yield f"[{1001 + number / 100:12.6f}] {aer}\n".encode()
    block = b"".join(
        f"[{5000 + n / 100:12.6f}] docker0: port 3(veth{n}) entered blocking state\n".encode()
        for n in range(13_000)
    )
    for _ in range(megabytes * 1_000_000 // len(block)):
        yield block


def test_a_log_of_hundreds_of_megabytes_is_read_in_bounded_memory() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert child.stdin is not None
    for block in big(BIG_MB):
        child.stdin.write(block)
    said, _ = child.communicate(timeout=600)
    growth, verdict, *told = said.decode().splitlines()
    assert verdict == "critical"
    assert set(told) == {"xid.79 1", "pcie.aer_corrected 20000"}
    assert int(growth) < GROWTH_MB


def test_the_bound_can_be_exceeded() -> None:
    """200 MB held at once show, else the bound above would say nothing."""
    child = subprocess.run(
        [sys.executable, "-c", _CHILD.replace("open_input(", "(lambda n: (b'x' * (200 << 20)) and "
                                              "open_input(n))(")],
        input=FORMS["dmesg"].encode(), capture_output=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert int(child.stdout.splitlines()[0]) > GROWTH_MB


def test_faults_of_other_accelerators_are_no_quiet_log() -> None:
    found = ticket(
        "[ 10.000000] amdgpu 0000:c1:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1\n"
        "[ 11.000000] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\n",
        "kernel-log",
    )
    assert any("amdgpu" in text for text in only(found).unknown)


def test_text_that_is_no_kernel_log_is_unknown_even_when_forced() -> None:
    found = ticket("lorem ipsum\ndolor sit amet\n", "kernel-log")
    assert found.verdict is Severity.UNKNOWN
    assert ticket("[ 12.000000] usb 1-1: new device\n", "kernel-log").verdict is Severity.OK
