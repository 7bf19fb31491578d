"""Active tests as lines and rows: what would be tested, how far one is, which there were. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from console import units
from console.active import cells, figures
from console.active.ask import Asked, CampaignPlan
from console.active.results import Campaign, Level, Progress
from console.active.text import lines as report
from console.tui.bench import Entry
from console.tui.plan_view import labelled
from console.tui.text import Cell, Column, Line, choose, cut, fit, plain
from console.tui.theme import ASCII, WORDS, Glyphs
from inventory.expressions import fold

LEVEL_KEYS: Mapping[str, Level] = {level.value[0]: level for level in Level}
"""g n p r c."""
RUNNING_SHOWN = 12
FINE = "all that was judged is ok"
BAR = 30

COLUMNS = (
    Column("state", "STATE", 8, 0),
    Column("level", "LEVEL", 7, 1),
    Column("nodes", "NODES", 18, 2),
    Column("say", "FOUND", 20, 3, flexible=True),
    Column("age", "AGE", 4, 4, "right"),
    Column("runs", "RUNS", 9, 5, "right"),
    Column("took", "TOOK", 6, 6, "right"),
    Column("drain", "DRAIN", 16, 7),
)


def columns(width: int) -> list[Column]:
    """What fits."""
    return choose(COLUMNS, width)


def row(entry: Entry, chosen: Sequence[Column], glyphs: Glyphs, now: float) -> list[Cell]:
    """The cells of one campaign."""
    return [_cell(entry, column, glyphs, now) for column in chosen]


def _cell(entry: Entry, column: Column, glyphs: Glyphs, now: float) -> Cell:
    text, style = {
        "state": _state(entry, glyphs),
        "level": (entry.level, "text"),
        "nodes": (entry.nodes, "title"),
        "say": _say(entry),
        "age": (units.age(now - entry.at), "dim"),
        "runs": (f"{entry.ended}/{entry.runs}", "text"),
        "took": (figures.span(entry.duration_s), "text"),
        "drain": (entry.drain or glyphs.missing, "text" if entry.drain else "dim"),
    }[column.name]
    return Cell(fit(plain(text), column.width, column.align), style)


def _state(entry: Entry, glyphs: Glyphs) -> tuple[str, str]:
    if entry.running:
        part = f" {100 * entry.ended // entry.runs}%" if entry.runs else ""
        return f"{glyphs.pointer} run{part}", "busy"
    return f"{glyphs.severity(entry.verdict)} {WORDS[entry.verdict]}", entry.verdict.value


def _say(entry: Entry) -> tuple[str, str]:
    if entry.running:
        return left(entry.eta_s), "text"
    stopped = "interrupted; " if entry.interrupted else ""
    return stopped + (entry.say or FINE), "text"


def left(eta_s: float | None) -> str:
    """How long it may still take."""
    return "running" if eta_s is None else f"running, about {figures.span(eta_s)} left"


def why(entry: Entry | None, glyphs: Glyphs, width: int) -> Line:
    """The worst thing the campaign found and its next step."""
    if entry is None:
        return (Cell(cut("no test yet: T on nodes of the fleet begins one", width), "dim"),)
    text = entry.say or ("" if entry.running else FINE)
    if not entry.next_step:
        return Cell(glyphs.pointer + " ", "key"), Cell(cut(plain(text), width - 2))
    said = cut(plain(text), max(10, (width - 10) // 2))
    room = width - 10 - cells.width(said)
    step = cut(plain(entry.next_step), max(0, room))
    head = Cell(glyphs.pointer + " ", "key")
    return head, Cell(said), Cell("  next: ", "key"), Cell(step, "title")


def lines_of(found: Iterable[cells.Line], glyphs: Glyphs) -> list[Line]:
    """Lines of a report as the screen's own; ASCII where the terminal carries no more."""
    if glyphs is not ASCII:
        return [tuple(Cell(p.text, p.style) for p in line) for line in found]
    return [tuple(Cell(cells.ascii_only(p.text), p.style) for p in line) for line in found]


