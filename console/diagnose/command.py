"""`gpuconsole diagnose`: inputs in, one document or a text for people out."""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from console.diagnose import detect, offline, render, segments
from console.diagnose.bundle import opened
from console.diagnose.report import Report, sanitised, worst_advice
from console.diagnose.segments import Piece
from console.diagnose.text import HEAD_BYTES, Input, Line, Text, tidy
from console.output import Stdout, as_json, exit_code
from inventory.errors import UsageError
from probes.event import SCHEMA, Finding, Severity, worst
from probes.rules import load_rules
from probes.sanitise import clean

WINDOWS = 8
"""Places of a large input where its format is looked for, evenly spread over its beginning."""
SAY_CHARS = 500


class Part(Struct, frozen=True, kw_only=True):
    """What one reader made of one input; a ticket that holds several formats gives several."""

    file: str
    kind: str
    """"" when no reader knows it."""
    verdict: Severity
    drain: str
    say: str
    lines: str = ""
    """Where it stands in the file: "12-40"; "" for all of it."""
    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The document of `gpuconsole diagnose --json`."""

    schema: int
    verdict: Severity
    drain: str
    """"no", "after running jobs", "now", or "unknown: " and what decides."""
    say: str
    inputs: list[Part]


def run(files: Sequence[str], kind: str | None, *, json: bool, rules: Path | None = None) -> int:
    """Diagnose and print; the exit code is the verdict's."""
    offline.LIMITS.set(load_rules(rules))
    wanted = detect.known_kind(kind) if kind else ""
    if files.count("-") > 1:
        raise UsageError("stdin can be read once", where="-", instead="name it once")
    inputs = itertools.chain.from_iterable(map(opened, files))
    diagnosis = diagnose(inputs, wanted)
    out = as_json(diagnosis, indent=sys.stdout.isatty()) if json else render.text(diagnosis)
    Stdout().write(out)
    return exit_code(diagnosis.verdict)


def diagnose(inputs: Iterable[Input], kind: str = "") -> Diagnosis:
    """Read all inputs, each closed afterwards; `kind` forces a reader."""
    reports: list[tuple[Report, detect.Reader]] = []
    parts: list[Part] = []
    files: list[str] = []
    for one in inputs:
        files.append(one.name)
        try:
            parts += _parts(one, kind, reports)
        finally:
            one.close()
    parts += _across(reports) if len(files) > 1 else []
    return Diagnosis(
        schema=SCHEMA,
        verdict=worst([part.verdict for part in _counted(parts)]),
        drain=worst_advice(part.drain for part in parts),
        say=_say(_counted(parts)),
        inputs=parts,
    )


def _counted(parts: list[Part]) -> list[Part]:
    """Parts that the verdict rests on.

    What holds nothing to judge (a list of names) does not make unknown what the same file's other
    parts tell; what nobody recognises does.
    """
    judged = {p.file for p in parts if p.kind and _judged(p)}
    return [p for p in parts if _judged(p) or not p.kind or p.file not in judged]


def _judged(part: Part) -> bool:
    return bool(part.findings) or part.verdict is not Severity.UNKNOWN


def _parts(source: Input, kind: str, seen: list[tuple[Report, detect.Reader]]) -> list[Part]:
    if source.binary and not kind:
        return [_not_recognised(source.name, "it is binary, not text")]
    if not source.small:
        return [_large(source, kind, seen)]
    lines = source.lines()
    found = segments.pieces(lines, kind)
    if not found:
        return [_not_recognised(source.name, "empty" if not _any(lines) else "")]
    reports = [(_read(piece, source.name), piece) for piece in found]
    _relate([(report, piece.reader) for report, piece in reports])
    seen.extend((report, piece.reader) for report, piece in reports if piece.reader is not None)
    alone = len(found) == 1
    return [
        _part(source, report, "" if alone else _span(piece)) for report, piece in reports
    ]  # fmt: skip


def _large(source: Input, kind: str, seen: list[tuple[Report, detect.Reader]]) -> Part:
    """One format, told by looks at several places; read as a stream where its reader can."""
    guess = detect.best(_window(source.start, 0), kind)
    for number in range(1, WINDOWS):
        if guess is not None and guess.score >= segments.SURE:
            break
        at = number * len(source.start) // WINDOWS
        other = detect.best(_window(source.start, at), kind)
        if other is not None and (guess is None or other.score > guess.score):
            guess = other
    if guess is None:
        return _not_recognised(source.name, "")
    lines = source.stream() if guess.reader.STREAMS else source.lines()
    report = guess.reader.read(Text(lines, source.name, whole=source.whole))
    seen.append((report, guess.reader))
    return _part(source, report, "")


def _window(raw: bytes, at: int) -> str:
    text = raw[at : at + HEAD_BYTES].decode("utf-8", "replace")
    return "\n".join(tidy(line) for line in text.split("\n"))


def _any(lines: list[Line]) -> bool:
    return any(text.strip() for _, text in lines)


def _read(piece: Piece, name: str) -> Report:
    assert piece.reader is not None
    return piece.reader.read(piece.text(name))


def _relate(reports: list[tuple[Report, detect.Reader | None]]) -> None:
    """Let a reader that offers it see what the others found in the same ticket."""
    for report, reader in reports:
        relate = getattr(reader, "relate", None)
        if relate is not None:
            relate(report, [other for other, _ in reports if other is not report])


def _across(reports: list[tuple[Report, detect.Reader]]) -> list[Part]:
    """What shows only when several inputs are compared: a reader offers it as `across`."""
    found = []
    for across in dict.fromkeys(getattr(reader, "across", None) for _, reader in reports):
        mine = [r for r, reader in reports if getattr(reader, "across", None) is across]
        report = across(mine) if across is not None and len(mine) > 1 else None
        if report is not None:
            source = Input("all inputs together", io.BytesIO())
            found.append(_part(source, report, ""))
    return found


def _span(piece: Piece) -> str:
    return f"{piece.lines[0].number}-{piece.lines[-1].number}"


def _part(source: Input, report: Report, lines: str) -> Part:
    report = sanitised(report)
    notes = [clean(note, SAY_CHARS) for note in source.notes]
    return Part(
        file=clean(source.name, SAY_CHARS), kind=report.kind, verdict=report.verdict,
        drain=report.drain, say=report.say, lines=lines, facts=report.facts,
        findings=report.findings, unknown=[*notes, *report.unknown],
    )  # fmt: skip


def _not_recognised(name: str, why: str) -> Part:
    what = f"not recognised: {why}" if why else "not recognised"
    known = ", ".join(detect.kinds())
    return Part(
        file=clean(name, SAY_CHARS), kind="", verdict=Severity.UNKNOWN, drain="no",
        say=f"{what}; nothing was judged", unknown=[f"recognised would be: {known} (--as KIND)"],
    )  # fmt: skip


def _say(parts: Sequence[Part]) -> str:
    """The sentence of the worst parts; that of all of them when all are well."""
    top = max((part.verdict.rank for part in parts), default=0)
    told = [part.say.rstrip(".") for part in parts if part.verdict.rank == top]
    kept = list(itertools.islice(dict.fromkeys(filter(None, told)), 4))
    more = f" (and {len(told) - len(kept)} more)" if len(told) > len(kept) else ""
    return clean("; ".join(kept), SAY_CHARS) + more
