"""Which nodes run with which: the schemes of science 1.5 as lists of disjoint pairs. Pure.

Nothing here looks at names: node i is whoever stands at place i, so that a scheme is the same for
the same seed whatever the nodes are called. With an odd number one node rests in each round;
`shift` and `full` let another one rest each time, `random_pairs` says by leaving it out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import ceil, log2
from typing import TypeAlias

Pair: TypeAlias = tuple[str, str]

FEW = 4
"""Up to so many nodes every pair is run: three rounds, as many as the search would need."""


def random_pairs(nodes: Sequence[str], rng: random.Random) -> list[Pair]:
    """Disjoint pairs by chance; the last one rests when the number is odd."""
    mixed = rng.sample(list(nodes), len(nodes))
    return list(zip(mixed[::2], mixed[1::2], strict=False))


def full_rounds(n: int) -> int:
    """Rounds until every pair has met: n-1, or n when n is odd."""
    return 0 if n < 2 else n - 1 + n % 2


def full_round(nodes: Sequence[str], index: int) -> list[Pair]:
    """Round `index` (from 0) of a round robin by the circle method; each pair meets once."""
    seats: list[str | None] = [*nodes]
    if len(seats) % 2:
        seats.append(None)
    fixed, ring = seats[0], seats[1:]
    turn = index % len(ring)
    row = [fixed, *ring[turn:], *ring[:turn]]
    half = len(row) // 2
    facing = zip(row[:half], reversed(row[half:]), strict=True)
    return [(a, b) for a, b in facing if a is not None and b is not None]


def shift_rounds(n: int) -> int:
    """k = ceil(log2 n): a sample of the round robin that sees near and far neighbours."""
    return 0 if n < 2 else ceil(log2(n))


def shift_round(nodes: Sequence[str], index: int) -> list[Pair]:
    """Round `index` (from 0): each node with the one 2**index places on.

    Near ones first, which mostly share a leaf, then farther ones. Nodes whose partner is taken are
    paired among themselves; of an odd number another one rests in each round.
    """
    order = [node for i, node in enumerate(nodes) if i != index or len(nodes) % 2 == 0]
    step, n = 2**index, len(order)
    free, pairs, left = set(range(n)), list[Pair](), list[int]()
    for i in range(n):
        if i not in free:
            continue
        free.discard(i)
        partner = (i + step) % n
        if partner in free:
            free.discard(partner)
            pairs.append((order[i], order[partner]))
        else:
            left.append(i)
    rest = [order[i] for i in left]
    return [*pairs, *zip(rest[::2], rest[1::2], strict=False)]


def doubling(n: int) -> list[int]:
    """Sizes of a scaling test: 2, 4, 8 ... n."""
    sizes = [2**k for k in range(1, n.bit_length()) if 2**k < n]
    return [*sizes, n] if n >= 2 else []
