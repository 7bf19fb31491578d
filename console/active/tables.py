"""The figures of a campaign as tables: the same for text and HTML, bounded for both. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from console.active import figures
from console.active.cells import Column, Line, Piece, number, percent, safe, table, wrap
from console.active.figures import NodeFigures, Yardstick, busbw, run_name, run_tone, share, tone
from console.active.results import Campaign, Level, Progress, RankTime, Reading, Run
from inventory.expressions import natural_key
from probes.event import Severity

ROWS = 24
"""Most rows of a table in text; HTML shows more."""
FINE_ROWS = 6
"""Of these, rows with nothing to see, in tables that list everything."""
PAGE_ROWS = 300
"""Most rows of a table in HTML."""
APART = 1.05
"""Slowest over quickest rank of a run from which it is worth looking at; our estimate."""
RANKS = 8
"""Most ranks shown of one run."""


class Table(NamedTuple):
    """A titled table: rows worst first, so that what is cut is what matters least."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Piece, ...], ...]
    """At most PAGE_ROWS."""
    total: int
    """Rows there would be."""
    note: str = ""
    sick: int | None = None
    """Leading rows with something to see, where the others need not all be read; else None."""


def tables(campaign: Campaign) -> list[Table]:
    """The tables of the campaign's level; those without rows are left out."""
    found = _LEVELS[campaign.level](campaign)
    return [part for part in [*found, _ranks(campaign)] if part.rows]


def lines(part: Table, room: int) -> list[Line]:
    """A table in `room` cells."""
    few = part.sick is None or part.total <= ROWS
    limit = ROWS if few else min(ROWS, (part.sick or 0) + FINE_ROWS)
    shown = part.rows[:limit]
    out = [(Piece("  "), *line) for line in table(part.columns, shown, room - 2)]
    left = part.total - len(shown)
    fine = ", nothing to see there" if part.sick is not None and part.sick <= limit else ""
    told = [f"and {left} more rows{fine}, in the JSON"] if left > 0 else []
    told += [part.note] if part.note else []
    return out + [(Piece(f"  {row}", "dim"),) for t in told for row in wrap(t, room - 2)]


T = TypeVar("T")


def _made(
    title: str,
    columns: Sequence[Column],
    things: Sequence[T],
    row: Callable[[T], Sequence[Piece]],
    note: str = "",
    sick: int | None = None,
) -> Table:
    rows = tuple(tuple(row(thing)) for thing in things[:PAGE_ROWS])
    return Table(title, tuple(columns), rows, len(things), note, sick)


def _told(run: Run) -> str:
    """What the last column says of a run: why there is no figure, else what it was for."""
    state = "" if run.state is Progress.DONE else figures.STATES[run.state]
    said = safe(run.error) or ("" if state else "; ".join(safe(clue) for clue in run.clues[:2]))
    return ": ".join(filter(None, [state, said])) or safe(run.group.why)


def _tail(run: Run, yard: Yardstick) -> tuple[Piece, ...]:
    """busbw, share, expected and why: the columns of FIGURES."""
    mood = run_tone(run, yard).value
    style = "text" if mood in ("ok", "info") else mood
    wanted = figures.expected(run)
    return (
        Piece(number(busbw(run)), style),
        Piece(percent(share(run, yard)) if yard.value or wanted else "", style),
        Piece(number(wanted) if wanted else ""),
        Piece(_told(run), "text" if run.state is Progress.DONE else style),
    )


FIGURES = (
    Column("busbw GB/s", 0, right=True),
    Column("share", 1, right=True),
    Column("expected", 3, right=True),
    Column("", 2),
)


def _ranks_of(run: Run) -> Piece:
    return Piece("" if run.ranks is None else str(run.ranks))


def _by_share(campaign: Campaign, yard: Yardstick) -> list[Run]:
    """Runs without a figure first, then those with a bad reading, then the lowest shares."""

    def key(run: Run) -> tuple[int, int, float, object]:
        part, value = share(run, yard), busbw(run)
        low = part if part is not None else value if value is not None else -1.0
        waiting = run.state in (Progress.WAITING, Progress.RUNNING, Progress.CANCELLED)
        rank = -figures.reading_rank(run)
        first = 2 if waiting else 0 if value is None else 1
        return first, rank, low, natural_key(run.group.name)

    return sorted(campaign.runs, key=key)


