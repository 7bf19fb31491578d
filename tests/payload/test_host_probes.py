"""What the host's probes read, against the real tools and on every Python a node may have."""

from __future__ import annotations

import errno
import json
import os
import pwd
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.demo import host_tree, sysfs
from probes.catalog import PROBES
from probes.node import (
    dns,
    host,
    host_slow,
    kernel_setup,
    mounts,
    nvme,
    storage,
    timesync,
    tool,
    wtmp,
)
from probes.node.context import Context
from tests.conftest import Lab
from tests.payload.rig import AgentProcess, Frame, config, until
from tests.probes_node.rig import Machine
from tests.scenes.test_storage import controller, smart

OURS = ("host", "host_slow", "tasks", "timesync", "dns", "storage", "disks", "nvme")
__all__ = ["controller"]


def test_every_python_reads_the_same(each_machine: Machine) -> None:
    """As the agent's newest does."""
    sysfs.build(each_machine.root, hostname="n", boot_id="b")
    ctx = Context(str(each_machine.root))
    with each_machine.session() as session:
        for name in OURS:
            module = sys.modules[PROBES[name].module]
            devices, rows = module.collect(ctx)
            assert session.ask(op="collect", probe=name) == {"devices": devices, "rows": rows}
            assert {metric for values in devices.values() for metric in values} <= set(
                module.METRICS
            ), name


@pytest.fixture
def each_machine(tmp_path: Path, node_python: str) -> Machine:
    return Machine(tmp_path / "node", node_python)


def test_this_machine(node_python: str) -> None:
    """The probes in the agent, on a real kernel: no error, no hang, plausible numbers."""
    settings = config(*OURS, mode="pass", window_s=0.1, deadline_s=30.0)
    with AgentProcess(settings, python=node_python) as agent:
        frames = agent.collect(lambda found: any(frame["k"] == "end" for frame in found))
    assert not [frame for frame in frames if frame["k"] in ("err", "hung")]
    last = {frame["p"]: frame["d"][""] for frame in frames if frame["k"] == "s"}
    assert set(last) == set(OURS)
    assert last["host"]["cpu_count"] == os.cpu_count()
    assert min(last["host"]["tasks"], last["tasks"]["processes"]) > 1
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert last["host"]["mem_total_bytes"] == pages
    assert 0 <= last["host"]["cpu_percent"] <= 100


def test_the_walk_is_shared_and_repeated(tmp_path: Path) -> None:
    sysfs.build(tmp_path)
    now = [100.0]
    ctx = Context(str(tmp_path), clock=lambda: now[0])
    first = host.scan(ctx)
    assert host.scan(ctx) is first
    now[0] += host.SCAN_EVERY_S
    assert host.scan(ctx) is not first


