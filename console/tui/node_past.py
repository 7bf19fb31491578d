"""What is remembered of a node: lemon score, findings, drains, boots, tests. Pure."""

from __future__ import annotations

import time

import msgspec

from console.memory.page import page
from console.memory.sheet import DAYS
from console.tui.node_history import Past
from console.tui.text import Cell, Line, plain, wrap
from console.tui.words import t

INDENT = "  "


def past_lines(past: Past, width: int) -> list[Line]:
    """The page of `gpuconsole history` without its trends: the plots have them."""
    if past.told is None:
        told = past.trouble or t("nothing is recorded of this node yet")
        return [(Cell(row, "dim"),) for row in wrap(plain(told), width)]
    history = msgspec.structs.replace(past.told.history, trends=[])
    lines: list[Line] = []
    for text in page(history, DAYS):
        body = text.lstrip()
        indent = text[: len(text) - len(body)]
        rows = wrap(plain(body), max(10, width - len(indent) - len(INDENT)))
        for number, row in enumerate(rows):
            hang = indent if number == 0 else indent + INDENT
            # One step in is a heading of the page, two steps are what it heads.
            lines.append((Cell(hang + row, "title" if len(indent) == len(INDENT) else "text"),))
    clock = time.strftime("%H:%M", time.localtime(past.told.at))
    lines.append((Cell(t("read at {clock}; `gpuconsole history` tells more", clock=clock), "dim"),))
    return lines
