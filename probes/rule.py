"""A Rule is declared once: its finding, its documentation and `gpuconsole explain` come from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from probes.event import Action, Finding, Scalar, Severity
from probes.expect import Peers
from probes.facts import NodeFacts
from probes.rules import Limit, Rules


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
            device=device,
            label=label,
            say=say,
            value=value,
            limit=limit.value if limit else None,
            unit=limit.unit if limit else "",
            since=look.now,
            evidence=evidence,
            cause=cause or self.cause,
            action=action or self.action,
            next_step=next_step or self.next_step,
            source=source or (limit.source if limit else self.source),
            hard=self.hard,
        )
