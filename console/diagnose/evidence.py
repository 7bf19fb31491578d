"""The summary of an evidence bundle: what was found when it was taken, and whether it is whole."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from console.diagnose.bundle import MARK
from console.diagnose.report import Report, drain_advice
from console.diagnose.text import Text
from probes.event import Action, Finding, Severity
from probes.rule import Rule

KIND = "evidence"
TITLE = "an evidence bundle of gpuconsole"
STREAMS = False

CHANGED = Rule(
    id="evidence.changed",
    title="A file of the bundle is not what its manifest says",
    severity=Severity.WARN,
    reads="SHA-256 of each file against manifest.json",
    cause="the bundle was edited, or damaged on its way",
    action=Action.NONE,
    next_step="compare the bundle's own SHA-256 with the audit file: gpuconsole audit",
    source="our rule: evidence that was changed is told",
    others="-",
    example="node/dmesg.txt was changed",
)
RULES = (CHANGED,)


def sniff(head: str) -> int:
    """Only what console.diagnose.bundle made."""
    return 100 if head.startswith(f'{{"{MARK}"') else 0


def read(text: Text) -> Report:
    """Findings as they were recorded; nothing is judged again, only files are checked."""
    report = Report(kind=KIND)
    document: Any = next(iter(text.documents()), {})
    manifest = document.get(MARK) if isinstance(document, dict) else None
    manifest = manifest if isinstance(manifest, dict) else {}
    node = str(manifest.get("node", ""))
    for part, what in sorted(_mapping(document, "differ").items()):
        report.add(CHANGED, f"{part} {what}", f"{part} {what}", node=node)
    report.findings += _recorded(document)
    taken = manifest.get("at")
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(taken)) if _is_time(taken) else "?"
    report.facts = {
        "node": node, "taken_at": at, "why": manifest.get("why"), "note": manifest.get("note"),
        "answered": manifest.get("answered"), "verdict_then": manifest.get("verdict"),
    }  # fmt: skip
    if not manifest.get("answered"):
        report.unknown.append(f"the node's part is missing: {manifest.get('note') or '?'}")
    count = len(report.findings)
    report.say = f"evidence of {node or 'a node'}, taken {at}: {count or 'no'} findings then"
    report.drain = drain_advice(report.findings)
    report.measured = bool(manifest)
    return report


def _mapping(document: Any, key: str) -> dict[str, str]:
    value = document.get(key) if isinstance(document, dict) else None
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def _recorded(document: Any) -> list[Finding]:
    try:
        return msgspec.convert(document.get("findings") or [], list[Finding])
    except (msgspec.MsgspecError, AttributeError):
        return []


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < 1e11
