"""Further tickets of the kinds of the field cases, each with the verdict that must be reached."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from console.diagnose.command import Diagnosis
from probes.event import Severity
from tests.diagnose.support import findings, ticket


class Variant(NamedTuple):
    """A ticket and what must be said of it."""

    name: str
    text: str
    severity: str
    drain: str
    """How the advice begins."""
    says: tuple[str, ...] = ()
    """Words of the one line."""
    never: tuple[str, ...] = ()
    """Words that stand nowhere in the line or in a finding above info."""


def table(*variants: Variant) -> pytest.MarkDecorator:
    """Parameters of one test function, by name."""
    return pytest.mark.parametrize("variant", variants, ids=[v.name for v in variants])


def check(variant: Variant) -> Diagnosis:
    """The verdict, the advice and the words; the diagnosis for what else a test wants."""
    told = ticket(variant.text)
    assert told.verdict is Severity(variant.severity), told.say
    assert told.drain.startswith(variant.drain), told.drain
    for word in variant.says:
        assert word in told.say, told.say
    grave = [f.say for f in findings(told) if f.severity.rank > Severity.INFO.rank]
    for word in variant.never:
        assert word not in told.say, told.say
        assert not any(word in say for say in grave), grave
    return told
