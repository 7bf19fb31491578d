"""Everything known about one node, as lines. Pure.

What is wrong and what to do comes first; then the eight GPUs, ports and links, each finding in
full, kernel lines, processes, the scheduler and the host. A section never answered says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from console import units
from console.fleet import Fleet
from console.tui import node_facts, node_tables
from console.tui.summary import STALE_S
from console.tui.text import Cell, Line, cut, plain, wrap
from console.tui.theme import WORDS, Glyphs
from console.tui.view import SCHED_WORDS
from probes.event import Finding, Severity
from probes.facts import NodeFacts

KERNEL_SHOWN = 30
"""Newest kernel lines shown: more than fits any screen, less than a boot's noise."""


class NodeSheet(NamedTuple):
    """The lines of a node and where things are in them."""

    lines: list[Line]
    findings: list[tuple[int, int]]
    """First and last line of each finding told in full, in the Fleet's order."""
    sections: list[int]
    """First line of each section."""


def node_sheet(
    fleet: Fleet, name: str, glyphs: Glyphs, width: int, now: float, selected: int = 0
) -> NodeSheet:
    """The sheet of a node; `selected` is the finding the operator is at."""
    facts, findings = fleet.nodes[name], fleet.findings[name]
    lines = _header(fleet, facts, glyphs, width, now)
    spans: list[tuple[int, int]] = []
    sections: list[int] = [0]
    for title, body in _sections(fleet, facts, glyphs, width, now):
        sections.append(len(lines) + 1)
        lines += [(), _title(title, glyphs, width)]
        if title == "findings":
            for index, finding in enumerate(findings):
                first = len(lines)
                lines += _finding(finding, glyphs, width, now, index == selected)
                spans.append((first, len(lines) - 1))
        lines += body
    return NodeSheet(lines, spans, sections)


def _sections(
    fleet: Fleet, facts: NodeFacts, glyphs: Glyphs, width: int, now: float
) -> Iterable[tuple[str, list[Line]]]:
    yield "GPUs", node_tables.gpus(fleet, facts, glyphs, width)
    yield "ports", node_tables.ports(facts, fleet.findings[facts.node.name], glyphs, width)
    yield "NVLink", node_tables.links(facts, width)
    if fleet.findings[facts.node.name]:
        yield "findings", []
    yield "kernel", _kernel(facts, width, now)
    yield "processes", node_tables.processes(facts, width)
    yield "scheduler", _scheduler(facts, width, now)
    yield "tests", node_tables.tests(facts, width)
    yield "host", _host(facts, width)
    yield "everything else", node_facts.facts_lines(facts, width, now)


def _title(title: str, glyphs: Glyphs, width: int) -> Line:
    rest = max(0, width - len(title) - 4)
    return (
        Cell(glyphs.rule * 2 + " ", "dim"),
        Cell(title, "title"),
        Cell(" " + glyphs.rule * rest, "dim"),
    )


def _header(fleet: Fleet, facts: NodeFacts, glyphs: Glyphs, width: int, now: float) -> list[Line]:
    name = facts.node.name
    severity, age = fleet.verdict(name), fleet.age(name, now)
    state = facts.state.value.replace("_", " ")
    stale = age is None or age > STALE_S
    first: Line = (
        Cell(f"{glyphs.severity(severity)} {WORDS[severity]} ", severity.value),
        Cell(name, "title"),
        Cell(f"  {state}", "text"),
        Cell(f"  {_sched_word(facts)}", "text"),
        Cell("  " + _freshness(age), "unknown" if stale else "dim"),
    )
    findings = fleet.findings[name]
    lines = [first]
    if findings:
        lines += _headline(findings, width)
    elif facts.status is not None and facts.status.text:
        lines += _labelled("why", plain(facts.status.text), width, "title")
        lines += _labelled("next", plain(facts.status.hint), width, "text")
    elif severity is Severity.OK:
        lines.append((Cell("no findings", "dim"),))
    for probe, trouble in sorted(facts.troubles.items()):
        lines += _labelled(probe, plain(trouble.text), width, "unknown")
    for (probe, device), hang in sorted(facts.hung.items()):
        where = f"{probe} {facts.gpu_label(device) if device else ''}".strip()
        lines += _labelled("hung", plain(f"{where}: {hang.text}"), width, "unknown")
    return lines


def _freshness(age: float | None) -> str:
    if age is None:
        return "no data"
    return f"data {units.age(age)}" + (" old" if age > STALE_S else "")


def _headline(findings: Sequence[Finding], width: int) -> list[Line]:
    top = next((f for f in findings if not f.acknowledged), findings[0])
    lines = _labelled("why", plain(top.say), width, "title")
    lines += _labelled("cause", plain(top.cause), width, "text")
    lines += _labelled("next", plain(top.next_step or top.action.value), width, "title")
    if len(findings) > 1:
        lines.append((Cell(f"{'':8}and {len(findings) - 1} more, below (n)", "dim"),))
    return lines


def _labelled(label: str, text: str, width: int, style: str) -> list[Line]:
    """`label text`, wrapped under the text; nothing when there is no text."""
    if not text:
        return []
    rows = wrap(text, max(10, width - 8))
    head = cut(label, 7).ljust(7) + " "
    return [
        (Cell(head if i == 0 else " " * 8, "key"), Cell(row, style)) for i, row in enumerate(rows)
    ]


