"""Which character set the operator's terminal has: it decides what is drawn and how keys are read.

Only UTF-8 gets more than ASCII. GB18030 has our signs too, but terminals of the East Asian sets
draw most of them two cells wide (glibc's wcwidth says so as well), and every line would break.
Pure but for `here`.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Mapping

UTF8 = "utf-8"
_KEYS = bytes(range(128)) + b"\x1b$B!!"
"""With a shift of ISO 2022, which is a key to us."""


def here() -> str:
    """Of this process's terminal, as Python names it."""
    # Textual draws on stderr.
    return of(os.environ, getattr(sys.__stderr__, "encoding", None))


def of(environ: Mapping[str, str], encoding: str | None) -> str:
    """By the stream's `encoding`; the locale's own word is better where Python overrules it.

    Python is in its UTF-8 mode where a locale is not installed, and from 3.15 on everywhere; the
    terminal stays what it is. PYTHONIOENCODING is about this stream and has the last word.
    """
    found = _known(encoding)
    if found != UTF8 or environ.get("PYTHONIOENCODING"):
        return found
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    told = next((environ[name] for name in names if environ.get(name)), "")
    _, dot, named = told.partition("@")[0].partition(".")
    return _known(named, found) if dot else found


def is_utf8(encoding: str | None) -> bool:
    """By whatever name; False for what nobody knows."""
    return _known(encoding) == UTF8


def for_keys(charset: str) -> str:
    """The set to read keys in: `charset` where it leaves ASCII and escape sequences as they are."""
    if charset == "ascii":
        return UTF8  # a C locale says nothing of the terminal; UTF-8 has all of ASCII
    return charset if _KEYS.decode(charset, "replace") == _KEYS.decode("ascii") else UTF8


def _known(name: str | None, otherwise: str = "ascii") -> str:
    """A name that Python knows as a set of characters, in its own spelling."""
    try:
        "".encode(name or "ascii")
        return codecs.lookup(name or "ascii").name
    except (LookupError, ValueError):
        return otherwise
