"""Sentences that are data first and words on a screen second: English with what was filled in.

A plan's notes go to audits, documents, stdout and tickets, always in English. The screen may say
the same in the operator's language, because the sentence remembers how it was made.
"""

from __future__ import annotations

from collections.abc import Mapping


class Said(str):
    """Its own English wherever a str is wanted; `pattern` and `values` for another language."""

    __slots__ = ("pattern", "values")
    pattern: str
    values: Mapping[str, object]


def said(pattern: str, /, **values: object) -> Said:
    """`pattern` with `{name}` filled in. A literal, for the catalogue; values may be Said too."""
    made = Said(pattern.format(**values) if values else pattern)
    made.pattern, made.values = pattern, values
    return made


def plainly(value: object) -> str:
    """For an encoder, which takes no kind of str but str itself. TypeError for anything else."""
    if isinstance(value, Said):
        return str(value)
    raise TypeError(f"cannot encode {type(value).__name__}")
