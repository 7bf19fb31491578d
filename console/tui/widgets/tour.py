"""The panel of the tour: docked below whatever screen is shown, so that it covers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.screen import Screen, SystemModalScreen
from textual.timer import Timer

from console.tui.commands import BY_ID
from console.tui.text import Cell, Line, cut, width_of, wrap
from console.tui.tour import CONFIRM, HELP, STEPS, Progress, Scene, begin
from console.tui.widgets.grid import Grid
from console.tui.widgets.sheet import Lines
from console.tui.words import t
from probes.event import Severity

if TYPE_CHECKING:
    from typing import Any

    from console.tui.app import ConsoleApp

LOOK_S = 0.2
"""Between two looks at what the operator did."""
OUT = ("draining", "drained")
"""States of a node out of work."""


class TourPanel(Lines):
    """A rule with the step's number, and its sentence."""

    DEFAULT_CSS = "TourPanel { dock: bottom; height: 3; overflow: hidden hidden; }"


class Tour:
    """Follows the operator from step to step, across screens."""

    def __init__(self, app: ConsoleApp) -> None:
        """Begin."""
        self._app = app
        self.progress: Progress = begin(scene(app))
        self._panel: TourPanel | None = None
        self._timer: Timer = app.set_interval(LOOK_S, self.follow)
        self.follow()

    @property
    def step(self) -> str:
        """The id of the step, "" when the tour is over."""
        return "" if self.progress.over else STEPS[self.progress.at].id

    def follow(self) -> None:
        """Look at the screen; go on when the step was followed."""
        now = scene(self._app)
        self.progress = self.progress.follow(now)
        self._show(now)

    def skip(self) -> None:
        """The next step."""
        self.progress = self.progress.skip(scene(self._app))
        self.follow()

    def end(self) -> None:
        """Leave it, and no trace on the screen."""
        self._timer.stop()
        self._remove()
        self._app.tour = None

    def _show(self, now: Scene) -> None:
        if self.progress.over:
            self.end()
            return
        screen = self._app.screen
        if isinstance(screen, SystemModalScreen) or not screen.is_mounted:
            return
        if self._panel is None or self._panel.parent is not screen:
            self._remove()
            self._panel = TourPanel(self._app.look)
            screen.mount(self._panel)
        width = max(20, self._app.size.width)
        lines = self._lines(now, width)
        self._panel.styles.height = len(lines)
        self._panel.show(lines)

    def _remove(self) -> None:
        if self._panel is not None:
            self._panel.remove()
            self._panel = None

    def _lines(self, now: Scene, width: int) -> list[Line]:
        rule = self._app.look.glyphs.rule
        head = t(
            "tour {n} of {all}: {key} goes on, esc in the fleet ends it",
            n=self.progress.at + 1,
            all=len(STEPS),
            key=self._key("tour"),
        )
        head = cut(f"{rule * 2} {head} ", width)
        text = self.progress.text(now, self._key)
        lines = [(Cell(f" {line}", "title"),) for line in wrap(text, width - 2)]
        return [(Cell(head + rule * (width - width_of(head)), "key"),), *lines]

    def _key(self, command: str) -> str:
        own = self._app.keymap.get(command)
        if own:
            from console.tui.keymap import shown

            return shown(own[0])
        return BY_ID[command].shown


def scene(app: ConsoleApp) -> Scene:
    """What the operator has before them."""
    from console.tui.screens.confirm import Confirm

    screen, fleet = app.screen, app.fleet
    grid = next(iter(screen.query(Grid)), None)
    cursor = grid.cursor if grid else None
    confirm = screen if isinstance(screen, Confirm) else None
    every = fleet.allocations(fleet.nodes)
    return Scene(
        screen=_name(screen),
        sick=any(fleet.verdict(name) is Severity.CRITICAL for name in fleet.nodes),
        cursor=cursor,
        moved=grid is not None and grid.touched,
        on_critical=cursor in fleet.nodes and fleet.verdict(cursor) is Severity.CRITICAL,
        walking=getattr(screen, "selected", None) is not None,
        marked=len(app.roster.marked),
        plan=confirm.verb if confirm else "",
        ours=frozenset(n for n, one in every.items() if one.ours and one.state in OUT),
        filter=app.roster.filter.text,
        typing=getattr(screen.focused, "id", "") == "entry",
    )


def _name(screen: Screen[Any]) -> str:
    from console.tui.screens.confirm import Confirm
    from console.tui.screens.help import Help

    if isinstance(screen, Confirm):
        return CONFIRM
    if isinstance(screen, Help):
        return HELP
    return str(getattr(screen, "SCREEN_NAME", "")) or type(screen).__name__
