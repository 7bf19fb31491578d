"""The heat map: which GPUs are unlike the rest. Status, metrics, legend, map, detail, why, keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from console.tui import bars, commands
from console.tui.roster import Roster
from console.tui.screens.marking import MarkingScreen
from console.tui.text import Cell, Line, cut
from console.tui.views import gpu_words
from console.tui.views.gpu_cells import Block
from console.tui.views.gpu_layout import Layout, arrange
from console.tui.views.gpus import HeatMap, Weight
from console.tui.widgets.heat import HeatCanvas
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines
from console.tui.words import t
from probes.event import Finding

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

TICK_SHARE_S = 0.004
"""Reading in a tick itself; what is left is read in slices between keys."""


class GpusScreen(MarkingScreen):
    """Nodes × GPUs in one metric."""

    SCREEN_NAME = "gpus"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("gpus")
    DEFAULT_CSS = """
    GpusScreen #metrics, GpusScreen #legend, GpusScreen #detail {
        height: 1; overflow: hidden hidden;
    }
    """

    def __init__(self, roster: Roster) -> None:
        """The roster outlives the screen."""
        super().__init__(roster)
        self.heat = HeatMap(roster.fleet)
        self.building = False
        """Whether nodes are still being read."""
        self._longest = max((len(name) for name in roster.index), default=1)
        self._ends_of_metrics: list[tuple[int, str]] = []

    def compose(self) -> ComposeResult:
        """One widget per line group."""
        look = self.console_app.look
        yield Lines(look, id="status")
        yield Lines(look, id="metrics")
        yield Lines(look, id="legend")
        yield HeatCanvas(look, self, id="canvas")
        yield Lines(look, id="detail")
        yield Lines(look, id="why")
        yield Prompt(id="prompt")
        yield Lines(look, id="keys")

    def on_mount(self) -> None:
        """Keys go to the canvas."""
        self.canvas.focus()
        self.draw_lines()

    @property
    def canvas(self) -> HeatCanvas:
        """The map itself."""
        return self.query_one("#canvas", HeatCanvas)

    @property
    def rows(self) -> HeatCanvas:
        """See MarkingScreen."""
        return self.canvas

    @property
    def body(self) -> HeatCanvas:
        """See PromptingScreen."""
        return self.canvas

    def places(self, width: int, height: int) -> Layout:
        """See Source."""
        return arrange(width, height, len(self.canvas.order), self.heat.most, self._longest)

    def node_block(self, name: str, layout: Layout) -> Block:
        """See Source."""
        app, marked = self.console_app, name in self.roster.marked
        glyphs = app.look.glyphs
        return self.heat.block(name, layout.name, layout.cell, glyphs, app.now(), marked=marked)

    def minimap(self, layout: Layout, height: int, top: int) -> Sequence[Line]:
        """See Source."""
        weights = [self.heat.weight(name) for name in self.canvas.order]
        return gpu_words.minimap(weights, layout, height, top, self.console_app.look.glyphs)

    def redraw(self, now: float) -> None:
        """One tick: what is new, in slices; the map; the lines around it."""
        if self.focused is None:
            self.set_focus(self.canvas)
        self.heat.update(self.take_news(), self.canvas.in_sight())
        self._read_on(now)
        self._draw(now)

    def _read_on(self, now: float) -> None:
        if not self.building and not self.heat.build(TICK_SHARE_S, now):
            self.building = True
            self.run_worker(self._build(), group="read", exit_on_error=False)

    async def _build(self) -> None:
        """Read and measure the rest, giving way to keys."""
        from console.tui.ticking import BREATH_S, SLICE_S

        try:
            while not self.heat.build(SLICE_S, self.console_app.now()):  # noqa: ASYNC110
                await asyncio.sleep(BREATH_S)
        finally:
            self.building = False
        if self.is_current:
            self._draw(self.console_app.now())

    def _draw(self, now: float) -> None:
        shown = self.roster.shown(now)
        self.canvas.show(shown)
        self.draw_status(shown, view=t("gpus: {told}", told=self.heat.headline(shown)))
        self._draw_metrics()
        self.draw_detail()
        self.draw_keys()

    def _draw_metrics(self) -> None:
        lines, legend = self.query_one("#metrics", Lines), self.query_one("#legend", Lines)
        line, self._ends_of_metrics = gpu_words.metrics(self.heat.metric, lines.size.width)
        lines.show([line])
        glyphs = self.console_app.look.glyphs
        numbers = self.canvas.laid.cell > 1
        legend.show([gpu_words.legend(self.heat, glyphs, legend.size.width, numbers=numbers)])

    @on(HeatCanvas.Moved)
    def _moved(self, event: HeatCanvas.Moved) -> None:
        """What came into sight is read before the next tick."""
        self.noticed(jumped=event.jumped)
        self.heat.update((), self.canvas.in_sight())
        if self.heat.waiting:
            self._read_on(self.console_app.now())
        self.draw_detail()

    def draw_detail(self) -> None:
        """The GPU under the cursor, and why it is odd."""
        detail, why = self.query_one("#detail", Lines), self.query_one("#why", Lines)
        name, glyphs = self.canvas.cursor, self.console_app.look.glyphs
        if name is None:
            text = t("no node matches the filter; esc clears it")
            detail.show([(Cell(cut(text, detail.size.width), "dim"),)])
            why.show([])
            return
        place, now = self.canvas.gpu, self.console_app.now()
        width = detail.size.width
        detail.show([gpu_words.detail(self.heat, name, place, glyphs, width, now)])
        text = t("no finding about this GPU")
        why.show([bars.why(self._finding(), text, glyphs, why.size.width)])

    def _finding(self) -> Finding | None:
        """The worst finding of the GPU under the cursor."""
        name, place = self.canvas.cursor, self.canvas.gpu
        gpus = self.heat.node(name).gpus if name is not None else ()
        return gpus[place].top if place < len(gpus) else None

    def topic(self) -> str:
        """See CommandingScreen: first what is told of this GPU, then of its node."""
        finding = self._finding()
        return super().topic() if finding is None else finding.rule

    @on(Lines.Clicked, "#metrics")
    def _metric_clicked(self, event: Lines.Clicked) -> None:
        name = next((name for end, name in self._ends_of_metrics if event.x < end), None)
        if name:
            self.action_metric(name)

    def action_metric(self, text: str = "") -> None:
        """The next metric, or the one named. Raises UsageError."""
        self.heat.choose(text)
        self.canvas.repaint()
        self.draw_lines()

    @on(HeatCanvas.Opened)
    def _opened(self) -> None:
        self.action_open()

    def action_open(self, name: str = "") -> None:
        """Show the node under the cursor, or a named one."""
        target = name or self.canvas.cursor
        if target is not None:
            self.console_app.open_node(target)

    def _fault(self, step: int) -> None:
        canvas, heat = self.canvas, self.heat
        order = canvas.order
        if canvas.cursor is None:
            return
        at = order.index(canvas.cursor)
        for offset in range(len(order) + 1):
            name = order[(at + step * offset) % len(order)]
            if heat.weight(name) < Weight.ODD:
                continue
            places = heat.odd_gpus(name)[::step]
            if not offset:
                places = [place for place in places if step * (place - canvas.gpu) > 0]
            if places:
                canvas.move_to(name, places[0])
                return
        self.notify(t("no GPU shown is odd"))

    def action_acknowledge(self) -> None:
        """Acknowledge the worst finding of the GPU under the cursor."""
        if not self.steady():
            return
        finding = self._finding()
        if finding is None or finding.acknowledged:
            self.notify(t("nothing to acknowledge here"))
            return
        self.console_app.acknowledge(finding)
        self.draw_lines()


def screen(app: ConsoleApp) -> Screen[None]:
    """The view."""
    return GpusScreen(app.roster)
