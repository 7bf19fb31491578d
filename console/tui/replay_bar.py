"""The line of a replay: where in the recording, when that was, how fast it goes. Pure."""

from __future__ import annotations

import time

from console.recording.moment import clock
from console.recording.player import Playing
from console.tui.text import Cell, Line, width_of
from console.tui.theme import Glyphs
from console.tui.words import t

TRACK_LEAST, TRACK_MOST = 8, 60
"""Cells of the track; with less room it is left out."""


def replay_bar(playing: Playing, glyphs: Glyphs, width: int) -> Line:
    """At most `width` cells; what matters least goes first."""
    state = _state(playing)
    head = (
        Cell(t(" REPLAY "), "band"),
        Cell(f" {clock(playing.second)} / {clock(playing.seconds)} ", "title"),
    )
    date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(playing.at))
    for when in (date, date[11:], ""):
        tail = (Cell(f" {when}" if when else "", "text"), Cell(f" x{playing.speed:g}", "key"),
                Cell(f" {state}" if state else "", "warn"))  # fmt: skip
        room = width - sum(width_of(cell.text) for cell in (*head, *tail))
        if room >= TRACK_LEAST or not when:
            break
    if room < TRACK_LEAST:
        return (*head, *tail)
    return (*head, *_track(playing, glyphs, min(room, TRACK_MOST)), *tail)


def _state(playing: Playing) -> str:
    if playing.target is not None:
        return t(
            "seeking {time} {percent}%", time=clock(playing.target),
            percent=int(100 * playing.done),
        )  # fmt: skip
    if playing.ended:
        return t("end")
    return t("paused") if playing.paused else ""


def _track(playing: Playing, glyphs: Glyphs, width: int) -> Line:
    at = round((width - 1) * playing.second / max(1, playing.seconds))
    return (
        Cell(glyphs.rule * at, "text"),
        Cell(glyphs.mark, "key"),
        Cell(glyphs.rule * (width - 1 - at), "dim"),
    )
