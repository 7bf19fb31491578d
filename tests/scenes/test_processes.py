"""Who is on the GPUs, and who left something behind."""

from __future__ import annotations

from typing import Any

import pytest

from console.demo import sysfs
from inventory.scheduler import Allocation, Job
from probes.event import Severity
from tests.scenes.gpu_kinds import IDLE, KINDS, ahead, end, process
from tests.scenes.rig import NAME, Scene

BUS = [f"0000:{bus}:00.0" for bus in sysfs.GPU_BUSES]
FOREIGN, UNOWNED, IDLE_RULE = (
    "processes.foreign", "processes.unowned_memory", "processes.idle",
)  # fmt: skip


def scheduler(scene: Scene, state: str, *jobs: str) -> None:
    """What the scheduler says now."""
    found = tuple(Job(id=job, user="alice") for job in jobs)
    scene.fleet.apply(
        Allocation(node=NAME, at=scene.now, scheduler="slurm", state=state, jobs=found)
    )


def train(scene: Scene, gpus: int = 8, **env: Any) -> None:
    """A training job on the first GPUs."""
    for gpu in range(gpus):
        process(scene, 4000 + gpu, "python3", "train.py", **env)
        scene.gpu(gpu, procs=[[4000 + gpu, 69000]], util=97)


def stop(scene: Scene, gpus: int = 8) -> None:
    for gpu in range(gpus):
        end(scene, 4000 + gpu)
        scene.gpu(gpu, procs=[], **IDLE)


def test_memory_of_a_dead_job_names_the_job(scene: Scene) -> None:
    train(scene, SLURM_JOB_ID="4711")
    scene.interval(2)
    assert scene.rules() == set()
    stop(scene)
    scene.gpu(3, mem_used_mib=41000)
    scene.interval()
    assert scene.rules() == set(), "the driver may still be giving it back"
    scene.interval()
    found = scene.rule(UNOWNED)
    assert (found.device, found.severity) == (BUS[3], Severity.WARN)
    assert "40.0 GiB in use without an owner" in found.say
    assert "left by python3 train.py of job 4711" in found.say
    assert "pid 4003" in found.say


def test_memory_whose_owner_was_never_seen_names_the_schedulers_job(scene: Scene) -> None:
    scheduler(scene, "allocated", "4711")
    scene.gpus(**IDLE)
    scene.gpu(3, mem_used_mib=41000)
    scheduler(scene, "idle")
    scene.interval(3)
    assert "the scheduler's last job here: 4711 (alice)" in scene.rule(UNOWNED).say


def test_nobody_knows_whose_it_was(scene: Scene) -> None:
    scene.gpus(**IDLE)
    scene.gpu(3, mem_used_mib=41000)
    scene.interval(3)
    assert "not known" in scene.rule(UNOWNED).say


def test_a_dead_process_that_the_driver_lists(scene: Scene) -> None:
    scene.gpus(**IDLE)
    scene.interval()
    scene.gpu(3, procs=[[888, 9900]], mem_used_mib=10200, util=100)
    scene.interval(2)
    found = scene.rule(UNOWNED)
    assert found.device == BUS[3]
    assert any("pid 888 is listed and dead" in line for line in found.evidence)


def test_a_dead_process_beside_a_live_one_is_information(scene: Scene) -> None:
    process(scene, 4000, "python3", "train.py")
    scene.gpu(0, procs=[[4000, 50000], [888, 9900]])
    scene.interval(3)
    assert "pid 888" in scene.rule("processes.dead").say
    assert scene.rules() == set()


@pytest.mark.parametrize("kind", ["mig", "confidential", "vgpu_host", "vgpu_guest", "grace"])
def test_memory_that_processes_cannot_explain(scene: Scene, kind: str) -> None:
    KINDS[kind](scene)
    scene.interval(3)
    assert UNOWNED not in scene.rules()


def test_a_busy_gpu_whose_process_is_not_shown(scene: Scene) -> None:
    scene.gpus(procs=[], util=97, mem_used_mib=70000)
    scene.interval(3)
    assert UNOWNED not in scene.rules()


