"""Screens with a key line and a `:` line: what can be done here by typing its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from console.tui import bars, commandline, commands, completing
from console.tui.palettes import THEMES
from console.tui.screens.acting import ActingScreen
from console.tui.text import Cell, Line
from console.tui.views import VIEW_IDS
from console.tui.widgets.prompt import Prompt
from console.tui.widgets.sheet import Lines
from console.tui.words import t
from inventory.errors import ConsoleError, UsageError
from inventory.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class CommandingScreen(ActingScreen):
    """A screen with a Prompt and `#keys`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As Screen."""
        super().__init__(*args, **kwargs)
        self._ends: list[tuple[int, str]] = []
        self.opened_in: float | None = None
        """The pause in which it was opened, where it does not show the moment of that pause."""

    @property
    def stands(self) -> bool:
        """Whether what is shown is of the moment of the pause."""
        return self.console_app.paused and self.console_app.paused_at != self.opened_in

    @property
    def moment(self) -> float:
        """Epoch seconds of what is shown."""
        return self.console_app.now() if self.stands else self.console_app.clock()

    def paused_cell(self) -> Cell:
        """For how long what is shown has stood still, or that it does not although it could."""
        return bars.paused(self.console_app.paused_s or 0.0, live=not self.stands)

    @property
    def body(self) -> Widget:
        """What has the keys when nothing is typed."""
        raise NotImplementedError

    @property
    def orders(self) -> Sequence[str]:
        """Names that `:sort` takes here; none where there is one order only."""
        return ()

    @property
    def searching(self) -> str:
        """What is searched for in this screen's text, and where one is; "" when nothing is."""
        return ""

    def draw_status(self, shown: Collection[str], *, view: str = "") -> None:
        """The status line. `view` is its name and headline; "" for the fleet."""
        app, roster = self.console_app, self.console_app.roster
        fleet, seen = roster.fleet if self.stands else app.fleet, set(shown)
        state = bars.State(
            cluster=app.engine.cluster,
            nodes=len(roster.index),
            counts=fleet.counts(),
            oldest_s=fleet.oldest_age(self.moment),
            shown=len(seen),
            filter=roster.filter.text,
            sort=t("{order} reversed", order=roster.sort) if roster.reverse else roster.sort,
            marked=len(roster.marked),
            hidden=len(roster.marked - seen),
            paused_s=app.paused_s,
            live=app.paused and not self.stands,
            read_only=app.engine.read_only,
            errors=app.errors(),
            answered=len(fleet.seen),
            recording=app.recorder.size if app.recorder and not app.recorder.ended else "",
            view=view,
            news=app.news(),
        )
        status = self.query_one("#status", Lines)
        status.show([bars.status(state, app.look.glyphs, status.size.width)])

    def draw_keys(self, *, marks: bool = False) -> None:
        """The key line; with `marks` it ends in what no status line tells: news, their number."""
        app, lines = self.console_app, self.query_one("#keys", Lines)
        offered = commands.footer(
            self.SCREEN_NAME, read_only=app.engine.read_only, keys=app.keymap,
            replay=app.player is not None,
        )  # fmt: skip
        marked = len(app.roster.marked) if marks else 0
        told = t("{sign} {n} marked", sign=app.look.glyphs.mark, n=marked)
        tail: Line = (Cell(told, "mark"),) if marked else ()
        if self.searching:
            tail = (Cell(self.searching, "key"), Cell(" "), *tail)
        if marks and (news := app.news()) is not None:
            tail = (*bars.news_cells(news, max(24, lines.size.width // 2)), Cell(" "), *tail)
        if marks and app.paused:
            tail = (self.paused_cell(), Cell(" "), *tail)
        line, self._ends = bars.keys(offered, lines.size.width, tail)
        lines.show([line])

    @on(Lines.Clicked, "#keys")
    async def _key_clicked(self, event: Lines.Clicked) -> None:
        command = next((c for end, c in self._ends if event.x < end), None)
        if command:
            await self.run_action(commands.BY_ID[command].does)

    def topic(self) -> str:
        """The rule that `explain` is about: of the top finding; "" where there is none."""
        findings = self.console_app.still.findings
        open_ones = (f.rule for name in self._one() for f in findings[name] if not f.acknowledged)
        return next(open_ones, "")

    def action_explain(self, topic: str = "") -> None:
        """What a rule means, in a sheet. Raises UsageError for a rule that does not exist."""
        from console.tui.screens.explain import Explanation

        wanted = topic or self.topic()
        if wanted:
            self.app.push_screen(Explanation(wanted))
        else:
            self.notify(t("no finding here to explain"))

    def action_next_view(self) -> None:
        """The next of the numbered views."""
        self._turn(1)

    def action_previous_view(self) -> None:
        """The previous of the numbered views."""
        self._turn(-1)

    def _turn(self, step: int) -> None:
        app = self.console_app
        app.go(VIEW_IDS[(VIEW_IDS.index(app.view) + step) % len(VIEW_IDS)])

    def action_theme(self, name: str = "") -> None:
        """Another theme, or the next one. Raises UsageError for one that does not exist."""
        app, names = self.console_app, list(THEMES)
        app.set_theme(name or names[(names.index(app.look.theme) + 1) % len(names)])
        self.notify(t("theme: {name}", name=app.look.theme))

    def action_refresh(self) -> None:
        """Ask the schedulers now, and paint everything again."""
        self.console_app.read_now()

    def action_command(self) -> None:
        """Ask for a command."""
        world, app = self.world(), self.console_app
        self.query_one(Prompt).ask(
            ":",
            "",
            complete=lambda line: completing.command(line, world),
            history=app.history("commands"),
            judge=lambda line: line.strip() and self._request(line),
        )

    def world(self) -> completing.World:
        """What may be named at the prompt here."""
        app = self.console_app
        return completing.World(
            words=[c.id.replace("_", "-") for c in self.offered()],
            nodes=list(app.roster.index),
            orders=self.orders,
            labels=app.roster.labels(),
            rules=_topics,
            values=app.roster.values,
        )

    @on(Prompt.Answered)
    def _answered(self, event: Prompt.Answered) -> None:
        self.set_focus(self.body)
        try:
            self.answered(event)
        except ConsoleError as error:
            self.notify(str(error), severity="warning", markup=False)

    def answered(self, event: Prompt.Answered) -> None:
        """Take what was typed. Raises ConsoleError."""
        if event.text is not None and event.text.strip():
            self.carry_out(event.text)

    def carry_out(self, line: str) -> None:
        """Do what a `:` line says. Raises UsageError."""
        request = self._request(line)
        if request.id == "open" and request.text:
            self.console_app.open_node(request.text)
        elif request.text:
            getattr(self, f"action_{request.id}")(request.text)
        else:
            self.call_later(self.run_action, commands.BY_ID[request.id].does)

    def _request(self, line: str) -> commandline.Request:
        """The line, where this screen can carry it out. Raises UsageError."""
        from console.tui.screens.explain import page

        request = commandline.parse(line, read_only=self.console_app.engine.read_only)
        names = request.text and request.id in ("open", "ssh", "explain")
        here = set(commands.BY_ID[request.id].screens).intersection(self.modes)
        if not names and not here:
            raise UsageError(
                t(":{word} is not in this view", word=request.id.replace("_", "-")),
                instead=t("? lists what is"),
            )
        if names and request.id != "explain" and request.text not in self.console_app.roster.index:
            raise UsageError(
                t("there is no node {name}", name=repr(request.text)),
                instead=nearest(request.text, self.console_app.roster.index),
            )
        if names and request.id == "explain":
            page(request.text)
        return request

    @on(Input.Submitted)
    def _swallow(self, event: Input.Submitted) -> None:
        event.stop()


def _topics() -> list[str]:
    from probes.checks import RULES

    return [rule.id for rule in RULES]
