"""The composition root: theme, one tick a second, the engine as a worker, leaving cleanly.

Screens read the Fleet; nothing here draws. Collecting starts after the first frame, because opening
sessions imports SSH and costs more than painting.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import RenderableType
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen
from textual.timer import Timer
from textual.worker import Worker, WorkerError, WorkerState

from console.collector import calm_collector
from console.fleet import Fleet
from console.preferences import Preferences
from console.settings import state_dir
from console.tui import commands, keymap
from console.tui.announce import Announcer, News, notice
from console.tui.engine import Engine
from console.tui.history import History
from console.tui.paint import cropped, forget_lines
from console.tui.roster import Roster
from console.tui.screens.acting import ActingScreen
from console.tui.screens.fleet import FleetScreen
from console.tui.screens.prompting import PromptingScreen
from console.tui.terminal import HangUp, Terminal
from console.tui.text import plain
from console.tui.theme import ON_BLACK, OWN_GROUND, Look, look_here, word
from console.tui.trail import Place, Trail
from console.tui.views import VIEW_IDS
from console.tui.words import t
from inventory.errors import ConsoleError, UsageError
from probes.event import Finding

if TYPE_CHECKING:
    from console.active.ask import CampaignPlan
    from console.active.campaign import Campaigner
    from console.recording.player import Player
    from console.recording.recorder import Recorder
    from console.tui.bench import Bench
    from console.tui.widgets.tour import Tour

TICK_S = 1.0
SLICE_S = 0.004
"""Work between two chances for a key: a quarter of a frame at 60 Hz."""
BREATH_S = 0.004
"""Pause between slices. A key passes through some six turns of the loop until it is painted; with
a mere sleep(0) each of them would wait for a slice."""
JUDGING_S = 0.1
"""Of each tick, at most this much goes to judging; what is left waits for the next one. Judging a
node takes 0.3 ms, so up to some 300 nodes are judged every second, 1,000 every 3 s; what is urgent
(Fleet.tick) never waits."""
STOPPING_S = 6.0
"""For a test to end when the operator leaves: agents need up to 3 s. After that they end it
themselves, as their session is gone."""
SETTLED_S = 0.2
"""After the last resize, before everything is sent again."""
GONE = 129
"""Exit code when the terminal went away: 128 + SIGHUP, as a shell would report it."""


class Palette(Provider):
    """The commands of the screen below, by their words."""

    def _commands(self) -> list[tuple[commands.Command, Callable[[], Any]]]:
        screen, app = self.screen, self.app
        if not isinstance(screen, ActingScreen) or not isinstance(app, ConsoleApp):
            return []
        modes = (screen.SCREEN_NAME, *(commands.REPLAY if app.player else ()))
        offered = [
            command
            for mode in modes
            for command in commands.offered(mode, read_only=app.engine.read_only, keys=app.keymap)
        ]
        return [(c, partial(screen.run_action, c.does)) for c in offered if c.palette]

    async def discover(self) -> Hits:
        """Everything, before anything is typed."""
        for command, run in self._commands():
            yield DiscoveryHit(_entry(command), run, help=t(command.help))

    async def search(self, query: str) -> Hits:
        """Commands whose label or help matches."""
        matcher = self.matcher(query)
        for command, run in self._commands():
            label, told = _entry(command), t(command.help)
            # Who reads Chinese may still type the word of the `:` line.
            helps = max(matcher.match(text) for text in (told, command.help))
            score = max(matcher.match(label), matcher.match(command.label), helps * 0.5)
            if score > 0:
                yield Hit(score, matcher.highlight(label), run, help=told)


def _entry(command: commands.Command) -> str:
    return f"{t(command.label)} ({command.shown})"


class ConsoleApp(App[None]):
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
        self.roster = Roster(engine.fleet)
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

    @property
    def fleet(self) -> Fleet:
        """The engine's memory of all nodes."""
        return self.engine.fleet

    @property
    def paused(self) -> bool:
        """Whether what is shown is frozen."""
        return self.paused_at is not None

    @property
    def paused_s(self) -> float | None:
        """How long it has been frozen."""
        return None if self.paused_at is None else self.clock() - self.paused_at

    def now(self) -> float:
        """The moment the screen shows: the present, or when it was frozen."""
        return self.clock() if self.paused_at is None else self.paused_at

    def errors(self) -> tuple[str, ...]:
        """Trouble that is nobody's node: the scheduler, the collector itself."""
        told = tuple(f"{what}: {text}" for what, text in getattr(self.fleet, "errors", {}).items())
        forgets = getattr(getattr(self.engine, "memory", None), "trouble", "")
        recorder = self.recorder
        broken = f"recording {recorder.trouble}" if recorder and recorder.trouble else ""
        return tuple(text for text in (self._trouble, *told, forgets, broken) if text)

    @property
    def recorder(self) -> Recorder | None:
        """What writes a recording now."""
        return getattr(self.engine, "recorder", None)

    def get_default_screen(self) -> FleetScreen:
        """The fleet."""
        return self._fleet_screen

    def go(self, view: str) -> None:
        """Show a view, from wherever the operator is. Its cursor and scroll are as they left it."""
        self._show_view(view)
        self.trail.visit(Place(view))

    def _show_view(self, view: str) -> None:
        while len(self.screen_stack) > 1:
            self.pop_screen()
        if view == "fleet":
            return
        if view not in self._views:
            module = importlib.import_module(f"console.tui.screens.{view}")
            self._views[view] = module.screen(self)
            self.install_screen(self._views[view], view)
        self.push_screen(view)

    def pop_screen(self) -> AwaitComplete:
        """As Textual's, and nothing of the screen is kept."""
        popped = super().pop_screen()
        forget_lines()
        return popped

    @property
    def view(self) -> str:
        """The view shown, or the one below a node or a campaign."""
        names = [getattr(screen, "SCREEN_NAME", "") for screen in self.screen_stack]
        return next((name for name in reversed(names) if name in VIEW_IDS), "fleet")

    def open_node(self, name: str, at: tuple[str, str] | None = None) -> None:
        """Show a node over the view, `at` a finding (rule, device) of it.

        Raises UsageError for a node that is not in the inventory.
        """
        if name not in self.roster.index:
            raise UsageError(t("there is no node {name} in the inventory", name=repr(name)))
        if self.here.node:
            self._show_view(self.view)
        self._show_node(name, at)
        self.trail.visit(self.here)

    def _show_node(self, name: str, at: tuple[str, str] | None = None) -> None:
        from console.tui.screens.node import NodeScreen

        self.push_screen(NodeScreen(name, at))

    def open_campaign(self, name: str) -> None:
        """Show an active test, by its id."""
        self._show_campaign(name)
        self.trail.visit(self.here)

    def _show_campaign(self, name: str) -> None:
        from console.tui.screens.campaigns import CampaignScreen

        self.push_screen(CampaignScreen(name))

    def close_node(self) -> None:
        """From a node or a test back to what is below."""
        self.pop_screen()
        self.trail.visit(self.here)

    @property
    def here(self) -> Place:
        """The view with what was opened over it."""
        place = Place(self.view)
        for screen in self.screen_stack:
            opened = str(getattr(screen, "about", ""))
            match getattr(screen, "SCREEN_NAME", ""):
                case "node":
                    place = place._replace(node=opened, campaign="")
                case "campaign":
                    place = place._replace(node="", campaign=opened)
        return place

    def move(self, steps: int) -> None:
        """Along the trail, back (negative) or forward."""
        place = self.trail.move(steps)
        if place is None:
            self.notify(t("nothing further that way"))
            return
        self._show_view(place.view)
        if place.node:
            self._show_node(place.node)
        if place.campaign:
            self._show_campaign(place.campaign)

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

    def set_theme(self, name: str) -> None:
        """Show another theme at once. Raises UsageError for one that does not exist."""
        self.look.use(name)
        self.theme = self.look.widgets.name
        for screen in {*self.screen_stack, *self._views.values()}:
            for widget in screen.query("*"):
                widget.refresh()

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

    async def _ticks(self, every_s: float) -> None:
        while True:
            started = time.monotonic()
            await self.tick()
            await asyncio.sleep(max(every_s / 5, every_s - (time.monotonic() - started)))

    async def tick(self) -> None:
        """Judge what changed, in slices, then let the screen on top read the Fleet once."""
        if len(self._answered) < len(self.fleet.seen):
            for name in self.fleet.seen.keys() - self._answered.keys():
                self._answered[name] = self.clock()
        if self.player is None:
            await self._judge()
        self._ring()
        if not self.paused:
            self._changed(self.fleet.take_dirty())
            if self.roster.reads_values:
                await self.read_all()
        screen = self.screen
        if isinstance(screen, ActingScreen) and screen.is_mounted:
            screen.redraw(self.now())
            screen.draw_replay()

    def _follow(self, player: Player) -> None:
        """Show each moment that the player completes."""
        player.moved, player.jumped, player.told = self.tick, self.roster.forget, self._draw_replay
        for command in commands.offered("replay", read_only=True, keys=self.keymap):
            if command.keys:
                does = command.does.removeprefix("app.")
                self.bind(",".join(command.keys), does, description=command.label, show=False)

    def _draw_replay(self) -> None:
        if isinstance(self.screen, ActingScreen) and self.screen.is_mounted:
            self.screen.draw_replay()

    def action_replay_step(self, seconds: int) -> None:
        """Some seconds on or back, and stop there."""
        if self.player is not None:
            self.player.step(seconds)

    def action_replay_seek(self, text: str) -> None:
        """To another moment."""
        if self.player is not None:
            self.player.seek(text)

    def action_replay_faster(self, steps: int) -> None:
        """Another speed."""
        if self.player is not None:
            self.player.faster(steps)

    async def end_recording(self) -> Recorder | None:
        """End the file being written, without waiting for its disk."""
        return await asyncio.to_thread(self.engine.stop_recording)

    def _changed(self, names: set[str]) -> None:
        self.roster.changed(names)
        for view in self._views.values():
            if isinstance(view, PromptingScreen):
                view.changed(names)

    async def read_all(self) -> None:
        """Bring every node's summary up to date, in slices that give way to keys."""
        while not self.roster.build(SLICE_S):  # noqa: ASYNC110 - gives way to keys
            await asyncio.sleep(BREATH_S)

    async def _judge(self) -> None:
        spent = 0.0
        while spent < JUDGING_S:
            started = time.perf_counter()
            self.fleet.tick(self.clock(), SLICE_S)
            took = time.perf_counter() - started
            if took < SLICE_S:
                return
            spent += took
            await asyncio.sleep(BREATH_S)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if not isinstance(self._driver, Terminal) or self._driver.ready():
            super()._display(screen, cropped(renderable))

    def history(self, kind: str) -> History:
        """Lines typed at a prompt, also before and in other consoles."""
        if kind not in self._histories:
            folder = getattr(self.engine, "state", None) or state_dir()
            self._histories[kind] = History(folder / "typed", kind)
        self._histories[kind].load()
        return self._histories[kind]

    def read_now(self) -> None:
        """Ask the schedulers without waiting for their turn; a replay has none to ask."""
        read = getattr(self.engine, "read_schedulers", None)
        if read is not None:
            self.run_worker(read(), name="read", group="read", exit_on_error=False, exclusive=True)
        self.notify(t("reading the schedulers") if read else t("painted again"))
        self.repaint()

    def on_resize(self) -> None:
        """A terminal that changed its size lost what it showed, also when it is as before again:
        Textual would then draw nothing."""
        if self._resized is not None:
            self._resized.stop()
        self._resized = self.set_timer(SETTLED_S, self.repaint)

    def repaint(self) -> None:
        """Send the whole screen again, whatever the terminal is believed to show."""
        if not self._screen_stack:
            return  # a resize just before leaving
        compositor = self.screen._compositor
        whole = compositor.render_update(full=True, screen_stack=self._background_screens)
        self._display(self.screen, whole)

    def copy_to_clipboard(self, text: str) -> None:
        """By OSC 52, also out of tmux and screen; a text that is too long is not sent."""
        from console.tui import copying

        self._clipboard = text
        self.escape(copying.osc52(text, os.environ))

    def escape(self, sequence: str) -> None:
        """Send a sequence to the terminal."""
        if sequence and self._driver is not None:
            self._driver.write(sequence)

    def news(self) -> News | None:
        """What is new, for the screen on top to draw."""
        return self.announcer.news(self.look.glyphs, self.clock(), paused=self.paused)

    def _ring(self) -> None:
        told = self.announcer.ring(self.clock(), paused=self.paused)
        if not told:
            return
        from console.tui import copying

        if self.preferences.bell:
            self.escape("\a")
        self.escape(copying.passed(notice(self.preferences.notify, told), os.environ))

    def toggle_pause(self) -> None:
        """Freeze what is shown, or catch up. Collecting and judging go on; a replay stops."""
        if self.player is not None:
            self.player.toggle()
        elif self.paused:
            self.paused_at = None
            self.roster.thaw()
            self._changed(self.fleet.take_dirty())
        else:
            self._changed(self.fleet.take_dirty())
            self.roster.freeze()
            self.paused_at = self.clock()

    def acknowledge(self, *findings: Finding) -> None:
        """The operator has seen them."""
        if self.player is not None:
            self.notify(t("a replay acknowledges nothing: what was found then stays as it was"))
            return
        for finding in findings:
            self.fleet.acknowledge(finding.node, finding.rule, finding.device)
        self.fleet.tick(self.clock(), SLICE_S)
        self._changed(self.fleet.take_dirty())
        first, more = findings[0], len(findings) - 1
        said = plain(first.say)
        if more:
            said = t("{what} (and {n} more)", what=said, n=more)
        self.notify(t("acknowledged: {what}", what=said), markup=False)

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

    @property
    def deliberate(self) -> bool:
        """The last key was pressed by itself: only then a confirmation counts."""
        return getattr(self._driver, "deliberate", True)

    def flooded(self) -> None:
        """More came at once than anybody types."""
        self.notify(t("a paste was left out: nothing here takes one"), severity="warning")

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
