"""Rails: the same local GPU on all nodes, one rail after the other, then pairs on a slow one. Pure.

With rail-optimised cabling each rail has its own leaf switches. A slow rail is either one NIC,
which pairs on that rail name, or the whole rail, on which all pairs are slow alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import structs

from console.active import dead, expect, pair_words, rail_dead
from console.active.blame import HELP, pairs_of
from console.active.level import CPU_ENGINES, Level, level
from console.active.lineup import Lineup
from console.active.pair_view import measured
from console.active.pair_words import gb_s
from console.active.pairs import Pairs
from console.active.rail_course import Course, course
from console.active.results import Confidence, Group, Run, Verdict
from probes.event import Severity

GPUS = 8
"""Rails when nobody knows how many GPUs the nodes have."""
SPLIT = 2
"""Slow rails that are taken apart; more of them are no single NIC."""
PAIRED = 3
"""Nodes from which pairs of a rail tell more than the rail."""
WHOLE = 0.90
"""Pairs on a rail over the good rails below which the whole rail is slow."""

Phase: TypeAlias = tuple[Pairs, list[Group], list[Run]]
"""Pairs on one rail, what is left of their round, and what of them ran."""


class Rails:
    """Localiser over all rails of these nodes."""

    def __init__(self, lineup: Lineup) -> None:
        """The node with the fewest GPUs says how many rails there are."""
        self.lineup, self.nodes = lineup, lineup.nodes
        known = [g for node in self.nodes if (g := lineup.expected.spec(node).gpus)]
        self.rails = min(known, default=GPUS)
        self.capacity = lineup.capacities()

    def next_round(self, runs: Sequence[Run]) -> list[Group]:
        """One rail a round, slow ones again, then rounds of pairs: on who was left out, on those
        rails that stay slow."""
        if len(self.nodes) < 2:
            return []
        course = self._course(runs)
        if course.left:
            return course.left
        return next(filter(None, (left for _, left, _ in self._phases(course, runs))), [])

    def verdicts(self, runs: Sequence[Run]) -> list[Verdict]:
        """Rails first, then nodes whose NIC is slow or whose rank fails, then the other nodes."""
        course = self._course(runs)
        ran = course.best()
        phases = [] if course.left else self._phases(course, runs)
        out = rail_dead.verdicts(course, [(pairs, mine) for pairs, _, mine in phases])
        if not ran:
            told = {node for v in out for node in v.nodes}
            return [*out, *(_node(n, "no rail has run yet") for n in self.nodes if n not in told)]
        usual = self._level(ran)
        if usual is None:
            found = [self._none(list(ran.values()), course.nodes), *out]
        else:
            found = [*self._found(course, usual, phases), *out]
        named = {node for v in found if v.kind == "node" for node in v.nodes}
        why = "no figure" if usual is None else self._doubt(ran, found)
        return [*found, *(_node(n, why) for n in self.nodes if n not in named)]

    def _found(self, course: Course, usual: Level, phases: Sequence[Phase]) -> list[Verdict]:
        """What the figures of the rails say."""
        ran = course.best()
        slow = self._slow(ran, usual)
        if len(slow) * 2 >= len(ran) > 1 and slow:
            found = [self._split(ran, slow, usual)]
        else:
            whole = [p for p in phases if p[0].nodes == course.nodes]
            on = {pairs.rail: (pairs, mine) for pairs, _, mine in whole}
            found = [v for rail in slow for v in self._rail(rail, ran[rail], usual, on.get(rail))]
        found += [v for v in (self._below_mark(ran, usual),) if v is not None]
        return found + [_fine_rail(r, ran[r], usual) for r in ran if r not in slow]

    def _doubt(self, ran: Mapping[int, Run], found: Sequence[Verdict]) -> str:
        """Why the other nodes are not known to be fine; "" when they are."""
        if len(ran) < self.rails:
            return f"{len(ran)} of {self.rails} rails have run"
        return "as slow as all" if any(v.kind == "fabric" for v in found) else ""

    def _course(self, runs: Sequence[Run]) -> Course:
        return course(self.nodes, self.rails, runs, self._again)

    def _again(self, course: Course) -> list[int]:
        """Rails that were slow at first and can be told from good ones."""
        first = course.best(1)
        usual = self._level(first)
        slow = [] if usual is None else self._slow(first, usual)
        if len(course.nodes) < PAIRED or len(slow) * 2 >= len(first):
            return []
        return slow[:SPLIT]

    def _level(self, ran: Mapping[int, Run]) -> Level | None:
        cpu = any(run.engine in CPU_ENGINES for run in ran.values())
        return level((run.busbw_gb_s or 0.0 for run in ran.values() if measured(run)), cpu)

    def _slow(self, ran: Mapping[int, Run], usual: Level) -> list[int]:
        """Slowest first."""
        value = {rail: (run.busbw_gb_s or 0.0) * measured(run) for rail, run in ran.items()}
        slow = [rail for rail in ran if value[rail] < usual.slow * usual.value]
        return sorted(slow, key=lambda rail: (value[rail], rail))

    def _phases(self, course: Course, runs: Sequence[Run]) -> list[Phase]:
        """Pairs that ran or are to run, one set after the other, as far as they got."""
        found, after = list[Phase](), course.rounds
        for nodes, rail in [*self._suspects(course), *self._slow_rails(course)]:
            pairs = self._on(nodes, rail, after)
            left, mine = pairs.course(runs)
            found.append((pairs, left, mine))
            if left:
                break
            after = max((run.round for run in mine), default=after)
        return found

    def _suspects(self, course: Course) -> list[tuple[tuple[str, ...], int]]:
        """Who was left out, on the rail where it failed, each with good ones; none without such."""
        if self._level(course.best()) is None:
            return []
        by_rail: dict[int, list[str]] = {}
        for node, run in course.out.items():
            if dead.is_suspect(run):
                by_rail.setdefault(run.group.rail or 0, []).append(node)
        return [
            ((*nodes, *course.nodes[: max(HELP, len(nodes))]), rail)
            for rail, nodes in by_rail.items()
        ]

    def _slow_rails(self, course: Course) -> list[tuple[tuple[str, ...], int]]:
        """Rails that stayed slow."""
        ran = course.best()
        usual = self._level(ran)
        slow = [] if usual is None else self._slow(ran, usual)
        return [(course.nodes, rail) for rail in self._again(course) if rail in slow]

    def _on(self, nodes: Sequence[str], rail: int, after: int) -> Pairs:
        there = structs.replace(self.lineup, nodes=tuple(nodes), expected=expect.NOTHING)
        return Pairs(there, rail=rail, after=after)

    # Verdicts

    def _rail(
        self, rail: int, run: Run, usual: Level, ran: tuple[Pairs, list[Run]] | None
    ) -> list[Verdict]:
        """One slow rail: its NIC, its switch, or not told apart yet."""
        said = f"rail {rail}: {pair_words.figure(run)}, other rails {gb_s(usual.value)}"
        if ran is None or not ran[1]:
            why = "one NIC of the rail, or its leaf switch"
            step = "run on: pairs on this rail tell which"
            return [self._verdict(rail, run, usual, said, Confidence.SUSPECTED, why, step)]
        pairs, mine = ran
        best = [r.busbw_gb_s or 0.0 for r in mine if measured(r)]
        nodes = [self._nic(rail, v) for v in pairs.verdicts(mine) if v.verdict is not Severity.OK]
        good = level(best)
        if good is None or good.value < WHOLE * usual.value:
            reached = "no pair on it" if good is None else f"its best pairs {gb_s(good.value)}"
            why = "the whole rail: its leaf switch, its uplinks or a setting of it"
            step = "look at the leaf switch of this rail; drain nobody"
            said = f"{said}: {reached}"
            return [self._verdict(rail, run, usual, said, Confidence.LIKELY, why, step)]
        named = [v for v in nodes if v.kind != "node" or v.verdict is not Severity.UNKNOWN]
        why = "a NIC on it, named by pairs" if named else "slow only with all nodes at once"
        one = self._verdict(
            rail, run, usual, said, Confidence.SUSPECTED, why,
            "see the nodes named on this rail" if named else "look at the uplinks of its switches",
        )  # fmt: skip
        return [one, *named]

    def _verdict(
        self, rail: int, run: Run, usual: Level, say: str, sure: Confidence, cause: str, step: str
    ) -> Verdict:
        grave = sure is Confidence.LIKELY
        return Verdict(
            kind="rail", name=f"rail {rail}", nodes=self.nodes,
            verdict=Severity.CRITICAL if grave else Severity.WARN, confidence=sure, say=say,
            evidence=(f"round {run.round}: {pair_words.figure(run)}", *pair_words.clues([run])),
            cause=cause, next_step=step, expected=round(usual.value, 3),
            provenance=f"median of {usual.n} good rails of this test",
        )  # fmt: skip

    def _nic(self, rail: int, verdict: Verdict) -> Verdict:
        """A verdict of the pairs, told as what it is about: one NIC."""
        if verdict.kind != "node":
            return structs.replace(verdict, say=f"rail {rail}: {verdict.say}")
        (node,) = verdict.nodes
        return structs.replace(
            verdict,
            say=verdict.say.replace(f"{node}:", f"{node}: rail {rail}", 1),
            cause=f"the NIC of GPU{rail}, its cable or its PCIe path: other rails of it are fine",
            next_step=f"drain {node}; look at the ib findings of the port next to GPU{rail}"
            if verdict.drains
            else verdict.next_step,
        )

    def _split(self, ran: Mapping[int, Run], slow: Sequence[int], usual: Level) -> Verdict:
        return Verdict(
            kind="fabric", name="many rails", nodes=self.nodes, verdict=Severity.WARN,
            confidence=Confidence.SUSPECTED,
            say=f"{len(slow)} of {len(ran)} rails are slow: no rail to tell by",
            evidence=tuple(f"rail {r}: {pair_words.figure(ran[r])}" for r in ran),
            cause="a node that slows all of them, or the fabric",
            next_step=f"{pairs_of(self.nodes)} names a node",
            expected=round(usual.value, 3), provenance="the fastest rails",
        )  # fmt: skip

    def _none(self, ran: Sequence[Run], nodes: Sequence[str]) -> Verdict:
        return Verdict(
            kind="fabric", name="all rails", nodes=self.nodes, verdict=Severity.UNKNOWN,
            confidence=Confidence.SUSPECTED,
            say=f"none of {len(ran)} rails gave a figure: {pair_words.figure(ran[0])}",
            cause="one node, or what all share",
            next_step=f"{pairs_of(nodes)} tells which",
        )  # fmt: skip

    def _below_mark(self, ran: Mapping[int, Run], usual: Level) -> Verdict | None:
        """All rails below what a NIC should carry."""
        cap = statistics.median(self.capacity.values()) if self.capacity else None
        told = all(expect.judgeable(run) for run in ran.values() if measured(run))
        if cap is None or len(self.nodes) < expect.WIRE_NODES or not told:
            return None
        nic = cap / self.rails
        if usual.value >= expect.WIRE_SHARE * nic:
            return None
        return Verdict(
            kind="fabric", name="all rails", nodes=self.nodes, verdict=Severity.WARN,
            confidence=Confidence.LIKELY,
            say=f"all rails are slow: {gb_s(usual.value)} of {gb_s(expect.WIRE_SHARE * nic)} GB/s",
            cause="a node that slows all of them, GPUDirect off, or the fabric",
            next_step=f"{pairs_of(self.nodes)} names a node; look at NCCL_DEBUG's clues",
            expected=round(expect.WIRE_SHARE * nic, 3),
            provenance=f"{expect.WIRE_SHARE:.0%} of {nic:.0f} GB/s NIC rate [mle]",
        )  # fmt: skip


def _node(node: str, doubt: str) -> Verdict:
    return Verdict(
        kind="node", name=node, nodes=(node,), confidence=Confidence.LIKELY,
        verdict=Severity.UNKNOWN if doubt else Severity.OK,
        say=f"{node}: {doubt or 'no rail is slow because of it'}",
        provenance="rails against each other",
    )  # fmt: skip


def _fine_rail(rail: int, run: Run, usual: Level) -> Verdict:
    return Verdict(
        kind="rail", name=f"rail {rail}", nodes=run.group.nodes, verdict=Severity.OK,
        confidence=Confidence.LIKELY, say=f"rail {rail}: {pair_words.figure(run)}",
        expected=round(usual.value, 3), provenance=f"median of {usual.n} good rails of this test",
    )  # fmt: skip
