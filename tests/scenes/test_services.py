"""Services, containers and modules: each fault is found, each way of having none is no fault."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.demo import services_tree, tools
from console.demo.services_tree import UNITS, units
from inventory.scheduler import Allocation
from probes.event import Severity
from tests.scenes.rig import NAME, Scene

Make = Callable[..., Scene]
FABRIC = "nvidia-fabricmanager.service"
FAILED = {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}
DEAD = {"ActiveState": "inactive", "SubState": "dead"}
PIDS = {program: pid for pid, program in services_tree.DAEMONS.items()}


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The simulated node's systemctl comes first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    words = shlex.join([sys.executable, "-I", "-S", tools.__file__, "systemctl"])
    script = folder / "systemctl"
    script.write_text(f'#!/bin/sh\nexec {words} {tmp_path}/scene0/node "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return script


def stop(scene: Scene, program: str) -> None:
    scene.remove(f"proc/{PIDS[program]}")


def change(scene: Scene, unit: str, program: str, properties: dict[str, str] | None) -> None:
    """systemd's view of one unit, whose process is gone."""
    scene.write(UNITS, units({unit: properties}))
    stop(scene, program)


def ours(scene: Scene) -> set[str]:
    """Rules above info about services, containers and modules; others are tested elsewhere."""
    return {rule for rule in scene.rules() if rule.startswith(OURS)}


def severity(scene: Scene, rule: str) -> Severity:
    return scene.rule(rule).severity


# ---------------------------------------------------------------------- what systemd says


def test_units_are_read_from_systemd_in_one_call(systemd: Path, scenes: Make) -> None:
    scene = scenes(peers=0)
    scene.write(UNITS, units({"slurmd.service": {"NRestarts": "3"}}))
    scene.interval()
    sample = scene.sample("services")
    rows = {str(row["service"]): row for row in sample.rows}
    assert sample.values["manager"] == "systemd"
    assert rows["slurmd"]["unit"] == "slurmd.service"
    assert rows["slurmd"]["state"] == "active"
    assert rows["slurmd"]["started_s"] == 31.0
    assert sample.values["restarts_slurmd"] == 3
    assert "kubelet" not in rows
    assert ours(scene) == set()


def test_a_failed_fabric_manager_without_registered_gpus(systemd: Path, scenes: Make) -> None:
    scene = scenes().interval()
    scene.gpus(fabric=[1, 0])
    change(scene, FABRIC, "nv-fabricmanager", FAILED)
    said = "fabric manager NVIDIA GPU driver interface version 580.82.07 don't match with driver"
    scene.write("var/log/fabricmanager.log", f"{'x' * 99_999}\n{said}\n[INFO] bye\n")
    scene.interval(2)
    found = scene.rule("service.fabricmanager")
    assert found.evidence[2] == f"fabricmanager.log: {said}"
    assert found.severity is Severity.CRITICAL
    assert found.action == "restart_service"
    assert "failed (exit-code)" in found.evidence[0]
    assert "4 NVSwitches, 8 GPUs" in found.evidence[1]


def test_a_stopped_fabric_manager_whose_gpus_are_registered(systemd: Path, scenes: Make) -> None:
    scene = scenes().interval()
    change(scene, FABRIC, "nv-fabricmanager", DEAD)
    scene.interval(2)
    assert severity(scene, "service.fabricmanager") is Severity.WARN
    assert "service.missing" not in scene.rules()  # told once


def test_fabric_manager_found_missing_without_systemd(scenes: Make) -> None:
    scene = scenes()
    shutil.rmtree(scene.root / "run/systemd")
    scene.interval()
    stop(scene, "nv-fabricmanager")
    scene.interval(2)
    assert scene.sample("services").values["manager"] == "proc"
    assert "service.fabricmanager" in scene.rules()


def test_slurmd_failed(systemd: Path, scenes: Make) -> None:
    scene = scenes(scheduler="slurm").interval()
    change(scene, "slurmd.service", "slurmd", FAILED)
    scene.interval(2)
    assert severity(scene, "service.slurm") is Severity.CRITICAL
    assert scene.rule("service.slurm").device == "slurmd"
    assert "service.failed" not in scene.rules()  # told once


