"""Every reading of a node as it came: probe, device, value, unit, age and source. Pure."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache

from console import units
from console.tui.node_age import age_mark, stale_s
from console.tui.text import Cell, Column, Line, choose, cut, fit, plain, width_of
from console.tui.words import t, tn
from probes.catalog import PROBES
from probes.event import Row, Sample, Scalar
from probes.facts import NodeFacts

ROWS_MOST = 200
"""Rows shown of an answer that is a list."""
ROW_CHARS = 400
_NUMBER = re.compile(r"\d+")
_COLUMNS = (
    Column("name", "", 30, 1),
    Column("value", "", 22, 0, "right"),
    Column("unit", "", 9, 2),
    Column("kind", "", 7, 4),
    Column("meaning", "", 20, 3, flexible=True),
)


def count(facts: NodeFacts) -> int:
    """How many readings there are."""
    return sum(len(sample.values) + len(sample.rows) for sample in facts.latest.values())


Kept = dict[tuple[str, str], tuple[Sample, int, bool, list[Line]]]
"""(probe, device) -> sample, width and staleness that the lines were made of."""


def raw_lines(facts: NodeFacts, width: int, now: float, kept: Kept) -> list[Line]:
    """A heading for each probe with its source, one for each device with its age, then values.

    `kept` is the caller's: a node has some 1,500 readings, of which a tick changes a hundred.
    """
    columns = choose(_COLUMNS, max(20, width - 4))
    lines: list[Line] = []
    for probe in sorted({probe for probe, _ in facts.latest}):
        lines.append(_probe(facts, probe, width, now))
        stale = stale_s(facts, (probe,), now) is not None
        for device, sample in facts.devices(probe):
            lines.append(_heading(facts, device, sample, width, now))
            known = kept.get((probe, device))
            if known is None or known[0] is not sample or known[1:3] != (width, stale):
                body = list(_body(sample, columns, width, stale))
                known = kept[probe, device] = (sample, width, stale, body)
            lines += known[3]
    for (probe, device), sample in sorted(facts.gone.items()):
        label = f"{probe} {_label(facts, device)}"
        told = t("{what}: no longer listed, last answer {age} ago",
                 what=label, age=units.age(now - sample.at))  # fmt: skip
        lines.append((Cell(cut(plain(told), width), "stale"),))
    return lines or [(Cell(t("not read yet"), "dim"),)]


def _probe(facts: NodeFacts, probe: str, width: int, now: float) -> Line:
    old = age_mark(facts, (probe,), now)
    known = PROBES.get(probe)
    told = f"  {known.interval}  {known.module}: {source(known.module)}" if known else ""
    return (
        Cell(cut(plain(probe) + old, width), "title"),
        Cell(cut(told, max(0, width - len(probe) - width_of(old))), "dim"),
    )


@cache
def source(module: str) -> str:
    """What the probe's own first sentence says of where it reads."""
    text = importlib.import_module(module).__doc__ or ""
    first = " ".join(text.split("\n\n", 1)[0].split())
    return first.removeprefix('Probe "').split('": ', 1)[-1]


def _label(facts: NodeFacts, device: str) -> str:
    return f"{facts.gpu_label(device)} {device}" if device.count(":") == 2 else device


def _heading(facts: NodeFacts, device: str, sample: Sample, width: int, now: float) -> Line:
    age = t("{age} ago", age=units.age(now - sample.at))
    where = _label(facts, device) or t("the node")
    return Cell(cut(plain(f"  {where}"), max(0, width - 12)), "key"), Cell(f"  {age}", "dim")


def _body(sample: Sample, columns: list[Column], width: int, stale: bool) -> Iterator[Line]:
    style = "stale" if stale else "text"
    metrics = PROBES[sample.probe].metrics if sample.probe in PROBES else {}
    for name, value in sorted(sample.values.items()):
        yield _value(name, value, metrics, columns, style)
    for row in sample.rows[:ROWS_MOST]:
        yield (Cell(cut("    " + _row(row), width), style),)
    if len(sample.rows) > ROWS_MOST:
        more = tn("    and 1 more row", "    and {n} more rows", len(sample.rows) - ROWS_MOST)
        yield (Cell(more, "dim"),)


def _value(
    name: str, value: Scalar, metrics: dict[str, tuple[str, str, str]], columns: list[Column],
    style: str,
) -> Line:  # fmt: skip
    unit, kind, meaning = metrics.get(name) or _numbered(name, metrics)
    texts = {"name": name, "value": told(value), "unit": unit, "kind": kind, "meaning": meaning}
    line = [Cell("   ")]
    for column in columns:
        shown = fit(plain(texts[column.name]), column.width, column.align)
        line.append(Cell(" " + shown, style if column.name in ("name", "value", "unit") else "dim"))
    return tuple(line)


def _numbered(name: str, metrics: dict[str, tuple[str, str, str]]) -> tuple[str, str, str]:
    """ "link7_crc" is declared once for all links, as "linkN_crc"."""
    return metrics.get(_NUMBER.sub("N", name), ("", "", ""))


def told(value: Scalar) -> str:
    """A value as it came; flags as words."""
    if isinstance(value, bool):
        return t("yes") if value else t("no")
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _row(row: Row) -> str:
    text = "  ".join(f"{key}={told(value)}" for key, value in row.items())
    return plain(text[:ROW_CHARS])