def report_lines(campaign: Campaign, glyphs: Glyphs, width: int) -> list[Line]:
    """The whole report. Takes 4 ms for 28 runs, seconds for 130,000: not on the event loop."""
    return lines_of(report(campaign, max(20, width)), glyphs)


def progress_lines(
    campaign: Campaign, eta_s: float | None, now: float, glyphs: Glyphs, width: int
) -> list[Line]:
    """How far the campaign is, and what runs just now."""
    ended, known = figures.progress(campaign)
    told = f"{ended} of {known} runs so far, round {campaign.rounds}, {left(eta_s)}"
    found: list[cells.Line] = [
        (cells.Piece(row, "title"),) for row in cells.wrap(f"Testing: {told}", width)
    ]
    drawn = cells.bar(ended / known if known else 0.0, min(BAR, width - 2))
    found.append((cells.Piece(f"  {drawn}", "busy"),))
    running = [run for run in campaign.runs if run.state is Progress.RUNNING]
    for run in running[:RUNNING_SHOWN]:
        since = figures.span(max(0.0, now - run.started_at))
        text = f"  {glyphs.pointer} {figures.run_name(run)}  {since}"
        text += f"  {cells.safe(run.group.why, 80)}" if run.group.why else ""
        found.append((cells.Piece(cells.cut(text, width)),))
    waiting = sum(run.state is Progress.WAITING for run in campaign.runs)
    more = [f"{len(running) - RUNNING_SHOWN} more run"] if len(running) > RUNNING_SHOWN else []
    more += [f"{waiting} wait for their turn"] if waiting else []
    if more:
        found.append((cells.Piece(cells.cut("  " + ", ".join(more), width), "dim"),))
    return [*lines_of(found, glyphs), ()]


def level_line(chosen: Level) -> Line:
    """The levels with their keys; the chosen one reversed."""
    line: list[Cell] = []
    for key, level in LEVEL_KEYS.items():
        line += [Cell(key, "key"), Cell(" ")]
        line += [Cell(level.value, "band" if level is chosen else "text"), Cell("  ")]
    return tuple(line)


def plan_lines(plan: CampaignPlan, glyphs: Glyphs, width: int) -> list[Line]:
    """Who would be tested, who not and why, in how many parts, for how long at most."""
    lines: list[Line] = [(Cell(cut(_title(plan.asked, plan.willing), width), "title"),)]
    lines += labelled("test", figures.ASKED[plan.asked.level], width, "text")
    if plan.willing:
        lines += labelled("first", _first(plan), width, "text")
        told = f"at most {figures.span(plan.at_most_s)}, {figures.span(plan.asked.run_s)} a run"
        lines += labelled("time", told, width, "text")
    for note in plan.notes:
        lines += labelled("note", plain(note), width, "text")
    for what, names in _grouped(plan.disturbs).items():
        told = f"{fold(names)}: {plain(what)}"
        lines += labelled(glyphs.warn, f"DISTURBS {told}", width, "critical")
    for reason, names in _grouped(plan.refused).items():
        lines += labelled("leave", f"{fold(names)}: {plain(reason)}", width, "unknown")
    return lines


def _title(asked: Asked, willing: Sequence[str]) -> str:
    noun = "node" if len(willing) == 1 else "nodes"
    if not willing:
        return f"Test {asked.level}: no node can be tested now"
    return f"Test {asked.level}: {len(willing)} {noun} {fold(willing)}"


def _first(plan: CampaignPlan) -> str:
    runs = f"{len(plan.first)} run{'' if len(plan.first) == 1 else 's'}"
    parts = f" in {plan.batches} batches" if plan.batches > 1 else ""
    rounds = plan.rounds_at_most
    return f"round of {runs}{parts}; {rounds} round{'' if rounds == 1 else 's'} at most"


def _grouped(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, why in reasons.items():
        groups.setdefault(why, []).append(name)
    return groups
