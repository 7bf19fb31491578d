"""The demo in real terminals that behave badly: storms of resizes, pastes, strange TERMs and
locales, stops, crashes and an operator who is quicker than the imports."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from console.settings import demo_dir
from tests.conftest import Lab
from tests.terminal import CURSOR, ENTERED, LEFT, Pty, gpuconsole
from tests.tui.test_tmux import Tmux

SMALL = gpuconsole("--demo", "--nodes", "4")
ALIVE = r"VERDICT[\s\S]*gpu004"


@pytest.fixture
def demo() -> Iterator[Pty]:
    """A small demo that has drawn its nodes."""
    with Pty(SMALL) as pty:
        pty.until(ALIVE)
        yield pty


def leave(pty: Pty) -> None:
    """By the key, and the terminal is as it was."""
    pty.send("q")
    assert pty.wait() == 0
    restored(pty)


def restored(pty: Pty) -> None:
    """Modes, screen, cursor."""
    assert pty.restored
    assert pty.seen.count(ENTERED) == pty.seen.count(LEFT)
    assert pty.seen.rfind(CURSOR) > pty.seen.rfind(ENTERED)


def agents(pty: Pty) -> list[psutil.Process]:
    """Everything that the console started."""
    return psutil.Process(pty.process.pid).children(recursive=True)


def test_a_storm_of_resizes(demo: Pty) -> None:
    """Down to one cell and up to 500x200; then everything is drawn for the last size."""
    sizes = random.Random(6)
    for _ in range(300):
        demo.resize(sizes.choice([1, 20, 60, 79, 250, 500]), sizes.choice([1, 5, 20, 70, 200]))
    for size in ((1, 1), (500, 200), (250, 70), (20, 5), (100, 30)):
        demo.resize(*size)
    mark = len(demo.seen)
    demo.resize(80, 24)
    demo.until(ALIVE, after=mark)
    leave(demo)


def test_the_last_size_counts() -> None:
    """Also when it came while the one before was being read."""
    with Pty([sys.executable, "-m", "tests.tui.resizing"]) as pty:
        pty.until(ALIVE)
        mark = len(pty.seen)
        pty.resize(1, 1)
        pty.until(ALIVE, after=mark)
        leave(pty)


HELP = "Show everything|Go to the next|Go to the prev|worst first|Freeze what|Fold the"
"""Cells that stay as they are are not sent again: any piece of the help will do."""


def look_at_the_help(pty: Pty) -> None:
    """And back: keys arrive, and what they ask for is drawn."""
    pty.send("?")
    pty.until(HELP)
    mark = len(pty.seen)
    pty.send("\x1b")
    pty.until("gpu004", after=mark)


BOMB = b"D\r" * 400_000 + b"y\r" * 100_000


@pytest.mark.parametrize("bracketed", [True, False])
def test_a_paste_bomb_drains_nothing(demo: Pty, bracketed: bool) -> None:
    """A megabyte of the keys that drain, and the console still hears the next key."""
    demo.send(b"\x1b[200~" + BOMB + b"\x1b[201~" if bracketed else BOMB)
    if not bracketed:
        demo.until("a paste was left out")
    mark = len(demo.seen)
    demo.send("\x1b")
    demo.until(r"\S", after=mark) if not bracketed else None
    demo.send("?")
    demo.until(HELP)
    demo.send("\x1b")
    demo.signal(signal.SIGTERM)
    demo.wait()
    restored(demo)
    audit = demo_dir() / "audit.jsonl"
    lines = audit.read_text().splitlines() if audit.exists() else []
    assert not [line for line in lines if json.loads(line).get("verb") == "drain"]


def test_bytes_that_are_no_text_do_not_end_the_keyboard(demo: Pty) -> None:
    demo.send(b"\xff\xfe\x80\xc3(\xb0\xa1\xf0\x28\x8c\x28")
    look_at_the_help(demo)
    leave(demo)


def test_stopped_and_continued_it_draws_everything_again(demo: Pty) -> None:
    """SIGTSTP from outside, as `kill -TSTP` or a shell's `suspend`: the shell gets its terminal."""
    demo.signal(signal.SIGTSTP)
    demo.until(LEFT)
    process = psutil.Process(demo.process.pid)
    while process.status() != psutil.STATUS_STOPPED:
        pass
    assert demo.restored
    mark = len(demo.seen)
    demo.signal(signal.SIGCONT)
    demo.until(ENTERED, after=mark)
    demo.until(ALIVE, after=mark)
    leave(demo)


