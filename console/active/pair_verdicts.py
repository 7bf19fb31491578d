"""Who is to blame, by the rule of science 1.5. Pure.

Pair bad and both good otherwise: the path. Bad with two known-good partners: the node. Bad only
across a group's border: the fabric, and nobody is drained. A healthy node must never be named
with certainty, so that certain means all of: three known-good partners, each slow with nobody
good; some other pair fast in the same round; a clear effect; a quiet round where many pairs were
slow; not fast with any fellow suspect; no fault of a whole group about; and few suspects.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cached_property

from console.active import pair_fabric, pair_words
from console.active.lineup import Lineup
from console.active.pair_groups import Fault, faults, pairs
from console.active.pair_plan import PARTNERS, SURE
from console.active.pair_view import BAD, Edge, Look, View, measured
from console.active.pair_words import evidence, gb_s
from console.active.results import Confidence, Verdict
from probes.event import Severity

ODD = 3
"""Slow pairs of good nodes from which the fabric is in doubt, and no node is named for sure."""
FAR = 0.80
"""Below it a node that reached the gray zone once is not slow by itself, but now and then."""


def judge(view: View, lineup: Lineup) -> list[Verdict]:
    """Fabric first, then nodes, paths, and what is fine."""
    return _Judge(view, lineup).all()


class _Judge:
    def __init__(self, view: View, lineup: Lineup) -> None:
        self.view = view
        self.slow_alone, self.fine_alone = lineup.slow_alone, lineup.fine_alone
        self.named: set[str] = set()
        """Nodes that some verdict is about."""

    def all(self) -> list[Verdict]:
        if self.view.edges and not self.view.good:
            found = [pair_fabric.nobody_good(self.view)]
            self.named.update(found[0].nodes)
        else:
            found = [*self._fabric(), *self._groups(), *self._nodes(), *self._paths()]
        return [*found, *self._rest()]

    @cached_property
    def faults(self) -> list[Fault]:
        return faults(self.view) if self.view.good else []

    @cached_property
    def all_slow(self) -> Verdict | None:
        return pair_fabric.all_slow(self.view)

    def _fabric(self) -> list[Verdict]:
        view = self.view
        found = [self.all_slow, pair_fabric.across(view), pair_fabric.split(view)]
        return [verdict for verdict in found if verdict is not None]

    # What many share

    def _groups(self) -> list[Verdict]:
        found = []
        for fault in self.faults:
            self.named.update(fault.nodes)
            found.append(pair_fabric.group(self.view, fault))
        return found

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
        many = pair_fabric.many(view) or len(view.odd_pairs) >= ODD
        overshadowed = many or self.all_slow is not None
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
            else pair_words.ONE_OF,
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
        return [
            _fine(self.view, node, slow) if met[node] else _untested(self.view, node)
            for node in left
        ]


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


def _untested(view: View, node: str) -> Verdict:
    say, cause = f"{node}: no run told anything of it", ""
    next_step = "see why its runs were refused, then go on with the test"
    if odd := view.odd_ranks(node):
        say = f"{node}: its pairs have {', '.join(map(str, odd))} ranks, no others have as many"
        cause = "GPUs that are missing or hidden on one of the two nodes"
        next_step = "see how many GPUs the node has and should have, then test it again"
    return Verdict(
        kind="node", name=node, nodes=(node,), verdict=Severity.UNKNOWN,
        confidence=Confidence.SUSPECTED, say=say, cause=cause, next_step=next_step,
    )  # fmt: skip
