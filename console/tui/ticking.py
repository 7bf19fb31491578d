"""Once a second: judge what changed, show it; or show each moment of a recording."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from console.tui import commands
from console.tui.keymap import Keymap
from console.tui.screens.acting import ActingScreen
from console.tui.screens.prompting import PromptingScreen
from console.tui.still import Still
from console.tui.text import plain
from console.tui.walking import Walking
from console.tui.words import t
from probes.event import Finding

if TYPE_CHECKING:
    from console.recording.player import Player

SLICE_S = 0.004
"""Work between two chances for a key: a quarter of a frame at 60 Hz."""
BREATH_S = 0.004
"""Pause between slices. A key passes through some six turns of the loop until it is painted; with
a mere sleep(0) each of them would wait for a slice."""
JUDGING_S = 0.1
"""Of each tick, at most this much goes to judging; what is left waits for the next one. Judging a
node takes 0.3 ms, so up to some 300 nodes are judged every second, 1,000 every 3 s; what is urgent
(Fleet.tick) never waits."""


class Ticking(Walking):
    """An app that follows its Fleet."""

    keymap: Keymap
    still: Still
    player: Player | None
    """Set when a recording is shown: then it is the player that ticks."""
    _answered: dict[str, float]
    """Node -> when it was first seen to answer."""

    @property
    def paused_s(self) -> float | None:
        """How long it has been frozen."""
        return None if self.paused_at is None else self.clock() - self.paused_at

    def now(self) -> float:
        """The moment the screen shows: the present, or when it was frozen."""
        return self.clock() if self.paused_at is None else self.paused_at

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

    async def read_all(self) -> None:
        """Bring every node's summary up to date, in slices that give way to keys."""
        while not self.roster.build(SLICE_S):  # noqa: ASYNC110 - gives way to keys
            await asyncio.sleep(BREATH_S)

    def _changed(self, names: set[str]) -> None:
        self.roster.changed(names)
        for view in self._views.values():
            if isinstance(view, PromptingScreen):
                view.changed(names)

    def toggle_pause(self) -> None:
        """Freeze what is shown, or catch up. Collecting and judging go on; a replay stops."""
        if self.player is not None:
            self.player.toggle()
        elif self.paused:
            self.paused_at = None
            self.still.follow()
            self.run_worker(self._forget(), group="forget", exit_on_error=False, exclusive=True)
            self._changed(self.fleet.take_dirty())
        else:
            self._changed(self.fleet.take_dirty())
            self.paused_at = self.clock()
            self.still.hold(self.paused_at)
            self.announcer.hold()

    async def _forget(self) -> None:
        while self.still.forget():  # noqa: ASYNC110 - gives way to keys
            await asyncio.sleep(BREATH_S)

    def acknowledge(self, *findings: Finding) -> None:
        """The operator has seen them."""
        if self.player is not None:
            self.notify(t("a replay acknowledges nothing: what was found then stays as it was"))
            return
        for finding in findings:
            self.still.acknowledge(finding.node, finding.rule, finding.device)
        self.fleet.tick(self.clock(), SLICE_S)
        news = {finding.node for finding in findings}
        self._changed(news if self.paused else self.fleet.take_dirty())
        first, more = findings[0], len(findings) - 1
        said = plain(first.say)
        if more:
            said = t("{what} (and {n} more)", what=said, n=more)
        self.notify(t("acknowledged: {what}", what=said), markup=False)

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
