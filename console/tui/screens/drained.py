"""Nodes out of work. Bundles of the time of their drain are read in a thread, one after another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from console import since
from console.tui import commands
from console.tui.screens.table import TableScreen
from console.tui.views.drained import DrainedTable
from console.tui.views.drained_judge import Was

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp
    from inventory.scheduler import Allocation

REST_S = 0.05
"""Between two bundles: reading one holds the interpreter for some 10 ms."""


class DrainedScreen(TableScreen):
    """Draws a DrainedTable; `S` changes its order, `U` gives a node back."""

    SCREEN_NAME = "drained"
    BINDINGS: ClassVar[list[BindingType]] = commands.bindings("drained")

    def __init__(self, app: ConsoleApp) -> None:
        """Nothing read yet."""
        roster = app.roster
        self.model = DrainedTable(lambda: roster.fleet)
        super().__init__(roster, self.model)
        self._reading = False

    def redraw(self, now: float) -> None:
        """One tick, and what is not known of then is looked up."""
        super().redraw(now)
        if self.model.wanted() and not self._reading:
            self._reading = True
            self.run_worker(self._read(), group="drained", exit_on_error=False)

    async def _read(self) -> None:
        try:
            while self.app.screen is self and (wanted := self._next()) is not None:
                name, told = wanted
                self.model.was[name] = await asyncio.to_thread(self._was, name, told)
                await asyncio.sleep(REST_S)
        finally:
            self._reading = False
        if self.app.screen is self:  # else drawing would begin to read again, for nobody
            self.draw_lines()

    def _next(self) -> tuple[str, Allocation] | None:
        """The node under the cursor before the others."""
        wanted = self.model.wanted()
        cursor = self.grid.cursor
        return next((one for one in wanted if one[0] == cursor), wanted[0] if wanted else None)

    def _was(self, name: str, told: Allocation) -> Was:
        engine = self.console_app.engine
        where = getattr(engine, "bundles", None)
        memory = getattr(engine, "memory", None)
        path = since.of_drain(name, where, told.reason_at) if where is not None else None
        try:
            before = since.read(path) if path is not None else None
        except since.UNREADABLE:
            before = None
        if before is not None and before.manifest.node != name:
            before = None
        known = memory is not None and told.reason_at is not None
        return Was(before, memory.tested_since(name, told.reason_at) if known and memory else None)


def screen(app: ConsoleApp) -> DrainedScreen:
    """As console.tui.app opens it."""
    return DrainedScreen(app)
