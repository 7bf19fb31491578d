"""Who is to blame, by the rule of science 1.5. Pure.

Pair bad and both good otherwise: the path. Bad with two known-good partners: the node. Bad only
across a group's border: the fabric, and nobody is drained. A healthy node must never be named
with certainty, so that certain means all of: three known-good partners, each slow with nobody
good; some other pair fast in the same round; a clear effect; a quiet round where many pairs were
slow; not fast with any fellow suspect; no fault of a whole group about; and few suspects.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from console.active import expect, pair_words
from console.active.pair_groups import Fault, faults, pairs
from console.active.pair_plan import PARTNERS, SURE
from console.active.pair_view import BAD, Edge, Look, View, measured
from console.active.pair_words import evidence, gb_s, hosts
from console.active.results import Confidence, Verdict
from console.active.results import Level as TestLevel
from probes.event import Severity

MANY = 3
MANY_SHARE = 0.25
"""More suspects than three and a quarter of the nodes: a split, which names nobody for sure."""
ODD = 3
"""Slow pairs of good nodes from which the fabric is in doubt, and no node is named for sure."""
FAR = 0.80
"""Below it a node that reached the gray zone once is not slow by itself, but now and then."""
PAST = 0.90
"""Share of the own past below which something changed: 10 %, as Greyhound's gate [science 1.3]."""
LOST = 0.85
"""Share of a pass mark below which it is critical (science 1.3's ratio gate)."""
ACROSS = 0.90
"""Pairs across places over pairs inside one; below it is worth a word."""


def judge(view: View, slow_alone: Mapping[str, str], fine_alone: Collection[str]) -> list[Verdict]:
    """Fabric first, then nodes, paths, and what is fine."""
    return _Judge(view, slow_alone, fine_alone).all()


