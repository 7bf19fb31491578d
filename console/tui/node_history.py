"""Plots on the node screen: one metric of every GPU over the last minutes, a day or a week. Pure.

The last minutes come from the Fleet, longer times from the memory, which keeps medians under load.
One GPU is drawn large, all of them as one line each on the same scale, so that the odd one shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from console import units
from console.fleet import Fleet
from console.memory.sheet import Remembered
from console.tui import plots
from console.tui.plots import Reading, Scale
from console.tui.text import Cell, Line, cut, fit, plain, width_of, wrap
from console.tui.words import t
from probes.facts import NodeFacts

LIVE_S = 120.0
"""60 readings at one every 2 s."""
HELD_S = 6.0
"""A live reading holds until the next one, at most so long: three of the shortest intervals."""
SPANS = (LIVE_S, 3600.0, 86400.0, 7 * 86400.0)
TEST_SHARE = 1 / 60
"""Of the time shown: a test is a moment, and must be seen."""
STEP_HELD_S = 90.0
"""A told step holds until the next look at it, at most so long: three looks."""


class Metric(NamedTuple):
    """Something that can be plotted."""

    id: str
    unit: str
    least: float
    """The narrowest scale: smaller differences are noise (our estimate)."""
    floor: float | None = None
    odd: int = 1
    """Which end is the bad one: 1 the highest, -1 the lowest."""


METRICS = (
    Metric("temp_c", "C", 10.0),
    Metric("sm_clock_mhz", "MHz", 200.0, odd=-1),
    Metric("power_w", "W", 100.0, odd=-1),
    Metric("util_percent", "%", 100.0, 0.0, odd=-1),
    Metric("busbw", "GB/s", 50.0, odd=-1),
    Metric("step_s", "s", 0.1),
)
"""`busbw` is of active tests, `step_s` of what jobs tell of their steps."""


class Wish(NamedTuple):
    """What the operator chose to see."""

    metric: int = 0
    """Index into METRICS."""
    span: int = 0
    """Index into SPANS."""
    device: str = ""
    """The GPU to draw large; "" lets the odd one be drawn."""


class Past(NamedTuple):
    """What is known of the memory."""

    told: Remembered | None = None
    trouble: str = ""
    """Why there is nothing: still being read, not kept, broken; "" when `told` is all of it."""


def title(wish: Wish) -> str:
    """What the plots show, and which keys change it."""
    shown = t("history: {metric}, last {span}", metric=_name(wish.metric), span=_span(wish))
    return f"{shown}  {t('(m metric, t time)')}"


def _name(metric: int) -> str:
    return (
        t("temperature"), t("SM clock"), t("power"), t("use"), t("busbw of tests"), t("step time"),
    )[metric]  # fmt: skip


def _span(wish: Wish) -> str:
    return (t("2 min"), t("hour"), t("24 h"), t("7 days"))[wish.span]


def history(
    fleet: Fleet, facts: NodeFacts, past: Past, wish: Wish, width: int, height: int, now: float
) -> list[Line]:
    """The large plot, `height` rows of it, and a line for each GPU, rank or device tested."""
    metric, span_s = METRICS[wish.metric], SPANS[wish.span]
    series = _series(fleet, facts, past, metric, span_s, now)
    if not series:
        return [(Cell(row, "dim"),) for row in wrap(_nothing(past, metric, wish), width)]
    begin = now - span_s
    axis = plots.scale(
        [r.value for readings in series.values() for r in readings], metric.least, metric.floor
    )
    chosen = wish.device if series.get(wish.device) else _odd(series, metric)
    room = max(8, width - plots.AXIS)
    cells = plots.bins(series[chosen], begin, now, room)
    head = (Cell(_label(facts, chosen), "title"), Cell(f"  {_known(wish)}", "dim"))
    lines = [head, *plots.framed(cells, height, axis, metric.unit, span_s)]
    if len(series) > 1:
        usual = past.told.usual if past.told else {}
        for device, readings in series.items():
            lines.append(
                _row(_label(facts, device), readings, axis, begin, now, width,
                     usual.get((device, metric.id)), device == chosen)
            )  # fmt: skip
    return lines


def _known(wish: Wish) -> str:
    if METRICS[wish.metric].id in ("busbw", "step_s"):
        return t("blank: none was told")
    if wish.span == 0:
        return t("each reading; blank: none came")
    return t("medians under load; blank: not watched, or idle")


def _nothing(past: Past, metric: Metric, wish: Wish) -> str:
    if metric.id == "step_s":
        return t("no job here tells its steps (see `gpuconsole explain steps`)")
    if wish.span or metric.id == "busbw":
        return past.trouble or t("nothing recorded in this time")
    return t("no reading in the last two minutes")


def _label(facts: NodeFacts, device: str) -> str:
    return plain(facts.gpu_label(device) if device.count(":") == 2 else device)


def _series(
    fleet: Fleet, facts: NodeFacts, past: Past, metric: Metric, span_s: float, now: float
) -> dict[str, list[Reading]]:
    """Device or rank -> its readings within the time shown; {} when none has any."""
    if metric.id == "busbw":
        found = _busbw(past, span_s)
    elif metric.id == "step_s":
        found = _steps(fleet, facts.node.name)
    elif span_s == LIVE_S:
        found = _live(fleet, facts, metric.id)
    else:
        found = _kept(past, metric.id)
    begin = now - span_s
    within = {
        device: [r for r in readings if r.end > begin and r.begin < now]
        for device, readings in found.items()
    }
    if not any(within.values()):
        return {}
    return dict(sorted(within.items(), key=lambda item: _place(facts, item[0])))


def _place(facts: NodeFacts, device: str) -> tuple[int, str]:
    label = facts.gpu_label(device).removeprefix("GPU")
    return (int(label), device) if label.isdigit() else (1 << 16, device)


def _live(fleet: Fleet, facts: NodeFacts, metric: str) -> dict[str, list[Reading]]:
    name = facts.node.name
    devices = {device for (probe, device) in facts.latest if probe == "gpu" and device}
    return {
        device: _held(fleet.history_times(name, device), fleet.history(name, device, metric))
        for device in devices
    }


def _held(times: Sequence[float], values: Sequence[float]) -> list[Reading]:
    """Each until the next one came, where that was soon."""
    # A metric that is not in every answer has fewer values: the last ones belong together.
    count = min(len(times), len(values))
    pairs = list(zip(times[len(times) - count :], values[len(values) - count :], strict=True))
    ends = [min(after[0], at[0] + HELD_S) for at, after in pairwise(pairs)]
    usual = min((b - a for (a, _), b in zip(pairs, ends, strict=False)), default=HELD_S / 3)
    last = [pairs[-1][0] + usual] if pairs else []
    return [Reading(at, end, value) for (at, value), end in zip(pairs, ends + last, strict=True)]


def _kept(past: Past, metric: str) -> dict[str, list[Reading]]:
    series = past.told.series if past.told else {}
    return {
        device: [Reading(*interval) for interval in intervals]
        for (device, name), intervals in series.items()
        if name == metric
    }


def _busbw(past: Past, span_s: float) -> dict[str, list[Reading]]:
    """By level: figures of pairs, rails and the whole cluster do not compare."""
    found: dict[str, list[Reading]] = {}
    for test in past.told.history.tests if past.told else []:
        for figure in test.figures:
            if figure.what == "busbw" and figure.value is not None:
                level = t("{level} test", level=test.level)
                held = Reading(figure.at - span_s * TEST_SHARE, figure.at, figure.value)
                found.setdefault(level, []).append(held)
    return found


def _steps(fleet: Fleet, node: str) -> dict[str, list[Reading]]:
    found: dict[str, list[Reading]] = {}
    for (job, rank, where), steps in list(fleet.jobs.told.steps.items()):
        if where == node and len(steps) > 1:
            label = t("job {job} rank {rank}", job=plain(job), rank=plain(rank))
            told = list(steps)[1:]
            ends = [min(b.at, a.at + STEP_HELD_S) for a, b in pairwise(told)]
            ends.append(told[-1].at + STEP_HELD_S / 3)
            found[label] = [
                Reading(s.at, end, s.total_s) for s, end in zip(told, ends, strict=True)
            ]
    return found


def _odd(series: Mapping[str, Sequence[Reading]], metric: Metric) -> str:
    """The one whose last reading is furthest to the bad side."""
    told = [device for device, readings in series.items() if readings]
    return max(told, key=lambda device: metric.odd * series[device][-1].value)


WITH_USUAL = 100
"""From this width on a line says what is usual for its GPU."""
LABEL, FIGURES = 6, 22
"""Cells of a line beside its bars: the GPU; last value, lowest and highest."""


def _row(
    label: str, readings: Sequence[Reading], axis: Scale, begin: float, now: float, width: int,
    usual: float | None, chosen: bool,
) -> Line:  # fmt: skip
    column = max(LABEL, min(18, width_of(label) + 1))
    room = max(4, width - column - FIGURES - (16 if width >= WITH_USUAL else 0))
    if not readings:
        blank = " " * room
        return (
            Cell(fit(label, column)),
            Cell(blank),
            Cell(fit(f"{units.ABSENT} ", 8, "right"), "dim"),
        )
    values = [r.value for r in readings]
    last = readings[-1]
    known = ""
    if usual is not None and width >= WITH_USUAL:
        known = t(" usually {value}", value=plots.short(usual))
    figures = f"{plots.short(min(values))}–{plots.short(max(values))}{known}"
    bars = plots.plot(plots.bins(readings, begin, now, room), 1, axis)[0]
    now_known = last.end >= now - (now - begin) / room
    value = plots.short(last.value) if now_known else units.ABSENT
    return (
        Cell(fit(label, column), "title" if chosen else "text"),
        Cell(bars, "busy"),
        Cell(fit(f"{value} ", 8, "right"), "text"),
        Cell(cut(figures, max(0, width - column - room - 8)), "dim"),
    )
