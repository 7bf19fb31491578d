"""File systems and disks: each fault shows within two intervals, no healthy node accuses itself.

What statvfs says is real: file systems are mounted below the node's root, and the one that hangs is
a FUSE mount whose program is stopped. Only the type and server that mountinfo names are made up.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.demo import host_tree
from probes.event import Action, Severity
from tests.conftest import Lab
from tests.scenes.rig import NAME, Scene

HERE = Path(__file__).parents[1] / "payload"
FUSE = HERE / "fuse_mount.py"
SHIM = HERE / "nvme_ioctl.c"
INFO = "proc/1/mountinfo"


def line(place: str, fstype: str, source: str, options: str = "rw", *, device: str = "0:999",
         super_options: str = "rw") -> str:  # fmt: skip
    """One line of mountinfo."""
    return f"90 22 {device} / {place} {options} shared:9 - {fstype} {source} {super_options}\n"


def number(path: Path) -> str:
    """major:minor of the file system that is really there."""
    device = path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def add(scene: Scene, text: str) -> None:
    """A mount that came later than the others."""
    scene.write(INFO, (scene.root / INFO).read_text() + text)


def replace(scene: Scene, place: str, text: str) -> None:
    """Another line (or none) for a place."""
    kept = [one for one in host_tree.MOUNTS.splitlines(True) if f" {place} " not in one]
    scene.write(INFO, "".join(kept) + text)


class Mounts:
    """Real file systems below the roots of scenes; gone after the test."""

    def __init__(self) -> None:
        self.places: list[Path] = []
        self.programs: list[subprocess.Popen[str]] = []

    def tmpfs(self, place: Path, options: str) -> Path:
        """Memory that behaves as a disk of this size."""
        place.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=True)
        self.places.append(place)
        return place

    def fuse(self, place: Path) -> subprocess.Popen[str]:
        """A file system whose program can be stopped."""
        place.mkdir(exist_ok=True)
        words = [sys.executable, str(FUSE), str(place), "fuse.sshfs"]
        program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.programs.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        return program

    def end(self) -> None:
        """Unmount all."""
        for program in self.programs:
            program.send_signal(signal.SIGCONT)
            program.communicate(timeout=30)
        for place in reversed(self.places):
            subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def mounts(lab: Lab) -> Iterator[Mounts]:
    """Needs root."""
    lab.root("mounts")
    made = Mounts()
    yield made
    made.end()


@pytest.fixture
def fuse(lab: Lab, mounts: Mounts) -> Mounts:
    """Needs /dev/fuse as well."""
    lab.require("FUSE", os.access("/dev/fuse", os.R_OK | os.W_OK), "no /dev/fuse")
    return mounts


# ---------------------------------------------------------------------- file systems


def test_a_dead_server_hangs_one_mount_and_nothing_else(
    scenes: Callable[..., Scene], fuse: Mounts
) -> None:
    scene = scenes()
    program = fuse.fuse(scene.root / "data")
    server = line("/data", "nfs4", "192.0.2.40:/data", device=number(scene.root / "data"))
    replace(scene, "/data", server)
    scene.interval(2)
    assert scene.rules() == set()
    assert scene.sample("storage", "/data").values["size_bytes"] == 4_096_000
    program.send_signal(signal.SIGSTOP)
    scene.patience(1.0)
    scene.interval(2)
    assert scene.rules() == {"storage.hung"}
    assert scene.rule("storage.hung").severity is Severity.WARN
    scene.interval(2)
    hung = scene.rule("storage.hung")
    assert (hung.severity, hung.device) == (Severity.CRITICAL, "/data")
    assert "nfs4 from 192.0.2.40:/data" in hung.say
    assert "45 s" in hung.say, "since the first call that did not return, by the node's clock"
    assert scene.sample("storage", "/home").values["mounted"] is True
    program.send_signal(signal.SIGCONT)
    scene.patience(30.0)
    scene.interval(4)
    assert scene.rules() == set()
    assert "hung_s" not in scene.sample("storage", "/data").values


def test_a_users_own_fuse_mount_is_his(scenes: Callable[..., Scene], fuse: Mounts) -> None:
    scene = scenes(deadline_s=1.0)
    scene.interval()
    program = fuse.fuse(scene.root / "mine")
    add(scene, line("/mine", "fuse.sshfs", "me@there:", device=number(scene.root / "mine")))
    program.send_signal(signal.SIGSTOP)
    scene.interval(5)
    assert scene.rules() == set()
    assert scene.rule("storage.hung").severity is Severity.INFO


def test_a_fuse_program_that_died(scenes: Callable[..., Scene], fuse: Mounts) -> None:
    scene = scenes()
    program = fuse.fuse(scene.root / "data")
    server = line("/data", "fuse.juicefs", "JuiceFS:data", device=number(scene.root / "data"))
    replace(scene, "/data", server)
    scene.interval(2)
    assert scene.rules() == set()
    program.kill()
    program.wait(30)
    fuse.places.append(scene.root / "data")
    scene.interval(2)
    broken = scene.rule("storage.error")
    assert (broken.severity, broken.value) == (Severity.CRITICAL, "ENOTCONN")


def test_fstab_and_peers_miss_a_mount(scene: Scene) -> None:
    scene.interval()
    replace(scene, "/data", "")
    scene.interval(2)
    missing = scene.rule("storage.missing", "/data")
    assert missing.severity is Severity.CRITICAL
    assert "fstab wants it" in missing.say
    assert "3 of 3 other nodes" in missing.say


def test_only_peers_miss_a_mount(scene: Scene) -> None:
    scene.write("etc/fstab", "")
    scene.interval()
    replace(scene, "/scratch", "")
    scene.interval(2)
    assert scene.rule("storage.missing", "/scratch").severity is Severity.WARN


def test_only_fstab_misses_a_mount(scenes: Callable[..., Scene]) -> None:
    scene = scenes(peers=0)
    replace(scene, "/data", "")
    scene.interval(2)
    assert scene.rule("storage.missing", "/data").severity is Severity.WARN


def test_the_kernel_stops_writing(scene: Scene) -> None:
    scene.interval()
    broken = line("/scratch", "xfs", "/dev/md0", "rw,noatime", super_options="ro,attr2")
    replace(scene, "/scratch", broken)
    scene.interval(2)
    found = scene.rule("storage.read_only")
    assert (found.severity, found.action) == (Severity.CRITICAL, Action.DRAIN)
    assert "the kernel stopped writing" in found.say


@pytest.fixture
def broken_disk(lab: Lab, tmp_path: Path, mounts: Mounts) -> Callable[[Path], str]:
    """Mounts an ext4 whose kernel then meets an error; returns mountinfo's own line of it."""
    lab.programs("ext4", "mkfs.ext4", package="e2fsprogs")
    lab.require("loop devices", os.access("/dev/loop-control", os.W_OK), "no /dev/loop-control")
    image = tmp_path / "image"
    image.write_bytes(b"")
    os.truncate(image, 16 << 20)
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    env = {**os.environ, "PATH": path}
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, env=env)

    def mount(place: Path) -> str:
        place.mkdir(exist_ok=True)
        options = "loop,errors=remount-ro"
        subprocess.run(["mount", "-o", options, image, place], check=True, env=env)
        mounts.places.append(place)
        return next(one for one in Path("/proc/self/mountinfo").read_text().splitlines(True)
                    if f" {place} " in one)  # fmt: skip

    return mount


