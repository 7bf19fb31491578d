"""Which charts tell the story of each level. Pure; svg.py draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from console import units
from console.active import figures, picture, svg, tables
from console.active.cells import Column, Piece, number, safe
from console.active.figures import Yardstick, busbw, run_name, run_tone
from console.active.markup import Markup, tag
from console.active.matrix import WHOLE, matrix
from console.active.results import Campaign, Level, Progress, Reading, Run
from console.active.svg import Bar, Curve, Strip
from probes.event import Severity

KINDS = 12
"""Most figures of a GPU that get a chart."""
COPIES = 16
"""Most copies between devices drawn as bars: eight GPUs have 56."""
SIZE_RUNS = 8
"""Runs in the table of sizes."""
SIZES = 64


class Chart(NamedTuple):
    """A drawn chart."""

    title: str
    picture: Markup
    caption: str


def charts(campaign: Campaign) -> list[Chart]:
    """The charts of the campaign's level; those with nothing to draw are left out."""
    found = [*_LEVELS[campaign.level](campaign), _sizes(campaign)]
    return [chart for chart in found if chart.picture]


def _style(severity: Severity) -> str:
    return severity.value if severity.rank >= Severity.WARN.rank else "text"


def _bar(run: Run, yard: Yardstick) -> Bar:
    wanted = figures.wanted(run, yard)
    return Bar(run_name(run), busbw(run), wanted, _style(run_tone(run, yard)))


def _gpu(campaign: Campaign) -> Iterable[Chart]:
    kinds: dict[str, list[Reading]] = {}
    for run in campaign.runs:
        for told in run.readings:
            kinds.setdefault(told.what, []).append(tables.placed(run, told))
    for kind, found in list(kinds.items())[:KINDS]:
        yield _kind(safe(kind, 40), found)


def _kind(kind: str, found: Sequence[Reading]) -> Chart:
    """Bars while they can be read; else the spread of all with the sick ones marked."""
    unit = safe(found[0].unit, 12)
    caption = _WANTED if any(r.expected is not None for r in found) else _UNKNOWN
    if len(found) <= (COPIES if ">" in found[0].label + found[0].device else svg.BARS):
        drawn = [
            Bar(f"{r.node} {r.label or r.device}", r.value, r.expected, _mood(r)) for r in found
        ]
        return Chart(f"{kind}, {unit}", svg.bars(kind, drawn, unit), caption)
    sick = [r for r in found if _mood(r) in ("critical", "warn")]
    strips = [Strip(f"{r.node} {r.label or r.device}", (r.value,)) for r in sick]
    want = next((r.expected for r in found if r.expected is not None), None)
    picture = svg.distribution(kind, [r.value for r in found], strips, unit, want)
    return Chart(f"{kind}, {unit}", picture, caption)


_WANTED = "The dashed line is what is expected; the table below says by whom."
_UNKNOWN = "Nothing is known that it should be: compare them with each other."


def _mood(r: Reading) -> str:
    return _style(r.verdict) if r.expected is not None else "text"


def _node(campaign: Campaign) -> Iterable[Chart]:
    if len(campaign.runs) > svg.BARS:
        yield _spread(campaign)
        return
    yard = figures.yardstick(campaign)
    bars = [_bar(run, yard) for run in campaign.runs]
    yield Chart("Nodes, busbw", svg.bars("busbw of each node", bars, "GB/s"), _LINE)
    rings = [
        Bar(run_name(run), r.value, r.expected, _mood(r))
        for run in campaign.runs
        if (r := figures.reading(run, "busbw_ring"))
    ]
    caption = f"NVLS off, so that every NVLink counts. {_LINE}"
    if rings:
        yield Chart("Nodes, busbw in a ring", svg.bars("ring", rings, "GB/s"), caption)


_LINE = "The dashed line is what is expected, or the median."


def _pairs(campaign: Campaign) -> Iterable[Chart]:
    yield _spread(campaign)
    m = matrix(campaign)
    if m is None:
        return
    told = "A coloured cell is below 95 %: 2 is 20 to 30 % of the measure, a cross has no figure."
    if len(m.nodes) <= WHOLE:
        yield Chart("Pairs", svg.heat(m), f"Columns in the order of the rows. {told}")
        return
    name = f"{len(m.cells)} pairs of {len(m.nodes)} nodes"
    image = tag("img", src=Markup(picture.address(m)), alt=name)
    key = (
        "White was not run, pale is fine; ochre, orange, purple: below 95, 90, 50 %; black: failed."
    )
    yield Chart("Pairs, a pixel each", image, f"Rows and columns in natural order. {key}")
    rows = (
        "Rows with something to see; a column is a block of neighbours and shows its lowest pair."
    )
    yield Chart("Pairs, folded", svg.heat(m), f"{rows} {told}")


