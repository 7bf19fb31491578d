"""Growing groups: which sizes ran, who was left out on the way, what is to run next. Pure.

Each size is run by the first nodes and, beside them, by the next ones, so that the next size is two
halves whose figures are known. Where it falls, pairs of the slow part name the reason; nodes that
they name for sure are left out, and the sizes go on without them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct, structs

from console.active import dead, expect, pair_words, schemes
from console.active.blame import HELP, LEAVES, blamed, reported
from console.active.level import CPU_ENGINES, Level, level
from console.active.lineup import Lineup
from console.active.pair_view import SETTLED, measured
from console.active.pairs import Pairs
from console.active.results import Group, Progress, Run, Verdict
from probes.event import Severity

SHAPE = ((16, 0.90), (64, 0.80), (1 << 30, 0.50))
"""Up to so many nodes, this share of what few nodes reach (science 6, a guess); beyond 64 half of
it, as GB200 falls from 820 to 405 GB/s between 2 and 20 racks [cw]."""
STEP = 0.78
"""Of another group at least half as large, beyond 64 nodes: that fall is 19 % a doubling."""


class Walk(Struct):
    """How far the sizes got."""

    nodes: tuple[str, ...]
    """Those that are still in."""
    ran: dict[tuple[str, ...], Run] = {}
    """Group -> its better run; also of groups with somebody who was left out."""
    left: list[Group] = []
    """What is left of the round."""
    slow: list[Run] = []
    cleared: set[tuple[str, ...]] = set()
    """Groups whose pairs were all fine."""
    rounds: int = 0
    leaves: int = 0
    refused: dict[str, str] = {}
    """Node -> why it takes no part."""
    told: list[Verdict] = []
    """What the pairs said so far."""
    fine: set[str] = set()
    """Nodes that pairs cleared."""

    @property
    def live(self) -> list[Run]:
        """Runs of nodes that are all still in."""
        nodes = set(self.nodes)
        return [run for group, run in self.ran.items() if nodes.issuperset(group)]

    def take(self, run: Run | None) -> None:
        """Keep the better of two runs of a group: one slow run may be chance."""
        if run is None:
            return
        before = self.ran.get(run.group.nodes)
        if before is None or (before.busbw_gb_s or 0.0) <= (run.busbw_gb_s or 0.0):
            self.ran[run.group.nodes] = run

    def leave(self, out: Collection[str]) -> bool:
        """Go on without these; False when it has been done too often or too few would be left."""
        rest = tuple(node for node in self.nodes if node not in out)
        if not out or len(rest) < 2 or self.leaves >= LEAVES:
            return False
        self.nodes, self.slow, self.leaves = rest, [], self.leaves + 1
        return True


class Growth:
    """Plans of one set of nodes."""

    def __init__(self, lineup: Lineup) -> None:
        """Nodes join in the order given: neighbours first."""
        self.lineup = lineup
        self.capacity = lineup.capacities()

    def walk(self, runs: Sequence[Run]) -> Walk:
        """Size by size as far as they have run; what is slow runs again, then in pairs.

        Pairs that are all fine clear a group: it was chance, and the sizes go on.
        """
        walk = Walk(self.lineup.nodes)
        settled = [run for run in runs if run.state in SETTLED]
        step = 0
        while step < len(sizes := schemes.doubling(len(walk.nodes))):
            before = walk.leaves
            self._size(walk, sizes[step], runs, settled)
            if walk.left or walk.slow:
                return walk
            # Without the nodes that were left out, the same size has other members.
            again = walk.leaves > before
            step = min(step, len(schemes.doubling(len(walk.nodes))) - 1) if again else step + 1
        return walk

    def _size(self, walk: Walk, size: int, runs: Sequence[Run], settled: Sequence[Run]) -> None:
        self._take(walk, [g for g in self._blocks(walk, size) if g.nodes not in walk.ran], settled)
        if walk.left or self._refused(walk):
            return
        again = [run.group for run in walk.slow if not blamed(run)]
        self._take(walk, [structs.replace(g, why="slow, again") for g in _disjoint(again)], settled)
        if walk.slow and not walk.left:
            self._ask_pairs(walk, runs, settled)

    def _take(self, walk: Walk, groups: Sequence[Group], settled: Sequence[Run]) -> None:
        """One more round of whole groups."""
        if groups:
            walk.rounds += 1
            here = {run.group.nodes: run for run in settled if run.round == walk.rounds}
            walk.left = [group for group in groups if group.nodes not in here]
            for group in groups:
                walk.take(here.get(group.nodes))
        slow = self.slow(walk.live)
        walk.slow = [run for run in slow if run.group.nodes not in walk.cleared]

    def _refused(self, walk: Walk) -> bool:
        """Nodes that no longer take part are no fault of anybody."""
        why = {
            n: reported(r.error)
            for r in walk.slow
            if r.state is Progress.REFUSED
            for n in blamed(r)
        }
        gone = walk.leave(why)
        walk.refused.update(why if gone else {})
        return gone

    def _ask_pairs(self, walk: Walk, runs: Sequence[Run], settled: Sequence[Run]) -> None:
        """Of the nodes that errors name; of the whole slow part when those are fine."""
        asked: set[str] = set()
        while named := self._named(walk, asked):
            asked |= named
            if self._pairs_told(walk, runs, named, named) is None:
                return
            # Who was named is fine: it was chance, or another one's fault.
            groups = _disjoint([run.group for run in walk.slow])
            self._take(walk, [structs.replace(g, why="failed, again") for g in groups], settled)
            if walk.left or not walk.slow:
                return
        whole = {node for run in walk.slow for node in run.group.nodes}
        told = self._pairs_told(walk, runs, whole, asked)
        if told and all(v.verdict is Severity.OK for v in told):
            walk.cleared.update(run.group.nodes for run in walk.slow)
            walk.slow = []

    def _named(self, walk: Walk, asked: Collection[str]) -> set[str]:
        """Nodes that the errors of all slow groups name and nobody asked about."""
        whole = {node for run in walk.slow for node in run.group.nodes}
        found = {node for run in walk.slow for node in blamed(run)}
        every = all(map(blamed, walk.slow)) and found < whole
        return found - set(asked) if every else set()

    def _pairs_told(
        self, walk: Walk, runs: Sequence[Run], members: Collection[str], named: Collection[str]
    ) -> list[Verdict] | None:
        """What pairs of these say; None while they run, and when somebody is left out by them."""
        pairs = self._pairs(walk, members)
        walk.left, mine = pairs.course(runs)
        if not mine:
            return None if walk.left else []
        told = self._spoken(walk, pairs.verdicts(mine))
        self._note(walk, told)
        if walk.left:
            return None
        walk.rounds = max(run.round for run in mine)
        out = [n for v in told if v.drains or _mute(v, named) for n in v.nodes]
        return None if walk.leave(out) else told

    def _spoken(self, walk: Walk, told: Sequence[Verdict]) -> list[Verdict]:
        """A node that pairs say nothing of is suspected all the same when its rank failed."""
        failed = {n: r for r in walk.slow if dead.is_suspect(r) for n in blamed(r)}
        found = []
        for v in told:
            if v.kind == "node" and v.verdict is Severity.UNKNOWN and v.name in failed:
                run = failed[v.name]
                line = f"round {run.round}: {pair_words.figure(run)}"
                v = dead.suspected(v.name, run, line, [n for n in walk.nodes if n != v.name])
            found.append(v)
        return found

    def _note(self, walk: Walk, told: Sequence[Verdict]) -> None:
        """What is wrong, the newest word of each thing; and who is fine."""
        bad = [v for v in told if v.verdict is not Severity.OK]
        new = {(v.kind, v.name) for v in told}
        walk.told = [v for v in walk.told if (v.kind, v.name) not in new] + bad
        walk.fine |= {n for v in told if v.kind == "node" and v not in bad for n in v.nodes}
        walk.fine -= {n for v in bad if v.kind == "node" for n in v.nodes}

    def _blocks(self, walk: Walk, size: int) -> list[Group]:
        """The first `size` nodes and the ones after them, as far as there are two."""
        n = len(walk.nodes)
        first = Group(nodes=walk.nodes[:size], why=f"{size} of {n} nodes")
        rest = walk.nodes[size : 2 * size]
        return [first, *([Group(nodes=rest, why=f"the next {len(rest)}")] if len(rest) > 1 else [])]

    def level(self, ran: Iterable[Run]) -> Level | None:
        """What groups of up to 16 nodes reach."""
        few = [r for r in ran if len(r.group.nodes) <= SHAPE[0][0] and measured(r)]
        cpu = any(run.engine in CPU_ENGINES for run in few)
        return level((run.busbw_gb_s or 0.0 for run in few), cpu)

    def slow(self, ran: Sequence[Run]) -> list[Run]:
        """Groups that are slow or failed, without those that contain a slow one."""
        usual = self.level(ran)
        bad = [
            run for run in ran if not measured(run) or usual is None or self._low(run, usual, ran)
        ]
        parts = [set(run.group.nodes) for run in bad]
        return [r for r in bad if not any(part < set(r.group.nodes) for part in parts)]

    def _low(self, run: Run, usual: Level, ran: Sequence[Run]) -> bool:
        """Below the shape, and where the NIC rate is known below what its wire should carry.

        Two nodes may run near the speed inside a node, which more of them never reach.
        """
        n = len(run.group.nodes)
        allowed = next(share for most, share in SHAPE if n <= most)
        value = run.busbw_gb_s or 0.0
        floor = min(allowed, usual.slow) * usual.value
        if n > SHAPE[1][0]:
            near = [r for r in ran if n <= 2 * len(r.group.nodes) <= 2 * n]
            floor = max(floor, STEP * max(r.busbw_gb_s or 0.0 for r in near))
        if value >= floor:
            return False
        mark = expect.wire(run, self.cap(run))
        return mark is None or expect.wire_gb_s(value, n, run.ranks or n) < mark.value

    def cap(self, run: Run) -> float | None:
        """GB/s that the NICs of the weakest of its nodes carry; None when nobody knows."""
        if not self.capacity:
            return None
        return min((self.capacity[n] for n in run.group.nodes), default=None)

    def _pairs(self, walk: Walk, members: Collection[str]) -> Pairs:
        """On these nodes, with good ones to tell by."""
        ran, slow = walk.live, walk.slow
        good = [n for r in ran if r not in slow and measured(r) for n in r.group.nodes]
        good += [n for n in walk.nodes if n in walk.fine]
        part = {node for run in slow for node in run.group.nodes}
        if self.halves(ran, slow):  # all of it is good, but for who is named if anybody is
            if not set(members) < part:
                part = set(walk.nodes)
                members = ()
            else:
                part = set(members)
        spare = [n for n in dict.fromkeys(good) if n not in part][: max(HELP, len(members))]
        chosen = tuple(n for n in walk.nodes if n in members or n in spare)
        return Pairs(structs.replace(self.lineup, nodes=chosen), after=walk.rounds)

    def halves(self, ran: Sequence[Run], slow: Sequence[Run]) -> bool:
        """Whether all slow groups consist of parts that were fine alone."""
        good = [set(run.group.nodes) for run in ran if run not in slow and measured(run)]
        return bool(slow) and all(
            set(run.group.nodes) <= set().union(*(g for g in good if g < set(run.group.nodes)))
            for run in slow
        )


def _disjoint(groups: Sequence[Group]) -> list[Group]:
    """As many as can run side by side: those of before and after a leave may overlap."""
    found: list[Group] = []
    for group in groups:
        if not any(set(group.nodes) & set(other.nodes) for other in found):
            found.append(group)
    return found


def _mute(verdict: Verdict, named: Collection[str]) -> bool:
    """Named by an error, and pairs do not clear it: software, or too few partners."""
    return verdict.kind == "node" and verdict.name in named and verdict.verdict is not Severity.OK
