"""What was probably meant by a word that is not valid."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, valid: Iterable[str]) -> str:
    """`did you mean X`, or what there is to choose from, or "" when there is nothing."""
    names = list(valid)
    close = difflib.get_close_matches(word.lower(), [n.lower() for n in names], n=1, cutoff=0.6)
    if close:
        return f"did you mean {next(n for n in names if n.lower() == close[0])}?"
    if not names:
        return ""
    more = f", ... ({len(names)} in all)" if len(names) > 20 else ""
    return f"one of: {', '.join(names[:20])}{more}"
