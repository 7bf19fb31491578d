"""The verdict of one node: critical > unknown > warn > info > ok. Pure."""

from __future__ import annotations

from probes.event import Finding, NodeState, Severity, worst
from probes.facts import NodeFacts

POWERED_OFF = "off"
"""Scheduler state of a node that is off by design."""
SEEING = frozenset({NodeState.UP, NodeState.DEGRADED, NodeState.ENDED})
"""States in which what we show is what the node says now."""


REFUSED = frozenset({"index", "nvml_rc", "nvml_call", "nvml_slowest_s", "nvml_slowest_call"})
"""What an answer holds when the driver refused every reading of a GPU."""


def verdict(facts: NodeFacts, findings: list[Finding], now: float) -> Severity:
    """Worst of the findings, never better than what we can see.

    A node that does not answer, or that never told about its GPUs, is at least unknown; one that
    the scheduler powered off is info. `now` is not needed yet: the session, which knows the
    intervals, says when answers are stale.
    """
    severities = [finding.severity for finding in findings]
    if _off(facts):
        known = [severity for severity in severities if severity is not Severity.UNKNOWN]
        return worst([Severity.INFO, *known])
    if facts.state not in SEEING or not _told(facts):
        severities.append(Severity.UNKNOWN)
    return worst(severities)


def _off(facts: NodeFacts) -> bool:
    """Powered off by design, and not answering."""
    allocation = facts.allocation
    return allocation is not None and allocation.state == POWERED_OFF and facts.state not in SEEING


def _told(facts: NodeFacts) -> bool:
    """Whether the node showed all its GPUs, or said that it has none and should have none.

    A GPU that is listed without a reading was not shown.
    """
    shown = sum(
        1 for device, sample in facts.devices("gpu") if device and sample.values.keys() - REFUSED
    )
    if shown:
        counted = facts.value("inventory", "", "gpu_count")
        return not isinstance(counted, int) or shown >= counted
    inventory = facts.get("inventory")
    if inventory is None:
        return False
    counts = [inventory.values.get(name) for name in ("gpu_count", "pci_gpu_count")]
    none_there = 0 in counts and not any(counts)
    return none_there and not facts.node.gpus
