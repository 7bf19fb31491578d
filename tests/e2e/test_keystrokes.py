"""The main tasks on the real demo in a real terminal, counted in keys: the counts are what we
measured as the least, so that whoever makes a task longer is told."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab
from tests.tui.test_tmux import Tmux, row

pytestmark = pytest.mark.tmux

NAMED = ("Enter", "Escape", "Space", "C-z", "Tab")
SICK = "gpu005"
"""Of the demo's story: a GPU fell off the bus before anybody looked."""
SLOW = "gpu003"
JOB = "48211"


class Operator:
    """Somebody at the keyboard whose keys are counted."""

    def __init__(self, tmux: Tmux) -> None:
        """At the first screen, once it says what is wrong."""
        self.tmux = tmux
        self.until(rf"✗ crit +{SICK}")
        self.pressed = 0

    def press(self, *keys: str) -> None:
        """Type; a word is as many keys as letters."""
        self.tmux.keys(*keys)
        self.pressed += sum(1 if key in NAMED else len(key) for key in keys)

    def confirm(self, wanted: str) -> None:
        """One key: whoever reads the plan first needs no second one."""
        self.tmux.confirm(wanted)
        self.pressed += 1

    def until(self, wanted: str) -> str:
        """Wait for what the screen must say."""
        return self.tmux.until(wanted)

    def within(self, keys: int) -> None:
        """The task is over: at most so many keys, and the count begins again."""
        assert self.pressed <= keys
        self.pressed = 0


@pytest.fixture(params=[(80, 24), (60, 20)], ids=["80x24", "60x20"])
def operator(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> Iterator[Operator]:
    """In front of a new demo."""
    lab.tmux()
    env = [f"{name}={os.environ[name]}" for name in os.environ if name.startswith("XDG_")]
    argv = ["env", *env, "TERM=screen-256color", "LC_ALL=C.UTF-8"]
    argv += [sys.executable, "-m", "tests.patient", "--demo"]
    tmux = Tmux(tmp_path / "tmux", request.param, shlex.join(argv) + "; echo left $?; cat")
    try:
        yield Operator(tmux)
    finally:
        tmux.close()


def test_sick_why_drain_resume(operator: Operator) -> None:
    """From the alarm to a drained node in three keys, and back to work in five."""
    screen = operator.until(rf"✗ crit +{SICK}")
    rows = [line for line in screen.splitlines() if re.search(r"\bgpu\d+\b", line)]
    assert SICK in rows[0]
    operator.within(0)

    operator.press("Enter")
    operator.until(rf"(?s)crit {SICK}.*why .*next ")
    operator.within(1)

    operator.press("D")
    operator.until(rf"(?s)Drain 1 node: {SICK}.*y drain now")
    operator.confirm(rf"{SICK} now drain(ing|ed)")
    operator.within(2)

    operator.press("Escape")
    operator.until(rf"crit {SICK}")
    operator.press("U")
    operator.until("Resume: no node|Resume 1 node")
    operator.press("I")
    operator.until(rf"(?s)Resume 1 node: {SICK}.*y resume now")
    operator.confirm(rf"{SICK} now (idle|alloc|mixed)")
    operator.within(4)


def test_straggler_job_and_host_list(operator: Operator) -> None:
    """A key each for who is slow and who suffers; three for the list of all that are not ok."""
    operator.press("3")
    operator.until(rf"! warn +{SLOW} GPU5")
    operator.within(1)

    operator.press("6")
    screen = operator.until(rf"✗ crit.*{JOB}[\s\S]*48177")
    assert SICK in row(screen, JOB)
    operator.within(1)

    operator.press("1")
    operator.until(rf"✗ crit +{SICK}")
    operator.within(1)
    operator.press("C-z")
    operator.until("is:fault")
    operator.press("*")
    operator.until("marked")
    operator.press("y")
    operator.until(r"copied gpu\[003,005")
    operator.within(3)
    operator.press("q")
    operator.until("left 0")