def test_a_real_kernel_stops_writing_a_real_ext4(
    scene: Scene, lab: Lab, broken_disk: Callable[[Path], str]
) -> None:
    place = scene.root / "scratch"
    healthy = broken_disk(place).replace(str(place), "/scratch")
    trigger = Path("/sys/fs/ext4") / healthy.split(" - ")[1].split()[1].rpartition("/")[2]
    lab.require("ext4 errors", (trigger / "trigger_fs_error").exists(), "sysfs is read-only here")
    replace(scene, "/scratch", healthy)
    scene.interval(2)
    assert scene.rules() == set()
    (trigger / "trigger_fs_error").write_text("test")
    said = Path("/proc/self/mountinfo").read_text().splitlines(True)
    broken = next(one for one in said if f" {place} " in one)
    replace(scene, "/scratch", broken.replace(str(place), "/scratch"))
    scene.interval(2)
    assert scene.rule("storage.read_only").severity is Severity.CRITICAL


def test_remounted_read_only_by_hand(scene: Scene) -> None:
    scene.interval()
    replace(scene, "/home", line("/home", "nfs4", "10.10.0.5:/home", "ro", super_options="ro"))
    scene.interval(2)
    found = scene.rule("storage.read_only")
    assert (found.severity, found.device) == (Severity.WARN, "/home")
    assert "fstab says rw" in found.say


