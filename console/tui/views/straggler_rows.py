"""Rows of the view of stragglers. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from console.tui.views.peers import Left
from probes.event import Finding, Severity
from probes.ranks_rules import LATE_RANK
from probes.slow_group import Group
from probes.slow_rules import GPU, NODE, POWER_LIMIT, SUSPECT
from probes.slow_time import Slow

SLOW = frozenset({GPU.id, NODE.id, SUSPECT.id, POWER_LIMIT.id, LATE_RANK.id})
RowKind = Literal["slow", "waits", "compared", "field", "left", "node"]


class Row(NamedTuple):
    """One line of the table."""

    kind: RowKind
    names: tuple[str, ...]
    severity: Severity
    found: tuple[Finding, ...] = ()
    slow: Slow | None = None
    seen: bool = True
    """Of what is slow: the latest look found it so."""
    rank: int = 0
    group: Group | None = None
    left: Left | None = None
    gpus: int = 0
    groups: int = 0
    job: str = ""


def share_of(finding: Finding) -> float | None:
    """Its reading over what is usual, where the finding is about one."""
    value = finding.value
    graded = finding.rule in (GPU.id, NODE.id, SUSPECT.id)
    return float(value) if graded and isinstance(value, int | float) else None
