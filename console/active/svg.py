"""Charts as inline SVG: bars, curves, a distribution with the named ones, the heat map. Pure.

Colours are classes of the page's style; every shape has a title, every chart a name and a table
beside it. Nothing is drawn of NaN or infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from console.active.cells import cut, number, percent, safe, width
from console.active.figures import amount, finite
from console.active.markup import Markup, join, tag
from console.active.matrix import FAILED, Matrix, cell_glyph, cell_style, picture

WIDE = 720.0
"""Units across; the page scales them."""
ROW = 18.0
CHAR = 7.6
"""Units of one cell of a 12-unit label, on the wide side."""
BARS = 64
CURVES = 40
POINTS = 64
DOTS = 64
STRIPS = 12
BINS = 40
CELL_HIGH = 26.0
"""Side of a cell where there is room; 60 columns have 8."""
LABELS = 16
"""Named curves that get their name beside them."""
PAIR_CHARS = 120
"""Longest title of a cell: there are up to 3,600."""


class Bar(NamedTuple):
    """One horizontal bar."""

    label: str
    value: float | None
    expected: float | None
    tone: str
    """ "text", "warn", "critical", "unknown"."""


class Curve(NamedTuple):
    """One line through (x, y) points; only named curves are labelled."""

    label: str
    points: tuple[tuple[float, float], ...]
    tone: str = "text"
    named: bool = False


class Strip(NamedTuple):
    """The figures of one named thing, below the distribution of all."""

    label: str
    values: tuple[float, ...]


def _svg(name: str, height: float, *parts: str) -> Markup:
    return tag(
        "svg", tag("title", name), *parts, viewBox=f"0 0 {WIDE:.0f} {height:.0f}", role="img"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", cls: str = "") -> Markup:
    return tag("text", text, x=x, y=y, text_anchor=anchor, _class=cls)


def ticks(top: float, wanted: int = 5) -> list[float]:
    """Round numbers from 0 to the first at or above `top`; `top` is finite and above 0."""
    raw = top / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1, 2, 5) if m * power >= raw), 10 * power)
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def _top(values: Iterable[float | None]) -> float:
    """The highest value to draw: no less than 1e-9 and no more than a float's arithmetic bears."""
    return max([v for v in map(finite, values) if v is not None and v < 1e150] + [1e-9])


def bars(name: str, given: Sequence[Bar], unit: str) -> Markup:
    """A bar a thing, with a tick where its expectation is."""
    shown = given[:BARS]
    top = ticks(_top([v for b in shown for v in (b.value, b.expected)]))[-1]
    left = min(
        220.0, 12 + CHAR * max((width(cut(safe(b.label, 80), 30)) for b in shown), default=0)
    )
    room = WIDE - left - 90
    parts: list[Markup] = []
    for index, bar in enumerate(shown):
        parts.append(_bar(bar, 4 + index * ROW, left, room / top, unit))
    high = 8 + len(shown) * ROW
    return _svg(name, high, *parts)


def _bar(bar: Bar, y: float, left: float, scale: float, unit: str) -> Markup:
    label = cut(safe(bar.label, 80), 30)
    value, wanted = finite(bar.value), finite(bar.expected)
    told = f"{label}: {amount(value, unit)}"
    told += f", expected {amount(wanted, unit)}" if wanted is not None else ""
    parts = [tag("title", told), _text(left - 6, y + 13, label, "end")]
    end = left
    if value is not None and 0 <= value < 1e150:
        end = left + value * scale
        long = max(1.0, end - left)
        parts.append(
            tag("rect", x=left, y=y + 3, width=long, height=ROW - 6, _class=f"b {bar.tone}")
        )
    if wanted is not None and 0 < wanted < 1e150:
        x = left + wanted * scale
        end = max(end, x)
        parts.append(tag("line", x1=x, x2=x, y1=y, y2=y + ROW, _class="want"))
    parts.append(_text(end + 5, y + 13, number(value), cls=bar.tone))
    return tag("g", *parts)


class _Frame(NamedTuple):
    """Where data goes: a plot area with axes."""

    left: float
    top: float
    width: float
    height: float
    x_low: float
    x_high: float
    y_high: float
    log: bool

    def x(self, value: float) -> float:
        """Units from the left."""
        low, high, at = self.x_low, self.x_high, value
        if self.log:
            low, high, at = math.log2(low), math.log2(high), math.log2(value)
        return self.left + self.width * ((at - low) / (high - low) if high > low else 0.5)

    def y(self, value: float) -> float:
        """Units from the top."""
        return self.top + self.height * (1 - value / self.y_high)


