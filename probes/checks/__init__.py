"""Samples become Findings: one module per domain, pure, all rules in one visible tuple."""

from __future__ import annotations

from probes import ranks_rules, straggler
from probes.checks import (
    affinity,
    c2c,
    capacity,
    congestion,
    containers,
    disks,
    drift,
    efa,
    fabric,
    gpu,
    gpu_test,
    host,
    host_log,
    infiniband,
    kernel,
    kernel_net,
    kernel_pcie,
    kernel_processes,
    kernel_storage,
    memory,
    modules,
    nccl,
    node,
    nvlink,
    nvlink_errors,
    pcie,
    pcie_path,
    processes,
    roce,
    rows,
    services,
    setup,
    site,
    storage,
    tasks,
    thermal,
    timesync,
    xid,
)
from probes.checks import explain as _explain
from probes.checks.healed import healed
from probes.checks.rule import Check, Look, Rule
from probes.event import Finding
from probes.expect import Peers, peers, peers_in_steps
from probes.facts import NodeFacts
from probes.rules import Rules
from probes.twice import once
from probes.unchanged import Quiet
from probes.verdict import verdict

__all__ = [
    "CHECKS", "RULES", "Peers", "Quiet", "explain", "healed", "judge", "peers", "peers_in_steps",
    "place", "unjudged", "verdict",
]  # fmt: skip

DOMAINS = (
    node, tasks, timesync, gpu, memory, rows, xid, kernel, kernel_pcie, kernel_net, thermal,
    services, fabric, c2c, nvlink, nvlink_errors, pcie, pcie_path, infiniband, efa, roce, affinity,
    congestion, storage, disks, host, capacity, host_log, kernel_processes, kernel_storage, modules,
    containers, site, drift, setup, processes, nccl, gpu_test,
)  # fmt: skip
CHECKS: tuple[Check, ...] = tuple(domain.check for domain in DOMAINS)
COMPARED = (straggler, ranks_rules)
"""Rules of what the Fleet finds between nodes."""
RULES: tuple[Rule, ...] = tuple(rule for domain in (*DOMAINS, *COMPARED) for rule in domain.RULES)
"""The one registration; `gpuconsole explain` and the tests read it."""
_PLACES = {rule.id: number for number, rule in enumerate(RULES)}


def judge(
    facts: NodeFacts, role: Peers, rules: Rules, now: float, quiet: Quiet | None = None
) -> list[Finding]:
    """Everything that is wrong with one node now; no order.

    `quiet`, of this node alone, only saves the work of checks for which nothing has changed.
    """
    look = Look(facts, role, rules, now)
    if quiet is not None:
        return once(quiet.run(CHECKS, look))
    return once(finding for check in CHECKS for finding in check(look))


def unjudged(facts: NodeFacts, error: Exception, rules: Rules, now: float) -> Finding:
    """The finding that stands for all others of a node whose judging raised `error`."""
    text = f"{type(error).__name__}: {error}"
    look = Look(facts, Peers(role=facts.node.role), rules, now)
    return node.BROKEN.finding(look, f"not checked: judging this node failed, {text}", (text,))


def place(rule: str) -> int:
    """Where a finding's rule stands in RULES; xid.79 stands with xid, unknown ones at the end.

    Among findings of one severity this order tells the cause before its symptoms.
    """
    known = _PLACES.get(rule)
    return _PLACES.get(rule.partition(".")[0], len(_PLACES)) if known is None else known


def explain(topic: str, rules: Rules) -> str:
    """Text about a rule, an Xid or a return code; UsageError for an unknown topic."""
    return _explain.explain(topic, RULES, rules)
