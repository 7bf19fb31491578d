"""Faults that no single node explains: a leaf uplink, two halves, slow pairs all over. Pure.

A node behind a bad uplink is healthy. It is fast with its neighbours and slow with everybody else,
which labels show at once; without labels the pairs themselves show it: fast means the same side,
slow means different sides, and a bad uplink is what lets this colour all nodes without conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from msgspec import Struct

from console.active.pair_view import BAD, TOPOLOGY, Look, View

MOSTLY = 0.8
"""Share of the pairs that must agree with a group's fault; the rest may be chance."""
LEAST = 3
"""Slow pairs across that make a group's fault."""
MINORITY = 0.4
"""A side with more of the nodes than this is a half, and which half is bad nobody knows."""


class Fault(Struct, frozen=True):
    """Nodes fine with one another and slow with the rest."""

    name: str
    """ "leaf l3", or "4 nodes"."""
    nodes: tuple[str, ...]
    inside: int
    """Fast pairs among them."""
    across: int
    """Slow pairs with others."""
    tried: int
    """Pairs with others."""
    half: bool = False
    """It could as well be the other side."""


class Tally(Struct):
    """Pairs by where they lie, as seen from one place."""

    inside_fast: int = 0
    inside_bad: int = 0
    across_fast: int = 0
    across_bad: int = 0
    others_fast: int = 0
    others_bad: int = 0
    hit: set[str] = set()
    """Nodes of the place that are slow with others."""


def faults(view: View) -> list[Fault]:
    """By label where labels tell it, else by colouring."""
    return list(_by_label(view)) or list(_by_colour(view))


def pairs(view: View) -> Iterator[tuple[str, str, Look]]:
    """Each pair that ran once."""
    order = {node: i for i, node in enumerate(view.nodes)}
    for a in view.nodes:
        for b, look in view.looks(a).items():
            if order[a] < order[b]:
                yield a, b, look


def _by_label(view: View) -> Iterator[Fault]:
    for key in TOPOLOGY:
        places: dict[str, list[str]] = defaultdict(list)
        for node in view.nodes:
            place = view.labels.get(node, {}).get(key)
            if place is not None:
                places[place].append(node)
        found = [
            fault
            for place, members in places.items()
            if 1 < len(members) < len(view.nodes)
            and (fault := _label_fault(view, f"{key} {place}", members)) is not None
        ]
        if found:
            yield from found
            return


def _label_fault(view: View, name: str, members: list[str]) -> Fault | None:
    tally = _tally(view, frozenset(members))
    across = tally.across_bad + tally.across_fast
    if tally.across_bad < LEAST or tally.across_bad < MOSTLY * across or len(tally.hit) < 2:
        return None
    if tally.inside_bad > (1 - MOSTLY) * (tally.inside_bad + tally.inside_fast):
        return None
    if tally.others_bad > (1 - MOSTLY) * (tally.others_bad + tally.others_fast):
        return None
    half = len(members) > MINORITY * len(view.nodes)
    return Fault(name, tuple(members), tally.inside_fast, tally.across_bad, across, half)


def _tally(view: View, members: frozenset[str], among: Collection[str] = ()) -> Tally:
    """Of pairs that look clear, within `among` if given."""
    tally = Tally(hit=set())
    for a, b, look in pairs(view):
        if look is Look.GRAY or (among and not (a in among and b in among)):
            continue
        ends = (a in members) + (b in members)
        where = ("others", "across", "inside")[ends]
        name = f"{where}_{'bad' if look in BAD else 'fast'}"
        setattr(tally, name, getattr(tally, name) + 1)
        if ends == 1 and look in BAD:
            tally.hit.add(a if a in members else b)
    return tally


class _Sides:
    """Union-find with a side each: who is on the same side as whom."""

    def __init__(self, nodes: list[str]) -> None:
        """Everybody apart."""
        self.parent = {node: node for node in nodes}
        self.side = dict.fromkeys(nodes, False)

    def find(self, node: str) -> tuple[str, bool]:
        """(root, whether it is on the root's other side)."""
        other = False
        while self.parent[node] != node:
            other ^= self.side[node]
            node = self.parent[node]
        return node, other

    def join(self, a: str, b: str, differ: bool) -> bool:
        """False when it contradicts what is known."""
        (root_a, side_a), (root_b, side_b) = self.find(a), self.find(b)
        if root_a == root_b:
            return (side_a ^ side_b) == differ
        self.parent[root_b] = root_a
        self.side[root_b] = side_a ^ side_b ^ differ
        return True


def _by_colour(view: View) -> Iterator[Fault]:
    """The smaller side of the largest set that pairs connect, when hardly any pair conflicts."""
    known = [n for n in view.nodes if n in view.good]
    sides, used, conflicts = _Sides(known), 0, 0
    for a, b, look in pairs(view):
        if a in view.good and b in view.good and look is not Look.GRAY:
            used += 1
            conflicts += not sides.join(a, b, look in BAD)
    if conflicts > (1 - MOSTLY) / 2 * used:
        return
    sets: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for node in known:
        root, other = sides.find(node)
        sets[root][other].append(node)
    for two in sorted(sets.values(), key=lambda s: -len(s[0]) - len(s[1])):
        small, large = sorted(two, key=len)
        fault = _colour_fault(view, small, len(small) + len(large))
        if fault is not None:
            yield fault
            return


def _colour_fault(view: View, small: list[str], whole: int) -> Fault | None:
    if len(small) < 2:
        return None
    tally = _tally(view, frozenset(small), view.good)
    if len(tally.hit) < 2 or tally.across_bad < LEAST or not tally.inside_fast:
        return None
    across = tally.across_bad + tally.across_fast
    half = len(small) > MINORITY * whole
    name = f"{len(small)} nodes"
    return Fault(name, tuple(small), tally.inside_fast, tally.across_bad, across, half)
