"""Style tables of the themes: name -> Rich style, for 0, 16 and 256 colours.

Contrast is WCAG 2's (https://www.w3.org/TR/WCAG22/#contrast-minimum): 4.5:1 for text on the ground
a theme assumes, 7:1 (its level AAA) in high contrast; tests/tui/test_themes.py computes it. The
256 colours are xterm's cube and greys; the 16 are what xterm ships (XTerm-col.ad); other terminals
move those 16, which is why severity is a glyph and a word first.

Severities begin from the Okabe-Ito set (vermilion, orange, sky blue, reddish purple: M. Okabe and
K. Ito, https://jfly.uni-koeln.de/color/), which people with any common colour blindness can tell
apart. ok is not coloured, so that a healthy fleet is a calm screen.
"""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, str]

HEAT = tuple(f"heat{level}" for level in range(8))
"""A ramp for heat maps, low to high: the ground of a cell with a readable ink on it. Draw a blank,
a digit or a glyph of text.LEVELS: without colours only the glyph tells the level."""


def _heat(grounds: tuple[str, ...], dark_up_to: int, inks: tuple[str, str]) -> Table:
    """Grounds from dark to bright; the first `dark_up_to` carry bright ink."""
    bright, dark = inks
    return {
        name: f"{bright if level < dark_up_to else dark} on {ground}"
        for level, (name, ground) in enumerate(zip(HEAT, grounds, strict=True))
    }


def _reversed(heat: Table) -> Table:
    """On a bright ground the low end is the bright one: what is high stands out."""
    return dict(zip(HEAT, reversed(list(heat.values())), strict=True))


# Blue over grey to yellow, as cividis (Nunez, Anderton and Renslow 2018) goes: the one course of
# hue that all common colour blindness leaves alone. Lightness L*: 7 20 33 46 55 71 84 98.
_HEAT_256 = _heat(
    tuple(f"color({index})" for index in (17, 19, 239, 242, 101, 144, 185, 228)),
    4,
    ("color(231)", "color(16)"),
)
# Lightness L* of xterm's sixteen: 0 30 48 53 75 80 91 97.
_HEAT_16 = _heat(
    ("black", "blue", "bright_blue", "bright_black", "cyan", "yellow", "white", "bright_yellow"),
    2,
    ("bright_white", "black"),
)

MONO: Table = {
    "text": "",
    "ok": "",
    "info": "",
    "warn": "bold",
    "critical": "bold reverse",
    "unknown": "bold underline",
    "dim": "dim",
    "stale": "dim italic",
    "head": "bold underline",
    "title": "bold",
    "key": "bold",
    "mark": "bold",
    "band": "reverse",
    "busy": "",
    "held": "bold",
    **dict.fromkeys(HEAT, ""),
    "heat6": "bold",
    "heat7": "bold reverse",
}

DARK_16: Table = {
    **MONO,
    "info": "bright_cyan",
    "warn": "bold yellow",
    "critical": "bold bright_red",
    "unknown": "bold bright_magenta",
    "stale": "bright_black",
    "dim": "bright_black",
    "key": "bold cyan",
    "mark": "bold bright_cyan",
    "busy": "cyan",
    "held": "yellow",
    **_HEAT_16,
}
DARK_256: Table = {
    **MONO,
    "info": "color(74)",
    "warn": "color(214)",
    "critical": "bold color(203)",
    "unknown": "color(175)",
    "stale": "color(246)",
    "dim": "color(246)",
    "key": "bold color(74)",
    "mark": "bold color(74)",
    "busy": "color(74)",
    "held": "color(214)",
    **_HEAT_256,
}

# xterm's sixteen have no grey of 4.5:1 on white: italic and the age beside it tell stale there.
LIGHT_16: Table = {
    **MONO,
    "info": "blue",
    "warn": "bold magenta",
    "critical": "bold red",
    "unknown": "bold underline blue",
    "stale": "italic",
    "dim": "",
    "key": "bold blue",
    "mark": "bold blue",
    "busy": "blue",
    "held": "magenta",
    **_reversed(_HEAT_16),
}
LIGHT_256: Table = {
    **MONO,
    "info": "color(25)",
    "warn": "bold color(94)",
    "critical": "bold color(160)",
    "unknown": "color(90)",
    "stale": "color(241)",
    "dim": "color(241)",
    "key": "bold color(25)",
    "mark": "bold color(25)",
    "busy": "color(25)",
    "held": "color(94)",
    **_reversed(_HEAT_256),
}
