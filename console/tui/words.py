"""The interface in the operator's language: `t("{n} marked", n=3)`.

Only words of the interface and the sentences of a plan pass here. What rules, nodes, schedulers and
tools say stays English as it is, in any language: operators search for it, paste it to vendors, and
find it in runbooks.

A module holds the one language of the process, as gettext does: threading it through every pure
function that draws a word would put it into every signature of the screen.
"""

from __future__ import annotations

import gettext
import os
import re
from collections.abc import Mapping
from pathlib import Path

from console import charset
from console.said import Said

LANGUAGES = ("en", "zh")
DOMAIN = "gpuconsole"
CATALOGUES = Path(__file__).parents[1] / "locale"

_catalogue: gettext.NullTranslations = gettext.NullTranslations()


def t(text: str, /, **values: object) -> str:
    """`text` in the chosen language, `{name}` filled in. Literals only, for the catalogue."""
    # An empty message is the header of a catalogue.
    told = _catalogue.gettext(text) if text else text
    return told.format(**values) if values else told


def tn(one: str, many: str, n: int, /, **values: object) -> str:
    """`t` of `one` for a single thing, else of `many` with `{n}`. Two literals."""
    return t(one if n == 1 else many, n=n, **values)


def spoken(text: str) -> str:
    """A sentence of the data as the interface says it; one that is of a rule or tool as it is."""
    if not isinstance(text, Said):
        return text
    filled = {k: spoken(v) if isinstance(v, str) else v for k, v in text.values.items()}
    return t(text.pattern, **filled)


def N_(text: str, /) -> str:  # noqa: N802 - gettext's usual name
    """Marks a literal of a table for the catalogue; whoever draws it passes it to `t`."""
    return text


def use(language: str) -> None:
    """Speak this language from now on: "en", or one that has a catalogue. Raises LookupError."""
    global _catalogue
    if language not in LANGUAGES:
        raise LookupError(language)
    _catalogue = (
        gettext.NullTranslations()
        if language == "en"
        else gettext.translation(DOMAIN, CATALOGUES, [language])
    )


def speak(wanted: str = "auto", *, ascii: bool = False) -> None:  # noqa: A002 - as preferences say
    """Use the language that the operator wants and this process's terminal can show."""
    use(language_of(os.environ, "ascii" if ascii else charset.here(), wanted))


def language_of(environ: Mapping[str, str], encoding: str | None, wanted: str = "auto") -> str:
    """ "zh" where the operator wants it and the terminal can show it, else "en".

    `wanted` is the preference ("auto", "en", "zh"); auto goes by LC_ALL, LC_MESSAGES and LANG, the
    first that is set. A terminal that is not UTF-8 and Linux' own console, which has no such
    glyphs, get English.
    """
    if wanted == "auto":
        names = ("LC_ALL", "LC_MESSAGES", "LANG")
        told = next((environ[name] for name in names if environ.get(name)), "")
        wanted = "zh" if re.match(r"zh(?![a-z])", told, re.IGNORECASE) else "en"
    shown = charset.is_utf8(encoding) and environ.get("TERM") != "linux"
    return wanted if shown else "en"
