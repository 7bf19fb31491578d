"""Slurm: which nodes it has, what it says about them, and how it takes them out of work and back.

Reads are one `scontrol show nodes` and one `squeue` for the whole cluster, side by side. Writes are
`scontrol update` as argv. Neither trusts an exit status alone: `scontrol update` of a list drains
the nodes it knows and answers rc 1 because of one that it does not (seen on 22.05), so every
outcome is what the next read shows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct

from inventory.errors import SchedulerError, UsageError
from inventory.expressions import fold, in_order, natural_key
from inventory.nearest import nearest
from inventory.node import Inventory
from inventory.run import Run
from inventory.scheduler import MARKER, Allocation, Scheduler, Step, step
from inventory.slurm_errors import command_failed, is_about_all
from inventory.slurm_judge import (
    NOT_KNOWN,
    allocation,
    describe,
    inventory_node,
    judge_drain,
    judge_resume,
)
from inventory.slurm_read import TIMEOUT_S, SlurmReader
from inventory.slurm_reason import reason_text
from inventory.slurm_text import SlurmNode
from inventory.source import Source

CHUNK = 1000
"""Nodes in one update; keeps `NodeName=` far below the 128 KiB Linux allows one argument."""


class _Goal(Struct, frozen=True):
    """What a write is for: its State= word, and what shows that it worked."""

    word: str
    reached: Callable[[SlurmNode], bool]


_DRAIN = _Goal("DRAIN", lambda node: node.state.drain and node.reason.startswith(MARKER))
_RESUME = _Goal("RESUME", lambda node: not node.state.drain and node.state.base != "DOWN")


class Slurm(Scheduler, Source):
    """The Slurm cluster that this machine's client commands talk to."""

    def __init__(self, run: Run, cluster: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """`cluster` picks one of several that share an accounting database (`-M`)."""
        self._reader = SlurmReader(run, cluster, timeout_s)
        self.name = f"slurm@{cluster}" if cluster else "slurm"

    async def allocations(self, names: Sequence[str] | None = None) -> list[Allocation]:
        """State and jobs of the named nodes, in that order (all, in natural order, when None).

        A name that Slurm does not know gets state "unknown". Raises SchedulerError when Slurm
        cannot be asked; no answer is never an empty cluster.
        """
        seen = await self._reader.snapshot()
        wanted = sorted(seen.nodes, key=natural_key) if names is None else names
        return [allocation(name, seen) for name in wanted]

    async def inventory(self, selector: str = "") -> Inventory:
        """The nodes of the cluster, or of a partition: `selector` is [PARTITION][@CLUSTER].

        UsageError for an unknown partition.

        Roles are GPU model and count as Slurm has them (`h100x8`), so that like is compared with
        like; the group is the first partition, and all are in the label "partitions".
        """
        partition, _, cluster = selector.partition("@")
        if cluster:
            self._reader = SlurmReader(self._reader.run, cluster, self._reader.timeout_s)
            self.name = f"slurm@{cluster}"
        nodes = await self._reader.nodes()
        listed = [node for node in nodes.values() if node.state.base != "FUTURE"]
        if partition:
            partitions = sorted({name for node in listed for name in node.partitions})
            if partition not in partitions:
                raise UsageError(
                    f"Slurm has no partition {partition!r}",
                    where=f"slurm:{selector}",
                    instead=nearest(partition, partitions),
                )
            listed = [node for node in listed if partition in node.partitions]
        made = (inventory_node(node, partition, self.name) for node in listed)
        return Inventory(
            nodes=tuple(sorted(made, key=lambda node: natural_key(node.name))),
            cluster=await self._reader.cluster_name(),
            source=f"slurm:{selector}",
        )

    def drain_commands(self, names: Sequence[str], reason: str) -> list[tuple[str, ...]]:
        """The exact argv drain() runs for nodes that carry nobody else's reason. Pure."""
        return self._commands(in_order(names), _DRAIN, reason_text(reason))

    def resume_commands(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """The exact argv resume() runs. Pure."""
        return self._commands(in_order(names), _RESUME, "")

    async def drain(
        self, names: Sequence[str], reason: str, *, override: bool = False
    ) -> AsyncIterator[Step]:
        """Drain gracefully: running jobs go on, no new ones start.

        Each name ends with a Step done, failed or refused. Somebody else's drain or reason is
        refused; with `override` it is kept inside ours.
        """
        wanted = in_order(names)
        try:
            before = await self._reader.nodes()
        except SchedulerError as error:
            for name in wanted:
                yield step(name, "failed", str(error), ok=False)
            return
        batches: dict[str, list[str]] = {}
        for name in wanted:
            told, text = judge_drain(name, before.get(name), reason, override=override)
            yield told
            if told.phase == "check":
                batches.setdefault(text, []).append(name)
        async for told in self._write(batches, _DRAIN):
            yield told

    async def resume(self, names: Sequence[str], *, override: bool = False) -> AsyncIterator[Step]:
        """Give drained nodes back to Slurm; drains that are not ours alone need `override`."""
        wanted = in_order(names)
        try:
            before = await self._reader.nodes()
        except SchedulerError as error:
            for name in wanted:
                yield step(name, "failed", str(error), ok=False)
            return
        ready: list[str] = []
        for name in wanted:
            told = judge_resume(name, before.get(name), override=override)
            yield told
            if told.phase == "check":
                ready.append(name)
        async for told in self._write({"": ready}, _RESUME):
            yield told

    async def _write(self, batches: dict[str, list[str]], goal: _Goal) -> AsyncIterator[Step]:
        """Write each batch at once, then the nodes that it left behind one by one; read; tell."""
        reasons = {name: reason for reason, names in batches.items() for name in names}
        if not reasons:
            return
        errors: dict[str, SchedulerError] = {}
        for reason, names in batches.items():
            async for told in self._update(names, goal, reason, errors):
                yield told
        behind = await self._left_behind(errors, goal)
        for name in behind:
            del errors[name]
            async for told in self._update([name], goal, reasons[name], errors):
                yield told
        async for told in self._outcome(sorted(reasons, key=natural_key), goal, errors):
            yield told

    async def _update(
        self, names: Sequence[str], goal: _Goal, reason: str, errors: dict[str, SchedulerError]
    ) -> AsyncIterator[Step]:
        """Run the updates for these nodes; what Slurm says against one goes into `errors`."""
        for start in range(0, len(names), CHUNK):
            chunk = names[start : start + CHUNK]
            for command in self._commands(chunk, goal, reason):
                done = await self._reader.run(command, self._reader.timeout_s)
                error = command_failed(done) if done.rc != 0 else None
                for name in chunk:
                    if error:
                        errors[name] = error
                    yield step(name, "write", str(error or ""), ok=not error, command=command)

    async def _left_behind(self, errors: dict[str, SchedulerError], goal: _Goal) -> list[str]:
        """Nodes worth a try of their own: their list failed, not Slurm, and they are not there."""
        hopeful = [name for name, error in errors.items() if not is_about_all(error)]
        if len(hopeful) < 2:
            return []
        try:
            now = await self._reader.nodes()
        except SchedulerError:
            return []
        return [name for name in hopeful if name in now and not goal.reached(now[name])]

    async def _outcome(
        self, names: Sequence[str], goal: _Goal, errors: dict[str, SchedulerError]
    ) -> AsyncIterator[Step]:
        """What Slurm shows now, one final Step a node."""
        try:
            after = await self._reader.snapshot()
        except SchedulerError as error:
            for name in names:
                why = errors.get(name) or f"written, but its state cannot be read again: {error}"
                yield step(name, "failed", str(why), ok=False)
            return
        for name in names:
            node = after.nodes.get(name)
            if node is not None and goal.reached(node):
                yield step(name, "done", describe(node, after.jobs.get(name, [])))
            else:
                now = describe(node, []) if node else NOT_KNOWN
                why = errors.get(name) or "Slurm took the command without effect"
                yield step(name, "failed", f"{why}; now {now}", ok=False)

    def _commands(self, names: Sequence[str], goal: _Goal, reason: str) -> list[tuple[str, ...]]:
        said = (f"Reason={reason}",) if reason else ()
        scontrol = ("scontrol", *self._reader.which, "update")
        chunks = [names[i : i + CHUNK] for i in range(0, len(names), CHUNK)]
        return [
            (
                *scontrol,
                f"NodeName={fold(chunk, last_number_only=True)}",
                f"State={goal.word}",
                *said,
            )
            for chunk in chunks
        ]
