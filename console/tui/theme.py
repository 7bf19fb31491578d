"""How severities look: glyph, then word, then colour, so that losing one never loses the meaning.

The terminal's own foreground and background are kept: fewer bytes over a slow line, and light and
dark terminals both stay readable. Colours are the Okabe-Ito set (vermilion, orange, sky blue,
reddish purple), chosen because people with any common colour blindness can tell them apart; ok is
not coloured at all, so that a healthy fleet is a calm screen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from rich.style import Style
from textual.theme import Theme

from console.tui import palettes
from probes.event import Severity


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
    """The Unicode table when the terminal's encoding can carry it, else the ASCII one."""
    try:
        "".join(UNICODE).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


WORDS: Mapping[Severity, str] = {
    Severity.OK: "ok",
    Severity.INFO: "info",
    Severity.WARN: "warn",
    Severity.CRITICAL: "crit",
    Severity.UNKNOWN: "unkn",
}
"""Severity words of at most four letters: the grid's first column has no room for more."""


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


class Look:
    """Glyphs and styles of this terminal. Style names are the keys of palettes.MONO."""

    def __init__(self, glyphs: Glyphs = UNICODE, depth: Depth = Depth(256)) -> None:  # noqa: B008
        """Parse each style once; cursor variants are derived on first use."""
        table = {0: palettes.MONO, 16: palettes.DARK_16}.get(depth.colours, palettes.DARK_256)
        self.glyphs = glyphs
        self.depth = depth
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
            base = self.style(name) if kept else Style.null()
            style = self._cursor[name] = base + Style(reverse=True)
        return style


def look_here(encoding: str | None) -> Look:
    """The look of the terminal this process draws on (`encoding` is stderr's: Textual's output)."""
    return Look(glyphs_for(encoding), depth_of(os.environ))


THEME = Theme(
    name="gpuconsole",
    ansi=True,
    primary="ansi_blue",
    secondary="ansi_cyan",
    warning="ansi_yellow",
    error="ansi_bright_red",
    success="ansi_cyan",
    accent="ansi_cyan",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    variables={
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "input-cursor-text-style": "reverse",
        "input-cursor-background": "ansi_default",
        "input-cursor-foreground": "ansi_default",
        "input-selection-background": "ansi_bright_blue",
        "input-selection-foreground": "ansi_black",
        "block-cursor-foreground": "ansi_black",
        "block-cursor-background": "ansi_white",
        "border-blurred": "ansi_bright_black",
        "scrollbar": "ansi_bright_black",
        "scrollbar-hover": "ansi_white",
        "scrollbar-active": "ansi_white",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
        "scrollbar-corner-color": "ansi_default",
    },
)
"""Textual's own widgets (inputs, palette, toasts) in the terminal's own colours."""
