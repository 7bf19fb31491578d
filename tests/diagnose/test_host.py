"""What people paste from a host, judged by the console's own checks where there are some."""

# ruff: noqa: E501 - pasted output is as wide as its program prints it

from __future__ import annotations

import json

import pytest

from probes.event import Severity
from tests.diagnose.support import about, case, demand, facts, findings, only, part, rules, ticket

# ------------------------------------------------------------------------------- field cases


def test_a_dead_card_on_the_bus_list() -> None:
    name = "host-lspci-rev-ff"
    told = part(case(name), "host")
    wanted = demand(name)["facts"]
    assert {key: told.facts[key] for key in wanted} == wanted
    assert "3 of 4 usable" in told.say
    assert "3 of 4" in about(case(name), "gpu.count").say
    assert about(case(name), "gpu.config_space").device == "0000:52:00.0"
    assert about(case(name), "driver.init_failed").severity is Severity.CRITICAL


def test_stuck_nvidia_smi() -> None:
    name = "host-nvidia-smi-d-state"
    told = only(case(name))
    wanted = demand(name)["facts"]
    assert {key: told.facts[key] for key in wanted} == wanted
    assert "6 nvidia-smi" in told.say
    assert "one hour old" in told.say
    assert "stale" in told.say
    assert "cannot be killed" in told.say


def test_lost_storage_of_a_kernel_log() -> None:
    diagnosis = case("host-lustre-nfs-hung")
    assert "scratch-OST0003" in diagnosis.say
    assert about(diagnosis, "storage.nfs").severity is Severity.INFO
    assert "3301" in about(diagnosis, "host.hung_task").say


# ----------------------------------------------------------------------------------- processes


PS = {
    "aux": "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n"
           "root        9100  0.0  0.0   1000   100 ?        D    03:00   0:00 /usr/bin/nvidia-smi -q\n"
           "user1       9300  0.0  0.0   1000   100 ?        Dl   03:00   0:00 python3 t.py --token abc\n",
    "o": "  PID STAT     ELAPSED WCHAN                            COMMAND\n"
         " 9100 D    01-02:03:04 os_acquire_rwlock_write          nvidia-smi\n"
         " 9300 Dl      01:00:00 rpc_wait_bit_killable            python3\n",
    "elf": "F S UID          PID    PPID  C PRI  NI ADDR SZ WCHAN  STIME TTY          TIME CMD\n"
           "4 D root        9100       1  0  80   0 -  1000 rm_ioc 03:00 ?        00:00:00 nvidia-smi\n"
           "4 D user1       9300       1  0  80   0 -  1000 nfs_wa 03:00 ?        00:00:00 python3\n",
}  # fmt: skip


@pytest.mark.parametrize("form", PS)
def test_process_lists_of_any_columns(form: str) -> None:
    diagnosis = ticket(PS[form])
    found = facts(diagnosis)
    assert found["hung_nvidia_smi"] == 1
    assert found["other_hung"] == ["python3"]
    assert {"host.dstate_nvidia", "host_text.blocked"} <= rules(diagnosis)
    assert "abc" not in json.dumps(found), "arguments may hold secrets"
    assert diagnosis.drain == "now"


def test_ages_of_any_form() -> None:
    assert facts(ticket(PS["o"]))["oldest_s"] == 93784


def test_a_calm_list_and_kernel_threads_are_no_fault() -> None:
    text = ("USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\n"
            "root 1 0.0 0.0 1 1 ? Ss 03:00 0:00 /sbin/init\n"
            "root 900 0.0 0.0 0 0 ? D 03:00 0:00 [nvidia-modeset/]\n")  # fmt: skip
    diagnosis = ticket(text)
    assert diagnosis.verdict is Severity.OK
    assert "nothing out of order" in diagnosis.say


@pytest.mark.parametrize(
    ("line", "load", "up"),
    [(" 05:05:06 up 12 days,  3:11,  2 users,  load average: 131.07, 120.66, 88.20", 131.07, 1048260),
     ("top - 05:05:06 up 42 min,  2 users,  load average: 0.10, 0.20, 0.30", 0.1, 2520)],
)  # fmt: skip
def test_uptime(line: str, load: float, up: int) -> None:
    found = facts(ticket(line))
    assert (found["load1"], found["uptime_s"]) == (load, up)


# ------------------------------------------------------------------------------------- devices


