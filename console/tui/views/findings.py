"""Findings folded by kind: one row a problem, whatever the number of nodes that have it. Pure.

Worst first, then most nodes, then newest; among equals causes before symptoms, as the rules are
registered. A row may be unfolded into its devices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from console.fleet import Fleet
from console.tui import bars
from console.tui.text import Cell, Column, Line, choose, cut, fit, width_of
from console.tui.theme import Glyphs
from console.tui.view import GUTTER
from console.tui.views.finding_words import Drawn, KindRow, cell
from console.tui.views.hosts import Places, said
from console.tui.views.kinds import UNSEEN, Kind, kind_of, title, unseen
from console.tui.words import t, tn
from probes.checks import place
from probes.event import Finding, Severity

SEPARATOR = "\x1f"
"""Between the parts of a row's key; never drawn."""


class Findings:
    """A Table; see views.table."""

    def __init__(self, fleet: Fleet) -> None:
        """Nothing read yet."""
        self.fleet = fleet
        self.empty = ""
        self._index = {name: i for i, name in enumerate(fleet.nodes)}
        self._seen: dict[str, list[Finding]] = {}
        self._of: dict[str, dict[Kind, tuple[Finding, ...]]] = {}
        """Node -> kind -> its findings; nodes without any are missing."""
        self._members: dict[Kind, dict[str, tuple[Finding, ...]]] = {}
        self._touched: set[Kind] = set()
        self._rows: dict[Kind, KindRow] = {}
        self._shown: Sequence[str] = ()
        self._keys: list[str] = []
        self._by_key: dict[str, KindRow | Finding] = {}
        self._open: set[str] = set()
        self._places = Places(fleet)
        self._concerned = 0
        self._titles: dict[Kind, str] = {}

    # ------------------------------------------------------------------ taking in

    def update(self, names: Collection[str], now: float) -> None:
        """See Table."""
        self._places.update(names)
        lists, seen = self.fleet.findings, self._seen
        for name in names:
            found = lists[name]
            if found is seen.get(name):
                continue  # not judged again since: each judging makes a new list
            seen[name] = found
            verdict = self.fleet.verdict(name)
            if found or verdict is not Severity.OK:
                self._replace(name, self._sort(name, verdict, found))
            elif name in self._of:
                self._replace(name, {})

    def _sort(
        self, name: str, verdict: Severity, found: Sequence[Finding]
    ) -> dict[Kind, tuple[Finding, ...]]:
        facts = self.fleet.nodes[name]
        kinds: dict[Kind, tuple[Finding, ...]] = {}
        for finding in found:
            kind = kind_of(finding, facts)
            kinds[kind] = (*kinds.get(kind, ()), finding)
        blind = unseen(facts, verdict, found)
        if blind is not None:
            kinds[Kind(UNSEEN, blind.device)] = (blind,)
        return kinds

    def _replace(self, name: str, now: dict[Kind, tuple[Finding, ...]]) -> None:
        before = self._of.get(name, {})
        for kind, found in now.items():
            if before.get(kind) != found:
                self._members.setdefault(kind, {})[name] = found
                self._touched.add(kind)
        for kind in before.keys() - now.keys():
            del self._members[kind][name]
            self._touched.add(kind)
        if now:
            self._of[name] = now
        else:
            self._of.pop(name, None)

    # ------------------------------------------------------------------ rows

    def rows(self, shown: Sequence[str], now: float) -> list[str]:
        """See Table."""
        moved = shown != self._shown
        if not moved and not self._touched and self._keys:
            return self._keys
        seen = set(shown) if len(shown) < len(self._index) else None
        for kind in list(self._members) if moved else self._touched:
            self._rebuild(kind, seen)
        self._shown = list(shown)
        self._touched = set()
        self._list()
        self.empty = (
            tn(
                "no finding on the node shown, and it was judged",
                "no finding on the {n} nodes shown, and each of them was judged",
                len(shown),
            )
            if shown
            else t("the filter shows no node")
        )
        return self._keys

    def _rebuild(self, kind: Kind, seen: set[str] | None) -> None:
        members = self._members[kind]
        names = members.keys() if seen is None else members.keys() & seen
        if not names:
            self._rows.pop(kind, None)
            if not members:
                del self._members[kind]
            return
        self._rows[kind] = _row(kind, sorted(names, key=self._index.__getitem__), members)

    def _list(self) -> None:
        self._concerned = len({name for row in self._rows.values() for name in row.names})
        self._keys, self._by_key = [], {}
        for row in sorted(self._rows.values(), key=_order):
            key = SEPARATOR.join(row.kind)
            self._keys.append(key)
            self._by_key[key] = row
            if key in self._open and len(row.found) > 1:
                for finding in row.found:
                    inner = SEPARATOR.join((*row.kind, finding.node, finding.device))
                    self._keys.append(inner)
                    self._by_key[inner] = finding

    def toggle(self, key: str) -> bool:
        """Unfold or fold a kind; False when the row is about one thing only."""
        row = self._by_key.get(key)
        if not isinstance(row, KindRow) or len(row.found) < 2:
            return False
        self._open ^= {key}
        self._list()
        return True

    def target(self, key: str) -> tuple[str, tuple[str, str]] | None:
        """Node, and rule and device of the finding, that the row leads to."""
        row = self._by_key.get(key)
        if row is None:
            return None
        finding = row.top if isinstance(row, KindRow) else row
        return finding.node, (finding.rule, finding.device)

    # ------------------------------------------------------------------ what a row says

    def nodes(self, key: str) -> Sequence[str]:
        """See Table."""
        row = self._by_key.get(key)
        if row is None:
            return ()
        return row.names if isinstance(row, KindRow) else (row.node,)

    def severity(self, key: str) -> Severity:
        """See Table."""
        row = self._by_key.get(key)
        return row.severity if row is not None else Severity.OK

    def findings(self, key: str) -> Sequence[Finding]:
        """See Table."""
        row = self._by_key.get(key)
        if row is None:
            return ()
        found = row.found if isinstance(row, KindRow) else (row,)
        return [finding for finding in found if finding.rule != UNSEEN]

    def headline(self) -> str:
        """See Table."""
        kinds, nodes = len(self._rows), self._concerned
        if nodes == 1:
            one = t("1 kind on one node")
            return one if kinds == 1 else t("{kinds} kinds on one node", kinds=kinds)
        return (
            t("1 kind on {nodes} nodes", nodes=nodes) if kinds == 1
            else t("{kinds} kinds on {nodes} nodes", kinds=kinds, nodes=nodes)
        )  # fmt: skip

    def why(self, key: str, glyphs: Glyphs, width: int) -> Line:
        """See Table."""
        row = self._by_key.get(key)
        if row is None:
            return ()
        if not isinstance(row, KindRow):
            return bars.why(row, "", glyphs, width)
        shared = self._places.shared(row.names)
        if shared is None:
            return bars.why(row.top, "", glyphs, width)
        told = cut(said(shared), width // 2) + "  "
        rest = bars.why(row.top, "", glyphs, max(0, width - width_of(told)))
        return rest[0], Cell(told, "warn"), *rest[1:]

    def columns(self, width: int) -> list[Column]:
        """See Table."""
        wide = width >= 120
        kind = 40 if wide else 31 if width >= 76 else 24
        age = 9 if width >= 76 else 4
        hosts = Column("hosts", t("NODES"), 26 if wide else 12, 4, flexible=not wide)
        says = [Column("says", t("SAYS"), 20, 8, flexible=True)] if wide else []
        return choose(
            [
                GUTTER,
                Column("severity", t("VERDICT"), 7, 1),
                Column("kind", t("KIND"), kind, 2),
                Column("count", t("ON"), 5, 3, "right"),
                Column("devices", t("DEVICES"), 7, 9 if wide else 99, "right"),
                hosts,
                *says,
                Column("age", t("SINCE") if age > 4 else t("AGE"), age, 5, "right"),
                Column("ack", t("ACK"), 7 if wide else 5, 6, "right"),
                Column("state", t("SEEN"), 8, 7),
            ],
            width,
        )

    def cells(self, key: str, columns: Sequence[Column], glyphs: Glyphs, now: float) -> list[Cell]:
        """See Table."""
        row = self._by_key[key]
        names = {column.name: column.width for column in columns}
        called = self.title(row.kind) if isinstance(row, KindRow) else ""
        wide = names.get("age", 0) > len("999d")
        line = Drawn(called, self.unfolded(key), glyphs, now, "says" in names, wide)
        cells = []
        for column in columns:
            text, style = cell(row, column.name, line)
            cells.append(Cell(fit(text, column.width, column.align), style))
        return cells

    def title(self, kind: Kind) -> str:
        """What the kind is called."""
        name = self._titles.get(kind)
        if name is None:
            name = self._titles[kind] = title(kind, self.fleet.rules)
        return name

    def unfolded(self, key: str) -> bool:
        """Whether its devices are listed below it."""
        return key in self._open


def _order(row: KindRow) -> tuple[float, float, float, int, Kind]:
    return -row.severity.rank, -len(row.names), -row.newest, place(row.kind.rule), row.kind


def _row(kind: Kind, names: Sequence[str], members: Mapping[str, tuple[Finding, ...]]) -> KindRow:
    found = tuple(finding for name in names for finding in members[name])
    since = [finding.since for finding in found]
    return KindRow(
        kind=kind,
        found=found,
        names=tuple(names),
        severity=max((finding.severity for finding in found), key=lambda s: s.rank),
        newest=max(since),
        oldest=min(since),
        acknowledged=sum(finding.acknowledged for finding in found),
        latched=sum(finding.latched for finding in found),
    )
