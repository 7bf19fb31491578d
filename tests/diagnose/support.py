"""Field cases and made-up tickets through the whole of `gpuconsole diagnose`."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console.diagnose.command import Diagnosis, Part, diagnose
from console.diagnose.text import Input, open_input
from probes.event import Finding, Severity

DATA = Path(__file__).parents[1] / "data" / "cases"
_INDEX: dict[str, dict[str, Any]] = json.loads((DATA / "index.json").read_text(encoding="utf-8"))


def of_kind(*kinds: str) -> list[str]:
    """Ids of all cases of these kinds whose input is here."""
    names = [name for name, case in _INDEX.items() if case["kind"] in kinds]
    return [name for name in names if any(DATA.glob(f"{name}.*"))]


def demand(name: str) -> Mapping[str, Any]:
    """What a case demands: severity, facts, drain, say, must_not."""
    return _INDEX[name]


def severity(name: str) -> Severity:
    """What the whole input is worth."""
    return Severity(_INDEX[name]["severity"])


def path(name: str) -> Path:
    """The case's input."""
    (found,) = [p for p in DATA.glob(f"{name}.*") if p.suffix in (".txt", ".json")]
    return found


def case(name: str, kind: str = "") -> Diagnosis:
    """A case's input, diagnosed."""
    return diagnose([open_input(str(path(name)))], kind)


def ticket(text: str | bytes, kind: str = "") -> Diagnosis:
    """Any text, diagnosed as if it came from stdin."""
    raw = text.encode() if isinstance(text, str) else text
    return diagnose([Input("stdin", io.BytesIO(raw))], kind)


def only(diagnosis: Diagnosis) -> Part:
    """The one part of an input that holds one format."""
    (part,) = diagnosis.inputs
    return part


def part(diagnosis: Diagnosis, kind: str) -> Part:
    """The one part of a kind."""
    (found,) = [one for one in diagnosis.inputs if one.kind == kind]
    return found


def findings(diagnosis: Diagnosis) -> list[Finding]:
    """All findings of all parts."""
    return [finding for one in diagnosis.inputs for finding in one.findings]


def facts(diagnosis: Diagnosis) -> dict[str, Any]:
    """Facts of all parts in one mapping."""
    return {name: value for one in diagnosis.inputs for name, value in one.facts.items()}


def about(diagnosis: Diagnosis, rule: str, device: str = "", node: str = "") -> Finding:
    """The one finding of a rule (and device, and node)."""
    (one,) = [
        f
        for f in findings(diagnosis)
        if f.rule == rule and f.device.startswith(device) and f.node.startswith(node)
    ]  # fmt: skip
    return one


def rules(diagnosis: Diagnosis, above: Severity = Severity.INFO) -> set[str]:
    """Rule ids of findings above a severity."""
    return {f.rule for f in findings(diagnosis) if f.severity.rank > above.rank}


def words(diagnosis: Diagnosis) -> str:
    """All that is said, evidence left out: where forbidden answers are looked for."""
    said = [diagnosis.say]
    for one in diagnosis.inputs:
        said += [one.say, *one.unknown]
        said += [f"{f.say} {f.cause} {f.next_step}" for f in one.findings]
    return "\n".join(said)
