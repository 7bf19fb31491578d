"""The log: what happened, newest first; new lines appear while the cursor is on the first one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from msgspec import structs
from textual.binding import BindingType

from console.tui import commands
from console.tui.log_sources import Batch, Sources
from console.tui.screens.table import BREATH_S, TableScreen
from console.tui.text import plain
from console.tui.views.log import AHEAD_S, LogTable
from console.tui.views.log_entries import FINAL, Acts, Entry, of_past, of_test

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class LogScreen(TableScreen):
    """Draws a LogTable and feeds it from files, which are read in a thread."""

    SCREEN_NAME = "log"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("log")
    table: LogTable

    def __init__(self, app: ConsoleApp) -> None:
        """Nothing read yet."""
        roster = app.roster
        super().__init__(roster, LogTable(lambda: roster.fleet, roster.summary))
        self._acts = Acts()
        self._sources = Sources(app)
        self._reading = self._read_once = False

    def redraw(self, now: float) -> None:
        """One tick; the files are looked at beside it."""
        paused = self.console_app.paused
        if not self._read_once and paused:
            self.table.ahead_s = 0.0  # the files tell of what came since, too
        elif not paused:
            self.table.ahead_s = AHEAD_S
        if not self._reading and not (paused and self._read_once):
            self._reading = self._read_once = True
            self.run_worker(self._read(now), group="log", exit_on_error=False)
        super().redraw(now)
        self._catch_up()

    def _catch_up(self) -> None:
        """In pieces, with a chance for a key between two."""
        if not self.table.catch_up():
            self.set_timer(BREATH_S, self._catch_up)
        elif self.app.screen is self:
            self._draw(self.console_app.now())

    def _draw(self, now: float) -> None:
        """The line under the cursor stays where it is on the screen."""
        grid, table = self.grid, self.table
        follows = not grid.order or grid.cursor in (None, grid.order[0])
        line = None if follows else grid.order.index(grid.cursor or "") - grid.top
        if follows:
            grid.touched = False
            table.looked()
        table.filter = self.roster.filter
        super()._draw(now)
        if line is not None and grid.cursor in grid.order:
            grid.scroll_to(
                y=max(0, grid.order.index(grid.cursor) - line), animate=False, force=True
            )

    async def _read(self, now: float) -> None:
        began = self.roster.fleet.began
        try:
            batch = await asyncio.to_thread(self._sources.read, began, now)
        finally:
            self._reading = False
        self._took(batch, began)

    def _took(self, batch: Batch, began: float) -> None:
        """Of nodes of this inventory: the files may tell of other clusters, too."""
        ours = self.roster.index
        for line in batch.lines:
            if line.node not in ours:
                continue
            entry = _dated(self._acts.add(line), began)
            final = line.what == "outcome" and line.detail.startswith(FINAL)
            self.table.acted(entry, line.node, line.at) if final else self.table.put(entry)
        for index, told in enumerate(batch.past):
            if told.node in ours:
                self.table.put(of_past(index, told))
        for test in batch.tests:
            entry = _dated(of_test(test), began)
            if not entry.nodes or not ours.keys().isdisjoint(entry.nodes):
                self.table.put(entry)
        self.table.trouble = plain(batch.trouble)


def _dated(entry: Entry, began: float) -> Entry:
    return structs.replace(entry, past=entry.at < began)


def screen(app: ConsoleApp) -> LogScreen:
    """As console.tui.app opens it."""
    return LogScreen(app)
