"""The interface in the operator's language: `t("{n} marked", n=3)`.

Only words of the interface pass here. What rules, nodes, schedulers and tools say stays as it is:
operators search for it and paste it.
"""

from __future__ import annotations


def t(text: str, /, **values: object) -> str:
    """`text` in the chosen language, `{name}` filled in. Literals only, for the catalogue."""
    return text.format(**values) if values else text
