"""The host: each fault shows within two intervals, and no healthy host accuses itself."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.demo import host_tree
from console.demo.services_tree import DAEMONS
from probes.event import Severity
from tests.conftest import Lab
from tests.scenes.rig import Scene

CPU = "sys/devices/system/cpu"
EDAC = "sys/devices/system/edac/mc"
PID = {program: pid for pid, program in DAEMONS.items()}
KTHREAD = 0x200040


def process(scene: Scene, pid: int, comm: str, state: str, *, ppid: int = 1, flags: int = 0x400000,
            wchan: str = "", uid: int = 0, switches: int = 7, job: int = 0) -> None:  # fmt: skip
    """A process as /proc shows it."""
    base = f"proc/{pid}"
    zeros = "0 " * 12
    scene.write(f"{base}/stat", f"{pid} ({comm}) {state} {ppid} {pid} {pid} 0 -1 {flags} {zeros}"
                f"{pid * 10} 0 0\n")  # fmt: skip
    scene.write(f"{base}/comm", f"{comm}\n")
    counts = f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t1\n"
    scene.write(f"{base}/status", f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n{counts}")
    scene.write(f"{base}/wchan", wchan)
    if job:
        scene.write(f"{base}/cgroup", f"0::/system.slice/slurmstepd.scope/job_{job}/step_0\n")


def governors(scene: Scene, governor: str, driver: str) -> None:
    for policy in (scene.root / CPU / "cpufreq").iterdir():
        place = policy.relative_to(scene.root)
        scene.write(f"{place}/scaling_governor", f"{governor}\n")
        scene.write(f"{place}/scaling_driver", f"{driver}\n")


def meminfo(scene: Scene, **kib: int) -> None:
    text = (scene.root / "proc/meminfo").read_text()
    lines = [line for line in text.splitlines() if line.partition(":")[0] not in kib]
    lines += [f"{name}: {number} kB" for name, number in kib.items()]
    scene.write("proc/meminfo", "\n".join(lines) + "\n")


def busy_cpu(scene: Scene, step: int, steal: int = 0) -> None:
    """90 % work since the step before."""
    scene.write("proc/stat", f"cpu  {9000 * step} 0 0 {1000 * step} 0 0 0 {steal * step} 0 0\n"
                + "cpu0 1 1 1 1 1 1 1 1 0 0\n" * 112)  # fmt: skip


# ---------------------------------------------------------------------- faults


def pinned_governor(scene: Scene, step: int) -> None:
    governors(scene, "powersave", "acpi-cpufreq")


def slow_cpus(scene: Scene, step: int) -> None:
    busy_cpu(scene, step)
    for policy in (scene.root / CPU / "cpufreq").iterdir():
        scene.write(f"{policy.relative_to(scene.root)}/scaling_cur_freq", "800000\n")


def hot_cpus(scene: Scene, step: int) -> None:
    place = f"{CPU}/cpu0/thermal_throttle/package_throttle_total_time_ms"
    scene.write(place, f"{4000 * step}\n")


def offline_cpus(scene: Scene, step: int) -> None:
    scene.write(f"{CPU}/online", "0-16,19-111\n")


def corrected(scene: Scene, step: int) -> None:
    scene.write(f"{EDAC}/mc1/ce_count", f"{500 * step}\n")
    scene.write(f"{EDAC}/mc1/dimm1/dimm_ce_count", f"{500 * step}\n")


def uncorrected(scene: Scene, step: int) -> None:
    scene.write(f"{EDAC}/mc5/ue_count", "1\n")
    scene.write(f"{EDAC}/mc5/dimm0/dimm_ue_count", "1\n")


def machine_check_taint(scene: Scene, step: int) -> None:
    scene.write("proc/sys/kernel/tainted", f"{12289 | 16}\n")


def boots(scene: Scene, step: int) -> None:
    now = time.time()
    scene.write("var/log/wtmp", host_tree.wtmp(*(now - 3600 * hour for hour in range(30, 0, -5))))


def connections(scene: Scene, step: int) -> None:
    scene.write("proc/sys/net/netfilter/nf_conntrack_count", "225000\n")
    scene.write("proc/sys/net/netfilter/nf_conntrack_max", "262144\n")


def little_memory(scene: Scene, step: int) -> None:
    meminfo(scene, MemAvailable=600_000)


def swapping(scene: Scene, step: int) -> None:
    meminfo(scene, SwapTotal=64_000_000, SwapFree=3_000_000)
    scene.write("proc/vmstat", f"pswpin {step * 100_000}\npswpout {step * 90_000}\n")


def overloaded(scene: Scene, step: int) -> None:
    scene.write("proc/loadavg", "812.00 790.11 700.00 811/9000 48213\n")


def stolen(scene: Scene, step: int) -> None:
    busy_cpu(scene, step, steal=5000)


def little_memlock(scene: Scene, step: int) -> None:
    text = host_tree.LIMITS.replace(
        "Max locked memory         unlimited            unlimited            bytes",
        "Max locked memory         65536                67108864             bytes",
    )
    scene.write(f"proc/{PID['slurmd']}/limits", text)


def no_time_daemon(scene: Scene, step: int) -> None:
    if step == 1:
        scene.remove(f"proc/{PID['chronyd']}")


def never_synchronised(scene: Scene, step: int) -> None:
    process(scene, PID["chronyd"], "systemd-timesyn", "S")


def slow_clocksource(scene: Scene, step: int) -> None:
    base = "sys/devices/system/clocksource/clocksource0"
    scene.write(f"{base}/current_clocksource", "hpet\n")
    scene.write(f"{base}/available_clocksource", "hpet acpi_pm\n")


FAULTS = [
    (pinned_governor, "host.governor", "powersave 8, driver acpi-cpufreq"),
    (slow_cpus, "host.cpu_slow", "800 of 3800 MHz with 90 % load"),
    (hot_cpus, "host.cpu_throttle", "27 % of the time"),
    (offline_cpus, "host.cpus_offline", "2 of 112 CPUs offline: 17,18"),
    (corrected, "host.edac_ce", "2000 corrected errors/min of host memory, "
     "CPU_SrcID#0_MC#1_Chan#1_DIMM#0"),
    (uncorrected, "host.edac_ue", "CPU_SrcID#1_MC#1_Chan#0_DIMM#0"),
    (machine_check_taint, "host.tainted", "M (machine check)"),
    (boots, "host.reboot_loop", "4 boots within 24 h"),
    (connections, "host.table_full", "tracked connections: 225000 of 262144 (86 %)"),
    (little_memory, "host.memory_low", "614 MB of 2164 GB"),
    (swapping, "host.swap_storm", "6667 pages/s read from swap, 62 GB"),
    (overloaded, "host.load", "load 790 on 112 CPUs"),
    (stolen, "host.steal", "33 %"),
    (little_memlock, "host.memlock", "slurmd gives its jobs 67108864 bytes of locked memory"),
    (no_time_daemon, "time.daemon", "no time daemon runs"),
    (never_synchronised, "time.sync", "timesyncd runs, but the clock is not synchronised"),
    (slow_clocksource, "time.source", "hpet"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "rule", "says"), FAULTS, ids=[fault.__name__ for fault, _, _ in FAULTS]
)
def test_found(scene: Scene, fault: Callable[[Scene, int], None], rule: str, says: str) -> None:
    busy_cpu(scene, 0)
    scene.interval()
    assert scene.rules() == set()
    for step in (1, 2):
        fault(scene, step)
        scene.interval()
    found = scene.rule(rule)
    assert says in found.say
    assert rule in scene.rules()
    grave = Severity.CRITICAL if rule == "host.edac_ue" else Severity.WARN
    assert found.severity is grave


def few_files(scene: Scene) -> None:
    text = host_tree.LIMITS.replace(
        "Max open files            131072               131072               files",
        "Max open files            1024                 4096                 files",
    )
    scene.write(f"proc/{PID['slurmd']}/limits", text)


def waiting_for_storage(scene: Scene) -> None:
    scene.write("proc/pressure/io", "some avg10=80.00 avg60=75.00 avg300=1.00 total=9\n"
                "full avg10=70.00 avg60=62.00 avg300=1.00 total=9\n")  # fmt: skip


def scaled_by_hardware(scene: Scene) -> None:
    governors(scene, "powersave", "intel_pstate")


def in_pieces(scene: Scene) -> None:
    scene.write("proc/buddyinfo", "Node 0, zone   Normal 9 9 9 9 9 9 9 9 3 0 0\n")


def rebooted(scene: Scene) -> None:
    scene.clock = 100.0


@pytest.mark.parametrize(
    ("change", "rule", "says"),
    [
        (few_files, "host.nofile", "slurmd gives its jobs 4096 files"),
        (waiting_for_storage, "host.io_pressure", "62 % of the time"),
        (scaled_by_hardware, "host.governor", "powersave 8, driver intel_pstate"),
        (in_pieces, "host.fragmented", "3 free blocks"),
        (rebooted, "host.booted", "up for 130 s"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_worth_knowing(scene: Scene, change: Callable[[Scene], None], rule: str, says: str) -> None:
    scene.interval()
    change(scene)
    scene.interval(2)
    assert scene.rule(rule).severity is Severity.INFO
    assert says in scene.rule(rule).say
    assert rule not in scene.rules()


def test_a_full_table_is_critical_when_the_kernel_refuses(scene: Scene) -> None:
    scene.write("proc/sys/kernel/pid_max", "2450\n")
    scene.interval(2)
    found = scene.rule("host.table_full")
    assert (found.severity, found.device) == (Severity.CRITICAL, "tasks")


def test_a_dimms_error_latches_until_reboot(scene: Scene) -> None:
    scene.interval()
    uncorrected(scene, 1)
    scene.interval(2)
    scene.write(f"{EDAC}/mc5/ue_count", "0\n")
    scene.interval(5)
    assert scene.rule("host.edac_ue").latched


# ---------------------------------------------------------------------- processes


def test_a_sleeper_with_owner_job_and_what_it_waits_for(scene: Scene) -> None:
    scene.interval()
    process(scene, 4711, "python3", "D", wchan="rpc_wait_bit_killable", uid=54321, job=381)
    os.symlink("/data/run", scene.root / "proc/4711/cwd")
    scene.interval(2)
    assert scene.rules() == set(), "for 15 s"
    scene.clock += 400
    scene.interval(2)
    found = scene.rule("host.dstate")
    assert found.severity is Severity.WARN
    for part in ("pid 4711", "54321", "job 381", "rpc_wait_bit_killable", "cwd /data/run"):
        assert part in found.say
    assert found.value == 445


def test_a_process_that_runs_now_and_then_does_not_hang(scene: Scene) -> None:
    """Caught in D at each look, but its switches rise: a busy disk."""
    for round_ in range(5):
        process(scene, 4711, "python3", "D", wchan="folio_wait_bit", switches=round_)
        scene.interval()
        scene.clock += 400
    assert scene.rules() == set()


def test_kernel_threads_may_sleep_so_by_design(scene: Scene) -> None:
    process(scene, 311, "lustre_worker", "D", ppid=2, flags=KTHREAD)
    scene.interval()
    scene.clock += 4000
    scene.interval(3)
    assert scene.rules() == set()
    assert scene.sample("tasks").values["uninterruptible_kernel"] == 1


def test_a_sleeper_in_the_driver_is_named(scene: Scene) -> None:
    scene.interval()
    process(scene, 815, "nvidia-smi", "D", wchan="os_acquire_rwlock_write", uid=54321)
    scene.interval(2)
    found = scene.rule("host.dstate_nvidia")
    assert found.severity is Severity.CRITICAL
    assert any("pid 815, 54321" in line for line in found.evidence)
    assert "host.dstate" not in scene.rules()


def test_a_driver_at_work_is_not_said_to_hang(scene: Scene) -> None:
    """While a GPU starts, others wait for the driver's lock; they run between two looks."""
    for turn in range(3):
        process(scene, 815, "python3", "D", wchan="os_acquire_rwlock_write", switches=turn)
        scene.interval()
        assert scene.worst() in (Severity.OK, Severity.WARN)
    assert "waits inside the NVIDIA driver" in scene.rule("host.dstate_nvidia").say