def test_a_terminal_that_goes_away_takes_the_agents_with_it(demo: Pty) -> None:
    demo.until("4 nodes, data")
    started = agents(demo)
    assert len(started) >= 4
    demo.hang_up()
    assert demo.process.wait(250) == 129
    _, alive = psutil.wait_procs(started, timeout=250)
    assert not alive


def test_a_slow_reader_gets_a_whole_screen_at_last(demo: Pty) -> None:
    """It stalls while much is drawn, and comes back."""
    demo.stall()
    for size in range(60, 160):
        demo.resize(size, 40)
    demo.resize(80, 24)
    demo.read_on()
    mark = len(demo.seen)
    demo.until(ALIVE, after=mark)
    leave(demo)


@pytest.mark.parametrize("term", ["xterm", "linux", "vt100", "screen", "ansi", "no-such-terminal"])
def test_any_terminal_but_a_dumb_one(term: str) -> None:
    with Pty(SMALL, env={"TERM": term, "COLORTERM": ""}) as pty:
        pty.until(ALIVE)
        assert b"\x1b[38;2;" not in pty.seen
        assert b"\x1b[38;5;" not in pty.seen
        leave(pty)


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_is_told_what_to_do(term: str) -> None:
    with Pty(SMALL, env={"TERM": term}) as pty:
        assert pty.wait() == 64
        assert len(pty.text.strip().splitlines()) <= 2
        assert "--json" in pty.text
        assert ENTERED not in pty.seen


@pytest.mark.parametrize("name", ["C", "POSIX", "zh_CN.GB18030", "en_US.ISO-8859-1", "nowhere.X"])
def test_any_locale(name: str) -> None:
    """What the locale cannot carry is drawn in ASCII; a locale that is not there is none."""
    env = {"LC_ALL": name, "LANG": name, "LANGUAGE": "", "PYTHONUTF8": "0"}
    with Pty(SMALL, env=env) as pty:
        pty.until(ALIVE)
        leave(pty)
        assert "Traceback" not in pty.text


def test_an_encoding_that_is_not_utf8_gets_ascii() -> None:
    with Pty(SMALL, env={"PYTHONIOENCODING": "iso-8859-1"}) as pty:
        text = pty.until(ALIVE)
        assert "�" not in text
        assert "--" in text
        leave(pty)


def test_a_crash_is_a_line_and_a_log(tmp_path: Path) -> None:
    """The terminal is given back, agents are gone, exit 70."""
    argv = [sys.executable, "-m", "tests.tui.crashing"]
    with Pty(argv, env={"XDG_STATE_HOME": str(tmp_path)}) as pty:
        pty.until(ENTERED)
        assert pty.wait() == 70
        restored(pty)
        said = pty.text[pty.text.rfind("gpuconsole: ") :]
        assert "internal error: ZeroDivisionError: made to fail" in said
        assert "Traceback" not in pty.text
        log = tmp_path / "gpuconsole" / "log" / "gpuconsole.log"
        assert str(log) in said.replace("\n", "")
        assert "made to fail" in log.read_text()


@pytest.mark.parametrize("imports", [1, 5, 25, 60, 100, 150, 250, 400, 600])
def test_ctrl_c_during_the_imports_is_one_line(imports: int) -> None:
    """-X importtime tells how far they are: no matter how fast the machine is."""
    argv = [sys.executable, "-X", "importtime", "-m", "console.start", "--demo", "--nodes", "1"]
    with Pty(argv) as pty:
        # The first import of the command line: what lies before it is Python's own start.
        pty.until(r"\| +click")
        at = pty.seen.find(b"click")
        while pty.seen.count(b"\n", at) < imports and pty.process.poll() is None:
            pass
        pty.send("\x03")
        code = pty.wait()
        assert "Traceback" not in pty.text
        assert "Exception ignored" not in pty.text
        # Beyond the imports it is the console's own key, and leaves.
        assert code in (130, 0)
        assert pty.restored


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_terminal(closed: str) -> None:
    with Pty(["sh", "-c", f'exec "$0" -m console.start --demo {closed}', sys.executable]) as pty:
        assert pty.wait() == 64
        assert "Traceback" not in pty.text


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[Path]:
    """Of GNU screen. Its window outlives a terminal that is gone: a failed test would leave one."""
    folder = tmp_path / "sockets"
    folder.mkdir(mode=0o700)
    yield folder
    for socket in folder.iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(socket.name.partition(".")[0]), signal.SIGTERM)


