"""Cluster: 2, 4, 8 ... all nodes together; where the bandwidth falls, pairs name the reason. Pure.

Each size is run by the first nodes and, beside them, by the next ones, so that the next size is two
halves whose figures are known: when it falls, either the half that was slow alone is to blame, or
both were fine and it is what lies between them. The sizes stop at the first fall: a larger group
would only be as slow as the node that is already in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, structs

from console.active import expect, pair_words, schemes
from console.active.expect import Expected
from console.active.level import CPU_ENGINES, Level, level
from console.active.pair_view import SETTLED, measured
from console.active.pair_words import gb_s, hosts
from console.active.pairs import Pairs
from console.active.results import Confidence, Group, Run, Verdict
from console.active.results import Level as TestLevel
from probes.event import Severity

SHAPE = ((16, 0.90), (64, 0.80), (1 << 30, 0.50))
"""Up to so many nodes, this share of what few nodes reach (science 6, a guess); beyond 64 half of
it, as GB200 falls from 820 to 405 GB/s between 2 and 20 racks [cw]."""
HELP = 4
"""Good nodes that are added to a slow part, at least, so that its pairs have known-good ones."""
PAST = 0.90


class _Walk(Struct):
    """How far the sizes got."""

    ran: dict[tuple[str, ...], Run]
    """Group -> its better run."""
    left: list[Group]
    """What is left of the round."""
    slow: list[Run]
    cleared: set[tuple[str, ...]]
    """Groups whose pairs were all fine."""
    rounds: int

    def take(self, run: Run | None) -> None:
        """Keep the better of two runs of a group: one slow run may be chance."""
        if run is None:
            return
        before = self.ran.get(run.group.nodes)
        if before is None or (before.busbw_gb_s or 0.0) < (run.busbw_gb_s or 0.0):
            self.ran[run.group.nodes] = run


class Cluster:
    """Localiser of growing groups."""

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        seed: int,
        expected: Expected,
        labels: Mapping[str, Mapping[str, str]],
        slow_alone: Mapping[str, str] | None = None,
        fine_alone: Collection[str] = (),
    ) -> None:
        """Nodes join in the order given: neighbours first."""
        self.nodes, self.seed = tuple(nodes), seed
        self.expected, self.labels = expected, labels
        self.slow_alone, self.fine_alone = slow_alone or {}, fine_alone
        self.sizes = schemes.doubling(len(self.nodes))
        self.capacity = expect.capacities(expected, self.nodes)

    def next_round(self, runs: Sequence[Run]) -> list[Group]:
        """The next size, a slow group again, or pairs of the part that is slow."""
        return self._walk(runs).left

    def _walk(self, runs: Sequence[Run]) -> _Walk:
        """Size by size as far as they have run; what is slow runs again, then in pairs.

        Pairs that are all fine clear a group: it was chance, and the sizes go on.
        """
        walk = _Walk({}, [], [], set(), 0)
        settled = [run for run in runs if run.state in SETTLED]
        for size in self.sizes:
            self._take(walk, self._blocks(size), settled)
            again = [structs.replace(r.group, why="slow, again") for r in walk.slow]
            if again and not walk.left:
                self._take(walk, again, settled)
            if walk.slow and not walk.left:
                self._ask_pairs(walk, runs)
            if walk.left or walk.slow:
                return walk
        return walk

    def _take(self, walk: _Walk, groups: Sequence[Group], settled: Sequence[Run]) -> None:
        """One more round of whole groups."""
        walk.rounds += 1
        here = {run.group.nodes: run for run in settled if run.round == walk.rounds}
        walk.left = [group for group in groups if group.nodes not in here]
        for group in groups:
            walk.take(here.get(group.nodes))
        slow = self._slow(list(walk.ran.values()))
        walk.slow = [run for run in slow if run.group.nodes not in walk.cleared]

    def _ask_pairs(self, walk: _Walk, runs: Sequence[Run]) -> None:
        pairs = self._pairs(walk)
        walk.left = pairs.next_round(runs)
        mine = pairs.mine(runs)
        if walk.left or not mine or any(v.verdict is not Severity.OK for v in pairs.verdicts(runs)):
            return
        walk.cleared.update(run.group.nodes for run in walk.slow)
        walk.slow, walk.rounds = [], max(run.round for run in mine)

    def verdicts(self, runs: Sequence[Run]) -> list[Verdict]:
        """The scaling first, then who makes it slow, then the other nodes."""
        walk = self._walk(runs)
        ran, slow = list(walk.ran.values()), walk.slow
        usual = self._level(ran)
        if not ran:
            return [_node(node, "not run yet") for node in self.nodes]
        found = [self._scaling(ran, usual, slow)]
        found += [v for v in (self._wire(ran, slow), self._past(ran, slow)) if v is not None]
        if slow and usual is not None:
            pairs = self._pairs(walk)
            told = pairs.verdicts(runs) if pairs.mine(runs) else []
            found += [v for v in told if v.verdict is not Severity.OK]
        named = {node for v in found if v.kind == "node" for node in v.nodes}
        seen = {node for run in ran if measured(run) for node in run.group.nodes}
        bad = any(v.verdict is not Severity.OK and v.kind == "fabric" for v in found)
        for node in self.nodes:
            if node not in named:
                doubt = "not reached" if node not in seen else "in a slow group" if bad else ""
                found.append(_node(node, doubt))
        return found

    def _blocks(self, size: int) -> list[Group]:
        """The first `size` nodes and the ones after them, as far as there are two."""
        n = len(self.nodes)
        why = f"{size} of {n} nodes"
        first = Group(nodes=self.nodes[:size], why=why)
        rest = self.nodes[size : 2 * size]
        return [first, *([Group(nodes=rest, why=f"the next {len(rest)}")] if len(rest) > 1 else [])]

    def _level(self, ran: Sequence[Run]) -> Level | None:
        """What groups of up to 16 nodes reach."""
        few = [r for r in ran if len(r.group.nodes) <= SHAPE[0][0] and measured(r)]
        cpu = any(run.engine in CPU_ENGINES for run in few)
        return level((run.busbw_gb_s or 0.0 for run in few), cpu)

    def _slow(self, ran: Sequence[Run]) -> list[Run]:
        """Groups that are slow or failed, without those that contain a slow one."""
        usual = self._level(ran)
        bad = [run for run in ran if not measured(run) or usual is None or self._low(run, usual)]
        parts = [set(run.group.nodes) for run in bad]
        return [r for r in bad if not any(part < set(r.group.nodes) for part in parts)]

    def _low(self, run: Run, usual: Level) -> bool:
        """Below the shape, and where the NIC rate is known below what its wire should carry.

        Two nodes may run near the speed inside a node, which more of them never reach.
        """
        n = len(run.group.nodes)
        allowed = next(share for most, share in SHAPE if n <= most)
        value = run.busbw_gb_s or 0.0
        if value >= min(allowed, usual.slow) * usual.value:
            return False
        mark = expect.wire(run, self._cap(run))
        return mark is None or expect.wire_gb_s(value, n, run.ranks or n) < mark.value

    def _cap(self, run: Run) -> float | None:
        return (
            min((self.capacity[n] for n in run.group.nodes), default=None)
            if self.capacity
            else None
        )

    def _pairs(self, walk: _Walk) -> Pairs:
        """On the nodes of all slow parts, with good ones to tell by."""
        ran, slow = list(walk.ran.values()), walk.slow
        members = {node for run in slow for node in run.group.nodes}
        good = [n for r in ran if r not in slow and measured(r) for n in r.group.nodes]
        spare = [n for n in dict.fromkeys(good) if n not in members][: max(HELP, len(members))]
        chosen = [n for n in self.nodes if n in members or n in spare]
        if self._halves(ran, slow):
            chosen = []
        return Pairs(
            chosen, seed=self.seed, scheme="auto", expected=self.expected, labels=self.labels,
            slow_alone=self.slow_alone, fine_alone=self.fine_alone, after=walk.rounds,
        )  # fmt: skip

    def _halves(self, ran: Sequence[Run], slow: Sequence[Run]) -> bool:
        """Whether all slow groups consist of parts that were fine alone."""
        good = [set(run.group.nodes) for run in ran if run not in slow and measured(run)]
        return bool(slow) and all(
            set(run.group.nodes) <= set().union(*(g for g in good if g < set(run.group.nodes)))
            for run in slow
        )

    # Verdicts

    def _scaling(self, ran: Sequence[Run], usual: Level | None, slow: Sequence[Run]) -> Verdict:
        """How the bandwidth goes with the number of nodes."""
        largest = max(ran, key=lambda run: len(run.group.nodes))
        n = len(largest.group.nodes)
        curve = tuple(
            f"{len(r.group.nodes)} nodes ({hosts(r.group.nodes)}): {pair_words.figure(r)}"
            for r in ran
        )
        if usual is None or slow:
            return self._fall(ran, usual, slow, curve)
        whole = n == len(self.nodes)
        share = (largest.busbw_gb_s or 0.0) / usual.value
        return Verdict(
            kind="fabric", name=f"{n} nodes", nodes=largest.group.nodes, evidence=curve,
            verdict=Severity.OK if whole else Severity.UNKNOWN, confidence=Confidence.LIKELY,
            say=f"{n} nodes: {pair_words.figure(largest)}, {share:.0%} of what few nodes reach"
            + ("" if whole else f"; {n} of {len(self.nodes)} nodes so far"),
            expected=round(usual.value, 3), provenance=f"median of {usual.n} groups of this test",
        )  # fmt: skip

    def _fall(
        self, ran: Sequence[Run], usual: Level | None, slow: Sequence[Run], curve: tuple[str, ...]
    ) -> Verdict:
        first = slow[0] if slow else ran[0]
        between = self._halves(ran, slow)
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
            next_step="look at the uplinks between the halves; `gpuconsole test --level pairs`"
            if between
            else "see the nodes named; drain them and test again",
            expected=None if usual is None else round(usual.value, 3),
            provenance="" if usual is None else f"median of {usual.n} groups of this test",
        )  # fmt: skip

    def _wire(self, ran: Sequence[Run], slow: Sequence[Run]) -> Verdict | None:
        """The per-GPU wire rate of the largest good group against the NIC rate."""
        good = [run for run in ran if measured(run) and run not in slow]
        run = max(good, key=lambda r: len(r.group.nodes), default=None)
        mark = None if run is None else expect.wire(run, self._cap(run))
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
            next_step="" if fine else "read NCCL_DEBUG's clues; `gpuconsole test --level pairs`",
            expected=round(mark.value, 3), provenance=mark.provenance,
        )  # fmt: skip

    def _past(self, ran: Sequence[Run], slow: Sequence[Run]) -> Verdict | None:
        """The largest group against its own last good results."""
        run = max(ran, key=lambda r: len(r.group.nodes))
        past = expect.own(self.expected, TestLevel.CLUSTER, run, "busbw", "")
        value = run.busbw_gb_s
        if past is None or value is None or slow or value >= PAST * past.value:
            return None
        n = len(run.group.nodes)
        return Verdict(
            kind="fabric", name=f"past of {n} nodes", nodes=run.group.nodes, verdict=Severity.WARN,
            confidence=Confidence.SUSPECTED,
            say=f"{n} nodes: {gb_s(value)} GB/s, {value / past.value:.0%} of their own past",
            cause="something changed: fabric load, software, settings, or other nodes than then",
            next_step="see what changed since (drift findings); `gpuconsole test --level pairs`",
            expected=round(past.value, 3), provenance=past.provenance,
        )  # fmt: skip


def _node(node: str, doubt: str) -> Verdict:
    return Verdict(
        kind="node", name=node, nodes=(node,), confidence=Confidence.LIKELY,
        verdict=Severity.UNKNOWN if doubt else Severity.OK,
        say=f"{node}: {doubt or 'in a group that is as fast as expected'}",
        provenance="" if doubt else "groups of this test",
    )  # fmt: skip
