"""A field case's input and what it demands: facts, severity, drain, words, forbidden answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probes.event import Finding, Severity
from tests.judging.build import Built, findings, grade

DATA = Path(__file__).parents[1] / "data" / "cases"
_INDEX: dict[str, dict[str, Any]] = json.loads((DATA / "index.json").read_text(encoding="utf-8"))


def of_kind(*kinds: str) -> list[str]:
    """Ids of all cases of these kinds."""
    return [name for name, case in _INDEX.items() if case["kind"] in kinds]


def demand(name: str) -> Mapping[str, Any]:
    """The machine-readable part of a case."""
    return _INDEX[name]


def severity(name: str) -> Severity:
    """What the whole input is worth."""
    return Severity(_INDEX[name]["severity"])


def text(name: str) -> str:
    """A textual input."""
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def dump(name: str) -> Any:
    """A JSON input."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def judged(node: Built, others: list[Built] | None = None) -> tuple[Severity, list[Finding]]:
    """(verdict, findings) through the whole judging path."""
    found = findings(node, others)
    return grade(node, found), found


def about(found: list[Finding], rule: str, device: str = "") -> Finding:
    """The one finding of a rule (and device)."""
    (one,) = [f for f in found if f.rule == rule and f.device.startswith(device)]
    return one
