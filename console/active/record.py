"""The book of one campaign: its runs, what they say, the file they lie in, who is told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from console.active import known, store
from console.active.ask import CampaignPlan
from console.active.results import Campaign, Confidence, Group, Progress, Run, Verdict
from console.engine import Engine
from inventory.errors import ConsoleError
from inventory.expressions import fold
from inventory.scheduler import Plan, step
from probes.event import Severity, worst

log = logging.getLogger(__name__)

OPEN = (Progress.WAITING, Progress.RUNNING, Progress.CANCELLED)
"""States of a run that is still to be done when a campaign goes on."""
RUNS_STILL = (Progress.WAITING, Progress.RUNNING)
RECENT = 1024
"""Runs that tell how long one takes: two rounds of 512 nodes in pairs, twice over."""
KEEP_SHARE = 10.0
"""Judging and writing take a tenth of the time at most: 130,000 runs of a full round robin on 512
nodes are then written less often than after each."""


class Record:
    """What is known so far. Nothing here talks to a node."""

    def __init__(self, engine: Engine, plan: CampaignPlan, kept: store.Kept | None) -> None:
        """`kept` is a campaign that goes on: what ended in it is not run again."""
        self.folder = engine.state / "tests"
        self.listeners: list[Callable[[Campaign], None]] = []
        self.trouble = ""
        """What went wrong with judging or keeping it."""
        self.parts_left = 0
        self.judge: Callable[[Sequence[Run]], list[Verdict]] = lambda runs: []
        """What the runs say; the localiser's, once there is one."""
        self.told: Callable[[Sequence[Run]], Sequence[Run]] = lambda runs: runs
        """The same runs, their readings with what was expected."""
        self._engine, self._plan = engine, plan
        self._began = time.time()
        self._spent_s = 0.0
        self._kept_at, self._cost_s = 0.0, 0.0
        self.runs: list[Run] = []
        self._round = 0
        names = sorted({*plan.willing, *plan.refused}, key=list(plan.asked.nodes).index)
        self.campaign = Campaign(
            schema=store.SCHEMA, id=plan.id, level=plan.asked.level, nodes=tuple(names),
            at=self._began, duration_s=0.0, interrupted=False, refused=dict(plan.refused),
            rounds=0, runs=(), verdicts=(), verdict=Severity.UNKNOWN, drain="", exclude="",
        )  # fmt: skip
        if kept is not None:
            self._go_on(kept.campaign)

    def _go_on(self, before: Campaign) -> None:
        self.runs = [
            run if run.state not in OPEN else Run(
                group=run.group, round=run.round, state=Progress.WAITING
            )
            for run in before.runs
        ]  # fmt: skip
        self._round = max((run.round for run in self.runs), default=0)
        self._spent_s = before.duration_s
        self.campaign = msgspec.structs.replace(before, interrupted=False, runs=tuple(self.runs))

    @property
    def ended(self) -> list[Run]:
        """Runs that are over: what the localiser goes by."""
        return [run for run in self.runs if run.state not in RUNS_STILL]

    def left(self) -> list[Group]:
        """What an interrupted round did not come to."""
        return [run.group for run in self.runs if run.state is Progress.WAITING]

    def enter(self, groups: Sequence[Group]) -> list[int]:
        """Places of these groups among the runs; new ones wait as a new round."""
        waiting = {run.group: i for i, run in enumerate(self.runs) if run.state is Progress.WAITING}
        if not waiting:
            self._round += 1
            at = len(self.runs)
            self.runs += [
                Run(group=group, round=self._round, state=Progress.WAITING) for group in groups
            ]
            self._publish()
            return list(range(at, len(self.runs)))
        return [waiting[group] for group in groups]

    def change(self, place: int, **fields: Any) -> None:
        """Change some fields of one run and tell."""
        self.put(place, msgspec.structs.replace(self.runs[place], **fields))

    def put(self, place: int, run: Run) -> None:
        """One run as it stands now. One that is over is judged and written down."""
        self.runs[place] = run
        over = run.state not in RUNS_STILL
        if over and time.monotonic() - self._kept_at > KEEP_SHARE * self._cost_s:
            self.keep()
        else:
            self._publish()

    def keep(self) -> None:
        """Judge, write, tell. A full disk costs the file, not the campaign."""
        began = time.monotonic()
        self.trouble = ""
        try:
            self._judge()
        except Exception as error:
            # Hours of figures are worth more than their judgement.
            log.exception("%s cannot be judged", self.campaign.id)
            self.trouble = f"its verdicts: internal error: {error}"
        self._publish()
        try:
            store.save(self.folder, store.Kept(asked=self._plan.asked, campaign=self.campaign))
        except OSError as error:
            self.trouble = f"{self.folder}: {error.strerror or error}"
        self._kept_at = time.monotonic()
        self._cost_s = self._kept_at - began

    def _judge(self) -> None:
        places = [i for i, run in enumerate(self.runs) if run.state not in RUNS_STILL]
        for place, run in zip(places, self.told([self.runs[i] for i in places]), strict=True):
            self.runs[place] = run
        verdicts = known.told(
            self.campaign.level, self.judge(self.ended), self._engine.fleet.findings
        )
        self.campaign = msgspec.structs.replace(
            self.campaign,
            verdicts=verdicts,
            verdict=verdict(self._plan.willing, self.campaign.refused, self.runs, verdicts),
            drain=_folded(v for v in verdicts if v.drains),
            exclude=_folded(v for v in verdicts if v.drains or _suspect(v)),
        )

    def _publish(self) -> None:
        self.campaign = msgspec.structs.replace(
            self.campaign,
            runs=tuple(self.runs),
            rounds=self._round,
            duration_s=round(self._spent_s + time.time() - self._began, 3),
        )
        for tell in list(self.listeners):
            tell(self.campaign)

    def interrupt(self, why: str) -> None:
        """What ran is cancelled, what waits stays waiting."""
        self.runs = [
            msgspec.structs.replace(run, state=Progress.CANCELLED, error=run.error or why)
            if run.state in (Progress.RUNNING, Progress.CANCELLED)
            else run
            for run in self.runs
        ]
        self.campaign = msgspec.structs.replace(self.campaign, interrupted=True)

    def eta_s(self, now: float) -> float | None:
        """Seconds left: parts of this round and the rounds that are likely, by the mean run."""
        late = self.runs[-RECENT:]
        took = [r.duration_s for r in late if r.duration_s and r.state is not Progress.RUNNING]
        if not took:
            return None
        mean_s = sum(took) / len(took)
        running = [now - run.started_at for run in late if run.state is Progress.RUNNING]
        rounds_left = max(0, self._plan.rounds_likely - self._round)
        parts = self.parts_left + rounds_left * max(1, self._plan.batches)
        return max(0.0, parts * mean_s - max(running, default=0.0))

    # ------------------------------------------------------------------ who is to know

    def begin(self) -> None:
        """Into the audit file before anything is done. ConsoleError when that cannot be written."""
        try:
            self._engine.audit.intend(self._act())
        except OSError as error:
            raise ConsoleError(
                f"audit file {self._engine.audit.path}: {error.strerror}; nothing was done"
            ) from error
        self._publish()

    def end(self) -> None:
        """Last judgement, file, audit file, memory."""
        self.keep()
        about = [v for v in self.campaign.verdicts if v.kind in ("node", "gpu")]
        about.sort(key=lambda v: v.verdict.rank)  # the worst word on a node is the last
        by_node = {name: v for v in about for name in v.nodes}
        how = "interrupted" if self.campaign.interrupted else "ended"
        steps = []
        for name in self._plan.willing:
            said = by_node[name].say if name in by_node else "no verdict of its own"
            steps.append(step(name, "done", f"{how}: {said}", ok=not self.campaign.interrupted))
        try:
            self._engine.audit.outcome(self._act(), *steps)
        except OSError as error:
            self.trouble = f"audit file {self._engine.audit.path}: {error.strerror}"

        self._engine.memory.add_campaign(self.campaign)

    def _act(self) -> Plan:
        names = self._plan.willing
        return Plan(
            verb="test", nodes=names, reason=f"{self._plan.asked.level} test {self._plan.id}",
            commands=(), before=tuple(self._engine.fleet.allocations(names).values()),
        )  # fmt: skip


def verdict(
    willing: Sequence[str],
    refused: dict[str, str],
    runs: Sequence[Run],
    verdicts: Sequence[Verdict],
) -> Severity:
    """The worst of all; a node without a figure makes it at least unknown."""
    measured = {
        name for run in runs if run.state is Progress.DONE for name in run.group.nodes
    }  # fmt: skip
    missing = bool(refused) or any(name not in measured for name in willing)
    partial = [Severity.UNKNOWN] if missing else []
    return worst([*(v.verdict for v in verdicts), *partial])


def _suspect(found: Verdict) -> bool:
    bad = found.verdict in (Severity.WARN, Severity.CRITICAL)
    return bad and found.kind in ("node", "gpu") and found.confidence in Confidence


def _folded(found: Any) -> str:
    names = sorted({name for v in found for name in v.nodes})
    return fold(names) if names else ""
