"""`dcgmi diag` and `dcgmi health`: what failed, as tables or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from console.diagnose.report import found
from probes.event import Action, Finding, Severity
from probes.rule import Rule

FAILED = Rule(
    id="paper.dcgm",
    title="DCGM's own test failed",
    severity=Severity.CRITICAL,
    reads="dcgmi diag and dcgmi health",
    cause="what the test names; deployment tests are about the set-up of the node",
    action=Action.DRAIN,
    next_step="read the warning below the test; drain and run it again alone (dcgmi diag -r 3)",
    source="result words of DCGM's diagnostics [dcgm]: Pass, Warn, Fail, Skip",
    others="NVS, AzHC and Azure's NPD run it",
    example="| Diagnostic                | Fail - GPU: 3",
)
ROWS = 2000
_ROW = re.compile(r"\|\s?(.{1,60}?)\s*\|\s?(.{0,200}?)\s*\|\s*$")
_SECTION = re.compile(r"[|+]-+\s+(\w[\w ]*\w)\s+-+\+")
_GPUS = re.compile(r"GPUs?:?\s*((?:\d{1,3}(?:,\s*)?)+)")
_SETUP = ("deployment", "metadata")


class Result(NamedTuple):
    """One test of one section."""

    section: str
    test: str
    word: str
    """fail, warn or pass."""
    gpus: tuple[int, ...]
    line: str
    why: str


def looks(head: str) -> bool:
    """Its headings, or its JSON."""
    table = "Health Monitor Report" in head or (
        "| Diagnostic " in head and "| Result" in head
    )  # fmt: skip
    return table or ("test_categories" in head and "DCGM" in head)


def parse(lines: Sequence[str]) -> list[Result]:
    """Results in order."""
    text = "\n".join(lines)
    if "test_categories" in text:
        return list(_json(text))[:ROWS]
    return _table(lines)


def _table(lines: Sequence[str]) -> list[Result]:
    results: list[Result] = []
    section = gpu = ""
    for line in lines:
        heading = _SECTION.match(line.strip())
        if heading is not None:
            section = heading[1]
            continue
        row = _ROW.match(line.strip())
        if row is None or len(results) >= ROWS:
            continue
        name, said = row[1].strip(), row[2].strip()
        inner = re.match(r"(?:->\s*)(\d{1,3})$", name)
        gpu = inner[1] if inner is not None else gpu
        word = _word(said)
        if inner is not None:  # the GPU's line of a health report; what failed stands below it
            continue
        if word:
            gpus = _gpus(said) or ((int(gpu),) if gpu and "->" in name else ())
            results.append(Result(section, name.lstrip("-> "), word, gpus, line.strip(), ""))
        elif results and said and name in ("Warning", "Info", "") and results[-1].word != "pass":
            last = results[-1]
            results[-1] = last._replace(why=f"{last.why} {said}".strip()[:300])
    return results


def _word(said: str) -> str:
    low = said.lower()
    if low.startswith(("fail", "unhealthy")):
        return "fail"
    if low.startswith("warn"):
        return "warn"
    return "pass" if low.startswith(("pass", "healthy")) else ""


def _gpus(said: str) -> tuple[int, ...]:
    match = _GPUS.search(said)
    return tuple(int(n) for n in re.findall(r"\d+", match[1])) if match else ()


def _json(text: str) -> Iterator[Result]:
    """As `dcgmi diag -j` writes it; anything else in it is left out."""
    try:
        document = json.loads(text[text.index("{") :])
    except (ValueError, RecursionError):
        return
    for category in _find(document, "test_categories", 0):
        section = str(category.get("category", ""))
        for test in _dicts(category.get("tests")):
            for result in _dicts(test.get("results")):
                word = _word(str(result.get("status", "")))
                why = "; ".join(
                    str(w.get("warning", w)) if isinstance(w, dict) else str(w)
                    for w in result.get("warnings") or () if w
                )[:300] if isinstance(result.get("warnings"), list) else ""  # fmt: skip
                number = str(result.get("gpu_id", result.get("entity_id", "")))
                gpus = (int(number),) if number.isdigit() and len(number) < 4 else ()
                name = str(test.get("name", "?"))[:80]
                if word:
                    yield Result(section, name, word, gpus, f"{name}: {result.get('status')}", why)


def _find(value: Any, name: str, depth: int) -> list[dict[str, Any]]:
    if not isinstance(value, dict) or depth > 4:
        return []
    if name in value:
        return _dicts(value[name])
    return next((f for inner in value.values() if (f := _find(inner, name, depth + 1))), [])


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)][:ROWS] if isinstance(value, list) else []


def findings(results: Sequence[Result], node: str) -> list[Finding]:
    """One for each test and GPU that did not pass."""
    told = []
    for result in results:
        if result.word == "pass" or result.test.lower().startswith("overall"):
            continue
        setup = result.section.lower() in _SETUP
        grave = result.word == "fail" and not setup
        gpus = ", ".join(map(str, result.gpus))
        where = f"GPU {gpus}: " if gpus else ""
        why = f": {result.why}" if result.why else ""
        told.append(found(
            FAILED, f"{where}DCGM's {result.test} test says {result.word}{why}", result.line,
            *filter(None, [result.why]), node=node,
            device=f"GPU{gpus}" if len(result.gpus) == 1 else "", label=where.rstrip(": "),
            severity=Severity.CRITICAL if grave else Severity.WARN,
            action=Action.DRAIN if grave else Action.FIX_CONFIG if setup else Action.WATCH,
        ))  # fmt: skip
    return told
