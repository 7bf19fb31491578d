"""Active tests: the list, and one of them with its progress and its report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType

from console.active import figures
from console.active.results import Campaign
from console.tui import campaign_view, commands
from console.tui.bench import Entry
from console.tui.screens.commanding import CommandingScreen
from console.tui.text import Cell, Column, Line, cut, plain
from console.tui.widgets.grid import Grid
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines, Sheet
from console.tui.words import t
from inventory.errors import ConsoleError, UsageError
from inventory.expressions import expand

REST = 10.0
"""A running campaign's report is drawn a tenth of the time: of 130,000 runs it takes 4 s."""
READ_S = 10.0
"""Between two looks for campaigns of other consoles and of cron."""


class BenchScreen(CommandingScreen):
    """What the list and a single campaign share: stopping, and copying a drain list."""

    @work(exit_on_error=False, group="act")
    async def action_stop(self) -> None:
        """Ask, then stop the campaign that runs."""
        from console.tui.screens.ask import Ask

        bench = self.console_app.bench
        running = bench.running
        if running is None:
            self.notify(t("no test is running"))
            return
        what = t("Stop the {level} test:", level=running.campaign.level)
        if await self.app.push_screen_wait(Ask(what, running.campaign.nodes, {})):
            running.stop()

    def copy_drain(self, drain: str) -> None:
        """Put a drain list on the clipboard."""
        if not drain:
            self.notify(t("nothing to drain: no verdict is sure enough"))
            return
        self.app.copy_to_clipboard(plain(drain))
        self.notify(t("copied {what}", what=plain(drain)), markup=False)


class CampaignsScreen(BenchScreen):
    """The campaign that runs and those before it, newest first."""

    SCREEN_NAME = "tests"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("tests")

    def __init__(self) -> None:
        """Nothing read yet."""
        super().__init__()
        self.entries: dict[str, Entry] = {}
        self.read_at: float | None = None
        """When the files were last looked at; None until the first look is over."""
        self._reading = False
        self._again = False
        """Something is known to have changed."""

    def compose(self) -> ComposeResult:
        """Title, list, what the cursor's campaign found, keys."""
        look = self.console_app.look
        yield Lines(look, id="status")
        yield Grid(look, campaign_view.columns, self._cells, id="grid")
        yield Lines(look, id="why")
        yield Prompt(id="prompt")
        yield Lines(look, id="keys")

    @property
    def grid(self) -> Grid:
        """The list."""
        return self.query_one("#grid", Grid)

    @property
    def body(self) -> Grid:
        """See CommandingScreen."""
        return self.grid

    def on_mount(self) -> None:
        """Keys go to the list."""
        self.grid.focus()
        self.opened_in = self.console_app.paused_at
        self.redraw(self.console_app.now())

    def on_screen_resume(self) -> None:
        """Coming back from a campaign, which may have ended meanwhile."""
        if self.is_mounted:
            self._again = True
            self.draw_lines()

    @on(Lines.Resized)
    def _resized(self) -> None:
        self.draw_lines()

    def _cells(self, name: str, columns: Sequence[Column]) -> list[Cell]:
        app = self.console_app
        return campaign_view.row(self.entries[name], columns, app.look.glyphs, self.moment)

    def redraw(self, now: float) -> None:
        """One tick: the running campaign's line, and the files now and then."""
        if self.focused is None:
            self.set_focus(self.grid)
        if self.stands:
            self._show()
            return
        live = self.console_app.bench.live()
        if live is not None:
            self.entries = {live.id: live} | {k: e for k, e in self.entries.items() if k != live.id}
        elif any(entry.running for entry in self.entries.values()):
            # It has ended: its file says how.
            self._again = True
        due = self.read_at is None or now - self.read_at >= READ_S
        if not self._reading and (due or self._again):
            self._reading, self._again = True, False
            self.run_worker(self._read(now), group="tests", exit_on_error=False)
        self._show()

    async def _read(self, now: float) -> None:
        try:
            found = await asyncio.to_thread(self.console_app.bench.kept)
        finally:
            self._reading = False
        live = self.console_app.bench.live()
        self.entries = {entry.id: entry for entry in [*([live] if live else []), *found]}
        if live is not None:
            self.entries[live.id] = live
        self.read_at = now
        if self.is_attached and self.is_mounted:
            self._show()

    def _show(self) -> None:
        self.grid.show(list(self.entries))
        running = sum(entry.running for entry in self.entries.values())
        told = t("reading") if self.read_at is None else t("{n} kept", n=len(self.entries))
        if running:
            told = t("{n} running, {rest}", n=running, rest=told)
        app = self.console_app
        self.draw_status(app.roster.shown(app.now()), view=t("tests: {told}", told=told))
        self._why()
        self.draw_keys()

    @on(Grid.Moved)
    def _why(self) -> None:
        lines, look = self.query_one("#why", Lines), self.console_app.look
        if self.read_at is not None or self.entries:
            lines.show([campaign_view.why(self._current(), look.glyphs, lines.size.width)])

    def action_back(self) -> None:
        """To the fleet."""
        self.console_app.go("fleet")

    def _current(self) -> Entry | None:
        return self.entries.get(self.grid.cursor or "")

    def chosen(self) -> list[str]:
        """Nodes are chosen in a campaign, not here."""
        return []

    @on(Grid.Opened)
    def action_open(self) -> None:
        """Show the campaign under the cursor."""
        current = self._current()
        if current is not None:
            self.console_app.open_campaign(current.id)

    def action_copy(self, form: str = "hosts") -> None:
        """Copy the drain list of the campaign under the cursor, which has one form."""
        current = self._current()
        if current is not None:
            self.copy_drain(current.drain)