def test_a_program_of_the_driver_may_wait_for_a_file_server(scene: Scene) -> None:
    process(scene, 815, "nvidia-smi", "D", wchan="rpc_wait_bit_killable")
    scene.interval(3)
    assert scene.rules() == set()
    process(scene, 816, "nvidia-smi", "D", wchan="rwsem_down_write_slowpath")
    scene.interval(3)
    assert scene.rules() == {"host.dstate_nvidia"}


def test_zombies_of_one_parent(scene: Scene) -> None:
    process(scene, 901, "dataloader", "S", uid=54321, job=77)
    for pid in range(5000, 5150):
        process(scene, pid, "worker", "Z", ppid=901)
    scene.interval()
    scene.clock += 400
    scene.interval(2)
    found = scene.rule("host.zombies")
    assert "150 zombies of dataloader (pid 901, 54321, job 77)" in found.say


def test_a_few_zombies_are_normal(scene: Scene) -> None:
    for pid in range(5000, 5020):
        process(scene, pid, "sh", "Z", ppid=901)
    scene.interval()
    scene.clock += 4000
    scene.interval(3)
    assert scene.rules() == set()


# ---------------------------------------------------------------------- /dev/shm


@pytest.fixture
def shm(lab: Lab) -> Iterator[Callable[[Path, str], Path]]:
    """A tmpfs as /dev/shm of a root."""
    lab.root("mounts")
    places: list[Path] = []

    def mount(root: Path, size: str) -> Path:
        place = root / "dev/shm"
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], check=True)
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", "-l", place], check=True)