@pytest.mark.parametrize(
    ("place", "used_kib", "severity"),
    [("/scratch", 900, Severity.WARN), ("/var", 980, Severity.CRITICAL),
     ("/scratch", 830, Severity.INFO), ("/boot", 980, Severity.INFO)],
)  # fmt: skip
def test_full(scene: Scene, mounts: Mounts, place: str, used_kib: int, severity: Severity) -> None:
    at = mounts.tmpfs(scene.root / place.strip("/"), "size=1024k")
    replace(scene, place, line(place, "ext4", "/dev/nvme0n1p3", device=number(at)))
    scene.interval()
    assert scene.rules() == set()
    (at / "data").write_bytes(b"x" * (used_kib << 10))
    scene.interval(2)
    found = scene.rule("storage.full")
    assert (found.severity, found.device) == (severity, place)


def test_no_inodes_left(scene: Scene, mounts: Mounts) -> None:
    at = mounts.tmpfs(scene.root / "scratch", "size=64m,nr_inodes=100")
    replace(scene, "/scratch", line("/scratch", "ext4", "/dev/md0", device=number(at)))
    scene.interval()
    for index in range(95):
        (at / str(index)).touch()
    scene.interval(2)
    assert scene.rules() == {"storage.inodes"}
    assert "of 100 inodes used" in scene.rule("storage.inodes").say


# ---------------------------------------------------------------------- disks


def test_a_raid_set_loses_a_disk(scene: Scene) -> None:
    scene.interval()
    scene.write("proc/mdstat", "Personalities : [raid1]\nmd1 : active raid1 sdb1[1](F) sda1[0]\n"
                "      976630464 blocks super 1.2 [2/1] [U_]\n"
                "      [==>..................]  recovery = 12.6% (1/9) finish=9min\n")  # fmt: skip
    scene.interval(2)
    found = scene.rule("disk.raid_degraded")
    assert "md1 (raid1): 1 of 2 disks, recovery 12.6%" in found.say


def test_a_disk_takes_seconds(scene: Scene) -> None:
    scene.interval()
    stats = (scene.root / "proc/diskstats").read_text()
    for step in (1, 2):
        slow = f"nvme2n1 {81234 + 50 * step} 0 6498720 {9120 + 60_000 * step}"
        scene.write("proc/diskstats", stats.replace("nvme2n1 81234 0 6498720 9120", slow))
        scene.interval()
    found = scene.rule("disk.slow")
    assert found.device == "nvme2n1"
    assert found.value == 1200


