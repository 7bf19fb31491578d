"""Cells and the why line of the view of stragglers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console import units
from console.tui import bars
from console.tui.text import Cell, Column, Line, cut, plain, width_of
from console.tui.theme import Glyphs, word
from console.tui.views.hosts import folded
from console.tui.views.peers import Field, Left, Why
from console.tui.views.straggler_rows import Row, share_of
from console.tui.views.strip import scaled
from console.tui.words import t, tn
from probes.event import Severity
from probes.ranks_rules import LATE_RANK
from probes.slow_rules import POWER_LIMIT

if TYPE_CHECKING:
    from console.tui.views.stragglers import Stragglers

MHZ_PER_GHZ = 1000.0
_Words = tuple[str, str]


def cell(
    table: Stragglers, key: str, row: Row, column: Column, glyphs: Glyphs, *, bare: bool
) -> _Words:
    """Text and style of one cell; `bare` when there is no column for the reason."""
    match column.name:
        case "rank":
            return (str(row.rank) if row.rank else ""), "dim"
        case "severity":
            return _severity(row, glyphs)
        case "who":
            return _who(table, key, row, glyphs)
        case "slower":
            return _slower(table, row, table.field(key))
        case "reason":
            return _reason(row, table.field(key)), "dim" if row.kind != "slow" else "text"
        case "sure" | "agree":
            return _votes(row, column.name), "text"
        case "z":
            return _z(table, key, row), "text"
        case "strip":
            if row.kind == "waits" and bare:
                return t("waits, not slow: {hosts}", hosts=folded(row.names)), "dim"
            return _strip(table, key, row, column.width, glyphs)
    return "", "text"


def _severity(row: Row, glyphs: Glyphs) -> _Words:
    if row.kind in ("slow", "waits") or row.severity is Severity.UNKNOWN:
        return f"{glyphs.severity(row.severity)} {word(row.severity)}", row.severity.value
    return "", "dim"


def _who(table: Stragglers, key: str, row: Row, glyphs: Glyphs) -> _Words:
    lead = "  "
    if table.foldable(key):
        lead = f"{glyphs.down if table.unfolded(key) else glyphs.pointer} "
    match row.kind:
        case "slow":
            label = plain(row.found[0].label)
            return f"{row.names[0]} {label}" if label else row.names[0], "title"
        case "waits":
            job = t("job {id}", id=plain(row.job)) if row.job else t("unknown job")
            return lead + job, "dim"
        case "compared":
            return lead + t("GPUs compared: {n}", n=row.gpus), "text"
        case "field":
            return f"  {_field_name(row)}", "text"
        case "left":
            return lead + _left_name(row.left), "dim" if row.severity is Severity.OK else "text"
        case _:
            return f"    {row.names[0]}", "dim"


def _field_name(row: Row) -> str:
    return t("job {id}", id=plain(row.job)) if row.job else row.names[0]


def _left_name(left: Left | None) -> str:
    if left is None:
        return ""
    if left.why is Why.UNREAD:
        n = str(left.gpus) if left.gpus else units.ABSENT
        return t("GPUs not read: {n}", n=n)
    if left.why is Why.IDLE:
        return t("GPUs idle: {n}", n=left.gpus)
    return (
        t("GPUs in MIG: {n}", n=left.gpus)
        if left.why is Why.MIG
        else t("GPUs alone: {n}", n=left.gpus)
    )


def _slower(table: Stragglers, row: Row, field: Field | None) -> _Words:
    share = share_of(row.found[0]) if row.kind == "slow" else None
    if field is not None and field.median > 0:
        share = (field.slowest.clock_mhz or 0.0) / field.median
    if share is None:
        return "", "dim"
    style = "dim" if row.kind != "slow" else row.severity.value if current(table, row) else "stale"
    return (f"{100 * (share - 1):+.0f}%" if abs(share - 1) >= 0.005 else "0%"), style


def _reason(row: Row, field: Field | None) -> str:
    if row.kind == "waits":
        return t("waits, not slow")
    if row.kind == "field":
        return t("slowest of the rest") if field is not None and field.accused else t("slowest")
    if row.kind != "slow":
        return ""
    finding = row.found[0]
    if finding.rule == POWER_LIMIT.id:
        return t("power limit too low")
    if finding.rule == LATE_RANK.id:
        return t("its rank is late")
    if idle(row):
        return t("not under load now")
    if not row.seen:
        return t("fine in the last look")
    if row.slow is not None and row.slow.votes is not None and row.slow.votes.hard:
        return plain(row.slow.votes.hard)
    return plain(finding.say.rpartition(": ")[2]) if ": " in finding.say else ""


def idle(row: Row) -> bool:
    """Slow when last under load; nothing is known of it now."""
    return row.found[0].latched or row.found[0].say.endswith("not under load now")


def current(table: Stragglers, row: Row) -> bool:
    """Whether the latest look still found it slow, and is not old itself."""
    return row.seen and not idle(row) and not table.stale


def _votes(row: Row, what: str) -> str:
    votes = row.slow.votes if row.slow is not None else None
    if row.kind != "slow" or votes is None:
        return ""
    if what == "sure":
        return votes.confidence
    agree = (
        (t("peers"), votes.spatial), (t("max"), votes.absolute), (t("own"), votes.temporal),
    )  # fmt: skip
    return "+".join(name for name, vote in agree if vote)


def _z(table: Stragglers, key: str, row: Row) -> str:
    told = table.reading(key) if row.kind == "slow" else None
    return f"{min(told.z, 999.0):.0f}" if told is not None and told.z is not None else ""


def _strip(table: Stragglers, key: str, row: Row, width: int, glyphs: Glyphs) -> _Words:
    field = table.field(key)
    if field is not None:
        own = field.slowest.clock_mhz
        return scaled(field.values, own, width, glyphs.up, MHZ_PER_GHZ), "dim"
    if row.kind == "slow":
        return _slow_strip(table, key, row, width, glyphs)
    if row.kind == "compared":
        if row.groups == 1:
            return t("in one group of like GPUs"), "dim"
        return tn("in 1 group of like GPUs", "in {n} groups of like GPUs", row.groups), "dim"
    if row.kind == "node":
        return "", "dim"
    return folded(row.names), "dim"


def _slow_strip(table: Stragglers, key: str, row: Row, width: int, glyphs: Glyphs) -> _Words:
    told = table.reading(key)
    if told is None or idle(row):
        return plain(row.found[0].say), "stale" if idle(row) else "text"
    style = "text" if current(table, row) else "stale"
    return scaled(told.values, told.value, width, glyphs.up, MHZ_PER_GHZ), style


def why(table: Stragglers, key: str, row: Row, glyphs: Glyphs, width: int) -> Line:
    """Cause and next step of what is slow; what it means of the others."""
    if row.found:
        lead = _judged(table, key, row)
        lead = cut(lead, max(0, width // 2)) + "  " if lead and width >= 100 else ""
        rest = bars.why(row.found[0], "", glyphs, max(0, width - width_of(lead)))
        return (rest[0], Cell(lead, "title"), *rest[1:]) if lead else rest
    field = table.field(key)
    if field is not None:
        return bars.why(None, _field(field), glyphs, width)
    if row.left is not None:
        return bars.why(None, _MEANING[row.left.why](), glyphs, width)
    told = t("{n} GPUs under load were compared with GPUs of the same kind, limits and job",
             n=row.gpus)  # fmt: skip
    return bars.why(None, told, glyphs, width)


def _judged(table: Stragglers, key: str, row: Row) -> str:
    slow = row.slow
    if slow is None or slow.votes is None:
        return ""
    told = table.reading(key)
    said = slow.votes.sure()
    if told is None or told.z is None:
        return said
    return t("z {z}, {said}", z=f"{told.z:.1f}", said=said)


def _field(one: Field) -> str:
    clock = (one.slowest.clock_mhz or 0.0) / MHZ_PER_GHZ
    return t(
        "{n} GPUs alike, the slowest is {node} {gpu} at {clock} GHz, the median {median} GHz",
        n=len(one.values), node=one.slowest.node, gpu=one.slowest.label, clock=f"{clock:.2f}",
        median=f"{one.median / MHZ_PER_GHZ:.2f}",
    )  # fmt: skip


_MEANING = {
    Why.UNREAD: lambda: t(
        "nothing is known of these GPUs now: they may be slow; see the node's own findings"
    ),
    Why.IDLE: lambda: t("an idle GPU shows nothing; test it with T, or wait for a job"),
    Why.MIG: lambda: t("utilisation cannot be read of a GPU in MIG mode, so it is not compared"),
    Why.ALONE: lambda: t(
        "fewer than four GPUs alike: judged by the card's maximum and its own past only"
    ),
}
"""What it means that GPUs were not compared."""