def curves(
    name: str, given: Sequence[Curve], x_ticks: Sequence[tuple[float, str]], unit: str,
    want: Sequence[tuple[float, float]] = (),
) -> Markup:  # fmt: skip
    """Lines over a logarithmic x; `want` is a dashed line of what is expected."""
    shown = [_drawable(c) for c in [c for c in given if not c.named][:CURVES]]
    shown += [_drawable(c) for c in [c for c in given if c.named][:STRIPS]]
    shown = [c for c in shown if c.points]
    wanted = _drawable(Curve("", tuple(want)))
    points = [p for c in [*shown, wanted] for p in c.points]
    if not points:
        return Markup("")
    high = ticks(_top(y for _, y in points))
    lows = [x for x, _ in points]
    frame = _Frame(56, 24, WIDE - 200, 220, min(lows), max(lows), high[-1], log=True)
    parts = [_grid(frame, high, unit), *_x_axis(frame, x_ticks)]
    if wanted.points:
        parts.append(_path(frame, wanted._replace(label="expected"), "want"))
    parts += [_path(frame, c, f"c {c.tone}{' named' if c.named else ''}") for c in shown]
    return _svg(name, 276, *parts, *_curve_labels(frame, [c for c in shown if c.named]))


def _drawable(curve: Curve) -> Curve:
    kept = [
        (x, y)
        for x, y in curve.points[:POINTS]
        if finite(x) and x > 0 and finite(y) is not None and 0 <= y < 1e150
    ]
    return curve._replace(points=tuple(sorted(kept)))


