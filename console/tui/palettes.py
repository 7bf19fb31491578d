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
from typing import NamedTuple

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
# hue that all common colour blindness leaves alone. Lightness L*: 7 14 29 42 56 71 84 98.
_HEAT_256 = _heat(
    tuple(f"color({index})" for index in (17, 18, 238, 60, 102, 144, 185, 228)),
    4,
    ("color(231)", "color(16)"),
)
# Lightness L* of xterm's sixteen: 0 30 48 53 75 80 91 97.
_HEAT_16 = _heat(
    ("black", "blue", "bright_blue", "bright_black", "cyan", "yellow", "white", "bright_yellow"),
    3,
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
    "critical": "bold color(202)",
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
    "info": "color(26)",
    "warn": "bold color(94)",
    "critical": "bold color(161)",
    "unknown": "color(90)",
    "stale": "color(241)",
    "dim": "color(241)",
    "key": "bold color(26)",
    "mark": "bold color(26)",
    "busy": "color(26)",
    "held": "color(94)",
    **_reversed(_HEAT_256),
}

# Critical is a bright bar of dark letters: no red reaches 7:1 on black in sixteen colours.
HIGH_16: Table = {
    **MONO,
    "text": "bright_white",
    "ok": "bright_white",
    "info": "bright_cyan",
    "warn": "bold bright_yellow",
    "critical": "bold black on bright_white",
    "unknown": "bold underline bright_cyan",
    "stale": "italic white",
    "dim": "white",
    "head": "bold underline bright_white",
    "title": "bold bright_white",
    "key": "bold bright_cyan",
    "mark": "bold bright_green",
    "band": "black on bright_white",
    "busy": "bright_cyan",
    "held": "bright_yellow",
    **_heat(
        (
            "black",
            "blue",
            "green",
            "cyan",
            "yellow",
            "white",
            "bright_yellow",
            "bright_white",
        ),
        2,
        ("bright_white", "black"),
    ),
}
HIGH_256: Table = {
    **MONO,
    "text": "color(231)",
    "ok": "color(231)",
    "info": "color(117)",
    "warn": "bold color(220)",
    "critical": "bold color(16) on color(217)",
    "unknown": "bold underline color(183)",
    "stale": "italic color(250)",
    "dim": "color(250)",
    "head": "bold underline color(231)",
    "title": "bold color(231)",
    "key": "bold color(117)",
    "mark": "bold color(117)",
    "band": "color(16) on color(231)",
    "busy": "color(117)",
    "held": "color(220)",
    # Lightness 7 14 29 37 65 74 84 98: none in between carries ink of 7:1.
    **_heat(
        tuple(f"color({index})" for index in (17, 18, 238, 240, 247, 180, 185, 228)),
        4,
        ("color(231)", "color(16)"),
    ),
}

# The four severities that are furthest apart in the worst of normal, protan, deutan and tritan
# sight among those xterm colours that reach the contrast: see the test for the simulation.
# In sixteen colours info (dark) and unknown (light) keep apart by their underline.
BLIND_DARK_16: Table = {**DARK_16, "info": "underline bright_cyan"}
BLIND_LIGHT_16: Table = {**LIGHT_16, "unknown": "bold underline"}
BLIND_DARK_256: Table = {
    **DARK_256,
    "info": "color(69)",
    "warn": "color(220)",
    "critical": "bold color(202)",
    "unknown": "color(176)",
    "key": "bold color(69)",
    "mark": "bold color(69)",
    "busy": "color(69)",
    "held": "color(220)",
}
BLIND_LIGHT_256: Table = {
    **LIGHT_256,
    "info": "color(21)",
    "warn": "bold color(58)",
    "critical": "bold color(125)",
    "unknown": "color(91)",
    "key": "bold color(21)",
    "mark": "bold color(21)",
    "busy": "color(21)",
    "held": "color(58)",
}


class Palette(NamedTuple):
    """A theme on a ground, for terminals of few and of many colours."""

    sixteen: Table
    many: Table


def _painted(table: Table, ground: str) -> Table:
    """The same styles on a ground of our own."""
    return {name: text if " on " in text else f"{text} on {ground}" for name, text in table.items()}


DARK = Palette(DARK_16, DARK_256)
LIGHT = Palette(LIGHT_16, LIGHT_256)
HIGH = Palette(_painted(HIGH_16, "black"), _painted(HIGH_256, "color(16)"))
BLIND_DARK = Palette(BLIND_DARK_16, BLIND_DARK_256)
BLIND_LIGHT = Palette(BLIND_LIGHT_16, BLIND_LIGHT_256)

THEMES: Mapping[str, Mapping[str, Palette]] = {
    "auto": {"dark": DARK, "light": LIGHT},
    "dark": {"dark": DARK, "light": DARK},
    "light": {"dark": LIGHT, "light": LIGHT},
    "high-contrast": {"dark": HIGH, "light": HIGH},
    "colour-blind": {"dark": BLIND_DARK, "light": BLIND_LIGHT},
}
"""Theme -> the terminal's ground -> palette. All but high-contrast keep the terminal's own ground
and letters (fewer bytes over a slow line); that one paints its ground black, to be sure of it."""
