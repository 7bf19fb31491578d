"""Facts of a role: what most nodes have, who differs, who cannot tell. Pure.

The site's word goes first, then the majority; without a majority it is a split, and nobody is odd.
Equal nodes share the objects that probes.drift_facts makes of their answers, so each kind of node
is looked at once, however many nodes are of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from console.tui.words import t
from probes.drift import Census, near, shown, size_of
from probes.drift_facts import FACTS, FLAG, Fact, Items, Seen, of
from probes.event import Scalar, Severity
from probes.expectations import Counts, Expected
from probes.facts import NodeFacts
from probes.rules import Rules

Parts = tuple[Items, ...]
"""Observations of a node by part, as drift_facts.of gives them."""
TOPICS = ("", "versions", "inventory", "host_slow", "ecc", "nvlink", "fabric", "infiniband",
          "services", "modules", "containers")  # fmt: skip
"""Probes after whose answers a node's observations are looked at again. Not the fast ones: limits
among them are seen with the next of these, within a minute."""
CMDLINE = "cmdline"
FLAGS = "flag"


class Odd(NamedTuple):
    """One value that is not the usual one, and the nodes that have it."""

    value: str
    names: tuple[str, ...]
    devices: Mapping[str, tuple[str, ...]]
    """Node -> its GPUs or ports with this value; empty for facts of nodes."""


class Majority(NamedTuple):
    """One fact of one role."""

    role: str
    fact: str
    group: str
    """What it is compared within: GPU product, adapter type, setting, service."""
    label: str
    usual: str
    """What most have, or the site expects; "" when the role is split."""
    agreeing: int
    total: int
    per: str
    """What is counted: node, gpu or port."""
    odd: tuple[Odd, ...]
    """Of a split all values, the most frequent first."""
    unknown: tuple[str, ...]
    """Nodes that answer and do not tell this."""
    severity: Severity
    source: str
    """File and line of the site's word; "" for a majority."""
    help: str

    @property
    def split(self) -> bool:
        """No value is on clearly most nodes."""
        return not self.usual


def observed(facts: NodeFacts) -> Parts:
    """A node's observations; the same objects as those of equal nodes."""
    return facts.kept("majorities", TOPICS, lambda facts: tuple(of(facts)))


class Role(NamedTuple):
    """All facts of a role."""

    name: str
    facts: tuple[Majority, ...]
    silent: tuple[str, ...]
    """Nodes of which no fact is known."""
    nodes: int


def role(
    name: str,
    parts: Mapping[str, Parts],
    census: Census,
    rules: Rules,
    nodes: Mapping[str, NodeFacts],
) -> Role:
    """Everything about a role's nodes; `parts` by name in natural order."""
    told = {node: mine for node, mine in parts.items() if any(mine)}
    table = _table(told)
    facts = [
        made
        for (fact, group), seen in table.items()
        if (made := _fact(name, fact, group, seen, told, census, rules, nodes)) is not None
    ]
    facts += _words(name, told, census, rules)
    silent = tuple(node for node in parts if node not in told)
    return Role(name, tuple(sorted(facts, key=_order)), silent, len(parts))


Having = list[tuple[list[str], list[str]]]
"""Nodes alike, and which of their devices have a value."""
Values = dict[Scalar, Having]


def _table(told: Mapping[str, Parts]) -> dict[tuple[str, str], Values]:
    """Each distinct Items object is read once; its nodes stay one list."""
    kinds: dict[int, tuple[Items, list[str]]] = {}
    for node, parts in told.items():
        for items in parts:
            kinds.setdefault(id(items), (items, []))[1].append(node)
    table: dict[tuple[str, str], Values] = {}
    for items, names in kinds.values():
        mine: dict[tuple[str, str, Scalar], list[str]] = {}
        for seen in items:
            if seen.fact != CMDLINE:
                mine.setdefault((seen.fact, seen.group, seen.value), []).append(seen.device)
        for (fact, group, value), devices in mine.items():
            table.setdefault((fact, group), {}).setdefault(value, []).append((names, devices))
    return table


