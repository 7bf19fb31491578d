"""What `y` and `:copy` put on the clipboard: a host list, JSON, or markdown for a ticket. Pure.

The clipboard is the operator's own, far away: OSC 52 carries the text through ssh to the terminal.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from console import units
from console.above import above
from console.fleet import Fleet
from console.output import NodeReport, as_json, node_report
from console.tui.text import plain
from inventory.expressions import fold
from probes.event import SCHEMA, Finding

FORMATS = ("hosts", "json", "markdown")
ENDINGS = {"hosts": "txt", "json": "json", "markdown": "md"}
OSC_MOST = 74_994
"""Base64 characters at most. Terminals stop at some length without a word; hterm's is 100,000 bytes
for the whole sequence, wrapping takes some of it, and a quarter is left for others (our choice)."""
MOSH_MOST = 16_368
"""mosh 1.4 cuts the whole sequence at 16,383 bytes without a word (tried), and a cut host list is
another one. Somebody may look at a tmux or screen through it."""
SCREEN_PART = 256
"""GNU screen passes strings of at most 768 bytes on; its own limit was 256 before 4.6."""
FINDINGS_MOST = 20
"""Findings of one node told in a ticket."""


class Copied(Struct, frozen=True, kw_only=True):
    """The JSON form."""

    schema: int
    at: float
    cluster: str
    console: str
    """Version of gpuconsole."""
    nodes: list[NodeReport]


def part(form: str, fleet: Fleet, name: str, now: float, version: str) -> NodeReport | str:
    """What one node is in a form: some 0.2 ms, so that thousands are made in slices."""
    if form == "json":
        return node_report(fleet, name, now)
    return markdown(fleet, name, now, version) if form == "markdown" else name


def whole(
    form: str, parts: Sequence[NodeReport | str], cluster: str, now: float, version: str
) -> str:
    """All nodes in one of FORMATS. Touches nothing but its arguments, so a thread may do it."""
    if form == "json":
        nodes = [one for one in parts if isinstance(one, NodeReport)]
        told = Copied(schema=SCHEMA, at=now, cluster=cluster, console=version, nodes=nodes)
        return as_json(told, indent=True).decode()
    texts = [one for one in parts if isinstance(one, str)]
    if form == "markdown":
        return "\n".join([f"_{len(texts)} nodes_\n", *texts] if len(texts) > 1 else texts)
    return fold(texts)


def markdown(fleet: Fleet, name: str, now: float, version: str) -> str:
    """One node for a ticket: verdict, each finding with its evidence, cause and next step."""
    facts = fleet.nodes[name]
    findings = fleet.findings[name]
    verdict = fleet.verdict(name).value
    cluster = fleet.inventory.cluster
    where = f" ({_md(cluster)})" if cluster else ""
    lines = [f"### {_md(name)}{where}: {verdict}", ""]
    lines.append(f"- session: {facts.state.value.replace('_', ' ')}, data {_age(fleet, name, now)}")
    if facts.allocation is not None:
        jobs = ", ".join(f"job {_md(j.id)} of {_md(j.user)}" for j in facts.allocation.jobs)
        reason = f", reason: {_md(facts.allocation.reason)}" if facts.allocation.reason else ""
        lines.append(
            f"- scheduler: {_md(facts.allocation.state)}{f', {jobs}' if jobs else ''}{reason}"
        )
    if facts.status is not None and facts.status.text and not findings:
        lines.append(f"- {_md(facts.status.text)}")
    for finding in findings[:FINDINGS_MOST]:
        lines += ["", *_finding(finding, now)]
    if len(findings) > FINDINGS_MOST:
        lines += ["", f"and {len(findings) - FINDINGS_MOST} more findings"]
    if not findings:
        lines += ["", "no findings"]
    stamp = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    return "\n".join([*lines, "", f"_gpuconsole {version}, {stamp}_", ""])


def _age(fleet: Fleet, name: str, now: float) -> str:
    age = fleet.age(name, now)
    return "never came" if age is None else f"{units.age(age)} old"


def _finding(finding: Finding, now: float) -> list[str]:
    lines = [f"**{finding.severity.value}: {_md(finding.say)}** (`{_code(finding.rule)}`)", ""]
    if finding.since:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(finding.since))
        often = f", seen {finding.count} times" if finding.count > 1 else ""
        over = ", no longer seen" if finding.latched else ""
        lines.append(f"- since {stamp} ({units.age(now - finding.since)}){often}{over}")
    if finding.value is not None:
        limit = "" if finding.limit is None else f", limit {finding.limit} {finding.unit}".rstrip()
        lines.append(f"- value: {_md(str(finding.value))} {finding.unit}".rstrip() + limit)
    lines += [f"- evidence: `{_code(fact)}`" for fact in finding.evidence]
    if finding.cause:
        lines.append(f"- cause: {_md(finding.cause)}")
    lines.append(f"- next: {_md(finding.next_step or finding.action.value)}")
    if finding.acknowledged:
        lines.append("- acknowledged")
    return lines


_MARKS = str.maketrans({char: "\\" + char for char in "\\`*_[]<>|#"})


def _md(text: str) -> str:
    """Text that markdown shows as it is: no link, no tag, no heading of a node's making."""
    return plain(text).translate(_MARKS)


def _code(text: str) -> str:
    return plain(text).replace("`", "'")


def osc52(text: str, environ: Mapping[str, str]) -> str:
    """The sequence that puts `text` on the terminal's clipboard; "" when it is too long.

    tmux takes it itself (set-clipboard on) or passes it on (allow-passthrough on): it gets both.
    GNU screen passes on what is wrapped for it, in parts.
    """
    encoded = base64.b64encode(text.encode()).decode()
    through = environ.get("TMUX") or environ.get("STY") or "mosh-server" in above()
    if len(encoded) > (MOSH_MOST if through else OSC_MOST):
        return ""
    return passed(f"\x1b]52;c;{encoded}\x07", environ)


def passed(sequence: str, environ: Mapping[str, str]) -> str:
    """`sequence` in the wrapping of the multiplexer that the console runs in, if any."""
    if environ.get("TMUX"):
        doubled = sequence.replace("\x1b", "\x1b\x1b")
        return f"{sequence}\x1bPtmux;{doubled}\x1b\\"
    if environ.get("STY"):
        parts = (sequence[i : i + SCREEN_PART] for i in range(0, len(sequence), SCREEN_PART))
        return "".join(f"\x1bP{part}\x1b\\" for part in parts)
    return sequence
