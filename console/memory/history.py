"""What the memory tells about one node: the document and the page of `gpuconsole history`."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct

from console.memory import past, read
from console.memory.lemon import Incident, Lemon, Outage
from console.memory.notes import Deed
from probes.event import Severity
from probes.own import Own

TRENDS = ("sm_clock_mhz", "power_w", "temp_c", "mem_clock_mhz")
POINTS = 24
"""Points of a trend: as many cells as its line has."""
TEST_LIMIT = 200
"""Newest campaigns told."""


class Trend(Struct, frozen=True, kw_only=True):
    """Medians under load of one GPU, thinned to POINTS equal spans; None where none was read."""

    device: str
    label: str
    metric: str
    first_at: float
    last_at: float
    """When the intervals of the first and the last began."""
    last: float
    points: list[float | None]
    usual: float | None = None
    """Own baseline, where one is known."""


class Occurrence(Struct, frozen=True, kw_only=True):
    """The same finding of one device, however often it came."""

    rule: str
    device: str
    label: str
    severity: Severity
    hard: bool
    times: int
    """Separate occurrences within the time asked for."""
    count: int
    """Events in them, where the rule counts (Xids)."""
    first: float
    last: float
    """When it was last seen."""
    open: bool
    """Not known to be over; `last` says how old that is."""
    current: bool
    """Open, and known to be so within the last day."""
    ended: str
    """Why the last one ended; "" while it is open."""
    acknowledged: bool
    say: str


class Event(Struct, frozen=True, kw_only=True):
    """A boot, a drain, a return, a new card or driver."""

    at: float
    what: str
    """boot, out, back, did, card, driver, limit."""
    say: str


class Figure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One figure of a test against what was usual at the time of asking."""

    what: str
    """busbw, gemm_bf16, hbm_copy ..."""
    verdict: Severity
    at: float
    label: str = ""
    value: float | None = None
    unit: str = ""
    usual: float | None = None
    expected: float | None = None
    party: str = ""
    """The group that ran together, where it was more than this node."""


