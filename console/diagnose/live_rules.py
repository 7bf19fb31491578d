"""Rules of the live checks, by id: a paper that shows the same fault says it in the same words."""

from __future__ import annotations

import functools

from probes.checks import RULES
from probes.rule import Rule


@functools.cache
def live(rule: str) -> Rule:
    """The rule of that id. KeyError is a programming error: tests read all that are named."""
    return {known.id: known for known in RULES}[rule]
