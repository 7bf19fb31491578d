"""Keys, signs and the filter language, from the same declarations the screens use."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from console.tui import commands, roster
from console.tui.bars import ORDER
from console.tui.filter import NUMBERS, WORDS
from console.tui.plan_view import labelled
from console.tui.text import Cell, Line, wrap
from console.tui.theme import Glyphs
from console.tui.widgets.sheet import Lines, Sheet
from probes.event import Severity

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

MEANINGS = {
    Severity.CRITICAL: "broken: act",
    Severity.UNKNOWN: "could not be measured: never a kind of ok",
    Severity.WARN: "wrong, not yet broken",
    Severity.INFO: "worth knowing",
    Severity.OK: "measured, and nothing wrong",
}
MOVING = (
    ("up down", "j k and the arrows; pgup pgdn; g G or home end for the first and last"),
    ("mouse", "click a node, click it again to open it; the key line can be clicked"),
)


def help_lines(screen: str, glyphs: Glyphs, width: int, *, read_only: bool) -> list[Line]:
    """Everything the operator can do on a screen. Pure."""
    lines: list[Line] = []
    groups: dict[str, list[commands.Command]] = {}
    for command in commands.offered(screen, read_only=read_only):
        groups.setdefault(command.group, []).append(command)
    for group, members in groups.items():
        lines += [(Cell(group, "title"),)]
        for command in members:
            lines += _entry(command.shown, command.help, width)
        lines.append(())
    lines.append((Cell("Move", "title"),))
    for key, what in MOVING:
        lines += _entry(key, what, width)
    if read_only:
        lines += [(), (Cell("Read-only: drain, resume and test do not exist here.", "warn"),)]
    return lines + _signs(glyphs, width) + _language(width)


def _entry(key: str, what: str, width: int) -> list[Line]:
    rows = wrap(what, max(10, width - 13))
    return [
        (Cell(f"  {key if i == 0 else '':10} ", "key"), Cell(row)) for i, row in enumerate(rows)
    ]


def _signs(glyphs: Glyphs, width: int) -> list[Line]:
    lines: list[Line] = [(), (Cell("Signs, worst first", "title"),)]
    for severity in ORDER:
        sign = Cell(f"  {glyphs.severity(severity)} {severity.value:8} ", severity.value)
        lines.append((sign, Cell(MEANINGS[severity])))
    lines += labelled(
        f"  {glyphs.missing}", "unknown: not readable, or not read yet; never zero", width, "text"
    )
    lines += labelled(
        "  grey", "stale: the last reading of a node that does not answer", width, "text"
    )
    return lines


def _language(width: int) -> list[Line]:
    lines: list[Line] = [(), (Cell("Filter", "title"),)]
    lines += labelled(
        "",
        "All terms must hold; ! turns one around; a,b is either; quotes keep spaces.",
        width,
        "text",
    )
    lines += labelled("  text", " ".join(f"{name}:" for name in WORDS), width, "text")
    lines += labelled("  num", " ".join(f"{name}>" for name in NUMBERS), width, "text")
    lines += labelled(
        "  e.g.", 'state:crit  node:gpu0*  xid:79,48  temp>85  !job:812  "row remap"', width, "text"
    )
    lines += [(), (Cell("Commands", "title"),)]
    lines += labelled(
        "",
        ":drain REASON  :resume  :filter EXPR  :mark all|none|EXPR  :open NODE  :ssh NODE",
        width,
        "text",
    )
    lines += labelled("", ":sort " + "|".join(roster.SORTS), width, "text")
    return lines


class Help(ModalScreen[None]):
    """A sheet over the screen it explains."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter", "close", "back")
    ]

    def __init__(self, about: str) -> None:
        """`about` is "fleet" or "node"."""
        super().__init__(classes="dialog")
        self.about = about

    def compose(self) -> ComposeResult:
        """The sheet and how to leave it."""
        app: ConsoleApp = self.app  # type: ignore[assignment]
        with Vertical(classes="box"):
            yield Sheet(app.look, id="sheet")
            yield Lines(app.look, id="hint")

    def on_mount(self) -> None:
        """Keys scroll the sheet."""
        self.query_one("#sheet").focus()

    @on(Lines.Resized)
    def _draw(self) -> None:
        app: ConsoleApp = self.app  # type: ignore[assignment]
        sheet, hint = self.query_one("#sheet", Sheet), self.query_one("#hint", Lines)
        width = max(1, sheet.scrollable_size.width)
        sheet.show(help_lines(self.about, app.look.glyphs, width, read_only=app.engine.read_only))
        hint.show(
            [(Cell("esc", "key"), Cell(" back  "), Cell("j k space", "key"), Cell(" scroll"))]
        )

    def action_close(self) -> None:
        """Back."""
        self.dismiss()
