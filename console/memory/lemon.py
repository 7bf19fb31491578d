"""Lemon score: which node keeps coming back sick. Pure.

After the lemon nodes of Meta's fleet (HPCA'25): 28 days of hardware events, times out of work,
failures after a return; there 40 nodes were found, 85 % of them rightly. The weights here are our
estimate; the frame is that of science 1.3: hard fault 100, critical 30, warning 10, history up to
40. Jobs that failed are not known to us and do not count. Absence of evidence counts for nothing:
the share of time that was watched stands beside every score.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct

from probes.event import Severity

WINDOW_S = 28 * 86400.0
HARD_NOW, CRITICAL_NOW, WARN_NOW = 100, 30, 10
WARN_MOST = 30
HISTORY_MOST = 40
PAST_HARD, PAST_CRITICAL, PAST_WARN = 10, 4, 1
BURST = 8
BURST_COUNT = 3
"""Occurrences of one Xid within the window that make a burst."""
OUTAGE, SICK_AGAIN, TEST_FAILED, OFTEN_OUT = 4, 10, 6, 5
STALE_S = 86400.0
"""What nobody saw for longer is not known to be there now, whether or not it ended."""
AGAIN_S = 7 * 86400.0
"""Sick within a week of coming back to work: what was done did not help."""
OUT_SHARE = 0.1
PLANNED = re.compile(
    r"maint|upgrad|updat|reimag|reserv|planned|power.?off|burn.?in|accept", re.IGNORECASE
)
"""Words of a reason that is no fault of the node."""
SOURCE = "our estimate, after the lemon nodes of Meta (HPCA'25) and our table of evidence points"


class Incident(Struct, frozen=True, kw_only=True):
    """One finding from its beginning to its end. Times are epoch seconds."""

    rule: str
    device: str
    label: str
    severity: Severity
    """The worst it was."""
    hard: bool
    say: str
    count: int
    begin: float
    seen: float
    """When a console last held it to be true: seen, or latched and not known to be over."""
    over: float | None
    why: str = ""
    """Why it ended: clean, reset, reboot, acknowledged, no longer found."""
    acknowledged: float | None = None

    def current(self, now: float) -> bool:
        """Whether it is open and was so within the last day."""
        return self.over is None and now - self.seen <= STALE_S

    @property
    def where(self) -> str:
        """Rule and device, for a line."""
        return f"{self.rule} on {self.label}" if self.label else self.rule


class Outage(Struct, frozen=True, kw_only=True):
    """Out of work, as the scheduler said it."""

    state: str
    reason: str
    by: str
    begin: float
    seen: float
    over: float | None

    @property
    def end(self) -> float:
        """When it ended, or when it was last seen."""
        return self.seen if self.over is None else self.over


class Failure(Struct, frozen=True, kw_only=True):
    """An active test that a node did not pass."""

    at: float
    say: str


class Lemon(Struct, frozen=True, kw_only=True):
    """A node's score and why."""

    node: str
    points: int
    now: int
    """Of faults that are open."""
    history: int
    """Of what is over, 40 at most."""
    reasons: tuple[str, ...]
    """One line each, with dates."""
    source: str = SOURCE

    def __str__(self) -> str:
        """One line: the score and its weightiest reasons."""
        return f"lemon score {self.points}: {'; '.join(self.reasons[:3]) or 'nothing known'}"


def score(
    node: str,
    incidents: Sequence[Incident],
    outages: Sequence[Outage],
    failures: Sequence[Failure],
    now: float,
) -> Lemon:
    """All of them may reach further back than the window."""
    since = now - WINDOW_S
    recent = [i for i in incidents if (i.seen if i.over is None else i.over) >= since]
    out = [o for o in outages if o.end >= since and not PLANNED.search(o.reason)]
    failed = [f for f in failures if f.at >= since]
    current = list(_now([i for i in recent if i.current(now)]))
    past = [
        *_over([i for i in recent if not i.current(now)]), *_bursts(recent),
        *_outages(out, since, now), *_again(recent, outages, since), *_tests(failed),
    ]  # fmt: skip
    today, history = sum(p for p, _ in current), min(HISTORY_MOST, sum(p for p, _ in past))
    told = sorted([*current, *past], key=lambda line: -line[0])
    return Lemon(
        node=node, points=today + history, now=today, history=history,
        reasons=tuple(text for _, text in told),
    )  # fmt: skip


