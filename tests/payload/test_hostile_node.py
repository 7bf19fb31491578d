"""The real agent on nodes that mean no good: FIFOs for files, secrets in odd places, huge files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from console.demo import sysfs
from probes.catalog import PROBES
from probes.node import mounts
from tests.payload.rig import AgentProcess, Frame, config, kind
from tests.probes_node.rig import Machine
from tests.probes_node.test_with_agent import shimmed

SECRET = "hunter2"
ODD = (
    "var/log/fabricmanager.log", "var/log/wtmp", "var/lib/dpkg/status", "etc/ld.so.cache",
    "usr/lib/sysimage/rpm/rpmdb.sqlite", "var/lib/rpm/rpmdb.sqlite", "etc/containerd/config.toml",
    "etc/docker/daemon.json", "etc/cdi/nvidia.yaml", "etc/fstab", "etc/resolv.conf", "dev/nvme0",
    "usr/local/cuda/version.json", "proc/1/mountinfo", "proc/mdstat", "proc/diskstats",
    "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data",
)  # fmt: skip


@pytest.fixture
def each_machine(tmp_path: Path, node_python: str) -> Machine:
    made = Machine(tmp_path / "node", node_python)
    sysfs.build(made.root, hostname="n")
    return made


def one_pass(machine: Machine, **changes: Any) -> list[Frame]:
    """All frames of a pass of every probe; every probe has answered and none failed."""
    settings = config(*PROBES, mode="pass", root=str(machine.root), window_s=0.2, **changes)
    with AgentProcess(settings, python=shimmed(machine)) as agent:
        frames = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
        assert agent.errors == b""
    assert [f for f in frames if f["k"] in ("err", "hung")] == []
    assert {f["p"] for f in frames if f["k"] == "s"} == set(PROBES)
    return frames


def test_a_fifo_hangs_no_probe_and_nobody_reads_from_it(each_machine: Machine) -> None:
    release = (each_machine.root / "proc/sys/kernel/osrelease").read_text().strip()
    for name in (*ODD, f"boot/config-{release}"):
        path = each_machine.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    log = os.open(each_machine.root / ODD[0], os.O_RDWR)
    os.write(log, b"for somebody else\n")
    one_pass(each_machine)
    assert os.read(log, 100) == b"for somebody else\n"
    os.close(log)


def test_loops_and_folders_in_place_of_files(each_machine: Machine) -> None:
    for number, path in enumerate(each_machine.root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            path.unlink()
            if number % 2:
                path.mkdir()
            else:
                path.symlink_to(path.name)
    one_pass(each_machine)


def process(root: Path, pid: int, title: bytes) -> None:
    sysfs.process(root, pid, ("x",))
    (root / f"proc/{pid}/cmdline").write_bytes(title)
    (root / f"proc/{pid}/environ").write_bytes(f"PASSWORD={SECRET}\0".encode())


def test_no_secret_leaves_the_node(each_machine: Machine) -> None:
    root = each_machine.root
    titles = [f"--password={SECRET}\0", f"python3 train.py --token {SECRET}\0", f"A={SECRET}\0x\0",
              f"python3\0-c\0{SECRET}\0", f"postgres: joe {SECRET} idle\0\0\0"]  # fmt: skip
    for number, title in enumerate(titles):
        process(root, 7000 + number, title.encode())
    each_machine.gpu(0, procs=[[7000 + number, 500] for number in range(len(titles))])
    files = {
        "proc/cmdline": f'ro rd.luks.key="my {SECRET} phrase" ipmi.pw={SECRET} rootpw={SECRET} '
        f"api.token={SECRET} url=http://u:{SECRET}@h/ psk={SECRET} iommu=pt\n",
        "etc/docker/daemon.json": f'{{"runtimes": {{"nvidia": {{}}}}, "auth": "{SECRET}"}}',
        "etc/containerd/config.toml": f'[x.auth]\npassword = "{SECRET}"\n',
        "etc/fstab": f"//joe:{SECRET}@nas/share /cifs cifs password={SECRET} 0 0\n",
    }
    for name, text in files.items():
        sysfs.write(root, name, text)
    with open(root / "proc/1/mountinfo", "a") as table:
        table.write(f"900 1 0:90 / /dav rw - fuse.rclone https://joe:{SECRET}@h/x rw\n")
        table.write(f"901 1 0:91 / /s3 rw - fuse.s3fs s3://AKIA:{SECRET}/@bucket?k={SECRET} rw\n")
    said = json.dumps(one_pass(each_machine))
    assert "iommu=pt" in said
    assert "//nas/share" in said
    assert "s3://bucket" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    "source",
    ["192.0.2.1:/data", "server:/a@b", "[fd00::1]:/x", "10.0.0.1@tcp:10.0.0.2@tcp:/scratch",
     "user@host:/x", "admin@fsid.cephfs=/", "192.0.2.1:6789,192.0.2.2:6789:/", "/dev/sda1",
     "//server/share"],
)  # fmt: skip
def test_a_source_without_a_login_stays_as_it_is(source: str) -> None:
    assert mounts.public(source) == source


def test_a_crowd_and_huge_files(each_machine: Machine) -> None:
    """5,000 processes, 500 of them asleep in the kernel, 300 mounts, sparse files of gigabytes."""
    root = each_machine.root
    for pid in range(20_000, 25_000):
        sysfs.process(root, pid, ("x",), state="D" if pid < 20_500 else "S")
    with open(root / "proc/1/mountinfo", "a") as table:
        line = "{0} 1 0:{0} / /data/{0} rw - nfs4 s:/x rw\n"
        table.writelines(line.format(number) for number in range(900, 1200))
    for name in ("var/log/wtmp", "etc/ld.so.cache", "etc/containerd/config.toml",
                 "var/lib/rpm/rpmdb.sqlite"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with open(root / name, "wb") as file:
            file.truncate(1 << 30)
    frames = one_pass(each_machine)
    (tasks,) = [f for f in frames if f["k"] == "s" and f["p"] == "tasks"]
    assert tasks["d"][""]["uninterruptible"] == 500
    (storage,) = [f for f in frames if f["k"] == "s" and f["p"] == "storage"]
    assert storage["d"][""]["mounts"] == 48
