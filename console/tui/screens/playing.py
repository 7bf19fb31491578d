"""What every screen can do about recordings: the replay's bar and moves, and writing one."""

from __future__ import annotations

from pathlib import Path

from console.recording.player import Player
from console.tui.replay_bar import replay_bar
from console.tui.screens.inside import Inside
from console.tui.widgets.sheet import Lines
from console.tui.words import t
from inventory.errors import UsageError


class Playing(Inside[None]):
    """A screen that may show a recorded moment."""

    def on_mount(self) -> None:
        """The bar, in a replay only."""
        if self.console_app.player is not None:
            self.mount(Lines(self.console_app.look, id="replay"), before=0)
            self.call_after_refresh(self.draw_replay)

    def draw_replay(self) -> None:
        """Bring the bar up to date."""
        player, bars = self.console_app.player, self.query("#replay").results(Lines)
        for bar in bars:
            if player is not None:
                bar.show([replay_bar(player.now, self.console_app.look.glyphs, bar.size.width)])

    def _player(self) -> Player:
        player = self.console_app.player
        if player is None:
            raise UsageError(t("this is no replay"), instead="gpuconsole replay FILE")
        return player

    def action_seek(self, text: str = "") -> None:
        """To a moment of the recording. Raises UsageError."""
        self._player().seek(text)

    def action_speed(self, text: str = "") -> None:
        """Recorded seconds per second. Raises UsageError."""
        player = self._player()
        try:
            speed = float(text.removeprefix("x"))
        except ValueError:
            speed = 0.0
        if not 0.01 <= speed <= 10_000:
            raise UsageError(t("{text!r} is no speed", text=text), instead=":speed 8, :speed 0.5")
        player.set_speed(speed)

    def action_record(self, text: str = "") -> None:
        """Begin or end a recording. Raises UsageError."""
        engine = self.console_app.engine
        recorder = engine.recorder
        if text == "stop" or (not text and recorder is not None):
            if recorder is None:
                raise UsageError(t("nothing is being recorded"), instead=":record FILE")
            self.run_worker(self._stop(), exit_on_error=False)
            return
        if self.console_app.player is not None:
            raise UsageError(t("a replay is a recording already"))
        if not text:
            raise UsageError(t(":record takes a new file"), instead=":record night.ndjson.gz")
        engine.record(Path(text).expanduser())
        self.notify(t("recording to {file}; :record stop ends it", file=text), markup=False)

    async def _stop(self) -> None:
        recorder = await self.console_app.end_recording()
        if recorder is not None:
            self.notify(
                t("recorded {size} to {file}", size=recorder.size, file=recorder.path),
                markup=False,
            )
