"""Colours as numbers: what a style looks like, contrast, and how the colour-blind see it."""

from __future__ import annotations

from collections.abc import Mapping

from rich.color import Color, ColorType
from rich.style import Style

Rgb = tuple[float, float, float]

XTERM_16: tuple[Rgb, ...] = (
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0),
    (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0),
    (92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255),
)  # fmt: skip
"""xterm's own sixteen (XTerm-col.ad of xterm 390)."""

SIGHT: Mapping[str, tuple[Rgb, Rgb, Rgb]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""Linear RGB to linear RGB at severity 1.0: G. M. Machado, M. M. Oliveira, L. A. F. Fernandes, "A
Physiologically-based Model for Simulation of Color Vision Deficiency", IEEE TVCG 15(6), 2009."""


def rgb(color: Color) -> Rgb:
    """Red, green and blue, 0 to 255, of a colour that is not the terminal's default."""
    if color.type is ColorType.STANDARD:
        assert color.number is not None
        return XTERM_16[color.number]
    assert color.type is ColorType.EIGHT_BIT
    return tuple(color.get_truecolor())  # type: ignore[return-value] # three channels


def seen(style: Style, letters: Rgb, ground: Rgb) -> tuple[Rgb, Rgb]:
    """(letters, ground) of a style on a terminal with these of its own."""
    front = letters if style.color is None else rgb(style.color)
    back = ground if style.bgcolor is None else rgb(style.bgcolor)
    return (back, front) if style.reverse else (front, back)


def linear(colour: Rgb) -> Rgb:
    """sRGB decoded: IEC 61966-2-1."""
    red, green, blue = (_linear(channel / 255) for channel in colour)
    return red, green, blue


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def contrast(one: Rgb, two: Rgb) -> float:
    """WCAG 2.2 contrast ratio, 1 to 21."""
    low, high = sorted(_luminance(linear(colour)) for colour in (one, two))
    return (high + 0.05) / (low + 0.05)


def _luminance(light: Rgb) -> float:
    red, green, blue = light
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def lab(colour: Rgb, sight: str = "normal") -> Rgb:
    """CIE L*a*b* under D65 of a colour, as somebody with this sight sees it."""
    light = linear(colour)
    rows = SIGHT[sight]
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, light, strict=True)))) for row in rows
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (_cube(value) for value in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def _cube(value: float) -> float:
    return float(value ** (1 / 3)) if value > 0.008856 else 7.787 * value + 16 / 116


def distance(one: Rgb, two: Rgb, sight: str) -> float:
    """CIE76: about 2.3 can just be told apart side by side."""
    pairs = zip(lab(one, sight), lab(two, sight), strict=True)
    return float(sum((a - b) ** 2 for a, b in pairs) ** 0.5)
