"""Numbers with units at a fixed width, so that columns never jump. None is drawn as an en dash."""

from __future__ import annotations

ABSENT = "–"

_BINARY = ("B", "K", "M", "G", "T", "P")
_DECIMAL = ("", "k", "M", "G", "T", "P")


def size(value: float | None) -> str:
    """Bytes, at most 5 cells: "512B", "70.0G" (1 G = 2**30)."""
    if value is None:
        return ABSENT
    return _scaled(value, 1024.0, _BINARY)


def count(value: float | None) -> str:
    """A counter, at most 5 cells: "42", "1.2k"."""
    if value is None:
        return ABSENT
    return _scaled(value, 1000.0, _DECIMAL)


def _scaled(value: float, step: float, names: tuple[str, ...]) -> str:
    index = 0
    while abs(value) >= step - 0.5 and index < len(names) - 1:
        value /= step
        index += 1
    whole = index == 0 or abs(value) >= 99.95
    return f"{value:.0f}{names[index]}" if whole else f"{value:.1f}{names[index]}"


def counted(number: int, one: str, more: str = "") -> str:
    """ "1 round", "3 rounds"."""
    return f"{number} {one if number == 1 else more or one + 's'}"


def whole(value: float | None, unit: str = "") -> str:
    """A rounded number with its unit: "61%", "700W"."""
    return ABSENT if value is None else f"{value:.0f}{unit}"


def age(seconds: float | None) -> str:
    """A duration in at most 4 cells: "0s", "59s", "12m", "3h", "2d", "999d"."""
    if seconds is None:
        return ABSENT
    seconds = max(0.0, seconds)
    for limit, divisor, name in ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // divisor)}{name}"
    return f"{min(999, int(seconds // 86400))}d"


def rate(gbps: float | None) -> str:
    """A link rate in Gb/s, at most 4 cells."""
    return ABSENT if gbps is None else f"{gbps:g}G"
