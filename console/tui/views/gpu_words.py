"""The lines around the heat map: metrics, legend, the GPU under the cursor, the minimap. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from console import units
from console.tui.text import Cell, Line, cut, plain
from console.tui.theme import Glyphs
from console.tui.views.gpu_cells import NOTHING, SIDES, levels
from console.tui.views.gpu_layout import Layout
from console.tui.views.gpu_metrics import METRICS, Gpu, Kind, Metric, State, shown, words
from console.tui.views.gpu_scale import DECADES, Peers
from console.tui.views.gpus import HeatMap, Weight
from console.tui.words import t
from probes.event import Severity


def trimmed(cells: Sequence[Cell], width: int) -> Line:
    """As many cells as fit, the last one cut."""
    line: list[Cell] = []
    for cell in cells:
        length = cell_len(cell.text)
        if length > width:
            line.append(Cell(cut(cell.text, width), cell.style))
            break
        line.append(cell)
        width -= length
    return tuple(line)


def metrics(chosen: Metric, width: int) -> tuple[Line, list[tuple[int, str]]]:
    """All metrics, the chosen one marked, and for clicks where each ends: [(end, name)].

    Where not all fit, those before the chosen one go first.
    """
    names = [metric.name for metric in METRICS]
    first = 0
    while first < names.index(chosen.name) and sum(len(n) + 2 for n in names[first:]) > width:
        first += 1
    line: list[Cell] = []
    ends: list[tuple[int, str]] = []
    used = 0
    for name in names[first:]:
        if used + len(name) + 2 > width:
            break
        line.append(Cell(f" {name} ", "band" if name == chosen.name else "dim"))
        used += len(name) + 2
        ends.append((used, name))
    return tuple(line), ends


def legend(heat: HeatMap, glyphs: Glyphs, width: int, *, numbers: bool = False) -> Line:
    """What the signs of the metric mean, with the ends of the scale; parts that do not fit go.

    `numbers`: readings are drawn instead of levels.
    """
    parts = [
        (Cell(words(heat.metric), "title"),),
        *(_numbers(heat, glyphs) if numbers else _scale(heat, glyphs)),
        (Cell(glyphs.critical, "critical"), Cell(glyphs.warn, "warn"), Cell(t(" finding"))),
        (Cell(glyphs.missing, "dim"), Cell(t(" unknown"))),
        (Cell(t("grey: old"), "stale"),),
    ]
    line: list[Cell] = []
    for part in parts:
        need = sum(cell_len(cell.text) for cell in part) + (3 if line else 0)
        if need > width and line:
            break
        line += [Cell("   "), *part] if line else part
        width -= need
    return tuple(line)


def _numbers(heat: HeatMap, glyphs: Glyphs) -> list[Line]:
    unit = [(Cell(t("in {unit}", unit=heat.metric.unit)),)] if heat.metric.unit else []
    if heat.metric.kind is not Kind.LEVEL:
        return [*unit, *([_scale(heat, glyphs)[0]] if heat.metric.kind is Kind.VERDICT else [])]
    below = Cell(f"{glyphs.down}1", SIDES[-2]), Cell(t(" below peers "))
    return [*unit, (*below, Cell(f"{glyphs.up}2", SIDES[2]), Cell(t(" above")))]


def _scale(heat: HeatMap, glyphs: Glyphs) -> list[Line]:
    marks, metric = levels(glyphs), heat.metric
    if metric.kind is Kind.VERDICT:
        return [(Cell(NOTHING, "dim"), Cell(t(" none")))]
    if metric.kind is Kind.COUNT:
        most = f"{10**DECADES / 1000:.0f}k"
        some = Cell(f"{marks[0]} 1{metric.unit} {marks[1:-1]} {marks[-1]} {most}{metric.unit}")
        return [(Cell(NOTHING, "dim"), Cell(t(" none"))), (some._replace(style="heat6"),)]
    low, high = (shown(metric, end, "") for end in heat.usual.scale)
    below, above = SIDES[-2], SIDES[2]
    return [
        (Cell(f"{marks[0]} {low} {marks[1:-1]} {marks[-1]} {high}"),),
        (
            Cell(marks[1], SIDES[-1]),
            Cell(glyphs.down, below),
            Cell(t(" below peers ")),
            Cell(marks[-2], SIDES[1]),
            Cell(glyphs.up, above),
            Cell(t(" above")),
        ),
    ]


def detail(heat: HeatMap, name: str, place: int, glyphs: Glyphs, width: int, now: float) -> Line:
    """The GPU at a place of a node: address, reading, its peers, its finding."""
    node = heat.node(name)
    gpu = node.gpus[place] if place < len(node.gpus) else Gpu(state=State.UNHEARD)
    cells = [Cell(f"{name} ", "title"), Cell(label(gpu), "title")]
    if gpu.device:
        cells.append(Cell(f" {plain(gpu.device)}", "dim"))
    stale = heat.stale(name, now)
    value = heat.values(name)[place] if place < len(node.gpus) else None
    if heat.metric.kind is not Kind.VERDICT:
        reading = shown(heat.metric, value, glyphs.missing)
        cells.append(Cell(f"  {heat.metric.name} {reading}", "stale" if stale else "text"))
    if stale:
        age = heat.age(name, now)
        told = t("  no data yet") if age is None else t("  {age} old", age=units.age(age))
        cells.append(Cell(told, "stale"))
    peers, job = heat.usual.peers(node.role, node.job)
    if gpu.top is not None and gpu.top.severity is not Severity.OK:
        sign = glyphs.severity(gpu.top.severity)
        cells += [Cell(f"  {sign} ", gpu.top.severity.value), Cell(plain(gpu.top.say))]
    if peers is not None and value is not None:
        who = t("job {id}", id=job) if job else plain(node.role)
        cells.append(Cell("  " + _peers(heat.metric, value, peers, who), "dim"))
    return trimmed(cells, width)


def label(gpu: Gpu) -> str:
    """What the operator calls a GPU; what it is when nobody can tell which."""
    if gpu.index is not None:
        return f"GPU{gpu.index}"
    if gpu.device:
        return "GPU"
    return t("GPU missing") if gpu.state is State.LOST else t("GPU not heard of")


def _peers(metric: Metric, value: float, peers: Peers, who: str) -> str:
    usual = peers.usual
    off = abs(value - usual.median)
    words = {
        "median": shown(metric, usual.median, ""),
        "off": shown(metric, off, ""),
        "far": shown(metric, peers.far_high - usual.median, ""),
        "who": who,
    }
    if value > usual.median:
        return t("{off} above the median {median} of {who}; odd from {far}", **words)
    if value < usual.median:
        return t("{off} below the median {median} of {who}; odd from {far}", **words)
    return t("the median of {who}; odd from {far} off", **words)


def minimap(
    weights: Sequence[Weight], layout: Layout, height: int, top: int, glyphs: Glyphs
) -> list[Line]:
    """The whole in `height` lines, the worst of each part; the bar at its left is what is shown."""
    rows, across = layout.rows(len(weights)), layout.map_width - 1
    shown_to = top + layout.visible(height)
    signs = {
        Weight.QUIET: Cell(NOTHING, "dim"),
        Weight.UNKNOWN: Cell(glyphs.missing, "dim"),
        Weight.ODD: Cell(glyphs.up, SIDES[2]),
        Weight.WARN: Cell(glyphs.warn, "warn"),
        Weight.CRITICAL: Cell(glyphs.critical, "critical"),
    }
    lines: list[Line] = []
    for y in range(height):
        first = y * rows // height
        last = max(first + 1, (y + 1) * rows // height)
        here = first < shown_to and last > top
        cells = [Cell(" ", "band" if here else "text")]
        part = weights[first * layout.columns : last * layout.columns]
        for x in range(across):
            begin = len(part) * x // across
            end = max(begin + 1, len(part) * (x + 1) // across)
            worst = max(part[begin:end], default=None)
            cells.append(Cell(" ") if worst is None else signs[worst])
        lines.append(tuple(cells))
    return lines