def test_lspci_with_details() -> None:
    text = ("1b:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n"
            "\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
            "\tLnkSta:\tSpeed 32GT/s, Width x8 (downgraded)\n\tKernel driver in use: nvidia\n"
            "43:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n"
            "\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
            "\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16\n"
            "52:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (prog-if ff)\n"
            "\t!!! Unknown header type 7f\n")  # fmt: skip
    diagnosis = ticket(text)
    assert facts(diagnosis)["lspci_gpus"] == 3
    assert facts(diagnosis)["rev_ff"] == ["52:00.0"]
    narrow = about(diagnosis, "host_text.pcie_width")
    assert narrow.device == "0000:1b:00.0", "a slow idle link is no fault"
    assert diagnosis.verdict is Severity.CRITICAL


def test_eight_healthy_cards() -> None:
    text = "".join(f"{b}:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
                   for b in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")) + "8\n"  # fmt: skip
    diagnosis = ticket(text)
    assert diagnosis.verdict is Severity.OK
    assert facts(diagnosis)["nvml_gpus"] == 8


# --------------------------------------------------------------------------- disks and memory


def test_file_systems_full_broken_and_well() -> None:
    text = ("df: /scratch: Stale file handle\n"
            "Filesystem      Size  Used Avail Use% Mounted on\n"
            "/dev/nvme0n1p2   50G   50G   20M 100% /\n"
            "/dev/nvme1n1    7.0T  1.0T  6.0T  15% /local\n"
            "192.0.2.40:/x    10T  9.9T  100G  99% /data\n")  # fmt: skip
    diagnosis = ticket(text)
    assert about(diagnosis, "storage.error", "/scratch").value == "ESTALE"
    full = {f.device: f.severity for f in findings(diagnosis) if f.rule == "storage.full"}
    assert full["/"] is Severity.CRITICAL
    assert not [f for f in findings(diagnosis) if f.device == "/local"]


def test_inodes_and_read_only_mounts() -> None:
    text = ("Filesystem       Inodes   IUsed   IFree IUse% Mounted on\n"
            "/dev/nvme0n1p2  3276800 3276790      10  100% /\n\n"
            "/dev/nvme0n1p3 on /var type ext4 (ro,relatime,errors=remount-ro)\n"
            "/dev/nvme0n1p4 on /opt type ext4 (rw,relatime)\n")  # fmt: skip
    assert rules(ticket(text)) >= {"storage.inodes", "storage.read_only"}


SMART = """smartctl 7.2 2020-12-30 r5155 [x86_64-linux-5.15.0] (local build)
=== START OF SMART DATA SECTION ===
SMART overall-health self-assessment test result: {health}
SMART/Health Information (NVMe Log 0x02)
Critical Warning:                   {warning}
Temperature:                        38 Celsius
Available Spare:                    {spare}%
Available Spare Threshold:          10%
Percentage Used:                    {used}%
Media and Data Integrity Errors:    {media}
"""


def test_smartctl_of_well_and_worn_disks() -> None:
    well = SMART.format(health="PASSED", warning="0x00", spare=100, used=3, media=0)
    assert ticket(well).verdict is Severity.OK
    worn = SMART.format(health="FAILED!", warning="0x04", spare=5, used=112, media=3)
    assert rules(ticket(worn), Severity.OK) >= {
        "host_text.smart", "nvme.critical_warning", "nvme.spare", "nvme.worn", "nvme.media_errors",
    }  # fmt: skip


def test_smartctl_json() -> None:
    text = json.dumps({
        "smartctl": {"version": [7, 2]}, "device": {"name": "/dev/nvme0"}, "model_name": "X",
        "smart_status": {"passed": False},
        "nvme_smart_health_information_log": {"critical_warning": 4, "percentage_used": 20},
    }, indent=1)  # fmt: skip
    assert {"host_text.smart", "nvme.critical_warning"} <= rules(ticket(text))


def test_sectors_of_a_hard_disk() -> None:
    text = ("smartctl 7.2 2020-12-30\nSMART overall-health self-assessment test result: PASSED\n"
            "  5 Reallocated_Sector_Ct   0x0033   100   100   010    Pre-fail  Always       -       0\n"
            "197 Current_Pending_Sector  0x0012   100   100   000    Old_age   Always       -       8\n")  # fmt: skip
    (line,) = about(ticket(text), "host_text.sectors").evidence
    assert line.startswith("197")


def test_free_memory() -> None:
    head = "               total        used        free      shared  buff/cache   available\n"
    low = (
        head + "Mem:            2.0Ti       2.0Ti       300Mi        1Gi        100Mi       200Mi\n"
    )
    assert "host.memory_low" in rules(ticket(low))
    well = (
        head + "Mem:      2113456789   113456789  1900000000        1024   100000000  1990000000\n"
    )
    assert ticket(well).verdict is Severity.OK


# ---------------------------------------------------------------------- services, time, sensors


def test_services_that_failed() -> None:
    text = ("● nvidia-fabricmanager.service - NVIDIA fabric manager service\n"
            "     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled; vendor preset: enabled)\n"
            "     Active: failed (Result: exit-code) since Tue 2026-03-03 04:05:06 UTC; 1h ago\n")  # fmt: skip
    diagnosis = ticket(text)
    assert facts(diagnosis)["services"] == {"fabricmanager": "failed"}
    assert about(diagnosis, "service.failed").device == "fabricmanager"
    text = ("  UNIT            LOAD   ACTIVE SUB    DESCRIPTION\n"
            "● slurmd.service  loaded failed failed Slurm node daemon\n")  # fmt: skip
    assert facts(ticket(text))["services"] == {"slurmd": "failed"}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Reference ID    : 00000000 ()\nSystem time     : 0.000000000 seconds slow of NTP time\n"
         "Leap status     : Not synchronised\n", "time.sync"),
        ("Reference ID    : C0000228 (ntp1)\nSystem time     : 12.500000000 seconds fast of NTP time\n"
         "Leap status     : Normal\n", "time.offset"),
        ("Reference ID    : C0000228 (ntp1)\nSystem time     : 0.000012 seconds slow of NTP time\n"
         "Leap status     : Normal\n", ""),
    ],
)  # fmt: skip
def test_chronyc(text: str, rule: str) -> None:
    assert rules(ticket(text)) == ({rule} if rule else set())


