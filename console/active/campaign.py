"""One campaign of active tests, from its first round to its verdicts. Both front ends drive it.

Before each part of a round the scheduler is read again, and a node that is no longer free is left
alone; a job that comes to a node in the middle of a test ends the test, not the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from console import units
from console.active import safety, store
from console.active.ask import CampaignPlan
from console.active.launch import Launcher, launcher, timed
from console.active.record import Record
from console.active.results import Campaign, Group, Localiser, Progress, Run
from console.active.rounds import Solo, rounds
from console.engine import Engine
from inventory.scheduler import Allocation
from probes.event import Event

CLEAR_S = 60.0
"""How long Slurm may take to clear up after our own job before its nodes count as busy."""
LOOK_S = 1.0


class Campaigner:
    """Runs a confirmed plan; one at a time for one state directory."""

    def __init__(
        self,
        engine: Engine,
        plan: CampaignPlan,
        *,
        kept: store.Kept | None = None,
        localiser: Localiser | None = None,
        by: Launcher | None = None,
    ) -> None:
        """`kept` is a campaign to go on with. When None, the localiser is the level's and `by`,
        which starts the runs, is as asked."""
        self.engine, self.plan = engine, plan
        self.record = Record(engine, plan, kept)
        self._localiser = localiser
        self._by = by or launcher(engine, plan.asked, f"{safety.OURS}{plan.id}")
        self._caps = safety.pools(engine.inventory.nodes)
        self._testing: dict[str, asyncio.Task[None]] = {}
        """Node under test -> the task of its run."""
        self._reasons: dict[asyncio.Task[None], str] = {}
        """Task of a run that we broke off -> why."""
        self._task: asyncio.Task[Any] | None = None
        self._stopping = False

    @property
    def campaign(self) -> Campaign:
        """All that is known now; runs also hold what waits and runs."""
        return self.record.campaign

    @property
    def eta_s(self) -> float | None:
        """Seconds that are left, from how long finished runs took; None before one is."""
        return self.record.eta_s(time.time())

    def subscribe(self, tell: Callable[[Campaign], None]) -> Callable[[], None]:
        """Be told after each change, in the event loop; call what is returned to leave."""
        self.record.listeners.append(tell)
        return lambda: self.record.listeners.remove(tell)

    def stop(self) -> None:
        """Break off; run() then returns the interrupted campaign."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> Campaign:
        """To the end. Needs the engine's sessions running beside it (ssh only).

        Cancelled, it ends what runs on the nodes, keeps what there is and raises CancelledError.
        UsageError when another campaign runs; ConsoleError when it cannot be put on record.
        """
        task = self._task = asyncio.current_task()
        assert task is not None
        with store.alone(
            self.record.folder, f"{self.plan.id} on {units.counted(len(self.plan.willing), 'node')}"
        ):
            self.record.begin()
            self.engine.taps.append(self._watch)
            try:
                async with asyncio.timeout(self.plan.at_most_s):
                    await self._rounds(await self._prepared())
            except TimeoutError:
                self.record.interrupt(f"the campaign's limit of {self.plan.at_most_s:.0f} s")
            except asyncio.CancelledError:
                self.record.interrupt("broken off")
                if not self._stopping:
                    raise
                task.uncancel()
            except BaseException:
                self.record.interrupt("an error of ours")
                raise
            finally:
                self.engine.taps.remove(self._watch)
                self.record.end()
        return self.campaign

    async def _prepared(self) -> Localiser:
        """The localiser with the nodes' past, which may take a second to read."""
        found = self._localiser
        if found is None:
            own = await asyncio.to_thread(self.engine.memory.read_own)
            found = rounds(self.engine, self.plan.asked, self.plan.willing, own)
        self.record.judge = found.verdicts
        if isinstance(found, Solo):
            self.record.told = found.told
        return found

    async def _rounds(self, localiser: Localiser) -> None:
        while True:
            groups = self.record.left() or localiser.next_round(self.record.ended)
            if not groups:
                return
            places = self.record.enter(groups)
            await self._round(dict(zip(groups, places, strict=True)))

    async def _round(self, places: dict[Group, int]) -> None:
        """One round, in as many parts as the cap makes of it."""
        parts, too_large = safety.batches(list(places), self.plan.counted, self._pool, self._caps)
        for group in too_large:
            self.record.change(
                places[group], state=Progress.REFUSED,
                error=f"more than {safety.CAP:.0%} of a pool in service at once",
            )  # fmt: skip
        for left, part in zip(range(len(parts), 0, -1), parts, strict=True):
            self.record.parts_left = left
            await self._read(names_of_groups(part))
            async with asyncio.TaskGroup() as tasks:
                for group in part:
                    task = tasks.create_task(self._one(places[group]))
                    self._testing.update(dict.fromkeys(group.nodes, task))
            self._testing.clear()
            self._reasons.clear()
            self.record.keep()

    def _pool(self, name: str) -> str:
        return self.engine.fleet.nodes[name].node.group

    async def _read(self, names: Sequence[str]) -> None:
        """What the schedulers say now; one that is clearing up after our own job is waited for."""
        until = time.monotonic() + CLEAR_S
        while True:
            await self.engine.read_schedulers()
            ours, nodes = self._claim().jobs, self.engine.fleet.nodes
            ending = ours and any(safety.ending(nodes[name].allocation, ours) for name in names)
            if not ending or time.monotonic() > until:
                return
            await asyncio.sleep(LOOK_S)

    async def _one(self, place: int) -> None:
        """One group: look again, run, write down."""
        run = self.record.runs[place]
        if why := self._no_longer(run):
            self.record.change(place, state=Progress.REFUSED, error=why)
            return
        began = time.monotonic()
        self.record.change(place, state=Progress.RUNNING, started_at=time.time())
        try:
            run = await self._by.measure(self.record.runs[place])
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            why = self._reasons.get(task, "")
            run = msgspec.structs.replace(
                self.record.runs[place], state=Progress.CANCELLED, error=why
            )
            self.record.put(place, timed(run, began))
            if not why:
                raise
            task.uncancel()
            return
        self.record.put(place, timed(run, began))

    def _no_longer(self, run: Run) -> str:
        """Why this group cannot be tested after all."""
        claim = self._claim()
        for name in run.group.nodes:
            answer = safety.judge(self.engine.fleet.nodes[name], claim)
            if answer.refused:
                return f"{name}: {answer.refused}"
            if answer.counted and name not in self.plan.counted:
                return f"{name}: back in service since this was planned"
        return ""

    def _claim(self) -> safety.Claim:
        plan = self.plan
        return safety.claim_of(plan.asked, plan.reserved, self.engine.fleet.errors, plan.id)

    def _watch(self, event: Event) -> None:
        """Somebody else's job on a node under test has the right of way."""
        if not isinstance(event, Allocation) or self.plan.asked.force:
            return
        task = self._testing.get(event.node)
        work = safety.working(event, self._claim().jobs)
        if task is not None and work and not task.done() and task not in self._reasons:
            self._reasons[task] = f"{event.node}: {work} came, so the test was broken off"
            task.cancel()


def names_of_groups(groups: Sequence[Group]) -> list[str]:
    """All nodes of these groups."""
    return [name for group in groups for name in group.nodes]


async def settled(
    engine: Engine, names: Sequence[str], claim: safety.Claim, limit_s: float
) -> None:
    """Wait until every node can say whether it may be tested, at most `limit_s`."""
    changed = asyncio.Event()

    def look(event: Event) -> None:
        changed.set()

    def waits(name: str) -> bool:
        return safety.judge(engine.fleet.nodes[name], claim).waits

    engine.taps.append(look)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while any(waits(name) for name in names):
                    changed.clear()
                    await changed.wait()
    finally:
        engine.taps.remove(look)