def test_small_shm(scene: Scene, shm: Callable[[Path, str], Path]) -> None:
    shm(scene.root, "64m")
    scene.interval(2)
    assert scene.rules() == {"host.shm_small"}


def test_full_shm(scene: Scene, shm: Callable[[Path, str], Path]) -> None:
    place = shm(scene.root, "4m")
    scene.interval()
    (place / "psm_4711").write_bytes(b"x" * (4 << 20))
    scene.interval(2)
    assert "host.shm_full" in scene.rules()


def test_a_containers_shm_is_its_own(scene: Scene, shm: Callable[[Path, str], Path]) -> None:
    shm(scene.root, "64m")
    scene.write(".dockerenv", "")
    scene.interval(2)
    assert scene.rules() == set()


# ---------------------------------------------------------------------- names


@pytest.fixture
def server(lab: Lab) -> Iterator[str]:
    """A name server that says NXDOMAIN to everybody."""
    lab.root("port 53")
    address = "127.53.0.1"
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.bind((address, 53))

    def answer() -> None:
        while True:
            question, asker = link.recvfrom(512)
            if not question:
                return
            link.sendto(question[:2] + b"\x81\x83" + question[4:], asker)

    thread = threading.Thread(target=answer)
    thread.start()
    yield address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
        last.sendto(b"", (address, 53))
    thread.join(30)
    link.close()


