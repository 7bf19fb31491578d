"""Keys, signs and the filter language, from the same declarations the screens use."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from console.tui import commands
from console.tui.bars import ORDER
from console.tui.filter import NUMBERS, WORDS
from console.tui.keymap import shown
from console.tui.text import Cell, Line, fit, wrap
from console.tui.theme import Glyphs
from console.tui.views import VIEWS
from console.tui.widgets.sheet import Lines, Sheet
from console.tui.words import N_, t
from probes.event import Severity

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

MEANINGS = {
    Severity.CRITICAL: N_("broken: act"),
    Severity.UNKNOWN: N_("could not be measured: never a kind of ok"),
    Severity.WARN: N_("wrong, not yet broken"),
    Severity.INFO: N_("worth knowing"),
    Severity.OK: N_("measured, and nothing wrong"),
}
QUESTIONS = {
    "node": N_("What is wrong with this node, since when, why, and what to do?"),
    "campaign": N_("How far is this test, what did it find, and what to drain?"),
}
"""What the screens answer that are no views."""


def help_lines(
    screen: str, glyphs: Glyphs, width: int, *, read_only: bool,
    keys: commands.Keys = commands.NONE, replay: bool = False,
) -> list[Line]:  # fmt: skip
    """What the screen answers, then everything that can be done on it. Pure."""
    question = next((view.question for view in VIEWS if view.id == screen), "")
    lines = _sentence(t(question or QUESTIONS.get(screen, "")), width, "title")
    groups: dict[str, list[commands.Command]] = {}
    modes = (*(commands.REPLAY if replay else ()), screen)
    for mode in modes:
        for command in commands.offered(mode, read_only=read_only, keys=keys, replay=replay):
            groups.setdefault(command.group, []).append(command)
    for group in [*(g for g in groups if g != "Views"), "Views"]:
        lines += [(), (Cell(t(group), "title"),)]
        for command in groups.get(group, ()):
            lines += _entry(command.shown, t(command.help), width)
    lines += _moving(width, keys)
    if read_only:
        told = t("Read-only: drain, resume and test do not exist here.")
        lines += [(), *_sentence(told, width, "warn")]
    return lines + _signs(glyphs, width) + _language(width)


MOVES = {
    "up": N_("a line up"),
    "down": N_("a line down"),
    "page_up": N_("a screenful up"),
    "page_down": N_("a screenful down"),
    "first": N_("to the beginning"),
    "last": N_("to the end"),
}


def _moving(width: int, keys: commands.Keys) -> list[Line]:
    lines: list[Line] = [(), (Cell(t("Move"), "title"),)]
    for move, what in MOVES.items():
        names = keys.get(move, commands.MOVES[move])
        lines += _entry(" ".join(shown(name) for name in names), t(what), width, 11)
    mouse = t("click a row, click it again to open it; the key line can be clicked")
    return lines + _entry(t("mouse"), mouse, width)


def _sentence(text: str, width: int, style: str) -> list[Line]:
    return [(Cell(row, style),) for row in wrap(text, max(10, width))] if text else []


def _entry(key: str, what: str, width: int, column: int = 10) -> list[Line]:
    """A key and what it does; a long key has the line for itself."""
    room = max(10, width - column - 3)
    blank = " " * (column + 3)
    heads = [f"  {fit(key, column)} "] if cell_len(key) <= column else [f"  {key}"]
    lines: list[Line] = [(Cell(heads[0], "key"),)] if cell_len(key) > column else []
    rows = wrap(what, room)
    firsts = [blank] * len(rows) if lines else [*heads, *([blank] * (len(rows) - 1))]
    return lines + [(Cell(f, "key"), Cell(row)) for f, row in zip(firsts, rows, strict=True)]


def _signs(glyphs: Glyphs, width: int) -> list[Line]:
    lines: list[Line] = [(), (Cell(t("Signs, worst first"), "title"),)]
    for severity in ORDER:
        sign = Cell(f"  {glyphs.severity(severity)} {severity.value:8} ", severity.value)
        lines.append((sign, Cell(t(MEANINGS[severity]))))
    unknown = t("unknown: not readable, or not read yet; never zero")
    stale = t("stale: the last reading of a node that does not answer")
    return lines + _entry(glyphs.missing, unknown, width) + _entry(t("grey"), stale, width)


EXAMPLES = (
    ("state:crit,unkn", N_("either severity; also states of the scheduler and the conversation")),
    ("temp>85", N_("a number; units as in power>3kW, clock<1.2GHz, age>5m")),
    ("temp:80..90", N_("a range, both ends included; ..90 and 80.. are open")),
    ("node~^gpu0[0-4]", N_("a regular expression; ~nv.*link looks everywhere")),
    ("label.rack:r7", N_("a label of the inventory")),
    ("is:fault", N_("not ok; also is:marked and is:stale")),
    ("!job:812", N_("the others")),
    ("xid:79 | temp>85", N_("either group of terms")),
    ('"row remap"', N_("text with a space, anywhere in the row")),
)
"""Terms of the filter language, each with what it finds."""
TYPED = (
    (":drain REASON", N_("and :resume; the plan comes first")),
    (":filter EXPR", N_("as / does")),
    (":mark EXPR", N_("mark what a filter matches; also :mark all, :mark none")),
    (":open NODE", N_("show a node; :ssh NODE logs in")),
    (":sort ORDER", N_("tab lists the orders")),
    (":explain RULE", N_("what a rule, xid:79 or nvml:15 means")),
)
"""Commands that take words; every other one is typed by its name."""


def _language(width: int) -> list[Line]:
    lines: list[Line] = [(), (Cell(t("Filter: all terms must hold"), "title"),)]
    for term, what in EXAMPLES:
        lines += _entry(term, t(what), width, 15)
    words, numbers = " ".join(WORDS), " ".join(NUMBERS)
    lines += _sentence(t("fields of words: {names}", names=words), width, "dim")
    lines += _sentence(t("fields of numbers: {names}", names=numbers), width, "dim")
    told = t("Commands by name: tab completes, up and ctrl-r bring back")
    lines += [(), *_sentence(told, width, "title")]
    for line, what in TYPED:
        lines += _entry(line, t(what), width, 15)
    return lines


class Help(ModalScreen[None]):
    """A sheet over the screen it explains."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter", "close", "back")
    ]

    def __init__(self, about: str) -> None:
        """`about` is a screen's name."""
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
        read_only, glyphs = app.engine.read_only, app.look.glyphs
        replay = app.player is not None
        sheet.show(
            help_lines(
                self.about, glyphs, width, read_only=read_only, keys=app.keymap, replay=replay
            )
        )
        hint.show(
            [
                (
                    Cell("esc", "key"),
                    Cell(f" {t('back')}  "),
                    Cell("j k space", "key"),
                    Cell(f" {t('scroll')}"),
                )
            ]
        )

    def action_close(self) -> None:
        """Back."""
        self.dismiss()
