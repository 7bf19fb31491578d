"""Screens over the Roster: status line, filter, commands, key line."""

from __future__ import annotations

from collections.abc import Collection

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from console.tui import bars, commandline, commands
from console.tui.filter import Filter
from console.tui.roster import Roster
from console.tui.screens.acting import ActingScreen
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines
from inventory.errors import ConsoleError, UsageError


class PromptingScreen(ActingScreen):
    """A screen with `#status`, a Prompt and `#keys`. The filter is the operator's: every view of
    nodes shows only those that it lets through."""

    def __init__(self, roster: Roster, *, id: str | None = None) -> None:  # noqa: A002
        """The roster outlives the screen."""
        super().__init__(id=id)
        self.roster = roster
        self._ends: list[tuple[int, str]] = []
        self._news: set[str] = set(roster.index)

    @property
    def body(self) -> Widget:
        """What has the keys when nothing is typed."""
        raise NotImplementedError

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

    def draw_status(self, shown: Collection[str], *, view: str = "") -> None:
        """The status line. `view` is its name and headline; "" for the fleet."""
        app, roster = self.console_app, self.roster
        fleet, seen = roster.fleet, set(shown)
        state = bars.State(
            cluster=app.engine.cluster,
            nodes=len(roster.index),
            counts=fleet.counts(),
            oldest_s=fleet.oldest_age(app.clock()),
            shown=len(seen),
            filter=roster.filter.text,
            sort=roster.sort + (" reversed" if roster.reverse else ""),
            marked=len(roster.marked),
            hidden=len(roster.marked - seen),
            paused_s=app.paused_s,
            read_only=app.engine.read_only,
            errors=app.errors(),
            answered=len(fleet.seen),
            view=view,
        )
        status = self.query_one("#status", Lines)
        status.show([bars.status(state, app.look.glyphs, status.size.width)])

    def draw_keys(self) -> None:
        """The key line."""
        lines = self.query_one("#keys", Lines)
        footer = commands.footer(self.SCREEN_NAME, read_only=self.console_app.engine.read_only)
        line, self._ends = bars.keys(footer, lines.size.width)
        lines.show([line])

    @on(Lines.Clicked, "#keys")
    async def _key_clicked(self, event: Lines.Clicked) -> None:
        command = next((c for end, c in self._ends if event.x < end), None)
        if command:
            await self.run_action(commands.BY_ID[command].does)

    def action_show_all(self) -> None:
        """Remove the filter; in a view without one, back to the fleet."""
        if self.roster.filter:
            self.set_filter("")
        elif self.SCREEN_NAME != "fleet":
            self.console_app.go("fleet")

    def action_filter(self, text: str | None = None) -> None:
        """Ask for a filter, or set it."""
        if text is None:
            self.query_one(Prompt).ask("/", self.roster.filter.text)
        else:
            self.set_filter(text)

    def action_command(self) -> None:
        """Ask for a command."""
        self.query_one(Prompt).ask(":", "")

    def set_filter(self, text: str) -> None:
        """Show only what `text` lets through. Raises FilterError."""
        self.roster.filter = Filter(text)
        self.draw_lines()

    @on(Prompt.Typed)
    def _typed(self, event: Prompt.Typed) -> None:
        if event.kind != "/":
            return
        prompt = self.query_one(Prompt)
        try:
            self.set_filter(event.text)
        except UsageError as error:
            prompt.complain(str(error))
        else:
            prompt.complain("")

    @on(Prompt.Answered)
    def _answered(self, event: Prompt.Answered) -> None:
        self.set_focus(self.body)
        if event.text is None:
            if event.kind == "/":
                self.set_filter(event.before)
            return
        try:
            if event.kind == "/":
                self.set_filter(event.text)
            elif event.text.strip():
                self.carry_out(event.text)
        except ConsoleError as error:
            self.notify(str(error), severity="warning", markup=False)

    def carry_out(self, line: str) -> None:
        """Do what a `:` line says. Raises UsageError."""
        request = commandline.parse(line, read_only=self.console_app.engine.read_only)
        if request.text:
            getattr(self, f"action_{request.id}", self._not_here)(request.text)
        elif self.SCREEN_NAME in commands.BY_ID[request.id].screens:
            self.call_later(self.run_action, commands.BY_ID[request.id].does)
        else:
            self._not_here()

    def _not_here(self, _text: str = "") -> None:
        raise UsageError("not in this view", instead="? lists what is")

    @on(Input.Submitted)
    def _swallow(self, event: Input.Submitted) -> None:
        event.stop()
