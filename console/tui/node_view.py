"""Everything known about one node, as lines. Pure.

What is wrong and what to do comes first; then sections that can be folded: the eight GPUs, each
finding in full, plots, the past, ports and links, kernel lines, processes, the scheduler, the host
and its storage; at the end every reading as it came. A section never answered says so; one that is
too old is grey.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from console import units
from console.fleet import Fleet
from console.tui import node_gpus, node_history, node_host, node_raw, node_storage, node_tables
from console.tui.node_age import age_mark, faded
from console.tui.node_history import Past, Wish
from console.tui.node_past import past_lines
from console.tui.summary import STALE_S, brief
from console.tui.text import Cell, Line, cut, fit, labelled, plain
from console.tui.theme import Glyphs, state_word, word
from console.tui.view import SCHED_WORDS
from console.tui.words import t, tn
from probes.event import Finding, Sample, Severity
from probes.facts import NodeFacts

ALSO_SHOWN = 4
"""Findings beside the worst one that the header names: the GPUs must stay in sight at 80x24."""
KERNEL_SHOWN = 30
"""Newest kernel lines shown: more than fits any screen, less than a boot's noise."""
FOLDED = frozenset({"raw"})
"""Folded until asked for: some thousand lines."""


class Place(NamedTuple):
    """A section and where it begins."""

    id: str
    title: str
    first: int


class NodeSheet(NamedTuple):
    """The lines of a node and where things are in them."""

    lines: list[Line]
    findings: list[tuple[int, int]]
    """First and last line of each finding told in full, in the Fleet's order."""
    sections: list[Place]
    """The header first, with id ""."""


class Ask(NamedTuple):
    """How the operator looks at the node."""

    selected: int = 0
    """Index of the finding they are at."""
    folded: frozenset[str] = FOLDED
    """Ids of sections of which only the title is shown."""
    section: str = ""
    """Id of the section they are at."""
    wish: Wish = Wish()
    past: Past = Past()
    plot_height: int = 4
    kept: node_raw.Kept | None = None
    """Between two calls: see node_raw.raw_lines."""


_DEFAULT = Ask()


def node_sheet(
    fleet: Fleet, name: str, glyphs: Glyphs, width: int, now: float, ask: Ask = _DEFAULT
) -> NodeSheet:
    """The sheet of a node."""
    facts, findings = fleet.nodes[name], fleet.findings[name]
    lines = _header(fleet, facts, glyphs, width, now)
    spans: list[tuple[int, int]] = []
    places = [Place("", name, 0)]
    for section in _sections(fleet, facts, glyphs, width, now, ask):
        folded = section.id in ask.folded
        places.append(Place(section.id, section.title, len(lines) + 1))
        shown = section.title + age_mark(facts, section.probes, now)
        lines += [(), _title(shown, glyphs, width, folded, section.id == ask.section)]
        if folded:
            continue
        if section.id == "findings":
            for index, finding in enumerate(findings):
                first = len(lines)
                lines += _finding(finding, glyphs, width, now, index == ask.selected)
                spans.append((first, len(lines) - 1))
        lines += faded(section.body(), facts, section.probes, now)
    return NodeSheet(lines, spans, places)


class _Section(NamedTuple):
    id: str
    title: str
    body: Callable[[], list[Line]]
    """Called unless the section is folded."""
    probes: tuple[str, ...] = ()
    """Whose readings these are: too old, and the section is grey and says how old."""