def _fact(
    role: str, fact: str, group: str, seen: Values, told: Mapping[str, Parts], census: Census,
    rules: Rules, nodes: Mapping[str, NodeFacts],
) -> Majority | None:  # fmt: skip
    if fact == FLAGS:
        return _flag(role, group, seen, census, nodes)
    about, counts = FACTS[fact], rules.drift[fact]
    if counts.severity == "off":
        return None
    expected, source = _expected(role, fact, group, census, rules)
    if not expected and not _is_split(census, fact, group):
        return None
    counted = {value: _members(about, having) for value, having in seen.items()}
    apart = [v for v in counted if not _fits(about, v, expected, rules)]
    apart.sort(key=lambda value: (-counted[value], str(value)))
    odd = tuple(_odd(about, value, seen[value], nodes) for value in apart)
    total = sum(counted.values())
    return Majority(
        role=role, fact=fact, group=group, label=_label(about, group, rules),
        usual=" or ".join(shown(about, value) for value in expected),
        agreeing=total - sum(counted[value] for value in apart) if expected else 0,
        total=total, per=about.per, odd=odd, unknown=_unknown(about, seen, told),
        severity=_severity(counts, apart, expected, stated=bool(source)), source=source,
        help=counts.help,
    )  # fmt: skip


def _expected(
    role: str, fact: str, group: str, census: Census, rules: Rules
) -> tuple[tuple[Scalar, ...], str]:
    """The values that are right, and the site's file and line; () where there is no majority."""
    site = _stated(role, fact, group, rules)
    if site is not None:
        return tuple(site.values), site.source
    usual = census.usual.get((fact, group))
    return ((usual.value,) if usual is not None else ()), ""


def _members(about: Fact, having: Having) -> int:
    return sum(len(names) * (1 if about.per == "node" else len(dev)) for names, dev in having)


def _unknown(about: Fact, seen: Values, told: Mapping[str, Parts]) -> tuple[str, ...]:
    """Nodes that tell something, but not this; of GPUs and ports that is another check's."""
    if about.per != "node":
        return ()
    have = [names for having in seen.values() for names, _ in having]
    if sum(map(len, have)) >= len(told):
        return ()
    known = {name for names in have for name in names}
    return tuple(node for node in told if node not in known)


def _is_split(census: Census, fact: str, group: str) -> bool:
    return any((split.fact, split.group) == (fact, group) for split in census.splits)


def _stated(role: str, fact: str, group: str, rules: Rules) -> Expected | None:
    """The site's word on a fact of the role, or of a GPU product of it."""
    if FACTS[fact].per != "gpu":
        return rules.roles.get(role, {}).get(fact)
    product = rules.product(group)
    return rules.expected.get(product.name, {}).get(fact) if product is not None else None


def _fits(about: Fact, value: Scalar, expected: Iterable[Scalar], rules: Rules) -> bool:
    tolerance = rules.limit("drift.size_tolerance").value
    return any(near(about, value, one, tolerance) for one in expected)


def _odd(about: Fact, value: Scalar, having: Having, nodes: Mapping[str, NodeFacts]) -> Odd:
    devices: dict[str, tuple[str, ...]] = {}
    for names, mine in having if about.per != "node" else ():
        for name in names:
            labels = map(nodes[name].gpu_label, mine) if about.per == "gpu" else mine
            devices[name] = tuple(labels)
    return Odd(shown(about, value), _names(having, nodes), devices)


def _names(having: Having, nodes: Iterable[str]) -> tuple[str, ...]:
    """The nodes that have it, in natural order, which is that of `nodes`."""
    known = {name for names, _ in having for name in names}
    return tuple(name for name in nodes if name in known)


