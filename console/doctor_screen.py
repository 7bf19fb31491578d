"""What `doctor` says about the terminal: what the console needs of it, and how to get that.

Nothing is asked of the terminal itself: an answer may never come, or come when the shell reads
again. Everything is read from the environment, from what runs above us, and from tmux.
"""

from __future__ import annotations

import locale
import os
import subprocess
from collections.abc import Iterator, Mapping

from msgspec import Struct

from console.above import above
from console.doctor import Line
from inventory.errors import UsageError

SMALLEST = (60, 20)
"""Columns and rows for which the screens are made."""
ESCAPE_MS = 50
"""tmux waits so long whether an escape is a key; its default was 500 until 3.4."""
TMUX_S = 2.0
"""For tmux to tell its options."""
TMUX_OPTIONS = ("default-terminal", "set-clipboard", "escape-time")
NO_CLIPBOARD = {
    "Apple_Terminal": "Terminal.app takes none: use iTerm2, kitty, Ghostty or WezTerm",
    "vscode": "",
}
"""TERM_PROGRAM -> why its clipboard cannot be set; "" where it can."""


class Terminal(Struct, frozen=True, kw_only=True):
    """What is known of the terminal without asking it."""

    environ: Mapping[str, str]
    size: tuple[int, int] | None = None
    """Columns and rows; None without a terminal."""
    locale_error: str = ""
    known: bool = True
    """terminfo has TERM."""
    above: tuple[str, ...] = ()
    """Names of the processes above ours, nearest first."""
    tmux: Mapping[str, str] = {}
    """tmux' options, as far as it told them."""

    @property
    def term(self) -> str:
        """TERM."""
        return self.environ.get("TERM", "")


def here() -> Terminal:
    """The terminal of this process."""
    term = os.environ.get("TERM", "")
    return Terminal(
        environ=dict(os.environ),
        size=_size(),
        locale_error=_locale_error(),
        known=_in_terminfo(term),
        above=tuple(above()),
        tmux=_tmux_options() if os.environ.get("TMUX") else {},
    )


def judge(terminal: Terminal) -> Iterator[Line]:
    """Every statement about it. Pure."""
    if terminal.size is None:
        yield Line(True, "no terminal here", "the screen is not looked at", note=True)
        return
    yield _term(terminal)
    yield _colours(terminal)
    yield _room(terminal.size)
    if terminal.locale_error:
        yield Line(
            False, f"locale {terminal.locale_error} is not installed here", "set LC_ALL=C.UTF-8"
        )
    if "TMUX" in terminal.environ:
        yield from _tmux(terminal.tmux)
    if "STY" in terminal.environ and "TMUX" not in terminal.environ:
        advice = "esc with the next key within 0.4 s is another: maptimeout 10 in ~/.screenrc"
        yield Line(True, "no mouse in screen, and esc comes late", advice, note=True)
    yield _clipboard(terminal)
    if "mosh-server" in terminal.above:
        yield _mosh(terminal.environ)


def preferences() -> Line:
    """The operator's own file."""
    from console.preferences import check, path

    try:
        found = check()
    except UsageError as error:
        return Line(False, "preferences", str(error))
    if not found.path:
        return Line(True, f"no preferences ({path()})", "everything is as most want it", note=True)
    return Line(True, f"preferences {found.path}")


def _term(terminal: Terminal) -> Line:
    if terminal.term in ("", "dumb", "unknown"):
        advice = "cannot show the console: export TERM=xterm-256color if it is one; --json works"
        return Line(False, f"TERM={terminal.term or 'unset'}", advice)
    if not terminal.known:
        advice = "terminfo here does not know it: pagers and editors may misbehave, we do not"
        return Line(True, f"TERM={terminal.term}", advice, note=True)
    return Line(True, f"TERM={terminal.term}")


def _colours(terminal: Terminal) -> Line:
    from console.tui.theme import depth_of

    colours = depth_of(terminal.environ).colours
    if colours == 0:
        return Line(True, "no colours", "NO_COLOR is set; words and signs say the same", note=True)
    if colours >= 256:
        return Line(True, f"{colours} colours")
    better = "screen-256color" if terminal.term.startswith("screen") else "xterm-256color"
    advice = f"if the terminal has more: export TERM={better}, or COLORTERM=truecolor"
    return Line(True, f"{colours} colours", advice, note=True)


