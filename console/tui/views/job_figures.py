"""What jobs use and how long their steps take: live sums, and estimates made a few at a time. Pure.

Sums are of the nodes whose readings are fresh. Estimates cost up to milliseconds each, so each call
of `Estimates.go_on` makes a few, of what is on the screen first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from math import inf
from statistics import median
from typing import NamedTuple

from console.fleet import Fleet
from console.tui.summary import CURRENT, STALE_S
from console.tui.views.job_shares import Share
from probes.efficiency import Efficiency, efficiency
from probes.facts import NodeFacts
from probes.ranks_motion import Limits, Motion, verdict
from probes.reading import number
from probes.steps import MEAN, step_seen
from probes.steps_told import FRESH_S

NODES_A_TURN = 12
"""Nodes of which energy is worked out in one turn, at some 0.2 ms each."""
IN_SIGHT = 600
"""Nodes of which use is read in one tick."""
KEPT_S = 30.0
"""How long an estimate stands: idle burn is about ten minutes, a period about a minute."""
AGAIN_S = 10.0
"""The same of a step that was not found: readings may have been too few."""
IN_TURN = 100
"""Jobs among which the one looked at longest ago is next: more than a screen shows."""
UNEVEN = 2.5
"""Times the mean that a gap may be: one reading that was skipped; our estimate."""
MOTION_S = 5.0
"""Between two looks at which ranks move: a node asks every 12 s."""
WINDOW = "steps.window"


class Use(NamedTuple):
    """Live sums of a job's GPUs. None: not read."""

    fresh: int
    """GPUs whose readings are fresh."""
    gpus: int
    """GPUs it is known to have."""
    util_percent: float | None
    power_w: float | None
    nodes: int
    """Nodes whose readings are fresh."""


def is_fresh(fleet: Fleet, name: str, now: float) -> bool:
    """Whether its readings may be shown as present ones."""
    age = fleet.age(name, now)
    return age is not None and age <= STALE_S and fleet.nodes[name].state in CURRENT


def gpu_values(facts: NodeFacts, devices: Iterable[str], metric: str) -> list[float]:
    """The last readings of these GPUs, where they have any."""
    samples = (facts.latest.get(("gpu", device)) for device in devices)
    read = (number(sample.values.get(metric)) for sample in samples if sample is not None)
    return [value for value in read if value is not None]


class Uses:
    """Sums of each job, its nodes read again in turn: a node takes some 9 us."""

    def __init__(self) -> None:
        """Nothing read."""
        self._known: dict[str, dict[str, tuple[float, _Part]]] = {}
        self._left = IN_SIGHT
        self._every_s = 0.0

    def turn(self, jobs: dict[str, dict[str, Share]]) -> None:
        """A new tick with these jobs in sight; the others are forgotten."""
        self._known = {key: self._known[key] for key in jobs if key in self._known}
        self._left = IN_SIGHT
        self._every_s = sum(map(len, jobs.values())) / IN_SIGHT

    def of(self, fleet: Fleet, key: str, members: dict[str, Share], now: float) -> Use:
        """Each node as read at most so many seconds ago as thousands of nodes are in sight."""
        known = self._known.setdefault(key, {})
        util = watts = 0.0
        fresh = gpus = powered = nodes = 0
        for name, share in members.items():
            gpus += len(share.devices)
            before = known.get(name)
            if before is None or now - before[0] >= self._every_s:
                if self._left > 0:
                    self._left -= 1
                    before = known[name] = now, _part(fleet, name, share, now)
                elif before is None:
                    continue
            part = before[1]
            util += part.util
            watts += part.watts
            fresh += part.gpus
            powered += part.powered
            nodes += part.nodes
        mean = util / fresh if fresh else None
        return Use(fresh, gpus, mean, watts if powered else None, nodes)


class _Part(NamedTuple):
    """What one node adds to the sums; nothing when its readings are not fresh."""

    gpus: int = 0
    util: float = 0.0
    powered: int = 0
    watts: float = 0.0
    nodes: int = 0


