"""mlxlink: one port's link with NVIDIA's own advice, its bit error rates and counters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from console.diagnose.report import Report
from probes.event import Action, Severity
from probes.rule import Rule

ADVICE = Rule(
    id="paper.mlxlink",
    title="mlxlink advises something about a link",
    severity=Severity.WARN,
    reads="mlxlink: state, troubleshooting info, effective and raw physical BER",
    cause="cable, transceiver, dirt, or a setting of the port",
    action=Action.WATCH,
    next_step="do what its recommendation says; compare with a sibling port",
    source="mlxlink of NVIDIA's firmware tools; effective BER above 1e-12: our estimate",
    others="OCI: 1e-7 and mlxlink's advice; SCK: margins",
    example="Recommendation : Bad signal integrity",
)
RULES = (ADVICE,)
BER = 1e-12
MODULES = 256

_PAIR = re.compile(r"\s*([A-Z][\w ()./-]{2,60}?)\s*:\s*(\S.*?)\s*$")
_GOOD = ("no issue was observed", "no issue observed", "n/a")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Module(Struct):
    """One output."""

    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)


def looks(head: str) -> bool:
    """Its headings."""
    return "Operational Info" in head and "Physical state" in head


def parse(lines: Iterable[str]) -> list[Module]:
    """Outputs in order."""
    found_: list[Module] = []
    for raw in lines:
        if len(raw) > 500:
            continue
        line = _ESCAPE.sub("", raw)
        if "Operational Info" in line and len(found_) < MODULES:
            found_.append(Module())
        pair = _PAIR.match(line)
        if pair is not None and found_ and len(found_[-1].values) < 200:
            found_[-1].values.setdefault(pair[1].strip(), pair[2])
            found_[-1].lines.setdefault(pair[1].strip(), line.strip())
    return found_


def judge(report: Report, module: Module) -> None:
    """Into the report."""
    values, lines = module.values, module.lines
    report.measured = True
    told: dict[str, Any] = {name.lower().replace(" ", "_"): text for name, text in values.items()}
    report.facts.setdefault("links", []).append(told)
    advice = values.get("Recommendation", "")
    state = values.get("State", "")
    rate = _ber(values.get("Effective Physical BER", ""))
    bad = [lines["Recommendation"]] if advice and not advice.lower().startswith(_GOOD) else []
    if rate is not None and rate > BER:
        bad.append(lines["Effective Physical BER"])
    if state and state.lower() != "active":
        bad.insert(0, lines["State"])
    if bad:
        text = "; ".join(" ".join(line.split()) for line in bad)
        report.add(ADVICE, text, *bad)
        report.say = "; ".join(filter(None, [report.say, text]))
    else:
        speed = values.get("Speed", "?")
        report.say = "; ".join(filter(None, [report.say, f"link {state or '?'} at {speed}"]))


def _ber(text: str) -> float | None:
    number = re.match(r"\d{1,3}(?:\.\d{1,6})?[eE]-?\d{1,4}", text)
    return None if number is None else float(number[0])
