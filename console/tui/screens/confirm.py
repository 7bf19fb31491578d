"""The confirmation: the plan, the reason, the count if asked for, then the outcome.

Nothing happens by Enter. `y` works only while the plan on the screen is the plan for the reason on
the screen, and only from outside the input lines. Closing does not stop what has begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import Input, Static

from console.tui.plan_view import act, outcome_lines, plan_lines, proposed_reason, title
from console.tui.screens.planned import PlanDialog
from console.tui.text import Cell, Line, hints, plain
from console.tui.widgets.sheet import Lines, Sheet
from console.tui.words import t
from inventory.errors import ConsoleError
from inventory.scheduler import Plan, Step

SETTLE_S = 0.3
"""After the last keystroke in the reason, before the scheduler is read again."""
REDRAW_S = 1.0
LETTERS = frozenset({"yes", "reason", "override", "despite"})
"""Actions of single letters."""


class Confirm(PlanDialog[bool]):
    """Dismisses with whether the plan was carried out (or begun)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "yes", "yes", priority=True),
        Binding("r", "reason", "reason", priority=True),
        Binding("O", "override", "override", priority=True),
        Binding("I", "despite", "despite", priority=True),
        Binding("escape", "leave", "back", priority=True),
    ]

    def __init__(self, verb: str, names: Sequence[str], reason: str = "") -> None:
        """`verb` is drain or resume; `reason` overrides the one proposed from the findings."""
        super().__init__(classes="dialog")
        self.verb, self.names, self.proposed = verb, list(names), reason
        self.plan: Plan | None = None
        self.override = self.despite = False
        self.trouble = ""
        self.steps: list[Step] = []
        self.phase = "planning"
        """planning, ready, running, over."""
        self._settle: Timer | None = None

    def compose(self) -> ComposeResult:
        """Plan, reason, count, keys."""
        look = self.console_app.look
        with Vertical(classes="box"):
            yield Sheet(look, id="sheet")
            with Horizontal(id="reason_row"):
                yield Static(t("reason") + " ", markup=False)
                yield _entry("reason")
            with Horizontal(id="count_row"):
                yield Static(t("type the number of nodes") + " ", markup=False)
                yield _entry("count")
            yield Lines(look, id="hint")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While text is typed, letters are letters."""
        return not (isinstance(self.focused, Input) and action in LETTERS)

    def on_mount(self) -> None:
        """Propose a reason and ask for the plan."""
        fleet = self.console_app.fleet
        entry = self.query_one("#reason", Input)
        with entry.prevent(Input.Changed):
            entry.value = self.proposed or proposed_reason(self.names, fleet.findings)
        entry.cursor_position = len(entry.value)
        self.query_one("#reason_row").display = self.verb == "drain"
        self.query_one("#count_row").display = False
        if self.verb == "drain" and not entry.value:
            self.set_focus(entry)
        else:
            self.set_focus(self.query_one("#sheet"))
        self.set_interval(REDRAW_S, self._follow)
        self._replan()

    @property
    def reason(self) -> str:
        """What is typed now."""
        return self.query_one("#reason", Input).value.strip()

    @property
    def count(self) -> int | None:
        """The number typed now; None when it is none."""
        text = self.query_one("#count", Input).value.strip()
        return int(text) if text.isascii() and text.isdigit() else None

    def _replan(self) -> None:
        self._settle = None
        if self.phase in ("running", "over"):
            return
        self.phase = "planning"
        self._draw()
        self.run_worker(self._plan(), group="plan", exclusive=True, exit_on_error=False)

    async def _plan(self) -> None:
        # A plan needs a reason to be shown at all; `y` stays closed until there is a real one.
        shown = self.reason or t("(the reason you type)")
        try:
            self.plan = await self.console_app.engine.plan(
                self.verb, self.names, shown, override=self.override, **self._despite()
            )
            self.trouble = ""
        except ConsoleError as error:
            self.plan, self.trouble = None, str(error)
        except Exception as error:
            self.plan = None
            self.trouble = t("no plan because of an internal error: {error}", error=repr(error))
            self._planned()
            raise
        self._planned()

    def _planned(self) -> None:
        self.phase = "ready"
        self.appeared()
        wanted = self.plan is not None and self.plan.confirm_count is not None
        self.query_one("#count_row").display = wanted
        self._draw()

    def _despite(self) -> dict[str, bool]:
        return {"despite_findings": True} if self.despite else {}

    @on(Input.Changed, "#reason")
    def _reason_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.phase in ("running", "over"):
            return
        self.phase = "planning"
        if self._settle is not None:
            self._settle.stop()
        self._settle = self.set_timer(SETTLE_S, self._replan)
        self._draw()

    @on(Input.Changed, "#count")
    def _count_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._draw()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        counting = self.query_one("#count_row").display and event.input.id == "reason"
        self.set_focus(self.query_one("#count" if counting else "#sheet"))

    def blocked(self) -> str:
        """Why `y` does nothing now; "" when it works."""
        if self.phase == "planning":
            return t("reading the scheduler")
        if self.plan is None or not self.plan.nodes:
            return t("there is nothing to do")
        if self.verb == "drain" and not self.reason:
            return t("a drain needs a reason (r)")
        wanted = self.plan.confirm_count
        if wanted is not None and self.count != wanted:
            return t("type {n} first: more nodes than the cap (tab)", n=wanted)
        return ""

    def action_yes(self) -> None:
        """Carry out the plan on the screen."""
        if self.phase in ("running", "over"):
            return
        if self.blocked():
            self.app.bell()
            return
        if not self.confirmed():
            self._draw()
            return
        self.phase = "running"
        self.query_one("#reason_row").display = False
        self.query_one("#count_row").display = False
        self.set_focus(self.query_one("#sheet"))
        self._draw()
        # Owned by the app: leaving this screen must not stop half-way through a list of nodes.
        self.app.run_worker(self._execute(), group="act", exit_on_error=False)

    async def _execute(self) -> None:
        app, plan = self.console_app, self.plan
        assert plan is not None
        app.acting += 1
        options = {"override": True} if self.override else {}
        try:
            async for step in app.engine.execute(plan, self.count, **options):
                self.steps.append(step)
                self._draw()
        except ConsoleError as error:
            self.trouble = str(error)
        except Exception as error:
            self.trouble = t("stopped by an internal error: {error}", error=repr(error))
            raise
        finally:
            app.acting -= 1
            self.phase = "over"
        if self.is_attached:
            self._draw()
        else:
            app.notify(f"{title(act(plan.verb), plan.nodes)}: {self._verdict()}", markup=False)

    def _verdict(self) -> str:
        if self.trouble:
            return self.trouble
        failed = {step.node for step in self.steps if not step.ok}
        return t("{n} failed", n=len(failed)) if failed else t("done")

    def _follow(self) -> None:
        if self.phase == "over":
            self._draw()

    def action_reason(self) -> None:
        """Change the reason."""
        if self.verb == "drain" and self.phase in ("planning", "ready"):
            self.set_focus(self.query_one("#reason"))

    def action_override(self) -> None:
        """Include nodes that somebody else drained; or leave them again."""
        if self.phase == "ready" and (self.override or (self.plan and self.plan.refused)):
            self.override = not self.override
            self._replan()

    def action_despite(self) -> None:
        """Resume nodes that are still sick too; or leave them again."""
        refused = self.plan is not None and bool(self.plan.refused)
        if self.verb == "resume" and self.phase == "ready" and (self.despite or refused):
            self.despite = not self.despite
            self._replan()

    def on_key(self, event: events.Key) -> None:
        """Whoever begins to type means the reason: the first letter opens it."""
        entry = self.query_one("#reason", Input)
        typing = isinstance(self.focused, Input) or self.phase not in ("planning", "ready")
        letter = (event.character or "").strip() if event.is_printable else ""
        if self.verb != "drain" or typing or not letter:
            return
        event.stop()
        entry.value = letter
        entry.cursor_position = len(entry.value)
        self.set_focus(entry)

    def action_leave(self) -> None:
        """From an input back to the plan; from the plan out."""
        if isinstance(self.focused, Input) and self.reason:
            self.set_focus(self.query_one("#sheet"))
        else:
            self.dismiss(self.phase in ("running", "over"))

    @on(Lines.Resized)
    def _draw(self) -> None:
        if not self.is_attached or not self.is_mounted:
            return
        sheet, hint = self.query_one("#sheet", Sheet), self.query_one("#hint", Lines)
        if not sheet.size.width:
            return
        sheet.show(self._lines(sheet.scrollable_size.width))
        hint.show([self._hint()])

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Which keys work depends on the focus."""
        self._draw()

    def _lines(self, width: int) -> list[Line]:
        glyphs, fleet = self.console_app.look.glyphs, self.console_app.fleet
        lines: list[Line] = []
        if self.phase in ("running", "over") and self.plan is not None:
            over = self.phase == "over"
            lines += outcome_lines(self.plan, self.steps, fleet, glyphs, width, over=over)
            if self.trouble:
                failed = t("{act} failed", act=act(self.verb))
                lines[0] = (Cell(failed, "critical"),)
        elif self.plan is not None:
            lines += plan_lines(self.plan, glyphs, width)
        else:
            lines.append((Cell(title(act(self.verb), self.names), "title"),))
        if self.phase in ("planning", "ready"):
            lines += self.of_now()
            lines += [(Cell(text, "critical"),) for text in self._overrides()]
        if self.trouble:
            lines.append((Cell(plain(self.trouble), "critical"),))
        return lines

    def _overrides(self) -> list[str]:
        told = []
        if self.override and self.verb == "drain":
            told = [t("OVERRIDE: also nodes that others drained; their reasons are kept in ours")]
        elif self.override:
            told = [t("OVERRIDE: also nodes that others drained")]
        return told + ([t("ALSO nodes that are still sick")] if self.despite else [])

    def _hint(self) -> Line:
        if self.phase == "running":
            return Cell(t("working; "), "dim"), *hints(("esc", t("back")))
        if self.phase == "over":
            return hints(("esc", t("back")))
        if isinstance(self.focused, Input):
            return hints(("enter", t("when the text is right")), ("esc", t("cancel")))
        now = t("drain now") if self.verb == "drain" else t("resume now")
        yes = self.yes(self.blocked(), now)
        return (*yes, Cell("   "), *hints(*self._choices(), ("esc", t("cancel"))))

    def _choices(self) -> Iterator[tuple[str, str]]:
        if self.verb == "drain":
            yield "r", t("reason")
        if self.override or (self.plan is not None and self.plan.refused):
            yield "O", t("others' drains")
            if self.verb == "resume":
                yield "I", t("still sick")


def _entry(name: str) -> Input:
    entry = Input(id=name, compact=True, select_on_focus=False)
    entry.cursor_blink = False
    return entry