def _part(fleet: Fleet, name: str, share: Share, now: float) -> _Part:
    if not is_fresh(fleet, name, now):
        return _Part()
    facts = fleet.nodes[name]
    util = gpu_values(facts, share.devices, "util_percent")
    watts = gpu_values(facts, share.devices, "power_w")
    return _Part(len(util), sum(util), len(watts), sum(watts), 1)


class Step(NamedTuple):
    """How long a step takes."""

    seconds: float
    at: float
    """Epoch seconds of the newest reading it rests on."""
    confidence: float | None
    """How well one step foretells the next; None where the job tells its steps itself."""


class Energy(NamedTuple):
    """Estimates of a job's energy. None: not worked out yet or not readable on all of its nodes."""

    idle_w: float | None
    idle_gpus: int
    joules_per_pflop: float | None


class Idle(NamedTuple):
    """GPUs of one node that do nothing although jobs hold them."""

    jobs: frozenset[str]
    devices: tuple[str, ...]
    watts: float


class Estimates:
    """What takes too long to be worked out in every tick."""

    def __init__(self) -> None:
        """Nothing known."""
        self.steps: dict[str, tuple[float, Step | None]] = {}
        """Job's key -> when it was looked for, what was found."""
        self._energy: dict[str, tuple[float, Efficiency]] = {}
        self._work: dict[str, dict[str, tuple[float, float]]] = {}
        """Node -> job -> watts and TFLOP/s of its GPUs that have both figures."""
        self.idle: dict[str, Idle] = {}
        """Node -> its GPUs that have done nothing for long, where there are any."""
        self._motion: dict[str, Motion] = {}
        self._told: dict[str, Step] = {}
        self._well: set[str] = set()
        self._looked = float("-inf")

    def go_on(self, fleet: Fleet, jobs: dict[str, dict[str, Share]], now: float) -> None:
        """One turn: some nodes' energy, at most one job's step. `jobs`: on the screen first."""
        if abs(now - self._looked) >= MOTION_S:
            self._looked = now
            self._look(fleet, now)
        for name in self._due(jobs, now):
            # What a node that has gone said last would count as present there.
            fresh = is_fresh(fleet, name, now)
            found = efficiency(fleet.nodes[name], fleet.rules) if fresh else _NONE
            self._energy[name] = now, found
            self._work[name] = _work(found)
            if found.idle_gpus:
                self.idle[name] = _idle(found)
            else:
                self.idle.pop(name, None)
        key = self._longest_ago(jobs, now)
        if key is not None:
            self.steps[key] = now, estimate(fleet, jobs[key], now)

    def _longest_ago(self, jobs: Iterable[str], now: float) -> str | None:
        """Of those that are due, so that none in sight waits for ever behind the others."""
        due = (key for key in jobs if self._is_due(*self.steps.get(key, _NEVER), now))
        return min(
            islice(due, IN_TURN), key=lambda key: self.steps.get(key, _NEVER)[0], default=None
        )

    @staticmethod
    def _is_due(at: float, found: Step | None, now: float) -> bool:
        return now - at >= (AGAIN_S if found is None else KEPT_S)

    def forget(self, name: str) -> None:
        """No job is on the node any more."""
        self._energy.pop(name, None)
        self._work.pop(name, None)
        self.idle.pop(name, None)

    def _due(self, jobs: dict[str, dict[str, Share]], now: float) -> list[str]:
        due: list[str] = []
        for members in jobs.values():
            for name in members:
                known = self._energy.get(name)
                if known is None or now - known[0] >= KEPT_S:
                    due.append(name)
                    if len(due) == NODES_A_TURN:
                        return due
        return due

    def _look(self, fleet: Fleet, now: float) -> None:
        """By the names that processes have for their job."""
        limits = Limits.of(fleet.rules)
        told = fleet.jobs.polls.jobs(now, limits.fresh_s)
        self._motion = {
            name: verdict(name, histories, limits).motion for name, histories in told if name
        }
        steps: dict[str, list[tuple[float, float]]] = {}
        window, well = int(fleet.rules.limit(WINDOW).value), set()
        for (job, _, _), rank in fleet.jobs.told.steps.items():
            if rank and rank[-1].total_s > 0 and now - rank[-1].at <= FRESH_S:
                steps.setdefault(job, []).append((rank[-1].at, rank[-1].total_s))
                if len(rank) >= 2 * window:
                    well.add(job)
        self._well = well
        self._told = {
            job: Step(median(total for _, total in ranks), max(at for at, _ in ranks), None)
            for job, ranks in steps.items()
        }

    def motion(self, names: Iterable[str]) -> Motion | None:
        """What NCCL's count says of a job that goes by any of these names."""
        return next((self._motion[name] for name in names if name in self._motion), None)

    def tells_steps(self, names: Iterable[str]) -> bool:
        """Whether enough steps were told to compare them with those before."""
        return not self._well.isdisjoint(names)

    def step(self, key: str, names: Iterable[str]) -> Step | None:
        """What the job tells; else the estimate."""
        told = next((self._told[name] for name in names if name in self._told), None)
        return told if told is not None else self.steps.get(key, (0.0, None))[1]

    def energy(self, members: dict[str, Share]) -> Energy:
        """Sums over the nodes that were worked out."""
        idle = flops = watts = 0.0
        gpus, known = 0, True
        for name, share in members.items():
            found = self._energy.get(name)
            if found is None or not found[1].gpus:
                known = False
                continue
            for job in share.names:
                idle += found[1].idle_burn_w.get(job, 0.0)
                gpus += len(found[1].idle_gpus.get(job, ()))
                spent, done = self._work[name].get(job, (0.0, 0.0))
                watts += spent
                flops += done
        return Energy(idle if known else None, gpus, 1000 * watts / flops if flops > 0 else None)