def test_a_busy_disk_is_no_slow_disk(scene: Scene) -> None:
    """Deep queues wait long: 3 GB/s with 800 ms each."""
    scene.interval()
    stats = (scene.root / "proc/diskstats").read_text()
    for step in (1, 2, 3):
        reads = (
            f"{81234 + 45_000 * step} 0 {6498720 + 90_000_000 * step} {9120 + 36_000_000 * step}"
        )
        scene.write("proc/diskstats", stats.replace("nvme2n1 81234 0 6498720 9120",
                                                    f"nvme2n1 {reads}"))  # fmt: skip
        scene.interval()
    assert scene.rules() == set()


def test_nvme_dead_and_hot(scene: Scene) -> None:
    scene.interval()
    scene.write("sys/class/nvme/nvme3/state", "dead\n")
    scene.write("sys/class/nvme/nvme1/hwmon1/temp1_input", "81850\n")
    scene.interval(2)
    assert scene.rules() == {"nvme.dead", "nvme.hot"}
    assert scene.rule("nvme.dead").severity is Severity.CRITICAL
    assert scene.rule("nvme.hot").device == "nvme1"


@pytest.fixture(scope="module")
def controller(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libc's ioctl with NVMe admin commands answered from NODE.log02 beside the device node."""
    lab.root("device nodes")
    lab.programs("NVMe ioctl", "cc", package="gcc libc6-dev")
    library = tmp_path_factory.mktemp("nvme") / "nvme_ioctl.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SHIM, "-ldl"], check=True)
    return library


def smart(path: Path, *, warning: int = 0, spare: int = 100, used: int = 3, media: int = 0,
          kelvin: int = 311) -> None:  # fmt: skip
    """A controller at `path` that answers with this SMART log."""
    if not path.exists():
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
    page = bytearray(512)
    struct.pack_into("<BHBBB", page, 0, warning, kelvin, spare, 10, used)
    for at, count in ((32, 123_456), (48, 654_321), (128, 8_760), (144, 17), (160, media)):
        page[at : at + 16] = count.to_bytes(16, "little")
    Path(f"{path}.log02").write_bytes(page)


@pytest.mark.parametrize(
    ("log", "rule", "severity"),
    [
        ({"warning": 0x04}, "nvme.critical_warning", Severity.CRITICAL),
        ({"warning": 0x02, "kelvin": 341}, "nvme.hot", Severity.WARN),
        ({"spare": 7, "warning": 0x01}, "nvme.spare", Severity.CRITICAL),
        ({"used": 83}, "nvme.worn", Severity.WARN),
        ({"used": 104}, "nvme.worn", Severity.WARN),
        ({"media": 12}, "nvme.media_errors", Severity.INFO),
    ],
)
def test_smart(
    scene: Scene, controller: Path, monkeypatch: pytest.MonkeyPatch, log: dict[str, int],
    rule: str, severity: Severity,
) -> None:  # fmt: skip
    monkeypatch.setenv("LD_PRELOAD", str(controller))
    smart(scene.root / "dev/nvme2")
    scene.interval()
    assert scene.sample("nvme", "nvme2").values["power_on_h"] == 8_760
    assert scene.rules() == set()
    smart(scene.root / "dev/nvme2", **log)
    scene.interval(2)
    found = scene.rule(rule)
    assert (found.severity, found.device) == (severity, "nvme2")


# ---------------------------------------------------------------------- healthy


def automounted(scene: Scene) -> None:
    """/net/home is mounted when somebody looks; looking would keep it so."""
    add(scene, "91 22 0:70 / /net rw - autofs auto.net rw,timeout=300,indirect\n")
    add(scene, line("/net/home", "nfs4", "10.10.0.5:/h", device="0:71"))


def pods(scene: Scene) -> None:
    """Kubernetes mounts hundreds of things, most of them twice."""
    for pod in range(60):
        base = f"/var/lib/kubelet/pods/{pod}/volumes"
        add(scene, line(f"{base}/nfs", "nfs4", "10.10.0.5:/pv", device=f"0:{100 + pod}"))
        add(scene, line(f"{base}/sub", "ext4", "/dev/nvme0n1p2", device="259:2"))


def images(scene: Scene) -> None:
    """Read-only and full by design."""
    add(scene, line("/snap/lxd/1", "squashfs", "/dev/loop7", "ro", super_options="ro"))
    add(scene, line("/media/cdrom0", "iso9660", "/dev/sr0", "ro", super_options="ro"))
    add(scene, line("/opt/image", "erofs", "/dev/loop8", "ro", super_options="ro"))


def diskless(scene: Scene) -> None:
    """Root in memory, software from an image, nothing in fstab."""
    scene.write("etc/fstab", "# none\n")
    scene.write(INFO, "22 1 0:2 / / rw - tmpfs rootfs rw,size=16g\n"
                "31 22 7:0 / /usr ro - squashfs /dev/loop0 ro\n"
                "32 22 0:49 / /home rw - nfs4 10.10.0.5:/home rw\n")  # fmt: skip
    for disk in range(5):
        scene.remove(f"sys/class/nvme/nvme{disk}")
        scene.remove(f"sys/block/nvme{disk}n1")
    scene.write("proc/diskstats", "")
    scene.write("proc/mdstat", "Personalities :\nunused devices: <none>\n")


def nfs_root(scene: Scene) -> None:
    """Root from a server, written to by nobody."""
    scene.write("etc/fstab", "10.0.0.1:/image / nfs ro,nolock 0 0\n")
    scene.write(INFO, "22 1 0:20 / / ro,relatime - nfs 10.0.0.1:/image ro,vers=3\n")


def read_only_by_fstab(scene: Scene) -> None:
    """Software is read only, and fstab says so."""
    scene.write("etc/fstab", f"{host_tree.FSTAB}10.10.0.7:/sw /sw nfs4 ro,_netdev 0 0\n")
    add(scene, line("/sw", "nfs4", "10.10.0.7:/sw", "ro", super_options="ro"))


def odd_names(scene: Scene) -> None:
    """Spaces and newlines in places and sources."""
    add(scene, line("/mnt/my\\040disk\\012two", "ext4", "/dev/sdb1", device="8:17"))
    add(scene, line("/mnt/" + "x" * 300, "ext4", "/dev/sdc1", device="8:33"))


def closed_to_us(scene: Scene) -> None:
    """An agent without rights: the places exist for others."""
    for place in ("data", "scratch"):
        shutil.rmtree(scene.root / place)


def nobody_sees_mounts(scene: Scene) -> None:
    """hidepid, or a container without the host's /proc."""
    scene.remove(INFO)


def resync(scene: Scene) -> None:
    """A whole array that is being checked."""
    scene.write("proc/mdstat", "Personalities : [raid1]\nmd0 : active raid1 sdb1[1] sda1[0]\n"
                "      976630464 blocks super 1.2 [2/2] [UU]\n"
                "      [==>......]  check = 12.6% (1/9) finish=9.1min\n")  # fmt: skip


def hot_without_limit(scene: Scene) -> None:
    """A disk whose maximum says that it has none (65535 K)."""
    scene.write("sys/class/nvme/nvme1/hwmon1/temp1_max", "65261850\n")
    scene.write("sys/class/nvme/nvme1/hwmon1/temp1_input", "70850\n")


@pytest.mark.parametrize(
    "change",
    [automounted, pods, images, diskless, nfs_root, read_only_by_fstab, odd_names, closed_to_us,
     nobody_sees_mounts, resync, hot_without_limit],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_healthy(scene: Scene, change: Callable[[Scene], None]) -> None:
    change(scene)
    scene.interval(4)
    assert scene.rules() == set()


def test_pods_are_not_looked_at(scene: Scene) -> None:
    pods(scene)
    scene.interval()
    assert {d for d, _ in scene.fleet.nodes[NAME].devices("storage")} == {
        "", "/", "/boot/efi", "/data", "/home", "/scratch", "md0",
    }  # fmt: skip