class CampaignScreen(BenchScreen):
    """One campaign: how far it is, then its report; it follows a running one."""

    SCREEN_NAME = "campaign"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("campaign")

    def __init__(self, name: str) -> None:
        """`name` is a campaign's id."""
        super().__init__()
        self.about = name
        self.campaign: Campaign | None = None
        self.drawn: tuple[Campaign, int] | None = None
        """Which state of the campaign the report shows, and its width."""
        self.trouble = ""
        self._report: list[Line] = []
        self._progress: list[Line] = []
        self._drawing = False
        self._rest_until = 0.0

    def compose(self) -> ComposeResult:
        """The sheet and the keys."""
        look = self.console_app.look
        yield Sheet(look, id="sheet")
        yield Prompt(id="prompt")
        yield Lines(look, id="keys")

    def on_mount(self) -> None:
        """Keys go to the sheet."""
        self.query_one("#sheet", Sheet).focus()
        self.opened_in = self.console_app.paused_at
        self.redraw(self.console_app.now())

    @on(Lines.Resized)
    def _resized(self) -> None:
        self.draw_lines()

    @property
    def body(self) -> Sheet:
        """See CommandingScreen."""
        return self.query_one("#sheet", Sheet)

    @property
    def live(self) -> bool:
        """Whether it is the campaign that runs."""
        running = self.console_app.bench.running
        return running is not None and running.campaign.id == self.about

    def redraw(self, now: float) -> None:
        """One tick: progress at once, the report in a thread when the campaign has changed."""
        app, sheet = self.console_app, self.query_one("#sheet", Sheet)
        if not self.stands:
            self.campaign = app.bench.known(self.about) or self.campaign
        width = sheet.scrollable_size.width
        rests = self.live and time.monotonic() < self._rest_until
        if width and not self._drawing and not rests and not self._is_drawn(width):
            self._drawing = True
            self.run_worker(self._draw_report(width), group="report", exit_on_error=False)
        sheet.show(self._lines(now, width))
        self.draw_keys(marks=True)

    def _is_drawn(self, width: int) -> bool:
        return self.drawn is not None and self.drawn[0] is self.campaign and self.drawn[1] == width

    async def _draw_report(self, width: int) -> None:
        bench, glyphs = self.console_app.bench, self.console_app.look.glyphs
        try:
            if self.campaign is None:
                self.campaign = await asyncio.to_thread(bench.campaign, self.about)
            campaign, began = self.campaign, time.monotonic()
            draw = campaign_view.report_lines
            self._report = await asyncio.to_thread(draw, campaign, glyphs, width)
            self.drawn, self.trouble = (campaign, width), ""
            self._rest_until = time.monotonic() + REST * (time.monotonic() - began)
        except ConsoleError as error:
            self.trouble = str(error)
        finally:
            self._drawing = False
        if self.is_attached and self.is_mounted:
            self.query_one("#sheet", Sheet).show(self._lines(self.console_app.now(), width))

    def _lines(self, now: float, width: int) -> list[Line]:
        bench, glyphs = self.console_app.bench, self.console_app.look.glyphs
        lines: list[Line] = []
        if self.trouble:
            lines.append((Cell(cut(plain(self.trouble), width), "critical"),))
        if not self.stands:
            self._progress = []
            if self.live and bench.running is not None and self.campaign is not None:
                self._progress = campaign_view.progress_lines(
                    self.campaign, bench.running.eta_s, now, glyphs, width
                )
        lines += self._progress
        if not self._report and not self.trouble:
            lines.append((Cell(t("reading"), "dim"),))
        return lines + self._report

    def action_back(self) -> None:
        """To where the operator came from."""
        self.console_app.close_node()

    def chosen(self) -> list[str]:
        """The nodes that the campaign proposes to drain, as far as they are in the inventory."""
        drain = self.campaign.drain if self.campaign is not None else ""
        try:
            names = expand(drain) if drain else []
        except UsageError:
            return []
        return [name for name in names if name in self.console_app.fleet.nodes]

    def action_drain(self, reason: str = "") -> None:
        """The confirmation of a drain, with the nodes and the reason of this campaign."""
        if not self.chosen():
            self.notify(t("nothing to drain: no verdict is sure enough"))
            return
        told = figures.reason(self.campaign) if self.campaign is not None else ""
        super().action_drain(reason or told)

    def action_copy(self, form: str = "hosts") -> None:
        """Copy the drain list, which has one form."""
        self.copy_drain(self.campaign.drain if self.campaign is not None else "")