def test_the_first_name_server_is_dead(scene: Scene, server: str) -> None:
    scene.write("etc/resolv.conf", f"search c.example\nnameserver {server}\n")
    scene.interval(2)
    assert scene.rules() == set()
    assert scene.sample("dns", f"ns {server}").values["answers"] is True
    scene.write("etc/resolv.conf", f"nameserver 127.53.0.2\nnameserver {server}\n")
    scene.interval(2)
    found = scene.rule("dns.server")
    assert (found.severity, found.device) == (Severity.WARN, "ns 127.53.0.2")
    scene.write("etc/resolv.conf", f"nameserver {server}\nnameserver 127.53.0.2\n")
    scene.interval(4)
    assert scene.rules() == set()


def test_no_name_server_answers_where_nobody_needs_one(scene: Scene) -> None:
    scene.write("etc/resolv.conf", "nameserver 127.53.0.2\n")
    scene.interval(2)
    assert scene.rules() == set()
    assert scene.rule("dns.server").severity is Severity.INFO


# ---------------------------------------------------------------------- healthy


def laptop(scene: Scene) -> None:
    """Intel's own governor, swap in use, a hundred days up, no EDAC, no Slurm."""
    governors(scene, "powersave", "intel_pstate")
    meminfo(scene, SwapTotal=16_000_000, SwapFree=9_000_000)
    scene.remove(EDAC)
    scene.remove(f"proc/{PID['slurmd']}/limits")


def virtual_machine(scene: Scene) -> None:
    """No cpufreq, no EDAC, kvm-clock, no time daemon: the host keeps the clock."""
    for place in (f"{CPU}/cpufreq", EDAC, f"proc/{PID['chronyd']}"):
        scene.remove(place)
    scene.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme tsc hypervisor\n")
    base = "sys/devices/system/clocksource/clocksource0"
    scene.write(f"{base}/current_clocksource", "kvm-clock\n")


def virtual_machine_on_hpet(scene: Scene) -> None:
    """A guest's clock source is the hypervisor's matter."""
    virtual_machine(scene)
    slow_clocksource(scene, 1)


def container(scene: Scene) -> None:
    """Its own processes only, no wtmp, no mounts, no pressure."""
    scene.write(".dockerenv", "")
    for pid in DAEMONS:
        scene.remove(f"proc/{pid}")
    scene.write("proc/1/stat", "1 (sleep) S 0 1 1 0 -1 4194560 0 0\n")
    for place in ("var/log/wtmp", "proc/pressure", "proc/1/mountinfo", "proc/buddyinfo"):
        scene.remove(place)


def grace(scene: Scene) -> None:
    """ARM: its own clock source and cpufreq driver, GPU memory as NUMA nodes, no EDAC."""
    governors(scene, "schedutil", "cppc_cpufreq")
    scene.remove(EDAC)
    for cpu in (0, 56):
        scene.remove(f"{CPU}/cpu{cpu}/thermal_throttle")
    scene.write("sys/devices/system/clocksource/clocksource0/current_clocksource",
                "arch_sys_counter\n")  # fmt: skip
    scene.write(f"{CPU}/smt/control", "notsupported\n")
    for node in range(2, 34):
        place = f"sys/devices/system/node/node{node}"
        scene.write(f"{place}/meminfo", f"Node {node} MemTotal: 0 kB\n")
        scene.write(f"{place}/cpulist", "\n")
    scene.write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n")