class _Judge:
    def __init__(
        self, view: View, slow_alone: Mapping[str, str], fine_alone: Collection[str]
    ) -> None:
        self.view, self.slow_alone, self.fine_alone = view, slow_alone, fine_alone
        self.named: set[str] = set()
        """Nodes that some verdict is about."""

    def all(self) -> list[Verdict]:
        if self.view.edges and not self.view.good:
            found = self._nobody_good()
        else:
            found = [*self._fabric(), *self._groups(), *self._nodes(), *self._paths()]
        return [*found, *self._rest()]

    @cached_property
    def faults(self) -> list[Fault]:
        return faults(self.view) if self.view.good else []

    @property
    def many(self) -> bool:
        return len(self.view.unclear) > max(MANY, MANY_SHARE * len(self.view.nodes))

    @cached_property
    def all_slow(self) -> Verdict | None:
        return self._below_mark() or self._below_past()

    # Everything

    def _nobody_good(self) -> list[Verdict]:
        """No pair has a figure."""
        edges = self.view.edges
        errors = [edge.run.error or edge.run.state.value for edge in edges]
        common = statistics.mode(errors)
        ran = sorted({n for e in edges for n in e.run.group.nodes}, key=self.view.nodes.index)
        self.named.update(ran)
        software = pair_words.software(edges)
        two = len(ran) == 2
        return [
            Verdict(
                kind="path" if two else "fabric",
                name="-".join(ran) if two else "all pairs",
                nodes=tuple(ran),
                verdict=Severity.UNKNOWN if software else Severity.CRITICAL,
                confidence=Confidence.SUSPECTED,
                say=f"none of {len(edges)} pair runs succeeded: {common[:120]}",
                evidence=tuple(dict.fromkeys(e[:160] for e in errors))[: pair_words.SHOWN],
                cause="software or settings that all share"
                if software or not two
                else "one of the two nodes, or their path: two nodes alone cannot tell",
                next_step="make one pair run by hand; names nobody",
            )
        ]

    def _fabric(self) -> list[Verdict]:
        found = [self.all_slow, self._across(), self._split()]
        return [verdict for verdict in found if verdict is not None]

    def _below_mark(self) -> Verdict | None:
        """All good pairs below what their NICs should carry."""
        view = self.view
        best = [e.run for e in view.edges if e.look is Look.FAST]
        mark = expect.pair_share(best) if view.capacity else None
        if mark is None or best[0].group.rail is not None:
            return None
        share = statistics.median((run.busbw_gb_s or 0.0) / view.cap(run) for run in best)
        if share >= mark.value:
            return None
        cap = statistics.median(view.cap(run) for run in best)
        grave = share < LOST * mark.value
        return self._all(
            f"all pairs are slow: {gb_s(share * cap)} of {gb_s(mark.value * cap)} GB/s where it is "
            "best",
            mark.value * cap,
            mark.provenance,
            Severity.CRITICAL if grave else Severity.WARN,
            pair_words.clues(best),
        )

    def _below_past(self) -> Verdict | None:
        """All nodes below their own past."""
        view, shares, n = self.view, list[float](), 0
        for node in view.nodes:
            edges = [e for es in view.met[node].values() for e in es if e.share]
            best = max(edges, key=lambda e: e.share, default=None)
            if best is None or best.run.group.rail is not None:
                continue
            past = expect.own(view.expected, TestLevel.PAIRS, best.run, "busbw", node)
            if past is not None:
                shares.append((best.run.busbw_gb_s or 0.0) / past.value)
                n += 1
        if n * 2 <= len(view.nodes) or not shares or statistics.median(shares) >= PAST:
            return None
        share = statistics.median(shares)
        return self._all(
            f"all pairs are slower than they were: {share:.0%} of their own past",
            None, f"own good results of {n} nodes", Severity.WARN, (),
        )  # fmt: skip

    def _all(
        self,
        say: str,
        expected: float | None,
        provenance: str,
        verdict: Severity,
        clues: tuple[str, ...],
    ) -> Verdict:
        return Verdict(
            kind="fabric", name="all pairs", nodes=tuple(self.view.nodes), verdict=verdict,
            confidence=Confidence.LIKELY, say=say, evidence=clues,
            cause="; ".join(clues) or "the fabric, settings all nodes share, or the expectation",
            next_step="look at NCCL's network (NCCL_DEBUG), GPUDirect and the fabric's load; no "
            "node stands out",
            expected=expected, provenance=provenance,
        )  # fmt: skip

    def _across(self) -> Verdict | None:
        """Pairs across places against pairs inside one, each kind with a level of its own."""
        for (engine, where), outer in self.view.levels.items():
            inner = self.view.levels.get((engine, "inside"))
            if where != "across" or inner is None or outer.value >= ACROSS * inner.value:
                continue
            share = outer.value / inner.value
            return Verdict(
                kind="fabric", name=f"across {self.view.key}s", nodes=tuple(self.view.nodes),
                verdict=Severity.WARN, confidence=Confidence.LIKELY,
                say=f"pairs across {self.view.key}s reach {share:.0%} of pairs inside one",
                evidence=(f"{outer.n} good pairs across, {inner.n} inside",),
                cause="uplinks: oversubscribed by design, congested, or some of them down",
                next_step="compare with the fabric's design; look at the uplinks; drain nobody",
                provenance=f"pairs inside one {self.view.key}, this test",
            )  # fmt: skip
        return None

    def _split(self) -> Verdict | None:
        """So many suspects that nobody knows which side is right."""
        suspects = self.view.unclear
        if not self.many:
            return None
        return Verdict(
            kind="group", name=f"{len(suspects)} of {len(self.view.nodes)} nodes",
            nodes=tuple(suspects), verdict=Severity.WARN, confidence=Confidence.SUSPECTED,
            say=f"{len(suspects)} of {len(self.view.nodes)} nodes were never fast: a split, not "
            "single nodes",
            evidence=(f"{len(self.view.edges)} pair runs, hosts {hosts(suspects)}",),
            cause="something these nodes share: a switch, a setting, a software version, a product",
            next_step="look for what they have in common (drift findings); test smaller groups",
        )  # fmt: skip

    # Groups

    def _groups(self) -> list[Verdict]:
        found = []
        for fault in self.faults:
            self.named.update(fault.nodes)
            found.append(self._group(fault))
        return found

    def _group(self, fault: Fault) -> Verdict:
        which = " (or the other side: neither is the smaller)" if fault.half else ""
        sure = fault.inside >= PARTNERS and not fault.half
        return Verdict(
            kind="group", name=fault.name, nodes=fault.nodes, verdict=Severity.CRITICAL,
            confidence=Confidence.LIKELY if sure else Confidence.SUSPECTED,
            say=f"{fault.name}: slow with others ({fault.across} of {fault.tried} pairs), fine "
            f"inside ({fault.inside} pairs){which}",
            evidence=self._group_evidence(fault),
            cause="what they share towards the rest: a leaf's uplinks, a cable bundle, routing",
            next_step="look at the uplinks of their switch; drain nobody: the nodes are healthy",
            provenance="good pairs of the same rounds",
        )  # fmt: skip

    def _group_evidence(self, fault: Fault) -> tuple[str, ...]:
        inside, across = list[Edge](), list[Edge]()
        for edge in self.view.edges:
            ends = sum(n in fault.nodes for n in edge.run.group.nodes)
            if ends == 1 and edge.look in BAD:
                across.append(edge)
            elif ends == 2 and edge.look is Look.FAST:
                inside.append(edge)
        shown = [*inside[:2], *across[:3]]
        lines = [
            f"round {e.round} {'+'.join(e.run.group.nodes)}: {pair_words.figure(e.run)}"
            for e in shown
        ]
        return (f"hosts {hosts(fault.nodes)}", *lines)

    def _grouped(self, node: str) -> bool:
        return any(node in fault.nodes for fault in self.faults)

    # Nodes

    def _nodes(self) -> list[Verdict]:
        found = [self._suspect(n) for n in self.view.suspects if not self._grouped(n)]
        found += [self._sometimes(n) for n in self.view.mixed if self._alone(n)]
        return [verdict for verdict in found if verdict is not None]

    def _suspect(self, node: str) -> Verdict | None:
        view = self.view
        partners = view.against(node)
        edges = [e for p in partners for e in view.met[node][p] if e.look in BAD]
        severity = view.verdict_of(node)
        if not edges or severity is Severity.OK:
            return None
        usual = view.level(edges[0].run)
        self.named.add(node)
        confidence = self._confidence(node, partners)
        if pair_words.software(edges):
            severity = Severity.UNKNOWN
        elif confidence is Confidence.SUSPECTED and severity is Severity.CRITICAL:
            severity = Severity.WARN
        alone = self.slow_alone.get(node, "")
        good = [e.good_gb_s for e in edges if e.good_gb_s]
        return Verdict(
            kind="node", name=node, nodes=(node,), verdict=severity, confidence=confidence,
            say=_say(node, edges, len(partners)), evidence=evidence(view, node, partners),
            cause=pair_words.cause_of_node(view, node, edges, alone),
            next_step=pair_words.next_of_node(node, edges, alone)
            if confidence is not Confidence.SUSPECTED
            else f"test {node} again with other partners before draining it",
            expected=round(statistics.median(good), 3) if good else None,
            provenance=f"median of {usual.n} good pairs of this test" if usual else "",
        )  # fmt: skip

    def _confidence(self, node: str, partners: Sequence[str]) -> Confidence:
        view = self.view
        overshadowed = self.many or self.all_slow is not None or len(view.odd_pairs) >= ODD
        if len(partners) < PARTNERS or overshadowed or self.faults:
            return Confidence.SUSPECTED
        if Look.GRAY in view.looks(node).values():
            far = statistics.fmean(view.shares(node)) < FAR
            return Confidence.SUSPECTED if far else Confidence.LIKELY
        quiet = view.quiet(node) or not view.crowded
        sure = view.verdict_of(node) is Severity.CRITICAL and len(view.counted(node)) >= SURE
        if sure and quiet and view.apart(node):
            return Confidence.CERTAIN
        return Confidence.LIKELY

    def _alone(self, node: str) -> bool:
        """Slow with several, fast with some, and no group explains it."""
        return not self._grouped(node) and not self._everywhere

    @cached_property
    def _everywhere(self) -> bool:
        """More nodes slow with some than two: no single node explains that."""
        return sum(not self._grouped(n) for n in self.view.mixed) > 2

    def _sometimes(self, node: str) -> Verdict:
        looks = self.view.looks(node)
        bad = [p for p, look in looks.items() if look in BAD]
        self.named.add(node)
        return Verdict(
            kind="node", name=node, nodes=(node,), verdict=Severity.WARN,
            confidence=Confidence.SUSPECTED,
            say=f"{node}: slow with {len(bad)} of {len(looks)} partners, fine with the rest",
            evidence=evidence(self.view, node, looks),
            cause="a fault that comes and goes, or its path to some of them",
            next_step=f"test {node} against all: `gpuconsole test --level pairs --scheme full`",
        )  # fmt: skip

    # Paths

    def _paths(self) -> list[Verdict]:
        view = self.view
        open_pairs = [
            (a, b)
            for a, b, look in pairs(view)
            if look in BAD and view.slow_pair(a, b) and not self.named & {a, b}
        ]
        known = [(a, b) for a, b in open_pairs if {a, b} <= view.good]
        if self._everywhere or len(known) > 2:
            return [self._scattered(known)]
        return [self._path(a, b) for a, b in open_pairs]

    def _scattered(self, known: Sequence[tuple[str, str]]) -> Verdict:
        """Slow pairs of good nodes all over."""
        view = self.view
        nodes = [n for n in view.nodes if any(n in pair for pair in known)]
        total = sum(1 for _ in pairs(view))
        lines = [
            f"{a}+{b}: " + ", ".join(pair_words.figure(e.run) for e in view.met[a][b])
            for a, b in known[: pair_words.SHOWN]
        ]
        return Verdict(
            kind="fabric", name="many pairs", nodes=tuple(nodes), verdict=Severity.WARN,
            confidence=Confidence.LIKELY,
            say=f"{len(known)} of {total} pairs are slow although both nodes are good with others: "
            "no single node explains it",
            evidence=tuple(lines),
            cause="uplinks that many pairs share: oversubscription, congestion, adaptive routing "
            "or ECMP, a bad spine",
            next_step="look at the switches between them; label nodes with rack or leaf and test "
            "again; drain nobody",
            provenance="good pairs of the same rounds",
        )  # fmt: skip

    def _path(self, a: str, b: str) -> Verdict:
        view = self.view
        edges = view.met[a][b]
        self.named.update({a, b} - view.good)
        both = {a, b} <= view.good
        good = [e.good_gb_s for e in edges if e.good_gb_s]
        lines = [f"round {e.round}: {pair_words.figure(e.run)}" for e in edges]
        fine = [n for n in (a, b) if n in self.fine_alone]
        lines += [f"{n} is fine alone" for n in fine]
        lines += [_best(view, n) for n in (a, b) if n in view.good]
        sure = Confidence.LIKELY if both and len(edges) > 1 else Confidence.SUSPECTED
        say = f"{a}-{b}: {pair_words.figure(edges[-1].run)}"
        return Verdict(
            kind="path", name=f"{a}-{b}", nodes=(a, b), verdict=Severity.WARN, confidence=sure,
            say=say + (", both fine with others" if both else ", not told apart: node or path"),
            evidence=tuple(lines),
            cause="the path between them: a cable or switch port on it, routing, an ECMP bucket"
            if both
            else "one of the two nodes, or their path",
            next_step="look at the switch ports between them; drain neither"
            if both
            else "let the test run on: each needs another, known-good partner",
            expected=round(statistics.median(good), 3) if good else None,
            provenance="good pairs of this test" if good else "",
        )  # fmt: skip

    # The rest

    def _rest(self) -> list[Verdict]:
        left = [n for n in self.view.nodes if n not in self.named]
        slow = self.all_slow is not None
        met = self.view.met
        return [_fine(self.view, node, slow) if met[node] else _untested(node) for node in left]