def _spread(campaign: Campaign) -> Chart:
    """All runs, and those of the named nodes below."""
    values = [value for run in campaign.runs if (value := busbw(run)) is not None]
    strips = []
    for verdict in figures.worst_first(campaign)[: svg.STRIPS]:
        if verdict.kind not in ("node", "gpu", "path"):
            continue
        mine = set(verdict.nodes)
        runs = [r for r in campaign.runs if _about(r, mine, whole=verdict.kind == "path")]
        found = tuple(value for run in runs if (value := busbw(run)) is not None)
        strips.append(Strip(verdict.name, found))
    want = figures.yardstick(campaign).value
    drawn = svg.distribution("busbw of all runs", values, strips, "GB/s", want)
    return Chart("How the runs spread", drawn, f"{_LINE} Below: the runs of what a verdict names.")


def _about(run: Run, nodes: set[str], *, whole: bool) -> bool:
    return nodes == set(run.group.nodes) if whole else bool(nodes & set(run.group.nodes))


def _rails(campaign: Campaign) -> Iterable[Chart]:
    runs = sorted(campaign.runs, key=lambda r: (r.group.rail or 0, r.round))
    yard = figures.yardstick(campaign)
    bars = [_bar(run, yard) for run in runs]
    yield Chart("Rails, busbw", svg.bars("busbw of each rail", bars, "GB/s"), _LINE)


def _cluster(campaign: Campaign) -> Iterable[Chart]:
    runs = sorted(campaign.runs, key=lambda r: len(r.group.nodes))
    ends = [(float(len(run.group.nodes)), run) for run in runs]
    bus = tuple((x, value) for x, run in ends if (value := busbw(run)) is not None)
    want = [(x, value) for x, run in ends if (value := figures.expected(run))]
    marks = [(x, f"{x:.0f}") for x in dict.fromkeys(x for x, _ in ends)]
    curve = [Curve("busbw", bus, "text", named=True)]
    drawn = svg.curves("busbw over nodes", curve, marks, "GB/s", want)
    yield Chart("Scaling", drawn, f"busbw over the number of nodes. {_LINE}")
    wires = tuple(
        (x, r.value) for x, run in ends if (r := figures.reading(run, "wire_per_gpu")) is not None
    )
    if wires:
        curve = [Curve("wire per GPU", wires, "text", named=True)]
        drawn = svg.curves("wire rate of each GPU", curve, marks, "GB/s")
        yield Chart("Wire rate of each GPU", drawn, "What really crosses a GPU's network port.")


def _sizes(campaign: Campaign) -> Chart:
    """busbw over size: every run thin, the named ones in front."""
    sick, yard = figures.named(campaign), figures.yardstick(campaign)
    runs = [run for run in campaign.runs if run.rows]
    curves = []
    for run in _sampled(runs, sick):
        points = tuple((float(row.size_bytes), row.busbw_gb_s or 0.0) for row in run.rows)
        low = run_tone(run, yard).rank >= Severity.WARN.rank
        curves.append(Curve(run_name(run), points, _style(run_tone(run, yard)), named=low))
    sizes = sorted({row.size_bytes for run in runs[:SIZES] for row in run.rows[:SIZES]})
    marks = [(float(size), units.size(float(size))) for size in sizes]
    drawn = svg.curves("busbw over size", curves, marks, "GB/s")
    told = "A line a run; a run that is low is in front and named."
    return Chart("busbw over size", drawn, told)


def _sampled(runs: Sequence[Run], sick: frozenset[str]) -> list[Run]:
    """Runs of the named nodes, and others at even distances, so that few stand for all."""
    named = [run for run in runs if sick & set(run.group.nodes)]
    rest = [run for run in runs if not sick & set(run.group.nodes)]
    step = max(1, -(-len(rest) // svg.CURVES))
    return [*named[: 4 * svg.STRIPS], *rest[::step]]


def sizes(campaign: Campaign) -> list[tables.Table]:
    """busbw by size of the lowest runs and the best one: the figures behind the curves."""
    yard = figures.yardstick(campaign)
    runs = [r for r in campaign.runs if r.rows and r.state is Progress.DONE]
    runs.sort(key=lambda r: (figures.share(r, yard) or 0.0, busbw(r) or 0.0))
    shown = runs if len(runs) <= SIZE_RUNS else [*runs[: SIZE_RUNS - 1], runs[-1]]
    every = sorted({row.size_bytes for run in shown for row in run.rows})[:SIZES]
    at = [{row.size_bytes: row.busbw_gb_s for row in run.rows} for run in shown]
    columns = (Column("size", 0, right=True), *(Column(run_name(r), 0, right=True) for r in shown))
    rows = tuple(
        (Piece(units.size(float(size))), *(Piece(number(run.get(size))) for run in at))
        for size in every
    )
    title = "busbw GB/s by size" + (", lowest runs and the best" if len(runs) > SIZE_RUNS else "")
    return [tables.Table(title, columns, rows, len(rows))] if rows else []


_LEVELS: dict[Level, Callable[[Campaign], Iterable[Chart]]] = {
    Level.GPU: _gpu,
    Level.NODE: _node,
    Level.PAIRS: _pairs,
    Level.RAILS: _rails,
    Level.CLUSTER: _cluster,
}
