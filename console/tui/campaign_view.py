"""Active tests as lines and rows: what would be tested, how far one is, which there were. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from console import units
from console.active import cells, figures
from console.active.ask import Asked, CampaignPlan
from console.active.results import Campaign, Level, Progress
from console.active.text import lines as report
from console.tui.bench import Entry
from console.tui.plan_view import grouped, labelled
from console.tui.text import Cell, Column, Line, choose, cut, fit, plain
from console.tui.theme import ASCII, Glyphs, word
from console.tui.words import N_, spoken, t, tn
from inventory.expressions import fold

LEVEL_KEYS: Mapping[str, Level] = {level.value[0]: level for level in Level}
"""g n p r c."""
RUNNING_SHOWN = 12
FINE = N_("all that was judged is ok")
BAR = 30
_ASKED = {
    Level.GPU: N_("each GPU alone: GEMM, HBM copy, host and peer copies"),
    Level.NODE: N_("all-reduce over the GPUs of each node"),
    Level.PAIRS: N_("all-reduce over disjoint pairs of nodes, in rounds"),
    Level.RAILS: N_("all-reduce over the GPUs of one local index on all nodes"),
    Level.CLUSTER: N_("all-reduce over 2, 4, 8 ... all nodes"),
}
"""figures.ASKED as the screen says it: a report stays English."""

COLUMNS = (
    Column("state", N_("STATE"), 8, 0),
    Column("level", N_("LEVEL"), 7, 1),
    Column("nodes", N_("NODES"), 18, 2),
    Column("say", N_("FOUND"), 20, 3, flexible=True),
    Column("age", N_("AGE"), 4, 4, "right"),
    Column("runs", N_("RUNS"), 9, 5, "right"),
    Column("took", N_("TOOK"), 6, 6, "right"),
    Column("drain", N_("DRAIN"), 16, 7),
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
        return f"{glyphs.pointer} {t('run')}{part}", "busy"
    return f"{glyphs.severity(entry.verdict)} {word(entry.verdict)}", entry.verdict.value


def _say(entry: Entry) -> tuple[str, str]:
    if entry.running:
        return left(entry.eta_s), "text"
    said = entry.say or t(FINE)
    return t("interrupted; {said}", said=said) if entry.interrupted else said, "text"


def left(eta_s: float | None) -> str:
    """How long it may still take."""
    if eta_s is None:
        return t("running")
    return t("running, about {time} left", time=figures.span(eta_s))


def why(entry: Entry | None, glyphs: Glyphs, width: int) -> Line:
    """The worst thing the campaign found and its next step."""
    if entry is None:
        return (Cell(cut(t("no test yet: T on nodes of the fleet begins one"), width), "dim"),)
    text = entry.say or ("" if entry.running else t(FINE))
    if not entry.next_step:
        return Cell(glyphs.pointer + " ", "key"), Cell(cut(plain(text), width - 2))
    next_step = t("  next: ")
    taken = 2 + cells.width(next_step)
    said = cut(plain(text), max(10, (width - taken) // 2))
    room = width - taken - cells.width(said)
    step = cut(plain(entry.next_step), max(0, room))
    head = Cell(glyphs.pointer + " ", "key")
    return head, Cell(said), Cell(next_step, "key"), Cell(step, "title")


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
    told = t(
        "Testing: {ended} of {known} runs so far, round {round}, {left}",
        ended=ended, known=known, round=campaign.rounds, left=left(eta_s),
    )  # fmt: skip
    found: list[cells.Line] = [(cells.Piece(row, "title"),) for row in cells.wrap(told, width)]
    drawn = cells.bar(ended / known if known else 0.0, min(BAR, width - 2))
    found.append((cells.Piece(f"  {drawn}", "busy"),))
    running = [run for run in campaign.runs if run.state is Progress.RUNNING]
    for run in running[:RUNNING_SHOWN]:
        since = figures.span(max(0.0, now - run.started_at))
        text = f"  {glyphs.pointer} {figures.run_name(run)}  {since}"
        text += f"  {cells.safe(run.group.why, 80)}" if run.group.why else ""
        found.append((cells.Piece(cells.cut(text, width)),))
    waiting = sum(run.state is Progress.WAITING for run in campaign.runs)
    rest = len(running) - RUNNING_SHOWN
    more = [tn("1 more runs", "{n} more run", rest)] if rest > 0 else []
    more += [tn("1 waits for its turn", "{n} wait for their turn", waiting)] if waiting else []
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
    lines += labelled(t("test"), t(_ASKED[plan.asked.level]), width, "text")
    if plan.willing:
        lines += labelled(t("first"), _first(plan), width, "text")
        told = t(
            "at most {time}, {run} a run",
            time=figures.span(plan.at_most_s), run=figures.span(plan.asked.run_s),
        )  # fmt: skip
        lines += labelled(t("time"), told, width, "text")
    for note in plan.notes:
        lines += labelled(t("note"), plain(spoken(note)), width, "text")
    for what, names in grouped(plan.disturbs).items():
        told = t("DISTURBS {names}: {what}", names=fold(names), what=plain(spoken(what)))
        lines += labelled(glyphs.warn, told, width, "critical")
    for reason, names in grouped(plan.refused).items():
        lines += labelled(t("leave"), f"{fold(names)}: {plain(spoken(reason))}", width, "unknown")
    return lines


def _title(asked: Asked, willing: Sequence[str]) -> str:
    level = asked.level
    if not willing:
        return t("Test {level}: no node can be tested now", level=level)
    names = fold(willing)
    return tn(
        "Test {level}: 1 node {names}", "Test {level}: {n} nodes {names}", len(willing),
        level=level, names=names,
    )  # fmt: skip


def _first(plan: CampaignPlan) -> str:
    runs = tn("1 run", "{n} runs", len(plan.first))
    rounds, batches = plan.rounds_at_most, plan.batches
    most = tn("1 round at most", "{n} rounds at most", rounds)
    if batches > 1:
        return t("round of {runs} in {n} batches; {most}", runs=runs, n=batches, most=most)
    return t("round of {runs}; {most}", runs=runs, most=most)
