"""Everything known about one node, as lines. Pure.

What is wrong and what to do comes first; then the eight GPUs, ports and links, each finding in
full, kernel lines, processes, the scheduler, the host and its storage; at the end every reading
that has no line of its own. A section never answered says so; one that is too old is grey.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from console import units
from console.fleet import Fleet
from console.tui import node_facts, node_gpus, node_host, node_storage, node_tables
from console.tui.node_age import age_mark, faded
from console.tui.summary import STALE_S, brief
from console.tui.text import Cell, Line, cut, labelled, plain
from console.tui.theme import WORDS, Glyphs
from console.tui.view import SCHED_WORDS
from probes.event import Finding, Sample, Severity
from probes.facts import NodeFacts

ALSO_SHOWN = 4
"""Findings beside the worst one that the header names: the GPUs must stay in sight at 80x24."""
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
    for title, body, probes in _sections(fleet, facts, glyphs, width, now):
        sections.append(len(lines) + 1)
        old = age_mark(facts, probes, now)
        lines += [(), _title(title + old, glyphs, width)]
        if title == "findings":
            for index, finding in enumerate(findings):
                first = len(lines)
                lines += _finding(finding, glyphs, width, now, index == selected)
                spans.append((first, len(lines) - 1))
        lines += faded(body, facts, probes, now)
    return NodeSheet(lines, spans, sections)


class _Section(NamedTuple):
    title: str
    body: list[Line]
    probes: tuple[str, ...] = ()
    """Whose readings these are: too old, and the section is grey and says how old."""


def _sections(
    fleet: Fleet, facts: NodeFacts, glyphs: Glyphs, width: int, now: float
) -> Iterable[_Section]:
    findings = fleet.findings[facts.node.name]
    cards = node_gpus.gpus(fleet, facts, glyphs, width)
    yield _Section("GPUs", [*cards, *node_gpus.use(facts, fleet.rules, width)], ("gpu",))
    ports = node_tables.ports(facts, findings, glyphs, width)
    yield _Section("ports", ports, ("infiniband",))
    links = [*node_gpus.links(facts, width), *node_gpus.fabric(facts, width)]
    yield _Section("NVLink", links, ("nvlink", "fabric"))
    if findings:
        yield _Section("findings", [])
    yield _Section("kernel", _kernel(facts, width, now))
    unowned_mib = fleet.rules.limit("processes.unowned_mib").value
    processes = node_tables.processes(facts, unowned_mib, width)
    yield _Section("processes", processes, ("processes",))
    yield _Section("scheduler", _scheduler(facts, width, now))
    yield _Section("host", node_host.host(facts, width, now))
    storage = node_storage.storage(facts, findings, glyphs, width)
    yield _Section("storage", storage, ("storage",))
    yield _Section("tests", node_tables.tests(facts, width))
    yield _Section("everything else", node_facts.facts_lines(facts, width, now))


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
        lines += _headline(findings, glyphs, width)
    elif facts.status is not None and facts.status.text:
        lines += labelled("why", plain(facts.status.text), width, "title")
        lines += labelled("next", plain(facts.status.hint), width, "text")
    elif severity is Severity.OK:
        lines.append((Cell("no findings", "dim"),))
    for probe, trouble in sorted(facts.troubles.items()):
        lines += labelled(probe, plain(trouble.text), width, "unknown")
    for (probe, device), hang in sorted(facts.hung.items()):
        where = f"{probe} {facts.gpu_label(device) if device else ''}".strip()
        lines += labelled("hung", plain(f"{where}: {hang.text}"), width, "unknown")
    return lines


def _freshness(age: float | None) -> str:
    if age is None:
        return "no data"
    return f"data {units.age(age)}" + (" old" if age > STALE_S else "")


def _headline(findings: Sequence[Finding], glyphs: Glyphs, width: int) -> list[Line]:
    top = next((f for f in findings if not f.acknowledged), findings[0])
    lines = labelled("why", plain(top.say), width, "title")
    lines += labelled("cause", plain(top.cause), width, "text")
    lines += labelled("next", plain(top.next_step or top.action.value), width, "title")
    others = [f for f in findings if f is not top]
    shown = others if len(others) <= ALSO_SHOWN else others[: ALSO_SHOWN - 1]
    for number, other in enumerate(shown):
        label = "also" if number == 0 else ""
        sign = Cell(glyphs.severity(other.severity) + " ", other.severity.value)
        say = Cell(cut(brief(plain(other.say)), max(10, width - 10)), "text")
        lines.append((Cell(label.ljust(8), "key"), sign, say))
    if len(others) > len(shown):
        lines.append((Cell(f"{'':8}and {len(others) - len(shown)} more, below (n)", "dim"),))
    return lines


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
    lines += labelled("  value", _measured(finding), width, "text")
    lines += labelled("  cause", plain(finding.cause), width, "text")
    for evidence in finding.evidence:
        lines += labelled("  fact", plain(evidence), width, "text")
    step = finding.next_step or finding.action.value
    lines += labelled("  next", plain(step), width, "title")
    lines += labelled("  from", plain(finding.source), width, "dim")
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
    newest = list(facts.kernel)[-KERNEL_SHOWN:]
    lines: list[Line] = []
    for row in reversed(newest):
        ago = _ago(row.get("mono"), source, now)
        text = cut(plain(str(row.get("text", ""))), width - 6)
        lines.append((Cell(f"{ago:>5} ", "dim"), Cell(text, "text")))
    return lines


def _ago(mono: object, source: Sample | None, now: float) -> str:
    """By the node's own clock: both times are seconds of it, so ours need not agree."""
    if source is None or not isinstance(mono, int | float):
        return units.ABSENT
    return units.age(now - source.at + source.clock - float(mono))


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
    lines = labelled("state", plain(f"{allocation.state} ({allocation.raw})"), width, "text")
    if allocation.reason:
        by = f" by {allocation.reason_by}" if allocation.reason_by else ""
        at = allocation.reason_at
        ago = f", {units.age(now - at)} ago" if at else ""
        lines += labelled("reason", plain(f"{allocation.reason}{by}{ago}"), width, "text")
    lines += labelled("in", plain(" ".join(allocation.partitions)), width, "text")
    for job in allocation.jobs:
        end = (
            f", ends {time.strftime('%a %H:%M', time.localtime(job.end_at))}" if job.end_at else ""
        )
        text = f"{job.id} {job.user} {job.name}, {job.nodes} nodes{end}"
        lines += labelled("job", plain(text), width, "text")
    if not allocation.responding:
        lines += labelled(
            "note", "the scheduler has lost its daemon on this node", width, "unknown"
        )
    return lines
