"""Nodes out of work: whose decision, since when, why, what runs there, what next. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from console import units
from console.drained import FORGOTTEN_S, OutOfWork, entry
from console.fleet import Fleet
from console.plan_notes import OUT_OF_WORK
from console.since import changes
from console.tui import bars
from console.tui.summary import STALE_S, brief
from console.tui.text import Cell, Column, Line, choose, fit, plain
from console.tui.theme import Glyphs
from console.tui.theme import word as severity_word
from console.tui.view import GUTTER
from console.tui.views.drained_judge import Advice, Was, Work, advise, whose, work
from console.tui.views.table import chosen_order
from console.tui.words import spoken, t, tn
from inventory.scheduler import Allocation
from probes.event import Finding, Severity
from probes.facts import NodeFacts

ORDERS = ("longest", "newest", "ready")
"""Longest out of work first: what everybody forgot. `ready`: what may go back first."""
_READY = {Severity.OK: 0, Severity.WARN: 1, Severity.INFO: 2, Severity.UNKNOWN: 3}


class DrainedTable:
    """A Table; what needs a disk is put into `was` by the screen."""

    orders = ORDERS

    def __init__(self, fleet: Callable[[], Fleet]) -> None:
        """`fleet` gives the one that is shown now."""
        self._fleet = fleet
        self.order = ORDERS[0]
        self.was: dict[str, Was] = {}
        """Node -> what is known of the time of its drain."""
        self._out: dict[str, Allocation] = {}
        self._known: set[str] = set()
        """Nodes of which a scheduler has spoken."""
        self._shown: list[str] = []
        self._untold = 0
        """Nodes that the filter shows and no scheduler has spoken of."""
        self._said: dict[str, tuple[object, Advice]] = {}

    @property
    def empty(self) -> str:
        """See Table."""
        if not self._known:
            return t("no scheduler has told of any node: who is out of work is not known")
        if self._untold:
            return tn(
                "no scheduler tells of 1 node; no other is out of work",
                "no scheduler tells of {n} nodes; no other is out of work",
                self._untold,
            )
        return t("no node is out of work") if not self._out else t("no such node is out of work")

    def update(self, names: Collection[str], now: float) -> None:
        """See Table."""
        nodes = self._fleet().nodes
        for name in names:
            told = nodes[name].allocation
            if told is None:  # also again, when a recording is wound back
                self._known.discard(name)
            else:
                self._known.add(name)
            if told is not None and told.state in OUT_OF_WORK:
                self._out[name] = told
            elif self._out.pop(name, None) is not None:
                self.was.pop(name, None)

    def rows(self, shown: Sequence[str], now: float) -> list[str]:
        """See Table."""
        names = [name for name in shown if name in self._out]
        self._untold = sum(name not in self._known for name in shown)
        if self.order == "ready":
            names.sort(key=lambda n: (_READY.get(self.advice(n, now).severity, 4), *self._age(n)))
        else:
            names.sort(key=self._age)
            if self.order == "newest":
                known = [name for name in names if self._out[name].reason_at is not None]
                names = [*reversed(known), *names[len(known) :]]
        self._shown = names
        return names

    def _age(self, name: str) -> tuple[bool, float]:
        at = self._out[name].reason_at
        return at is None, at or 0.0

    def sort_by(self, name: str = "") -> None:
        """A named order, or the next one. Raises UsageError."""
        self.order = chosen_order(ORDERS, self.order, name)

    def wanted(self) -> list[tuple[str, Allocation]]:
        """Nodes of which the time of the drain is not known yet, in the order shown."""
        return [(name, self._out[name]) for name in self._shown if name not in self.was]

    # ------------------------------------------------------------------ one row

    def advice(self, name: str, now: float) -> Advice:
        """Whether to give it back; worked out again when something it rests on is another."""
        fleet, told = self._fleet(), self._out[name]
        facts, found, was = fleet.nodes[name], fleet.findings[name], self.was.get(name)
        verdict = fleet.verdict(name)
        rests_on = (told, verdict, found, was, facts.changed.get("inventory"), facts.boot_id)
        before = self._said.get(name)
        if before is not None and before[0] == rests_on:
            return before[1]
        since = _since(was, facts, now)
        made = advise(told, verdict, found, was, since)
        self._said[name] = rests_on, made
        return made

    def _work(self, name: str, now: float) -> Work:
        age = self._fleet().age(name, now)
        fresh = age is not None and age <= STALE_S
        return work(self._out[name], self._fleet().nodes[name], fresh)

    def _entry(self, name: str, now: float) -> OutOfWork:
        return entry(self._out[name], now, [])

    def columns(self, width: int) -> list[Column]:
        """See Table."""
        node = max(6, min(24, max(map(len, self._out), default=6), max(6, width // 4)))
        return choose(
            (
                GUTTER,
                Column("node", t("NODE"), node, 1),
                Column("since", t("OUT"), 4, 2, "right"),
                Column("whose", t("WHOSE"), 7, 3),
                Column("resume", t("RESUME?"), 7, 4),
                Column("state", t("SCHED"), 8, 9),
                Column("verdict", t("NOW"), 6, 5),
                Column("safe", t("SAFE?"), 6, 8),
                Column("runs", t("RUNS"), 10, 7),
                Column("by", t("BY"), 9, 10),
                Column("then", t("FOUND THEN"), 30, 11),
                Column("reason", t("REASON"), 20 if width < 100 else 32, 6, flexible=True),
            ),
            width,
        )

    def cells(self, key: str, columns: Sequence[Column], glyphs: Glyphs, now: float) -> list[Cell]:
        """See Table."""
        if key not in self._out:
            return [Cell(fit("", column.width)) for column in columns]
        cells = (self._cell(key, column.name, glyphs, now) for column in columns)
        return [
            Cell(fit(text, column.width, column.align), style)
            for (text, style), column in zip(cells, columns, strict=True)
        ]

    def _cell(self, name: str, column: str, glyphs: Glyphs, now: float) -> tuple[str, str]:
        told = self._out[name]
        match column:
            case "node":
                return name, "title"
            case "since":
                out = self._entry(name, now).since_s
                return units.age(out), "text"
            case "whose":
                return whose(told).word, "text"
            case "by":
                return plain(told.reason_by) or units.ABSENT, "text"
            case "state":
                return told.state, "held"
            case "verdict":
                return _signed(self._fleet().verdict(name), "", glyphs)
            case "resume":
                advice = self.advice(name, now)
                return _signed(advice.severity, advice.word, glyphs)
            case "safe" | "runs":
                return _work_cell(self._work(name, now), column, glyphs)
            case "then":
                return self._then(name), "text"
            case "reason":
                return plain(told.reason) or t("no reason given"), "text"
        return "", "text"

    def _then(self, name: str) -> str:
        was = self.was.get(name)
        if was is None or was.before is None:
            return units.ABSENT
        grave = was.before.findings
        return brief(plain(grave[0].say)) if grave else t("no findings")

    def nodes(self, key: str) -> Sequence[str]:
        """See Table."""
        return (key,)

    def severity(self, key: str) -> Severity:
        """See Table: what is found there now."""
        return self._fleet().verdict(key)

    def findings(self, key: str) -> Sequence[Finding]:
        """See Table."""
        return self._fleet().findings.get(key, ())

    def why(self, key: str, glyphs: Glyphs, width: int) -> Line:
        """See Table: what stands for and against giving it back."""
        if key not in self._out:
            return ()
        now = self._fleet().clock()
        advice, out = self.advice(key, now), self._entry(key, now)
        say = f"{out.next}; {advice.why}" if (out.since_s or 0) > FORGOTTEN_S else advice.why
        told = Finding(
            rule="", severity=advice.severity, node=key, say=say, next_step=advice.next_step
        )
        return bars.why(told, "", glyphs, width)

    def headline(self) -> str:
        """See Table."""
        counts: dict[str, int] = {}
        for name in self._shown:
            word = whose(self._out[name]).word
            counts[word] = counts.get(word, 0) + 1
        parts = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
        order = {"longest": t("longest first"), "newest": t("newest first"),
                 "ready": t("ready first")}[self.order]  # fmt: skip
        if not parts and self._untold:
            return tn(
                "none known, 1 node without a scheduler's word",
                "none known, {n} nodes without a scheduler's word",
                self._untold,
            )
        if not parts:
            return t("none")
        if len(self._shown) == 1:
            return t("1 node ({whose})", whose=parts)
        return t("{n} nodes ({whose}), {order}", n=len(self._shown), whose=parts, order=order)


def _since(was: Was | None, facts: NodeFacts, now: float) -> list[str]:
    """What was done to it since its evidence was taken: only what may have mended it."""
    if was is None or was.before is None:
        return []
    _, *told = changes(was.before, facts, now)  # the first one says what was found then
    return [plain(spoken(text)) for text in told if not text.startswith("not rebooted")]


def _signed(severity: Severity, word: str, glyphs: Glyphs) -> tuple[str, str]:
    return f"{glyphs.severity(severity)} {word or severity_word(severity)}", severity.value


def _work_cell(found: Work, column: str, glyphs: Glyphs) -> tuple[str, str]:
    if column == "runs":
        return plain(found.told), "text"
    if found.safe is None:
        return _signed(Severity.UNKNOWN, "", glyphs)
    severity = Severity.OK if found.safe else Severity.WARN
    return _signed(severity, t("yes") if found.safe else t("no"), glyphs)
