"""A job on the node that waits for one rank, stands, or has become slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from probes.event import Severity
from tests.ras_port import HOSTS, RasPort, comm, missing, on_node, rank, status
from tests.scenes.gpu_kinds import ahead, process
from tests.scenes.rig import Scene

WAITING = {"util": 100, "power_w": 150, "mem_util": 2}
RANKS = 16
"""Eight here, eight on a node that is not in the inventory."""


@pytest.fixture
def port() -> Iterator[RasPort]:
    with ExitStack() as stack:
        yield stack.enter_context(RasPort())


def train(scene: Scene, port: RasPort) -> None:
    """Eight ranks of a job whose port is on this node."""
    for gpu in range(8):
        process(scene, 4000 + gpu, "python3", "train.py", state="R", SLURM_JOB_ID="48211",
                RANK=str(gpu), NCCL_RAS_ADDR=f"localhost:{port.port}")  # fmt: skip
        scene.gpu(gpu, procs=[[4000 + gpu, 69000]], util=97)
    on_node(scene.root, port.port, range(4000, 4008), own=HOSTS[:1])


def looks(scene: Scene, port: RasPort, count: int, pace: int, late: int | None = None) -> None:
    """Intervals pass; `pace` collectives in each, and this rank is one behind."""
    for _ in range(count):
        done = 600 + round(scene.clock) * pace
        ranks = [rank(index, done - (index == late)) for index in range(RANKS)]
        port.answer = status(comm(ranks))
        scene.interval()


def test_a_job_that_moves_is_no_finding(scene: Scene, port: RasPort) -> None:
    train(scene, port)
    looks(scene, port, 6, pace=4)
    assert scene.rules() == set()


def test_the_rank_that_the_others_wait_for(scene: Scene, port: RasPort) -> None:
    train(scene, port)
    scene.gpus(**WAITING)
    looks(scene, port, 12, pace=2, late=3)
    found = scene.rule("job.late_rank")
    assert (found.severity, found.label) == (Severity.WARN, "GPU3")
    assert "job 48211 waits for rank 3 (gpu001 GPU3, pid 4003)" in found.say
    looks(scene, port, 30, pace=2)
    assert "job.late_rank" not in scene.rules(), "it has caught up"


def test_a_job_that_stands(scene: Scene, port: RasPort) -> None:
    train(scene, port)
    scene.gpus(**WAITING)
    looks(scene, port, 3, pace=2)
    process(scene, 4005, "python3", "train.py", state="D", SLURM_JOB_ID="48211",
            NCCL_RAS_ADDR=f"localhost:{port.port}")  # fmt: skip
    scene.write("proc/4005/wchan", "rpc_wait_bit_killable")
    looks(scene, port, 6, pace=0, late=5)
    ahead(scene, 100)  # it has not run meanwhile
    looks(scene, port, 6, pace=0, late=5)
    found = scene.rule("job.hang")
    assert (found.severity, found.label) == (Severity.CRITICAL, "GPU5")
    assert "rank 5 (gpu001 GPU5, pid 4005) is 1 behind" in found.say
    assert any("in rpc_wait_bit_killable" in line for line in found.evidence)
    assert found.action.value == "restart_app", "never a drain"


def test_a_dead_rank_on_another_node(scene: Scene, port: RasPort) -> None:
    train(scene, port)
    ranks = [rank(index, 900) for index in range(RANKS - 1)]
    port.answer = status(comm(ranks, [missing(15, dead=True)]))
    scene.interval(12)
    found = scene.rule("job.hang")
    assert found.severity is Severity.CRITICAL
    assert f"rank 15 ({HOSTS[1]}, not in this inventory GPU7, pid 4007) is dead" in found.say


def test_a_port_that_answers_no_more_is_no_hang(scene: Scene, port: RasPort) -> None:
    train(scene, port)
    looks(scene, port, 4, pace=2)
    port.manners = "closes"
    scene.interval(20)
    assert not {rule for rule in scene.rules() if rule.startswith("job.")}


def test_steps_that_become_slower(scene: Scene) -> None:
    for gpu in range(8):
        process(scene, 4000 + gpu, "python3", "train.py", state="R", SLURM_JOB_ID="48211")
        scene.gpu(gpu, procs=[[4000 + gpu, 69000]], util=97)
    for look in range(1, 30):
        slow = look > 18
        for gpu in range(8):
            comm_s = 0.2 if gpu == 6 or not slow else 0.5
            scene.write(
                f"dev/shm/gpuconsole.step.48211.{gpu}",
                f"step={look * 20} t_total={1.3 if slow else 1.0} t_data=0.1 t_comm={comm_s}\n",
            )
            _ours(scene, gpu)
        scene.interval()
    found = scene.rule("job.slow_step")
    assert "compute on rank 6, for which the others wait" in found.say


def _ours(scene: Scene, gpu: int) -> None:
    """The file belongs to the job's user, who is whoever runs this test."""
    import os

    owner = (scene.root / f"dev/shm/gpuconsole.step.48211.{gpu}").stat().st_uid
    path = scene.root / f"proc/{4000 + gpu}/status"
    path.write_text(path.read_text().replace("Uid:\t1000", f"Uid:\t{owner}"))
    assert owner == os.getuid()