def test_names_with_parentheses_and_spaces(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/stat").write_text("7 (a) b (c) D 1 7 7 0 -1 2129984 0\n")
    task = host.read_task(Context(str(tmp_path)), "7")
    assert task is not None
    assert (task.comm, task.state, task.ppid, task.kernel) == ("a) b (c", "D", "1", True)


SLEEPER = """
#include <unistd.h>
int main(void) { if (vfork() == 0) { pause(); _exit(0); } return 0; }
"""
"""While the child of vfork lives, the kernel holds its parent in uninterruptible sleep."""


def test_a_real_sleeper_and_a_real_zombie(lab: Lab, tmp_path: Path) -> None:
    lab.programs("a sleeper", "cc", package="gcc libc6-dev")
    (tmp_path / "sleeper.c").write_text(SLEEPER)
    program = tmp_path / "sleeper"
    subprocess.run(["cc", "-o", program, tmp_path / "sleeper.c"], check=True)
    dead = subprocess.Popen(["true"])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # ended, not buried
    sleeper = subprocess.Popen([program], start_new_session=True)
    try:
        with AgentProcess(config("tasks", slow_s=0.2)) as agent:
            rows = agent.wait_for(lambda frame: _row(frame, sleeper.pid) is not None)["r"]
            zombies = [row for row in rows if row["kind"] == "zombies"]
    finally:
        os.killpg(sleeper.pid, signal.SIGKILL)
        sleeper.wait(30)
        dead.wait(30)
    row = next(row for row in rows if row.get("pid") == sleeper.pid)
    us = pwd.getpwuid(os.getuid()).pw_name
    assert (row["comm"], row["kernel"], row["user"]) == ("sleeper", False, us)
    assert row["cwd"] == os.getcwd()
    assert os.getpid() in {zombie["parent_pid"] for zombie in zombies}


def _row(frame: Frame, pid: int) -> object:
    return next((row for row in frame.get("r", ()) if row.get("pid") == pid), None)


@pytest.mark.parametrize(
    ("argv", "limit_s", "said"),
    [(["echo", "a", "$HOME;"], 60, "a $HOME;\n"), (["true"], 60, ""), (["false"], 60, None),
     (["sleep", "3600"], 0.5, None), (["yes"], 60, None), (["no-such-tool"], 60, None)],
)  # fmt: skip
def test_a_tool_is_bounded(argv: list[str], limit_s: float, said: str | None) -> None:
    """In time and output, whatever it does, and no shell sees its words."""
    assert tool.output(Context("/"), argv, limit_s) == said


# ---------------------------------------------------------------------- clock


@pytest.fixture
def clocks(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """A real chronyd that follows another one over loopback; neither touches the clock (-x)."""
    lab.root("chronyd")
    lab.programs("chrony", "chronyd", "chronyc", package="chrony")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.bind(("127.0.0.1", 0))
        port = link.getsockname()[1]
    with_server = f"server 127.0.0.1 port {port} iburst minpoll -2 maxpoll -2\nport 0\n"
    settings = {
        "server": f"local stratum 3\nport {port}\nbindaddress 127.0.0.1\nallow 127.0.0.0/8\n",
        "client": with_server, "lost": "server 127.0.0.1 port 9\nport 0\n",
    }  # fmt: skip
    running = []
    for name, text in settings.items():
        place = tmp_path / name
        place.mkdir(0o700)
        own = f"cmdport 0\nbindcmdaddress {place}/s\npidfile {place}/pid\n"
        (place / "conf").write_text(text + own)
        words = ["chronyd", "-x", "-d", "-u", "root", "-f", str(place / "conf")]
        running.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
    assert until(lambda: all((tmp_path / name / "s").exists() for name in settings))
    yield tmp_path
    for program in running:
        program.terminate()
        program.wait(30)


def chronyc(place: Path, *words: str) -> str:
    argv = ["chronyc", "-h", str(place / "s"), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def test_chrony_says_what_chronyc_tells_a_person(clocks: Path) -> None:
    chronyc(clocks / "client", "waitsync", "300", "0", "0", "0.1")
    (argv,) = [argv for name, argv, _ in timesync.TOOLS if name == "chrony"]
    before = chronyc(clocks / "client", "tracking")
    found = timesync.chrony_tracking(chronyc(clocks / "client", *argv[1:]))
    told = dict(line.split(":", 1) for line in before.splitlines())
    assert found["stratum"] == 4 == int(told["Stratum         "])
    assert found["source"] == "127.0.0.1"
    assert abs(float(str(found["offset_s"]))) < 0.1
    assert "Normal" in told["Leap status     "]


def test_chrony_without_a_server(clocks: Path) -> None:
    (argv,) = [argv for name, argv, _ in timesync.TOOLS if name == "chrony"]
    chronyc(clocks / "client", "waitsync", "300", "0", "0", "0.1")  # the others are up by then
    found = timesync.chrony_tracking(chronyc(clocks / "lost", *argv[1:]))
    assert found == {"stratum": 0}


def test_ahead_is_positive() -> None:
    """chronyc says "seconds fast" for a negative correction."""
    line = "7F000001,192.0.2.1,4,1795986631.0,-4.2,0,0,-0.147,0,0.2,0,0,0.3,Normal"
    assert timesync.chrony_tracking(line)["offset_s"] == 4.2


def test_ntpq_and_timedatectl() -> None:
    said = 'associd=0 status=0615 leap_none, sync_ntp, 1 event, clock_sync,\n' \
           'version="ntpd ntpsec-1.2.2", stratum=3, precision=-24,\n' \
           "rootdelay=1.2, refid=192.0.2.7, offset=-1250.5, sys_jitter=0.1\n"  # fmt: skip
    assert timesync.ntp_variables(said) == {
        "source": "192.0.2.7", "stratum": 3, "offset_s": -1.2505,
    }  # fmt: skip
    said = "ServerName=ntp.example\nServerAddress=192.0.2.8\n" \
           "NTPMessage={ Leap=0, Version=4, Mode=4, Stratum=2, Precision=-25 }\n"  # fmt: skip
    assert timesync.timesync_status(said) == {"source": "ntp.example", "stratum": 2}


@pytest.mark.parametrize("text", ["", ",,,,", "a,b,c,d,e,f,g,h,i,j,k,l,m,n", "=\n=,=", "\0" * 99])
def test_tools_that_say_nonsense(text: str) -> None:
    for read in (timesync.chrony_tracking, timesync.ntp_variables, timesync.timesync_status):
        assert "offset_s" not in read(text)


def test_the_kernels_word_is_that_of_adjtimex(lab: Lab) -> None:
    """Against glibc's own structure, through the program that Debian ships for it."""
    found = timesync.kernel_clock()
    if shutil.which("adjtimex") is None:
        assert set(found) == {"synchronised", "error_s", "error_max_s"}
        assert 0 <= float(str(found["error_s"])) <= 16
        return
    said = subprocess.run(["adjtimex", "-p"], check=True, capture_output=True, text=True).stdout
    status = next(int(line.split()[1]) for line in said.splitlines() if "status" in line)
    assert found["synchronised"] is not bool(status & timesync.UNSYNC)


def test_another_nodes_root_does_not_get_our_clock(tmp_path: Path) -> None:
    sysfs.build(tmp_path, boot_id="another")
    assert timesync.collect(Context(str(tmp_path)))[0] == {"": {"daemon": "chrony"}}


# ---------------------------------------------------------------------- boots


def record_of_arm(at: int) -> bytes:
    """struct utmp of 64-bit ARM: 400 bytes, 64-bit times."""
    head = struct.pack("<hhi32s4s32s256shh", 2, 0, 0, b"~", b"~~", b"reboot", b"6.8.0", 0, 0)
    return (head + struct.pack("<qqq16s20x", 0, at, 0, b"")).ljust(400, b"\0")


def test_boots_of_both_forms(tmp_path: Path) -> None:
    log = tmp_path / "var/log/wtmp"
    log.parent.mkdir(parents=True)
    now = 1_800_000_000
    times = [now - 90_000, now - 80_000, now - 7_000, now - 60]
    for raw in (host_tree.wtmp(*times), b"".join(map(record_of_arm, times))):
        log.write_bytes(raw)
        assert wtmp.boots(Context(str(tmp_path)), float(now)) == 3


@pytest.mark.skipif(shutil.which("last") is None, reason="no last")
def test_last_counts_as_we_do(tmp_path: Path) -> None:
    """util-linux reads the same file."""
    log = tmp_path / "var/log/wtmp"
    log.parent.mkdir(parents=True)
    now = 1_795_000_000
    log.write_bytes(host_tree.wtmp(now - 5000, now - 4000, now - 60))
    said = subprocess.run(["last", "-f", log, "-x", "reboot"], check=True, capture_output=True,
                          text=True, env={"TZ": "UTC", "PATH": "/usr/bin"}).stdout  # fmt: skip
    lines = [line for line in said.splitlines() if line.startswith("reboot")]
    assert len(lines) == wtmp.boots(Context(str(tmp_path)), float(now))


@pytest.mark.parametrize(
    "raw",
    [b"", b"x" * 384, random.Random(1).randbytes(4000), b"\0" * 383],
    ids=["empty", "one letter", "noise", "half a record"],
)
def test_a_log_that_is_none(tmp_path: Path, raw: bytes) -> None:
    log = tmp_path / "var/log/wtmp"
    log.parent.mkdir(parents=True)
    log.write_bytes(raw)
    assert wtmp.boots(Context(str(tmp_path)), 1.8e9) is None


# ---------------------------------------------------------------------- disks


def test_smart_is_what_nvme_cli_reads(
    lab: Lab, controller: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same controller, asked by the real tool and by our probe in the real agent."""
    lab.programs("nvme-cli", "nvme", package="nvme-cli")
    sysfs.build(tmp_path)
    smart(tmp_path / "dev/nvme0", warning=4, spare=7, used=104, media=12, kelvin=344)
    monkeypatch.setenv("LD_PRELOAD", str(controller))
    words = ["nvme", "smart-log", str(tmp_path / "dev/nvme0"), "-o", "json"]
    path = f"{os.environ['PATH']}:/usr/sbin"
    env = {**os.environ, "PATH": path}
    said = json.loads(subprocess.run(words, check=True, capture_output=True, env=env).stdout)
    settings = config("nvme", mode="pass", root=str(tmp_path))
    with AgentProcess(settings, python=sys.executable) as agent:
        frames = agent.collect(lambda found: any(frame["k"] == "end" for frame in found))
    (values,) = [frame["d"]["nvme0"] for frame in frames if frame.get("p") == "nvme"]
    pairs = {
        "critical_warning": "critical_warning", "avail_spare": "spare_percent",
        "spare_thresh": "spare_threshold_percent", "percent_used": "used_percent",
        "power_on_hours": "power_on_h", "unsafe_shutdowns": "unsafe_shutdowns",
        "media_errors": "media_errors", "num_err_log_entries": "error_entries",
        "warning_temp_time": "warning_temp_min", "critical_comp_time": "critical_temp_min",
    }  # fmt: skip
    assert {ours: int(said[theirs]) for theirs, ours in pairs.items()} == {
        ours: values[ours] for ours in pairs.values()
    }
    assert values["written_bytes"] == int(said["data_units_written"]) * 512_000
    assert values["temp_c"] == said["temperature"] - 273


def test_without_rights_the_log_is_absent_with_a_hint(lab: Lab, tmp_path: Path) -> None:
    """As nobody, on a device node that only root may open."""
    lab.root("another user")
    sysfs.build(tmp_path)
    smart(tmp_path / "dev/nvme0")
    shutil.copytree(Path(host.__file__).parent, tmp_path / "code/probes/node")
    for place in [tmp_path, *tmp_path.parents]:
        if place.stat().st_mode & 0o1 == 0:
            place.chmod(0o711)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'code')!r}); "
        "from probes.node import nvme; "
        f"from probes.node.context import Context; ctx = Context({str(tmp_path)!r}); "
        "nvme.prepare(ctx); print(ctx.missing, nvme.collect(ctx)[0]['nvme0'])"
    )
    said = subprocess.run(["/usr/bin/python3", "-I", "-S", "-c", code], check=True, user=65534,
                          capture_output=True, text=True).stdout  # fmt: skip
    assert "for root only; use become" in said
    assert "used_percent" not in said
    assert f"'smart_errno': {errno.EACCES}" in said
    assert "'temp_c': 38" in said


def test_counts_beyond_64_bit_are_absent() -> None:
    page = bytearray(512)
    page[48:64] = b"\xff" * 16
    assert "written_bytes" not in nvme.health(bytes(page))


# ---------------------------------------------------------------------- mounts


def test_octal_escapes_and_optional_fields() -> None:
    (one, two) = mounts.parse(
        "36 35 98:0 /a\\040b /mnt/x\\011y\\134z rw shared:1 master:2 - ext4 /dev/s\\040a rw\n"
        "bad line\n37 35 0:9 / /q ro - nfs4 h:/e ro,addr=::1\n38 1 - x\n"
    )
    assert (one.root, one.place, one.source) == ("/a b", "/mnt/x\ty\\z", "/dev/s a")
    assert (two.read_only, two.network, two.kernel_stopped_writing) == (True, True, False)


def test_this_machines_mounts_are_those_of_findmnt(lab: Lab) -> None:
    lab.programs("findmnt", "findmnt", package="util-linux mount")
    words = ["findmnt", "--json", "--list", "--output", "TARGET,FSTYPE"]
    said = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    listed = mounts.read(Context("/"))
    assert listed is not None
    assert sorted((m.place, m.fstype) for m in listed) == sorted(
        (entry["target"], entry["fstype"]) for entry in said["filesystems"]
    )


def test_fstab_without_what_may_be_absent() -> None:
    found = mounts.fstab(
        "# /dev/a /a ext4 defaults\n/dev/b /b ext4 defaults,nofail 0 0\n/dev/c none swap sw 0 0\n"
        "/dev/d /d xfs noauto 0 0\nh:/e /e/ nfs4 ro,_netdev 0 0\n/f /f none bind 0 0\n"
        "h:/g /g\\040g nfs rw,x-systemd.automount\nh:/h /h\\040h nfs rw\nshort\n"
        "huge /dev/hugepages hugetlbfs defaults\n/dev/sr0 /cd iso9660 ro\n"
    )
    assert {place: entry.options for place, entry in found.items()} == {
        "/e": ["ro", "_netdev"], "/h h": ["rw"],
    }  # fmt: skip


def test_long_places_stay_apart() -> None:
    names = {storage.name(f"/mnt/{'x' * 300}{number}/{'y' * 60}") for number in range(9)}
    assert len(names) == 9
    assert max(map(len, names)) <= 64


def test_arrays() -> None:
    assert storage.raid(host_tree.MDSTAT) == {"md0": {"raid_level": "raid0"}}


# ---------------------------------------------------------------------- the rest


def test_secrets_of_the_command_line_stay() -> None:
    words = ["ro", "iommu=pt", "rd.luks.key=abc", "token=s3cr3t", "quiet"]
    assert kernel_setup.shown(words) == "ro iommu=pt rd.luks.key=... token=... quiet"


def test_a_question_is_what_resolvers_send() -> None:
    """RFC 1035: header without RD, labels, type A, class IN."""
    assert dns.query(b"ab", "gpu001.example.") == (
        b"ab\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06gpu001\x07example\x00\x00\x01\x00\x01"
    )


def test_servers_of_resolv_conf() -> None:
    text = "nameserver 192.0.2.1\nnameserver fe80::1%eth0\noptions ndots:1 use-vc\nnameserver\n"
    assert dns.nameservers(text) == (["192.0.2.1", "fe80::1%eth0"], True)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("", set()), ("x-1,2-y", set()), ("0-99999999999", set())],
)
def test_cpu_lists(text: str, cpus: set[int]) -> None:
    assert host_slow.cpu_range(text) == cpus
