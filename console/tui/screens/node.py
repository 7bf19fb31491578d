"""One node: what is wrong, why, what to do, how it was before, and every reading behind it."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from console.tui import commands, node_find
from console.tui.node_history import METRICS, SPANS, Past, Wish
from console.tui.node_raw import Kept
from console.tui.node_view import FOLDED, Ask, NodeSheet, node_sheet
from console.tui.screens.commanding import CommandingScreen
from console.tui.text import Cell, Line, cut, fit, plain
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines, Sheet
from console.tui.words import t
from inventory.errors import UsageError
from probes.event import Finding

READ_AGAIN_S = 60.0
"""The memory's finest interval is five minutes; findings and drains come at any time."""
AROUND = 3
"""Lines shown around what was searched for."""
PANEL = 18
PANEL_FROM = 120
"""From this width on, the sections are listed at the side."""


class NodeScreen(CommandingScreen):
    """A scrolling sheet of one node in sections; `n` walks through its findings."""

    SCREEN_NAME = "node"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("node")
    DEFAULT_CSS = f"""
    NodeScreen #body {{ height: 1fr; }}
    NodeScreen #sections {{ width: {PANEL}; height: 1fr; overflow: hidden hidden; }}
    """

    def __init__(self, node: str, at: tuple[str, str] | None = None) -> None:
        """`node` is a name of the inventory; `at` the finding to begin with, else the first."""
        super().__init__()
        self.node = self.about = node
        self.selected = at
        """(rule, device) of the finding the operator is at; the first one until they move."""
        self.sheet = NodeSheet([], [], [])
        self.folded = FOLDED
        self.section = ""
        """Id of the section the operator is at."""
        self.wish = Wish()
        self.past = Past()
        self.find = ""
        self._hits: list[int] = []
        self._hit = 0
        self._kept: Kept = {}
        self._found: list[Finding] = []
        self._drawn_at = 0.0
        """The moment that is on the screen."""

    def compose(self) -> ComposeResult:
        """The sheet with its sections at the side, and the keys."""
        look = self.console_app.look
        with Horizontal(id="body"):
            yield Lines(look, id="sections")
            yield Sheet(look, id="sheet")
        yield Prompt(id="prompt")
        yield Lines(look, id="keys")

    @property
    def body(self) -> Sheet:
        """See CommandingScreen."""
        return self.query_one("#sheet", Sheet)

    def on_mount(self) -> None:
        """Keys go to the sheet; the past is read meanwhile."""
        self._fit_panel()
        self.console_app.announcer.saw(self.node)
        self.body.focus()
        self.draw_lines()
        self.run_worker(self._remember(), group="past", exit_on_error=False)

    def on_resize(self) -> None:
        """A narrow terminal has no room for the list of sections."""
        self._fit_panel()

    def _fit_panel(self) -> None:
        self.query_one("#sections", Lines).display = self.app.size.width >= PANEL_FROM

    @on(Lines.Resized)
    def _resized(self) -> None:
        self._draw(self.body, self.console_app.now())
        self.draw_lines()
        if self.selected and self.sheet.findings:
            self.body.reveal(*self.sheet.findings[self.position])

    async def _remember(self) -> None:
        """Read what is kept of this node now and then, in a thread: it may take long."""
        memory = getattr(self.console_app.engine, "memory", None)
        if memory is None or not memory.keeps:
            self.past = Past(None, t("no memory is kept in this session"))
            return
        self.past = Past(None, t("reading what is remembered of this node"))
        while True:
            self.past = await asyncio.to_thread(self._read, memory)
            self.draw_lines()
            await asyncio.sleep(READ_AGAIN_S)

    def _read(self, memory: object) -> Past:
        from console.memory.memory import Memory
        from console.memory.sheet import remembered
        from console.memory.store import Unusable

        assert isinstance(memory, Memory)
        try:
            told = remembered(memory.path, self.node, self.console_app.clock(), memory.own())
        except Unusable as error:
            return Past(None, plain(str(error)))
        return Past(told, "" if told else t("nothing has been recorded yet"))

    def chosen(self) -> list[str]:
        """Actions here are about this node only, whatever is marked."""
        return [self.node]

    @property
    def findings(self) -> list[Finding]:
        """The node's findings on the screen, worst first."""
        return self._found

    @property
    def position(self) -> int:
        """Index of the selected finding; 0 when it went away."""
        for index, finding in enumerate(self.findings):
            if (finding.rule, finding.device) == self.selected:
                return index
        return 0

    def topic(self) -> str:
        """The rule of the finding the operator is at."""
        return self.findings[self.position].rule if self.findings else ""

    def redraw(self, now: float) -> None:
        """One tick: all lines again; only those that differ are painted."""
        app = self.console_app
        if not app.paused or not self.sheet.lines:
            self._draw(self.body, now)
        self.draw_keys(marks=True)

    @property
    def moment(self) -> float:
        """See CommandingScreen."""
        return self._drawn_at

    @property
    def searching(self) -> str:
        """`/crc 3/12`: which of how many places; "" without a search."""
        at = self._hit % len(self._hits) + 1 if self._hits else 0
        return f"/{plain(self.find)} {at}/{len(self._hits)}" if self.find else ""

    def _draw(self, widget: Sheet, now: float) -> None:
        app, width = self.console_app, widget.scrollable_size.width
        if not width:
            return
        if app.paused:
            now = app.clock()  # there are only the facts of now, and their age is that of now
        self._found, self._drawn_at = app.fleet.findings[self.node], now
        ask = Ask(
            selected=self.position,
            # What is searched for may be anywhere.
            folded=frozenset() if self.find else self.folded,
            section=self.section,
            wish=self.wish._replace(device=self._device()),
            past=self.past,
            plot_height=3 if app.size.height < 30 else 5,
            kept=self._kept,
        )
        self.sheet = node_sheet(app.fleet, self.node, app.look.glyphs, width, now, ask)
        self._hits = node_find.hits(self.sheet.lines, self.find)
        self._show(widget)

    def _show(self, widget: Sheet) -> None:
        lines = self.sheet.lines
        if self._hits:
            lines = list(lines)
            for index in self._hits:
                lines[index] = node_find.lit(lines[index], self.find)
        widget.show(lines)
        panel = self.query_one("#sections", Lines)
        if panel.display:
            panel.show(self._panel(panel.size.width))

    def _panel(self, width: int) -> list[Line]:
        """The sections; the one the operator is at has the pointer."""
        pointer = self.console_app.look.glyphs.pointer
        lines: list[Line] = [(Cell(fit(plain(self.node), width - 1), "title"),), ()]
        for place in self.sheet.sections[1:]:
            here = place.id == self.section
            folded = "+" if place.id in self.folded and not self.find else " "
            name = cut(place.title.split(":")[0].split(",")[0], width - 4)
            style = "key" if here else "dim" if folded == "+" else "text"
            lines.append((Cell(f"{pointer if here else ' '}{folded} ", "key"), Cell(name, style)))
        keys = t("tab next  z fold")
        return [*lines, (), (Cell(fit(cut(keys, width - 1), width), "dim"),)]

    def _device(self) -> str:
        """Plots follow the finding the operator is at."""
        findings = self.findings
        return findings[self.position].device if findings else ""

    @on(Lines.Clicked, "#sections")
    def _section_clicked(self, event: Lines.Clicked) -> None:
        at = event.y - 2 + 1
        if 1 <= at < len(self.sheet.sections):
            self._go_to(self.sheet.sections[at].id)

    @on(Lines.Clicked, "#sheet")
    def _title_clicked(self, event: Lines.Clicked) -> None:
        place = next((p for p in self.sheet.sections[1:] if p.first == event.y), None)
        if place is not None:
            self.section = place.id
            self.action_fold()

    def action_next_section(self) -> None:
        """To the next section, around the end."""
        self._step(1)

    def action_previous_section(self) -> None:
        """To the section before."""
        self._step(-1)

    def _step(self, step: int) -> None:
        places = [place.id for place in self.sheet.sections]
        if not places:  # a key typed ahead of the first drawing
            return
        at = places.index(self._here())
        self._go_to(places[(at + step) % len(places)])

    def _here(self) -> str:
        """The section the operator is at, while it is on the screen; else the topmost there."""
        sections, top = self.sheet.sections, int(self.body.scroll_offset.y)
        if not sections:
            return ""
        ends = [place.first for place in sections[1:]] + [len(self.sheet.lines)]
        seen = [
            place.id
            for place, end in zip(sections, ends, strict=True)
            if end > top and place.first < top + self.body.size.height
        ]
        return self.section if self.section in seen else seen[0] if seen else ""

    def _go_to(self, section: str) -> None:
        self.section = section
        self._draw(self.body, self.console_app.now())
        place = next(p for p in self.sheet.sections if p.id == section)
        self.body.scroll_to(y=place.first, animate=False, force=True)

    def action_fold(self) -> None:
        """Fold the section the operator is at, or open it."""
        self.section = self._here()
        if self.section:
            self.folded = self.folded ^ {self.section}
            self._go_to(self.section)

    def action_metric(self, text: str = "") -> None:
        """The next metric of the plots, or the first whose name begins so."""
        names = [metric.id for metric in METRICS]
        wanted = [i for i, name in enumerate(names) if text and name.startswith(text.strip())]
        if text and not wanted:
            raise UsageError(
                t("there is no metric {name!r} here", name=text),
                instead=t("one of {names}", names=" ".join(names)),
            )
        at = wanted[0] if wanted else (self.wish.metric + 1) % len(METRICS)
        self._plot(self.wish._replace(metric=at))

    def action_span(self) -> None:
        """More of the past, then the last minutes again."""
        self._plot(self.wish._replace(span=(self.wish.span + 1) % len(SPANS)))

    def _plot(self, wish: Wish) -> None:
        self.wish = wish
        self.folded -= {"history"}
        self._draw(self.body, self.console_app.now())
        places = self.sheet.sections
        at = next((i for i, place in enumerate(places) if place.id == "history"), None)
        if at is None:
            return
        end = places[at + 1].first - 2 if at + 1 < len(places) else len(self.sheet.lines) - 1
        self.body.reveal(places[at].first, end)

    def action_find(self, text: str = "") -> None:
        """Ask what to look for in the sheet, or look for it."""
        if text:
            self._look_for(text)
        else:
            self.query_one(Prompt).ask("/", self.find)

    @on(Prompt.Typed)
    def _typed(self, event: Prompt.Typed) -> None:
        if event.kind == "/":
            self._look_for(event.text)

    def answered(self, event: Prompt.Answered) -> None:
        """See CommandingScreen."""
        if event.kind == "/":
            self._look_for(event.before if event.text is None else event.text)
            return
        super().answered(event)

    def _look_for(self, text: str) -> None:
        self.find = text.strip()
        self._draw(self.body, self.console_app.now())
        self.query_one(Prompt).complain(
            t("nothing here has it") if self.find and not self._hits else ""
        )
        top = int(self.body.scroll_offset.y)
        self._hit = next((i for i, line in enumerate(self._hits) if line >= top), 0)
        self._to_hit()

    def _to_hit(self) -> None:
        if self._hits:
            line = self._hits[self._hit % len(self._hits)]
            self.body.reveal(max(0, line - AROUND), min(len(self.sheet.lines) - 1, line + AROUND))
        self.draw_keys(marks=True)

    def action_back(self) -> None:
        """End the search; without one, to the view it was opened from."""
        if self.find:
            self._look_for("")
            return
        self.console_app.close_node()

    def action_next_fault(self) -> None:
        """Next finding, or next place of what is searched for."""
        self._walk(1)

    def action_previous_fault(self) -> None:
        """Previous finding, or place."""
        self._walk(-1)

    def _walk(self, step: int) -> None:
        if self.find:
            self._hit = (self._hit + step) % max(1, len(self._hits))
            self._to_hit()
            return
        findings = self.findings
        if not findings:
            self.notify(t("no findings"))
            return
        # The first press goes to the finding that is already selected, wherever the sheet is.
        at = self.position + step if self.selected else 0
        chosen = findings[at % len(findings)]
        self.selected = (chosen.rule, chosen.device)
        self.folded -= {"findings"}
        self._draw(self.body, self.console_app.now())
        if self.sheet.findings:
            self.body.reveal(*self.sheet.findings[self.position])

    def action_acknowledge(self) -> None:
        """Acknowledge the selected finding."""
        if not self.findings:
            self.notify(t("nothing to acknowledge here"))
            return
        self.console_app.acknowledge(self.findings[self.position])
        self.draw_lines()
