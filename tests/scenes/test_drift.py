"""A node drifts away from its peers: real probes read what changed, the console names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from console.demo import services_tree, sysfs
from probes.event import Severity
from probes.rules import load_rules
from tests.scenes.rig import NAME, Scene

Make = Callable[..., Scene]
OURS = ("drift.", "site.")


def ours(scene: Scene) -> set[str]:
    return {rule for rule in scene.rules() if rule.startswith(OURS)}


def driver(scene: Scene) -> None:
    """An unattended upgrade before the reboot that follows it."""
    scene.state["driver"] = "570.124.06"
    scene.save()


def nccl(scene: Scene) -> None:
    """Another libnccl."""
    link = scene.root / "usr/lib/x86_64-linux-gnu/libnccl.so.2"
    link.unlink()
    link.symlink_to("libnccl.so.2.21.5")


def firmware(scene: Scene) -> None:
    """One adapter was exchanged; another agent than before reads it."""
    scene.write("sys/class/infiniband/mlx5_3/fw_ver", "28.36.1010\n")
    assert scene._session is not None
    scene._session.__exit__()
    scene._session = None


def cpus(scene: Scene) -> None:
    """A socket is off."""
    scene.write("sys/devices/system/cpu/online", "0-55\n")


def memory(scene: Scene) -> None:
    """Two DIMMs were mapped out."""
    total = sysfs.MEMORY_KIB * 7 // 8
    scene.write("proc/meminfo", f"MemTotal: {total} kB\nMemAvailable: {total // 2} kB\n")


def numa(scene: Scene) -> None:
    """NPS or sub-NUMA clustering was changed in the BIOS."""
    scene.write("sys/devices/system/node/has_cpu", "0-7\n")


def nvswitch(scene: Scene) -> None:
    """One of four left the bus."""
    scene.remove("sys/bus/pci/devices/0000:08:00.0")


@pytest.mark.parametrize(
    ("change", "rule", "says"),
    [
        (driver, "drift.node", "driver 570.124.06; 580.95.05 on 3 of 4 nodes"),
        (nccl, "drift.node", "NCCL 2.21.5; 2.27.3 on 3 of 4 nodes"),
        (firmware, "drift.nic_firmware", "firmware 28.36.1010; 28.39.3560 on 31 of 32 ports"),
        (cpus, "drift.node", "CPUs 56; 112 on 3 of 4 nodes"),
        (memory, "drift.node", "memory 1763.2 GiB; 2015.1 GiB on 3 of 4 nodes"),
        (numa, "drift.node", "NUMA nodes 8; 2 on 3 of 4 nodes"),
        (nvswitch, "drift.node", "NVSwitches 3; 4 on 3 of 4 nodes"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_breaks_jobs_warns(
    change: Callable[[Scene], None], rule: str, says: str, scene: Scene
) -> None:
    scene.interval()
    change(scene)
    scene.interval(2)
    said = [f.say for f in scene.findings() if f.rule == rule and f.severity is Severity.WARN]
    assert any(says in one for one in said), said


def kernel(scene: Scene) -> None:
    scene.write("proc/sys/kernel/osrelease", "5.15.0-160-generic\n")


def bios(scene: Scene) -> None:
    scene.write("sys/class/dmi/id/bios_version", "2.6\n")


def toolkit(scene: Scene) -> None:
    packages = {**services_tree.PACKAGES, "nvidia-container-toolkit": "1.16.2-1"}
    scene.write("var/lib/dpkg/status", services_tree.dpkg(packages))


def sysctl(scene: Scene) -> None:
    scene.write("proc/sys/vm/zone_reclaim_mode", "1\n")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (kernel, "kernel 5.15.0-160-generic; 5.15.0-157-generic on 3 of 4 nodes"),
        (bios, "BIOS 2.6; 2.5a on 3 of 4 nodes"),
        (toolkit, "container toolkit 1.16.2; 1.17.8 on 3 of 4 nodes"),
        (sysctl, "vm.zone_reclaim_mode 1; 0 on 3 of 4 nodes"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_other_differences_inform(change: Callable[[Scene], None], says: str, scene: Scene) -> None:
    scene.interval()
    change(scene)
    scene.interval(2)
    assert ours(scene) == set()
    assert says in scene.rule("drift.node").say


def test_the_odd_gpu(scene: Scene) -> None:
    scene.interval()
    scene.gpu(5, vbios="96.00.74.00.01")
    scene.interval(2)
    found = scene.rule("drift.gpu")
    assert (found.severity, found.label) == (Severity.INFO, "GPU5")
    assert "VBIOS 96.00.74.00.01" in found.say
    assert "on 31 of 32 GPUs" in found.say


def test_the_kernel_command_line_as_words(scene: Scene) -> None:
    scene.interval()
    scene.write("proc/cmdline", "console=tty0 root=UUID=other BOOT_IMAGE=/else ro iommu=off "
                "pci=realloc=off hostname=x\n")  # fmt: skip
    scene.interval(2)
    found = scene.rule("drift.cmdline")
    assert found.severity is Severity.INFO
    assert "lacks iommu=pt and has iommu=off, unlike" in found.say


def test_a_rolling_upgrade_half_way_is_a_split(scene: Scene) -> None:
    scene.interval()
    driver(scene)
    kernel(scene)
    scene.interval()
    for probe in ("inventory", "versions"):
        scene.fleet.apply(structs.replace(scene.sample(probe), node="gpu002"))
    scene.interval(2)
    assert ours(scene) == set()
    said = [f.say for f in scene.findings() if f.rule == "drift.split"]
    halves = ("580.95.05 on gpu[003-004]", "570.124.06 on gpu[001-002]")
    assert any("over driver" in one and all(half in one for half in halves) for one in said)


def test_serial_numbers_and_secrets_stay_on_the_node(scene: Scene) -> None:
    scene.write("sys/class/dmi/id/product_serial", "S3CR3T-1\n")
    scene.write("proc/cmdline", "ro rd.iscsi.password=S3CR3T-2 ks=http://x/S3CR3T-3\n")
    scene.interval()
    assert "S3CR3T" not in str(scene.sample("versions"))


def test_a_node_that_lacks_what_the_site_expects(tmp_path: Path, scenes: Make) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("roles:\n  compute: {ib_ports: 8, services: [dcgm]}\n")
    scene = scenes(hcas=7, peers=0)
    scene.fleet.rules = load_rules(path)
    scene.remove("proc/1203")
    scene.interval(2)
    said = {f.say for f in scene.findings() if f.rule == "site.expected"}
    assert said == {
        "7 RDMA ports; site overlay says 8",
        "service dcgm does not run; site overlay says it runs",
    }
    assert scene.fleet.nodes[NAME].node.role == "compute"


def test_a_vm_whose_files_are_not_there_does_not_drift(scene: Scene) -> None:
    """What a node does not show is not compared."""
    scene.interval()
    for path in ("sys/class/dmi", "var/lib/dpkg", "proc/cmdline", "sys/devices/system/node"):
        scene.remove(path)
    scene.interval(3)
    assert ours(scene) == set()