def _sections(
    fleet: Fleet, facts: NodeFacts, glyphs: Glyphs, width: int, now: float, ask: Ask
) -> Iterable[_Section]:
    findings = fleet.findings[facts.node.name]

    def gpus() -> list[Line]:
        cards = node_gpus.gpus(fleet, facts, glyphs, width)
        return [*cards, *node_gpus.use(facts, fleet.rules, width)]

    yield _Section("gpus", t("GPUs"), gpus, ("gpu",))
    if findings:
        yield _Section("findings", t("findings"), list)
    yield _Section(
        "history", node_history.title(ask.wish),
        lambda: node_history.history(
            fleet, facts, ask.past, ask.wish, width, ask.plot_height, now
        ),
    )  # fmt: skip
    yield _Section("past", t("past"), lambda: past_lines(ask.past, width))
    yield _Section(
        "ports", t("ports"), lambda: node_tables.ports(facts, findings, glyphs, width),
        ("infiniband",),
    )  # fmt: skip
    yield _Section(
        "nvlink", t("NVLink"),
        lambda: [*node_gpus.links(facts, width), *node_gpus.fabric(facts, width)],
        ("nvlink", "fabric"),
    )  # fmt: skip
    yield _Section("kernel", t("kernel"), lambda: _kernel(facts, width, now))
    unowned_mib = fleet.rules.limit("processes.unowned_mib").value
    yield _Section(
        "processes", t("processes"), lambda: node_tables.processes(facts, unowned_mib, width),
        ("processes",),
    )  # fmt: skip
    yield _Section("scheduler", t("scheduler"), lambda: _scheduler(facts, width, now))
    yield _Section("host", t("host"), lambda: node_host.host(facts, width, now))
    yield _Section(
        "storage", t("storage"), lambda: node_storage.storage(facts, findings, glyphs, width),
        ("storage",),
    )  # fmt: skip
    yield _Section("tests", t("tests"), lambda: node_tables.tests(facts, width))
    raw = tn("raw facts, 1 reading", "raw facts, {n} readings", node_raw.count(facts))
    yield _Section("raw", raw, lambda: _raw(facts, width, now, ask))


def _raw(facts: NodeFacts, width: int, now: float, ask: Ask) -> list[Line]:
    return node_raw.raw_lines(facts, width, now, {} if ask.kept is None else ask.kept)


def _title(title: str, glyphs: Glyphs, width: int, folded: bool, here: bool) -> Line:
    """A folded section has its sign where the rule begins; the one the operator is at another."""
    sign = glyphs.rule + (glyphs.pointer if here else glyphs.rule)
    text = cut(title + (t("  (z opens)") if folded and here else ""), width - 4)
    rest = max(0, width - cell_len(text) - 4)
    return (
        Cell(f"{'+' if folded else sign[0]}{sign[1]} ", "key" if here else "dim"),
        Cell(text, "dim" if folded and not here else "title"),
        Cell(" " + glyphs.rule * rest, "dim"),
    )


