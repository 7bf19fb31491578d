"""What a reader makes of its text: facts, findings, what it cannot know, one line that says it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field, structs

from inventory.node import Node
from probes.event import Action, Finding, Scalar, Severity, worst
from probes.expect import Peers
from probes.facts import NodeFacts
from probes.rule import EVIDENCE, TEXT_CHARS, Look, Rule
from probes.rules import load_rules
from probes.sanitise import clean

NO = "no"
AFTER_JOBS = "after running jobs"
NOW = "now"
FACT_CHARS = 2000
"""Longest text of one fact."""
FACT_ITEMS = 10_000
"""Most entries of one list or mapping of facts; no ticket speaks of more nodes."""
FACT_DEPTH = 12
UNKNOWNS = 20
"""Most sentences about what cannot be known."""
FINDINGS = 500
"""Most findings of one report: 100,000 broken nodes in one paste are shown as the worst 500."""


class Report(Struct, kw_only=True):
    """One piece of input, read."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    """What was extracted, JSON-able; the names say what it is."""
    findings: list[Finding] = field(default_factory=list)
    """Evidence holds the very lines; node is the host that the input names, else ""."""
    unknown: list[str] = field(default_factory=list)
    """What this input cannot tell, and what would."""
    say: str = ""
    """One line, also when all is well."""
    drain: str = NO
    """"no", "after running jobs", "now", or "unknown: " and what decides."""
    measured: bool = True
    """False when the input holds no measurement to judge by."""

    @property
    def verdict(self) -> Severity:
        """Worst of the findings; at least unknown when nothing could be measured."""
        floor = [] if self.measured else [Severity.UNKNOWN]
        return worst([*floor, *(finding.severity for finding in self.findings)])

    def add(self, rule: Rule, say: str, *evidence: str, **more: Any) -> Finding:
        """A finding of a rule that exists on paper; keywords as found()."""
        finding = found(rule, say, *evidence, **more)
        self.findings.append(finding)
        return finding


def found(rule: Rule, say: str, *evidence: str, node: str = "", **more: Any) -> Finding:
    """A Finding of `rule` about the node that a text names; keywords as Rule.finding()."""
    facts = NodeFacts(Node(name=node))
    look = Look(facts=facts, peers=Peers(role=""), rules=load_rules(), now=time.time())
    return rule.finding(look, say, evidence, **more)


_DRAINS = (Action.DRAIN, Action.REPLACE, Action.REBOOT, Action.RESET_GPU)


def drain_advice(findings: Iterable[Finding]) -> str:
    """From the actions that findings ask for: now for critical ones, else when jobs are over.

    A warning that asks for a reset waits for a quiet moment; what asks for none of it says no.
    """
    advice = NO
    for finding in findings:
        if finding.action in _DRAINS and finding.severity is Severity.CRITICAL:
            return NOW
        if finding.action in _DRAINS and finding.severity is Severity.WARN:
            advice = AFTER_JOBS
    return advice


def worst_advice(advices: Iterable[str]) -> str:
    """The advice that goes furthest; something unknown beats a plain no."""

    def rank(advice: str) -> int:
        if advice.startswith(NOW):
            return 3
        if advice.startswith("after"):
            return 2
        return 0 if advice.startswith(NO) else 1

    return max(advices, key=rank, default=NO)


def sanitised(report: Report) -> Report:
    """The report as it may be printed: bounded, every text one line of printable characters."""
    ordered = sorted(report.findings, key=lambda f: (-f.severity.rank, f.node, f.device))
    return structs.replace(
        report,
        facts=plain(report.facts),
        findings=[_finding(finding) for finding in ordered[:FINDINGS]],
        unknown=[clean(text, TEXT_CHARS) for text in report.unknown[:UNKNOWNS]],
        say=clean(report.say, TEXT_CHARS),
        drain=clean(report.drain, TEXT_CHARS),
    )


def _finding(finding: Finding) -> Finding:
    texts = ("node", "device", "label", "say", "unit", "cause", "next_step", "source")
    cleaned: dict[str, Any] = {
        name: clean(getattr(finding, name), TEXT_CHARS) for name in texts
    }  # fmt: skip
    evidence = tuple(clean(line, TEXT_CHARS) for line in finding.evidence[:EVIDENCE])
    value, limit = plain(finding.value), plain(finding.limit)
    return structs.replace(finding, **cleaned, evidence=evidence, value=value, limit=limit)


def plain(value: Any, depth: int = 0) -> Any:
    """JSON-able facts without control characters, of bounded size; what is none becomes None."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean(str(value), FACT_CHARS)
    if isinstance(value, int | float):
        return _number(value)
    if depth >= FACT_DEPTH:
        return None
    if isinstance(value, dict):
        pairs = list(value.items())[:FACT_ITEMS]
        return {clean(str(key), FACT_CHARS): plain(item, depth + 1) for key, item in pairs}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else list(value)
        return [plain(item, depth + 1) for item in items[:FACT_ITEMS]]
    return clean(str(value), FACT_CHARS)


def _number(value: int | float) -> Scalar | None:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return int(value) if abs(value) < 1 << 63 else None
