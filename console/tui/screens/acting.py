"""What both main screens can do: act on nodes, copy, log in, pause, help, leave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual import work
from textual.widgets import Input

from console.tui import commands
from console.tui.plan_view import shown_path
from console.tui.screens.taking import PATH_SHOWN_S, TakingScreen
from console.tui.words import t
from inventory.errors import ConsoleError
from inventory.expressions import fold

if TYPE_CHECKING:
    from console.active.ask import CampaignPlan


class ActingScreen(TakingScreen):
    """A screen with nodes to act on. Subclasses say which and how to draw themselves."""

    AUTO_FOCUS = ""
    about = ""
    """The node or the test that it was opened for."""

    @property
    def modes(self) -> tuple[str, ...]:
        """Keys into Command.screens of what can be done here: this screen, and a replay on it."""
        return (self.SCREEN_NAME, *(commands.REPLAY if self.console_app.player else ()))

    def offered(self) -> list[commands.Command]:
        """What can be done here."""
        app, found = self.console_app, []
        limits = {"read_only": app.engine.read_only, "replay": app.player is not None}
        for mode in self.modes:
            found += commands.offered(mode, keys=app.keymap, **limits)
        return found

    def redraw(self, now: float) -> None:
        """Bring the screen up to date with the Fleet."""
        raise NotImplementedError

    def draw_lines(self) -> None:
        """Redraw what does not depend on new data (a bar was resized, a mode changed)."""
        self.redraw(self.console_app.now())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Acting commands do not exist in read-only mode; while text is typed, none does."""
        if action in commands.ACTIONS and isinstance(self.focused, Input):
            return False
        app = self.app
        read_only = bool(getattr(getattr(app, "engine", None), "read_only", True))
        return commands.allowed(action, read_only=read_only)

    def action_drain(self, reason: str = "") -> None:
        """Plan, confirm, drain, show what the scheduler says."""
        self._act("drain", reason)

    def action_resume(self, reason: str = "") -> None:
        """Plan, confirm, resume, show what the scheduler says."""
        self._act("resume", reason)

    def _act(self, verb: str, reason: str) -> None:
        from console.tui.screens.confirm import Confirm

        if names := self.some():
            self.app.push_screen(Confirm(verb, names, reason), self._acted)

    def _acted(self, done: bool | None) -> None:
        self.redraw(self.console_app.now())

    def action_test(self) -> None:
        """Ask for the level, show who would be tested, then test; the campaign is shown."""
        from console.tui.screens.launch import Launch

        # At once: keys typed ahead belong to the dialog, not to what is under it.
        if names := self.some():
            self.app.push_screen(Launch(names), self._asked)

    def _asked(self, plan: CampaignPlan | None) -> None:
        if plan is not None:
            self.console_app.start_test(plan)
            self.console_app.open_campaign(plan.id)

    def action_view(self, view: str) -> None:
        """Go to one of the numbered views."""
        self.console_app.go(view)

    def action_go_back(self) -> None:
        """To the place before."""
        self.console_app.move(-1)

    def action_go_forward(self) -> None:
        """To the place after."""
        self.console_app.move(1)

    def action_evidence(self) -> None:
        """Gather bundles of the chosen nodes; nothing is changed, so nothing is asked."""
        if self.steady() and (names := self.some()):
            self.notify(t("gathering evidence of {names}", names=fold(names)), markup=False)
            self._gather(names)

    @work(exit_on_error=False, group="evidence")
    async def _gather(self, names: Sequence[str]) -> None:
        try:
            async for kept in self.console_app.engine.gather(names, "asked for in the console"):
                folder, name = os.path.split(kept.path)
                where = shown_path(folder)
                note = f"\n{kept.note}" if kept.note else ""
                self.notify(
                    t("{node}: evidence kept in {folder}", node=kept.node, folder=where)
                    + f"\n{name}{note}",
                    severity="information" if kept.answered else "warning",
                    timeout=PATH_SHOWN_S,
                    markup=False,
                )
        except (ConsoleError, OSError) as error:
            self.notify(t("evidence: {error}", error=error), severity="error", markup=False)

    def action_ssh(self, name: str = "") -> None:
        """Log in to one node."""
        if (name or self.steady()) and (target := self.named(name)):
            self._login(target)

    @work(exit_on_error=False, group="act")
    async def _login(self, name: str) -> None:
        argv = self.console_app.engine.ssh_command(name)
        with self.app.suspend(), _no_interrupt():
            try:
                # Not a blocking call: sessions, keepalives and the agents' output go on.
                process = await asyncio.create_subprocess_exec(*argv)
                rc = await process.wait()
            except OSError as error:
                rc = 255
                _say(f"{argv[0]}: {error.strerror}")
            if rc == 255:
                _say(t("press Enter to go back"))
                await asyncio.to_thread(sys.stdin.readline)
        self.call_after_refresh(self.console_app.repaint)

    def action_pause(self) -> None:
        """Freeze or thaw what is shown."""
        self.console_app.toggle_pause()
        self.redraw(self.console_app.now())

    def action_help(self) -> None:
        """Show keys and signs."""
        from console.tui.screens.help import Help

        self.app.push_screen(Help(self.SCREEN_NAME))

    def action_palette(self) -> None:
        """Search all commands."""
        self.app.action_command_palette()

    def action_quit(self) -> None:
        """Leave."""
        self.console_app.leave()


def _say(text: str) -> None:
    """A line on the terminal while the console is not on it."""
    if sys.__stdout__ is not None:
        print(text, file=sys.__stdout__, flush=True)


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C belongs to the program in front; a handler, unlike SIG_IGN, is not inherited by it."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