def test_munge_stopped(systemd: Path, scenes: Make) -> None:
    scene = scenes(scheduler="slurm").interval()
    change(scene, "munge.service", "munged", DEAD)
    scene.interval(2)
    assert scene.rule("service.slurm").device == "munge"


def test_an_installed_munge_that_nobody_enabled_is_not_needed(systemd: Path, scenes: Make) -> None:
    """Slurm's own authentication (auth/slurm) goes without it."""
    scene = scenes(scheduler="slurm", peers=0)
    change(scene, "munge.service", "munged", {**DEAD, "UnitFileState": "disabled"})
    scene.interval(2)
    assert ours(scene) == set()


def test_slurmd_stopped_on_a_drained_node_is_meant(systemd: Path, scenes: Make) -> None:
    scene = scenes(scheduler="slurm").interval()
    drained = Allocation(node=NAME, at=scene.now, scheduler="slurm", state="drained", raw="DRAINED")
    scene.fleet.apply(drained)
    change(scene, "slurmd.service", "slurmd", DEAD)
    scene.interval(2)
    assert "service.slurm" not in scene.rules()


def test_a_crashed_service_of_any_kind(systemd: Path, scenes: Make) -> None:
    scene = scenes(peers=0).interval()
    change(scene, "nvidia-dcgm.service", "nv-hostengine", FAILED)
    scene.interval(2)
    assert severity(scene, "service.failed") is Severity.WARN
    assert scene.rule("service.failed").label == "dcgm"


def test_a_kubelet_that_is_enabled_and_does_not_run(systemd: Path, scenes: Make) -> None:
    scene = scenes(peers=0).interval()
    scene.write(UNITS, units({"kubelet.service": DEAD}))
    scene.interval(2)
    assert "enabled and does not run" in scene.rule("service.failed").say


def test_a_kubelet_that_is_not_enabled_need_not_run(systemd: Path, scenes: Make) -> None:
    scene = scenes(peers=0).interval()
    scene.write(UNITS, units({"kubelet.service": {**DEAD, "UnitFileState": "disabled"}}))
    scene.interval(2)
    assert ours(scene) == set()


def test_what_the_peers_run_is_missed(scenes: Make) -> None:
    scene = scenes().interval()
    stop(scene, "nv-hostengine")
    scene.interval(2)
    found = scene.rule("service.missing")
    assert found.severity is Severity.WARN
    assert "runs on 3 of 3 other nodes" in found.say


IMEX = {"nvidia-imex.service": FAILED, FABRIC: None}


def test_imex_of_a_rack(systemd: Path, scenes: Make) -> None:
    scene = scenes(peers=0)
    rack(scene)
    scene.interval()
    scene.write(UNITS, units(IMEX))
    scene.interval(2)
    assert scene.rule("service.failed").label == "imex"
    assert severity(scene, "service.failed") is Severity.WARN


def test_imex_has_nothing_to_do_without_a_rack(systemd: Path, scenes: Make) -> None:
    scene = scenes(peers=0).interval()
    scene.write(UNITS, units({"nvidia-imex.service": FAILED}))
    scene.interval(2)
    assert severity(scene, "service.failed") is Severity.INFO


def test_a_restart_loop(systemd: Path, scenes: Make) -> None:
    scene = scenes(peers=0).interval()
    scene.write(UNITS, units({"nvidia-dcgm.service": {"NRestarts": "4"}}))
    scene.interval()
    scene.write(UNITS, units({"nvidia-dcgm.service": {"NRestarts": "9"}}))
    scene.interval()
    found = scene.rule("service.restarts")
    assert (found.severity, found.value) == (Severity.WARN, 9)
    assert "restarted 5 times in 15 s, 9 in all" in found.say


def test_restarts_of_an_earlier_day_are_none(systemd: Path, scenes: Make) -> None:
    scene = scenes(peers=0)
    scene.write(UNITS, units({"nvidia-dcgm.service": {"NRestarts": "400"}}))
    scene.interval(3)
    assert ours(scene) == set()


def test_a_fabric_manager_of_another_version(scenes: Make) -> None:
    scene = scenes().interval()
    packages = {**services_tree.PACKAGES, "nvidia-fabricmanager-580": "580.82.07-1"}
    scene.write("var/lib/dpkg/status", services_tree.dpkg(packages))
    scene.interval(2)
    found = scene.rule("service.fabricmanager_version")
    assert found.say == "fabric manager 580.82.07 does not fit driver 580.95.05"