def _header(fleet: Fleet, facts: NodeFacts, glyphs: Glyphs, width: int, now: float) -> list[Line]:
    name = facts.node.name
    severity, age = fleet.verdict(name), fleet.age(name, now)
    state = state_word(facts.state)
    stale = age is None or age > STALE_S
    first: Line = (
        Cell(f"{glyphs.severity(severity)} {word(severity)} ", severity.value),
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
        lines += labelled(t("why"), plain(facts.status.text), width, "title")
        lines += labelled(t("next"), plain(facts.status.hint), width, "text")
    elif severity is Severity.OK:
        lines.append((Cell(t("no findings"), "dim"),))
    for probe, trouble in sorted(facts.troubles.items()):
        lines += labelled(probe, plain(trouble.text), width, "unknown")
    for (probe, device), hang in sorted(facts.hung.items()):
        where = f"{probe} {facts.gpu_label(device) if device else ''}".strip()
        lines += labelled(t("hung"), plain(f"{where}: {hang.text}"), width, "unknown")
    return lines


def _freshness(age: float | None) -> str:
    if age is None:
        return t("no data")
    told = units.age(age)
    return t("data {age} old", age=told) if age > STALE_S else t("data {age}", age=told)


def _headline(findings: Sequence[Finding], glyphs: Glyphs, width: int) -> list[Line]:
    top = next((f for f in findings if not f.acknowledged), findings[0])
    lines = labelled(t("why"), plain(top.say), width, "title")
    lines += labelled(t("cause"), plain(top.cause), width, "text")
    lines += labelled(t("next"), plain(top.next_step or top.action.value), width, "title")
    others = [f for f in findings if f is not top]
    shown = others if len(others) <= ALSO_SHOWN else others[: ALSO_SHOWN - 1]
    for number, other in enumerate(shown):
        label = t("also") if number == 0 else ""
        sign = Cell(glyphs.severity(other.severity) + " ", other.severity.value)
        say = Cell(cut(brief(plain(other.say)), max(10, width - 10)), "text")
        lines.append((Cell(fit(label, 8), "key"), sign, say))
    if len(others) > len(shown):
        more = t("and {n} more, below (n)", n=len(others) - len(shown))
        lines.append((Cell(f"{'':8}{more}", "dim"),))
    return lines


def _finding(
    finding: Finding, glyphs: Glyphs, width: int, now: float, selected: bool
) -> list[Line]:
    marks = [t("since {time}", time=units.age(now - finding.since))] if finding.since else []
    marks += [t("seen {n}x", n=finding.count)] if finding.count > 1 else []
    marks += [t("no longer seen, kept")] if finding.latched else []
    marks += [t("acknowledged")] if finding.acknowledged else []
    severity = finding.severity
    first: Line = (
        Cell(glyphs.pointer if selected else " ", "key"),
        Cell(f"{glyphs.severity(severity)} {word(severity)} ", severity.value),
        Cell(cut(plain(finding.say), max(10, width - 9)), "title"),
    )
    lines: list[Line] = [
        first,
        (Cell(" " * 7 + cut("  ".join([finding.rule, *marks]), width - 7), "dim"),),
    ]
    lines += labelled(t("  value"), _measured(finding), width, "text")
    lines += labelled(t("  cause"), plain(finding.cause), width, "text")
    for evidence in finding.evidence:
        lines += labelled(t("  fact"), plain(evidence), width, "text")
    step = finding.next_step or finding.action.value
    lines += labelled(t("  next"), plain(step), width, "title")
    lines += labelled(t("  from"), plain(finding.source), width, "dim")
    return lines


def _measured(finding: Finding) -> str:
    if finding.value is None:
        return ""
    text = f"{finding.value} {finding.unit}".strip()
    return (
        text
        if finding.limit is None
        else t(
            "{value}, limit {limit} {unit}", value=text, limit=finding.limit, unit=finding.unit
        ).strip()
    )


def _kernel(facts: NodeFacts, width: int, now: float) -> list[Line]:
    source = facts.get("kernel_log")
    if not facts.kernel:
        readable = source is not None and source.values.get("readable", True)
        told = t("nothing relevant") if readable else t("not readable")
        return [(Cell(told if source else t("not read yet"), "dim"),)]
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
        none = facts.node.scheduler is None
        return t("no scheduler") if none else t("scheduler {state}", state=units.ABSENT)
    told = (t("job {id} {user}", id=job.id, user=job.user) for job in allocation.jobs[:2])
    jobs = ", ".join(text.strip() for text in told)
    state = SCHED_WORDS.get(allocation.state, allocation.state)
    return plain(f"{state} {jobs}".strip())


def _scheduler(facts: NodeFacts, width: int, now: float) -> list[Line]:
    allocation = facts.allocation
    if allocation is None:
        return [(Cell(t("nothing reported for this node"), "dim"),)]
    lines = labelled(t("state"), plain(f"{allocation.state} ({allocation.raw})"), width, "text")
    if allocation.reason:
        by = t(" by {who}", who=allocation.reason_by) if allocation.reason_by else ""
        at = allocation.reason_at
        ago = t(", {age} ago", age=units.age(now - at)) if at else ""
        lines += labelled(t("reason"), plain(f"{allocation.reason}{by}{ago}"), width, "text")
    lines += labelled(t("in"), plain(" ".join(allocation.partitions)), width, "text")
    for job in allocation.jobs:
        end = (
            t(", ends {when}", when=time.strftime("%a %H:%M", time.localtime(job.end_at)))
            if job.end_at
            else ""
        )
        text = tn(
            "{id} {user} {name}, 1 node{end}", "{id} {user} {name}, {n} nodes{end}", job.nodes,
            id=job.id, user=job.user, name=job.name, end=end,
        )  # fmt: skip
        lines += labelled(t("job"), plain(text), width, "text")
    if not allocation.responding:
        lines += labelled(
            t("note"), t("the scheduler has lost its daemon on this node"), width, "unknown"
        )
    return lines
