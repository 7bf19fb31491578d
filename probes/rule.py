"""A Rule is declared once: its finding, its documentation and `gpuconsole explain` come from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from probes.event import Action, Finding, Scalar, Severity
from probes.expect import Peers
from probes.facts import NodeFacts
from probes.rules import Limit, Rules

TEXT_CHARS = 500
"""Longest line of a finding; as long as the longest kernel line that an agent sends."""
NAME_CHARS = 120
"""Longest device or label."""
EVIDENCE = 8
"""Most lines of evidence, as in the Ledger."""


class Look(Struct, frozen=True):
    """What a check sees: one node, its peers of the same role, the limits, the time."""

    facts: NodeFacts
    peers: Peers
    rules: Rules
    now: float


Check: TypeAlias = Callable[[Look], Iterator[Finding]]


class Rule(Struct, frozen=True, kw_only=True):
    """One thing that can be wrong."""

    id: str
    """Dotted, domain first: "gpu.lost"."""
    title: str
    severity: Severity
    reads: str
    """Probe and metrics, for the operator: "NVML handle and calls of each GPU"."""
    cause: str
    action: Action
    next_step: str
    source: str
    """Where the meaning or the limit comes from; tags in brackets are in sources.yaml."""
    example: str
    """One evidence line as it looks in the field."""
    limits: tuple[str, ...] = ()
    """Names in thresholds.yaml."""
    others: str = ""
    """Which tools of sources.yaml check it too, and with which limit."""
    hard: bool = False
    clears: Literal["reboot", "reset"] = "reboot"
    """What ends a latched finding besides an acknowledgement: a reboot always, a reset where the
    same reading that showed the fault can also show that it is over (probes.checks.healed)."""

    def finding(
        self,
        look: Look,
        say: str,
        evidence: tuple[str, ...],
        *,
        device: str = "",
        label: str = "",
        severity: Severity | None = None,
        value: Scalar | None = None,
        limit: Limit | None = None,
        cause: str = "",
        action: Action | None = None,
        next_step: str = "",
        source: str = "",
    ) -> Finding:
        """A Finding of this rule; what is not given is the rule's own."""
        return Finding(
            rule=self.id,
            severity=severity or self.severity,
            node=look.facts.node.name,
            device=device[:NAME_CHARS],
            label=label[:NAME_CHARS],
            say=_clipped(say),
            value=_bounded(value),
            limit=limit.value if limit else None,
            unit=limit.unit if limit else "",
            since=look.now,
            evidence=tuple(_clipped(line) for line in evidence[:EVIDENCE]),
            cause=cause or self.cause,
            action=action or self.action,
            next_step=_clipped(next_step or self.next_step),
            source=source or (limit.source if limit else self.source),
            hard=self.hard,
        )


def _clipped(text: str) -> str:
    return text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 1] + "…"


def _bounded(value: Scalar | None) -> Scalar | None:
    """As JSON can carry it: numbers of a hostile node may have any size, or be none."""
    if isinstance(value, str):
        return _clipped(value)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if abs(value) < 1 << 63 else None
