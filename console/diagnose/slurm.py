"""Slurm's view of nodes: who is out of work, why, by whom, and what needs a person."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from console.diagnose import slurm_facts, slurm_paste
from console.diagnose.report import NO, Report
from console.diagnose.slurm_facts import READY_JOB
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
from inventory.slurm_text import SlurmNode
from probes.event import Severity

KIND = "slurm"
TITLE = "scontrol show node, sinfo (also -R, -N, --json), squeue"
STREAMS = False
RULES = OWN_RULES

ERROR = re.compile(
    r"(?:slurm_load_\w+ error|slurm_update error|(?:scontrol|sinfo|squeue|srun|sbatch): error|"
    r"Munge (?:encode|decode) failed|Unable to contact slurm controller).*"
)
_NODE_LOST = re.compile(
    r"(?:srun|salloc|slurmstepd): error: .*?Node failure on (?P<hosts>[\w.,\[\]-]+)"
)
_FIELDS_ONLY = re.compile(
    r"^[ \t]+(?:State=[A-Z][A-Z_*+~#!%$@^-]* .*(?:ThreadsPerCore|Weight|MCS_label)="
    r"|Reason=.*\[\S+@\d{4}-\d\d-\d\dT[\d:]+\])",
    re.MULTILINE,
)
"""What is left of scontrol's record behind a grep."""
_ASKED = re.compile(r"\bscontrol\b.{0,40}\bshow\b.{0,20}?\bnodes?[ =]+(?P<node>[\w.-]+)")
_JSON = re.compile(
    r'"(?:slurmd_version|gres_used|slurmd_start_time|state_flags|reason_set_by_user'
    r'|reason_changed_at|tres_used)"\s*:|"sinfo"\s*:\s*\[|"openapi/v0\.'
)


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
    if _FIELDS_ONLY.search(head):
        return 78
    return 66 if ERROR.search(head) else 0


def read(text: Text) -> Report:
    """Every node of every form in the text."""
    lines = _indented(_with_name([line for _, line in text], text.command))
    values = text.documents() if any(line.lstrip().startswith("{") for line in lines[:200]) else []
    pasted = slurm_paste.read(lines, values)
    pasted.errors = [
        match[0] for line in lines
        if (match := ERROR.search(line)) and not _NODE_LOST.search(line) and _JOB_ENDS not in line
    ][:20]  # fmt: skip
    report = Report(kind=KIND, facts=slurm_facts.facts(pasted))
    for name in sorted(pasted.nodes, key=natural_key):
        _node(pasted.nodes[name], pasted, report)
    _failed(pasted, report)
    _lost(lines, report)
    if not pasted.nodes and not pasted.jobs and not report.findings:
        report.measured = False
        report.say = "Slurm names no nodes here"
        return report
    _pending(pasted, report)
    report.say = _say(pasted, report)
    automatic = any(f.rule == AUTOMATIC.id for f in report.findings) or any(
        f.rule == REGISTRATION.id and pasted.nodes[f.node].state.drain for f in report.findings
    )
    report.drain = f"{NO}: already drained" if automatic else NO
    report.unknown.append("the state of the GPUs: Slurm knows only whether it may start jobs")
    return report


def _with_name(lines: list[str], command: str) -> list[str]:
    """A record that a grep left without its name, with the one that the prompt's command asks."""
    if any(line.startswith("NodeName=") for line in lines):
        return lines
    asked = _ASKED.search(command)
    first = next((n for n, line in enumerate(lines) if _FIELDS_ONLY.match(line)), None)
    if first is None:
        return lines
    name = asked["node"] if asked else "unnamed"
    return [*lines[:first], f"NodeName={name} ", *lines[first:]]


_JOB_ENDS = "DUE TO NODE FAILURE"


def _lost(lines: list[str], report: Report) -> None:
    """Nodes that a job lost while it ran, by what srun printed."""
    for line in lines[:5000]:
        match = _NODE_LOST.search(line)
        for node in slurm_paste.hosts(match["hosts"])[:64] if match else ():
            if all(f.node != node for f in report.findings):
                report.facts.setdefault("node_failure", []).append(node)
                report.add(LOST, "a job lost it while it ran (node failure)", line.strip(),
                           node=node)  # fmt: skip


def _indented(lines: list[str]) -> list[str]:
    """A record's further lines whose indent was eaten on the way, indented as scontrol does."""
    found, inside = [], False
    for line in lines:
        inside = line.startswith("NodeName=") or (inside and bool(line.strip()))
        eaten = inside and not line.startswith((" ", "NodeName=")) and _FIELD.match(line)
        found.append(f"   {line}" if eaten else line)
    return found


_FIELD = re.compile(r"[A-Z][A-Za-z]+=")


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
    if "REBOOT_ISSUED" in state.flags and not state.drain and state.base != "DOWN":
        report.add(REBOOT, f"is rebooting{_because(node)}", *evidence, node=node.name)


def _because(node: SlurmNode) -> str:
    by = f" ({node.reason_by})" if node.reason_by else ""
    return f": {node.reason}{by}" if node.reason else ""


def _drained(node: SlurmNode, pasted: Pasted, report: Report, evidence: list[str]) -> None:
    jobs = [job for job in pasted.jobs if job.state in READY_JOB]
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
    if not pasted.nodes and not pasted.jobs and report.facts.get("node_failure"):
        return f"{fold(report.facts['node_failure'])}: lost by a running job (node failure)."
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
    if not pasted.nodes:
        return "; ".join([_say_jobs(pasted), *parts]) + "."
    count = f"{len(pasted.nodes)} nodes"
    return f"{count}: {'; '.join(parts)}." if parts else f"{count}, none out of work."


_JOB_WORDS = {
    "R": "running", "PD": "pending", "CG": "completing", "S": "suspended", "CF": "configuring",
}  # fmt: skip


def _say_jobs(pasted: Pasted) -> str:
    """A queue, and the nodes that it waits for."""
    counts = Counter(_JOB_WORDS.get(job.state, job.state.lower()) for job in pasted.jobs)
    said = ", ".join(f"{number} {word}" for word, number in counts.most_common(6))
    out = {match[1] for job in pasted.jobs
           if (match := re.search(r"UnavailableNodes:(\S+?)\)?$", job.reason))}  # fmt: skip
    waits = f"; nodes that jobs wait for are out: {', '.join(sorted(out)[:6])}" if out else ""
    plural = "" if len(pasted.jobs) == 1 else "s"
    return f"{len(pasted.jobs)} job{plural}: {said}{waits}"


def _serious(report: Report) -> list[Any]:
    return [f for f in report.findings if f.severity.rank > Severity.INFO.rank]


def _say_one(node: SlurmNode, pasted: Pasted, report: Report) -> str:
    told = "; ".join(f.say for f in report.findings) or f"is {node.state.state}"
    warning = ""
    if node.state.drain and (node.state.works or pasted.jobs):
        warning = (
            " Do not reboot it until its jobs end; add your finding to the reason, do not "
            "replace it."
        )
    elif node.state.drain and not node.reason.startswith(MARKER):
        warning = " It is not ours to resume."
    return f"{node.name}: {told}.{warning}"
