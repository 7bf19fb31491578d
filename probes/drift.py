"""What most nodes of a role have, and which node differs. Pure but for memory of what is unchanged.

Facts of nodes are compared over the role, facts of GPUs over all GPUs of one product of the role,
firmware over all ports of one adapter type. Nothing is compared below three members, and without a
majority there is no odd one: that is a split. What a fact counts for is in data/drift.yaml.

Equal nodes are counted together, and a role that did not change keeps its census.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from probes.drift_facts import FACTS, FLAG, NODE, Fact, Items, Seen, of, same
from probes.event import Scalar
from probes.facts import NodeFacts
from probes.pieces import at_once
from probes.reading import number

GIB = 1 << 30
MEMBERS = 3
"""Fewest nodes, GPUs or ports with a majority that means something."""
SPLIT_VALUES = 4
"""Most values that a split names; a fact with more is different everywhere by nature."""
TOLERANCE = 0.05
"""Of sizes, when members are counted: NHC compares memory with 5 %."""
NOTICED = 0.01
"""Of sizes, from which a difference is told to the check, which has the limit of the site."""


class Usual(Struct, frozen=True):
    """What most members of a group have."""

    value: Scalar
    count: int
    """Members that have it."""
    total: int


class Split(Struct, frozen=True):
    """A fact without a majority."""

    fact: str
    group: str
    halves: tuple[tuple[Scalar, int, tuple[str, ...]], ...]
    """Value, how many members, names of their nodes; most common first."""


class Odd(NamedTuple):
    """One observation that differs from the majority."""

    seen: Seen
    usual: Usual


class Words(Struct, frozen=True):
    """Kernel command lines of a role."""

    common: frozenset[str] = frozenset()
    """Words of most nodes."""
    rare: dict[str, int] = {}
    """Other words -> nodes that have them."""
    own: frozenset[str] = frozenset()
    """Options whose value differs from node to node."""
    total: int = 0


class Census(Struct, frozen=True):
    """All majorities of a role."""

    nodes: int = 0
    usual: dict[tuple[str, str], Usual] = {}
    splits: tuple[Split, ...] = ()
    first: str = ""
    """The node that carries findings about the role as a whole."""
    words: Words = Words()
    have: dict[str, int] = {}
    """Flag ("service.slurmd", "module.gdrdrv") -> nodes where it is so."""
    asked: dict[str, int] = {}
    """Flag -> nodes that can tell."""

    def others(self, flag: str, mine: bool | None) -> tuple[float, int]:
        """Share of the other nodes for which a flag holds, and how many of them can tell.

        `mine` is what the asking node has itself; None when it cannot tell.
        """
        rest = self.asked.get(flag, 0) - (mine is not None)
        have = self.have.get(flag, 0) - (mine is True)
        return have / rest if rest > 0 else 0.0, max(0, rest)


EMPTY = Census()
_roles: dict[str, tuple[list[object], Census]] = {}
_odds: dict[str, tuple[tuple[object, ...], tuple[Odd, ...]]] = {}
ROLES = 1000
REMEMBERED = 10_000
"""Entries of the two memories above."""

# ---------------------------------------------------------------------- a role


def census(role: str, members: Iterable[NodeFacts]) -> Census:
    """Majorities of a role's nodes; the same object as long as nothing changed."""
    return at_once(census_in_steps(role, members))


def census_in_steps(role: str, members: Iterable[NodeFacts]) -> Generator[None, None, Census]:
    """The same in pieces of about one node."""
    nodes: list[tuple[str, tuple[Items, ...]]] = []
    for facts in members:
        nodes.append((facts.node.name, tuple(of(facts))))
        yield
    key: list[object] = [item for name, items in nodes for item in (name, *map(id, items))]
    before = _roles.get(role)
    if before is not None and before[0] == key:
        return before[1]
    made = _count(nodes)
    if len(_roles) >= ROLES:
        _roles.clear()
    _roles[role] = key, made
    return made


def _count(nodes: list[tuple[str, tuple[Items, ...]]]) -> Census:
    kinds: dict[int, tuple[Items, list[str]]] = {}
    for name, parts in nodes:
        for items in parts:
            if items:
                kinds.setdefault(id(items), (items, []))[1].append(name)
    tally: dict[tuple[str, str], Counter[Scalar]] = {}
    lines: Counter[str] = Counter()
    for items, names in kinds.values():
        for seen in items:
            if seen.fact == "cmdline":
                lines[str(seen.value)] += len(names)
            else:
                tally.setdefault((seen.fact, seen.group), Counter())[seen.value] += len(names)
    usual: dict[tuple[str, str], Usual] = {}
    splits: list[Split] = []
    have, asked = {}, {}
    for (fact, group), counts in tally.items():
        if fact == "flag":
            have[group], asked[group] = counts[True], counts.total()
        elif (most := _usual(FACTS[fact], counts)) is not None:
            usual[fact, group] = most
        elif 2 <= len(counts) <= SPLIT_VALUES and counts.total() >= MEMBERS:
            splits.append(_split(fact, group, counts, kinds.values()))
    first = min((name for name, parts in nodes if any(parts)), default="")
    words = _words(lines)
    splits += _word_splits(words, kinds.values())
    return Census(len(nodes), usual, tuple(splits), first, words, have, asked)


