"""What Slurm's words say of nodes, as facts: states, power saving, reasons, GPUs in use. Pure."""

from __future__ import annotations

import re
from typing import Any

from console.diagnose.slurm_paste import Pasted
from console.diagnose.slurm_rules import REASONS
from inventory.expressions import natural_key
from inventory.slurm_text import SlurmNode, read_gpus

READY_JOB = ("RUNNING", "COMPLETING", "R", "CG", "SUSPENDED", "S")


def facts(pasted: Pasted) -> dict[str, Any]:
    """Of the whole text; of one node its own stand at the top."""
    nodes = dict(sorted(pasted.nodes.items(), key=lambda item: natural_key(item[0])))

    def where(true: Any) -> list[str]:
        return [name for name, node in nodes.items() if true(node.state)]

    told: dict[str, Any] = {
        "nodes": len(nodes),
        "partitions": {name: {"default": star} for name, star in pasted.defaults.items()},
        "not_responding": where(lambda s: not s.responding),
        "draining": where(lambda s: s.state == "draining"),
        "drained": where(lambda s: s.state == "drained"),
        "down": where(lambda s: s.base == "DOWN"),
        "maint": where(lambda s: "MAINTENANCE" in s.flags),
        "reboot_pending": where(lambda s: "REBOOT_REQUESTED" in s.flags),
        "rebooting": where(lambda s: "REBOOT_ISSUED" in s.flags and not s.drain),
        "powered_down": where(lambda s: s.off and "POWERED_DOWN" in s.flags),
        "powering_up": where(lambda s: s.off and "POWERING_UP" in s.flags),
        "planned": where(lambda s: "PLANNED" in s.flags),
        "reasons": {name: node.reason for name, node in nodes.items() if node.reason},
        "by_node": {name: _node_facts(node, pasted) for name, node in nodes.items()},
    }
    if len(nodes) == 1:
        told |= _one(next(iter(nodes.values())), pasted)
    elif pasted.jobs:
        told["jobs"] = [_number(job.id) for job in pasted.jobs[:1000]]
    return {name: value for name, value in told.items() if value not in ([], {})}


def _node_facts(node: SlurmNode, pasted: Pasted) -> dict[str, Any]:
    state = node.state
    facts: dict[str, Any] = {
        "state": state.state, "base": state.base, "raw": state.raw, "drain": state.drain,
        "jobs": state.works, "power": _power(node), "reason": node.reason, "by": node.reason_by,
    }  # fmt: skip
    flags = {
        "maint": "MAINTENANCE", "powered_down": "POWERED_DOWN", "completing": "COMPLETING",
        "planned": "PLANNED", "blocked": "BLOCKED", "reserved": "RESERVED",
    }  # fmt: skip
    facts |= {name: True for name, flag in flags.items() if flag in state.flags}
    if not state.responding:
        facts["not_responding"] = True
    for flag, word in (("REBOOT_REQUESTED", "requested"), ("REBOOT_ISSUED", "issued")):
        if flag in state.flags:
            facts["reboot"] = word
    if state.off and "POWERED_DOWN" in state.flags:
        facts["schedulable"] = "on demand"
    if node.name in pasted.in_use:
        facts["gpus_in_use"] = pasted.in_use[node.name]
    if (gpus := read_gpus(node.gres)) is not None:
        facts["gpus"] = gpus.count
    if automatic := _automatic(node):
        facts["auto_drain"] = automatic
    return {name: value for name, value in facts.items() if value not in ("", None)}


def _power(node: SlurmNode) -> str:
    """What power saving does with it, in words; "" for nodes that are on."""
    state = node.state
    old = " (old spelling POWER)" if re.search(r"\bPOWER\b", state.raw) else ""
    if state.base == "DOWN" and state.flags & {"POWERED_DOWN", "POWERING_UP", "POWERING_DOWN"}:
        return "failed to start" if "ResumeTimeout" in node.reason else "down and powered off"
    if "POWERING_UP" in state.flags:
        return "starting for a job (powering up)" if state.works else "powering up"
    if "POWERING_DOWN" in state.flags:
        return "going off"
    return f"off by design{old}" if "POWERED_DOWN" in state.flags else ""


def _one(node: SlurmNode, pasted: Pasted) -> dict[str, Any]:
    """The facts of a ticket about one node."""
    running = [_number(job.id) for job in pasted.jobs if job.state in READY_JOB]
    facts: dict[str, Any] = {
        "already_drained": node.state.drain, "by": node.reason_by, "reason": node.reason,
        "running_jobs": running, "gpus_in_use": pasted.in_use.get(node.name),
    }  # fmt: skip
    return {name: value for name, value in facts.items() if value not in ("", None, [])}


def _number(job: str) -> int | str:
    return int(job) if job.isdecimal() and len(job) < 19 else job


def _automatic(node: SlurmNode) -> str:
    """Which of Slurm's own reasons this is: "kill_task_failed", ...; "" for a person's."""
    return next((name for name, pattern, *_ in REASONS if pattern.search(node.reason)), "")
