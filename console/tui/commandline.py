"""The `:` command line: words to a request. Pure; the fleet screen carries requests out."""

from __future__ import annotations

import difflib

from msgspec import Struct

from console.tui.commands import BY_ID
from console.tui.words import t
from inventory.errors import UsageError

ALIASES = {
    "q": "quit",
    "undrain": "resume",
    "unmark": "mark_clear",
    "ack": "acknowledge",
    "f": "filter",
    "dmesg": "kernel_log",
}
WITH_TEXT = (
    "drain",
    "resume",
    "sort",
    "filter",
    "mark",
    "open",
    "ssh",
    "explain",
    "metric",
    "copy",
    "screenshot",
    "kernel_log",
    "find",
    "record",
    "seek",
    "speed",
    "theme",
)
"""Commands that take words: a reason, an order, a filter, a node, a rule, a form, a theme."""


class Request(Struct, frozen=True):
    """A command's id and the text after it."""

    id: str
    text: str = ""


def parse(line: str, *, read_only: bool) -> Request:
    """`drain bad link` -> Request("drain", "bad link"). Raises UsageError with the nearest word."""
    word, _, text = line.strip().partition(" ")
    name = ALIASES.get(word, word.replace("-", "_"))
    known = [i for i, c in BY_ID.items() if not (read_only and c.acts)]
    if name not in known:
        if name in BY_ID:
            raise UsageError(t(":{word} is not available in read-only mode", word=word))
        close = difflib.get_close_matches(name, [*known, *ALIASES], 1, 0.5)
        hint = t("did you mean :{word}?", word=close[0]) if close else t("? lists all commands")
        raise UsageError(t("there is no command :{word}", word=word), instead=hint)
    text = text.strip()
    if text and name not in WITH_TEXT:
        raise UsageError(t(":{word} takes nothing after it", word=word))
    return Request(name, text)
