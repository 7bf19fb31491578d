"""What a rule means: the text of `gpuconsole explain`, as a sheet over the screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from console.tui.text import Cell, Line, labelled, plain, wrap
from console.tui.widgets.sheet import Lines, Sheet
from console.tui.words import t

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

COLUMN = 14
"""Cells of the label before each text; as probes.checks.explain lays them out."""
_LABELLED = re.compile(r"  (\S.{0,11}?) {2,}(\S.*)")


def explanation_lines(text: str, width: int) -> list[Line]:
    """The page of a rule, laid out again for `width` cells. Pure."""
    first, *rest = _paragraphs(text)
    lines: list[Line] = [(Cell(row, "title"),) for row in wrap(first, max(10, width))]
    for paragraph in rest:
        entry = _LABELLED.fullmatch(paragraph)
        if entry:
            lines += labelled("  " + entry[1], entry[2], width, "text", COLUMN)
        else:
            lines += [(Cell(row, "text"),) for row in wrap(paragraph, max(10, width))] or [()]
    return lines


def _paragraphs(text: str) -> Iterator[str]:
    """Lines of the page, each with the lines that only carry it on."""
    held = ""
    for line in text.splitlines() or [""]:
        if held and line.startswith(" " * COLUMN):
            held += " " + line.strip()
            continue
        if held or line != text.splitlines()[0]:
            yield plain(held)
        held = line
    yield plain(held)


def page(topic: str) -> str:
    """The text about a topic. Raises UsageError with the nearest one."""
    from console.diagnose.detect import paper_rules
    from console.topics import pages
    from probes.checks import RULES
    from probes.checks.explain import explain
    from probes.rules import load_rules

    return explain(topic, (*RULES, *paper_rules()), load_rules(), pages())


class Explanation(ModalScreen[None]):
    """A page to read; any way back leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,x,enter", "close", "back", priority=True)
    ]

    def __init__(self, topic: str) -> None:
        """Raises UsageError when nothing is called so."""
        super().__init__(classes="dialog")
        self.topic, self.page = topic, page(topic)

    def compose(self) -> ComposeResult:
        """The sheet and how to leave it."""
        app: ConsoleApp = self.app  # type: ignore[assignment]
        look = app.look
        with Vertical(classes="box"):
            yield Sheet(look, id="sheet")
            yield Lines(look, id="hint")

    def on_mount(self) -> None:
        """Keys scroll the sheet."""
        self.query_one("#sheet").focus()

    @on(Lines.Resized)
    def _draw(self) -> None:
        sheet, hint = self.query_one("#sheet", Sheet), self.query_one("#hint", Lines)
        sheet.show(explanation_lines(self.page, max(1, sheet.scrollable_size.width)))
        back, scroll = t("back"), t("scroll")
        keys = (Cell("esc", "key"), Cell(f" {back}  "), Cell("j k space", "key"))
        hint.show([(*keys, Cell(f" {scroll}"))])

    def action_close(self) -> None:
        """Back."""
        self.dismiss()
