"""Storage on the node screen: what does not answer, is missing or read-only first. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from console import units
from console.tui.node_cells import Values, signs, word
from console.tui.text import Cell, Column, Line, choose, fit, heading, joined, plain
from console.tui.theme import Glyphs
from console.tui.words import N_, t
from probes.event import Finding, Sample
from probes.facts import NodeFacts
from probes.reading import number

_COLUMNS = (
    Column("sign", "", 1, 0),
    Column("place", N_("PLACE"), 14, 0, flexible=True),
    Column("kind", N_("KIND"), 8, 3),
    Column("used", N_("USED"), 4, 2, "right"),
    Column("free", N_("FREE"), 6, 5, "right"),
    Column("size", N_("SIZE"), 6, 6, "right"),
    Column("inodes", "INODES", 6, 4, "right"),
    Column("state", N_("STATE"), 18, 1),
    Column("source", N_("FROM"), 30, 7),
)
"""INODES is the share in use, as USED is that of the space."""
WELL_SHOWN = 8
"""File systems without trouble; the rest of them is one line."""


class _Place(NamedTuple):
    place: str
    values: Values
    state: str
    wrong: bool


def storage(
    facts: NodeFacts, findings: Sequence[Finding], glyphs: Glyphs, width: int
) -> list[Line]:
    """One line per file system and array."""
    found = [_place(facts, device, sample) for device, sample in facts.devices("storage") if device]
    if not found:
        unread = facts.get("storage") is None
        told = t("not read yet") if unread else t("no file system was looked at")
        return [(Cell(told, "dim"),)]
    marks = signs([f for f in findings if f.rule.startswith(("storage.", "disk."))], glyphs)
    wrong = [one for one in found if one.wrong or one.place in marks]
    well = [one for one in found if one not in wrong]
    columns = choose(_COLUMNS, width)
    lines = [joined(heading(columns))]
    lines += [_line(one, marks, columns) for one in (*wrong, *well[:WELL_SHOWN])]
    if len(well) > WELL_SHOWN:
        more = t("  and {n} more without trouble", n=len(well) - WELL_SHOWN)
        lines.append((Cell(more, "dim"),))
    return lines


def _place(facts: NodeFacts, place: str, sample: Sample) -> _Place:
    values = sample.values
    state, wrong = _state(values)
    hang = facts.hung.get(("storage", place))
    if hang is not None:
        state, wrong = t("hung {time}", time=units.age(hang.since_s)), True
    return _Place(place, values, state, wrong)


def _state(values: Values) -> tuple[str, bool]:
    """A few words, and whether they are bad news."""
    if values.get("mounted") is False:
        return t("NOT MOUNTED"), True
    if (hung_s := number(values.get("hung_s"))) is not None:
        return t("hung {time}", time=units.age(hung_s)), True
    if "error" in values:
        return t("answers {error}", error=values["error"]), True
    if values.get("kernel_stopped_writing") is True:
        return t("READ-ONLY (kernel)"), True
    if values.get("read_only") is True:
        return t("read-only"), values.get("wanted_read_only") is False
    if "raid_level" in values or "raid_disks" in values:
        return _array(values)
    return ("" if values.get("read_only") is None else t("writable")), False


def _array(values: Values) -> tuple[str, bool]:
    disks, working = number(values.get("raid_disks")), number(values.get("raid_working"))
    degraded = disks is not None and working is not None and working < disks
    parts = [t("{n} of {all} disks", n=f"{working:.0f}", all=f"{disks:.0f}")] if degraded else []
    if "raid_action" in values:
        parts.append(str(values["raid_action"]))
    return ", ".join(parts), degraded


def _line(one: _Place, marks: Mapping[str, Cell], columns: Sequence[Column]) -> Line:
    values, sign = one.values, marks.get(one.place, Cell(" "))
    texts = {
        "sign": sign.text,
        "place": one.place,
        "kind": str(values.get("fstype", values.get("raid_level", units.ABSENT))),
        "used": units.whole(number(values.get("used_percent")), "%"),
        "free": units.size(number(values.get("free_bytes"))),
        "size": units.size(number(values.get("size_bytes"))),
        "inodes": units.whole(_inodes(values), "%"),
        "state": one.state,
        "source": word(values, "source"),
    }
    style = "title" if one.wrong else "text"
    cells = [Cell(fit(plain(texts[c.name]), c.width, c.align), style) for c in columns]
    return joined([Cell(cells[0].text, sign.style), *cells[1:]])


def _inodes(values: Values) -> float | None:
    total, free = number(values.get("inodes")), number(values.get("inodes_free"))
    return 100.0 * (total - free) / total if total and free is not None else None