def _gpu(campaign: Campaign) -> list[Table]:
    readings = [placed(run, r) for run in campaign.runs for r in run.readings]
    kinds = list(dict.fromkeys(r.what for r in readings if ">" not in r.device + r.label))[:12]
    cards: dict[tuple[str, str], dict[str, Reading]] = {}
    for r in readings:
        if r.what in kinds:
            cards.setdefault((r.node, r.label or r.device), {})[r.what] = r
    order = sorted(cards, key=lambda c: (-_rank(cards[c].values()), *map(natural_key, c)))
    columns = [Column("node"), Column("GPU")]
    for kind in kinds:
        unit = next(safe(r.unit, 12) for r in readings if r.what == kind)
        columns.append(Column(f"{safe(kind, 20)} {unit}".strip(), 2, right=True))

    def row(card: tuple[str, str]) -> list[Piece]:
        return [Piece(safe(card[0], 80)), Piece(safe(card[1], 40)), *_cells(cards[card], kinds)]

    note = _wanted(readings, kinds)
    return [_made("GPUs", columns, order, row, note), _copies(readings, kinds)]


def placed(run: Run, r: Reading) -> Reading:
    """The reading with the node it must be from."""
    return r if r.node or not run.group.nodes else replace(r, node=run.group.nodes[0])


def _rank(readings: Iterable[Reading]) -> int:
    return max((r.verdict.rank for r in readings if r.expected is not None), default=0)


def _cells(card: dict[str, Reading], kinds: Sequence[str]) -> Iterable[Piece]:
    for kind in kinds:
        r = card.get(kind)
        yield Piece(number(r.value) + _sign(r), _style(r)) if r else Piece(number(None), "dim")


def _sign(r: Reading) -> str:
    """Colour is never the only sign."""
    mark = {Severity.WARN: "!", Severity.CRITICAL: "✗"}.get(r.verdict, "")
    return f" {mark}" if mark else "  "


def _style(r: Reading) -> str:
    return r.verdict.value if r.verdict in (Severity.WARN, Severity.CRITICAL) else "text"


def _wanted(readings: Sequence[Reading], kinds: Sequence[str]) -> str:
    """One sentence: what each figure should be, and who says so."""
    told = []
    for kind in kinds:
        r = next((r for r in readings if r.what == kind and r.expected is not None), None)
        where = f" ({safe(r.provenance, 120)})" if r and r.provenance else ""
        told.append(
            f"{safe(kind, 20)} {figures.amount(r.expected, r.unit)}{where}"
            if r
            else f"{safe(kind, 20)} nothing is expected"
        )
    return f"Expected: {'; '.join(told)}." if told else ""


def _copies(readings: Sequence[Reading], kinds: Sequence[str]) -> Table:
    """Peer copies and what else is between two devices."""
    found = [r for r in readings if r.what not in kinds]
    found.sort(key=lambda r: (-_rank([r]), r.value, natural_key(r.node), r.label))
    columns = [Column("node"), Column("from>to"), Column("what", 2), Column("value", 0, right=True)]
    columns += [Column("expected", 1, right=True), Column("", 3)]

    def row(r: Reading) -> list[Piece]:
        return [
            Piece(safe(r.node, 80)),
            Piece(safe(r.label or r.device, 40)),
            Piece(safe(r.what, 20)),
            Piece(figures.amount(r.value, r.unit) + _sign(r), _style(r)),
            Piece(figures.amount(r.expected, r.unit) if r.expected is not None else ""),
            Piece(safe(r.provenance, 120), "dim"),
        ]

    sick = sum(_rank([r]) >= Severity.WARN.rank for r in found)
    return _made("Copies between GPUs", columns, found, row, sick=sick)


def _node(campaign: Campaign) -> list[Table]:
    yard = figures.yardstick(campaign)
    columns = [Column("node"), Column("ranks", 5, right=True), Column("ring GB/s", 4, right=True)]

    def row(run: Run) -> list[Piece]:
        ring = figures.reading(run, "busbw_ring")
        return [Piece(run_name(run)), _ranks_of(run), _reading(ring), *_tail(run, yard)]

    return [_made("Nodes", [*columns, *FIGURES], _by_share(campaign, yard), row)]


def _reading(r: Reading | None) -> Piece:
    return Piece(number(r.value) + _sign(r), _style(r)) if r else Piece("")


