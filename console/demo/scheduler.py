"""The embedded cluster's scheduler: the same protocol as Slurm, acting on the scenario's jobs.

It behaves as an operator expects of Slurm: a drained node with a job is `draining` until the job
ends, a drain without one is `drained` at once, and somebody else's reason is not ours to change.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct

from console.demo.scenario import Job, Scenario
from inventory.expressions import fold
from inventory.scheduler import MARKER, Allocation, Step
from inventory.scheduler import Job as Work

FOREIGN_AGE_S = 3 * 3600.0
"""How long ago the scenario's own drains were set."""
RAN_S = 7200.0
"""How long jobs had run when the story began."""
PARTITION = "batch"
COMMAND = "demo-scheduler"
"""First word of the commands shown; there is no such program, and the demo says so."""


class Hold(Struct, frozen=True):
    """A node taken out of work: why, by whom, since when (epoch and story seconds)."""

    reason: str
    by: str
    at: float
    story_s: float = float("-inf")


class DemoScheduler:
    """Implements inventory.scheduler.Scheduler without any program."""

    name = "demo"

    def __init__(
        self, scenario: Scenario, story_time: Callable[[], float], speed: float = 1.0
    ) -> None:
        """`story_time` gives story seconds; `speed` is story seconds per real second."""
        self.scenario = scenario
        self._story_time = story_time
        self._speed = speed
        since = time.time() - FOREIGN_AGE_S
        self._holds = {d.node: Hold(d.reason, d.by, since) for d in scenario.drains}

    async def allocations(self, names: Sequence[str] | None = None) -> list[Allocation]:
        """State of the named nodes (all when None); names it does not know are left out."""
        known = self.scenario.nodes
        wanted = known if names is None else [n for n in names if n in known]
        return [self._allocation(name) for name in wanted]

    def _allocation(self, name: str) -> Allocation:
        now, t = time.time(), self._story_time()
        jobs = tuple(
            self._work(job, now, t)
            for job in self.scenario.jobs
            if name in job.nodes and job.runs(t) and self._placed(job, name)
        )
        hold = self._holds.get(name)
        responding = not any(
            f.node == name and f.kind in ("unreachable", "silent") and f.present(t)
            for f in self.scenario.faults
        )
        base = "allocated" if jobs else "idle"
        state = base if hold is None else "draining" if jobs else "drained"
        flags = ("+DRAIN" if hold else "") + ("" if responding else "+NOT_RESPONDING")
        return Allocation(
            node=name,
            at=now,
            scheduler=self.name,
            state=state,
            raw=base.upper() + flags,
            reason=hold.reason if hold else "",
            reason_by=hold.by if hold else "",
            reason_at=hold.at if hold else None,
            partitions=(PARTITION,),
            jobs=jobs,
            responding=responding,
        )

    def _placed(self, job: Job, name: str) -> bool:
        """No job starts on a node that was already out of work."""
        hold = self._holds.get(name)
        return hold is None or job.at_s <= hold.story_s

    def _work(self, job: Job, now: float, t: float) -> Work:
        left = None if job.for_s is None else job.at_s + job.for_s - t
        ran = (t - job.at_s) / self._speed + (0.0 if job.at_s else RAN_S)
        return Work(
            id=job.id,
            user=job.user,
            name=job.name,
            nodes=len(job.nodes),
            end_at=None if left is None else now + left / self._speed,
            start_at=now - ran,
            partition=PARTITION,
        )

    def drain_commands(self, names: Sequence[str], reason: str) -> list[tuple[str, ...]]:
        """What stands for the argv of a real scheduler."""
        return [(COMMAND, "drain", fold(names), f"reason={_marked(reason)}")] if names else []

    def resume_commands(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """What stands for the argv of a real scheduler."""
        return [(COMMAND, "resume", fold(names))] if names else []

    async def drain(
        self, names: Sequence[str], reason: str, *, override: bool = False
    ) -> AsyncIterator[Step]:
        """Take nodes out of work; running jobs go on. One final Step per node."""
        for name in names:
            why = self._cannot(name) or ("" if override else self._foreign(name))
            if why:
                yield _step(name, "refused", False, why)
                continue
            command = self.drain_commands([name], reason)[0]
            by, t = getpass.getuser(), self._story_time()
            self._holds[name] = Hold(_marked(reason), by, time.time(), t)
            yield _step(name, "write", True, "drain", command)
            yield _step(name, "done", True, self._report(name))

    async def resume(self, names: Sequence[str], *, override: bool = False) -> AsyncIterator[Step]:
        """Give nodes back to work; refuses what is not drained or not drained by us."""
        for name in names:
            why = self._cannot(name)
            if not why and name not in self._holds:
                why = f"not drained: {self._allocation(name).state}"
            why = why or ("" if override else self._foreign(name))
            if why:
                yield _step(name, "refused", False, why)
                continue
            del self._holds[name]
            yield _step(name, "write", True, "resume", self.resume_commands([name])[0])
            yield _step(name, "done", True, self._report(name))

    def _cannot(self, name: str) -> str:
        return "" if name in self.scenario.nodes else "the scheduler knows no such node"

    def _foreign(self, name: str) -> str:
        hold = self._holds.get(name)
        if hold is None or hold.reason.startswith(MARKER):
            return ""
        return f"drained by {hold.by}: {hold.reason}"

    def _report(self, name: str) -> str:
        now = self._allocation(name)
        return f"{now.state} ({now.raw}) {now.reason}".strip()


def _marked(reason: str) -> str:
    return reason if reason.startswith(MARKER) else f"{MARKER} {reason}"


def _step(name: str, phase: str, ok: bool, detail: str, command: tuple[str, ...] = ()) -> Step:
    return Step(node=name, at=time.time(), phase=phase, ok=ok, detail=detail, command=command)
