"""What every screen can do about recordings: the replay's bar and moves, and writing one."""

from __future__ import annotations

from pathlib import Path

from console.recording.moment import INSTEAD
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

    def action_seek(self, text: str = "") -> None:
        """To a moment of the recording. Raises UsageError."""
        player = self.console_app.player
        if player is not None and text:
            player.seek(text)
        else:
            self.notify(t(":seek takes a time: {times}", times=INSTEAD), markup=False)

    def action_speed(self, text: str = "") -> None:
        """Recorded seconds per second. Raises UsageError."""
        player = self.console_app.player
        try:
            speed = float(text.removeprefix("x"))
        except ValueError:
            speed = 0.0
        if player is None or not text:
            self.notify(t(":speed takes a number, e.g. :speed 8"))
        elif 0.01 <= speed <= 10_000:
            player.set_speed(speed)
        else:
            raise UsageError(t("{text!r} is no speed", text=text), instead=":speed 8, :speed 0.5")

    def action_record(self, text: str = "") -> None:
        """Begin or end a recording. Raises UsageError."""
        engine = self.console_app.engine
        if self.console_app.player is not None:
            self.notify(t("a replay is a recording already"))
        elif text == "stop" or (not text and engine.recorder is not None):
            self.run_worker(self._stop(), exit_on_error=False)
        elif not text:
            self.notify(t(":record takes a new file, e.g. :record night.ndjson.gz"))
        else:
            engine.record(Path(text).expanduser())
            self.notify(t("recording to {file}; :record stop ends it", file=text), markup=False)

    async def _stop(self) -> None:
        recorder = await self.console_app.end_recording()
        if recorder is None:
            self.notify(t("nothing is being recorded"))
        else:
            self.notify(
                t("recorded {size} to {file}", size=recorder.size, file=recorder.path),
                markup=False,
            )
