"""Screens over the Roster: status line, filter, commands, key line."""

from __future__ import annotations

from collections.abc import Collection

from textual import on

from console.tui import completing
from console.tui.filter import Filter, FilterError, toggled, without_field
from console.tui.roster import Roster
from console.tui.screens.commanding import CommandingScreen
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines
from inventory.errors import UsageError

READ_S = 0.01
"""Reading of nodes that a key may wait for; 4,000 that nobody looked at yet take 0.5 s."""


class PromptingScreen(CommandingScreen):
    """A screen with `#status`, a Prompt and `#keys`. The filter is the operator's: every view of
    nodes shows only those that it lets through."""

    def __init__(self, roster: Roster, *, id: str | None = None) -> None:  # noqa: A002
        """The roster outlives the screen."""
        super().__init__(id=id)
        self.roster = roster
        self._news: set[str] = set(roster.index)

    def changed(self, names: Collection[str]) -> None:
        """These nodes have news. Called each tick, also while another screen is on top."""
        self._news.update(names)

    def take_news(self) -> set[str]:
        """Nodes with news since the last call; at first all."""
        news, self._news = self._news, set()
        return news

    def on_screen_resume(self) -> None:
        """Coming back from another screen."""
        if self.is_mounted:
            self.draw_lines()

    @on(Lines.Resized)
    def _resized(self) -> None:
        self.draw_lines()

    def action_show_all(self) -> None:
        """Remove the filter; in a view without one, back to the fleet."""
        if self.roster.filter:
            self.set_filter("")
        elif self.SCREEN_NAME != "fleet":
            self.console_app.go("fleet")
        elif self.console_app.tour is not None:
            self.console_app.tour.end()

    def action_filter(self, text: str | None = None) -> None:
        """Ask for a filter, or set it."""
        if text is None:
            # Begun now, most nodes are read when the first letter comes.
            reading = self.console_app.read_all()
            self.run_worker(reading, group="read", exclusive=True, exit_on_error=False)
            world = self.world()
            self.hold_cursor()
            self.query_one(Prompt).ask(
                "/",
                self.roster.filter.text,
                complete=lambda line: completing.filtering(line, world),
                history=self.console_app.history("filters"),
                judge=Filter,
            )
        else:
            self.set_filter(text)

    def action_faults(self) -> None:
        """Only nodes that are not ok, or all again."""
        self.set_filter(toggled(self.roster.filter.text, "is:fault"))

    def set_filter(self, text: str) -> None:
        """Show only what `text` lets through, once all nodes are read. Raises FilterError."""
        Filter(text)
        self.workers.cancel_group(self, "filter")
        if self.roster.build(READ_S):
            self._narrow(text)
        else:
            self.run_worker(self._narrow_later(text), group="filter", exit_on_error=False)

    async def _narrow_later(self, text: str) -> None:
        await self.console_app.read_all()
        try:
            self._narrow(text)
        except FilterError as error:
            prompt = self.query_one(Prompt)
            if prompt.display:
                prompt.complain(str(error))
            else:
                self.notify(str(error), severity="warning", markup=False)

    def _narrow(self, text: str) -> None:
        self.roster.narrow(text, self.console_app.now())
        self.return_cursor()
        self.draw_lines()

    def hold_cursor(self) -> None:
        """A filter is about to be typed: the cursor belongs where it is now."""

    def return_cursor(self) -> None:
        """Each letter filters anew, from where the cursor was before the first."""

    @on(Prompt.Typed)
    def _typed(self, event: Prompt.Typed) -> None:
        if event.kind != "/":
            return
        prompt = self.query_one(Prompt)
        try:
            self.set_filter(event.text)
            # A field whose name is not finished would be looked for as a word.
            if not self.roster.shown(self.console_app.now()):
                self.set_filter(without_field(event.text))
        except UsageError as error:
            self.set_filter(prompt.before)
            prompt.complain(str(error))
        else:
            prompt.complain("")

    def answered(self, event: Prompt.Answered) -> None:
        """See CommandingScreen."""
        if event.kind == ":":
            super().answered(event)
        else:
            self.set_filter(event.before if event.text is None else event.text)
