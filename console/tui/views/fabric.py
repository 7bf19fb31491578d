"""The fabric: NVLinks, adapters and ports that are down, slow or in error, worst first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from console import units
from console.fleet import Fleet
from console.tui import bars
from console.tui.text import Cell, Column, Line, choose, fit, plain
from console.tui.theme import Glyphs
from console.tui.view import GUTTER, NODE_MAX, NODE_MIN
from console.tui.views.fabric_read import Links, Sums, read, sums
from console.tui.words import t
from probes.event import Finding, Severity


class FabricTable:
    """Nodes by their worst finding about links and ports."""

    def __init__(self, fleet: Fleet) -> None:
        """Nothing read yet."""
        self.fleet = fleet
        self._index = {name: i for i, name in enumerate(fleet.nodes)}
        self._nodes: dict[str, Links] = {}
        self._sums: dict[str, Sums] = {}
        self._ill: dict[str, Severity] = {}
        """Nodes with an open finding of at least a warning."""
        self._told = (0, 0)
        """Of the nodes shown: how many are ill, how many are not heard from now."""

    @property
    def empty(self) -> str:
        """See Table."""
        return t("no node matches the filter; esc clears it")

    def update(self, names: Collection[str], now: float) -> None:
        """See Table."""
        fleet = self.fleet
        for name in names:
            before = self._nodes.get(name)
            node = read(fleet.nodes[name], fleet.findings[name], fleet.seen.get(name), before)
            if node is before:
                continue
            self._nodes[name] = node
            if before is None or node.changes != before.changes:
                self._sums.pop(name, None)
            severity = node.severity
            if severity.rank >= Severity.WARN.rank:
                self._ill[name] = severity
            else:
                self._ill.pop(name, None)

    def rows(self, shown: Sequence[str], now: float) -> list[str]:
        """See Table."""
        ill = [name for name in shown if name in self._ill]
        nodes = self._nodes
        self._told = len(ill), sum(n not in nodes or not nodes[n].current for n in shown)
        ill.sort(key=lambda name: (-self._ill[name].rank, self._index[name]))
        return [*ill, *(name for name in shown if name not in self._ill)]

    def node(self, name: str) -> Links | None:
        """A node as it was read last; None before that."""
        return self._nodes.get(name)

    def sums(self, name: str) -> Sums:
        """What a node adds up to."""
        found = self._sums.get(name)
        if found is None:
            node = self._nodes.get(name)
            found = self._sums[name] = Sums() if node is None else sums(node)
        return found

    def columns(self, width: int) -> list[Column]:
        """See Table."""
        longest = max(map(len, self._index), default=NODE_MIN)
        node = max(NODE_MIN, min(NODE_MAX, longest, max(NODE_MIN, width // 3)))
        declared = (
            GUTTER,
            Column("sign", "", 1, 1),
            Column("node", t("NODE"), node, 2),
            Column("links", t("NVLINK"), 7, 3, "right"),
            Column("link_errors", t("NV ERR/S"), 8, 6, "right"),
            Column("ports", t("PORTS"), 5, 4, "right"),
            Column("speed", t("RATE"), 5, 8, "right"),
            Column("received", t("RX Gb/s"), 7, 9, "right"),
            Column("sent", t("TX Gb/s"), 7, 10, "right"),
            Column("errors", t("IB ERR/S"), 8, 7, "right"),
            Column("downed", t("DOWN/H"), 6, 11, "right"),
            Column("near", t("NIC"), 4, 12),
            Column("age", t("AGE"), 4, 13, "right"),
            Column("finding", t("FINDING"), 20 if width >= 64 else 14, 5, flexible=True),
        )
        return choose(declared, width)

    def cells(self, key: str, columns: Sequence[Column], glyphs: Glyphs, now: float) -> list[Cell]:
        """See Table."""
        node = self._nodes.get(key)
        found = self._cells(key, node, glyphs, now)
        stale = node is None or node.stale(now)
        return [_cell(column, found[column.name], stale) for column in columns]

    def _cells(self, key: str, node: Links | None, glyphs: Glyphs, now: float) -> dict[str, Cell]:
        all_of, severity = self.sums(key), self.severity(key)
        ill = severity is not Severity.OK
        texts = {
            "links": _of(all_of.links),
            "link_errors": per_s(all_of.link_errors),
            "ports": _of(all_of.ports),
            "speed": units.rate(all_of.speed),
            "received": gbps(all_of.received),
            "sent": gbps(all_of.sent),
            "errors": t("full") if all_of.full else per_s(all_of.errors),
            "downed": units.count(all_of.downed),
            "near": all_of.near or units.ABSENT,
        }
        cells = {name: Cell(text, _readings(text)) for name, text in texts.items()}
        age = None if node is None or node.seen is None else now - node.seen
        top = None if node is None else node.top
        return {
            **cells,
            "mark": Cell(" ", "mark"),
            "sign": Cell(glyphs.severity(severity) if ill else " ", severity.value),
            "node": Cell(key, severity.value if ill else "text"),
            "age": Cell(units.age(age)),
            "finding": Cell("" if top is None else plain(top.say), severity.value),
        }

    def nodes(self, key: str) -> Sequence[str]:
        """See Table."""
        return (key,)

    def severity(self, key: str) -> Severity:
        """See Table."""
        node = self._nodes.get(key)
        return Severity.OK if node is None else node.severity

    def findings(self, key: str) -> Sequence[Finding]:
        """See Table."""
        node = self._nodes.get(key)
        return () if node is None else node.findings

    def why(self, key: str, glyphs: Glyphs, width: int) -> Line:
        """See Table."""
        node = self._nodes.get(key)
        if node is None or not node.current:
            text = t("{node}: not heard from now", node=key)
        else:
            text = t("{node}: no finding about links and ports", node=key)
        return bars.why(None if node is None else node.top, text, glyphs, width)

    def headline(self) -> str:
        """See Table."""
        ill, unheard = self._told
        if unheard:
            return t("{n} with findings, {unheard} unheard", n=ill, unheard=unheard)
        return t("{n} with findings", n=ill)


OWN = frozenset({"mark", "sign", "finding"})
"""Columns that keep their look on a stale node."""


def _cell(column: Column, cell: Cell, stale: bool) -> Cell:
    style = "stale" if stale and column.name not in OWN else cell.style
    return Cell(fit(cell.text, column.width, column.align), style)


def _readings(text: str) -> str:
    return "dim" if text == units.ABSENT else "text"


def _of(pair: tuple[int, int] | None) -> str:
    return units.ABSENT if pair is None else f"{pair[0]}/{pair[1]}"


def gbps(value: float | None) -> str:
    """At most 5 cells, one digit behind the point below 100."""
    if value is None:
        return units.ABSENT
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def per_s(value: float | None) -> str:
    """Events per second; what is rare is not drawn as nothing."""
    if value is None:
        return units.ABSENT
    if 0 < value < 0.01:
        return "<.01"
    return f"{value:.2f}" if 0 < value < 1 else units.count(value)
