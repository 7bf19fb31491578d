"""Asking Slurm: one `scontrol show nodes` and one `squeue` for the whole cluster."""

from __future__ import annotations

import asyncio
import re
import time

from msgspec import Struct

from inventory.errors import SchedulerError
from inventory.run import Completed, Run
from inventory.scheduler import Job
from inventory.slurm_errors import command_failed
from inventory.slurm_text import SQUEUE_FORMAT, SlurmNode, clean, read_jobs, read_nodes

TIMEOUT_S = 20.0
"""For one command. A stopped munged blocks clients for ever; Slurm's own MessageTimeout is 10 s."""

# Settings of the operator's shell that would hide jobs or change how times are printed.
_FILTERS = ("ACCOUNT", "LICENSES", "NAMES", "PARTITION", "PRIORITY", "QOS", "STATES", "USERS")
_UNSET = (*(f"SQUEUE_{name}" for name in _FILTERS), "SLURM_TIME_FORMAT")
_CLEAN_ENV = ("env", *(word for name in _UNSET for word in ("-u", name)))
_RUNNING = "RUNNING,COMPLETING,CONFIGURING,SUSPENDED"


class Snapshot(Struct, frozen=True):
    """One reading of the cluster, by node name."""

    nodes: dict[str, SlurmNode]
    jobs: dict[str, list[Job]]
    at: float
    """Epoch seconds before the reading began."""


class SlurmReader:
    """Reads the cluster that this machine's client commands talk to."""

    def __init__(self, run: Run, cluster: str | None, timeout_s: float) -> None:
        """`cluster` is for `-M`; `timeout_s` bounds each command."""
        self.run = run
        self.which = ("-M", cluster) if cluster else ()
        self.timeout_s = timeout_s

    async def snapshot(self) -> Snapshot:
        """Nodes and jobs, read side by side. Raises SchedulerError."""
        at = time.time()
        nodes, jobs = await asyncio.gather(self.nodes(), self.jobs(), return_exceptions=True)
        # The nodes' error first: it says more often what is wrong.
        for answer in (nodes, jobs):
            if isinstance(answer, BaseException):
                raise answer
        assert isinstance(nodes, dict)
        assert isinstance(jobs, dict)
        return Snapshot(nodes, jobs, at)

    async def nodes(self) -> dict[str, SlurmNode]:
        """All nodes, also of hidden partitions. No nodes at all is an error, not an answer."""
        done = await self._ask("scontrol", "-a", "show", "nodes")
        # Off the loop: 5,000 nodes take 0.16 s of CPU, and a screen may be waiting for a key.
        read = await asyncio.to_thread(read_nodes, done.stdout)
        nodes = {node.name: node for node in read if node.name}
        if not nodes:
            words = clean(done.stdout or done.stderr)[:80] or "no output"
            raise SchedulerError(f"Slurm names no nodes ({words})", "check: sinfo")
        return nodes

    async def jobs(self) -> dict[str, list[Job]]:
        """Node -> jobs that hold it now. Other users' are absent where the site hides them."""
        shown = ("-h", "-a", "--local", "-t", _RUNNING, "-o", SQUEUE_FORMAT)
        return await asyncio.to_thread(read_jobs, (await self._ask("squeue", *shown)).stdout)

    async def cluster_name(self) -> str:
        """ClusterName of slurm.conf; "" when it cannot be had."""
        argv = ("scontrol", *self.which, "show", "config")
        done = await self.run(argv, self.timeout_s)
        match = re.search(r"^ClusterName\s*=\s*(\S+)", done.stdout, re.MULTILINE)
        return match[1] if match else ""

    async def _ask(self, program: str, *arguments: str) -> Completed:
        argv = (*_CLEAN_ENV, program, *self.which, *arguments)
        done = await self.run(argv, self.timeout_s)
        if done.rc != 0:
            raise command_failed(done, program)
        return done
