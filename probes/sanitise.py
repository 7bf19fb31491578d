"""Text from a node is hostile until it has passed here. Pure."""

from __future__ import annotations

import re

LINE_CHARS = 300
"""Longest text shown in one place; kernel lines are cut at 500 by the node already."""

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, erase
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and the other strings, up to their end
    r"|\x1b[ -/]*[0-~]?",  # two-byte escapes and a lone ESC
    re.DOTALL,
)
_SPACE = str.maketrans(dict.fromkeys("\t\r\n\x0b\x0c\x85\u2028\u2029\xa0", " "))


def clean(text: str, limit: int = LINE_CHARS) -> str:
    """One line of printable text of at most `limit` characters.

    Escape sequences vanish, line breaks become spaces, every other character that does not print
    (C0 and C1 controls, lone surrogates, bidi overrides, zero-width marks) becomes U+FFFD.
    """
    if text.isprintable():
        return text if len(text) <= limit else text[: limit - 1] + "…"
    # Escapes could make a long text short: look at a bounded part only.
    text = _ESCAPE.sub("", text[: limit * 8]).translate(_SPACE).strip()
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\ufffd" for char in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def decode(raw: bytes, limit: int = LINE_CHARS) -> str:
    """Bytes of any encoding as `clean` text."""
    return clean(raw[: limit * 8].decode("utf-8", "replace"), limit)
