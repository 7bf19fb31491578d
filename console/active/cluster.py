"""Cluster: 2, 4, 8 ... all nodes together; where the bandwidth falls, pairs name the reason. Pure.

Which groups run is `growth`; here is what their figures say.
"""

from __future__ import annotations

from collections.abc import Sequence

from console.active import expect, pair_words
from console.active.blame import pairs_of
from console.active.growth import Growth, Walk
from console.active.level import Level
from console.active.lineup import Lineup
from console.active.pair_view import measured
from console.active.pair_words import gb_s, hosts
from console.active.results import Confidence, Group, Run, Verdict
from console.active.results import Level as TestLevel
from probes.event import Severity

PAST = 0.90


class Cluster:
    """Localiser of growing groups."""

    def __init__(self, lineup: Lineup) -> None:
        """Nodes join in the order given: neighbours first."""
        self.nodes, self.expected = lineup.nodes, lineup.expected
        self.growth = Growth(lineup)

    def next_round(self, runs: Sequence[Run]) -> list[Group]:
        """The next size, a slow group again, or pairs of the part that is slow."""
        return self.growth.walk(runs).left

    def verdicts(self, runs: Sequence[Run]) -> list[Verdict]:
        """The scaling first, then who makes it slow, then the other nodes."""
        walk = self.growth.walk(runs)
        if not walk.ran:
            return [_node(node, "not run yet") for node in self.nodes]
        found = [self._scaling(walk), *walk.told]
        found += [v for v in (self._wire(walk), self._past(walk)) if v is not None]
        named = {node for v in found if v.kind == "node" for node in v.nodes}
        bad = any(v.verdict is not Severity.OK and v.kind == "fabric" for v in found[1:])
        return [*found, *(_node(n, _doubt(walk, n, bad)) for n in self.nodes if n not in named)]

    # Verdicts

    def _scaling(self, walk: Walk) -> Verdict:
        """How the bandwidth goes with the number of nodes."""
        usual = self.growth.level(walk.live)
        curve = tuple(
            f"{len(r.group.nodes)} nodes ({hosts(r.group.nodes)}): {pair_words.figure(r)}"
            for r in walk.ran.values()
        )
        if usual is None or walk.slow:
            return self._fall(walk, usual, curve)
        largest = max(walk.live, key=lambda run: len(run.group.nodes))
        n = len(largest.group.nodes)
        whole = n == len(walk.nodes)
        share = (largest.busbw_gb_s or 0.0) / usual.value
        out = [node for node in self.nodes if node not in walk.nodes]
        return Verdict(
            kind="fabric", name=f"{n} nodes", nodes=largest.group.nodes, evidence=curve,
            verdict=Severity.OK if whole else Severity.UNKNOWN, confidence=Confidence.LIKELY,
            say=f"{n} nodes: {pair_words.figure(largest)}, {share:.0%} of what few nodes reach"
            + (f"; without {hosts(out)}" if out else "")
            + ("" if whole else f"; {n} of {len(walk.nodes)} nodes so far"),
            expected=round(usual.value, 3), provenance=f"median of {usual.n} groups of this test",
        )  # fmt: skip

    def _fall(self, walk: Walk, usual: Level | None, curve: tuple[str, ...]) -> Verdict:
        first = [*walk.slow, *walk.live, *walk.ran.values()][0]
        between = self.growth.halves(walk.live, walk.slow)
        n = len(first.group.nodes)
        reached = "" if usual is None else f", few nodes reach {gb_s(usual.value)} GB/s"
        return Verdict(
            kind="fabric", name=f"{n} nodes", nodes=first.group.nodes,
            verdict=Severity.WARN if usual is not None else Severity.UNKNOWN,
            confidence=Confidence.LIKELY if usual is not None else Confidence.SUSPECTED,
            say=f"it falls at {n} nodes ({hosts(first.group.nodes)}): "
            f"{pair_words.figure(first)}{reached}",
            evidence=(*curve, *pair_words.clues([first])),
            cause="what lies between its halves, which are fine alone: uplinks, spine, routing"
            if between
            else "a node or path in it: pairs of it tell which",
            next_step=f"look at the uplinks between the halves; {pairs_of(first.group.nodes)}"
            if between
            else f"see the nodes named; else {pairs_of(first.group.nodes)} tells",
            expected=None if usual is None else round(usual.value, 3),
            provenance="" if usual is None else f"median of {usual.n} groups of this test",
        )  # fmt: skip

    def _wire(self, walk: Walk) -> Verdict | None:
        """The per-GPU wire rate of the largest good group against the NIC rate."""
        good = [run for run in walk.live if measured(run) and run not in walk.slow]
        run = max(good, key=lambda r: len(r.group.nodes), default=None)
        mark = None if run is None else expect.wire(run, self.growth.cap(run))
        if run is None or mark is None:
            return None
        n = len(run.group.nodes)
        value = expect.wire_gb_s(run.busbw_gb_s or 0.0, n, run.ranks or n)
        fine = value >= mark.value
        return Verdict(
            kind="fabric", name=f"wire rate of {n} nodes", nodes=run.group.nodes,
            verdict=Severity.OK if fine else Severity.WARN, confidence=Confidence.LIKELY,
            say=f"{n} nodes: {gb_s(value)} GB/s on the wire per GPU, expected {gb_s(mark.value)}",
            evidence=pair_words.clues([run]),
            cause="" if fine else "GPUDirect off, too few NICs used, congestion, or one slow node",
            next_step="" if fine else "read NCCL_DEBUG's clues; " + pairs_of(run.group.nodes),
            expected=round(mark.value, 3), provenance=mark.provenance,
        )  # fmt: skip

    def _past(self, walk: Walk) -> Verdict | None:
        """The largest group against its own last good results."""
        run = max(walk.live, key=lambda r: len(r.group.nodes), default=None)
        if run is None:
            return None
        past = expect.own(self.expected, TestLevel.CLUSTER, run, "busbw", "")
        value = run.busbw_gb_s
        if past is None or value is None or walk.slow or value >= PAST * past.value:
            return None
        n = len(run.group.nodes)
        return Verdict(
            kind="fabric", name=f"past of {n} nodes", nodes=run.group.nodes, verdict=Severity.WARN,
            confidence=Confidence.SUSPECTED,
            say=f"{n} nodes: {gb_s(value)} GB/s, {value / past.value:.0%} of their own past",
            cause="something changed: fabric load, software, settings, or other nodes than then",
            next_step="see what changed since (drift findings); " + pairs_of(run.group.nodes),
            expected=round(past.value, 3), provenance=past.provenance,
        )  # fmt: skip


def _doubt(walk: Walk, node: str, bad: bool) -> str:
    """Why a node that no verdict names is not known to be fine; "" when it is."""
    if node in walk.refused:
        return f"left out: {walk.refused[node]}"
    if bad:
        return "as slow as all"
    good = [run for run in walk.live if measured(run) and run not in walk.slow]
    if node in walk.fine or any(node in run.group.nodes for run in good):
        return ""
    return "in a slow group" if any(node in r.group.nodes for r in walk.slow) else "not reached"


def _node(node: str, doubt: str) -> Verdict:
    return Verdict(
        kind="node", name=node, nodes=(node,), confidence=Confidence.LIKELY,
        verdict=Severity.UNKNOWN if doubt else Severity.OK,
        say=f"{node}: {doubt or 'in a group or pair that is as fast as expected'}",
        provenance="" if doubt else "groups of this test",
    )  # fmt: skip
