"""One node: what is wrong, why, what to do, how it was before, and every reading behind it."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from console.tui import commands
from console.tui.node_history import METRICS, SPANS, Past, Wish
from console.tui.node_raw import Kept
from console.tui.node_view import Ask, node_sheet
from console.tui.screens.sections import SectionedScreen
from console.tui.text import plain
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines, Sheet
from console.tui.words import t
from inventory.errors import UsageError
from probes.event import Finding

READ_AGAIN_S = 60.0
"""The memory's finest interval is five minutes; findings and drains come at any time."""
AROUND = 3
"""Lines shown around what was searched for."""


class NodeScreen(SectionedScreen):
    """A scrolling sheet of one node in sections; `n` walks through its findings."""

    SCREEN_NAME = "node"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("node")

    def __init__(self, node: str, at: tuple[str, str] | None = None) -> None:
        """`node` is a name of the inventory; `at` the finding to begin with, else the first."""
        super().__init__()
        self.node = self.about = node
        self.selected = at
        """(rule, device) of the finding the operator is at; the first one until they move."""
        self.wish = Wish()
        self.past = Past()
        self._hit = 0
        self._kept: Kept = {}
        self._found: list[Finding] = []

    def compose(self) -> ComposeResult:
        """The sheet with its sections at the side, and the keys."""
        look = self.console_app.look
        with Horizontal(id="body"):
            yield Lines(look, id="sections")
            yield Sheet(look, id="sheet")
        yield Prompt(id="prompt")
        yield Lines(look, id="keys")

    def on_mount(self) -> None:
        """Keys go to the sheet; the past is read meanwhile."""
        self._fit_panel()
        self.console_app.announcer.saw(self.node)
        self.body.focus()
        self.draw_lines()
        self.run_worker(self._remember(), group="past", exit_on_error=False)

    @on(Lines.Resized)
    def _resized(self) -> None:
        self.draw_sheet()
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
        app = self.console_app
        while True:
            if not app.paused or self.past.told is None:
                self.past = await asyncio.to_thread(self._read, memory)
                self.draw_lines()
            await asyncio.sleep(READ_AGAIN_S)

    def _read(self, memory: object) -> Past:
        from console.memory.memory import Memory
        from console.memory.sheet import remembered
        from console.memory.store import Unusable

        assert isinstance(memory, Memory)
        try:
            told = remembered(memory.path, self.node, self.console_app.now(), memory.own())
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
        self.draw_sheet()
        self.draw_keys(marks=True)

    @property
    def searching(self) -> str:
        """`/crc 3/12`: which of how many places; "" without a search."""
        at = self._hit % len(self._hits) + 1 if self._hits else 0
        return f"/{plain(self.find)} {at}/{len(self._hits)}" if self.find else ""

    def draw_sheet(self) -> None:
        """See SectionedScreen."""
        app, width = self.console_app, self.body.scrollable_size.width
        if not width:
            return
        self._found = app.still.findings[self.node]
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
        self.sheet = node_sheet(app.still, self.node, app.look.glyphs, width, app.now(), ask)
        self.body.show(self.lit(self.sheet.lines))
        self.draw_panel()

    def _device(self) -> str:
        """Plots follow the finding the operator is at."""
        findings = self.findings
        return findings[self.position].device if findings else ""

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
        self.draw_sheet()
        places = self.sheet.sections
        at = next((i for i, place in enumerate(places) if place.id == "history"), None)
        if at is None:
            return
        end = places[at + 1].first - 2 if at + 1 < len(places) else len(self.sheet.lines) - 1
        self.body.reveal(places[at].first, end)

    def begin(self) -> None:
        """To the first place that is on the screen or below."""
        top = int(self.body.scroll_offset.y)
        self._hit = next((i for i, line in enumerate(self._hits) if line >= top), 0)
        self._to_hit()

    def _to_hit(self) -> None:
        if self._hits:
            line = self._hits[self._hit % len(self._hits)]
            self.body.reveal(max(0, line - AROUND), min(len(self.sheet.lines) - 1, line + AROUND))
        self.draw_keys(marks=True)

    def leave(self) -> None:
        """To the view it was opened from."""
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
        self.draw_sheet()
        if self.sheet.findings:
            self.body.reveal(*self.sheet.findings[self.position])

    def action_acknowledge(self) -> None:
        """Acknowledge the selected finding."""
        if not self.findings:
            self.notify(t("nothing to acknowledge here"))
            return
        self.console_app.acknowledge(self.findings[self.position])
        self.draw_lines()
