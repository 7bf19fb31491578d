"""Writing into the file: what is the same thing seen twice, by two consoles or two looks.

Every method may be repeated with what it was given before, and changes nothing then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from console.memory.gather import Row, Series
from console.memory.notes import FAR_S, NAME, OUT, TEXT, Act, Boot, Look, Note, Tested
from inventory.scheduler import Allocation
from probes.event import Finding, Severity
from probes.sanitise import clean

SERIES_OF_A_NODE = 1000
"""Cards, drivers and limits of one node in all its time; more is not believed."""
GAP_S = 86400.0
"""A finding that nobody saw for longer is another one when it is found again (our estimate)."""
NOT_FOUND = "no longer found"
UNSEEN = "nobody watched when it ended"
THIRD_S = 28800
SLOT_S = 600
"""A look counts for its ten minutes."""


class _Known(NamedTuple):
    id: int
    severity: str
    begin: float
    seen: float
    over: float | None


class Book:
    """The tables, by way of one connection. Ids are kept; after a rollback make a new one."""

    def __init__(self, db: sqlite3.Connection) -> None:
        """Reads nothing yet."""
        self.db = db
        self._nodes: dict[str, int] = {}
        self._series: dict[Series, int] = {}
        self._counts: dict[int, int] = {}

    def node(self, name: str) -> int:
        """Its number in the file."""
        found = self._nodes.get(name)
        if found is None:
            self.db.execute("INSERT OR IGNORE INTO node (name) VALUES (?)", (name,))
            (found,) = self.db.execute("SELECT id FROM node WHERE name = ?", (name,)).fetchone()
            self._nodes[name] = found
        return int(found)

    def series(self, series: Series, label: str, at: int) -> int | None:
        """Its number in the file; None when the node has too many."""
        found = self._series.get(series)
        if found is not None:
            return found
        node = self.node(series.node)
        key = (node, *series[1:])
        where = "node=? AND device=? AND kind=? AND card=? AND product=? AND driver=? AND limit_w=?"
        row = self.db.execute(f"SELECT id FROM series WHERE {where}", key).fetchone()
        if row is None:
            if self._full(node):
                return None
            made = self.db.execute(
                "INSERT INTO series (node, device, kind, card, product, driver, limit_w, label,"
                " first_at, last_at) VALUES (?,?,?,?,?,?,?,?,?,?)", (*key, label, at, at),
            )  # fmt: skip
            row = (made.lastrowid,)
        self._series[series] = row[0]
        return int(row[0])

    def _full(self, node: int) -> bool:
        count = self._counts.get(node)
        if count is None:
            query = "SELECT count(*) FROM series WHERE node = ?"
            count = int(self.db.execute(query, (node,)).fetchone()[0])
        self._counts[node] = count + 1
        return count >= SERIES_OF_A_NODE

    def rows(self, rows: Iterable[Row]) -> list[tuple[Row, int]]:
        """Intervals, and the numbers of their series.

        Of two consoles' rows the one with more readings stays.
        """
        numbered = [(row, self.series(row.series, row.label, row.at)) for row in rows]
        known = [(row, number) for row, number in numbered if number is not None]
        self.db.executemany(
            "INSERT INTO fine (at, series, n, good, packed) VALUES (?,?,?,?,?)"
            " ON CONFLICT (at, series) DO UPDATE SET n = excluded.n, good = excluded.good,"
            " packed = excluded.packed WHERE excluded.n >= n",
            [(r.at, number, r.thin.n, r.thin.good, r.thin.packed) for r, number in known],
        )
        self.db.executemany(
            "UPDATE series SET last_at = ?, label = ? WHERE id = ? AND last_at <= ?",
            [(row.at, row.label, number, row.at) for row, number in known],
        )
        return known

    def watched(self, masks: Mapping[tuple[str, int], int]) -> None:
        """(node, third of a day) -> its ten minutes with an answer."""
        self.db.executemany(
            "INSERT INTO watched (node, third, mask) VALUES (?,?,?)"
            " ON CONFLICT (node, third) DO UPDATE SET mask = mask | excluded.mask",
            [(self.node(name), third, mask) for (name, third), mask in masks.items()],
        )

    def note(self, note: Note, now: float) -> None:
        """Whatever happened."""
        match note:
            case Finding():
                self.finding(note, now)
            case Look():
                self.look(note)
            case Allocation():
                self.allocation(note)
            case Boot():
                self.boot(note)
            case Act():
                self.act(note)
            case Tested():
                self.tested(note)

    def finding(self, finding: Finding, at: float) -> None:
        """Begun, worse, over or acknowledged."""
        node = self.node(finding.node)
        key = (node, clean(finding.rule, NAME), clean(finding.device, NAME))
        if finding.severity is Severity.OK:
            why = finding.say.removeprefix("over (").partition(")")[0]
            self.db.execute(
                "UPDATE finding SET over = ?, why = ?, count = max(count, ?)"
                " WHERE node=? AND rule=? AND device=? AND over IS NULL",
                (at, clean(why, NAME), _count(finding), *key),
            )
            return
        begin = _sane(finding.since, at)
        known = self._last(key)
        if known is None or not _same(known, begin, at):
            self._begun(finding, key, begin, at)
        else:
            self._again(finding, known, at)

    def _last(self, key: tuple[int, str, str]) -> _Known | None:
        row = self.db.execute(
            "SELECT id, severity, begin, seen, over FROM finding"
            " WHERE node=? AND rule=? AND device=? ORDER BY begin DESC LIMIT 1", key,
        ).fetchone()  # fmt: skip
        return None if row is None else _Known(*row)

    def _begun(self, finding: Finding, key: tuple[int, str, str], begin: float, at: float) -> None:
        self.db.execute(
            "UPDATE finding SET over = seen, why = ?"
            " WHERE node=? AND rule=? AND device=? AND over IS NULL", (UNSEEN, *key),
        )  # fmt: skip
        self.db.execute(
            "INSERT INTO finding (node, rule, device, label, severity, hard, say, count, begin,"
            " seen, acknowledged) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            (*key, clean(finding.label, NAME), finding.severity.value, finding.hard,
             clean(finding.say, TEXT), _count(finding), begin, at,
             at if finding.acknowledged else None),
        )  # fmt: skip

    def _again(self, finding: Finding, known: _Known, at: float) -> None:
        before = Severity(known.severity)
        worst = finding.severity if finding.severity.rank > before.rank else before
        seen = at if known.seen > at + GAP_S else max(known.seen, at)  # the clock was ahead once
        self.db.execute(
            "UPDATE finding SET severity = ?, say = ?, hard = max(hard, ?), seen = ?, over = NULL,"
            " why = '', count = max(count, ?),"
            " acknowledged = CASE WHEN ? THEN coalesce(acknowledged, ?) END WHERE id = ?",
            (worst.value, clean(finding.say, TEXT), finding.hard, seen, _count(finding),
             finding.acknowledged, at, known.id),
        )  # fmt: skip

    def look(self, look: Look) -> None:
        """What is still there is seen again; what is no longer found is over."""
        for findings in look.found.values():
            for finding in findings:
                if finding.severity is not Severity.OK:
                    self.finding(finding, look.at)
        rows = self.db.execute(
            "SELECT finding.id, node.name, rule, device FROM finding JOIN node"
            " ON node.id = finding.node WHERE over IS NULL AND (seen < ? OR seen > ?)",
            (look.at, look.at + GAP_S),
        ).fetchall()  # fmt: skip
        there = {
            (name, clean(f.rule, NAME), clean(f.device, NAME))
            for name, findings in look.found.items() for f in findings
        }  # fmt: skip
        gone = [row[0] for row in rows if row[1] in look.found and tuple(row[1:]) not in there]
        self.db.executemany(
            "UPDATE finding SET over = ?, why = ? WHERE id = ?",
            [(look.at, NOT_FOUND, one) for one in gone],
        )

    def allocation(self, now: Allocation) -> None:
        """In or out of work, as the scheduler says."""
        node, reason = self.node(now.node), clean(now.reason, TEXT)
        last = self.db.execute(
            "SELECT id, reason, begin, over FROM outage WHERE node = ? ORDER BY begin DESC LIMIT 1",
            (node,),
        ).fetchone()
        if now.state not in OUT:
            if last is not None and last[3] is None:
                self._over(last[0], now.at)
            return
        begin = _sane(now.reason_at or 0.0, now.at)
        if last is not None and last[1] == reason and (last[3] is None or begin <= last[3]):
            self.db.execute(
                "UPDATE outage SET state = ?, seen = max(seen, ?), over = NULL WHERE id = ?",
                (now.state, now.at, last[0]),
            )
            return
        if last is not None and last[3] is None:
            self._over(last[0], now.at)
        self.db.execute(
            "INSERT INTO outage (node, state, reason, by, begin, seen) VALUES (?,?,?,?,?,?)",
            (node, now.state, reason, clean(now.reason_by, NAME), begin, now.at),
        )

    def _over(self, outage: int, at: float) -> None:
        self.db.execute("UPDATE outage SET over = max(begin, ?) WHERE id = ?", (at, outage))

    def act(self, act: Act) -> None:
        """A drain or resume from here."""
        self.db.execute(
            "INSERT OR IGNORE INTO act (node, at, verb, by, reason, ok, detail)"
            " VALUES (?,?,?,?,?,?,?)",
            (self.node(act.node), act.at, act.verb, clean(act.by, NAME), clean(act.reason, TEXT),
             act.ok, clean(act.detail, TEXT)),
        )  # fmt: skip

    def boot(self, boot: Boot) -> None:
        """A boot id, new or known."""
        self.db.execute(
            "INSERT INTO boot (node, boot_id, first_at, last_at) VALUES (?,?,?,?)"
            " ON CONFLICT (node, boot_id) DO UPDATE SET"
            " first_at = min(first_at, excluded.first_at),"
            " last_at = max(last_at, excluded.last_at)",
            (self.node(boot.node), boot.boot_id, boot.at, boot.at),
        )

    def tested(self, one: Tested) -> None:
        """A figure or an outcome of a test."""
        node = self.node(one.node)
        query = "SELECT 1 FROM finding WHERE node=? AND begin <= ? AND (over IS NULL OR over >= ?)"
        query += " AND (device = ? OR ? = '') AND severity IN ('warn', 'critical') LIMIT 1"
        key = (node, one.at, one.at, one.device, one.device)
        sick = self.db.execute(query, key).fetchone()  # of a whole node any of its devices counts
        good = sick is None and one.verdict in (Severity.OK, Severity.INFO, Severity.UNKNOWN)
        self.db.execute(
            "INSERT OR IGNORE INTO test (node, device, label, what, at, value, unit, expected,"
            " verdict, level, engine, version, ranks, party, campaign, good, say)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (node, one.device, one.label, one.what, one.at, one.value, one.unit, one.expected,
             one.verdict.value, one.level, one.engine, one.version, one.ranks, one.party,
             one.campaign, good, one.say),
        )  # fmt: skip


def _same(known: _Known, begin: float, at: float) -> bool:
    """Whether what is found now is what was known."""
    if known.over is None:
        return at - known.seen <= GAP_S or begin <= known.seen
    return begin <= known.over


def _sane(since: float, now: float) -> float:
    """A time in the past that can be believed, else now."""
    return since if now - FAR_S < since <= now else now


def _count(finding: Finding) -> int:
    return max(1, min(finding.count, 1 << 31))


def slot(at: float) -> tuple[int, int]:
    """Third of a day, and the mask of the ten minutes in it."""
    third, rest = divmod(int(at), THIRD_S)
    return third, 1 << (rest // SLOT_S)
