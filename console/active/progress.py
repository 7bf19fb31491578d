"""What a campaign says on stderr while it runs: a line per run as it ends, and one that is redrawn
where a person is looking."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from console.active.results import Campaign, Progress, Run
from console.written import say
from probes.sanitise import clean

if TYPE_CHECKING:
    from console.active.campaign import Campaigner

OPEN = (Progress.WAITING, Progress.RUNNING)

COLUMNS = 80


class Narrator:
    """Tells each run once."""

    def __init__(self, campaigner: Campaigner) -> None:
        """Begins to listen."""
        self._campaigner = campaigner
        self._first = 0
        """Place of the first run that was not told; a full round robin has 130,000 of them."""
        self._said: set[int] = set()
        for place, run in enumerate(campaigner.campaign.runs):
            if run.state not in OPEN:
                self._said.add(place)
        self._drawn = False
        self._leave = campaigner.subscribe(self._look)
        self._live = sys.stderr.isatty()

    def close(self) -> None:
        """Stop listening; may be called twice."""
        self._leave()
        self._leave = lambda: None
        self._clear()

    def _look(self, campaign: Campaign) -> None:
        for place in range(self._first, len(campaign.runs)):
            run = campaign.runs[place]
            if run.state not in OPEN and place not in self._said:
                self._said.add(place)
                self._clear()
                say(f"{told(run)}; {self._left(campaign)}")
        while self._first in self._said:
            self._first += 1
        if self._live:
            self._draw(campaign)

    def _draw(self, campaign: Campaign) -> None:
        open_runs = campaign.runs[self._first :]
        running = [run.group.name for run in open_runs if run.state is Progress.RUNNING]
        if running:
            more = f" and {len(running) - 3} more" if len(running) > 3 else ""
            text = f"running {', '.join(running[:3])}{more}; "
            text += self._left(campaign)
            say(f"\r\x1b[K{text[: _columns() - 1]}", end="")
            self._drawn = True

    def _left(self, campaign: Campaign) -> str:
        return left(len(self._said), len(campaign.runs), self._campaigner.eta_s)

    def _clear(self) -> None:
        if self._drawn:
            say("\r\x1b[K", end="")
            self._drawn = False


def _columns() -> int:
    """Of the terminal on stderr: a line that wraps could not be taken back."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS
    except (OSError, ValueError):
        return COLUMNS


def told(run: Run) -> str:
    """One run in one line: "round 2 gpu001+gpu002: busbw 23.10 GB/s in 12 s"."""
    what = f"round {run.round} {run.group.name}: "
    if run.state is not Progress.DONE:
        return what + clean(f"{run.state}: {run.error}".rstrip(": "), 300)
    if run.busbw_gb_s is not None:
        figure = f"busbw {run.busbw_gb_s:.2f} GB/s"
    else:
        figure = f"{len(run.readings)} figures"
    return f"{what}{figure} in {run.duration_s:.0f} s"


def left(done: int, runs: int, eta_s: float | None) -> str:
    """ "3 of 8 runs, 2 min left"."""
    text = f"{done} of {runs} runs"
    if eta_s is None:
        return text
    return f"{text}, {eta_s / 60:.0f} min left" if eta_s >= 90 else f"{text}, {eta_s:.0f} s left"
