"""Slurm's view of nodes: who is out of work, why, by whom, and what needs a person."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from console.diagnose import slurm_paste
from console.diagnose.report import NO, Report
from console.diagnose.slurm_paste import Pasted
from console.diagnose.slurm_rules import (
    AUTOMATIC,
    CONTROLLER,
    DOWN,
    DRAINED,
    FAILING,
    LOST,
    REASONS,
    REBOOT,
    REGISTRATION,
)
from console.diagnose.slurm_rules import RULES as OWN_RULES
from console.diagnose.text import Text
from inventory.expressions import fold, natural_key
from inventory.run import Completed
from inventory.scheduler import MARKER
from inventory.slurm_errors import command_failed
from inventory.slurm_text import SlurmNode, read_gpus
from probes.event import Severity

KIND = "slurm"
TITLE = "scontrol show node, sinfo (also -R, -N, --json), squeue"
STREAMS = False
RULES = OWN_RULES

ERROR = re.compile(
    r"(?:slurm_load_\w+ error|slurm_update error|(?:scontrol|sinfo|squeue|srun|sbatch): error|"
    r"Munge (?:encode|decode) failed|Unable to contact slurm controller).*"
)
_JSON = re.compile(
    r'"(?:slurmd_version|gres_used|slurmd_start_time|state_flags)"\s*:|"sinfo"\s*:\s*\['
)
_READY_JOB = ("RUNNING", "COMPLETING", "R", "CG", "SUSPENDED", "S")


def sniff(head: str) -> int:
    """By records, heads of tables, and error words."""
    if slurm_paste.SCONTROL.search(head) and re.search(r"\bState=", head):
        return 96
    if slurm_paste.SINFO.search(head) or slurm_paste.SINFO_NODES.search(head):
        return 92
    if slurm_paste.SINFO_REASONS.search(head):
        return 92
    if _JSON.search(head) and head.lstrip().startswith("{"):
        return 90
    if slurm_paste.PIPED.search(head):
        return 82
    if slurm_paste.SQUEUE.search(head):
        return 80
    return 66 if ERROR.search(head) else 0


def read(text: Text) -> Report:
    """Every node of every form in the text."""
    lines = _indented([line for _, line in text])
    values = text.documents() if any(line.lstrip().startswith("{") for line in lines[:200]) else []
    pasted = slurm_paste.read(lines, values)
    pasted.errors = [match[0] for line in lines if (match := ERROR.search(line))][:20]
    report = Report(kind=KIND, facts=_facts(pasted))
    for name in sorted(pasted.nodes, key=natural_key):
        _node(pasted.nodes[name], pasted, report)
    _failed(pasted, report)
    if not pasted.nodes and not pasted.jobs and not pasted.errors:
        report.measured = False
        report.say = "Slurm names no nodes here"
        return report
    _pending(pasted, report)
    report.say = _say(pasted, report)
    automatic = any(f.rule == AUTOMATIC.id for f in report.findings)
    report.drain = f"{NO}: already drained" if automatic else NO
    report.unknown.append("the state of the GPUs: Slurm knows only whether it may start jobs")
    return report


def _indented(lines: list[str]) -> list[str]:
    """A record's further lines whose indent was eaten on the way, indented as scontrol does."""
    found, inside = [], False
    for line in lines:
        inside = line.startswith("NodeName=") or (inside and bool(line.strip()))
        eaten = inside and not line.startswith((" ", "NodeName=")) and _FIELD.match(line)
        found.append(f"   {line}" if eaten else line)
    return found


_FIELD = re.compile(r"[A-Z][A-Za-z]+=")


