"""Services, versions, containers and modules, read by old and new Pythons from hostile files."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

from console.demo import sysfs
from console.demo.services_tree import DAEMONS, PACKAGES, cdi, dpkg
from tests.probes_node.rig import Machine

PROBES = ("services", "modules", "versions", "containers")


def ask(machine: Machine, probe: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Device "" and rows of one answer."""
    with machine.session() as session:
        answer = session.ask(op="collect", probe=probe)
    return answer["devices"][""], answer["rows"]


def write(machine: Machine, path: str, content: str | bytes) -> None:
    sysfs.write(machine.root, path, content)


def test_a_healthy_node(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    values, words = ask(each_machine, "versions")
    assert (values["driver"], values["fabricmanager"]) == ("580.95.05", "580.95.05")
    assert (values["nccl"], values["cuda_toolkit"]) == ("2.27.3", "12.9.1")
    assert (values["slurm"], values["dcgm"], values["ofed"]) == ("24.11.5", "4.4.1", "24.10")
    assert (values["cpu_count"], values["numa_nodes"], values["nvswitches"]) == (112, 2, 4)
    assert [row["word"] for row in words] == [
        "console=tty0", "iommu=pt", "pci=realloc=off", "ro",
    ]  # fmt: skip
    _, services = ask(each_machine, "services")
    assert {row["service"]: row["running"] for row in services} == dict.fromkeys(
        ("fabricmanager", "persistenced", "dcgm", "slurmd", "munge", "containerd", "chronyd"), True
    )
    modules, _ = ask(each_machine, "modules")
    assert (modules["nvidia_peermem"], modules["knem"], modules["dmabuf"]) == (True, False, False)
    containers, files = ask(each_machine, "containers")
    assert (containers["containerd_nvidia"], containers["containerd_default"]) == (True, "nvidia")
    assert containers["cdi_minors"] == "0,1,2,3,4,5,6,7"
    assert files == [{"file": "/etc/cdi/nvidia.yaml", "cdi_driver": "580.95.05"}]


def test_an_empty_node_invents_nothing(each_machine: Machine) -> None:
    for probe in PROBES:
        values, rows = ask(each_machine, probe)
        assert rows == []
        numbers = {k: v for k, v in values.items() if not isinstance(v, bool | str)}
        assert numbers in ({}, {"cdi_specs": 0}), probe


@pytest.mark.parametrize("path", [
    "proc/modules", "proc/cmdline", "proc/cpuinfo", "proc/meminfo", "var/lib/dpkg/status",
    "etc/ld.so.cache", "etc/docker/daemon.json", "etc/containerd/config.toml", "etc/cdi/x.yaml",
    "sys/devices/system/cpu/online", "sys/devices/system/node/has_cpu", "proc/1/comm",
    "proc/driver/nvidia/version", "proc/sys/kernel/osrelease", "etc/os-release",
    "var/lib/rpm/rpmdb.sqlite", "usr/local/cuda/version.json",
])  # fmt: skip
@pytest.mark.parametrize("content", [b"\xff\xfe\x00" * 5000, b"1-", b"[" * 70_000, b"=\n:\n\n"])
def test_garbage_in_any_file_costs_nothing_else(
    path: str, content: bytes, machine: Machine
) -> None:
    write(machine, path, content)
    with machine.session() as session:
        for probe in PROBES:
            answer = session.ask(op="collect", probe=probe)
            assert answer["devices"].keys() == {""}
            assert len(str(answer)) < 60_000


# ---------------------------------------------------------------------- packages


def test_packages_across_blocks_of_a_long_status_file(each_machine: Machine) -> None:
    filler = "Package: filler{}\nStatus: install ok installed\nVersion: 1\nDescription: {}\n\n"
    text = "".join(filler.format(n, "x" * 200) for n in range(9000))
    write(each_machine, "var/lib/dpkg/status", text[:-1] + "\n" + dpkg(PACKAGES).rstrip("\n"))
    values, _ = ask(each_machine, "versions")
    assert values["fabricmanager"] == "580.95.05"
    assert values["dcgm"] == "4.4.1"


def test_a_removed_package_is_not_installed(machine: Machine) -> None:
    status = dpkg({"nvidia-fabricmanager-580": "580.95.05-1"})
    gone = status.replace("install ok installed", "deinstall ok config-files")
    write(machine, "var/lib/dpkg/status", gone)
    assert "fabricmanager" not in ask(machine, "versions")[0]


def test_development_files_are_not_the_fabric_manager(machine: Machine) -> None:
    packages = {"nvidia-fabricmanager-dev-580": "1.2-1", "libnccl-dev": "2.1.1"}
    write(machine, "var/lib/dpkg/status", dpkg(packages))
    values, _ = ask(machine, "versions")
    assert not {"fabricmanager", "nccl"} & values.keys()


def header(name: str, version: str) -> bytes:
    """An rpm header with two strings: counts, index entries (tag, type, offset, count), data."""
    data = name.encode() + b"\0" + version.encode() + b"\0"
    index = struct.pack(">IIII", 1000, 6, 0, 1)
    index += struct.pack(">IIII", 1001, 6, len(name) + 1, 1)
    return struct.pack(">II", 2, len(data)) + index + data


def rpm(path: Path, blobs: dict[str, bytes]) -> None:
    """A database with the two tables that are read, as rpm 4.16 and later makes them."""
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL)")
        database.execute("CREATE TABLE Name (key TEXT NOT NULL, hnum INTEGER, idx INTEGER)")
        for number, (name, blob) in enumerate(blobs.items(), 1):
            database.execute("INSERT INTO Packages VALUES (?, ?)", (number, blob))
            database.execute("INSERT INTO Name VALUES (?, ?, 0)", (name, number))
    database.close()