def test_systemd_that_never_answers_costs_four_seconds_and_hides_nothing(
    systemd: Path, scenes: Make
) -> None:
    scene = scenes(peers=0)
    systemd.write_text("#!/bin/sh\nexec sleep 60\n")
    scene.interval()
    sample = scene.sample("services")
    assert sample.values["systemctl_timeout"] is True
    assert {"slurmd", "munge"} <= {row["service"] for row in sample.rows}
    assert ours(scene) == set()
    scene.interval()
    found = scene.rule("service.systemd_silent")
    assert found.say == "systemd does not answer"
    assert found.evidence == ("systemctl show did not answer in 4 s",)


def test_what_systemctl_prints_is_bounded(systemd: Path, scenes: Make) -> None:
    scene = scenes(peers=0)
    systemd.write_text("#!/bin/sh\nexec yes Id=slurmd.service\n")
    scene.interval()
    assert len(str(scene.sample("services").rows)) < 10_000


# ---------------------------------------------------------------------- containers and modules


def test_a_runtime_that_the_peers_have(scenes: Make) -> None:
    scene = scenes().interval()
    scene.write("etc/containerd/config.toml", "version = 2\n")
    scene.interval(2)
    assert scene.rule("container.setup").device == "containerd_nvidia"


def test_an_engine_that_lost_its_configuration(scenes: Make) -> None:
    scene = scenes().interval()
    scene.remove("etc/containerd/config.toml")
    scene.interval(2)
    found = scene.rule("container.setup")
    assert "no configuration; 3 of 3 other nodes" in found.evidence[0]


def test_a_runtime_in_a_drop_in_counts(scenes: Make) -> None:
    scene = scenes().interval()
    scene.write("etc/containerd/config.toml", 'imports = ["/etc/containerd/conf.d/*.toml"]\n')
    scene.write("etc/containerd/conf.d/99-nvidia.toml", services_tree.CONTAINERD)
    scene.interval(2)
    assert ours(scene) == set()


def test_an_engine_without_its_socket(scenes: Make) -> None:
    scene = scenes().interval()
    scene.remove("run/containerd/containerd.sock")
    scene.interval(2)
    assert scene.rule("container.setup").device == "containerd_socket"


def test_a_cdi_specification_of_the_driver_before(scenes: Make) -> None:
    scene = scenes().interval()
    scene.write("etc/cdi/nvidia.yaml", services_tree.cdi(range(8), "570.124.06"))
    scene.interval(2)
    found = scene.rule("container.cdi")
    assert found.say == "CDI names driver 570.124.06, 580.95.05 is loaded"


def test_a_cdi_specification_that_lacks_a_gpu(scenes: Make) -> None:
    scene = scenes().interval()
    scene.write("etc/cdi/nvidia.yaml", services_tree.cdi(range(7)))
    scene.interval(2)
    assert "CDI names 7 of 8 GPUs, not GPU7" in scene.rule("container.cdi").say


def without(name: str) -> str:
    modules = [module for module in services_tree.MODULES if module != name]
    return "".join(f"{module} 16384 1 - Live 0x0\n" for module in modules)


def test_peermem_is_missed_where_there_is_no_other_way(scenes: Make) -> None:
    scene = scenes().interval()
    scene.write("proc/modules", without("nvidia_peermem"))
    scene.interval(2)
    found = scene.rule("gdr.missing")
    assert "8 GPUs to 8 RDMA ports" in found.say
    assert "loaded on 3 of 3 other nodes" in found.evidence[0]


def test_peermem_is_not_needed_with_dmabuf(scenes: Make) -> None:
    scene = scenes()
    scene.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for "
                "x86_64  580.95.05\n")  # fmt: skip
    scene.interval()
    scene.write("proc/modules", without("nvidia_peermem"))
    scene.interval(2)
    assert scene.sample("modules").values["dmabuf"] is True
    assert ours(scene) == set()
    assert scene.rule("module.missing").severity is Severity.INFO


