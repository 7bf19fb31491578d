"""What the pairs that ran say about each node: fast, slow, failed, and with whom. Pure.

One fast run clears both of its nodes, as bandwidth cannot come from nowhere. A slow one accuses
two nodes and the path between them, until each has run with somebody else.

Pairs that run side by side share leaf uplinks, and on an oversubscribed fabric they slow each other
down. Three things keep that from becoming a node's fault: a slow run counts against a node only if
another pair of the same round was fast; when many pairs are slow, only runs of a quiet round count
(few pairs at once); and pairs inside one leaf are compared with such pairs, across with across,
where labels tell which is which.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct

from console.active import alike
from console.active.level import CPU_ENGINES, Level, grade, level, upper
from console.active.lineup import Lineup
from console.active.results import Progress, Run
from probes.event import Severity

SETTLED = (Progress.DONE, Progress.FAILED, Progress.TIMED_OUT, Progress.REFUSED)
"""States that are final; everything else is still to run."""
TOPOLOGY = ("leaf", "switch", "rack", "su", "block", "pod", "row", "zone")
"""Labels that say where in the fabric a node is, nearest first."""
KIND_RUNS = 4
"""Runs of one kind (inside, across) from which they have a level of their own."""
QUIET_PAIRS = 4
QUIET_SHARE = 0.2
"""A round is quiet with at most so many pairs, or so many of the nodes: what is left to each flow
of an oversubscribed fabric is then the full rate, up to 5:1."""
CROWD_PAIRS, CROWD_SHARE = 3, 0.125
"""More slow pairs in the first round than three bad nodes make, or an eighth of all: crowded."""


Kind: TypeAlias = tuple[alike.Kind, str]


class Look(StrEnum):
    """What one run, or all runs of one pair, look like."""

    FAST = "fast"
    GRAY = "gray"
    """Too slow to clear a node, too fast to accuse one."""
    SLOW = "slow"
    FAILED = "failed"
    """No figure: it failed or ran into its time limit."""


BAD = (Look.SLOW, Look.FAILED)


class Edge(Struct, frozen=True):
    """One pair that ran."""

    run: Run
    look: Look
    share: float
    """Of what is good for its kind; 0 when it failed."""
    good_gb_s: float | None
    """What is good for it."""

    @property
    def round(self) -> int:
        """As in the run."""
        return self.run.round

    def other(self, node: str) -> str:
        """The partner."""
        a, b = self.run.group.nodes
        return b if a == node else a


class View:
    """All settled pair runs, judged."""

    def __init__(self, lineup: Lineup, runs: Sequence[Run]) -> None:
        """`runs`: settled pair runs over these nodes, of any rounds."""
        nodes = lineup.nodes
        self.nodes, self.labels, self.expected = nodes, lineup.labels, lineup.expected
        self.runs = runs
        self.key = topology_key(nodes, self.labels)
        self.capacity = lineup.capacities()
        found = list(filter(measured, runs))
        self._usual, self._kinds = alike.commonest(found), alike.kinds(found)
        self.levels = self._levels()
        self.edges = [e for e in map(self._edge, runs) if e is not None]
        self.met: dict[str, dict[str, list[Edge]]] = {node: defaultdict(list) for node in nodes}
        for edge in self.edges:
            a, b = edge.run.group.nodes
            self.met[a][b].append(edge)
            self.met[b][a].append(edge)
        self.tries = _tries(nodes, runs)
        self.good = {n for n in nodes if Look.FAST in self.looks(n).values()}
        self.lively = {edge.round for edge in self.edges if edge.look is Look.FAST}
        """Rounds in which some pair was fast: the only ones that accuse anybody."""

    # Runs

    def cap(self, run: Run) -> float:
        """What the weaker node's NICs can carry, GB/s; 1 when nothing is known."""
        return min((self.capacity.get(node, 1.0) for node in run.group.nodes), default=1.0)

    def kind(self, run: Run) -> Kind:
        """(engine and ranks, where): runs of one kind are alike."""
        one = self._alike(run)
        if not self.key:
            return one, ""
        a, b = (self.labels.get(node, {}).get(self.key) for node in run.group.nodes)
        return one, "" if a is None or b is None else "inside" if a == b else "across"

    def _alike(self, run: Run) -> alike.Kind:
        """One without a figure would have had the usual ranks."""
        return alike.kind(run) if measured(run) else (run.engine, self._usual.get(run.engine))

    def odd_ranks(self, node: str) -> list[int]:
        """Numbers of ranks of its runs that nothing can be compared with."""
        mine = [run for run in self.runs if node in run.group.nodes and measured(run)]
        return sorted({run.ranks or 0 for run in mine if alike.kind(run) not in self._kinds})

    def _levels(self) -> dict[Kind, Level]:
        values: dict[Kind, list[float]] = defaultdict(list)
        of_node: dict[Kind, dict[str, list[float]]] = {}
        for run in filter(measured, self.runs):
            share = (run.busbw_gb_s or 0.0) / self.cap(run)
            one, where = self.kind(run)
            if one not in self._kinds:
                continue
            for kind in {(one, "any"), (one, where or "any")}:
                values[kind].append(share)
                mine = of_node.setdefault(kind, defaultdict(list))
                for node in run.group.nodes:
                    mine[node].append(share)
        found = {}
        for kind, shares in values.items():
            if kind[1] == "any" or len(shares) >= KIND_RUNS:
                cpu = kind[0][0] in CPU_ENGINES
                tops = [upper(mine, cpu) for mine in of_node[kind].values()]
                reached = level(shares, cpu, tops)
                if reached is not None:
                    found[kind] = reached
        return found

    def level(self, run: Run) -> Level | None:
        """What alike runs reach, in units of `cap`; None when no run alike has a figure."""
        return self.levels.get(self.kind(run), self.levels.get((self._alike(run), "any")))

    def _edge(self, run: Run) -> Edge | None:
        """None for a run that tells nothing: it was refused, or no other has as many ranks."""
        odd = measured(run) and alike.kind(run) not in self._kinds
        if odd or run.state is Progress.REFUSED:
            return None
        usual = self.level(run)
        good = None if usual is None else usual.value * self.cap(run)
        if not measured(run) or usual is None or good is None:
            return Edge(run, Look.FAILED, 0.0, good)
        share = (run.busbw_gb_s or 0.0) / good
        look = Look.FAST if share >= usual.fast else Look.SLOW if share < usual.slow else Look.GRAY
        return Edge(run, look, share, good)

    # Pairs and nodes

    def pair(self, a: str, b: str) -> Look | None:
        """All runs of one pair together: one fast run is enough; None when it did not run."""
        return self._looks[a].get(b)

    def looks(self, node: str) -> dict[str, Look]:
        """Partner -> how the pair looks."""
        return self._looks[node]

    @cached_property
    def _looks(self) -> dict[str, dict[str, Look]]:
        return {
            node: {partner: _together(edges) for partner, edges in met.items()}
            for node, met in self.met.items()
        }

    @cached_property
    def suspects(self) -> list[str]:
        """Nodes that ran and never were fast."""
        return [n for n in self.nodes if self.met[n] and n not in self.good]

    @cached_property
    def unclear(self) -> list[str]:
        """Suspects that their runs together do not clear."""
        return [n for n in self.suspects if self.verdict_of(n) is not Severity.OK]

    def slow_pair(self, a: str, b: str) -> bool:
        """Whether each run of a pair is slow, and those after the one that was chosen for it,
        clearly: of a thousand healthy pairs one is slow by chance."""
        edges = self.met[a].get(b, [])
        shares = [edge.share for edge in edges]
        clearly = grade(shares[1:] or shares, self.noise) is not Severity.OK
        return bool(edges) and all(edge.look in BAD for edge in edges) and clearly

    @property
    def untested(self) -> list[str]:
        """Nodes of which no run tells anything."""
        return [n for n in self.nodes if not self.met[n]]

    @cached_property
    def mixed(self) -> list[str]:
        """Nodes fast with some and slow with two or more that are good themselves."""
        return [n for n in self.nodes if n in self.good and len(self._bad_with_good(n)) >= 2]

    def clean(self, node: str) -> bool:
        """Known good: fast with somebody, and slow with nobody who is good."""
        return node in self.good and not self._bad_with_good(node)

    def _bad_with_good(self, node: str) -> list[str]:
        return [p for p in self.met[node] if p in self.good and self.pair(node, p) in BAD]

    def against(self, node: str) -> list[str]:
        """Known-good partners that a node which never was fast is slow with, in order met; those
        it failed with if they are no fewer, as in `shares`."""
        bad = {p: look for p, look in self.looks(node).items() if look in BAD and self.clean(p)}
        slow = [p for p, look in bad.items() if look is Look.SLOW]
        return slow if len(slow) * 2 > len(bad) else [p for p in bad if p not in slow]

    def shares(self, node: str) -> list[float]:
        """What a suspect reached with known-good partners, as shares of what is good.

        Of failed runs and figures the rarer kind is left out: a run that fails once says nothing of
        how fast the node is.
        """
        edges = [e for p in self.met[node] if self.clean(p) for e in self.met[node][p]]
        told = [e.share for e in edges if e.look is not Look.FAILED]
        return told if len(told) * 2 > len(edges) else [0.0] * (len(edges) - len(told))

    def verdict_of(self, node: str) -> Severity:
        """These together; unknown when there are none."""
        shares = self.shares(node)
        return grade(shares, self.noise) if shares else Severity.UNKNOWN

    @cached_property
    def noise(self) -> float:
        """The largest scatter of a kind of runs."""
        return max((one.noise for one in self.levels.values()), default=0.0)

    def apart(self, node: str) -> bool:
        """Whether it can be excluded that this suspect is healthy behind a bad uplink.

        It would be fast with a fellow suspect, and with one end of each slow pair of good nodes.
        Nodes that labels put into different places share no uplink.
        """
        return self.unlike_ends(node) and self.unlike_fellows(node)

    def unlike_ends(self, node: str) -> bool:
        """Slow with both ends of a slow pair of good nodes, if there is one."""
        bad = self._bad(node)
        return not self.odd_pairs or any(a in bad and b in bad for a, b in self.odd_pairs)

    def unlike_fellows(self, node: str) -> bool:
        """Slow with another suspect of its place, if there is one."""
        alike = {p for p in self.unclear if p != node and self.near(node, p)}
        return not alike or bool(alike & self._bad(node))

    def _bad(self, node: str) -> set[str]:
        return {p for p, look in self.looks(node).items() if look in BAD}

    @cached_property
    def odd_pairs(self) -> list[tuple[str, str]]:
        """Pairs that are slow although both nodes are good with others."""
        order = {node: i for i, node in enumerate(self.nodes)}
        return [
            (a, b)
            for a in self.nodes
            for b in self.met[a]
            if order[a] < order[b] and {a, b} <= self.good and self.slow_pair(a, b)
        ]

    def near(self, a: str, b: str) -> bool:
        """Whether two nodes may share a leaf; unknown counts as yes."""
        if not self.key:
            return True
        here, there = (self.labels.get(node, {}).get(self.key) for node in (a, b))
        return here is None or there is None or here == there

    def counted(self, node: str) -> list[str]:
        """Of these, the ones met in a round in which some other pair was fast."""
        met = self.met[node]
        return [p for p in self.against(node) if any(e.round in self.lively for e in met[p])]

    # Rounds

    @cached_property
    def crowded(self) -> bool:
        """More is slow in the first round than a few bad nodes explain: contention is possible."""
        first = min((e.round for e in self.edges), default=0)
        looks = [e.look for e in self.edges if e.round == first]
        return sum(look in BAD for look in looks) > max(CROWD_PAIRS, CROWD_SHARE * len(looks))

    @property
    def quiet_pairs(self) -> int:
        """Most pairs of a quiet round."""
        return max(QUIET_PAIRS, int(QUIET_SHARE * len(self.nodes) / 2))

    def quiet(self, node: str) -> bool:
        """Whether a known-good partner met it in a quiet round."""
        bad = [e for p in self.counted(node) for e in self.met[node][p] if e.look in BAD]
        sizes = self._sizes
        return any(e.round in self.lively and sizes[e.round] <= self.quiet_pairs for e in bad)

    @cached_property
    def _sizes(self) -> Counter[int]:
        return Counter(edge.round for edge in self.edges)


def measured(run: Run) -> bool:
    """Whether a run ended with a figure."""
    return run.state is Progress.DONE and run.busbw_gb_s is not None and run.busbw_gb_s > 0


def _together(edges: Sequence[Edge]) -> Look:
    looks = {edge.look for edge in edges}
    return next(look for look in (Look.FAST, Look.SLOW, Look.FAILED, Look.GRAY) if look in looks)


def _tries(nodes: Sequence[str], runs: Sequence[Run]) -> dict[str, int]:
    """Node -> settled runs, refused ones included."""
    tries = dict.fromkeys(nodes, 0)
    for run in runs:
        for node in run.group.nodes:
            tries[node] += 1
    return tries


def topology_key(nodes: Sequence[str], labels: Mapping[str, Mapping[str, str]]) -> str:
    """The label that says which nodes are near each other: at least two places of two nodes."""
    for key in TOPOLOGY:
        places: dict[str, int] = defaultdict(int)
        for node in nodes:
            if key in labels.get(node, {}):
                places[labels[node][key]] += 1
        if sum(n >= 2 for n in places.values()) >= 2:
            return key
    return ""
