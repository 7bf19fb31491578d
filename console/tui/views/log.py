"""The log: what happened, newest first. Pure.

Fields of the filter are about the node (and about severity, rule and who of the line itself), words
are looked for in the line.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import structs

from console.fleet import Fleet, LogEntry
from console.tui import bars
from console.tui.filter import Filter, Subject
from console.tui.text import Cell, Column, Line, choose, cut, fit
from console.tui.theme import Glyphs
from console.tui.view import GUTTER
from console.tui.views.log_entries import (
    Entry,
    of_allocation,
    of_finding,
    of_start,
    of_step,
)
from console.tui.views.log_line import LogLine, cell
from console.tui.words import t, tn
from inventory.scheduler import Allocation, Step
from probes.event import Finding, Severity

KEPT = 10_000
"""Lines; the oldest go first."""
SAME_S = 5.0
"""The scheduler's word so soon after an act on the node is that act's own reading."""
PIECE = 400
"""Happenings taken in at once, at some 20 us each."""
AHEAD_S = 60.0
"""Lines that other clocks have written; what is further ahead is not of the moment shown."""


class LogTable:
    """Entries by time. Others put theirs in with `put`; the Fleet's are read by `update`."""

    def __init__(self, fleet: Callable[[], Fleet], subject: Callable[[str], Subject]) -> None:
        """`fleet` gives the one that is shown now; `subject` what the filter knows of a node."""
        self._fleet, self._subject = fleet, subject
        self.filter = Filter()
        self.entries: dict[str, Entry] = {}
        self.trouble = ""
        """Why part of the past is missing."""
        self.ahead_s = AHEAD_S
        self._fresh: set[str] = set()
        """Lines that came since the operator last was at the top."""
        self._order: list[tuple[float, int, str]] = []
        """Oldest first: epoch seconds, a number that tells equal times apart, key."""
        self._places: dict[str, tuple[float, int, str]] = {}
        self._behind: list[LogEntry] = []
        """Happenings that were not taken in yet, oldest first."""
        self._read = 0
        self._of: object = None
        """The Fleet's past that was read."""
        self._acted: dict[str, float] = {}
        """Node -> when it was last acted on."""
        self._steps: dict[tuple[str, float], str] = {}
        """(node, time) of an act's end -> its line, until the audit tells the same."""
        self._shown: list[str] | None = None
        self._at = 0.0
        """The latest moment of the rows shown."""
        self._ahead = False
        """Whether there are lines of a later moment."""
        self._hits: dict[str, bool] = {}
        self._filtered = ""
        self._by_node: dict[str, set[str]] = {}

    @property
    def empty(self) -> str:
        """See Table."""
        if self.filter and self.entries:
            return t("no line of the log matches the filter; esc clears it")
        return t("nothing has happened since this console was started")

    # ------------------------------------------------------------------ taking in

    def update(self, names: Collection[str], now: float) -> None:
        """See Table. What was said of nodes with news is filtered again."""
        fleet = self._fleet()
        if fleet.past is not self._of:
            self._begin(fleet)
        new: list[LogEntry] = []
        for entry in reversed(fleet.log):
            if entry[0] <= self._read:
                break
            new.append(entry)
        if new:
            self._read = new[0][0]
            self._behind += reversed(new)
        self.catch_up()
        if self.filter:
            for name in names:
                for key in self._by_node.get(name, ()):
                    self._hits.pop(key, None)
            self._shown = None if names else self._shown

    def catch_up(self) -> bool:
        """Take in a piece of what is waiting, the newest first; False while there is more."""
        for _ in range(min(PIECE, len(self._behind))):
            self._happened(*self._behind.pop())
        return not self._behind

    def _begin(self, fleet: Fleet) -> None:
        """Another past, as when a recording is wound back: its happenings begin anew."""
        for key in [key for key in self.entries if key.startswith("live ") or key == "start"]:
            self._drop(key)
        self._of, self._read = fleet.past, 0
        self._behind.clear()
        if fleet.began > 0:
            self.put(of_start(fleet.began))

    def _happened(self, number: int, at: float, what: Finding | Step | Allocation) -> None:
        match what:
            case Finding():
                self.put(of_finding(number, at, what), number)
            case Step():
                entry = of_step(number, what)
                if entry is None or (what.node, what.at) in self._steps:
                    return
                self.put(entry, number)
                if entry.kind == "act":
                    self._steps[what.node, what.at] = entry.key
                    self._act(what.node, what.at)
            case Allocation():
                if abs(at - self._acted.get(what.node, 0.0)) > SAME_S:
                    entry = of_allocation(number, at, what)
                    self.put(structs.replace(entry, past=at < self._fleet().began), number)

    def acted(self, entry: Entry, node: str, at: float) -> None:
        """A line of the audit file takes the place of what this console saw of the same act."""
        seen = self._steps.get((node, at))
        if seen is not None and seen != entry.key:
            self._drop(seen)
        self._steps[node, at] = entry.key
        self._act(node, at)
        self.put(entry)

    def _act(self, node: str, at: float) -> None:
        """The act's line tells what the scheduler said of it."""
        self._acted[node] = max(at, self._acted.get(node, 0.0))
        told = [self.entries[key] for key in self._by_node.get(node, ())]
        for entry in told:
            if entry.kind == "sched" and abs(entry.at - at) <= SAME_S:
                self._drop(entry.key)

    def put(self, entry: Entry, number: int = 0) -> None:
        """Add a line, or tell an older one with this key anew; `number` orders equal times."""
        if entry == self.entries.get(entry.key):
            return
        self._drop(entry.key)
        place = self._places[entry.key] = entry.at, number, entry.key
        bisect.insort(self._order, place)
        self.entries[entry.key] = entry
        for name in entry.about:
            self._by_node.setdefault(name, set()).add(entry.key)
        if not entry.past:
            self._fresh.add(entry.key)
        if len(self._order) > KEPT:
            self._drop(self._order[0][2])
        self._shown = None

    def _drop(self, key: str) -> None:
        entry = self.entries.pop(key, None)
        if entry is None:
            return
        place = self._places.pop(key)
        del self._order[bisect.bisect_left(self._order, place)]
        for name in entry.about:
            self._by_node[name].discard(key)
        self._hits.pop(key, None)
        self._fresh.discard(key)
        self._shown = None

    def looked(self) -> None:
        """The operator sees the newest line: nothing is new any more."""
        self._fresh.clear()

    # ------------------------------------------------------------------ showing

    def rows(self, shown: Sequence[str], now: float) -> list[str]:
        """See Table: newest first. `shown` is not asked: the filter looks at lines, too."""
        moves, until = "age" in self.filter.text, now + self.ahead_s
        if moves or self._ahead or until < self._at:
            self._shown = None
        if self.filter.text != self._filtered:
            self._filtered, self._shown = self.filter.text, None
            self._hits.clear()
        if moves:
            self._hits.clear()
        if self._shown is None:
            self._shown = list(self._matching(now))
            self._ahead = bool(self._order) and self._order[-1][0] > until
        self._at = until
        return self._shown

    def _matching(self, now: float) -> Iterable[str]:
        for at, _, key in reversed(self._order):
            if at <= now + self.ahead_s and (not self.filter or self._matches(key, now)):
                yield key

    def _matches(self, key: str, now: float) -> bool:
        hit = self._hits.get(key)
        if hit is None:
            entry = self.entries[key]
            known = entry.node in self._fleet().nodes
            line = LogLine(entry, self._subject(entry.node) if known else None, now)
            hit = self._hits[key] = self.filter(line)
        return hit

    def columns(self, width: int) -> list[Column]:
        """See Table."""
        words = 20 if width < 80 else 28 if width < 100 else 60
        longest = max(map(len, self._fleet().nodes), default=6)
        node = max(6, min(24, longest, width // 5))
        return choose(
            (
                GUTTER,
                Column("when", t("WHEN"), 11, 1, "right"),
                Column("severity", t("VERDICT"), 7, 2),
                Column("kind", t("WHAT"), 8, 5),
                Column("node", t("NODE"), node, 3),
                Column("who", t("WHO, FROM"), 22, 7),
                Column("source", t("SOURCE"), 9, 8),
                Column("text", t("HAPPENED"), words, 4, flexible=True),
            ),
            width,
        )

    def cells(self, key: str, columns: Sequence[Column], glyphs: Glyphs, now: float) -> list[Cell]:
        """See Table. What is from before this start is grey."""
        entry = self.entries.get(key)
        if entry is None:
            return [Cell(fit("", column.width)) for column in columns]
        if entry.who and all(column.name != "who" for column in columns):
            entry = structs.replace(entry, text=f"{entry.who}: {entry.text}")
        return [cell(entry, column, glyphs, now) for column in columns]

    def nodes(self, key: str) -> Sequence[str]:
        """See Table."""
        entry = self.entries.get(key)
        return entry.about if entry else ()

    def severity(self, key: str) -> Severity:
        """See Table."""
        entry = self.entries.get(key)
        return entry.severity if entry else Severity.OK

    def findings(self, key: str) -> Sequence[Finding]:
        """See Table: the line's finding, if it still stands."""
        entry = self.entries.get(key)
        if entry is None or not entry.rule:
            return ()
        now = self._fleet().findings.get(entry.node, ())
        return [f for f in now if (f.rule, f.device) == (entry.rule, entry.device)]

    def why(self, key: str, glyphs: Glyphs, width: int) -> Line:
        """See Table."""
        standing = next(iter(self.findings(key)), None)
        entry = self.entries.get(key)
        if entry is None:
            return ()
        if standing is not None and entry.kind != "over":
            return bars.why(standing, "", glyphs, width)
        return (Cell(cut(entry.why or entry.text, width), "dim"),)

    def headline(self) -> str:
        """See Table."""
        shown = self._shown or ()
        new = sum(map(self._fresh.__contains__, shown)) if self._fresh else 0
        told = tn("1 line", "{n} lines", len(shown))
        if new:
            told = t("{new} new above, {n} lines", new=new, n=len(shown))
        return f"{told}; {self.trouble}" if self.trouble else told
