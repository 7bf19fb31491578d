"""Elements whose text is escaped by construction: what is not Markup already becomes text. Pure.

The result is well-formed XML as well as HTML, so that a test can hold it to that.
"""

from __future__ import annotations

import html

from console.active.cells import safe

VOID = frozenset({"meta", "rect", "line", "path", "circle", "polyline", "image", "br"})
TEXT_CHARS = 400
"""Longest text in one element; node output does not decide how long a report is."""


class Markup(str):
    """A string that is markup: made only by `tag`, `join` and our own constants."""

    __slots__ = ()


def escaped(text: str, limit: int = TEXT_CHARS) -> Markup:
    """Any text as text: nothing in it can begin an element, leave an attribute or hide."""
    return Markup(html.escape(safe(text, limit)))


def join(*parts: str) -> Markup:
    """Parts one after the other; plain strings are escaped."""
    return Markup("".join(p if isinstance(p, Markup) else escaped(p) for p in parts))


def tag(name: str, /, *parts: str, **attributes: str | float) -> Markup:
    """`<name ...>parts</name>`. `_` before a Python word is dropped, inside a name it is "-"."""
    told = "".join(
        f' {key.lstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value != ""
    )
    if name in VOID and not parts:
        return Markup(f"<{name}{told}/>")
    return Markup(f"<{name}{told}>{join(*parts)}</{name}>")


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return value if isinstance(value, Markup) else escaped(value)
    return f"{value:.1f}".removesuffix(".0")