def _say(node: str, edges: Sequence[Edge], partners: int) -> str:
    with_whom = f"with {partners} known-good partner{'s' if partners != 1 else ''}"
    if pair_words.failed_only(edges):
        return f"{node}: no run {with_whom} succeeded"
    figures = [edge.run.busbw_gb_s or 0.0 for edge in edges if measured(edge.run)]
    good = statistics.median(e.good_gb_s for e in edges if e.good_gb_s)
    return f"{node}: {gb_s(statistics.median(figures))} of {gb_s(good)} GB/s {with_whom}"


def _best(view: View, node: str) -> str:
    edge = max((e for es in view.met[node].values() for e in es), key=lambda e: e.share)
    return f"{node} with {edge.other(node)}: {pair_words.figure(edge.run)}"


def _fine(view: View, node: str, slow: bool) -> Verdict:
    """Cleared by its best run; unknown when that is no clear answer, or when all are slow."""
    best = max((e for es in view.met[node].values() for e in es), key=lambda e: e.share)
    clear = best.look is Look.FAST
    verdict = Severity.OK if clear or best.look is Look.GRAY else Severity.UNKNOWN
    told = "" if clear else f", {1 - best.share:.0%} below the others: within the scatter"
    if slow:
        verdict, told = Severity.UNKNOWN, ", as slow as all"
    elif verdict is Severity.UNKNOWN:
        told = ": never ran with a known-good partner"
    return Verdict(
        kind="node", name=node, nodes=(node,), verdict=verdict,
        confidence=Confidence.LIKELY if clear else Confidence.SUSPECTED,
        say=f"{node}: {pair_words.figure(best.run)} with {best.other(node)}{told}",
        expected=None if best.good_gb_s is None else round(best.good_gb_s, 3),
        provenance="good pairs of this test",
    )  # fmt: skip


def _untested(node: str) -> Verdict:
    return Verdict(
        kind="node", name=node, nodes=(node,), verdict=Severity.UNKNOWN,
        confidence=Confidence.SUSPECTED, say=f"{node}: no run told anything of it",
        next_step="see why its runs were refused, then go on with the test",
    )  # fmt: skip
