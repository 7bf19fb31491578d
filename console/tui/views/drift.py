"""Majority against odd ones, by role: one row a fact in which nodes differ, or are split. Pure.

What all nodes of a role have alike is one row that unfolds: it is also the answer to "which driver
do we run?". Nodes of which nothing is known have a row of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from console.fleet import Fleet
from console.tui.text import Cell, Column, Line, choose, fit
from console.tui.theme import Glyphs
from console.tui.view import GUTTER
from console.tui.views import drift_words
from console.tui.views.hosts import Places
from console.tui.views.majorities import Majority, Parts, Role, observed, role
from console.tui.words import t, tn
from probes.drift import EMPTY, Census
from probes.drift_facts import FACTS
from probes.event import Finding, Severity

SEPARATOR = "\x1f"
_RULES = {"node": "drift.node", "gpu": "drift.gpu", "port": "drift.nic_firmware"}
"""Per what a fact is -> the rule of its findings."""
SITE = "site.expected"

RowKind = Literal["fact", "value", "node", "silent", "alike"]


class Row(NamedTuple):
    """One line of the table."""

    kind: RowKind
    role: str
    names: tuple[str, ...]
    severity: Severity
    fact: Majority | None = None
    value: str = ""
    """Of a node, or of one side of a split; "" where it is unknown."""
    devices: tuple[str, ...] = ()
    alike: int = 0
    """Facts that all nodes have alike."""


class Drift:
    """A Table; see views.table."""

    def __init__(self, fleet: Fleet) -> None:
        """Nothing read yet."""
        self.fleet = fleet
        self.empty = ""
        self.places = Places(fleet)
        self._role_of = {name: facts.node.role for name, facts in fleet.nodes.items()}
        self._members: dict[str, list[str]] = {}
        for name, of in self._role_of.items():
            self._members.setdefault(of, []).append(name)
        self._parts: dict[str, Parts] = {}
        self._census: dict[str, Census] = {}
        self._touched: set[str] = set(self._members)
        self._roles: dict[str, Role] = {}
        self._shown: Sequence[str] = ()
        self._keys: list[str] = []
        self._by_key: dict[str, Row] = {}
        self._open: set[str] = set()

    # ------------------------------------------------------------------ taking in

    def update(self, names: Collection[str], now: float) -> None:
        """See Table."""
        self.places.update(names)
        nodes = self.fleet.nodes
        for name in names:
            parts = observed(nodes[name])
            if parts != self._parts.get(name):
                self._parts[name] = parts
                self._touched.add(self._role_of[name])
        for of, peers in self.fleet.roles.items():
            if peers.drift is not self._census.get(of):
                self._census[of] = peers.drift
                self._touched.add(of)

    # ------------------------------------------------------------------ rows

    def rows(self, shown: Sequence[str], now: float) -> list[str]:
        """See Table."""
        if not self._touched and shown == self._shown:
            return self._keys
        for of in self._touched:
            parts = {name: self._parts[name] for name in self._members[of] if name in self._parts}
            census = self._census.get(of, EMPTY)
            self._roles[of] = role(of, parts, census, self.fleet.rules, self.fleet.nodes)
        self._touched, self._shown = set(), list(shown)
        self._list()
        self.empty = t("nothing to compare yet: fewer than three nodes of a role have answered")
        if not shown:
            self.empty = t("the filter shows no node")
        return self._keys

    def _list(self) -> None:
        seen = frozenset(self._shown)
        rows = [
            row
            for of in sorted(self._roles)
            for row in _of_role(self._roles[of], self._shown, seen)
        ]
        rows.sort(key=_order)
        self._keys, self._by_key = [], {}
        for row in rows:
            key = _key(row)
            self._add(key, row)
            if key in self._open:
                for inner in _below(row, self._roles[row.role], seen):
                    self._add(
                        SEPARATOR.join((key, *inner.names[:1], inner.value, _key(inner))), inner
                    )

    def _add(self, key: str, row: Row) -> None:
        self._keys.append(key)
        self._by_key[key] = row

    def foldable(self, key: str) -> bool:
        """Whether something is below the row."""
        kind = self._by_key[key].kind
        return kind == "fact" or kind == "alike" or (kind == "silent" and self._many(key))

    def _many(self, key: str) -> bool:
        return len(self._by_key[key].names) > 1

    def unfolded(self, key: str) -> bool:
        """Whether what is below a row is listed."""
        return key in self._open

    def toggle(self, key: str) -> bool:
        """Unfold or fold; False where nothing is below the row."""
        if key not in self._by_key or not self.foldable(key):
            return False
        self._open ^= {key}
        self._list()
        return True

    def target(self, key: str) -> tuple[str, tuple[str, str] | None] | None:
        """The row's node, at what it tells of the drift."""
        row = self._by_key.get(key)
        if row is None or len(row.names) != 1:
            return None
        found = self.findings(key)
        return row.names[0], ((found[0].rule, found[0].device) if found else None)

    # ------------------------------------------------------------------ what a row says

    def row(self, key: str) -> Row:
        """The row of a key that `rows` gave."""
        return self._by_key[key]

    def nodes(self, key: str) -> Sequence[str]:
        """See Table: the odd ones. A split accuses nobody, so its row is about none."""
        row = self._by_key.get(key)
        return () if row is None or row.kind == "alike" else row.names

    def severity(self, key: str) -> Severity:
        """See Table."""
        row = self._by_key.get(key)
        return row.severity if row is not None else Severity.OK

    def findings(self, key: str) -> Sequence[Finding]:
        """See Table: those of the odd nodes about this fact."""
        row = self._by_key.get(key)
        if row is None or row.fact is None:
            return ()
        fact = row.fact
        return [
            finding
            for name in row.names
            for finding in self.fleet.findings[name]
            if _about(finding, fact)
        ]

    def headline(self) -> str:
        """See Table."""
        rows = [row for row in self._by_key.values() if row.kind == "fact" and row.fact is not None]
        nodes = {name for row in rows for name in row.names}
        splits = sum(row.fact is not None and row.fact.split for row in rows)
        silent = sum(len(row.names) for row in self._by_key.values() if row.kind == "silent")
        if not rows and not any(row.kind == "alike" for row in self._by_key.values()):
            return t("nothing compared")
        if not rows and silent:
            return tn(
                "no fact differs, 1 node tells nothing",
                "no fact differs, {n} nodes tell nothing",
                silent,
            )
        if not rows:
            return t("no fact differs")
        told = {"facts": len(rows) - splits, "nodes": len(nodes), "splits": splits}
        if splits:
            return t("facts that differ: {facts}, nodes: {nodes}, splits: {splits}", **told)
        return t("facts that differ: {facts}, nodes: {nodes}", **told)

    def why(self, key: str, glyphs: Glyphs, width: int) -> Line:
        """See Table."""
        row = self._by_key.get(key)
        return () if row is None else drift_words.why(self, row, glyphs, width)

    def columns(self, width: int) -> list[Column]:
        """See Table."""
        wide = width >= 120
        return choose(
            [
                GUTTER,
                Column("severity", t("VERDICT"), 7, 2),
                Column("what", t("WHAT"), 36 if wide else 20, 1),
                Column("role", t("ROLE"), 12, 7),
                Column("usual", t("MOST HAVE"), 26 if wide else 14, 5),
                Column("share", t("SHARE"), 16 if wide else 9, 6, "right"),
                Column("odd", t("ODD ONES"), 18, 3, flexible=True),
            ],
            width,
        )

    def cells(self, key: str, columns: Sequence[Column], glyphs: Glyphs, now: float) -> list[Cell]:
        """See Table."""
        row = self._by_key[key]
        cells = []
        for column in columns:
            text, style = drift_words.cell(self, key, row, column, glyphs)
            cells.append(Cell(fit(text, column.width, column.align), style))
        return cells