def _severity(
    counts: Counts, apart: Sequence[Scalar], expected: Sequence[Scalar], *, stated: bool
) -> Severity:
    """As the checks grade it: what differs from the site's word warns, a split informs."""
    if not apart:
        return Severity.OK
    if stated:
        return Severity.WARN
    if not expected or counts.severity != "warn":
        return Severity.INFO
    less = any(size_of(value) < size_of(expected[0]) for value in apart)
    return Severity.INFO if counts.fewer and not less else Severity.WARN


def _label(about: Fact, group: str, rules: Rules) -> str:
    if about.name == "sysctl":
        return group
    if about.name == "memlock":
        return f"{about.label} of {group}" if group else about.label
    if not group:
        return about.label
    product = rules.product(group) if about.per == "gpu" else None
    return f"{about.label} {product.name if product is not None else group}"


def _flag_words(kind: str, name: str) -> tuple[str, str, str]:
    """What a flag is called, and what it says when it holds and when not."""
    match kind:
        case "service":
            return t("service {name}", name=name), t("runs"), t("does not run")
        case "module":
            return t("module {name}", name=name), t("loaded"), t("not loaded")
    return f"{kind} {name}", t("yes"), t("no")


def _flag(
    role: str, group: str, seen: Values, census: Census, nodes: Iterable[str]
) -> Majority | None:
    """A service, a module, a setting of a container engine: so on most nodes."""
    kind, _, name = group.partition(".")
    label, yes, no = _flag_words(kind, name)
    have, asked = census.have.get(group, 0), census.asked.get(group, 0)
    most, value = max((have, True), (asked - have, False))
    if asked < 3 or most * 2 <= asked or most < 2 * (asked - most):
        return None
    apart = _names(seen.get(not value, []), nodes)
    odd = (Odd(no if value else yes, apart, {}),) if apart else ()
    return Majority(
        role=role, fact=FLAGS, group=group, label=label, usual=yes if value else no,
        agreeing=most, total=asked, per="node", odd=odd, unknown=(),
        severity=Severity.INFO if odd else Severity.OK, source="", help="",
    )  # fmt: skip


def _words(
    role: str, told: Mapping[str, Parts], census: Census, rules: Rules
) -> Iterator[Majority]:
    """One fact a word of the kernel command line that not all nodes have."""
    words, counts = census.words, rules.drift[CMDLINE]
    if counts.severity == "off" or not words.total:
        return
    lines: dict[str, list[str]] = {}
    for node, parts in told.items():
        line = next((str(s.value) for s in _seen(parts, CMDLINE)), None)
        if line is not None:
            lines.setdefault(line, []).append(node)
    splitting = {split.group for split in census.splits if split.fact == CMDLINE}
    for word in sorted({*words.common, *words.rare}):
        if word.partition("=")[0] in words.own:
            continue
        has = [node for line, names in lines.items() if word in line.split(" ") for node in names]
        lacks = [n for line, names in lines.items() if word not in line.split(" ") for n in names]
        if lacks and has:
            yield _word(role, word, has, lacks, word in splitting, counts.severity)


def _seen(parts: Parts, fact: str) -> Iterator[Seen]:
    return (seen for items in parts[:FLAG] for seen in items if seen.fact == fact)


def _word(
    role: str, word: str, has: Sequence[str], lacks: Sequence[str], split: bool, severity: str
) -> Majority:
    ways = [Odd(t("with"), tuple(has), {}), Odd(t("without"), tuple(lacks), {})]
    most, few = sorted(ways, key=lambda one: -len(one.names))
    total = len(has) + len(lacks)
    return Majority(
        role=role, fact=CMDLINE, group=word, label=t("boot option {word}", word=word),
        usual="" if split else most.value, agreeing=0 if split else len(most.names), total=total,
        per="node", odd=(most, few) if split else (few,), unknown=(),
        severity=Severity.INFO if split else Severity(severity), source="", help="",
    )  # fmt: skip


def _order(one: Majority) -> tuple[int, bool, int, str, str]:
    """What warns first, splits after odd ones, most odd nodes first."""
    names = Counter(name for odd in one.odd for name in odd.names)
    return -one.severity.rank, one.split, -len(names), one.label, one.group
