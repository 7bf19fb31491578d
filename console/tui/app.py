"""The composition root: theme, one tick a second, the engine as a worker, leaving cleanly.

Screens read the Fleet; nothing here draws. Collecting starts after the first frame, because opening
sessions imports SSH and costs more than painting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.screen import Screen
from textual.timer import Timer
from textual.worker import Worker, WorkerError, WorkerState

from console.collector import calm_collector
from console.preferences import Preferences
from console.tui import keymap
from console.tui.announce import Announcer
from console.tui.engine import Engine
from console.tui.history import History
from console.tui.palette import Palette
from console.tui.roster import Roster
from console.tui.screens.fleet import FleetScreen
from console.tui.still import Still
from console.tui.terminal import HangUp, Terminal
from console.tui.text import plain
from console.tui.theme import ON_BLACK, OWN_GROUND, Look, look_here, word
from console.tui.ticking import Ticking
from console.tui.trail import Place, Trail
from console.tui.words import t
from inventory.errors import ConsoleError

if TYPE_CHECKING:
    from console.active.ask import CampaignPlan
    from console.active.campaign import Campaigner
    from console.recording.player import Player
    from console.recording.recorder import Recorder
    from console.tui.bench import Bench
    from console.tui.widgets.tour import Tour

TICK_S = 1.0
STOPPING_S = 6.0
"""For a test to end when the operator leaves: agents need up to 3 s. After that they end it
themselves, as their session is gone."""
GONE = 129
"""Exit code when the terminal went away: 128 + SIGHUP, as a shell would report it."""


class ConsoleApp(Ticking):
    """The live console over an engine."""

    CSS_PATH = "console.tcss"
    TITLE = "gpuconsole"
    NOTIFICATION_TIMEOUT = 3
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {Palette}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", "quit", show=False, priority=True),
        Binding("ctrl+q", "leave", "quit", show=False, priority=True),
        # Of the app, so that it works over dialogs too.
        Binding("ctrl+t", "tour", "tour", id="tour", show=False, priority=True),
        # Textual would bind it without an id, and so out of reach of the operator's own keys.
        Binding("ctrl+p", "command_palette", "palette", id="palette", show=False, priority=True),
    ]

    def __init__(
        self,
        engine: Engine,
        *,
        look: Look | None = None,
        preferences: Preferences | None = None,
        clock: Callable[[], float] = time.time,
        tick_s: float | None = TICK_S,
        demo: bool = False,
        tour: bool = False,
    ) -> None:
        """`tick_s` None leaves ticking to the caller (tests and benchmarks); so does `clock`.

        UsageError when a preferred key cannot be had.
        """
        self.preferences = preferences or Preferences()
        self.keymap = keymap.keymap(self.preferences.keys)
        # Textual removes NO_COLOR from the environment, so the look is decided first.
        likes, encoding = self.preferences, getattr(sys.__stderr__, "encoding", None)
        self.look = look or look_here(encoding, theme=likes.theme, ascii=bool(likes.ascii))
        super().__init__(driver_class=Terminal, ansi_color=True)
        self.animation_level = "none"
        self.engine = engine
        self.player: Player | None = getattr(engine, "player", None)
        """Set when a recording is shown: then it is the player that ticks."""
        self.clock = clock
        self.tick_s = tick_s
        self.acting = 0
        """Plans being carried out now."""
        self.still = Still(engine.fleet)
        self.roster = Roster(self.still)
        self.paused_at: float | None = None
        self._collector: Worker[None] | None = None
        self._testing: Worker[None] | None = None
        self._hang_up: HangUp | None = None
        self._trouble = ""
        self._asked_to_leave = False
        self._resized: Timer | None = None
        self.demo = demo
        """Nodes are simulated: the tour may drain one."""
        self.tour: Tour | None = None
        self._tour_wanted = tour
        self._answered: dict[str, float] = {}
        """Node -> when it was first seen to answer."""
        self.announcer = Announcer(self._answered.get, clock)
        engine.fleet.taps.append(self.announcer.heard)
        self._histories: dict[str, History] = {}
        self.trail = Trail()
        self.trail.visit(Place("fleet"))
        self._fleet_screen = FleetScreen(self.roster)
        self._views: dict[str, Screen[None]] = {}
        """Views that were opened once."""

    @cached_property
    def bench(self) -> Bench:
        """Active tests. Imported when first needed: the first frame does without."""
        from console.tui.bench import Bench

        return Bench(self.engine)

    def errors(self) -> tuple[str, ...]:
        """Trouble that is nobody's node: the scheduler, the collector itself."""
        told = tuple(f"{what}: {text}" for what, text in self.still.errors.items())
        forgets = getattr(getattr(self.engine, "memory", None), "trouble", "")
        recorder = self.recorder
        broken = f"recording {recorder.trouble}" if recorder and recorder.trouble else ""
        return tuple(text for text in (self._trouble, *told, forgets, broken) if text)

    @property
    def recorder(self) -> Recorder | None:
        """What writes a recording now."""
        return self.engine.recorder

    def on_mount(self) -> None:
        """Paint first, collect after."""
        for theme in (OWN_GROUND, ON_BLACK):
            self.register_theme(theme)
        self.theme = self.look.widgets.name
        self.set_keymap(keymap.textual(self.keymap))
        self._watch_terminal()
        if self.player is not None:
            self._follow(self.player)
        if self.preferences.start != "fleet":
            self.call_after_refresh(self.go, self.preferences.start)
        self.call_after_refresh(self._start)
        if self._tour_wanted:
            self.call_after_refresh(self.action_tour)

    def _watch_terminal(self) -> None:
        loop = asyncio.get_running_loop()
        if self.is_headless:
            return
        for number in (signal.SIGHUP, signal.SIGTERM):
            loop.add_signal_handler(number, self._terminal_gone)
        if sys.__stdin__ is not None and os.isatty(sys.__stdin__.fileno()):
            self._hang_up = HangUp(sys.__stdin__.fileno(), self._terminal_gone)

    def _terminal_gone(self) -> None:
        self.exit(return_code=GONE)

    def _fatal_error(self) -> None:
        """Leave in good order: whoever runs the app tells the error in a line and logs the rest."""
        self._close_messages_no_wait()

    def _start(self) -> None:
        self._collector = self.run_worker(
            self.engine.run(), name="engine", group="engine", exit_on_error=False
        )
        if self.tick_s is not None and self.player is None:
            self.run_worker(self._ticks(self.tick_s), group="tick", exit_on_error=False)
        calm_collector()

    async def end_recording(self) -> Recorder | None:
        """End the file being written, without waiting for its disk."""
        return await asyncio.to_thread(self.engine.stop_recording)

    def history(self, kind: str) -> History:
        """Lines typed at a prompt, also before and in other consoles."""
        if kind not in self._histories:
            self._histories[kind] = History(self.engine.state / "typed", kind)
        self._histories[kind].load()
        return self._histories[kind]

    def read_now(self) -> None:
        """Ask the schedulers without waiting for their turn; a replay has none to ask."""
        read = getattr(self.engine, "read_schedulers", None)
        if read is not None:
            self.run_worker(read(), name="read", group="read", exit_on_error=False, exclusive=True)
        self.notify(t("reading the schedulers") if read else t("painted again"))
        self.repaint()

    def start_test(self, plan: CampaignPlan) -> None:
        """Run a confirmed plan; it goes on whatever screen is shown."""
        self.bench.running = campaigner = self.bench.make(plan)
        self._testing = self.run_worker(
            self._run_test(campaigner), name="test", group="test", exit_on_error=False
        )

    async def _run_test(self, campaigner: Campaigner) -> None:
        from console.active.figures import worst_first

        try:
            campaign = await campaigner.run()
        finally:
            self.bench.last, self.bench.running = campaigner.campaign, None
        worst = worst_first(campaign)
        said = f": {plain(worst[0].say)}" if worst else ""
        how = t("stopped") if campaign.interrupted else word(campaign.verdict)
        told = t("{level} test over, {how}{said}", level=campaign.level, how=how, said=said)
        self.notify(told, markup=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker that failed says so on the screen, and the rest goes on."""
        if event.state is not WorkerState.ERROR:
            return
        error = event.worker.error
        told = str(error) if isinstance(error, ConsoleError) else repr(error)
        if event.worker.group == "engine":
            self._trouble = plain(t("collecting stopped: {why}", why=told))
        else:
            self.notify(plain(told), severity="error", markup=False)
        self.log.error(told)

    def action_tour(self) -> None:
        """Begin the guided tour; within it, go on to the next step."""
        from console.tui.widgets.tour import Tour

        if self.tour is not None:
            self.tour.skip()
        elif self.demo:
            self.tour = Tour(self)
        else:
            self.notify(t("the tour drains a node: gpuconsole --demo --tour"), markup=False)

    def action_leave(self) -> None:
        """Leave, by ctrl-c."""
        self.leave()

    def leave(self) -> None:
        """Leave; while a plan is being carried out or a test runs only the second time."""
        testing = self._testing is not None and not self._testing.is_finished
        if (self.acting or testing) and not self._asked_to_leave:
            self._asked_to_leave = True
            acting = t("a plan is being carried out; again to leave anyway")
            testing_now = t("a test is running; again to leave anyway")
            self.notify(acting if self.acting else testing_now, severity="warning")
            return
        if testing:
            self.run_worker(self._leave_after_test(), group="leave", exit_on_error=False)
        else:
            self.exit()

    async def _leave_after_test(self) -> None:
        """The agents end the test and what was measured is kept, while they can be reached."""
        if self._testing is not None and self.bench.running is not None:
            self.bench.running.stop()
            with contextlib.suppress(WorkerError, TimeoutError):
                async with asyncio.timeout(STOPPING_S):
                    await self._testing.wait()
        self.exit()

    async def on_unmount(self) -> None:
        """Agents are gone before the terminal is given back to the shell."""
        if self._hang_up is not None:
            self._hang_up.close()
        if self._collector is not None:
            self._collector.cancel()
            with contextlib.suppress(WorkerError, asyncio.CancelledError):
                await self._collector.wait()
