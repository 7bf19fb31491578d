"""Jobs whose GPUs are busy but compute nothing: the job waits, not the node. Pure.

Without profiling counters, full utilisation at full clocks and little power is a
kernel that waits (pseudo-full-load). If few GPUs of the job do otherwise, the others wait for
those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from msgspec import Struct

from probes.event import Finding
from probes.expect import Peers
from probes.loaded import Gpu
from probes.rule import Look
from probes.rules import Rules
from probes.slow_rules import JOB_WAITS
from probes.spread import spread

FEW = 8
"""One GPU in so many may be the one that the others wait for (our estimate: one of a node)."""


class _Limits(Struct, frozen=True):
    util_percent: float
    power: float
    clock: float
    idle: float


def findings(
    nodes: Mapping[str, list[Gpu]], slow: Mapping[str, str], rules: Rules, now: float
) -> Iterator[Finding | None]:
    """One finding a node whose loaded GPUs all wait, None between two nodes.

    `slow`: node -> its proven straggler.
    """
    names = ("waits_util_percent", "waits_power", "waits_clock", "idle_power")
    limits = _Limits(*(rules.limit(f"straggler.{name}").value for name in names))
    jobs: dict[str, list[Gpu]] = defaultdict(list)
    idlers: dict[str, list[Gpu]] = {}
    for name, gpus in nodes.items():
        for gpu in gpus:
            if gpu.job is not None:
                jobs[gpu.job].append(gpu)
        busy = [gpu for gpu in gpus if gpu.loaded]
        if len(busy) > 1 and all(_waits(gpu, limits) for gpu in busy):
            idlers[name] = busy
        yield None
    for name, busy in idlers.items():
        mates = {job: jobs[job] for job in dict.fromkeys(g.job for g in busy) if job is not None}
        awaited = _awaited(mates, slow, limits)
        yield _finding(name, busy, list(mates), awaited, rules, now)


def _waits(gpu: Gpu, limits: _Limits) -> bool:
    util, clock, top = gpu.util_percent, gpu.clock_mhz, gpu.clock_max_mhz
    if util is None or clock is None or top is None or gpu.power_w is None or not gpu.limit_w:
        return False
    idle_w = limits.idle * gpu.limit_w
    power = (gpu.power_w - idle_w) / (gpu.limit_w - idle_w)
    return util >= limits.util_percent and power < limits.power and clock >= limits.clock * top


def _awaited(jobs: dict[str, list[Gpu]], slow: Mapping[str, str], limits: _Limits) -> str:
    """Whom the job may wait for: a straggler, or the few GPUs that do not wait. "" if unknown."""
    members = [gpu for gpus in jobs.values() for gpu in gpus]
    for gpu in members:
        if gpu.node in slow:
            return f"{gpu.node} {slow[gpu.node]}, which is slow"
    others = [gpu for gpu in members if not _waits(gpu, limits)]
    if not others or len(others) * FEW > len(members):
        return ""
    one = others[0]
    does = "is busy" if one.loaded else "is idle"
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"{one.node} {one.label}{more}, which {does} meanwhile"


def _finding(
    name: str, busy: list[Gpu], jobs: list[str], awaited: str, rules: Rules, now: float
) -> Finding:
    facts = busy[0].facts
    power = spread(g.power_w for g in busy if g.power_w is not None)
    limit = busy[0].limit_w or 0.0
    drawn = f"{power.median:.0f} of {limit:.0f} W" if power is not None else "little power"
    whose = f" of job {', '.join(jobs)}" if jobs else ""
    tail = f"the job may wait for {awaited}" if awaited else "the job waits, not the node"
    evidence = (
        f"{len(busy)} of {len(busy)} loaded GPUs at full utilisation, median {drawn}, full clocks",
        *(f"{g.label}: {g.util_percent:.0f} %, {g.power_w:.0f} W" for g in busy[:4]),
    )
    look = Look(facts, Peers(role=facts.node.role), rules, now)
    return JOB_WAITS.finding(
        look, f"{len(busy)} GPUs{whose} are busy at {drawn}: {tail}", evidence,
        value=None if power is None else round(power.median, 1),
        limit=rules.limit("straggler.waits_power"),
    )  # fmt: skip