def _pairs(campaign: Campaign) -> list[Table]:
    yard = figures.yardstick(campaign)
    columns = [Column("pair"), Column("round", 4, right=True), *FIGURES]

    def row(run: Run) -> list[Piece]:
        return [Piece(run_name(run)), Piece(str(run.round)), *_tail(run, yard)]

    runs = _by_share(campaign, yard)
    sick = sum(run_tone(run, yard).rank >= Severity.WARN.rank for run in runs)
    return [_nodes(campaign), _made("Runs", columns, runs, row, sick=sick)]


def _nodes(campaign: Campaign) -> Table:
    """Each node over all its runs."""
    columns = [Column("node"), Column("runs", 2, right=True), Column("failed", 4, right=True)]
    columns += [Column(name, 1, right=True) for name in ("lowest", "median", "highest")]
    columns += [Column("share", 0, right=True)]

    def row(f: NodeFigures) -> list[Piece]:
        mood = tone(f.share) if f.share is not None or not f.median else Severity.OK
        style = "text" if mood is Severity.OK else mood.value
        values = [Piece(number(value)) for value in (f.low, f.median, f.high)]
        failed = Piece(str(f.failed) if f.failed else "", "warn")
        end = Piece(percent(f.share) if f.share is not None else "", style)
        return [Piece(safe(f.node, 80), style), Piece(str(f.runs)), failed, *values, end]

    title, found = "Nodes, busbw GB/s over their runs", figures.by_node(campaign)
    sick = sum(f.share is None or f.share < figures.FINE for f in found)
    return _made(title, columns, found, row, sick=sick)


def _rails(campaign: Campaign) -> list[Table]:
    yard = figures.yardstick(campaign)
    columns = [Column("rail"), Column("nodes", 3, right=True), *FIGURES]

    def row(run: Run) -> list[Piece]:
        return [Piece(run_name(run)), Piece(str(len(run.group.nodes))), *_tail(run, yard)]

    runs = sorted(campaign.runs, key=lambda r: (r.group.rail or 0, r.round))
    return [_made("Rails", columns, runs, row)]


def _cluster(campaign: Campaign) -> list[Table]:
    yard = figures.yardstick(campaign)
    columns = [Column("nodes", 0, right=True), Column("ranks", 4, right=True)]
    columns += [Column("wire GB/s per GPU", 2, right=True), *FIGURES]

    def row(run: Run) -> list[Piece]:
        wire = _reading(figures.reading(run, "wire_per_gpu"))
        return [Piece(str(len(run.group.nodes))), _ranks_of(run), wire, *_tail(run, yard)]

    runs = sorted(campaign.runs, key=lambda r: (len(r.group.nodes), r.round))
    return [_made("Scaling", columns, runs, row)]


def _ranks(campaign: Campaign) -> Table:
    """The quickest and slowest ranks of runs in which they differ; facts, not a judgement. None
    where every verdict is ok.

    In one collective all wait for the last: a rank with a short time may be the late one
    (science, finding 1).
    """
    ends: list[tuple[Run, RankTime]] = []
    fine = campaign.verdicts and all(v.verdict is Severity.OK for v in campaign.verdicts)
    for run in () if fine else campaign.runs:
        timed = sorted(run.rank_times, key=lambda t: t.time_us)
        if not timed or timed[-1].time_us < APART * timed[0].time_us:
            continue
        if len(timed) > RANKS:
            timed = [*timed[: RANKS // 2], *timed[-RANKS // 2 :]]
        ends += [(run, t) for t in timed]
        if len(ends) >= PAGE_ROWS:
            break

    def row(end: tuple[Run, RankTime]) -> list[Piece]:
        run, t = end
        where = [Piece(str(t.rank)), Piece(safe(t.node, 80)), Piece(f"GPU{t.local_rank}")]
        return [Piece(run_name(run)), *where, Piece(number(t.time_us))]

    columns = [Column("run"), Column("rank", 0, right=True), Column("node"), Column("GPU", 1)]
    columns += [Column("time us", 0, right=True)]
    note = (
        "Inside a collective the others wait for a late rank, so its own time may be the short one."
    )
    return _made("Ranks at the largest size, quickest and slowest", columns, ends, row, note)


_LEVELS: dict[Level, Callable[[Campaign], list[Table]]] = {
    Level.GPU: _gpu,
    Level.NODE: _node,
    Level.PAIRS: _pairs,
    Level.RAILS: _rails,
    Level.CLUSTER: _cluster,
}
