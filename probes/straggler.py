"""Which GPU is slower than its peers, and whether the node or the job is to blame. Pure.

Only loaded GPUs with fresh readings, only like with like. A warning needs two
comparisons (catalogue, peers), or one and hardware evidence (thermal or power-brake bits); one
alone is a suspicion. There is no own history here, so the third comparison does not vote.
Utilisation is never ranked: in a synchronous job the slow rank is the one that waits least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from probes import loaded, slow_rules, slow_words, waiting
from probes.event import Action, Finding, Severity
from probes.expect import Peers
from probes.facts import NodeFacts
from probes.loaded import Gpu, Key
from probes.rule import Look
from probes.rules import Rules
from probes.slow_rules import GPU, NODE, POWER_LIMIT, RULES, SUSPECT
from probes.slow_words import Group
from probes.spread import Gates, low, spread

__all__ = ["RULES", "compare"]


def compare(all_facts: Iterable[NodeFacts], rules: Rules, now: float) -> list[Finding]:
    """Findings about slow GPUs and nodes, and about jobs that only wait, over all nodes."""
    return [step for step in in_steps(all_facts, rules, now) if step is not None]


def in_steps(all_facts: Iterable[NodeFacts], rules: Rules, now: float) -> Iterator[Finding | None]:
    """compare() in pieces: None after each piece of work of about one node, findings at the end.

    4,000 nodes take half a second in all: a screen that compared at once would not see keys.
    """
    return _Comparison(rules, now).steps(all_facts)


class _Limits(Struct, frozen=True):
    """The limits, looked up once."""

    gates: Gates
    floor: float
    quantum_mhz: float
    catalogue: float
    half: float
    at_limit: float
    weak: int
    full: int

    @classmethod
    def of(cls, rules: Rules) -> _Limits:
        """From thresholds.yaml."""
        get = {name: limit.value for name, limit in rules.limits.items()}
        return cls(
            gates=Gates(
                get["straggler.z_warn"], get["straggler.r_warn"], get["straggler.r75_warn"]
            ),
            floor=get["straggler.floor_live"],
            quantum_mhz=get["straggler.quantum_mhz"],
            catalogue=get["straggler.catalogue"],
            half=get["straggler.half"],
            at_limit=get["straggler.at_power_limit"],
            weak=int(get["straggler.group_weak"]),
            full=int(get["straggler.group_full"]),
        )


class _Comparison:
    """One look at everything."""

    def __init__(self, rules: Rules, now: float) -> None:
        """Nothing read yet."""
        self.rules, self.now, self.limits = rules, now, _Limits.of(rules)
        self.nodes: dict[str, list[Gpu]] = {}
        self.local: dict[tuple[str, Key], Group] = {}
        self.wide: dict[Key, Group] = {}

    def steps(self, all_facts: Iterable[NodeFacts]) -> Iterator[Finding | None]:
        """Read all GPUs, group the loaded ones, compare."""
        yield from self._read(all_facts)
        yield from self._findings()

    def _read(self, all_facts: Iterable[NodeFacts]) -> Iterator[None]:
        local: dict[tuple[str, Key], list[Gpu]] = defaultdict(list)
        wide: dict[Key, list[Gpu]] = defaultdict(list)
        for facts in all_facts:
            gpus = sorted(loaded.read(facts, self.rules), key=lambda gpu: gpu.device)
            self.nodes[facts.node.name] = gpus
            for gpu in gpus:
                if gpu.loaded:
                    local[gpu.node, gpu.key].append(gpu)
                    if gpu.job is not None:
                        wide[gpu.key].append(gpu)
            yield None
        for here, gpus in local.items():
            self.local[here] = Group.of(gpus, "on its node")
            yield None
        for key, gpus in wide.items():
            if gpus[0].node != gpus[-1].node:
                self.wide[key] = Group.of(gpus, f"of job {gpus[0].job}")
                yield None

    def _findings(self) -> Iterator[Finding | None]:
        """Slow nodes, slow GPUs of the other nodes, odd power limits, waiting jobs."""
        by_node: dict[str, Finding] = {}
        yield from self._nodes(by_node)
        found = list(by_node.values())
        whole = {finding.node for finding in found}
        slow = {finding.node: "all its GPUs" for finding in found if _proven(finding)}
        for (node, _), group in self.local.items():
            for gpu in group.gpus:
                finding = self._gpu(gpu, group, whole=node in whole)
                if finding is not None:
                    found.append(finding)
                    if _proven(finding):
                        slow.setdefault(node, finding.label)
            yield None
        yield from found
        for gpus in self.nodes.values():
            yield from self._power_limits(gpus)
            yield None
        yield from waiting.findings(self.nodes, slow, self.rules, self.now)

    def look(self, facts: NodeFacts) -> Look:
        """What Rule.finding wants; the peers of the checks play no part here."""
        return Look(facts, Peers(role=facts.node.role), self.rules, self.now)

    # One GPU

    def _gpu(self, gpu: Gpu, local: Group, *, whole: bool) -> Finding | None:
        """None when nothing speaks against it, or only what speaks against its whole node."""
        group = local if local.n >= self.limits.weak else self._wide(gpu)
        if whole and group is not local:
            return None
        against_peers = group is not None and self._below_peers(gpu, group)
        against_catalogue = self._below_catalogue(gpu)
        if not against_peers and (group is not None or not against_catalogue):
            return None
        proven = bool(gpu.hard) or (against_peers and against_catalogue is True)
        words = slow_words.gpu(gpu, group, against_peers, against_catalogue, self.limits.full)
        usual = group.clock.median if group is not None and against_peers else gpu.clock_max_mhz
        limit = "straggler.r_warn" if against_peers else "straggler.catalogue"
        share = (gpu.clock_mhz or 0.0) / usual if usual else 0.0
        grave = bool(gpu.hard) and share < self.limits.half
        return (GPU if proven else SUSPECT).finding(
            self.look(gpu.facts), words.say, words.evidence, device=gpu.device, label=gpu.label,
            value=round(share, 3), limit=self.rules.limit(limit), source=GPU.source,
            cause=words.cause if proven else "", next_step=words.next_step if proven else "",
            severity=Severity.CRITICAL if grave else None, action=Action.DRAIN if grave else None,
        )  # fmt: skip

    def _wide(self, gpu: Gpu) -> Group | None:
        group = self.wide.get(gpu.key)
        return group if group is not None and group.n >= self.limits.weak else None

    def _below_peers(self, gpu: Gpu, group: Group) -> bool:
        limits = self.limits
        if gpu.clock_mhz is None or self._works_harder(gpu, group):
            return False
        return low(gpu.clock_mhz, group.clock, limits.gates, limits.floor, limits.quantum_mhz)

    def _works_harder(self, gpu: Gpu, group: Group) -> bool:
        """At its power limit while the peers draw less: its clock is low because it computes."""
        if gpu.power_w is None or group.power is None or not self._capped(gpu):
            return False
        return gpu.power_w > group.power.median / self.limits.gates.ratio

    def _capped(self, gpu: Gpu) -> bool:
        """The SW power cap explains its clock."""
        if gpu.power_w is None or gpu.limit_w is None or gpu.reasons is None:
            return False
        at_limit = gpu.power_w >= self.limits.at_limit * gpu.limit_w
        return bool(gpu.reasons & loaded.POWER_CAP_BIT) and at_limit

    def _below_catalogue(self, gpu: Gpu) -> bool | None:
        """None when the reasons are unreadable or a cap or setting explains the clock."""
        if gpu.clock_mhz is None or gpu.clock_max_mhz is None or gpu.reasons is None:
            return None
        if gpu.clock_mhz >= self.limits.catalogue * gpu.clock_max_mhz:
            return False
        if gpu.hard:
            return True
        unknown = gpu.power_w is None or gpu.limit_w is None
        capped = self._capped(gpu) or (unknown and bool(gpu.reasons & loaded.POWER_CAP_BIT))
        return None if capped or gpu.reasons & loaded.SETTING_BIT else True

    # A whole node

    def _nodes(self, found: dict[str, Finding]) -> Iterator[None]:
        """Into `found`: at most one a node, however many jobs share it."""
        others: dict[Key, list[Group]] = defaultdict(list)
        for (_, key), group in self.local.items():
            if key in self.wide:
                others[key].append(group)
        usual = {k: Group.medians(gs, f"of job {gs[0].gpus[0].job}") for k, gs in others.items()}
        for (_, key), group in self.local.items():
            finding = self._node(group, usual.get(key))
            if finding is not None:
                worst = found.get(finding.node, finding)
                found[finding.node] = max(worst, finding, key=lambda f: f.severity.rank)
            yield None

    def _node(self, group: Group, peers: Group | None) -> Finding | None:
        """A node whose loaded GPUs are slow together; single GPUs are judged by themselves."""
        if group.n < 2:
            return None
        first = group.gpus[0]
        against_peers = peers is not None and self._node_below(group, peers)
        against_catalogue = all(self._below_catalogue(gpu) is True for gpu in group.gpus)
        hard = all(gpu.hard for gpu in group.gpus)
        votes = against_peers + against_catalogue
        if votes == 0 or (votes == 1 and not hard and not against_peers):
            return None
        words = slow_words.node(group, peers, against_peers, against_catalogue, self.limits.full)
        proven = votes == 2 or hard
        rule = NODE if proven else SUSPECT
        usual = peers.clock.median if peers is not None and against_peers else first.clock_max_mhz
        limit = "straggler.r_warn" if against_peers else "straggler.catalogue"
        share = group.clock.median / usual if usual else 0.0
        grave = hard and share < self.limits.half
        return rule.finding(
            self.look(first.facts), words.say, words.evidence, value=round(share, 3),
            limit=self.rules.limit(limit), source=NODE.source,
            cause=words.cause if proven else "", next_step=words.next_step if proven else "",
            severity=Severity.CRITICAL if grave else None, action=Action.DRAIN if grave else None,
        )  # fmt: skip

    def _node_below(self, group: Group, peers: Group) -> bool:
        limits = self.limits
        if peers.clock.n < limits.weak:
            return False
        capped = any(self._capped(gpu) for gpu in group.gpus)
        if (
            capped
            and group.power is not None
            and peers.power is not None
            and group.power.median > peers.power.median / limits.gates.ratio
        ):
            return False  # it computes while the others wait
        clock = group.clock.median
        return low(clock, peers.clock, limits.gates, limits.floor, limits.quantum_mhz)

    # Power limits

    def _power_limits(self, gpus: list[Gpu]) -> Iterator[Finding]:
        """GPUs of one node and product whose limit is below that of most of their siblings."""
        products: dict[Key, list[Gpu]] = defaultdict(list)
        for gpu in gpus:
            if gpu.limit_w:
                products[gpu.product].append(gpu)
        slack = self.rules.limit("power.below_default")
        for siblings in products.values():
            usual = spread(gpu.limit_w for gpu in siblings if gpu.limit_w is not None)
            if usual is None:
                continue
            floor_w = slack.value * usual.median
            most_w = usual.median / slack.value
            rest = [g for g in siblings if floor_w <= (g.limit_w or 0.0) <= most_w]
            if len(rest) < self.limits.weak - 1 or len(rest) * 2 <= len(siblings):
                continue
            for gpu in siblings:
                if (gpu.limit_w or 0.0) < floor_w:
                    words = slow_words.power_limit(gpu, rest, usual.median)
                    yield POWER_LIMIT.finding(
                        self.look(gpu.facts), words.say, words.evidence, device=gpu.device,
                        label=gpu.label, value=gpu.limit_w, limit=slack,
                    )  # fmt: skip


def _proven(finding: Finding) -> bool:
    return finding.rule in (slow_rules.GPU.id, slow_rules.NODE.id)
