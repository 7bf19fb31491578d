"""The lines around the grid: status, newest problems, why, keys. Pure.

Each is made of parts with an importance; parts are dropped whole until the rest fits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from rich.cells import cell_len

from console import units
from console.plan_notes import timeless
from console.tui.announce import News
from console.tui.summary import brief
from console.tui.text import Cell, Line, cut, fit, line_text, plain
from console.tui.theme import Glyphs, state_word, word
from console.tui.words import t
from inventory.scheduler import Step
from probes.event import Finding, NodeStatus, Severity

ORDER = (Severity.CRITICAL, Severity.UNKNOWN, Severity.WARN, Severity.INFO, Severity.OK)
"""How severities are listed: worst first."""


class Part(NamedTuple):
    """A piece of a bar; the least important pieces (highest number) go first."""

    cells: Line
    importance: int


class State(NamedTuple):
    """What the status line tells."""

    cluster: str
    nodes: int
    counts: Mapping[Severity, int]
    oldest_s: float | None
    shown: int
    filter: str
    sort: str
    marked: int
    hidden: int
    """Marked nodes that the filter hides: an action would still reach them."""
    paused_s: float | None
    read_only: bool
    errors: tuple[str, ...]
    answered: int
    """Nodes that answered at least once."""
    recording: str = ""
    """Size of the file being written; "" when none is."""
    view: str = ""
    """The view's name and headline; "" for the fleet."""
    news: News | None = None
    live: bool = False
    """Of what was opened while paused, and cannot be shown as it was then."""


def status(state: State, glyphs: Glyphs, width: int) -> Line:
    """Cluster, counts by severity, data age, marks, filter, mode: one line."""
    return _pack(_status_parts(state, glyphs, width), width)


