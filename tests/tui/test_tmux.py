"""A real terminal: the demo in tmux at three sizes, from the sick node to its drain and back."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab

ROOT = Path(__file__).parents[2]
DEADLINE_S = 150.0

pytestmark = pytest.mark.tmux


class Tmux:
    """One tmux server on its own socket with one pane."""

    def __init__(
        self,
        socket: Path,
        size: tuple[int, int],
        command: str,
        *,
        conf: Path = Path(os.devnull),
    ) -> None:
        """Run `command` in a pane of `size` cells."""
        self.socket, self.conf = socket, conf
        width, height = size
        self._run(
            "new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(ROOT), command
        )

    def _run(self, *words: str) -> str:
        argv = ["tmux", "-S", str(self.socket), "-f", str(self.conf), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=250)
        return done.stdout

    def keys(self, *keys: str) -> None:
        """Type."""
        self._run("send-keys", *keys)

    def confirm(self, wanted: str) -> str:
        """Press y; a script reads faster than anybody, so again while the console says so."""
        refused = True
        while refused:
            self.keys("y")
            refused = "press y once" in self.until(rf"{wanted}|press y once")
        return self.until(wanted)

    @property
    def screen(self) -> str:
        """What the pane shows."""
        return self._run("capture-pane", "-p")

    def until(self, wanted: str | Callable[[str], object]) -> str:
        """Poll the pane until a pattern is in it (or a function says so); fails at the deadline."""
        deadline = time.monotonic() + DEADLINE_S
        screen = ""
        while time.monotonic() < deadline:
            # Starting a tmux client takes some 5 ms: this polls, it does not spin.
            screen = self.screen
            found = wanted(screen) if callable(wanted) else re.search(wanted, screen)
            if found:
                return screen
        pytest.fail(f"never saw {wanted!r}; the screen was:\n{screen}")

    def close(self) -> None:
        """End the server and what runs in it."""
        self._run("kill-server")


@pytest.fixture
def demo(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> Iterator[Tmux]:
    """The demo at the size of the parameter."""
    lab.tmux()
    names = [name for name in os.environ if name.startswith("XDG_")]
    env = [f"{name}={os.environ[name]}" for name in names]
    argv = ["env", *env, "TERM=screen-256color", "LC_ALL=C.UTF-8"]
    argv += [sys.executable, "-m", "console.cli", "--demo"]
    tmux = Tmux(tmp_path / "tmux", request.param, shlex.join(argv) + "; echo left $?; cat")
    try:
        yield tmux
    finally:
        tmux.close()


SIZES = [(60, 20), (80, 24), (160, 50)]


def row(screen: str, node: str) -> str:
    """The grid's line of a node; "" when it is not on the screen."""
    return next((line for line in screen.splitlines() if re.search(rf"\b{node}\b", line)), "")


def leave(demo: Tmux, node: str) -> None:
    """From the outcome to the node, from the node to the fleet."""
    demo.keys("Escape")
    # Two escapes in one read would be one key with Alt: the first must have arrived.
    demo.until(rf"crit {node}")
    demo.keys("Escape")
    demo.until("VERDICT")


@pytest.mark.parametrize("demo", SIZES, indirect=True, ids=lambda s: f"{s[0]}x{s[1]}")
def test_find_the_sick_node_see_why_drain_it_and_resume_it(demo: Tmux) -> None:
    """What an operator does at 3 a.m., without leaving the keyboard."""
    screen = demo.until(r"✗ crit +\S+")
    found = re.search(r"✗ crit +(\S+)", screen)
    assert found is not None
    node = found.group(1)

    demo.keys("Enter")
    screen = demo.until(rf"(?s)crit {node}.*why .*next ")

    demo.keys("D")
    demo.until(rf"(?s)Drain 1 node: {node}.*y drain now")
    demo.confirm(rf"{node} now drain(ing|ed)")
    leave(demo, node)
    demo.until(lambda text: re.search(r"\bdrain", row(text, node)))

    demo.keys(":", f"open {node}", "Enter")
    demo.until(rf"crit {node}")
    demo.keys("U")
    # Still sick: resuming is refused until the operator overrides it.
    demo.until(rf"(?s)Resume: no node.*{node}: still|Resume 1 node: {node}")
    if "still" in demo.screen:
        demo.keys("I")
    demo.until(rf"(?s)Resume 1 node: {node}.*y resume now")
    demo.confirm(rf"{node} now (idle|alloc|mixed)")
    leave(demo, node)
    demo.until(lambda text: row(text, node) and not re.search(r"\bdrain", row(text, node)))

    demo.keys("q")
    demo.until("left 0")


@pytest.mark.parametrize("demo", [(80, 24)], indirect=True)
def test_a_resized_terminal_is_redrawn(demo: Tmux) -> None:
    """Columns come and go with the width."""
    demo.until(r"✗ crit +\S+")
    assert "POWER" not in demo.screen
    demo._run("resize-window", "-x", "160", "-y", "50")
    demo.until("POWER")
    demo._run("resize-window", "-x", "60", "-y", "20")
    demo.until(lambda text: "VERDICT" in text and "POWER" not in text)
    demo.keys("q")
    demo.until("left 0")


@pytest.mark.parametrize("demo", [(80, 24)], indirect=True)
def test_a_burst_of_keys_arrives_in_order(demo: Tmux) -> None:
    """Typed faster than drawn: the filter gets the letters, not the commands they name."""
    demo.until(r"✗ crit +\S+")
    demo.keys("/", "state:crit", "Enter")
    screen = demo.until(r"/state:crit \d+/\d+")
    assert "PAUSED" not in screen
    assert "marked" not in screen
    demo.keys("q")
    demo.until("left 0")


@pytest.mark.parametrize("demo", [(80, 24)], indirect=True)
def test_an_idle_node_is_tested_and_found_again(demo: Tmux) -> None:
    """T, y, the figures; then the list of tests."""
    demo.until(r"✗ crit +\S+")
    demo.keys(":", "open gpu015", "Enter")
    demo.until(r"(ok|info|warn|crit|unkn) gpu015")
    demo.until(lambda _: planned(demo))
    demo.confirm(r"(?s)Test node: 1 node gpu015.*gpu015 +\d+ .*\d\d\.\d")
    demo.keys("Escape")
    demo.until(r"(ok|info|warn|crit|unkn) gpu015")
    demo.keys("7")
    demo.until(r"(?s)tests: 1 kept.*node +gpu015")
    demo.keys("q")
    demo.until("left 0")


def planned(demo: Tmux) -> bool:
    """Whether the node may be tested now; asks again while its processes are not read yet."""
    demo.keys("T")
    screen = demo.until(r"y test now|nothing to test")
    if "y test now" in screen:
        return True
    demo.keys("Escape")
    demo.until(r"(ok|info|warn|crit|unkn) gpu015")
    return False
