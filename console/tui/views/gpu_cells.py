"""Pieces of a drawn node: signs, levels, names, figures. Pure."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len

from console import units
from console.tui.text import LEVELS, MORE, Cell, fit
from console.tui.theme import ASCII, Glyphs
from console.tui.views.gpu_read import NodeGpus
from probes.event import Severity

DIGITS = "0123456789"
"""Levels where there are no blocks."""
NOTHING = "·"
WARN = Severity.WARN.rank
SIDES = {-2: "heat0", -1: "heat1", 0: "text", 1: "heat6", 2: "heat7"}
"""Side of the peers -> style: what is usual has no colour, so that a healthy fleet is calm."""


class Block(NamedTuple):
    """A node as drawn: sign and name, then one cell for each GPU."""

    head: tuple[Cell, ...]
    gpus: tuple[Cell, ...]


def figure(value: float | None, absent: str) -> str:
    """A reading without its unit, in at most four cells."""
    if value is None:
        return absent
    return f"{value:.0f}" if abs(value) < 9999.5 else units.count(value)[:4]


def levels(glyphs: Glyphs) -> str:
    """Characters of the levels, lowest first."""
    return DIGITS if glyphs is ASCII else LEVELS


def head(
    name: str, node: NodeGpus, width: int, glyphs: Glyphs, *, stale: bool, marked: bool
) -> tuple[Cell, ...]:
    """Sign, name and a blank; () where there is no room for names."""
    if not width:
        return ()
    severity = node.severity
    ill = severity.rank >= WARN
    sign = glyphs.severity(severity) if ill else " "
    style = "stale" if stale else severity.value if ill else "text"
    first = Cell(glyphs.mark, "mark") if marked else Cell(sign, severity.value)
    return first, Cell(fit(tail(name, width), width), style), Cell(" ")


def tail(name: str, width: int) -> str:
    """The end of a name that is too long, where its number is."""
    if cell_len(name) <= width:
        return name
    rest = name
    while rest and cell_len(rest) > width - 1:
        rest = rest[1:]
    return (MORE + rest) if width > 1 else MORE