def test_another_module_that_peers_have_is_information(scenes: Make) -> None:
    scene = scenes().interval()
    scene.write("proc/modules", without("gdrdrv"))
    scene.interval(2)
    assert ours(scene) == set()
    assert scene.rule("module.missing").label == "gdrdrv"


def test_only_known_module_names_leave_the_node(scenes: Make) -> None:
    scene = scenes(peers=0)
    scene.write("proc/modules", without("") + "secret_project 16384 0 - Live 0x0\n")
    scene.interval()
    assert "secret_project" not in str(scene.sample("modules"))


# ---------------------------------------------------------------------- healthy in other ways


def no_systemd(scene: Scene) -> None:
    """Another init system; its daemons are processes."""
    shutil.rmtree(scene.root / "run/systemd")


def container(scene: Scene) -> None:
    """An agent in a container sees its own processes only, and no systemd."""
    no_systemd(scene)
    for pid in services_tree.DAEMONS:
        scene.remove(f"proc/{pid}")


def kubernetes(scene: Scene) -> None:
    """kubelet and CRI-O, no Slurm; fabric manager runs in the driver's container."""
    for program in ("slurmd", "munged"):
        stop(scene, program)
    changed: dict[str, dict[str, str] | None] = {
        "kubelet.service": {}, "crio.service": {}, "slurmd.service": None, "munge.service": None,
        FABRIC: None,
    }  # fmt: skip
    scene.write(UNITS, units(changed))


def slurm_only(scene: Scene) -> None:
    """No container engine of any kind."""
    stop(scene, "containerd")
    scene.write(UNITS, units({"containerd.service": None}))
    shutil.rmtree(scene.root / "etc/containerd")
    shutil.rmtree(scene.root / "run/containerd")
    shutil.rmtree(scene.root / "etc/cdi")


def no_nvswitch(scene: Scene) -> None:
    """PCIe cards: fabric manager is installed, has nothing to do, and says so by failing."""
    for bus in ("07", "08", "09", "0a"):
        scene.remove(f"sys/bus/pci/devices/0000:{bus}:00.0")
    scene.gpus(links=0, fabric=None)
    change(scene, FABRIC, "nv-fabricmanager", FAILED)


def rack(scene: Scene) -> None:
    """GB200: GPUs are registered by the switch tray's fabric manager, none runs here."""
    no_nvswitch(scene)
    scene.gpus(links=18, fabric=[3, 0, 0, 5, "ab" * 16])
    scene.write(UNITS, units({FABRIC: None}))


def virtual(scene: Scene) -> None:
    """A guest without DMI, cgroup, NUMA, package database."""
    for path in ("sys/class/dmi", "sys/fs", "sys/devices/system/node", "var/lib/dpkg", "boot"):
        shutil.rmtree(scene.root / path, ignore_errors=True)


def old_kernel(scene: Scene) -> None:
    """RHEL 7: systemd without NRestarts."""
    plain = {"NRestarts": "", "ExecMainStartTimestampMonotonic": "0"}
    scene.write(UNITS, units(dict.fromkeys(services_tree.RUNNING, plain)))


def just_booted(scene: Scene) -> None:
    """Services still start."""
    scene.clock = 60.0
    scene.write("proc/uptime", "60.0 0.0\n")
    change(scene, FABRIC, "nv-fabricmanager", {"ActiveState": "activating", "SubState": "start"})


OURS = ("service.", "container.", "module.", "gdr.", "drift.", "site.")
HEALTHY = (
    no_systemd, container, kubernetes, slurm_only, no_nvswitch, rack, virtual, old_kernel,
    just_booted,
)  # fmt: skip


@pytest.mark.parametrize("variant", HEALTHY, ids=lambda variant: variant.__name__)
@pytest.mark.parametrize("peers", [0, 3])
def test_nothing_above_info(
    variant: Callable[[Scene], None], peers: int, systemd: Path, scenes: Make
) -> None:
    settings: dict[str, Any] = {} if variant is kubernetes else {"scheduler": "slurm"}
    scene = scenes(peers=peers, **settings)
    variant(scene)
    scene.interval(4)
    above = [f for f in scene.findings() if f.severity.rank > Severity.INFO.rank]
    assert [f.say for f in above if f.rule.startswith(OURS)] == []
