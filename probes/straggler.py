"""Which GPU is slower than its peers, and whether the node or the job is to blame. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from probes.event import Finding
from probes.facts import NodeFacts
from probes.rule import Rule
from probes.rules import Rules

RULES: tuple[Rule, ...] = ()


def compare(all_facts: Iterable[NodeFacts], rules: Rules, now: float) -> list[Finding]:
    """Findings about slow GPUs, over all nodes."""
    return []
