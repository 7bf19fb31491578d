"""The question before an active test: which level, who would be tested, for how long at most.

Nothing begins by Enter. `y` works only while the plan on the screen is the plan for the level on
the screen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from console.active.ask import Asked, CampaignPlan
from console.active.results import Level
from console.active.safety import NOT_YET
from console.tui.campaign_view import LEVEL_KEYS, level_line, plan_lines
from console.tui.plan_view import title
from console.tui.screens.planned import PlanDialog
from console.tui.text import Cell, Line, hints, plain
from console.tui.widgets.sheet import Lines, Sheet
from console.tui.words import t
from inventory.errors import ConsoleError

AGAIN_S = 1.0
"""Until a plan that waits for a node's first readings is made again."""


class Launch(PlanDialog[CampaignPlan | None]):
    """Dismisses with the plan to carry out, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "start", "start", priority=True),
        Binding("escape,q", "cancel", "back", priority=True),
        Binding("I", "own", "mine", priority=True),
        Binding("tab,right", "step(1)", "next level", priority=True),
        Binding("shift+tab,left", "step(-1)", "level before", priority=True),
        *(
            Binding(key, f"level('{level.value}')", priority=True)
            for key, level in LEVEL_KEYS.items()
        ),
    ]

    def __init__(self, names: Sequence[str], level: Level = Level.NODE) -> None:
        """A node alone comes first: only then can a pair tell its path from its nodes."""
        super().__init__(classes="dialog")
        self.names, self.level = tuple(names), level
        self.force = False
        self.plan: CampaignPlan | None = None
        self.trouble = ""
        self.phase = "planning"
        """planning, ready."""

    def compose(self) -> ComposeResult:
        """The plan and its keys."""
        look = self.console_app.look
        with Vertical(classes="box"):
            yield Sheet(look, id="sheet")
            yield Lines(look, id="hint")

    def on_mount(self) -> None:
        """Plan the first level."""
        self.query_one("#sheet").focus()
        self._replan()

    def _replan(self) -> None:
        self.phase, self.plan = "planning", None
        self._draw()
        self.run_worker(self._plan(), group="plan", exclusive=True, exit_on_error=False)

    async def _plan(self) -> None:
        asked = Asked(
            nodes=self.names, level=self.level, force=self.force, seed=random.randrange(2**31)
        )
        try:
            self.plan, self.trouble = await self.console_app.bench.plan(asked), ""
        except ConsoleError as error:
            self.plan, self.trouble = None, str(error)
        except Exception as error:
            self.trouble = t("no plan because of an internal error: {error}", error=repr(error))
            raise
        finally:
            self.phase = "ready"
            self.appeared()
            self._draw()
        if self.plan is not None and self._waits(self.plan):
            self.set_timer(AGAIN_S, self._again)

    @staticmethod
    def _waits(plan: CampaignPlan) -> bool:
        """Nothing to start, and a node was not read yet. A plan that `y` would start never changes
        by itself."""
        return not plan.willing and any(why.endswith(NOT_YET) for why in plan.refused.values())

    def _again(self) -> None:
        """What was not read yet may be by now."""
        if self.phase == "ready":
            self.run_worker(self._plan(), group="plan", exclusive=True, exit_on_error=False)

    def blocked(self) -> str:
        """Why `y` does nothing now; "" when it works."""
        if self.phase == "planning":
            return t("reading the scheduler")
        if self.console_app.bench.running is not None:
            return t("a test is running already (7)")
        if self.plan is None or not self.plan.willing:
            return t("there is nothing to test")
        return ""

    def action_start(self) -> None:
        """Carry out the plan on the screen."""
        if self.blocked():
            self.app.bell()
        elif self.confirmed():
            self.dismiss(self.plan)
        else:
            self._draw()

    def action_cancel(self) -> None:
        """Start nothing."""
        self.dismiss(None)

    def action_own(self) -> None:
        """Also busy nodes, which the operator owns; or leave them again."""
        self.force = not self.force
        self._replan()

    def action_level(self, name: str) -> None:
        """Another level."""
        self.level = Level(name)
        self._replan()

    def action_step(self, by: int) -> None:
        """The next level, around the end."""
        every = list(Level)
        self.action_level(every[(every.index(self.level) + by) % len(every)])

    @on(Lines.Resized)
    def _draw(self) -> None:
        if not self.is_attached or not self.is_mounted:
            return
        sheet, hint = self.query_one("#sheet", Sheet), self.query_one("#hint", Lines)
        if sheet.size.width:
            sheet.show(self._lines(sheet.scrollable_size.width))
            hint.show([self._hint()])

    def _lines(self, width: int) -> list[Line]:
        lines: list[Line] = [level_line(self.level), ()]
        if self.plan is not None:
            lines += plan_lines(self.plan, self.console_app.look.glyphs, width)
        else:
            lines.append((Cell(title(t("Test {level}:", level=self.level), self.names), "title"),))
        lines += self.of_now()
        if self.force:
            lines.append((Cell(t("MINE: also busy nodes, and no cap: you own them"), "critical"),))
        if self.trouble:
            lines.append((Cell(plain(self.trouble), "critical"),))
        return lines

    def _hint(self) -> Line:
        yes = self.yes(self.blocked(), t("test now"))
        rest = hints(("esc", t("cancel")), ("tab", t("level")), ("I", t("mine")))
        return (*yes, Cell("   "), *rest)
