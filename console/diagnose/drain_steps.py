"""What `gpuconsole drain` and `resume` told about each node: Steps as NDJSON, or as text. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct, field

from console.diagnose.report import Report
from probes.event import Action, Severity
from probes.rule import Rule

LEFT = Rule(
    id="drain.left_alone",
    title="A node was not drained or resumed",
    severity=Severity.WARN,
    reads="Steps of gpuconsole drain and resume: refused, failed",
    cause="somebody else's drain, a state that changed in between, or a scheduler that refused",
    action=Action.WATCH,
    next_step="read the detail; --override only after asking whose drain it is",
    source="our rule: a foreign reason is never overwritten",
    others="NHC, NVS keep ownership of a drain",
    example='{"type":"step","node":"gpu-a08","phase":"refused","ok":false,"detail":"left alone"}',
)
NODES = 20_000
_TEXT = re.compile(
    r"^(?P<node>[\w.-]+): (?P<phase>refused|done|failed|evict|evidence|audit)"
    r"(?:: (?P<detail>.*))?$"
)
SNIFF = re.compile(
    r'^\{"type":"step"|^[\w.-]+: (?:refused|done|failed): '
    r"(?:left alone|already|drain|not ours|resum)",
    re.MULTILINE,
)


class Steps(Struct):
    """The last word about each node."""

    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)

    def feed(self, line: str) -> None:
        """One line."""
        told: dict[str, Any] | None = None
        if line.startswith('{"type":"step"'):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                return
            told = value if isinstance(value, dict) else None
        elif match := _TEXT.match(line[:2000]):
            told = {**match.groupdict(), "ok": match["phase"] not in ("refused", "failed")}
        if told is None or not isinstance(told.get("node"), str) or len(self.last) >= NODES:
            return
        if told.get("phase") in ("refused", "done", "failed", "evict") or not told.get("ok"):
            self.last[told["node"]] = told
            self.lines[told["node"]] = line.strip()[:500]

    def judge(self, report: Report) -> None:
        """Facts by node, and a finding for each that was left as it was."""
        if not self.last:
            return
        report.facts["steps"] = {n: str(one.get("phase", "")) for n, one in self.last.items()}
        for node, one in self.last.items():
            if not one.get("ok"):
                say = f"{one.get('phase')}: {one.get('detail') or 'no reason given'}"
                report.add(LEFT, say, self.lines[node], node=node)
        bad = sum(not one.get("ok") for one in self.last.values())
        good = len(self.last) - bad
        report.say = f"{good} of {len(self.last)} nodes as ordered" + (
            f"; {bad} left as they were" if bad else ""
        )