def _usual(fact: Fact, counts: Counter[Scalar]) -> Usual | None:
    """The value of more than half that is twice as frequent as any other; of sizes the median.

    Five nodes against four are an upgrade half way, and nobody is odd.
    """
    total = counts.total()
    if total < MEMBERS:
        return None
    value, count = counts.most_common(1)[0]
    if fact.kind == "size":
        sizes = [
            size for v, n in counts.items() if (size := number(v)) is not None for _ in range(n)
        ]
        if not sizes:
            return None
        value = statistics.median_low(sizes)
        count = sum(n for v, n in counts.items() if near(fact, v, value))
    others = (n for v, n in counts.items() if not near(fact, v, value))
    clear = count * 2 > total and count >= 2 * max(others, default=0)
    return Usual(value, count, total) if clear else None


def near(fact: Fact, value: Scalar, usual: Scalar, tolerance: float = TOLERANCE) -> bool:
    """Whether a value is as good as the usual one."""
    if fact.kind != "size":
        return value == usual
    mine, theirs = number(value), number(usual)
    return mine is not None and theirs is not None and abs(mine - theirs) <= tolerance * abs(theirs)


def shown(fact: Fact, value: Scalar) -> str:
    """A value with its unit."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if fact.name == "memlock":
        return "unlimited" if value == -1 else f"{size_of(value) / GIB:.1f} GiB"
    if fact.unit == "B":
        return f"{size_of(value) / GIB:.1f} GiB"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"{text} {fact.unit}".strip()


def size_of(value: Scalar) -> float:
    """A value as a number, 0 for what is none: for telling more from less."""
    return number(value) or 0.0


def _split(
    fact: str, group: str, counts: Counter[Scalar], kinds: Iterable[tuple[Items, list[str]]]
) -> Split:
    names: dict[Scalar, list[str]] = {value: [] for value in counts}
    for items, nodes in kinds:
        for value in {seen.value for seen in items if seen.fact == fact and seen.group == group}:
            names[value] += nodes
    halves = ((value, n, tuple(names[value])) for value, n in counts.most_common())
    return Split(fact, group, tuple(halves))


def _words(lines: Counter[str]) -> Words:
    """Common words, others, and options that each node sets to something of its own."""
    total = lines.total()
    if total < MEMBERS:
        return Words(total=total)
    counts: Counter[str] = Counter()
    values: dict[str, set[str]] = {}
    for line, nodes in lines.items():
        for word in line.split(" "):
            counts[word] += nodes
            values.setdefault(word.partition("=")[0], set()).add(word)
    common = frozenset(word for word, nodes in counts.items() if nodes * 2 > total)
    own = frozenset(option for option, words in values.items() if len(words) > max(2, total // 4))
    rare = {word: nodes for word, nodes in counts.items() if word not in common}
    return Words(common, rare, own, total)


def _word_splits(words: Words, kinds: Iterable[tuple[Items, list[str]]]) -> Iterator[Split]:
    """Words that a group of nodes has: too many for odd ones, too few for the usual."""
    groups = [w for w, n in words.rare.items() if not _few(n, words.total)]
    for word in [w for w in sorted(groups) if w.partition("=")[0] not in words.own][:SPLIT_VALUES]:
        names: dict[bool, list[str]] = {True: [], False: []}
        for items, nodes in kinds:
            for seen in items:
                if seen.fact == "cmdline":
                    names[word in str(seen.value).split(" ")] += nodes
        halves = ((f"{'with' if has else 'without'} {word}", len(names[has]), tuple(names[has]))
                  for has in (True, False))  # fmt: skip
        yield Split("cmdline", word, tuple(halves))


def _few(nodes: int, total: int) -> bool:
    """So few that they are odd ones: a single one, or up to a quarter."""
    return nodes * 2 < total and (nodes == 1 or nodes * 4 <= total)


# ---------------------------------------------------------------------- one node in its role


def odd(facts: NodeFacts, role: Census) -> tuple[Odd, ...]:
    """What of a node differs from the majority of its role."""
    items = of(facts)
    key = (role, *items)
    before = _odds.get(facts.node.name)
    if before is not None and all(map(same, key, before[0])):
        return before[1]
    found = tuple(_odd(items, role))
    if len(_odds) >= REMEMBERED:
        _odds.clear()
    _odds[facts.node.name] = key, found
    return found


def _odd(parts: list[Items], role: Census) -> Iterator[Odd]:
    for items in parts[:FLAG]:
        for seen in items:
            usual = role.usual.get((seen.fact, seen.group))
            if usual and not near(FACTS[seen.fact], seen.value, usual.value, NOTICED):
                yield Odd(seen, usual)


def odd_words(facts: NodeFacts, role: Words) -> tuple[list[str], list[str]]:
    """Words that only a few nodes have and this one too, and words of most that it lacks.

    What more than a quarter of the nodes have belongs to a group of nodes, not to an odd one.
    """
    line = next((str(s.value) for s in of(facts)[NODE] if s.fact == "cmdline"), None)
    if line is None or role.total < MEMBERS:
        return [], []
    mine = frozenset(line.split(" "))
    extra = [
        word
        for word in sorted(mine - role.common)
        if _few(role.rare.get(word, 0), role.total) and word.partition("=")[0] not in role.own
    ]
    lacks = [word for word in sorted(role.common - mine) if word.partition("=")[0] not in role.own]
    return extra, lacks
