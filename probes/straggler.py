"""Which GPU is slower than its peers, and whether the node or the job is to blame. Pure.

Only loaded GPUs with fresh readings, only like with like (loaded.py). Three comparisons: with what
the card can do, with its peers, with its own past. A warning needs two of them, or one and hardware
evidence; one alone is a suspicion (slow_votes.py). Only clocks accuse: in a synchronous job power,
traffic and utilisation of everybody fall together, and the slow rank is the one that waits least.
What time has to say to it is in slow_time.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec import structs

from probes import loaded, slow_judge, slow_power, slow_words, waiting
from probes.event import Action, Finding, Severity
from probes.expect import Peers
from probes.facts import NodeFacts
from probes.loaded import Gpu, Key
from probes.own import NONE, Own
from probes.rule import Look, Rule
from probes.rules import Rules
from probes.slow_group import Group
from probes.slow_judge import Case, Held
from probes.slow_limits import Limits
from probes.slow_metrics import ACCUSING, Metric
from probes.slow_rules import GPU, NODE, RULES, SUSPECT
from probes.slow_time import Slow, one_look
from probes.slow_votes import Votes
from probes.slow_words import Words

__all__ = ["RULES", "Comparison", "compare"]


def compare(
    all_facts: Iterable[NodeFacts], rules: Rules, now: float, own: Own = NONE
) -> list[Finding]:
    """What one look shows: slow GPUs and nodes, and jobs that only wait, over all nodes."""
    steps = Comparison(rules, now, own).steps(all_facts)
    return [one_look(step) for step in steps if step is not None]


class Comparison:
    """One look at everything, in pieces, so that a screen sees keys meanwhile."""

    def __init__(self, rules: Rules, now: float, own: Own = NONE, held: Held = frozenset()) -> None:
        """Nothing read yet. `held`: see slow_time.Streaks."""
        self.rules, self.now, self.limits = rules, now, Limits.of(rules)
        self.own, self.held = own, held
        self.case = Case(rules, self.limits, own, frozenset(), frozenset())
        self.compared: set[tuple[str, str]] = set()
        """(node, device) under load, and (node, "") of theirs: what could be judged."""
        self.nodes: dict[str, list[Gpu]] = {}
        self.local: dict[tuple[str, Key], Group] = {}
        self.wide: dict[Key, Group] = {}
        self._below: dict[Key, dict[str, bool]] = defaultdict(dict)
        self._strict = self.case
        self._watched = {node for node, _ in held}

    def steps(self, all_facts: Iterable[NodeFacts]) -> Iterator[Slow | None]:
        """None after each piece of work of about one node, what was found at the end."""
        yield from self._read(all_facts)
        yield from self._findings()

    def _read(self, all_facts: Iterable[NodeFacts]) -> Iterator[None]:
        local: dict[tuple[str, Key], list[Gpu]] = defaultdict(list)
        wide: dict[Key, list[Gpu]] = defaultdict(list)
        for facts in all_facts:
            gpus = list(loaded.read(facts, self.rules))
            self.nodes[facts.node.name] = gpus
            for gpu in gpus:
                if gpu.loaded:
                    self.compared.add((gpu.node, gpu.device))
                    local[gpu.node, gpu.key].append(gpu)
                    if gpu.job is not None:
                        wide[gpu.key].append(gpu)
            if any(gpu.loaded for gpu in gpus):
                self.compared.add((facts.node.name, ""))
            self._count(gpus)
            yield None
        for here, gpus in local.items():
            self.local[here] = Group(gpus, "on its node")
        for key, gpus in wide.items():
            if gpus[0].node != gpus[-1].node:
                self.wide[key] = Group(gpus, f"of job {gpus[0].job}")
        self._strict = self._strict._replace(common=_common(self._below, self.limits.weak))
        self.case = self._strict._replace(held=self.held)
        yield None

    def _easy(self, node: str) -> float:
        """Readings of a group that are as near as this cannot stand out."""
        gates = self.limits.warn
        return (gates.eased() if node in self._watched else gates).ratio

    def _unless_near(
        self, vote: Callable[[Case], Votes | None], node: str, device: str
    ) -> Votes | None:
        """What is watched is judged with eased limits, and by the full ones where these agree."""
        votes = vote(self.case)
        if votes is None or (node, device) not in self.held:
            return votes
        return vote(self._strict) or structs.replace(votes, near=True)

    def _count(self, gpus: list[Gpu]) -> None:
        """Whether most loaded GPUs of the node are below the catalogue and nothing explains it."""
        products: dict[Key, list[bool]] = defaultdict(list)
        for gpu in gpus:
            if gpu.loaded:
                slow = slow_judge.absolutely(self.case, gpu, ACCUSING[0]) and not gpu.hard
                products[gpu.key[: loaded.COMMON]].append(bool(slow))
        for key, votes in products.items():
            self._below[key][gpus[0].node] = sum(votes) * 2 > len(votes)

    def _findings(self) -> Iterator[Slow | None]:
        """Slow nodes, slow GPUs of the other nodes, odd power limits, waiting jobs."""
        by_node: dict[str, Slow] = {}
        yield from self._nodes(by_node)
        found = list(by_node.values())
        slow = {one.finding.node: "all its GPUs" for one in found if _proven(one)}
        for (node, _), group in self.local.items():
            for one in self._gpus(group, whole=node in by_node):
                found.append(one)
                if _proven(one):
                    slow.setdefault(node, one.finding.label)
            yield None
        yield from found
        for gpus in self.nodes.values():
            if gpus:
                look = self.look(gpus[0].facts)
                for finding in slow_power.check(look, gpus, self.limits.weak):
                    yield Slow(finding=finding)
            yield None
        for waits in waiting.findings(self.nodes, slow, self.rules, self.now):
            yield None if waits is None else Slow(finding=waits)

    def look(self, facts: NodeFacts) -> Look:
        """What Rule.finding wants; the peers of the checks play no part here."""
        return Look(facts, Peers(role=facts.node.role), self.rules, self.now)

    def _gpus(self, local: Group, *, whole: bool) -> Iterator[Slow]:
        """The GPUs of one node and job; those of a slow node only against each other."""
        enough = local.n >= self.limits.weak
        for metric in ACCUSING:
            even = enough and local.alike(metric.read, self._easy(local.gpus[0].node))
            for gpu in local.gpus:
                group = local if enough else self._wide(gpu)
                if whole and group is not local:
                    continue
                if even and self._near_top(gpu, metric):
                    continue
                vote = partial(slow_judge.of_gpu, gpu=gpu, metric=metric, group=group)
                votes = self._unless_near(vote, gpu.node, gpu.device)
                if votes is not None:
                    yield self._gpu(gpu, metric, group, votes)

    def _near_top(self, gpu: Gpu, metric: Metric) -> bool:
        """Among equals it can only be slow together with them, or against its own past."""
        return not self.own or not slow_judge.absolutely(self.case, gpu, metric)

    def _wide(self, gpu: Gpu) -> Group | None:
        group = self.wide.get(gpu.key)
        return group if group is not None and group.n >= self.limits.weak else None

    def _gpu(self, gpu: Gpu, metric: Metric, group: Group | None, votes: Votes) -> Slow:
        words = slow_words.gpu(gpu, metric, group, votes)
        top = metric.top(gpu) if metric.top else None
        usual = votes.group.median if votes.group is not None and votes.spatial else top
        share = (metric.read(gpu) or 0.0) / usual if usual else 0.0
        device, label = gpu.device, gpu.label
        return self._slow(GPU, gpu, metric, words, votes, share, device=device, label=label)

    def _slow(
        self, rule: Rule, gpu: Gpu, metric: Metric, words: Words, votes: Votes, share: float, *,
        device: str = "", label: str = "",
    ) -> Slow:  # fmt: skip
        """A verdict by this rule, or a suspicion. At half speed, with hardware evidence, a drain
        is proposed at once."""
        proven, hard = votes.proven, bool(votes.hard)
        limit = "straggler.r_warn" if votes.spatial else "straggler.catalogue"
        grave = proven and hard and share < self.limits.half
        finding = (rule if proven else SUSPECT).finding(
            self.look(gpu.facts), words.say, words.evidence, device=device, label=label,
            value=round(share, 3), limit=self.rules.limit(limit), source=rule.source,
            cause=words.cause if proven else "", next_step=words.next_step if proven else "",
            severity=Severity.CRITICAL if grave else None, action=Action.DRAIN if grave else None,
        )  # fmt: skip
        boot_id = gpu.facts.boot_id
        return Slow(finding=finding, votes=votes, boot_id=boot_id, metric=metric.name)

    def _nodes(self, found: dict[str, Slow]) -> Iterator[None]:
        """Into `found`: at most one a node, however many jobs share it."""
        others: dict[Key, list[Group]] = defaultdict(list)
        for (_, key), group in self.local.items():
            if key in self.wide:
                others[key].append(group)
        peers = {k: Group((), f"of job {gs[0].gpus[0].job}", gs) for k, gs in others.items()}
        for (node, key), group in self.local.items():
            for one in self._node(group, peers.get(key)):
                worst = found.get(node, one)
                found[node] = max(worst, one, key=lambda o: o.finding.severity.rank)
            yield None

    def _node(self, group: Group, peers: Group | None) -> Iterator[Slow]:
        """A node whose loaded GPUs are slow together; single GPUs are judged by themselves."""
        if group.n < 2:
            return
        first = group.gpus[0]
        for metric in ACCUSING:
            even = peers is None or peers.alike(metric.read, self._easy(first.node))
            if even and not slow_judge.absolutely(self.case, first, metric):
                continue
            vote = partial(slow_judge.of_node, group=group, peers=peers, metric=metric)
            votes = self._unless_near(vote, first.node, "")
            here = group.of(metric.read)
            if votes is None or here is None:
                continue
            words = slow_words.node(group, metric, peers, votes)
            top = metric.top(first) if metric.top else None
            usual = votes.group.median if votes.group is not None and votes.spatial else top
            share = here.median / usual if usual else 0.0
            yield self._slow(NODE, first, metric, words, votes, share)


def _common(slow: dict[Key, dict[str, bool]], weak: int) -> frozenset[tuple[str, Key]]:
    """(node, product and limit) of which most other nodes are below the catalogue as well."""
    found: set[tuple[str, Key]] = set()
    for key, nodes in slow.items():
        total, bad = len(nodes) - 1, sum(nodes.values())
        if total >= weak:
            found.update(
                (node, key) for node, is_bad in nodes.items() if (bad - is_bad) * 2 > total
            )
    return frozenset(found)


def _proven(slow: Slow) -> bool:
    return slow.votes is not None and slow.votes.proven