def _room(size: tuple[int, int]) -> Line:
    width, height = size
    if width < SMALLEST[0] or height < SMALLEST[1]:
        advice = f"too small to be read: make it {SMALLEST[0]}x{SMALLEST[1]} or larger"
        return Line(False, f"terminal of {width}x{height}", advice)
    return Line(True, f"terminal of {width}x{height}")


def _tmux(options: Mapping[str, str]) -> Iterator[Line]:
    """Lines to put into tmux.conf."""
    if not options:
        yield Line(
            True, "tmux does not tell its options", "look at escape-time yourself", note=True
        )
        return
    inside = options.get("default-terminal", "")
    fine = "256color" in inside or "direct" in inside
    advice = "" if fine else "fewer colours: set -g default-terminal tmux-256color"
    yield Line(fine, f"tmux default-terminal {inside}", advice)
    waits = options.get("escape-time", "")
    slow = waits.isdecimal() and int(waits) > ESCAPE_MS
    advice = f"esc comes late, and esc with the next key is another: set -s escape-time {ESCAPE_MS}"
    yield Line(not slow, f"tmux escape-time {waits} ms", advice if slow else "")


def _clipboard(terminal: Terminal) -> Line:
    """Whether `y` reaches the operator's clipboard (OSC 52), as far as can be told from here."""
    environ = terminal.environ
    if "TMUX" in environ and terminal.tmux:
        told = terminal.tmux.get("set-clipboard", "")
        advice = "" if told == "on" else "y does not reach the clipboard: set -s set-clipboard on"
        return Line(told == "on", f"tmux set-clipboard {told}", advice)
    if terminal.term == "linux":
        return Line(True, "no clipboard", "the Linux console has none", note=True)
    if "STY" in environ and "TMUX" not in environ:
        return Line(True, "no clipboard in screen", "before 5.0; tmux passes it on", note=True)
    if why := NO_CLIPBOARD.get(environ.get("TERM_PROGRAM", ""), ""):
        return Line(True, "no clipboard", why, note=True)
    if "mosh-server" in terminal.above:
        advice = "needs mosh 1.4 at both ends; desktop notices (notify:) do not pass"
        return Line(True, "clipboard over mosh", advice, note=True)
    advice = "y sends it (OSC 52); the terminal may ask for leave, or needs a setting"
    return Line(True, "clipboard", advice, note=True)


def _mosh(environ: Mapping[str, str]) -> Line:
    """What it does not carry is dropped without a word; how long it waits is in its environment."""
    waits = environ.get("MOSH_SERVER_NETWORK_TMOUT", "")
    if waits.isdecimal() and int(waits):
        return Line(True, f"mosh gives up after {waits} s", "without a client, and we with it")
    advice = "MOSH_SERVER_NETWORK_TMOUT=86400 ends it, us and the agents a day after its client"
    return Line(True, "mosh waits for ever", advice, note=True)


def _size() -> tuple[int, int] | None:
    for number in (2, 1, 0):
        try:
            width, height = os.get_terminal_size(number)
        except OSError:
            continue
        return (width, height)
    return None


def _locale_error() -> str:
    """The locale asked for when there is none such here; "" when all is well."""
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:
        names = ("LC_ALL", "LC_CTYPE", "LANG")
        return next((os.environ[name] for name in names if os.environ.get(name)), "?")
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    return ""


def _in_terminfo(term: str) -> bool:
    try:
        import curses

        curses.setupterm(term or "unknown", 1)
    except Exception:  # noqa: BLE001 - curses.error, or no curses in this Python
        return False
    return True


def _tmux_options() -> dict[str, str]:
    """Of the session's, then of the server's options; what it does not tell is left out."""
    found: dict[str, str] = {}
    for name in TMUX_OPTIONS:
        for flags in ("-gqv", "-sqv"):
            argv = ["tmux", "show-options", flags, name]
            try:
                done = subprocess.run(
                    argv, capture_output=True, text=True, timeout=TMUX_S, check=False,
                    stdin=subprocess.DEVNULL,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired):
                return found
            if done.returncode == 0 and done.stdout.strip():
                found[name] = done.stdout.strip()
    return found