def test_hidden_processes_leave_no_riddle(scene: Scene) -> None:
    scene.remove("proc/1/stat")
    scene.gpus(**{**IDLE, "mem_used_mib": 41000})
    scene.interval(3)
    assert scene.rules() == set()


def test_work_on_an_idle_node_is_foreign(scene: Scene) -> None:
    scheduler(scene, "idle")
    scene.interval()
    train(scene, 2, SLURM_JOB_ID="4711")
    scene.interval(2)
    found = scene.rule(FOREIGN)
    assert found.severity is Severity.WARN
    assert "job 4711" in found.say
    assert "67.4 GiB on GPU0" in " ".join(found.evidence)


@pytest.mark.parametrize(
    ("command", "mib", "util", "severity"),
    [
        ("python3", 300, 0, Severity.INFO),
        ("python3", 300, 30, Severity.WARN),
        ("python3", 9000, 0, Severity.WARN),
        ("/usr/bin/dcgm-exporter", 300, 0, None),
        ("/usr/bin/nvidia-persistenced", 300, 0, None),
        ("/usr/lib/xorg/Xorg", 300, 0, None),
    ],
)
def test_foreign_by_evidence(
    scene: Scene, command: str, mib: int, util: int, severity: Severity | None
) -> None:
    scheduler(scene, "idle")
    scene.gpus(**IDLE)
    scene.interval()
    process(scene, 77, command)
    scene.gpu(5, procs=[[77, mib]], mem_used_mib=mib + 4, util=util)
    scene.interval(2)
    found = [f for f in scene.findings() if f.rule == FOREIGN]
    assert [f.severity for f in found] == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("state", "age_s"), [("allocated", 1000), ("drained", 1000), ("idle", 20), (None, 1000)]
)
def test_work_that_is_not_foreign(scene: Scene, state: str | None, age_s: float) -> None:
    """A job has it, an operator tests a drained node, it began just now, or who knows."""
    if state is not None:
        scheduler(scene, state, *(["4711"] if state == "allocated" else []))
    scene.gpus(**IDLE)
    process(scene, 77, "python3", "x.py", age_s=age_s)
    scene.gpu(5, procs=[[77, 9000]], mem_used_mib=9004)
    scene.interval(3)
    assert scene.rules() == set()


def test_a_job_that_has_just_ended_may_clean_up(scene: Scene) -> None:
    scheduler(scene, "allocated", "4711")
    train(scene, 2, SLURM_JOB_ID="4711")
    scene.interval()
    scheduler(scene, "idle")
    scene.interval(3)
    assert scene.rules() == set()
    scene.interval(8)
    assert "job 4711" in scene.rule(FOREIGN).say


def test_a_gpu_that_is_held_and_idle_is_information(scene: Scene) -> None:
    scheduler(scene, "allocated", "4711")
    process(scene, 77, "python3", "notebook.py")
    scene.gpu(5, procs=[[77, 60000]], util=0)
    scene.interval()
    ahead(scene, 700)
    scene.interval(2)
    found = scene.rule(IDLE_RULE)
    assert (found.device, found.severity) == (BUS[5], Severity.INFO)
    assert "python3 notebook.py" in found.say
    assert "holds 58.6 GiB" in found.say


def test_nobody_logged_in(scene: Scene) -> None:
    scheduler(scene, "idle")
    KINDS["idle"](scene)
    scene.interval()
    ahead(scene, 7000)
    scene.interval(2)
    assert scene.rules() == set()
    assert [f for f in scene.findings() if f.rule.startswith("processes.")] == []


def test_a_mount_of_secrets_never_leaves(scene: Scene) -> None:
    process(scene, 77, "python3", "x.py", WANDB_API_KEY="hunter2", SLURM_JOB_ID="1")
    scene.gpu(5, procs=[[77, 60000]])
    scene.interval()
    rows: list[dict[str, Any]] = scene.sample("processes").rows
    assert "hunter2" not in str(rows)
    assert rows[0]["job"] == "1"