def test_inside_screen(lab: Lab, tmp_path: Path, sockets: Path) -> None:
    """GNU screen: its own TERM, its own idea of the alternate screen."""
    lab.programs("screen", "screen", package="screen")
    (tmp_path / "screenrc").write_text("startup_message off\naltscreen on\n")
    argv = ["screen", "-U", "-c", str(tmp_path / "screenrc"), *SMALL]
    with Pty(argv, env={"SCREENDIR": str(sockets), "LC_ALL": "C.UTF-8"}) as pty:
        pty.until(ALIVE)
        mark = len(pty.seen)
        pty.resize(100, 30)
        pty.until(ALIVE, after=mark)
        pty.send("?")
        pty.until(HELP)
        pty.send("\x03")
        assert pty.wait() == 0


PROMPT = "ended> "


def test_screen_as_it_comes(lab: Lab, tmp_path: Path, sockets: Path) -> None:
    """It holds esc back for 0.3 s and has no second screen: a lone esc arrives, and what comes
    after us stands alone."""
    lab.programs("screen", "screen", package="screen")
    lab.tmux()
    (tmp_path / "screenrc").write_text("startup_message off\n")
    inner = f"{shlex.join(SMALL)}; printf '{PROMPT}'; cat"
    argv = ["env", f"SCREENDIR={sockets}", "LC_ALL=C.UTF-8"]
    argv += ["screen", "-U", "-c", str(tmp_path / "screenrc"), "sh", "-c", inner]
    tmux = Tmux(tmp_path / "tmux", (80, 24), shlex.join(argv))
    try:
        tmux.until(ALIVE)
        for _ in range(10):
            tmux.keys("/", "gpu002")
            tmux.until("/gpu002 1/4")
            tmux.keys("Escape")
            tmux.until(lambda text: "/gpu002" not in text and "gpu004" in text)
        tmux.keys("q")
        screen = tmux.until(PROMPT.strip())
        assert screen.strip() == PROMPT.strip()
    finally:
        tmux.close()


def test_the_audit_of_a_paste_would_be_seen() -> None:
    """What test_a_paste_bomb looks for is written where it looks."""
    assert str(demo_dir()).startswith(os.environ["XDG_STATE_HOME"])


@pytest.mark.parametrize(("theme", "paints"), [("high-contrast", True), ("light", False)])
def test_a_theme_from_the_command_line(theme: str, paints: bool) -> None:
    """Only high-contrast paints its ground, colour 16 of 256: black whatever the terminal's is."""
    with Pty([*SMALL, "--theme", theme]) as pty:
        pty.until(ALIVE)
        assert (b"48;5;16m" in pty.seen) is paints
        leave(pty)


def test_an_escape_and_a_key_in_one_read(demo: Pty) -> None:
    """As a slow line brings them: back to the fleet, and the row is marked there."""
    demo.send(":open gpu002\r")
    demo.until("esc.{0,30}back")
    mark = len(demo.seen)
    demo.send("\x1b ")
    demo.until(r"VERDICT[\s\S]*1 marked|1 marked[\s\S]*VERDICT", after=mark)
    leave(demo)


@pytest.mark.parametrize("key", ["\r", "l", "S", "2", "D", "T"])
def test_keys_behind_the_one_that_leaves(demo: Pty, key: str) -> None:
    """A screen that they would open is none any more."""
    demo.send(f"q{key}")
    assert demo.wait() == 0
    restored(demo)
    assert b"Error" not in demo.seen
    assert b"NoMatches" not in demo.seen
