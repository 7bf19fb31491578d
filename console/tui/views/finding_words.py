"""Cells of the view of findings: one row a kind, and below it one a device. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from console import units
from console.tui.summary import brief
from console.tui.text import plain
from console.tui.theme import Glyphs, word
from console.tui.views.hosts import folded
from console.tui.views.kinds import Kind
from console.tui.words import t
from probes.event import Finding, Severity


class KindRow(NamedTuple):
    """All findings of one kind on the nodes shown."""

    kind: Kind
    found: tuple[Finding, ...]
    """By node in natural order, then by device."""
    names: tuple[str, ...]
    severity: Severity
    newest: float
    oldest: float
    """Epoch seconds; 0 when it is not known since when."""
    acknowledged: int
    latched: int

    @property
    def top(self) -> Finding:
        """The worst one that nobody acknowledged, else the worst."""
        return max(self.found, key=lambda f: (not f.acknowledged, f.severity.rank))


class Drawn(NamedTuple):
    """What cells of one row need to know."""

    title: str
    """What the kind is called."""
    unfolded: bool
    """Whether its devices are listed below."""
    glyphs: Glyphs
    now: float
    says: bool
    """Whether there is a column of its own for sentences."""
    wide: bool
    """Whether both ends of an age fit."""


_Words = tuple[str, str]


def _severity(row: KindRow | Finding, line: Drawn) -> _Words:
    return f"{line.glyphs.severity(row.severity)} {word(row.severity)}", row.severity.value


def _kind(row: KindRow, line: Drawn) -> _Words:
    glyph = " "
    if len(row.found) > 1:
        glyph = line.glyphs.down if line.unfolded else line.glyphs.pointer
    done = row.acknowledged == len(row.found)
    return f"{glyph} {line.title}", "dim" if done else "title"


def _hosts(row: KindRow, line: Drawn) -> _Words:
    only = row.found[0]
    if len(row.found) == 1 and only.label:
        return f"{only.node} {plain(only.label)}", "text"
    return folded(row.names), "text"


def _says(row: KindRow, _line: Drawn) -> _Words:
    return _sentence(row.top), "text"


def _sentence(finding: Finding) -> str:
    """Without the device, which has a column of its own."""
    return brief(plain(finding.say).removeprefix(f"{plain(finding.label)}: "))


def _age(row: KindRow, line: Drawn) -> _Words:
    if not row.oldest:
        return units.ABSENT, "dim"
    newest, oldest = units.age(line.now - row.newest), units.age(line.now - row.oldest)
    if newest == oldest or not line.wide:
        return oldest, "text"
    return f"{newest}{units.ABSENT}{oldest}", "text"


def _ack(row: KindRow, _line: Drawn) -> _Words:
    if not row.acknowledged:
        return "", "dim"
    return f"{row.acknowledged}/{len(row.found)}", "dim"


def _state(row: KindRow, _line: Drawn) -> _Words:
    if not row.latched:
        return t("now"), "dim"
    if row.latched == len(row.found):
        return t("latched"), "stale"
    return t("{n} latched", n=row.latched), "text"


def _inner(finding: Finding, _line: Drawn) -> _Words:
    return f"    {finding.node} {plain(finding.label)}", "dim" if finding.acknowledged else "text"


def _inner_hosts(finding: Finding, line: Drawn) -> _Words:
    return ("" if line.says else _sentence(finding)), "text"


def _inner_age(finding: Finding, line: Drawn) -> _Words:
    return (units.age(line.now - finding.since) if finding.since else units.ABSENT), "text"


def _inner_state(finding: Finding, _line: Drawn) -> _Words:
    return (t("latched"), "stale") if finding.latched else (t("now"), "dim")


_KIND: dict[str, Callable[[KindRow, Drawn], _Words]] = {
    "severity": _severity,
    "kind": _kind,
    "count": lambda row, _: (f"×{len(row.names)}", "text"),
    "devices": lambda row, _: (str(len(row.found)), "text"),
    "hosts": _hosts,
    "says": _says,
    "age": _age,
    "ack": _ack,
    "state": _state,
}
_FINDING: dict[str, Callable[[Finding, Drawn], _Words]] = {
    "severity": _severity,
    "kind": _inner,
    "hosts": _inner_hosts,
    "says": lambda finding, _: (_sentence(finding), "text"),
    "age": _inner_age,
    "ack": lambda finding, _: (t("ack") if finding.acknowledged else "", "dim"),
    "state": _inner_state,
}


def cell(row: KindRow | Finding, name: str, line: Drawn) -> tuple[str, str]:
    """Text and style of one cell; nothing for a column that says nothing of such a row."""
    if isinstance(row, KindRow):
        return _KIND[name](row, line) if name in _KIND else ("", "text")
    return _FINDING[name](row, line) if name in _FINDING else ("", "text")
