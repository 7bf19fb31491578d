"""How severities look: glyph, then word, then colour, so that losing one never loses the meaning.

The styles of each theme are in palettes.py. `auto` takes dark or light by COLORFGBG, which many
terminals set (rxvt, Konsole, iTerm2), and dark where it is absent. Asking the terminal (OSC 11)
would know more often, but a terminal that does not answer costs a wait before the first paint, and
an answer that comes late over a slow link is read as keys, and a key here may act on a node.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from rich.style import Style
from textual.theme import Theme

from console import charset
from console.tui.palettes import MONO, THEMES
from console.tui.words import N_, t
from inventory.errors import UsageError
from probes.event import NodeState, Severity


class Glyphs(NamedTuple):
    """Every non-ASCII character the console draws, each one terminal cell wide."""

    ok: str = "✓"
    info: str = "i"
    warn: str = "!"
    critical: str = "✗"
    unknown: str = "?"
    mark: str = "●"
    missing: str = "–"
    more: str = "…"
    rule: str = "─"
    up: str = "▲"
    down: str = "▼"
    pointer: str = "›"

    def severity(self, severity: Severity) -> str:
        """The glyph of a severity."""
        return str(getattr(self, severity.value))


UNICODE = Glyphs()
ASCII = Glyphs("+", "i", "!", "X", "?", "*", "-", "~", "-", "^", "v", ">")


def glyphs_for(encoding: str | None) -> Glyphs:
    """The Unicode table for UTF-8 (charset.py says why only there), else the ASCII one."""
    return UNICODE if charset.is_utf8(encoding) else ASCII


WORDS: Mapping[Severity, str] = {
    Severity.OK: N_("ok"),
    Severity.INFO: N_("info"),
    Severity.WARN: N_("warn"),
    Severity.CRITICAL: N_("crit"),
    Severity.UNKNOWN: N_("unkn"),
}
"""Severity words of at most four cells: the grid's first column has no room for more."""


def word(severity: Severity) -> str:
    """The word of a severity in the operator's language."""
    return t(WORDS[severity])


_STATES: Mapping[NodeState, str] = {
    NodeState.PENDING: N_("pending"),
    NodeState.CONNECTING: N_("connecting"),
    NodeState.UP: N_("up"),
    NodeState.DEGRADED: N_("degraded"),
    NodeState.HUNG: N_("hung"),
    NodeState.STALE: N_("stale"),
    NodeState.UNREACHABLE: N_("unreachable"),
    NodeState.AUTH_FAILED: N_("auth failed"),
    NodeState.HOST_KEY_CHANGED: N_("host key changed"),
    NodeState.NO_PYTHON: N_("no python"),
    NodeState.ENDED: N_("ended"),
}


def state_word(state: NodeState) -> str:
    """How well we can talk to a node, in the operator's language."""
    return t(_STATES[state])


class Depth(NamedTuple):
    """What the terminal can show."""

    colours: int
    """0 (NO_COLOR), 16 or 256."""


def depth_of(environ: Mapping[str, str]) -> Depth:
    """Colour depth from the environment: NO_COLOR, then COLORTERM, then TERM."""
    if "NO_COLOR" in environ:
        return Depth(0)
    term = environ.get("TERM", "")
    if environ.get("COLORTERM", "") in ("truecolor", "24bit") or "256" in term:
        return Depth(256)
    return Depth(16)


def ground_of(environ: Mapping[str, str]) -> str:
    """ "dark" or "light" by COLORFGBG's last number, the ground: 7 and 9 to 15 are bright."""
    last = environ.get("COLORFGBG", "").rpartition(";")[2]
    bright = last.isdecimal() and int(last) < 16 and int(last) not in (*range(7), 8)
    return "light" if bright else "dark"


class Look:
    """Glyphs and styles of this terminal. Style names are the keys of palettes.MONO."""

    def __init__(
        self,
        glyphs: Glyphs = UNICODE,
        depth: Depth = Depth(256),  # noqa: B008
        theme: str = "auto",
        ground: str = "dark",
    ) -> None:
        """`ground` is the terminal's own, "dark" or "light". Raises UsageError as `use` does."""
        self.glyphs = glyphs
        self.depth = depth
        self.ground = ground
        self.use(theme)

    def use(self, theme: str) -> None:
        """Change to a theme in place: every widget shares this object and shows it when redrawn.

        Parses each style once; cursor variants are derived on first use. Raises UsageError for a
        theme that does not exist.
        """
        if theme not in THEMES:
            raise UsageError(
                t("there is no theme {name}", name=repr(theme)),
                instead=t("one of {names}", names=" ".join(THEMES)),
            )
        palette = THEMES[theme][self.ground]
        table = {0: MONO, 16: palette.sixteen}.get(self.depth.colours, palette.many)
        self.theme = theme
        self._styles = {name: Style.parse(text) for name, text in table.items()}
        self._cursor: dict[str, Style] = {}

    def style(self, name: str) -> Style:
        """The Rich style of a name; unknown names look like text."""
        return self._styles.get(name) or self._styles["text"]

    def cursor(self, name: str) -> Style:
        """The style of a cell under the cursor: reversed, severity colours kept."""
        style = self._cursor.get(name)
        if style is None:
            kept = name in ("warn", "critical", "unknown", "info") and self.depth.colours
            base = self.style(name) if kept else self.style("text")
            style = self._cursor[name] = base + Style(reverse=True)
        return style

    @property
    def widgets(self) -> Theme:
        """Textual's own widgets (inputs, palette, toasts) in the same colours."""
        painted = self.theme == "high-contrast" and self.depth.colours
        return ON_BLACK if painted else OWN_GROUND


def look_here(encoding: str | None, *, theme: str = "auto", ascii: bool = False) -> Look:  # noqa: A002
    """The look of the terminal this process draws on (`encoding` is stderr's: Textual's output).

    `ascii` asks for ASCII glyphs even where the encoding could carry more. Raises UsageError for a
    theme that does not exist.
    """
    glyphs = ASCII if ascii else glyphs_for(charset.of(os.environ, encoding))
    return Look(glyphs, depth_of(os.environ), theme, ground_of(os.environ))


def _widgets(name: str, letters: str, ground: str, line: str) -> Theme:
    return Theme(
        name=name,
        ansi=True,
        primary="ansi_blue",
        secondary="ansi_cyan",
        warning="ansi_yellow",
        error="ansi_bright_red",
        success="ansi_cyan",
        accent="ansi_cyan",
        foreground=letters,
        background=ground,
        surface=ground,
        panel=ground,
        boost=ground,
        dark=True,
        variables={
            "ansi-background": ground,
            "ansi-foreground": letters,
            "input-cursor-text-style": "reverse",
            "input-cursor-background": ground,
            "input-cursor-foreground": letters,
            "input-selection-background": "ansi_bright_blue",
            "input-selection-foreground": "ansi_black",
            "block-cursor-foreground": "ansi_black",
            "block-cursor-background": "ansi_white",
            "border-blurred": line,
            "scrollbar": line,
            "scrollbar-hover": "ansi_white",
            "scrollbar-active": "ansi_white",
            "scrollbar-background": ground,
            "scrollbar-background-hover": ground,
            "scrollbar-background-active": ground,
            "scrollbar-corner-color": ground,
        },
    )


OWN_GROUND = _widgets("gpuconsole", "ansi_default", "ansi_default", "ansi_bright_black")
"""In the terminal's own colours."""
ON_BLACK = _widgets("gpuconsole-on-black", "ansi_bright_white", "ansi_black", "ansi_white")