_NEVER: tuple[float, Step | None] = (-inf, None)
_NONE = Efficiency(gpus=(), idle_burn_w={}, idle_gpus={})


def _work(found: Efficiency) -> dict[str, tuple[float, float]]:
    sums: dict[str, tuple[float, float]] = {}
    for one in found.gpus:
        if one.job and one.watts and one.hfu_tflops:
            watts, flops = sums.get(one.job, (0.0, 0.0))
            sums[one.job] = watts + one.watts, flops + one.hfu_tflops
    return sums


def _idle(found: Efficiency) -> Idle:
    labels = {label for labels in found.idle_gpus.values() for label in labels}
    devices = tuple(use.device for use in found.gpus if use.job and use.label in labels)
    return Idle(frozenset(found.idle_gpus), devices, sum(found.idle_burn_w.values()))


def estimate(fleet: Fleet, members: dict[str, Share], now: float) -> Step | None:
    """By the power of the first GPU of a node with fresh readings; None where nothing repeats."""
    for name, share in members.items():
        if share.devices and is_fresh(fleet, name, now):
            device = share.devices[0]
            readings = fleet.history(name, device, "power_w")
            every_s = _interval(fleet.history_times(name, device), len(readings))
            means = fleet.history(name, device, MEAN)
            found = step_seen(readings, means, every_s) if every_s else None
            return Step(found.period_s, fleet.seen[name], found.strength) if found else None
    return None


def _interval(times: Sequence[float], count: int) -> float:
    """Seconds between two readings; 0 where they are not even, or too few."""
    if len(times) != count or count < 3:
        return 0.0
    mean = (times[-1] - times[0]) / (count - 1)
    widest = max(after - before for before, after in pairwise(times))
    return mean if widest <= UNEVEN * mean else 0.0


def bars_of(values: Sequence[float]) -> str:
    """GPUs' utilisation as numbers, in their order: "97 98 12 %"."""
    return " ".join(f"{value:.0f}" for value in values) + " %" if values else ""
