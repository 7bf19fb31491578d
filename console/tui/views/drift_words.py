"""Cells and the why line of the view of drift. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console import units
from console.tui import bars
from console.tui.text import Cell, Column, Line, cut, plain, width_of
from console.tui.theme import Glyphs, word
from console.tui.views.hosts import folded, said
from console.tui.views.majorities import Majority, Odd
from console.tui.words import t, tn
from probes.checks.drift import CMDLINE, GPU_ODD, NODE_ODD, PORT_ODD, SPLIT
from probes.checks.site import SITE
from probes.drift_facts import FACTS
from probes.event import Finding, Severity

if TYPE_CHECKING:
    from console.tui.views.drift import Drift, Row

_Words = tuple[str, str]
_RULES = {"node": NODE_ODD, "gpu": GPU_ODD, "port": PORT_ODD}


def cell(table: Drift, key: str, row: Row, column: Column, glyphs: Glyphs) -> _Words:
    """Text and style of one cell."""
    match column.name:
        case "severity":
            return _severity(row, glyphs)
        case "what":
            return _what(table, key, row, glyphs)
        case "role":
            inner = row.kind in ("node", "value")
            return ("" if inner else plain(row.role)), "dim"
        case "usual":
            return _usual(row)
        case "share":
            return _share(row, wide=column.width > len("4000/4000"))
        case "odd":
            return _odd(row)
    return "", "text"


def _severity(row: Row, glyphs: Glyphs) -> _Words:
    if row.severity is Severity.OK:
        return "", "dim"
    return f"{glyphs.severity(row.severity)} {word(row.severity)}", row.severity.value


def _what(table: Drift, key: str, row: Row, glyphs: Glyphs) -> _Words:
    lead = "  "
    if row.kind not in ("node", "value") and table.foldable(key):
        lead = f"{glyphs.down if table.unfolded(key) else glyphs.pointer} "
    match row.kind:
        case "silent":
            return lead + t("nothing known of {n}", n=len(row.names)), "text"
        case "alike":
            return lead + tn("1 fact alike", "{n} facts alike", row.alike), "dim"
        case "node":
            return f"    {row.names[0]} {plain(', '.join(row.devices))}", "text"
        case "value":
            alike = row.fact is not None and not row.fact.odd
            label = row.fact.label if alike and row.fact is not None else row.value
            return f"    {plain(label)}", "dim" if alike else "text"
    return lead + plain(row.fact.label if row.fact is not None else ""), "title"


def _usual(row: Row) -> _Words:
    fact = row.fact
    if fact is None or row.kind == "node":
        return "", "text"
    if row.kind == "value":
        return (plain(row.value) if not fact.odd else ""), "dim"
    if fact.split:
        return t("no majority"), "dim"
    return plain(fact.usual), "text"


def _share(row: Row, *, wide: bool) -> _Words:
    fact = row.fact
    if fact is None or row.kind == "node" or (row.kind == "fact" and fact.split):
        return "", "text"
    one_side = row.kind == "value" and fact.odd
    n = _members(fact, row.value) if one_side else fact.agreeing
    unit = {"gpu": t("GPUs"), "port": t("ports")}.get(fact.per, t("nodes"))
    return (f"{n}/{fact.total} {unit}" if wide else f"{n}/{fact.total}"), "dim"


def _members(fact: Majority, value: str) -> int:
    odd = next(one for one in fact.odd if one.value == value)
    return sum(map(len, odd.devices.values())) if odd.devices else len(odd.names)


def _odd(row: Row) -> _Words:
    fact = row.fact
    if row.kind == "silent":
        return folded(row.names), "text"
    if row.kind == "node":
        return (plain(row.value) if row.value else units.ABSENT), "text"
    if row.kind == "value" and fact is not None:
        return folded(row.names), "dim"
    if fact is None:
        return t("on all nodes that tell"), "dim"
    if fact.split:
        sides = ", ".join(f"{plain(odd.value)} ×{_members(fact, odd.value)}" for odd in fact.odd)
        return t("split: {sides}", sides=sides), "text"
    parts = [f"{plain(odd.value)}: {folded(_named(row, odd))}" for odd in fact.odd]
    if fact.unknown:
        hosts = folded(fact.unknown)
        parts.append(t("unknown on {n}: {hosts}", n=len(fact.unknown), hosts=hosts))
    return "; ".join(part for part in parts if not part.endswith(": ")), "text"


def _named(row: Row, odd: Odd) -> tuple[str, ...]:
    """Of the nodes shown."""
    seen = set(row.names)
    return tuple(name for name in odd.names if name in seen)


def why(table: Drift, row: Row, glyphs: Glyphs, width: int) -> Line:
    """What it may come from and what to do."""
    if row.kind == "silent":
        told = t("these nodes have not told their versions and settings; see their own findings")
        return bars.why(None, told, glyphs, width)
    if row.fact is None or not row.fact.odd:
        told = t("the same on every node of the role that tells it")
        if row.fact is not None and row.fact.unknown:
            told = t("the others are alike; whether these nodes are cannot be told")
        return bars.why(None, told, glyphs, width)
    shared = table.places.shared(row.names) if row.kind == "fact" else None
    lead = cut(said(shared), max(0, width // 3)) + "  " if shared is not None else ""
    rest = bars.why(_finding(row.fact, row), "", glyphs, max(0, width - width_of(lead)))
    return (rest[0], Cell(lead, "warn"), *rest[1:]) if lead else rest


def _finding(fact: Majority, row: Row) -> Finding:
    """The rule's words for this fact."""
    if fact.split:
        rule = SPLIT
    elif fact.source:
        rule = SITE
    elif fact.fact == CMDLINE.id.partition(".")[2]:
        rule = CMDLINE
    else:
        rule = _RULES[FACTS[fact.fact].per if fact.fact in FACTS else "node"]
    cause = rule.cause
    if fact.source:
        cause = t(
            "the site says {value} ({source})",
            value=fact.usual,
            source=fact.source.rpartition("/")[2],
        )
    elif fact.help and fact.severity is Severity.WARN and not fact.split:
        cause = fact.help
    return Finding(
        rule=rule.id, severity=row.severity, node="", say=fact.label, cause=plain(cause),
        next_step=rule.next_step,
    )  # fmt: skip
