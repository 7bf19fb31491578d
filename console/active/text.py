"""A campaign as a report for the terminal: sober, worst first, figures with their source. Pure.

`lines` is what the screen shows too; `render` makes text of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from console import units
from console.active import figures, matrix, tables
from console.active.cells import Line, Piece, ascii_only, fit, labelled, plain, safe, wrap
from console.active.results import Campaign, Verdict
from probes.event import Severity

MARKS = {
    Severity.OK: "✓ ok",
    Severity.INFO: "i info",
    Severity.WARN: "! warn",
    Severity.CRITICAL: "✗ crit",
    Severity.UNKNOWN: "? unkn",
}
INDENT = 10
VERDICTS = 60
"""Most verdicts told in full; the rest is counted, and in the JSON."""
EVIDENCE = 8
"""Most facts shown below one verdict."""
_SGR: Mapping[str, str] = {
    "title": "1", "head": "4", "dim": "2", "key": "1", "warn": "33", "critical": "1;31",
    "unknown": "35", "info": "36",
}  # fmt: skip
"""ANSI colours of the sixteen every terminal has."""


def render(
    campaign: Campaign,
    width: int = 80,
    ascii: bool = False,  # noqa: A002
    *,
    colour: bool = False,
) -> str:
    """The report in lines of at most `width` cells (commands excepted: they are for copying)."""
    told = lines(campaign, max(20, width))
    if ascii:
        told = [tuple(Piece(ascii_only(p.text), p.style) for p in line) for line in told]
    return plain(map(_coloured, told) if colour else told)


def _coloured(line: Line) -> Line:
    return tuple(
        Piece(f"\x1b[{_SGR[p.style]}m{p.text}\x1b[0m") if p.style in _SGR and p.text.strip() else p
        for p in line
    )


def lines(campaign: Campaign, room: int) -> list[Line]:
    """The report in styled lines."""
    out = _head(campaign, room)
    out += verdict_lines(campaign, room)
    for title, body in _figures(campaign, room):
        out += _section(title, body, room)
    out += _section("Not tested, and why", _missing(campaign, room), room)
    ready: list[Line] = [(Piece(f"  {line}"),) for line in figures.commands(campaign)]
    return out + _section("Ready commands", ready, room)


def _section(title: str, body: list[Line], room: int) -> list[Line]:
    return [(), *((Piece(row, "title"),) for row in wrap(title, room)), *body] if body else []


def _head(campaign: Campaign, room: int) -> list[Line]:
    count = len(campaign.nodes)
    noun = "node" if count == 1 else "nodes"
    title = f"Test {campaign.level}: {count} {noun} {figures.hosts(campaign.nodes, 400)}"
    mark = MARKS[campaign.verdict]
    first, *more = wrap(title, max(2, room - len(mark) - 2))
    out: list[Line] = [
        (
            Piece(fit(first, max(0, room - len(mark) - 2)) + "  ", "title"),
            Piece(mark, campaign.verdict.value),
        )
    ]
    out += [(Piece(row, "title"),) for row in more]
    out += labelled("asked", figures.ASKED[campaign.level], room, indent=INDENT)
    out += labelled("ran", ran(campaign), room, indent=INDENT)
    yard = figures.yardstick(campaign)
    if yard.value is not None:
        told = f"{figures.amount(yard.value, 'GB/s')}, {safe(yard.words)}"
        out += labelled("measure", told, room, indent=INDENT)
    return out + labelled("stopped", stopped(campaign), room, "warn", INDENT)


def ran(campaign: Campaign) -> str:
    """Rounds, runs, engine, when and how long."""
    ended, known = figures.progress(campaign)
    rounds = units.counted(campaign.rounds, "round")
    runs = units.counted(known, "run") if ended == known else f"{ended} of {known} runs"
    engine = figures.engines(campaign)
    began = f"{figures.moment(campaign.at)}, {figures.span(campaign.duration_s)}"
    return ", ".join(filter(None, [rounds, runs, engine, began, f"id {safe(campaign.id, 80)}"]))


def stopped(campaign: Campaign) -> str:
    """What an interrupted campaign lacks; "" for a whole one."""
    if not campaign.interrupted:
        return ""
    ended, known = figures.progress(campaign)
    lacks = f" {known - ended} of {known} runs are missing." if ended < known else ""
    return f"Interrupted: what follows is from the runs that ended.{lacks}"


def verdict_lines(campaign: Campaign, room: int) -> list[Line]:
    """Verdicts worst first; those that are fine in one line."""
    out: list[Line] = []
    bad = figures.worst_first(campaign)
    for verdict in bad[:VERDICTS]:
        out += [(), *_verdict(verdict, room)]
    if len(bad) > VERDICTS:
        out += [(), (Piece(f"and {len(bad) - VERDICTS} more verdicts, in the JSON", "dim"),)]
    fine = figures.fine_nodes(campaign)
    if fine:
        out += [(), *labelled("✓ ok", _count(fine), room, indent=INDENT)]
    told = labelled("? unkn", figures.unjudged(campaign), room, "unknown", INDENT)
    return [*out, (), *told] if told else out


def _count(names: list[str]) -> str:
    return f"{units.counted(len(names), 'node')}: {figures.hosts(names, 400)}"


def _verdict(verdict: Verdict, room: int) -> list[Line]:
    style = verdict.verdict.value
    sure = f" ({verdict.confidence})" if figures.judged(verdict) else ""
    say = f"{safe(verdict.say) or safe(verdict.name)}{sure}"
    out: list[Line] = [
        (Piece(line[0].text, style), Piece(line[1].text, "title"))
        for line in labelled(MARKS[verdict.verdict], say, room, indent=INDENT)
    ]
    if verdict.expected is not None:
        told = [figures.amount(verdict.expected, verdict.unit), safe(verdict.provenance)]
        out += labelled("  expect", ", ".join(filter(None, told)), room, indent=INDENT)
    elif verdict.provenance:
        out += labelled("  measure", safe(verdict.provenance), room, indent=INDENT)
    for index, fact in enumerate(verdict.evidence[:EVIDENCE]):
        out += labelled("" if index else "  seen", safe(fact), room, indent=INDENT)
    if len(verdict.evidence) > EVIDENCE:
        more = f"and {len(verdict.evidence) - EVIDENCE} more facts"
        out += labelled("", more, room, "dim", INDENT)
    out += labelled("  cause", safe(verdict.cause), room, indent=INDENT)
    return out + labelled("  next", safe(verdict.next_step), room, "title", INDENT)


def _figures(campaign: Campaign, room: int) -> Iterable[tuple[str, list[Line]]]:
    found = matrix.matrix(campaign)
    if found is not None:
        yield "Pairs", matrix.lines(found, room)
    for part in tables.tables(campaign):
        yield part.title, tables.lines(part, room)
    told: list[Line] = []
    for clue, runs in figures.clues(campaign)[:EVIDENCE]:
        told += labelled("", f"{clue} ({runs})", room, indent=2)
    yield "What NCCL said", told


def _missing(campaign: Campaign, room: int) -> list[Line]:
    out: list[Line] = []
    for what, why in figures.missing(campaign)[:VERDICTS]:
        out += [
            (Piece(row, "unknown"),)
            for row in (f"  {part}" for part in wrap(f"{what}: {why}", room - 2))
        ]
    return out