def _finding(
    finding: Finding, glyphs: Glyphs, width: int, now: float, selected: bool
) -> list[Line]:
    marks = [f"since {units.age(now - finding.since)}"] if finding.since else []
    marks += [f"seen {finding.count}x"] if finding.count > 1 else []
    marks += ["no longer seen, kept"] if finding.latched else []
    marks += ["acknowledged"] if finding.acknowledged else []
    severity = finding.severity
    first: Line = (
        Cell(glyphs.pointer if selected else " ", "key"),
        Cell(f"{glyphs.severity(severity)} {WORDS[severity]} ", severity.value),
        Cell(cut(plain(finding.say), max(10, width - 9)), "title"),
    )
    lines: list[Line] = [
        first,
        (Cell(" " * 7 + cut("  ".join([finding.rule, *marks]), width - 7), "dim"),),
    ]
    lines += _labelled("  value", _measured(finding), width, "text")
    lines += _labelled("  cause", plain(finding.cause), width, "text")
    for evidence in finding.evidence:
        lines += _labelled("  fact", plain(evidence), width, "text")
    step = finding.next_step or finding.action.value
    lines += _labelled("  next", plain(step), width, "title")
    lines += _labelled("  from", plain(finding.source), width, "dim")
    return lines


def _measured(finding: Finding) -> str:
    if finding.value is None:
        return ""
    text = f"{finding.value} {finding.unit}".strip()
    return (
        text if finding.limit is None else f"{text}, limit {finding.limit} {finding.unit}".strip()
    )


def _kernel(facts: NodeFacts, width: int, now: float) -> list[Line]:
    source = facts.get("kernel_log")
    if not facts.kernel:
        readable = source is not None and source.values.get("readable", True)
        word = "nothing relevant" if readable else "not readable"
        return [(Cell(word if source else "not read yet", "dim"),)]
    uptime = facts.value("host", "", "uptime_s")
    newest = list(facts.kernel)[-KERNEL_SHOWN:]
    lines: list[Line] = []
    for row in reversed(newest):
        ago = _ago(row.get("mono"), uptime)
        text = cut(plain(str(row.get("text", ""))), width - 6)
        lines.append((Cell(f"{ago:>5} ", "dim"), Cell(text, "text")))
    return lines


def _ago(mono: object, uptime: object) -> str:
    known = isinstance(mono, int | float) and isinstance(uptime, int | float)
    return units.age(float(uptime) - float(mono)) if known else units.ABSENT  # type: ignore[arg-type]


def _sched_word(facts: NodeFacts) -> str:
    allocation = facts.allocation
    if allocation is None:
        return "no scheduler" if facts.node.scheduler is None else f"scheduler {units.ABSENT}"
    jobs = ", ".join(f"job {job.id} {job.user}".strip() for job in allocation.jobs[:2])
    state = SCHED_WORDS.get(allocation.state, allocation.state)
    return plain(f"{state} {jobs}".strip())


def _scheduler(facts: NodeFacts, width: int, now: float) -> list[Line]:
    allocation = facts.allocation
    if allocation is None:
        return [(Cell("nothing reported for this node", "dim"),)]
    lines = _labelled("state", plain(f"{allocation.state} ({allocation.raw})"), width, "text")
    if allocation.reason:
        by = f" by {allocation.reason_by}" if allocation.reason_by else ""
        at = allocation.reason_at
        ago = f", {units.age(now - at)} ago" if at else ""
        lines += _labelled("reason", plain(f"{allocation.reason}{by}{ago}"), width, "text")
    lines += _labelled("in", plain(" ".join(allocation.partitions)), width, "text")
    for job in allocation.jobs:
        end = (
            f", ends {time.strftime('%a %H:%M', time.localtime(job.end_at))}" if job.end_at else ""
        )
        text = f"{job.id} {job.user} {job.name}, {job.nodes} nodes{end}"
        lines += _labelled("job", plain(text), width, "text")
    if not allocation.responding:
        lines += _labelled(
            "note", "the scheduler has lost its daemon on this node", width, "unknown"
        )
    return lines


def _host(facts: NodeFacts, width: int) -> list[Line]:
    hello, host = facts.get("hello"), facts.get("host")
    driver = facts.value("inventory", "", "driver_version")
    values = dict(hello.values) if hello else {}
    system = " ".join(str(values[k]) for k in ("os", "kernel") if k in values)
    lines = _labelled("system", plain(system), width, "text")
    lines += _labelled("driver", plain(str(driver or "")), width, "text")
    if host is not None:
        lines += _labelled("load", plain(_load(dict(host.values))), width, "text")
    agent = facts.get("agent")
    if agent is not None:
        cpu, rss = agent.values.get("cpu_percent"), agent.values.get("rss_bytes")
        text = f"{_percent(cpu)} of a core, {units.size(_float(rss))}"
        lines += _labelled("agent", text, width, "dim")
    for key in sorted(values):
        if key.startswith("missing."):
            lines += _labelled("absent", plain(f"{key[8:]}: {values[key]}"), width, "dim")
    for noise in list(facts.noise)[-3:]:
        lines += _labelled("noise", plain(noise), width, "dim")
    return lines or [(Cell("not read yet", "dim"),)]


def _load(values: dict[str, object]) -> str:
    cores, total = values.get("cpu_count"), values.get("mem_total_bytes")
    available = values.get("mem_available_bytes")
    stuck = values.get("dstate_count")
    parts = [f"load {values.get('load1', units.ABSENT)} on {cores or units.ABSENT} cores"]
    parts.append(f"memory {units.size(_float(available))} of {units.size(_float(total))} free")
    if stuck:
        parts.append(f"{stuck} processes in uninterruptible sleep")
    if (uptime := _float(values.get("uptime_s"))) is not None:
        parts.append(f"up {units.age(uptime)}")
    return ", ".join(parts)


def _float(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _percent(value: object) -> str:
    number = _float(value)
    return units.ABSENT if number is None else f"{number:.1f}%"