def _facts(pasted: Pasted) -> dict[str, Any]:
    nodes = dict(sorted(pasted.nodes.items(), key=lambda item: natural_key(item[0])))

    def where(true: Any) -> list[str]:
        return [name for name, node in nodes.items() if true(node.state)]

    facts: dict[str, Any] = {
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
        facts |= _one(next(iter(nodes.values())), pasted)
    elif pasted.jobs:
        facts["jobs"] = [_number(job.id) for job in pasted.jobs[:1000]]
    return {name: value for name, value in facts.items() if value not in ([], {})}


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
    running = [_number(job.id) for job in pasted.jobs if job.state in _READY_JOB]
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


def _node(node: SlurmNode, pasted: Pasted, report: Report) -> None:
    """At most one finding above info for a node: what a person has to look at first."""
    state, line = node.state, pasted.lines.get(node.name, "")
    evidence = [line or f"State={state.raw}"]
    if node.reason and node.reason not in evidence[0]:
        evidence.append(f"Reason={node.reason}")
    automatic = next((r for r in REASONS if r[1].search(node.reason)), None)
    if state.off:
        return
    if automatic is not None and (state.drain or state.base == "DOWN" or automatic[4] is not None):
        _, _, say, cause, rule, next_step = automatic
        report.add(rule or AUTOMATIC, f"{say}: {node.reason}", *evidence, node=node.name,
                   cause=cause, next_step=next_step)  # fmt: skip
    elif "INVALID_REG" in state.flags:
        report.add(REGISTRATION, f"registered with less than configured: {node.reason}", *evidence,
                   node=node.name)  # fmt: skip
    elif not state.responding:
        word = "down and not answering" if state.base == "DOWN" else "does not answer"
        drained = ", drained" if state.drain else ""
        report.add(LOST, f"{word}{drained}{_because(node)}", *evidence, node=node.name)
    elif state.base == "DOWN" and not state.drain:
        report.add(DOWN, f"is down{_because(node)}", *evidence, node=node.name)
    elif "FAIL" in state.flags:
        report.add(FAILING, f"is marked failing{_because(node)}", *evidence, node=node.name)
    if state.drain and automatic is None:
        _drained(node, pasted, report, evidence)
    if "REBOOT_ISSUED" in state.flags and not state.drain:
        report.add(REBOOT, f"is rebooting{_because(node)}", *evidence, node=node.name)


def _because(node: SlurmNode) -> str:
    by = f" ({node.reason_by})" if node.reason_by else ""
    return f": {node.reason}{by}" if node.reason else ""


def _drained(node: SlurmNode, pasted: Pasted, report: Report, evidence: list[str]) -> None:
    jobs = [job for job in pasted.jobs if job.state in _READY_JOB]
    named = ", ".join(job.id for job in jobs[:5]) if len(pasted.nodes) == 1 else ""
    still = ""
    if node.state.works or named:
        still = f"; job {named} still runs" if named else "; jobs still run"
    who = " by us" if node.reason.startswith(MARKER) else f" by {_who(node)}"
    reboot = ""
    if "REBOOT_REQUESTED" in node.state.flags:
        reboot = ", a reboot is requested"
    elif "REBOOT_ISSUED" in node.state.flags:
        reboot = ", its reboot is issued"
    report.add(DRAINED, f"already {node.state.state}{who}: {node.reason or 'no reason given'}"
               f"{reboot}{still}", *evidence, node=node.name)  # fmt: skip


def _who(node: SlurmNode) -> str:
    when = ""
    if node.reason_at:
        at = time.localtime(node.reason_at)
        when = f" on {at.tm_mday} {time.strftime('%B', at)}"
    return f"{node.reason_by or 'somebody'}{when}"


def _failed(pasted: Pasted, report: Report) -> None:
    if not pasted.errors:
        return
    done = Completed(argv=("scontrol",), rc=1, stdout="", stderr="\n".join(pasted.errors))
    error = command_failed(done)
    report.add(CONTROLLER, error.what, *pasted.errors[:4],
               next_step=error.hint or CONTROLLER.next_step)  # fmt: skip


def _pending(pasted: Pasted, report: Report) -> None:
    """Why jobs wait, as counts: a queue is no fault of a node."""
    reasons: dict[str, int] = {}
    for job in pasted.jobs:
        if job.state in ("PD", "PENDING") and job.reason:
            key = job.reason.partition(",")[0]
            reasons[key] = reasons.get(key, 0) + 1
    if reasons:
        report.facts["pending"] = reasons


def relate(report: Report, others: Sequence[Report]) -> None:
    """A process list in the same ticket says what Slurm could not kill."""
    blocked = [one for other in others for one in other.facts.get("blocked", ())]
    killed = [f for f in report.findings if f.rule == AUTOMATIC.id and "kill" in f.say.lower()]
    if not blocked or len(killed) != 1:
        return
    node = killed[0].node
    report.facts["by_node"][node]["blocked"] = [
        {"pid": one["pid"], "wchan": one.get("wchan", "")} for one in blocked
    ]
    names = ", ".join(str(one["pid"]) for one in blocked[:4])
    where = next((str(one["where"]) for one in blocked if one.get("where")), "the kernel")
    also = [f"{f.node}: {f.say}" for f in _serious(report) if f.node != node][:6]
    first = f"{node}: Slurm could not kill a job; process {names} hangs in {where}"
    report.say = f"{'; '.join([first, *also])}."


def _say(pasted: Pasted, report: Report) -> str:
    if pasted.errors and not pasted.nodes:
        return f"{report.findings[0].say}; nothing is known about the nodes"
    if len(pasted.nodes) == 1:
        return _say_one(next(iter(pasted.nodes.values())), pasted, report)
    parts = [f"{f.node}: {f.say}" for f in _serious(report) if f.rule != LOST.id][:6]
    lost = [f.node for f in report.findings if f.rule == LOST.id]
    if lost:
        parts.append(f"not answering: {fold(lost)}")
    drained = [f.node for f in report.findings if f.rule == DRAINED.id]
    if drained:
        busy = [n for n in drained if pasted.nodes[n].state.works]
        still = f" ({fold(busy)} still ha{'s' if len(busy) == 1 else 've'} jobs)" if busy else ""
        parts.append(f"drained or draining: {fold(drained)}{still}")
    off = [name for name, node in pasted.nodes.items() if node.state.off]
    if off:
        parts.append(f"off or starting by the scheduler's design: {fold(off)}")
    count = f"{len(pasted.nodes)} nodes" if pasted.nodes else f"{len(pasted.jobs)} jobs"
    return f"{count}: {'; '.join(parts)}." if parts else f"{count}, none out of work."


def _serious(report: Report) -> list[Any]:
    return [f for f in report.findings if f.severity.rank > Severity.INFO.rank]


def _say_one(node: SlurmNode, pasted: Pasted, report: Report) -> str:
    told = "; ".join(f.say for f in report.findings) or f"is {node.state.state}"
    warning = ""
    if node.state.drain and (node.state.works or pasted.jobs):
        warning = (
            " Do not reboot it until they end; add your finding to the reason, do not replace it."
        )
    elif node.state.drain and not node.reason.startswith(MARKER):
        warning = " It is not ours to resume."
    return f"{node.name}: {told}.{warning}"