def _key(row: Row) -> str:
    if row.fact is None or row.kind != "fact":
        return SEPARATOR.join((row.kind, row.role))
    return SEPARATOR.join((row.kind, row.role, row.fact.fact, row.fact.group))


def _of_role(one: Role, shown: Sequence[str], seen: frozenset[str]) -> Iterator[Row]:
    """Facts that differ on a node that is shown; then what is alike, and who is silent."""
    alike = 0
    for fact in one.facts:
        odd = set() if fact.split else {n for o in fact.odd for n in o.names}
        wanted = odd.union(fact.unknown)
        names = tuple(n for n in shown if n in wanted) if wanted else ()
        concerned = names or (fact.split and any(n in seen for o in fact.odd for n in o.names))
        if not concerned:
            alike += not (fact.odd or fact.unknown)
            continue
        severity = fact.severity if fact.odd else Severity.UNKNOWN
        about = tuple(n for n in names if n in odd) if fact.odd else names
        yield Row("fact", one.name, about, severity, fact)
    silent = tuple(name for name in one.silent if name in seen)
    if silent:
        yield Row("silent", one.name, silent, Severity.UNKNOWN)
    if alike:
        yield Row("alike", one.name, (), Severity.OK, alike=alike)


def _below(row: Row, one: Role, seen: frozenset[str]) -> Iterator[Row]:
    """What an unfolded row lists: sides of a split, odd nodes, nodes that do not tell, facts."""
    fact = row.fact
    if row.kind == "silent":
        yield from (Row("node", row.role, (name,), Severity.UNKNOWN) for name in row.names)
    elif row.kind == "alike":
        for each in one.facts:
            if not each.odd and not each.unknown:
                yield Row("value", row.role, (), Severity.OK, each, each.usual)
    elif fact is not None:
        for odd in fact.odd:
            names = tuple(name for name in odd.names if name in seen)
            if fact.split:
                yield Row("value", row.role, names, Severity.OK, fact, odd.value)
                continue
            for name in names:
                devices = tuple(odd.devices.get(name, ()))
                yield Row("node", row.role, (name,), row.severity, fact, odd.value, devices)
        for name in fact.unknown:
            if name in seen:
                yield Row("node", row.role, (name,), Severity.UNKNOWN, fact)


def _about(finding: Finding, fact: Majority) -> bool:
    about = FACTS.get(fact.fact)
    if finding.rule == SITE:
        return finding.device == fact.fact
    if about is None or finding.rule != _RULES[about.per]:
        return False
    return about.per == "port" or finding.device == fact.fact or about.label in finding.say


def _order(row: Row) -> tuple[int, int, bool, int]:
    """Unknown, warnings, information, what is alike; odd ones before splits, most odd first."""
    kinds = {"silent": 0, "fact": 1, "alike": 2}
    split = row.fact is not None and row.fact.split
    return -row.severity.rank, kinds.get(row.kind, 3), split, -len(row.names)
