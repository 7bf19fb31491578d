"""A campaign as one HTML file that opens offline, prints, and needs no script.

Everything that a node, a driver or a scheduler said is text, by construction (markup.tag); the
policy in the head forbids whatever could be fetched or run. Size is bounded whatever was tested:
at most MAX_BYTES (tables of 300 rows, charts of 64 bars or 3,600 cells, 60 verdicts, texts of 400
characters); 512 nodes in every pair need some 0.1 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from console import units
from console.active import charts, figures, tables
from console.active.cells import Piece, safe
from console.active.markup import Markup, escaped, join, tag
from console.active.results import Campaign, Verdict
from console.active.style import STYLE
from console.active.text import EVIDENCE, MARKS, VERDICTS, ran, stopped
from probes.event import Severity

if TYPE_CHECKING:
    from console.memory.lemon import Lemon

MAX_BYTES = 8 << 20
"""Most bytes of a report, hostile names and texts included (each is at most 400 characters, and
escaping makes six of one); a test holds the worst campaign it can think of to it."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
ALL_ROWS, FINE_ROWS = 100, 20
"""Tables of up to so many rows are shown whole; of longer ones, so many with nothing to see."""
LEMONS = 40


def render(campaign: Campaign, lemons: Mapping[str, Lemon] | None = None) -> str:
    """The report. `lemons` are what the memory of the fleet holds against nodes, by name."""
    nodes = units.counted(len(campaign.nodes), "node")
    title = f"Test {campaign.level}: {nodes}, {figures.moment(campaign.at)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    body = tag("body", tag("main", *_parts(campaign, lemons or {})))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _parts(campaign: Campaign, lemons: Mapping[str, Lemon]) -> Iterable[Markup]:
    yield _head(campaign)
    yield from _verdicts(campaign)
    yield _commands(campaign)
    for chart in charts.charts(campaign):
        caption = tag("figcaption", chart.caption)
        yield join(tag("h2", chart.title), tag("figure", chart.picture, caption))
    for part in [*tables.tables(campaign), *charts.sizes(campaign)]:
        yield _table(part)
    yield _list("What NCCL said", (f"{clue} ({runs})" for clue, runs in figures.clues(campaign)))
    told = (f"{what}: {why}" for what, why in figures.missing(campaign))
    yield _list("Not tested, and why", told)
    yield _lemons(campaign, lemons)
    yield tag("p", f"gpuconsole test, campaign {safe(campaign.id, 80)}", _class="soft")


def _head(campaign: Campaign) -> Markup:
    yard = figures.yardstick(campaign)
    facts = [
        ("nodes", f"{len(campaign.nodes)}: {figures.hosts(campaign.nodes, 400)}"),
        ("asked", figures.ASKED[campaign.level]),
        ("ran", ran(campaign)),
        ("measure", f"{figures.amount(yard.value, 'GB/s')}, {yard.words}" if yard.value else ""),
        ("stopped", stopped(campaign)),
    ]
    title = tag("h1", f"Test {campaign.level} ", _badge(campaign.verdict))
    return tag("header", title, _facts(facts))


def _badge(severity: Severity) -> Markup:
    return tag("span", MARKS[severity], _class=f"badge {severity}")


def _facts(facts: Iterable[tuple[str, str]]) -> Markup:
    """What there is to say, as terms and sentences."""
    told = [join(tag("dt", term), tag("dd", text)) for term, text in facts if text]
    return tag("dl", *told) if told else Markup("")


def _verdicts(campaign: Campaign) -> Iterable[Markup]:
    bad, fine = figures.worst_first(campaign), figures.fine_nodes(campaign)
    yield tag("h2", "Verdicts, worst first")
    yield from map(_verdict, bad[:VERDICTS])
    if len(bad) > VERDICTS:
        yield tag("p", f"and {len(bad) - VERDICTS} more, in the JSON", _class="soft")
    if fine:
        noun = "node" if len(fine) == 1 else "nodes"
        told = f" {len(fine)} {noun}: {figures.hosts(fine, 390)}"
        yield tag("p", _badge(Severity.OK), told)
    if why := figures.unjudged(campaign):
        yield tag("p", _badge(Severity.UNKNOWN), f" {why}")


def _verdict(verdict: Verdict) -> Markup:
    wanted = ""
    if verdict.expected is not None:
        wanted = figures.amount(verdict.expected, verdict.unit)
    left = len(verdict.evidence) - EVIDENCE
    seen = [("seen" if i == 0 else "", fact) for i, fact in enumerate(verdict.evidence[:EVIDENCE])]
    facts = [
        ("expected", ", ".join(filter(None, [wanted, safe(verdict.provenance)]))),
        *seen,
        ("", f"and {left} more facts" if left > 0 else ""),
        ("cause", verdict.cause),
        ("next", verdict.next_step),
        ("confidence", verdict.confidence if figures.judged(verdict) else ""),
    ]
    title = tag("h3", _badge(verdict.verdict), " ", verdict.say or verdict.name)
    return tag("section", title, _facts(facts), _class=f"verdict {verdict.verdict}")


def _commands(campaign: Campaign) -> Markup:
    lines = figures.commands(campaign)
    if not lines:
        return Markup("")
    long = figures.COMMAND_CHARS + figures.REASON_CHARS + 100
    text = Markup("\n".join(escaped(line, long) for line in lines))
    return join(tag("h2", "Ready commands"), tag("pre", text))


def _table(part: tables.Table) -> Markup:
    shown = [i for i in range(len(part.columns)) if any(row[i].text for row in part.rows)]
    head = tag("tr", *(_cell("th", Piece(part.columns[i].title), part, i) for i in shown))
    kept = part.rows
    if part.sick is not None and part.total > ALL_ROWS:
        kept = kept[: part.sick + FINE_ROWS]
    rows = [tag("tr", *(_cell("td", row[i], part, i) for i in shown)) for row in kept]
    left = part.total - len(kept)
    more = tag("p", f"and {left} more rows, in the JSON", _class="soft") if left else ""
    note = tag("p", part.note, _class="soft") if part.note else ""
    body = tag("table", tag("thead", head), tag("tbody", *rows))
    return join(tag("h2", part.title), tag("div", body, _class="scroll"), more, note)


def _cell(name: str, piece: Piece, part: tables.Table, index: int) -> Markup:
    right = "right" if part.columns[index].right else ""
    style = piece.style if piece.style in ("critical", "warn", "unknown") else ""
    return tag(name, piece.text.strip(), _class=" ".join(filter(None, [right, style])))


def _list(title: str, items: Iterable[str]) -> Markup:
    told: Sequence[str] = list(items)
    if not told:
        return Markup("")
    entries = [tag("li", text) for text in told[:VERDICTS]]
    if len(told) > VERDICTS:
        entries.append(tag("li", f"and {len(told) - VERDICTS} more, in the JSON"))
    return join(tag("h2", title), tag("ul", *entries))


def _lemons(campaign: Campaign, lemons: Mapping[str, Lemon]) -> Markup:
    """What the memory of the fleet holds against the nodes tested."""
    mine = [lemons[name] for name in campaign.nodes if name in lemons and lemons[name].points]
    mine.sort(key=lambda lemon: -lemon.points)
    told = (f"{lemon.node}: {lemon}" for lemon in mine[:LEMONS])
    return _list("What these nodes did before", told)
