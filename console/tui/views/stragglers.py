"""Slow GPUs and nodes, ranked, with the readings of their peers; then who waits, and who was fine.

Pure. A table without a slow row still says how many GPUs were compared and which were not: nothing
slow among nothing compared is no good news.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from console import units
from console.fleet import Fleet
from console.peers import Compared
from console.tui.text import Cell, Column, Line, choose, fit
from console.tui.theme import Glyphs
from console.tui.view import GUTTER
from console.tui.views import straggler_words
from console.tui.views.peers import (
    Field,
    Left,
    Reading,
    Why,
    alike,
    field_of,
    job_of,
    left,
    reading,
)
from console.tui.views.straggler_rows import SLOW, Row, share_of
from console.tui.words import t
from probes.event import Finding, Severity
from probes.slow_rules import JOB_WAITS

SEPARATOR = "\x1f"
MOVES = 0.03
"""Change of its share of the peers' reading from which a row may change its rank: three times the
1 % that clocks of healthy GPUs scatter. Rows that swap every second cannot be read."""
STALE_S = 60.0
"""Comparisons begin every 5 s and take some 10 s of ticks with 4,000 nodes."""
UNFOLDED = 6
"""Groups that are listed without being asked."""


class Stragglers:
    """A Table; see views.table."""

    def __init__(self, fleet: Fleet) -> None:
        """Nothing read yet."""
        self.fleet = fleet
        self.empty = ""
        self.compared: Compared | None = None
        self._before: Compared | None = None
        """The one before, held a tick longer: freeing 32,000 GPUs takes 20 ms, as long as ordering
        the rows does, and a key may come between the two."""
        self.age_s = 0.0
        """Seconds since that comparison began."""
        self._index = {name: i for i, name in enumerate(fleet.nodes)}
        self._seen: dict[str, list[Finding]] = {}
        self._found: dict[str, tuple[Finding, ...]] = {}
        self._ranked: dict[str, float] = {}
        """Row -> share of its peers by which it is ranked."""
        self._readings: dict[str, Reading | None] = {}
        self._shown: Sequence[str] = ()
        self._changed = True
        self._keys: list[str] = []
        self._by_key: dict[str, Row] = {}
        self._toggled: set[str] = set()
        self._expected: dict[str, int | None] = {}
        self._counted: dict[str, int] = {}
        self._fields: dict[str, Field | None] = {}

    # ------------------------------------------------------------------ taking in

    def update(self, names: Collection[str], now: float) -> None:
        """See Table."""
        lists, seen = self.fleet.findings, self._seen
        for name in names:
            self._expect(name)
            found = lists[name]
            if found is seen.get(name):
                continue
            seen[name] = found
            mine = tuple(f for f in found if f.rule in SLOW or f.rule == JOB_WAITS.id)
            if mine != self._found.get(name, ()):
                self._found[name] = mine
                self._changed = True
        if self.fleet.compared is not self.compared:
            self._before, self.compared = self.compared, self.fleet.compared
            self._readings, self._fields = {}, {}
            self._changed = True
        else:
            self._before = None

    def _expect(self, name: str) -> None:
        """How many GPUs the node has: the site's word, else its own, else its role's."""
        facts = self.fleet.nodes[name]
        change = facts.changed.get("inventory", 0)
        if self._counted.get(name) == change and self._expected[name] is not None:
            return
        self._counted[name] = change
        counts = [facts.value("inventory", "", m) for m in ("pci_gpu_count", "gpu_count")]
        known = [count for count in counts if isinstance(count, int)]
        peers = self.fleet.roles.get(facts.node.role)
        usual = peers.gpu_count if peers is not None else None
        self._expected[name] = facts.node.gpus or max(known, default=usual)

    @property
    def stale(self) -> bool:
        """Whether comparing goes on no more, so that nothing here is known of the present."""
        return self.age_s > STALE_S

    @property
    def _looked(self) -> frozenset[tuple[str, str]]:
        return self.compared.seen if self.compared is not None else frozenset()

    # ------------------------------------------------------------------ rows

    def rows(self, shown: Sequence[str], now: float) -> list[str]:
        """See Table."""
        if self.compared is not None:
            self.age_s = max(0.0, now - self.compared.comparison.now)
        if not self._changed and shown == self._shown:
            return self._keys
        self._changed, self._shown = False, list(shown)
        self.empty = (
            t("the first comparison of peers is under way") if shown
            else t("the filter shows no node")
        )  # fmt: skip
        self._keys, self._by_key = [], {}
        self._slow_rows(shown)
        self._waiting_rows(shown)
        if self.compared is not None and shown:
            self._compared_rows(shown)
        return self._keys

    def _add(self, key: str, row: Row, *, fold: bool = False) -> None:
        self._keys.append(key)
        self._by_key[key] = row
        if fold and len(row.names) > 1 and self.unfolded(key):
            for name in row.names:
                found = tuple(f for f in row.found if f.node == name)
                inner = Row("node", (name,), row.severity, found, left=row.left, job=row.job)
                self._add(SEPARATOR.join((key, name)), inner)

    def _slow_rows(self, shown: Sequence[str]) -> None:
        rows: list[tuple[tuple[float, ...], str, Row]] = []
        slow = self.compared.slow if self.compared is not None else {}
        for name in shown:
            for finding in self._found.get(name, ()):
                if finding.rule not in SLOW:
                    continue
                key = SEPARATOR.join(("slow", name, finding.device, finding.rule))
                votes = slow.get((name, finding.device, finding.rule))
                seen = votes is None or (name, finding.device) in self._looked
                row = Row("slow", (name,), finding.severity, (finding,), votes, seen)
                share = self._share(key, finding)
                rows.append(((-finding.severity.rank, share, self._index[name]), key, row))
        rows.sort(key=lambda one: one[:2])
        for rank, (_, key, row) in enumerate(rows, 1):
            self._add(key, row._replace(rank=rank))
        self._ranked = {key: self._ranked[key] for _, key, _ in rows}

    def _share(self, key: str, finding: Finding) -> float:
        """By which the row is ranked: its share, unless that moved too little to tell."""
        share = share_of(finding)
        now = 1.0 if share is None else share
        before = self._ranked.get(key, now)
        kept = self._ranked[key] = before if abs(before - now) < MOVES else now
        return kept

    def _waiting_rows(self, shown: Sequence[str]) -> None:
        jobs: dict[str, list[Finding]] = {}
        nodes = self.compared.comparison.nodes if self.compared is not None else {}
        for name in shown:
            for finding in self._found.get(name, ()):
                if finding.rule == JOB_WAITS.id:
                    jobs.setdefault(job_of(nodes.get(name, ())), []).append(finding)
        for job, found in jobs.items():
            names = tuple(dict.fromkeys(finding.node for finding in found))
            row = Row("waits", names, Severity.INFO, tuple(found), job=job)
            self._add(SEPARATOR.join(("waits", job)), row, fold=True)

    def _compared_rows(self, shown: Sequence[str]) -> None:
        assert self.compared is not None
        look = self.compared.comparison
        seen = None if len(shown) == len(self._index) else frozenset(shown)
        groups = alike(look, seen)
        apart = left(look, shown, self._expected)
        self._left_rows([one for one in apart if one.why is Why.UNREAD], Severity.UNKNOWN)
        gpus = sum(group.n for group in groups)
        self._add("compared", Row("compared", (), Severity.OK, gpus=gpus, groups=len(groups)))
        if self.unfolded("compared"):
            for group in groups:
                first = group.gpus[0]
                key = SEPARATOR.join(("field", first.node, first.device))
                job = first.job or ""
                self._add(key, Row("field", (first.node,), Severity.OK, group=group, job=job))
        self._left_rows([one for one in apart if one.why is not Why.UNREAD], Severity.OK)

    def _left_rows(self, apart: Sequence[Left], severity: Severity) -> None:
        for one in apart:
            row = Row("left", one.names, severity, left=one, gpus=one.gpus)
            self._add(SEPARATOR.join(("left", one.why)), row, fold=True)

    def unfolded(self, key: str) -> bool:
        """Whether what is below a row is listed. Few groups are listed until they are folded."""
        row = self._by_key[key]
        at_first = row.kind == "compared" and row.groups <= UNFOLDED
        return at_first != (key in self._toggled)

    def foldable(self, key: str) -> bool:
        """Whether something is below the row."""
        row = self._by_key[key]
        return row.groups > 0 or (row.kind in ("waits", "left") and len(row.names) > 1)

    def toggle(self, key: str) -> bool:
        """Unfold or fold; False where nothing is below the row."""
        if key not in self._by_key or not self.foldable(key):
            return False
        self._toggled ^= {key}
        self._changed = True
        return True

    def target(self, key: str) -> tuple[str, tuple[str, str] | None] | None:
        """The row's node and finding; of a group its slowest GPU's node."""
        row = self._by_key.get(key)
        if row is None or not row.names:
            return None
        if row.found:
            return row.found[0].node, (row.found[0].rule, row.found[0].device)
        field = self.field(key)
        return (field.slowest.node if field is not None else row.names[0]), None

    # ------------------------------------------------------------------ what a row says

    def row(self, key: str) -> Row:
        """The row of a key that `rows` gave."""
        return self._by_key[key]

    def reading(self, key: str) -> Reading | None:
        """What accuses the row, with its peers."""
        if key not in self._readings:
            row = self._by_key[key]
            self._readings[key] = (
                reading(self.compared.comparison, row.slow)
                if self.compared is not None and row.slow is not None
                else None
            )
        return self._readings[key]

    def field(self, key: str) -> Field | None:
        """The figures of a group's row."""
        group = self._by_key[key].group
        if group is None:
            return None
        if key not in self._fields:
            slow = (row for row in self._by_key.values() if row.kind == "slow")
            accused = {(row.names[0], row.found[0].device) for row in slow}
            self._fields[key] = field_of(group, accused)
        return self._fields[key]

    def nodes(self, key: str) -> Sequence[str]:
        """See Table. Groups that were compared are nobody's fault."""
        row = self._by_key.get(key)
        return () if row is None or row.kind in ("compared", "field") else row.names

    def severity(self, key: str) -> Severity:
        """See Table."""
        row = self._by_key.get(key)
        return row.severity if row is not None else Severity.OK

    def findings(self, key: str) -> Sequence[Finding]:
        """See Table."""
        row = self._by_key.get(key)
        return row.found if row is not None else ()

    def headline(self) -> str:
        """See Table."""
        rows = self._by_key.values()
        proven = sum(r.kind == "slow" and r.severity is not Severity.INFO for r in rows)
        suspected = sum(r.kind == "slow" and r.severity is Severity.INFO for r in rows)
        gpus = sum(r.gpus for r in rows if r.kind == "compared")
        if self.compared is None:
            return t("not compared yet")
        told = {"n": proven, "suspected": suspected, "gpus": gpus, "age": units.age(self.age_s)}
        if self.stale:
            return t("{n} slow of {gpus} compared {age} ago", **told)
        if suspected:
            return t("{n} slow, {suspected} suspected, of {gpus} compared", **told)
        return t("{n} slow of {gpus} compared", **told)

    def why(self, key: str, glyphs: Glyphs, width: int) -> Line:
        """See Table."""
        row = self._by_key.get(key)
        return () if row is None else straggler_words.why(self, key, row, glyphs, width)

    def columns(self, width: int) -> list[Column]:
        """See Table."""
        who = 32 if width >= 150 else 24 if width >= 110 else 20
        return choose(
            [
                GUTTER,
                Column("rank", "#", 2, 1, "right"),
                Column("severity", t("VERDICT"), 7, 2),
                Column("who", t("WHO"), who, 1),
                Column("slower", t("OFF"), 5, 3, "right"),
                Column("reason", t("REASON"), 24 if width >= 110 else 20, 6),
                Column("sure", t("HOW SURE"), 9, 7),
                Column("agree", t("AGREE"), 13, 8),
                Column("z", "Z", 5, 9, "right"),
                Column("strip", t("PEERS, GHZ"), 18, 4, flexible=True),
            ],
            width,
        )

    def cells(self, key: str, columns: Sequence[Column], glyphs: Glyphs, now: float) -> list[Cell]:
        """See Table."""
        row = self._by_key[key]
        bare = all(column.name != "reason" for column in columns)
        cells = []
        for column in columns:
            text, style = straggler_words.cell(self, key, row, column, glyphs, bare=bare)
            cells.append(Cell(fit(text, column.width, column.align), style))
        return cells
