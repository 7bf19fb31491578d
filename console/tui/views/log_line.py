"""A line of the log as the filter and the table see it. Pure."""

from __future__ import annotations

from console import units
from console.tui.filter import Subject
from console.tui.text import Cell, Column, fit
from console.tui.theme import Glyphs, word
from console.tui.views.log_entries import Entry, clock, kind_word
from console.tui.words import t


class LogLine(Subject):
    """An entry as the filter sees it."""

    def __init__(self, entry: Entry, node: Subject | None, now: float) -> None:
        self.entry, self.node, self.now = entry, node, now

    @property
    def text(self) -> str:
        return self.entry.lower

    def words(self, field: str) -> tuple[str, ...]:
        entry = self.entry
        own = {
            "state": (entry.severity.value,), "node": entry.about, "rule": (entry.rule,),
            "xid": entry.xids, "user": (entry.who.partition("@")[0],),
        }.get(field, ())  # fmt: skip
        return (*filter(None, own), *(self.node.words(field) if self.node else ()))

    def number(self, field: str) -> float | None:
        if field == "age":
            return max(0.0, self.now - self.entry.at)
        return self.node.number(field) if self.node else None


def cell(entry: Entry, column: Column, glyphs: Glyphs, now: float) -> Cell:
    """One cell of a line. What is from before this start is grey."""
    text, style = "", "stale" if entry.past else "text"
    match column.name:
        case "when":
            text, style = clock(entry.at, now), "stale" if entry.past else "dim"
        case "severity":
            text = f"{glyphs.severity(entry.severity)} {word(entry.severity)}"
            style = style if entry.past else entry.severity.value
        case "kind":
            text = kind_word(entry.kind)
        case "node":
            many = len(entry.about) > 1
            text = t("{n} nodes", n=len(entry.about)) if many else "".join(entry.about)
            style = style if entry.past else "title"
        case "who":
            text = entry.who or units.ABSENT
        case "source":
            text = entry.source
        case "text":
            text = entry.text
    return Cell(fit(text, column.width, column.align), style)