class Test(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One campaign's word on the node."""

    at: float
    """When it ended."""
    campaign: str
    level: str
    verdict: Severity
    say: str = ""
    engine: str = ""
    version: str = ""
    figures: list[Figure] = []
    """In the order they were measured; a pair's figure counts for both of its nodes."""


class NodeHistory(Struct, frozen=True, kw_only=True):
    """One node."""

    node: str
    known: bool
    """Whether anything was ever recorded of it."""
    watched_s: float
    of_s: float
    """Length of the time asked for."""
    first_at: float | None
    last_at: float | None
    lemon: Lemon
    findings: list[Occurrence]
    events: list[Event]
    tests: list[Test]
    trends: list[Trend]


class History(Struct, frozen=True, kw_only=True):
    """What `gpuconsole history --json` writes."""

    schema: int
    at: float
    days: float
    nodes: list[NodeHistory]
    note: str = ""
    """Why there is no memory, or what is wrong with it; `nodes` is empty where it is unreadable."""


def of_node(
    db: sqlite3.Connection, node: str, days: float, now: float, own: Own, *, trends: bool = True
) -> NodeHistory:
    """Everything about it within so many days; the lemon score is always of 28."""
    since = now - days * 86400
    seen = read.watched(db, node, since, now)
    findings = folded(read.incidents(db, node, since), now)
    cards = read.conditions(db, node)
    return NodeHistory(
        node=node, known=read.is_known(db, node), watched_s=seen.seconds, of_s=now - since,
        first_at=seen.first_at, last_at=seen.last_at, lemon=read.lemon(db, node, now),
        findings=findings, events=list(_events(db, node, since, cards)),
        tests=list(_tests(read.results(db, node, since), node, own))[-TEST_LIMIT:],
        trends=list(_trends(db, node, since, now, cards, own)) if trends else [],
    )  # fmt: skip


def unknown(node: str, days: float, now: float) -> NodeHistory:
    """A node without a memory."""
    nothing = Lemon(node=node, points=0, now=0, history=0, reasons=())
    return NodeHistory(
        node=node, known=False, watched_s=0.0, of_s=days * 86400, first_at=None, last_at=None,
        lemon=nothing, findings=[], events=[], tests=[], trends=[],
    )  # fmt: skip


def folded(incidents: Sequence[Incident], now: float) -> list[Occurrence]:
    """One per rule and device: open ones first, then by when they were last seen."""
    groups: dict[tuple[str, str], list[Incident]] = {}
    for one in incidents:
        groups.setdefault((one.rule, one.device), []).append(one)
    told = [_occurrence(members, now) for members in groups.values()]
    return sorted(
        told, key=lambda o: (not o.current, -o.severity.rank if o.current else 0, -o.last)
    )


def _occurrence(members: Sequence[Incident], now: float) -> Occurrence:
    last = members[-1]
    return Occurrence(
        rule=last.rule, device=last.device, label=last.label,
        severity=max((one.severity for one in members), key=lambda s: s.rank),
        hard=any(one.hard for one in members), times=len(members),
        count=sum(one.count for one in members), first=min(one.begin for one in members),
        last=max(one.seen for one in members), open=last.over is None,
        current=last.current(now), ended=last.why,
        acknowledged=last.acknowledged is not None, say=last.say,
    )  # fmt: skip


def _events(
    db: sqlite3.Connection, node: str, since: float, cards: Sequence[read.Conditions]
) -> Iterator[Event]:
    told = [
        *(Event(at=b.first_at, what="boot", say="a new boot was seen")
          for b in read.boots(db, node, since)[1:]),
        *(event for outage in read.outages(db, node, since) for event in _outage(outage)),
        *(Event(at=a.at, what="did", say=_act(a)) for a in read.acts(db, node, since)),
        *_exchanges(cards),
    ]  # fmt: skip
    yield from sorted((one for one in told if one.at >= since), key=lambda one: -one.at)


def _outage(outage: Outage) -> Iterator[Event]:
    by = f" by {outage.by}" if outage.by else ""
    reason = f": {outage.reason}" if outage.reason else ", no reason given"
    yield Event(at=outage.begin, what="out", say=f"{outage.state}{by}{reason}")
    if outage.over is not None:
        yield Event(at=outage.over, what="back", say="back in work")


def _act(act: Deed) -> str:
    reason = f": {act.reason}" if act.reason else ""
    outcome = "" if act.ok else f" FAILED, {act.detail}"
    return f"{act.verb} by {act.by}{outcome}{reason}"


def _exchanges(cards: Sequence[read.Conditions]) -> Iterator[Event]:
    """What changed from one condition of a card to the next; driver changes once a node."""
    drivers: dict[str, float] = {}
    for before, now in itertools.pairwise(cards):
        if before.device != now.device:
            continue
        if before.card != now.card:
            text = f"{now.label or now.device}: another card, {before.card} then, {now.card} now"
            yield Event(at=now.first_at, what="card", say=text)
        if before.driver != now.driver:
            drivers.setdefault(f"driver {before.driver} then, {now.driver} now", now.first_at)
        if before.limit_w != now.limit_w and before.card == now.card:
            text = f"{now.label}: power limit {before.limit_w} W then, {now.limit_w} W now"
            yield Event(at=now.first_at, what="limit", say=text)
    for text, at in drivers.items():
        yield Event(at=at, what="driver", say=text)


def _tests(results: Iterable[read.Result], node: str, own: Own) -> Iterator[Test]:
    """One per campaign, in the order of its first result."""
    campaigns: dict[str, list[read.Result]] = {}
    for one in results:
        campaigns.setdefault(one.campaign, []).append(one)
    for campaign, members in campaigns.items():
        word = next((one for one in members if one.what == "ran"), None)
        if word is None:  # figures without a word on the node are no test of it
            continue
        yield Test(
            at=word.at, campaign=campaign, level=word.level, verdict=word.verdict, say=word.say,
            engine=word.engine, version=word.version,
            figures=[_figure(one, node, own) for one in members if one.value is not None],
        )  # fmt: skip


def _figure(one: read.Result, node: str, own: Own) -> Figure:
    usual = own.get((node, one.device, one.what))
    return Figure(
        at=one.at, what=plain_name(one), verdict=one.verdict, label=one.label, value=one.value,
        unit=one.unit, usual=None if usual is None else usual.median, expected=one.expected,
        party=one.party,
    )  # fmt: skip


def plain_name(one: read.Result) -> str:
    """ "busbw" of "pairs.busbw.torch-nccl": level and engine are told beside it."""
    return one.what.partition(".")[2].removesuffix(f".{one.engine or 'unknown'}") or one.what


def _trends(
    db: sqlite3.Connection, node: str, since: float, now: float,
    cards: Sequence[read.Conditions], own: Own,
) -> Iterator[Trend]:  # fmt: skip
    labels: Mapping[str, str] = {card.device: card.label for card in cards}
    for device, label in sorted(labels.items(), key=lambda item: (len(item[1]), item[1])):
        for metric in TRENDS:
            values = read.series(db, node, device, metric, since, now)
            if not values:
                continue
            usual = own.get((node, device, metric))
            yield Trend(
                device=device, label=label, metric=metric, first_at=values[0][0],
                last_at=values[-1][0], last=values[-1][1], points=spans(values, values[0][0], now),
                usual=None if usual is None else usual.median,
            )  # fmt: skip


def spans(values: Sequence[tuple[float, float]], begin: float, end: float) -> list[float | None]:
    """The median of each of POINTS equal spans between these times."""
    width = max(1.0, (end - begin) / POINTS)
    found: list[list[float]] = [[] for _ in range(POINTS)]
    for at, value in values:
        found[min(POINTS - 1, max(0, int((at - begin) / width)))].append(value)
    return [median(one) if one else None for one in found]


def histories(
    db: sqlite3.Connection, names: Sequence[str], days: float, now: float
) -> list[NodeHistory]:
    """In the order of the names."""
    own = past.read(db, now)
    return [of_node(db, name, days, now, own) for name in names]