_Line = tuple[int, str]


def _now(findings: Sequence[Incident]) -> Iterator[_Line]:
    hard = [f for f in findings if f.hard and f.severity is Severity.CRITICAL]
    if hard:
        yield HARD_NOW, f"now: {_list(hard)} since {day(min(f.begin for f in hard))}"
    critical = [f for f in findings if f.severity is Severity.CRITICAL and not f.hard]
    if critical:
        yield CRITICAL_NOW * len(critical), f"now: {_list(critical)}"
    warnings = [f for f in findings if f.severity is Severity.WARN]
    if warnings:
        yield min(WARN_MOST, WARN_NOW * len(warnings)), f"now: {_list(warnings)}"


def _over(findings: Sequence[Incident]) -> Iterator[_Line]:
    """One line per rule and device."""
    groups: dict[tuple[str, str], list[Incident]] = {}
    for one in findings:
        if one.severity in (Severity.WARN, Severity.CRITICAL):
            groups.setdefault((one.rule, one.device), []).append(one)
    for members in groups.values():
        points = sum(_past(one) for one in members)
        last = max(one.seen for one in members)
        yield points, f"{members[-1].where} {times(len(members))}, last {day(last)}"


def _past(one: Incident) -> int:
    if one.severity is Severity.WARN:
        return PAST_WARN
    return PAST_HARD if one.hard else PAST_CRITICAL


def _bursts(findings: Sequence[Incident]) -> Iterator[_Line]:
    counts: dict[tuple[str, str], list[Incident]] = {}
    for one in findings:
        if one.rule.startswith("xid."):
            counts.setdefault((one.rule, one.device), []).append(one)
    for members in counts.values():
        count = sum(one.count for one in members)
        if count >= BURST_COUNT:
            yield BURST, f"burst: {members[-1].where} {times(count)} in 28 days"


def _outages(outages: Sequence[Outage], since: float, now: float) -> Iterator[_Line]:
    if not outages:
        return
    last = max(outages, key=lambda one: one.begin)
    reason = f" ({last.reason})" if last.reason else ""
    text = f"out of work {times(len(outages))}, last {day(last.begin)}{reason}"
    yield OUTAGE * len(outages), text
    out_s = sum(
        max(0.0, (now if o.over is None else o.over) - max(o.begin, since)) for o in outages
    )
    if out_s > OUT_SHARE * WINDOW_S:
        yield OFTEN_OUT, f"out of work for {out_s / 86400:.1f} of 28 days"


def _again(
    findings: Sequence[Incident], outages: Sequence[Outage], since: float
) -> Iterator[_Line]:
    """Returned to work, and critical again within a week; or out of it again."""
    for outage in outages:
        back = outage.over
        if back is None or back < since:
            continue
        sick = [f for f in findings if f.severity is Severity.CRITICAL
                and back < f.begin <= back + AGAIN_S]  # fmt: skip
        out = [o for o in outages if back < o.begin <= back + AGAIN_S
               and not PLANNED.search(o.reason)]  # fmt: skip
        first = min([*(f.begin for f in sick), *(o.begin for o in out)], default=None)
        if first is not None:
            what = sick[0].where if sick else "out of work"
            yield SICK_AGAIN, f"back {day(back)}, {what} again {day(first)}"


def _tests(failures: Sequence[Failure]) -> Iterator[_Line]:
    if failures:
        last = max(failures, key=lambda one: one.at)
        said = f": {last.say}" if last.say else ""
        text = f"tests not passed {times(len(failures))}, last {day(last.at)}{said}"
        yield TEST_FAILED * len(failures), text


def _list(findings: Sequence[Incident]) -> str:
    names = list(dict.fromkeys(one.where for one in findings))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def times(count: int) -> str:
    """ "once", "3x"."""
    return "once" if count == 1 else f"{count}x"


def day(at: float) -> str:
    """ "12 Nov 03:11", local time."""
    try:
        return time.strftime("%d %b %H:%M", time.localtime(at))
    except (OverflowError, OSError, ValueError):
        return f"at {at:g}"