def test_an_rpm_database(each_machine: Machine) -> None:
    names = {"nvidia-fabricmanager": "570.124.06", "slurm-slurmd": "24.05.4", "bash": "5.1"}
    blobs = {name: header(name, version) for name, version in names.items()}
    blobs["nvidia-broken"] = struct.pack(">II", 1 << 30, 0) + b"x" * 40
    rpm(each_machine.root / "var/lib/rpm/rpmdb.sqlite", blobs)
    values, _ = ask(each_machine, "versions")
    assert (values["fabricmanager"], values["slurm"]) == ("570.124.06", "24.05.4")
    folder = each_machine.root / "var/lib/rpm"
    assert [path.name for path in folder.iterdir()] == ["rpmdb.sqlite"]


def test_nccl_where_the_loaders_cache_says(machine: Machine) -> None:
    write(machine, "etc/ld.so.cache", b"glibc-ld.so.cache1.1\0\0/opt/nccl/lib/libnccl.so.2\0/x\0")
    link = machine.root / "opt/nccl/lib/libnccl.so.2"
    link.parent.mkdir(parents=True)
    link.symlink_to("libnccl.so.2.19.4")
    assert ask(machine, "versions")[0]["nccl"] == "2.19.4"


# ---------------------------------------------------------------------- command line, containers


def test_words_that_differ_by_nature_or_hold_secrets_stay(each_machine: Machine) -> None:
    own = "BOOT_IMAGE=/vmlinuz root=UUID=1 rd.luks.uuid=2 ip=dhcp hostname=n1 rd.lvm.lv=vg/a"
    secret = "token=abc ks=http://h/x user@host"
    write(each_machine, "proc/cmdline", f"{own} {secret} isolcpus=1-3 quiet\n")
    _, rows = ask(each_machine, "versions")
    assert [row["word"] for row in rows] == ["isolcpus=1-3", "quiet"]


def test_docker_and_crio(each_machine: Machine) -> None:
    write(each_machine, "etc/docker/daemon.json", '{"default-runtime": "nvidia", "runtimes": '
          '{"nvidia": {"path": "nvidia-container-runtime"}}}')  # fmt: skip
    write(each_machine, "etc/crio/crio.conf.d/99.conf", "[crio.runtime]\ndefault_runtime = "
          '"crun"\n[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/x"\n')  # fmt: skip
    values, _ = ask(each_machine, "containers")
    assert (values["docker_nvidia"], values["docker_default"]) == (True, "nvidia")
    assert (values["crio_nvidia"], values["crio_default"]) == (True, "crun")
    assert "containerd_nvidia" not in values


def test_a_commented_runtime_is_none(machine: Machine) -> None:
    text = '#  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
    write(machine, "etc/containerd/config.toml", text)
    assert ask(machine, "containers")[0]["containerd_nvidia"] is False


def test_cdi_as_json_and_of_other_vendors(machine: Machine) -> None:
    write(machine, "run/cdi/a.json", '{"kind": "nvidia.com/gpu", "devices": [{"name": "0", '
          '"containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}]}')  # fmt: skip
    write(machine, "etc/cdi/b.yaml", cdi(range(3)).replace("nvidia.com/gpu", "amd.com/gpu"))
    values, rows = ask(machine, "containers")
    assert (values["cdi_specs"], values["cdi_minors"]) == (1, "0")
    assert [row["file"] for row in rows] == ["/run/cdi/a.json"]


# ---------------------------------------------------------------------- processes


def test_a_name_of_15_letters_that_is_another_program(machine: Machine) -> None:
    """The kernel cuts names: nv-fabricmanager and nv-fabricmanagement are one to it."""
    write(machine, "proc/77/comm", "nv-fabricmanage\n")
    write(machine, "proc/77/cmdline", "/opt/nv-fabricmanagement\0")
    assert ask(machine, "services")[1] == []


def test_without_kernel_threads_the_host_is_not_seen(each_machine: Machine) -> None:
    write(each_machine, "proc/1/comm", "python3\n")
    assert ask(each_machine, "services")[0]["sees_processes"] is False
    write(each_machine, "proc/2/comm", f"{DAEMONS[2]}\n")
    assert ask(each_machine, "services")[0]["sees_processes"] is True


def test_a_unit_with_two_names_and_an_old_systemd(
    each_machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block for both names, no NRestarts (before systemd 235), an answer cut in the middle."""
    (each_machine.root / "run/systemd/system").mkdir(parents=True)
    script = tmp_path / "systemctl"
    script.write_text(
        "#!/bin/sh\nprintf 'Id=chrony.service\\nNames=chronyd.service chrony.service\\n"
        "LoadState=loaded\\nActiveState=active\\nSubState=running\\n\\nId=slurmd.service\\n"
        "LoadState=loaded\\nActiveState=failed\\nResult=exit-code\\n\\nId=mun'\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    values, rows = ask(each_machine, "services")
    found = {row["service"]: (row["unit"], row["running"], row.get("result")) for row in rows}
    assert found == {
        "chronyd": ("chrony.service", True, None), "slurmd": ("slurmd.service", False, "exit-code"),
    }  # fmt: skip
    assert not [name for name in values if name.startswith("restarts_")]