def _status_parts(state: State, glyphs: Glyphs, width: int) -> Iterable[Part]:
    if state.news is not None:
        yield Part(news_cells(state.news, max(24, width // 2)), 0)
    if state.paused_s is not None:
        yield Part((paused(state.paused_s, live=state.live),), 0)
    if state.read_only:
        yield Part((Cell(t(" READ-ONLY "), "band"),), 2)
    if state.recording:
        told = t("{sign} rec {size}", sign=glyphs.mark, size=state.recording)
        yield Part((Cell(told, "mark"),), 2)
    # An act is about the marks, seen or not, and the filter tells what is not seen. What a
    # scheduler said before it failed is shown on: without the error that would be stale as current.
    marks = _marks(state, glyphs) if state.marked else ""
    shown = f"/{cut(plain(state.filter), 30)} {state.shown}/{state.nodes}" if state.filter else ""
    errors = [f"! {cut(plain(error), max(16, min(60, width // 3)))}" for error in state.errors]
    if state.view:
        room = width - sum(cell_len(part) + 2 for part in (marks, shown, *errors[:1]) if part)
        yield Part((Cell(cut(plain(state.view), max(0, room)), "title"),), 0)
    yield Part((Cell(cut(plain(state.cluster), 20), "dim" if state.view else "title"),), 7)
    yield from _counts(state, glyphs)
    yield Part((Cell(_answers(state), "text"),), 6)
    if marks:
        yield Part((Cell(marks, "mark"),), -1)
    if shown:
        yield Part((Cell(shown, "key"),), -1)
    for number, error in enumerate(errors):
        yield Part((Cell(error, "warn"),), 4 if number else -1)
    if state.sort != "verdict":
        yield Part((Cell(t("sort {order}", order=state.sort), "text"),), 8)


def paused(seconds: float, *, live: bool = False) -> Cell:
    """That what is shown stands still, and for how long; `live`: that it does not."""
    if live:
        return Cell(t(" LIVE, opened while paused "), "band")
    return Cell(t(" PAUSED {time} ", time=units.age(max(0.0, seconds))), "band")


def news_cells(news: News, width: int) -> Line:
    """What is new, so that it cannot be taken for what was there."""
    text = cut(plain(news.text), width - 2)
    return (Cell(f" {text} ", "band"),)


def _counts(state: State, glyphs: Glyphs) -> Iterable[Part]:
    for severity in ORDER:
        number = state.counts.get(severity, 0)
        if number == 0 and severity is not Severity.OK:
            continue
        text = f"{glyphs.severity(severity)} {number} {word(severity)}"
        style = severity.value
        yield Part((Cell(text, style),), 9 if severity is Severity.INFO else 3)


def _marks(state: State, glyphs: Glyphs) -> str:
    told = t("{sign} {n} marked", sign=glyphs.mark, n=state.marked)
    return t("{marked} ({n} hidden)", marked=told, n=state.hidden) if state.hidden else told


def _answers(state: State) -> str:
    if state.answered < state.nodes:
        return t("{n}/{all} answer", n=state.answered, all=state.nodes)
    return t("{n} nodes, data {age}", n=state.nodes, age=units.age(state.oldest_s))


def _pack(parts: Iterable[Part], width: int, gap: str = "  ") -> Line:
    kept = list(parts)
    while len(kept) > 1 and _length(kept, gap) > width:
        worst = max(range(len(kept)), key=lambda i: (kept[i].importance, i))
        del kept[worst]
    line: list[Cell] = []
    for part in kept:
        if line:
            line.append(Cell(gap))
        line += part.cells
    return tuple(line)


def _length(parts: Sequence[Part], gap: str) -> int:
    text = sum(cell_len(cell.text) for part in parts for cell in part.cells)
    return text + len(gap) * (len(parts) - 1)


def keys(
    footer: Iterable[tuple[str, str, str]], width: int, tail: Line = ()
) -> tuple[Line, list[tuple[int, str]]]:
    """The key line and, for clicks, where each command ends: [(end column, command id)].

    `tail` stands at the right end, whatever has to go for it.
    """
    line: list[Cell] = []
    room = width - (cell_len(line_text(tail)) + 2 if tail else 0)
    ends: list[tuple[int, str]] = []
    used = 0
    for command, key, label in footer:
        need = cell_len(key) + 1 + cell_len(label) + (2 if line else 0)
        if used + need > room:
            break
        if line:
            line.append(Cell("  "))
        line += [Cell(key, "key"), Cell(" " + label, "text")]
        used += need
        ends.append((used, command))
    if tail:
        line += [Cell(" " * max(0, room - used + 2)), *tail]
    return tuple(line), ends


def why(finding: Finding | None, fallback: str, glyphs: Glyphs, width: int) -> Line:
    """The cause and the next step of the cursor's worst finding, or another sentence."""
    if finding is None:
        return (Cell(cut(fallback, width), "dim"),)
    cause = plain(finding.cause or finding.say)
    step = plain(finding.next_step)
    if not step:
        return Cell(glyphs.pointer + " ", "key"), Cell(cut(cause, width - 2), "text")
    following = t("  next: ")
    room = width - 2 - cell_len(following)
    half = max(room - cell_len(step), room // 2)
    cause = cut(cause, half)
    return (
        Cell(glyphs.pointer + " ", "key"),
        Cell(cause, "text"),
        Cell(following, "key"),
        Cell(cut(step, room - cell_len(cause)), "title"),
    )


Entry = Finding | NodeStatus | Step
REPEAT_S = 300.0
"""The same thing said again within this time is one problem (retries back off to 60 s)."""


def news(entries: Iterable[tuple[int, float, Entry]]) -> list[tuple[float, Entry]]:
    """(when it began, the newest word on it), newest beginning first, repetitions folded.

    `entries` come oldest first, as the Fleet keeps them.
    """
    began: dict[tuple[str, ...], tuple[float, float, Entry]] = {}
    over: list[tuple[float, Entry]] = []
    for _sequence, at, what in entries:
        key = _key(what)
        first, last, before = began.get(key, (at, at, what))
        if at - last > REPEAT_S:
            over.append((first, before))
            first = at
        began[key] = (first, at, what)
    told = over + [(first, what) for first, _last, what in began.values()]
    return sorted(told, key=lambda entry: -entry[0])


def _key(what: Entry) -> tuple[str, ...]:
    match what:
        case Finding():
            return what.node, "finding", what.rule, what.device
        case NodeStatus():
            return what.node, "status", what.state.value, what.probe, what.device
        case Step():
            return what.node, "step", what.phase, str(what.at)


_NOTHING: Mapping[str, Sequence[Finding]] = {}


def stream(
    entries: Iterable[tuple[int, float, Entry]],
    glyphs: Glyphs,
    width: int,
    height: int,
    current: Mapping[str, Sequence[Finding]] = _NOTHING,
) -> list[Line]:
    """Title and the newest problems; `height` lines in all.

    `current` are the findings as they are now: what was said "1 s ago" grows older with them.
    """
    title = t(" newest problems ")
    lines: list[Line] = [
        (
            Cell(glyphs.rule * 2, "dim"),
            Cell(title, "dim"),
            Cell(glyphs.rule * max(0, width - 2 - cell_len(title)), "dim"),
        )
    ]
    newest = news(entries)[: max(0, height - 1)]
    lines += [_entry(at, _now(what, current), glyphs, width) for at, what in newest]
    return lines[:height]


def _now(what: Entry, current: Mapping[str, Sequence[Finding]]) -> Entry:
    """The finding as it is told now; of one that is over the age that stood still is left out."""
    if not isinstance(what, Finding):
        return what
    for finding in current.get(what.node, ()):
        same = (finding.rule, finding.device) == (what.rule, what.device)
        if same and what.severity is not Severity.OK:
            return finding
    return msgspec.structs.replace(what, say=timeless(what.say))


def _entry(at: float, what: Entry, glyphs: Glyphs, width: int) -> Line:
    clock = time.strftime("%H:%M:%S", time.localtime(at))
    severity, text = _told(what)
    mark = glyphs.severity(severity)
    node = cut(what.node, 20)
    head = f"{clock} "
    rest = width - len(head) - 2 - cell_len(node) - 1
    if cell_len(text) > rest:
        text = brief(text)
    return (
        Cell(head, "dim"),
        Cell(mark + " ", severity.value),
        Cell(node + " ", "title"),
        Cell(fit(text, max(0, rest)), "text"),
    )


def _told(what: Entry) -> tuple[Severity, str]:
    match what:
        case Finding():
            say = plain(what.say)
            return what.severity, t("{say} (no longer seen)", say=say) if what.latched else say
        case NodeStatus():
            words = state_word(what.state)
            return Severity.UNKNOWN, plain(f"{words}: {what.text}" if what.text else words)
        case Step():
            command = " ".join(what.command)
            text = plain(f"{what.phase}: {what.detail or command}")
            return (Severity.OK if what.ok else Severity.WARN), text
