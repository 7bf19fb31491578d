"""What `doctor` says of terminals: each gap with what to do, and nothing of a terminal that is
fine."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.doctor import Line
from console.doctor_screen import Terminal, judge
from tests.conftest import Lab
from tests.tui.test_tmux import ROOT, Tmux

GOOD = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
TMUX = {**GOOD, "TERM": "tmux-256color", "TMUX": "/tmp/x,1,0"}
GOOD_TMUX = {"default-terminal": "tmux-256color", "set-clipboard": "on", "escape-time": "10"}


def said(
    environ: dict[str, str],
    *,
    size: tuple[int, int] | None = (80, 24),
    known: bool = True,
    above: tuple[str, ...] = (),
    tmux: dict[str, str] | None = None,
    locale_error: str = "",
) -> list[Line]:
    return list(
        judge(
            Terminal(
                environ=environ, size=size, known=known, above=above, tmux=tmux or {},
                locale_error=locale_error,
            )
        )
    )  # fmt: skip


def test_a_good_terminal_needs_nothing() -> None:
    for lines in (said(GOOD), said(TMUX, tmux=GOOD_TMUX)):
        assert all(line.ok for line in lines)
    assert not [line for line in said(TMUX, tmux=GOOD_TMUX) if line.note]


def test_without_a_terminal_nothing_is_judged() -> None:
    """In cron TERM is unset and nobody looks."""
    (line,) = said({}, size=None)
    assert line.ok
    assert line.note


@pytest.mark.parametrize(
    ("environ", "more", "what", "advice"),
    [
        ({"TERM": "dumb"}, {}, "TERM=dumb", "export TERM=xterm-256color"),
        ({}, {}, "TERM=unset", "--json works"),
        (GOOD, {"size": (59, 24)}, "59x24", "60x20 or larger"),
        (GOOD, {"size": (80, 19)}, "80x19", "60x20 or larger"),
        (GOOD, {"locale_error": "de_DE@x"}, "de_DE@x is not installed", "LC_ALL=C.UTF-8"),
        (TMUX, {"tmux": {**GOOD_TMUX, "escape-time": "500"}}, "500 ms", "set -s escape-time"),
        (TMUX, {"tmux": {**GOOD_TMUX, "set-clipboard": "external"}}, "external",
         "set -s set-clipboard on"),
        (TMUX, {"tmux": {**GOOD_TMUX, "default-terminal": "screen"}}, "screen",
         "set -g default-terminal tmux-256color"),
    ],
)  # fmt: skip
def test_what_must_be_mended_is_told_with_the_line_to_write(
    environ: dict[str, str], more: dict[str, object], what: str, advice: str
) -> None:
    wrong = [line for line in said(environ, **more) if not line.ok]  # type: ignore[arg-type]
    assert [line for line in wrong if what in line.what and advice in line.advice]


@pytest.mark.parametrize(
    ("environ", "above", "what"),
    [
        ({"TERM": "linux"}, (), "Linux console"),
        ({"TERM": "screen", "STY": "1.pts"}, ("bash", "screen"), "no clipboard in screen"),
        ({"TERM": "screen", "STY": "1.pts"}, ("bash", "screen"), "maptimeout 10"),
        (GOOD, ("bash", "mosh-server"), "mosh 1.4"),
        (GOOD, ("bash", "mosh-server"), "MOSH_SERVER_NETWORK_TMOUT=86400"),
        ({**GOOD, "TERM_PROGRAM": "Apple_Terminal"}, (), "Terminal.app"),
        ({**GOOD, "NO_COLOR": "1"}, (), "NO_COLOR is set"),
        ({"TERM": "vt100"}, (), "TERM=xterm-256color"),
        ({"TERM": "screen", "STY": "1.pts"}, (), "TERM=screen-256color"),
    ],
)
def test_what_cannot_be_had_is_a_note(
    environ: dict[str, str], above: tuple[str, ...], what: str
) -> None:
    lines = said(environ, above=above)
    assert [line for line in lines if line.note and what in f"{line.what}: {line.advice}"]
    assert all(line.ok for line in lines)


@given(st.dictionaries(st.sampled_from(["TERM", "STY", "TMUX", "COLORTERM"]), st.text()))
def test_any_environment_is_judged(environ: dict[str, str]) -> None:
    assert said(environ)


@pytest.mark.tmux
@pytest.mark.parametrize("setting", ["external", "on"])
def test_a_real_tmux_is_asked_for_its_options(lab: Lab, tmp_path: Path, setting: str) -> None:
    """And a wrong preferences file is named with its line."""
    lab.tmux()
    config = tmp_path / "config" / "gpuconsole"
    config.mkdir(parents=True)
    (config / "console.yaml").write_text("bell: true\ntheem: dark\n")
    conf = tmp_path / "tmux.conf"
    conf.write_text(f"set -s set-clipboard {setting}\nset -s escape-time 20\n")
    argv = ["env", f"XDG_CONFIG_HOME={config.parent}", f"XDG_STATE_HOME={tmp_path}/state"]
    argv += [f"PATH={os.environ['PATH']}", f"PYTHONPATH={ROOT}"]
    argv += [sys.executable, "-m", "console.start", "doctor", "--demo"]
    tmux = Tmux(tmp_path / "tmux", (100, 40), shlex.join(argv) + "; echo left $?; cat", conf=conf)
    try:
        screen = tmux.until("left [01]")
    finally:
        tmux.close()
    assert "ok   tmux escape-time 20 ms" in screen
    assert f"{'ok  ' if setting == 'on' else 'FIX '} tmux set-clipboard {setting}" in screen
    assert re.search(r"FIX  preferences: \S+console.yaml:2.*theem", screen.replace("\n", ""))
    assert "ok   terminal of 100x40" in screen
