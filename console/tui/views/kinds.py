"""Findings by kind: what makes two findings the same problem on different devices. Pure.

A node that could not be seen has a kind as well, also where no check says so: not asked yet, its
GPUs only partly shown, switched off. Unknown is never ok.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from console.tui.text import plain
from console.tui.words import t
from probes.checks import RULES
from probes.drift_facts import FACTS
from probes.event import Finding, NodeState, Severity
from probes.facts import NodeFacts
from probes.rules import Rules

UNSEEN = "unseen"
"""Rule of rows about nodes that nothing is known of and of which no finding says why."""
_TITLES = {rule.id: rule.title for rule in RULES}
_ADDRESS = re.compile(r"\d")
_NAMED = ("drift.", "site.")
"""Rules whose device is the name of a fact, digits or not."""
_PCI = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:|.*/\d+$")


class Kind(NamedTuple):
    """What findings are folded by."""

    rule: str
    what: str
    """What tells problems of one rule apart: a service, a mount, a fact; why there is no answer."""


def kind_of(finding: Finding, facts: NodeFacts) -> Kind:
    """Its kind. An address or a number names one device of many and tells nothing apart."""
    device, rule = finding.device, finding.rule
    if rule == "node.unreachable":
        return Kind(rule, facts.status.reason if facts.status is not None else "")
    if device.startswith("/") or not _ADDRESS.search(device):
        return Kind(rule, device)
    if rule.startswith(_NAMED) and not _PCI.match(device):
        return Kind(rule, device)
    return Kind(rule, "")


def title(kind: Kind, rules: Rules) -> str:
    """What the operator calls it: "Xid 79 GPU has fallen off the bus", "slurmd: A service ...".

    What tells it from its like comes first: a narrow column cuts the end.
    """
    if kind.rule == UNSEEN:
        return _unseen_title(kind.what)
    domain, _, code = kind.rule.partition(".")
    if domain in ("xid", "sxid") and code.isdigit():
        meanings = rules.xids if domain == "xid" else rules.sxids
        meaning = meanings.get(int(code))
        word = "Xid" if domain == "xid" else "SXid"
        return f"{word} {code} {meaning.name}" if meaning else f"{word} {code}"
    name = _TITLES.get(kind.rule, kind.rule)
    what = FACTS[kind.what].label if kind.what in FACTS else kind.what
    told = not what or what.lower() in name.lower()
    return plain(name if told else f"{what}: {name}")


def _unseen_title(what: str) -> str:
    match what:
        case NodeState.PENDING:
            return t("not asked yet")
        case NodeState.CONNECTING:
            return t("connecting, no answer yet")
        case "off":
            return t("switched off by the scheduler")
    return t("not all of it was read")


def unseen(facts: NodeFacts, verdict: Severity, found: Sequence[Finding]) -> Finding | None:
    """A row for a node that could not be judged though no finding says so."""
    if any(finding.severity is Severity.UNKNOWN for finding in found):
        return None
    state, status = facts.state, facts.status
    off = facts.allocation is not None and facts.allocation.state == "off"
    if verdict is Severity.INFO and off and state not in (NodeState.UP, NodeState.DEGRADED):
        return _unseen(facts, Severity.INFO, "off", "")
    if verdict is not Severity.UNKNOWN:
        return None
    reached = state not in (NodeState.PENDING, NodeState.CONNECTING)
    said = plain(status.text) if status is not None else ""
    return _unseen(facts, Severity.UNKNOWN, "" if reached else state.value, said)


def _unseen(facts: NodeFacts, severity: Severity, what: str, said: str) -> Finding:
    status = facts.status
    return Finding(
        rule=UNSEEN, severity=severity, node=facts.node.name, device=what,
        say=said or _unseen_title(what), since=status.at if status is not None else 0.0,
        cause=said or _unseen_title(what),
        next_step=status.hint if status is not None and status.hint else "",
    )  # fmt: skip