def test_sensors_and_the_bmc() -> None:
    text = ("coretemp-isa-0000\nPackage id 0:  +98.0°C  (high = +80.0°C, crit = +100.0°C)\n"
            "Core 0:        +60.0°C  (high = +80.0°C, crit = +100.0°C)\n")  # fmt: skip
    assert about(ticket(text), "host_text.hot").device == "Package id 0"
    text = ("FAN1             | 8000.000   | RPM        | ok    | 500.000   | 600.000\n"
            "PSU2 Status      | 0x0        | discrete   | 0x0b80| na        | na\n"
            "Inlet Temp       | 55.000     | degrees C  | cr    | na        | na\n")  # fmt: skip
    assert about(ticket(text), "host_text.bmc").device == "Inlet Temp"
    text = "   1a | 03/03/2026 | 04:05:06 | Memory #0xd1 | Uncorrectable ECC (@DIMMA1) | Asserted\n"
    assert "Asserted" in about(ticket(text), "host_text.bmc").say


def test_dimms_are_counted() -> None:
    slot = "Memory Device\n\tSize: {}\n\tLocator: DIMM{}\n\tSpeed: 4800 MT/s\n\tConfigured Memory Speed: 4400 MT/s\n\n"
    text = "# dmidecode 3.3\nGetting SMBIOS data from sysfs.\n" + "".join(
        slot.format("64 GB" if n < 3 else "No Module Installed", n) for n in range(4)
    )
    found = facts(ticket(text))
    assert (found["dimm_slots"], found["dimms"], found["dimm_sizes"]) == (4, 3, ["64 GB"])


def test_files_of_proc() -> None:
    found = facts(ticket("131.07 120.66 88.20 3/1234 9100\n"))
    assert found["load1"] == 131.07
    low = (
        "MemTotal:       2113456789 kB\nMemFree:          1000000 kB\nMemAvailable:     200000 kB\n"
    )
    assert "host.memory_low" in rules(ticket(low))
    raid = "md0 : active raid1 nvme1n1p1[1] nvme0n1p1[0](F)\n      1000 blocks [2/1] [_U]\n"
    assert about(ticket(raid), "disk.raid_degraded").device == "md0"


def test_the_bus_and_the_driver_are_compared_within_a_ticket() -> None:
    cards = "".join(
        f"{bus}:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
        for bus in ("1b", "43", "52")
    )
    names = "".join(
        f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-1111-1111-1111-11111111111{n})\n"
        for n in range(3)
    )
    ticket_of = "root@n1:~# lspci -d 10de:\n{}root@n1:~# nvidia-smi -L\n{}".format
    short = ticket(ticket_of(cards, "".join(names.splitlines(keepends=True)[:2])))
    assert "2 of 3" in about(short, "gpu.count").say
    assert "nvidia-smi lists 2 of 3" in short.say
    assert rules(ticket(ticket_of(cards, names))) == set()
