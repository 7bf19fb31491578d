"""Jobs whose GPUs are busy but compute little: the job waits, not the node. Pure.

In a synchronous job all ranks wait for the late one, so many waiting GPUs accuse none of
themselves. What may hold them up is told as a suspicion: a proven straggler of the job, the few of
its GPUs that do otherwise, or a host under pressure that the others' hosts are not under.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from probes.activity import PSEUDO, Activity, Bounds, activity, power_share
from probes.efficiency import estimate
from probes.event import Finding
from probes.expect import Peers, product_id
from probes.loaded import Gpu
from probes.reading import number
from probes.rule import Look
from probes.rules import Product, Rules
from probes.slow_metrics import HOST
from probes.slow_rules import JOB_WAITS
from probes.spread import spread

FEW = 8
"""One GPU in so many may be the one that the others wait for (our estimate: one of a node)."""
HINTS = {
    Activity.WAITING: "",
    Activity.LITTLE: "",
    Activity.COMMUNICATION: "ask the job's owner about overlap and message sizes; look at "
    "congestion of the fabric; the nodes are not to blame",
    Activity.SMALL: "ask the job's owner: fuse operations, larger batches, CUDA graphs; the node "
    "is not to blame",
    Activity.HOST: "look at the host's CPU, data loading and file systems; the GPUs wait for them",
}
"""Next step by class; "" is the rule's own."""
WAITS = "the job waits, not the node"
TAILS = {
    Activity.COMMUNICATION: "communication bound, not the node",
    Activity.SMALL: "tiny kernels, not the node",
    Activity.HOST: "the GPUs wait for their host",
}
"""What is said first, so that a narrow screen shows it; of the others it is WAITS."""


class _Jobs:
    """GPUs of each job and what they do, worked out when asked."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.bounds = rules, Bounds.of(rules)
        self.members: dict[str, list[Gpu]] = defaultdict(list)
        self._products: dict[str, Product | None] = {}

    def does(self, gpu: Gpu) -> Activity | None:
        """Its class."""
        name = product_id(gpu.facts, gpu.device)
        if name not in self._products:
            self._products[name] = self.rules.product(name)
        return activity(gpu, self.bounds, self._products[name])


def findings(
    nodes: Mapping[str, list[Gpu]], slow: Mapping[str, str], rules: Rules, now: float
) -> Iterator[Finding | None]:
    """One finding a node whose loaded GPUs all wait, None between two nodes.

    `slow`: node -> its proven straggler.
    """
    jobs = _Jobs(rules)
    idlers: dict[str, list[Gpu]] = {}
    for name, gpus in nodes.items():
        for gpu in gpus:
            if gpu.job is not None:
                jobs.members[gpu.job].append(gpu)
        busy = [gpu for gpu in gpus if gpu.loaded]
        if len(busy) > 1 and all(jobs.does(gpu) in PSEUDO for gpu in busy):
            idlers[name] = busy
        yield None
    for busy in idlers.values():
        yield _finding(busy, jobs, slow, rules, now)


def awaited(members: Sequence[Gpu], slow: Mapping[str, str], jobs: _Jobs) -> str:
    """Whom the job may wait for, and why we think so; "" if unknown."""
    for gpu in members:
        if gpu.node in slow:
            return f"{gpu.node} {slow[gpu.node]}, which is slow"
    others = [gpu for gpu in members if jobs.does(gpu) not in PSEUDO]
    if others and len(others) * FEW <= len(members):
        one = others[0]
        does = "is busy" if one.loaded else "is idle"
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        return f"{one.node} {one.label}{more}, which {does} meanwhile"
    return _pressed(members, jobs)


def _pressed(members: Sequence[Gpu], jobs: _Jobs) -> str:
    """A host far above a limit of which most hosts of the job are below half."""
    hosts = {gpu.node: gpu.facts for gpu in members}
    for metric, words, name in HOST:
        limit = jobs.rules.limit(name).value
        found = {n: v for n, f in hosts.items() if (v := number(f.value("host", "", metric)))}
        bad = [node for node, value in found.items() if value >= limit]
        calm = sum(1 for node in hosts if found.get(node, 0.0) < limit / 2)
        if len(bad) == 1 and calm * 2 > len(hosts):
            return f"{bad[0]}, whose host is held up: {words} {found[bad[0]]:.0f} %"
    return ""


def _finding(
    busy: list[Gpu], jobs: _Jobs, slow: Mapping[str, str], rules: Rules, now: float
) -> Finding:
    facts = busy[0].facts
    names = list(dict.fromkeys(gpu.job for gpu in busy if gpu.job is not None))
    members = [gpu for name in names for gpu in jobs.members[name]]
    held_by = awaited(members, slow, jobs)
    kinds = Counter(str(jobs.does(gpu)) for gpu in busy)
    kind = Activity(kinds.most_common(1)[0][0])
    power = spread(g.power_w for g in busy if g.power_w is not None)
    shares = (power_share(gpu, jobs.bounds.idle) for gpu in busy)
    share = spread(value for value in shares if value is not None)
    limit = busy[0].limit_w or 0.0
    drawn = f"{power.median:.0f} of {limit:.0f} W" if power is not None else "little power"
    whose = f" of job {', '.join(names)}" if names else ""
    tail = f"the job may wait for {held_by}" if held_by else TAILS.get(kind, WAITS)
    told = ", ".join(f"{n} of {len(busy)} {name}" for name, n in kinds.most_common())
    evidence = (
        f"{told}: full utilisation, median {drawn}",
        *(f"{gpu.label}: {_reading(gpu)}" for gpu in busy[:2]),
        *([line] if (line := estimate(busy, rules)) else []),
        *([f"suspected, not proven: {held_by}"] if held_by else []),
    )
    look = Look(facts, Peers(role=facts.node.role), rules, now)
    return JOB_WAITS.finding(
        look, f"{tail}: {len(busy)} GPUs{whose} are busy at {drawn}, {kind}", evidence,
        value=None if share is None else round(share.median, 2),
        limit=rules.limit("straggler.waits_power"), next_step=HINTS.get(kind, ""),
        source=JOB_WAITS.source,
    )  # fmt: skip


def _reading(gpu: Gpu) -> str:
    parts = [f"{gpu.util_percent:.0f} %", f"{gpu.power_w or 0.0:.0f} W"]
    names = {"tensor_percent": "tensor", "dram_percent": "DRAM", "sm_util_percent": "SMs"}
    for metric, words in names.items():
        value = number(gpu.facts.value("gpm", gpu.device, metric))
        parts += [f"{words} {value:.0f} %"] if value is not None else []
    return ", ".join(parts)