def smt_off(scene: Scene) -> None:
    """Siblings are offline by choice."""
    scene.write(f"{CPU}/online", "0-55\n")
    scene.write(f"{CPU}/smt/control", "off\n")


def siblings_offline(scene: Scene) -> None:
    """A cloud's way to switch SMT off."""
    scene.write(f"{CPU}/online", "0-55\n")


def small_host(scene: Scene) -> None:
    """Two CPUs, 2 GB, most of it used, a load of 14, no limits of any daemon."""
    scene.write("proc/stat", "cpu  100 0 0 100 0 0 0 0 0 0\ncpu0 1 1\ncpu1 1 1\n")
    scene.write(f"{CPU}/present", "0-1\n")
    scene.write(f"{CPU}/online", "0-1\n")
    scene.write("proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable: 180000 kB\n")
    scene.write("proc/loadavg", "14.00 13.90 3.00 13/200 48213\n")


def without_rights(scene: Scene) -> None:
    """hidepid: own processes only, and no kernel log."""
    for pid in [*DAEMONS, 1]:
        scene.remove(f"proc/{pid}")


def old_kernel(scene: Scene) -> None:
    """Linux 3.10: no pressure, no throttle times, cgroup 1."""
    scene.remove("proc/pressure")
    for cpu in (0, 56):
        scene.remove(f"{CPU}/cpu{cpu}/thermal_throttle/package_throttle_total_time_ms")
    scene.remove("sys/fs/cgroup/cgroup.controllers")


def corrected_once(scene: Scene) -> None:
    """A thousand corrected errors since the last boot, none now."""
    scene.write(f"{EDAC}/mc1/ce_count", "1000\n")
    scene.write(f"{EDAC}/mc1/dimm1/dimm_ce_count", "1000\n")


def just_booted(scene: Scene) -> None:
    """Up for two minutes: the clock is not in step yet."""
    scene.clock = 120.0
    scene.write("proc/uptime", "120.00 0.00\n")
    never_synchronised(scene, 1)


def driver_taint(scene: Scene) -> None:
    """Proprietary, out of tree, unsigned, and a warning long ago."""
    scene.write("proc/sys/kernel/tainted", "12801\n")


def full_hugepages(scene: Scene) -> None:
    """All hugepages in use, memory in small pieces."""
    meminfo(scene, HugePages_Total=1024, HugePages_Free=0)
    scene.write("proc/buddyinfo", "Node 0, zone   Normal 9 9 9 9 9 9 9 9 0 0 0\n")


def garbage(scene: Scene) -> None:
    """Nothing is as expected."""
    for place in ("meminfo", "vmstat", "stat", "loadavg", "buddyinfo", "diskstats", "mdstat"):
        scene.write(f"proc/{place}", b"\xff\x00\x1b[31m: -1 99999999999999999999999 x\n" * 50)
    scene.write("var/log/wtmp", os.urandom(3840))
    scene.write(f"{CPU}/present", "0-99999999999,x\n")
    scene.write(f"proc/{PID['slurmd']}/limits", "Max locked memory\n")
    scene.write("etc/fstab", b"\xff \xff \xff \xff\n/dev/x\n")
    scene.write("etc/resolv.conf", "nameserver\nnameserver \x1b]0;x\x07\n")


HEALTHY = [
    laptop, virtual_machine, virtual_machine_on_hpet, container, grace, smt_off, siblings_offline,
    small_host, without_rights, old_kernel, corrected_once, just_booted, driver_taint,
    full_hugepages, garbage,
]  # fmt: skip


@pytest.mark.parametrize("change", HEALTHY, ids=lambda change: change.__name__)
def test_healthy(scene: Scene, change: Callable[[Scene], None]) -> None:
    change(scene)
    scene.interval(4)
    ours = ("host.", "time.", "dns.", "storage.", "disk.", "nvme.", "node.", "internal.")
    assert {rule for rule in scene.rules() if rule.startswith(ours)} == set()


def test_a_host_without_gpus(scenes: Callable[..., Scene]) -> None:
    """Its governor and /dev/shm are its own matter."""
    scene = scenes(gpus=0, hcas=0, role="login")
    governors(scene, "powersave", "acpi-cpufreq")
    little_memlock(scene, 1)
    scene.interval(3)
    assert {
        rule for rule in scene.rules() if rule.startswith(("host.", "time.", "storage."))
    } == set()
