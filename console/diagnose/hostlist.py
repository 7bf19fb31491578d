"""Host lists and inventory files: expanded, or refused with line and column."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from console.diagnose.report import Report
from console.diagnose.text import Line, Text
from inventory.errors import UsageError
from inventory.expressions import MalformedError, expand
from inventory.hosts import load
from probes.event import Action, Severity
from probes.rule import Rule

KIND = "inventory"
TITLE = "host lists, one a line, and inventory files"
STREAMS = False

MALFORMED = Rule(
    id="inventory.hostlist",
    title="A host list is malformed",
    severity=Severity.WARN,
    reads="host expressions, one a line",
    cause="a typing error",
    action=Action.FIX_CONFIG,
    next_step="correct the inventory; nothing of that line is used",
    source="our rule: a broken line is refused whole; Slurm turns some into other hosts",
    others="-",
    example="node[5-3]: descending range at column 6",
)
FILE = Rule(
    id="inventory.file",
    title="An inventory file is not valid",
    severity=Severity.WARN,
    reads="inventory YAML",
    cause="a typing error or an unknown key",
    action=Action.FIX_CONFIG,
    next_step="correct the named line; `gpuconsole inventory -i FILE` checks it",
    source="our rule: unknown keys are refused, never ignored",
    others="-",
    example="line 3: unknown key hots; did you mean hosts?",
)
RULES = (MALFORMED, FILE)

LINES = 5000
HOSTS = 2_000
"""Most names shown of one line."""
_LINE = re.compile(r"[\w.,\[\]/!@:*?^&-]{1,4000}")
_SPACED = re.compile(r"(?:export )?[\w.,\[\]/!@:*?^& =\"'-]{1,4000}")
_VARIABLE = re.compile(r"^(?:export )?[A-Z][A-Z_]*=")
"""SLURM_JOB_NODELIST=gpu[001-004], as `env` prints it."""
_YAML = re.compile(r"^(?:hosts|groups):(?:\s|$)", re.MULTILINE)
_LABELS = (
    "unclosed bracket", "unexpected ]", "nested bracket", "empty bracket", "empty item",
    "descending range", "not a number", "open range", "bad range", "empty name", "too many hosts",
)  # fmt: skip


def sniff(head: str) -> int:
    """Only where every line could be a host list, and some have brackets or commas."""
    lines = [_plain(line) for line in head.splitlines() if line.strip()]
    if _YAML.search(head) and not head.lstrip().startswith(("{", "[")):
        return 75
    kept = [line for line in lines if line]
    if not kept or kept[0][:1] in "[{<" or not all(map(_could_be, kept[:-1])):
        return 0
    if len(head) < 60_000 and not _could_be(kept[-1]):
        return 0
    shaped = [line for line in kept if re.search(r"\[|\]|\w,[A-Za-z]|^,[A-Za-z]|\d,(?:,|$)", line)]
    named = [line for line in kept if re.search(r"[A-Za-z]", line)]
    if len(kept) > 1 and len(head) < 60_000 and all(map(_NUMBERED.fullmatch, kept)):
        return 45
    return 58 if len(shaped) * 2 >= len(kept) and len(named) == len(kept) else 0


_NUMBERED = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}\d(?:\.[\w.-]{1,200})?")
"""A name as nodes have them: letters, then a number; one a line they are a list of hosts."""
_SLOTS = re.compile(r"(?:\s+(?:slots|max[-_]slots|cpu)=\d{1,6})+$")


def _plain(line: str) -> str:
    """Without a comment behind it, and without what a hostfile of MPI adds."""
    return _SLOTS.sub("", re.sub(r"(?:^|\s)#.*$", "", line).strip())


def _could_be(line: str) -> bool:
    return bool(_LINE.fullmatch(line)) or ("[" in line and bool(_SPACED.fullmatch(line)))


def read(text: Text) -> Report:
    """Line by line, or as one file."""
    lines = [line for line in text if line.text.strip()]
    if any(_YAML.match(line.text) for line in lines):
        return _file(text, "\n".join(line.text for line in text))
    report = Report(kind=KIND)
    expanded: dict[str, list[str]] = {}
    counts: list[int] = []
    rejected: list[dict[str, Any]] = []
    for line in lines[:LINES]:
        if not (plain := _plain(line.text)):
            continue
        try:
            hosts = expand(_VARIABLE.sub("", plain).strip("\"'"))
        except UsageError as error:
            rejected.append(_rejected(line, error, report))
        else:
            counts.append(len(hosts))
            expanded[str(line.number)] = hosts[:HOSTS]
    report.facts = {**expanded, "lines": len(counts) + len(rejected), "rejected": rejected,
                    "all_rejected": bool(rejected) and not counts,
                    "reasons": [one["reason"] for one in rejected]}  # fmt: skip
    report.say = _say(counts, rejected)
    report.measured = bool(counts or rejected)
    if len(lines) > LINES:
        report.unknown.append(f"lines after the first {LINES}")
    return report


def _rejected(line: Line, error: UsageError, report: Report) -> dict[str, Any]:
    bad = error.__cause__
    why = bad.why if isinstance(bad, MalformedError) else str(error)
    column = bad.column if isinstance(bad, MalformedError) else 1
    column += len(line.text) - len(line.text.lstrip())
    reason = next((label for label in _LABELS if label in why), why)
    report.add(MALFORMED, f"line {line.number}, column {column}: {why}", line.text.strip(),
               device=f"line {line.number}", value=column)  # fmt: skip
    return {"line": line.number, "column": column, "reason": reason, "text": line.text.strip()}


def _say(counts: list[int], rejected: list[dict[str, Any]]) -> str:
    parts = []
    if rejected:
        first = ", ".join(f"{one['line']}:{one['column']} {one['reason']}" for one in rejected[:6])
        entries = "entry" if len(rejected) == 1 else "entries"
        parts.append(f"{len(rejected)} {entries} refused, each with line and column ({first}); no "
                     "host contacted")  # fmt: skip
    if counts:
        *before, last = map(str, counts[:20])
        shown = f"{', '.join(before)} and {last}" if before else last
        plural = "" if counts == [1] else "s"
        parts.append(f"expanded: {shown} host{plural}, order kept")
    return ("; ".join(parts) or "no host list in it") + "."


def _file(text: Text, whole: str) -> Report:
    report = Report(kind=KIND)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inventory.yaml"
        path.write_text(whole, encoding="utf-8", errors="replace")
        try:
            inventory = load(path)
        except UsageError as error:
            said = str(error).replace(str(path), text.source or "inventory")
            for line in said.splitlines()[:20]:
                report.add(FILE, line, line)
            report.say = f"not a valid inventory: {said.splitlines()[0]}"
            return report
        except RecursionError:
            report.add(FILE, "nested too deeply", "nested too deeply")
            report.say = "not a valid inventory: nested too deeply"
            return report
    names = [node.name for node in inventory.nodes]
    report.facts = {"hosts": names[:HOSTS], "count": len(names), "cluster": inventory.cluster}
    report.say = f"a valid inventory of {len(names)} hosts"
    return report
