"""The site's nccl-tests through Slurm: `srun` from this machine, one job for each run.

One task for each GPU, as MPI builds of nccl-tests are run; on a single node one task drives them
all, which needs no MPI. Slurm bounds the job by `--time`, and gives up when the nodes are not free
within IMMEDIATE_S instead of queueing behind somebody's work.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from console.active.ask import START_S, Asked
from console.active.child import follow
from console.active.measured import run_of
from console.active.printed import Printed, flags
from console.active.results import Group, Progress, Run
from inventory.expressions import fold
from inventory.run import LocalRun

if TYPE_CHECKING:
    from console.engine import Engine
    from inventory.node import Node

IMMEDIATE_S = 30
CANCEL_S = 10.0
"""For scancel; a controller that hangs must not hold us."""
DEFAULT_GPUS = 8


class BySrun:
    """See launch.Launcher."""

    def __init__(self, engine: Engine, asked: Asked, jobs: str) -> None:
        """`jobs` begins the names of the jobs."""
        self._engine, self._asked, self._jobs = engine, asked, jobs
        self._count = 0

    def lacking(self, node: Node, asked: Asked) -> str:
        """See Launcher."""
        if (node.scheduler or "").partition("@")[0] != "slurm":
            return f"--launch srun is for Slurm; group {node.group} has {node.scheduler or 'none'}"
        if asked.engine == "torch":
            return "--launch srun runs nccl-tests; torch runs through --launch ssh"
        return "" if node.nccl_tests else f"nccl_tests is not set for group {node.group}"

    async def measure(self, run: Run) -> Run:
        """See Launcher."""
        from console.active.launch import gpu_count

        self._count += 1
        name = f"{self._jobs}-{self._count}"
        nodes = [self._engine.fleet.nodes[n].node for n in run.group.nodes]
        gpus = {node.name: gpu_count(self._engine, node.name) for node in nodes}
        words = argv(run.group, nodes, self._asked, gpus, name)
        printed, over = Printed(), False
        try:
            limit_s = self._asked.run_s + START_S + IMMEDIATE_S
            rc, over = await follow(words, environment(nodes), printed.feed, limit_s)
        except OSError as error:
            return run_of(run, (), Progress.FAILED, f"srun: {error.strerror}")
        except BaseException:
            await self._cancel(name, nodes[0])
            raise
        if over:
            await self._cancel(name, nodes[0])
            return run_of(run, (), Progress.TIMED_OUT, f"no end within {limit_s:g} s")
        return self._read(run, printed, name, rc)

    def _read(self, run: Run, printed: Printed, name: str, rc: int) -> Run:
        samples = printed.samples(run.group, name, rc, time.time())
        if len(run.group.nodes) == 1:
            for sample in samples:
                self._engine.feed(sample)
        error = printed.trouble(rc)
        if "TIME LIMIT" in printed.tail or "time limit" in printed.tail:
            return run_of(run, samples, Progress.TIMED_OUT, error)
        return run_of(run, samples, Progress.FAILED if error else Progress.DONE, error)

    async def _cancel(self, name: str, node: Node) -> None:
        """Whatever became of srun: no job of this name goes on."""
        with contextlib.suppress(OSError):
            await LocalRun()(("scancel", *_cluster(node), f"--name={name}"), CANCEL_S)


def argv(
    group: Group, nodes: Sequence[Node], asked: Asked, gpus: Mapping[str, int], name: str
) -> tuple[str, ...]:
    """The exact command. Pure."""
    first = nodes[0]
    # Unknown without an agent there and without the inventory's word.
    each = min((gpus.get(node.name) or DEFAULT_GPUS) for node in nodes)
    alone = len(nodes) == 1
    tasks = 1 if alone or group.rail is not None else each
    words = [
        "srun",
        *_cluster(first),
        f"--job-name={name}",
        f"--nodelist={fold([node.scheduled_as for node in nodes])}",
        f"--nodes={len(nodes)}",
        f"--ntasks-per-node={tasks}",
        f"--gres=gpu:{each}",
        f"--time={math.ceil(asked.run_s / 60)}",
        f"--immediate={IMMEDIATE_S}",
        "--exclusive", "--mem=0", "--cpu-bind=none", "--kill-on-bad-exit=1",
        "--unbuffered",
    ]  # fmt: skip
    for option, value in (
        ("reservation", asked.reservation),
        ("partition", asked.partition),
        ("mpi", asked.mpi),
        ("container-image", first.test_image or ""),
    ):
        if value:
            words.append(f"--{option}={value}")
    words += first.test_command
    if group.rail is not None:
        # Slurm sets the variable for each task anew, so it is set behind it.
        words += ["env", f"CUDA_VISIBLE_DEVICES={group.rail}"]
    on_each = each if alone and group.rail is None else 1
    return (
        *words,
        first.nccl_tests or "all_reduce_perf",
        *flags(asked.min_bytes, asked.max_bytes, on_each),
    )


def environment(nodes: Sequence[Node]) -> dict[str, str]:
    """What srun passes on beside the operator's own environment: the group's test_env. Pure."""
    return dict(nodes[0].test_env)


def _cluster(node: Node) -> tuple[str, ...]:
    cluster = (node.scheduler or "").partition("@")[2]
    return ("-M", cluster) if cluster else ()