def _path(frame: _Frame, curve: Curve, cls: str) -> Markup:
    places = [(frame.x(x), frame.y(y)) for x, y in curve.points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    title = tag("title", cut(safe(curve.label, 80), 60))
    dots = [
        tag("circle", tag("title", f"{curve.label}: {number(y)}"), cx=a, cy=b, r=2.5, _class=cls)
        for (a, b), (_, y) in zip(places, curve.points, strict=True)
        if curve.named or len(places) == 1
    ]
    return join(tag("polyline", title, points=Markup(line), _class=cls), *dots)


def _curve_labels(frame: _Frame, named: Sequence[Curve]) -> Iterable[Markup]:
    """Beside the last point, pushed apart where they would overlap, and all inside the chart."""
    ordered = sorted(named, key=lambda c: -c.points[-1][1])
    left = len(ordered) - LABELS
    below = 0.0
    for index, curve in enumerate(ordered[:LABELS]):
        x, y = curve.points[-1]
        room = frame.top + frame.height + 4 - 13 * (min(len(ordered), LABELS) - 1 - index)
        below = max(min(frame.y(y) + 4, room), below + 13)
        more = f" and {left} more" if left > 0 and index == LABELS - 1 else ""
        label = cut(safe(curve.label, 80), 18) + more
        yield _text(frame.x(x) + 8, below, label, cls=curve.tone)


def _grid(frame: _Frame, high: Sequence[float], unit: str) -> Markup:
    parts = [_text(4, 12, unit, cls="axis")] if unit else []
    for value in high:
        y = frame.y(value)
        parts.append(
            tag("line", x1=frame.left, x2=frame.left + frame.width, y1=y, y2=y, _class="grid")
        )
        parts.append(_text(frame.left - 6, y + 4, _tick(value), "end", "axis"))
    return join(*parts)


def _tick(value: float) -> str:
    return f"{value:g}" if value < 1e6 else f"{value:.0e}"


def _x_axis(frame: _Frame, x_ticks: Sequence[tuple[float, str]]) -> Iterable[Markup]:
    bottom = frame.top + frame.height + 16
    step = -(-len(x_ticks) // 12) if x_ticks else 1
    for at, label in x_ticks[::step]:
        if frame.x_low <= at <= frame.x_high:
            yield _text(frame.x(at), bottom, label, "middle", "axis")


def distribution(
    name: str, values: Sequence[float], strips: Sequence[Strip], unit: str, want: float | None
) -> Markup:
    """A histogram of all, the expectation as a line, and a row of dots for each named one."""
    drawn = [v for v in map(finite, values) if v is not None and 0 <= v < 1e150]
    if not drawn:
        return Markup("")
    scale = ticks(_top([*drawn, want]), 8)
    counts = [0] * BINS
    for value in drawn:
        counts[min(BINS - 1, int(value / scale[-1] * BINS))] += 1
    frame = _Frame(150, 10, WIDE - 170, 120, 0.0, scale[-1], float(max(counts)), log=False)
    parts = [_text(144, 24, f"all {len(drawn)}", "end")]
    parts += [_bin(frame, index, count, unit) for index, count in enumerate(counts) if count]
    shown = [s for s in strips if s.values][:STRIPS]
    for index, strip in enumerate(shown):
        parts.append(_strip(frame, strip, 142 + index * ROW, unit))
    bottom = 142 + len(shown) * ROW
    parts += [_text(frame.x(v), bottom + 14, _tick(v), "middle", "axis") for v in scale]
    if finite(want) and 0 < (want or 0) <= scale[-1]:
        x = frame.x(want or 0)
        title = tag("title", f"measured by {amount(want, unit)}")
        parts.append(tag("line", title, x1=x, x2=x, y1=6, y2=bottom, _class="want"))
    parts.append(_text(WIDE - 4, bottom + 28, unit, "end", "axis"))
    return _svg(name, bottom + 34, *parts)


def _bin(frame: _Frame, index: int, count: int, unit: str) -> Markup:
    each = frame.x_high / BINS
    x, y = frame.x(index * each), frame.y(count)
    # A single run among thousands must be seen.
    high = max(2.0, frame.top + frame.height - y)
    told = f"{count} of {number(index * each)} to {amount((index + 1) * each, unit)}"
    shape = {"x": x + 0.5, "y": frame.top + frame.height - high, "height": high}
    return tag("rect", tag("title", told), width=frame.width / BINS - 1, _class="b text", **shape)


def _strip(frame: _Frame, strip: Strip, y: float, unit: str) -> Markup:
    label = cut(safe(strip.label, 80), 20)
    values = sorted(v for v in map(finite, strip.values) if v is not None and v <= frame.x_high)
    step = max(1, -(-len(values) // DOTS))
    shape: dict[str, Any] = {"cy": y + 8, "r": 3.5, "_class": "critical"}
    dots = [
        tag("circle", tag("title", f"{label}: {amount(v, unit)}"), cx=frame.x(max(0.0, v)), **shape)
        for v in values[::step]
    ]
    return join(_text(144, y + 12, label, "end", "critical"), *dots)


def heat(m: Matrix) -> Markup:
    """The pairs as cells; of more than 60 nodes the rows with something to see."""
    drawn = picture(m, columns=60)
    if not drawn.rows:
        return Markup("")
    left = min(220.0, 12 + CHAR * max(width(cut(safe(r.node, 80), 24)) for r in drawn.rows))
    side = min(CELL_HIGH, (WIDE - left) / len(drawn.columns))
    parts: list[Markup] = []
    for i, row in enumerate(drawn.rows):
        name = cut(safe(row.node, 80), 24)
        parts.append(_text(left - 6, (i + 0.5) * side + 4, name, "end", "cell"))
        for j, (part, column) in enumerate(zip(row.cells, drawn.columns, strict=True)):
            if part is not None:
                other = column[0] if len(column) == 1 else f"{column[0]} to {column[-1]}"
                parts.append(_cell(left + j * side, i * side, side, part, f"{row.node} + {other}"))
    name = f"{len(m.cells)} pairs of {len(m.nodes)} nodes"
    return _svg(name, len(drawn.rows) * side + 4, *parts)


def _cell(x: float, y: float, side: float, part: float, pair: str) -> Markup:
    told = "no figure" if part == FAILED else percent(part)
    title = tag("title", f"{safe(pair, PAIR_CHARS)}: {told}")
    style = cell_style(part)
    box = tag("rect", title, x=x, y=y, width=side - 1, height=side - 1, _class=f"h {style}")
    if style == "text":
        return box
    # The digit tells what colour cannot; it lets the pointer through to the title.
    middle = _text(x + (side - 1) / 2, y + side / 2 + 3, cell_glyph(part), "middle", "digit")
    return join(box, middle)
