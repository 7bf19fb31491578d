"""Whether a job moves, waits for a late rank, or hangs, from what its communicators count. Pure.

Counts are of collectives that a rank's program has launched. Who launches late holds up all others,
but being one behind in one look means nothing: healthy ranks are, in turn. A rank is late when it
is behind so often that chance does not explain it: of m looks in which a share q of the ranks was
behind, one given rank is behind in h with a probability below C(m, h) q^h (Maclaurin), and there
are as many ranks to choose from as the communicators have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from probes.ranks import History, Polls, Rank, View
from probes.rules import Rules

SKEW_S = 0.02
"""Two ranks' counts are at least so far apart in time: processes are asked one after the other."""
APART_S = 8.0
"""Looks nearer than that are one: the same short wait would be counted twice."""
LOOKS = 16
WITHIN_S = 300.0
OFTEN = 0.7
"""Share of the looks in which a late rank is behind."""
FEW = 0.25
"""More of the ranks than this are no outliers (NCCL's own share, RAS_CLIENT_OUTLIER_FRACTION)."""


class Motion(StrEnum):
    """What can be said of a job."""

    MOVES = "moves"
    LATE = "late"
    """It moves, and waits for the same ranks all the time."""
    STILL = "still"
    """No rank has launched anything for too long while some have launched more than others, or
    ranks do not answer."""
    SILENT = "silent"
    """No rank has launched anything for too long, and all have launched the same: it computes,
    loads, or hangs inside a collective. The GPUs tell which."""
    UNKNOWN = "unknown"
    """Too few looks, or they do not count: cannot tell."""


class Limits(Struct, frozen=True):
    """The limits, looked up once."""

    fresh_s: float
    still_s: float
    looks: int
    chance: float

    @classmethod
    def of(cls, rules: Rules) -> Limits:
        """From thresholds.yaml."""
        get = {name: limit.value for name, limit in rules.limits.items()}
        return cls(
            get["ranks.fresh_s"], get["ranks.still_s"], int(get["ranks.looks"]), get["ranks.chance"]
        )


class Late(Struct, frozen=True, kw_only=True):
    """A rank that is behind too often."""

    rank: Rank
    hits: int
    looks: int
    lag: int
    """Collectives behind the median, in the last look."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What is said of one job."""

    job: str
    motion: Motion
    view: View
    """The newest view of the communicator that it is said of."""
    still_s: float = 0.0
    suspects: tuple[Rank, ...] = ()
    late: tuple[Late, ...] = ()
    chance: float = 1.0
    """How likely the late ranks are so by chance, at most."""
    per_s: float | None = None
    """Collectives a second."""

    @property
    def seen(self) -> str:
        """ "32 ranks", "seen 24 of 32 ranks"."""
        view = self.view
        return f"{view.size} ranks" if view.seen >= view.size else (
            f"seen {view.seen} of {view.size} ranks"
        )  # fmt: skip


def verdicts(polls: Polls, limits: Limits, now: float) -> list[Verdict]:
    """One for each job that told of its ranks lately."""
    return [verdict(job, found, limits) for job, found in polls.jobs(now, limits.fresh_s)]


def verdict(job: str, histories: Sequence[History], limits: Limits) -> Verdict:
    """What its communicators say together; `histories` is not empty, the largest first."""
    living = [h for h in histories if not h.last.ending]
    if not living:
        return Verdict(job=job, motion=Motion.UNKNOWN, view=histories[0].last)
    if any(h.still_since is None for h in living):  # what does not count may well move
        stuck = [h for h in living if h.still_since is not None and _uneven(h.last)]
    else:
        stuck = living
    still_s = min((h.still_s for h in stuck), default=0.0)
    enough = all(_looks(h) >= limits.looks for h in stuck)
    if stuck and enough and still_s >= limits.still_s:
        return _still(job, stuck, still_s)
    return _moving(job, living, limits)


def _looks(history: History) -> int:
    since = history.still_since
    return sum(since is not None and view.at >= since for view in history.views)


def _uneven(view: View) -> bool:
    return bool(view.missing or view.lost) or (view.low is not None and view.low != view.high)


def _still(job: str, stuck: Sequence[History], still_s: float) -> Verdict:
    """The largest communicator in which some wait; the lowest ranks of it, or who is missing."""
    for history in stuck:
        view = history.last
        if _uneven(view) or any(rank.error for rank in view.ranks):
            return Verdict(
                job=job, motion=Motion.STILL, view=view, still_s=still_s, suspects=suspects(view)
            )
    return Verdict(job=job, motion=Motion.SILENT, view=stuck[0].last, still_s=still_s)


def suspects(view: View) -> tuple[Rank, ...]:
    """Who holds up a communicator that stands: no answer, an error, or the lowest count."""
    for chosen in (
        [rank for rank in view.ranks if rank.lost == "dead"],
        [rank for rank in view.ranks if rank.lost],
        [rank for rank in view.ranks if rank.error],
        [rank for rank in view.ranks if view.late(rank) and rank.count == view.low],
    ):
        if chosen:
            return tuple(sorted(chosen, key=lambda rank: rank.rank))
    return ()


def _moving(job: str, living: Sequence[History], limits: Limits) -> Verdict:
    """Late ranks of the communicator in which they are the surest, else that it moves."""
    others = sum(h.last.size for h in living)
    found: list[Verdict] = []
    for history in living:
        views = history.spaced(APART_S, LOOKS, WITHIN_S)
        if len(views) >= limits.looks and views[-1] is history.last:
            found.append(_late(job, views, others, limits))
    if not found:
        moving = any(_moved(h) for h in living)
        motion = Motion.MOVES if moving else Motion.UNKNOWN
        return Verdict(job=job, motion=motion, view=living[0].last)
    surest = [Motion.LATE, Motion.MOVES, Motion.UNKNOWN]
    return min(found, key=lambda one: (surest.index(one.motion), one.chance))


def _moved(history: History) -> bool:
    counted = [view.counts for view in history.views if view.mid is not None]
    return any(first != second for first, second in itertools.pairwise(counted))


def _late(job: str, views: Sequence[View], others: int, limits: Limits) -> Verdict:
    """Who of one communicator is behind more often than chance allows."""
    last, per_s = views[-1], rate(views)
    motion = Motion.MOVES if per_s else Motion.UNKNOWN
    hits: dict[int, int] = {}
    for view in views:
        for rank in _behind(view, per_s):
            hits[rank.rank] = hits.get(rank.rank, 0) + 1
    share = sum(view.behind / max(1, view.seen) for view in views) / len(views)
    now = {rank.rank: rank for rank in _behind(last, per_s)}
    looks, late, worst = len(views), [], 0.0
    for index, count in hits.items():
        chance = others * math.comb(looks, count) * share**count
        often = count >= limits.looks and count >= OFTEN * looks
        if per_s and index in now and often and chance <= limits.chance:
            lag = (last.mid or 0) - (now[index].count or 0)
            late.append(Late(rank=now[index], hits=count, looks=looks, lag=lag))
            worst = max(worst, chance)
    if not late or len(late) > max(1.0, FEW * last.size):
        return Verdict(job=job, motion=motion, view=last, per_s=per_s)
    late.sort(key=lambda one: (-one.lag, one.rank.rank))
    return Verdict(
        job=job, motion=Motion.LATE, view=last, late=tuple(late), chance=worst, per_s=per_s
    )


def _behind(view: View, per_s: float | None) -> list[Rank]:
    """Ranks further behind than the time between two ranks' counts explains."""
    apart = (per_s or 0.0) * (2 * view.took_s + SKEW_S)
    return [r for r in view.ranks if view.late(r) and (view.mid or 0) - (r.count or 0) > apart]


def rate(views: Sequence[View]) -> float | None:
    """Collectives a second that the median rank launches; None when it cannot be told."""
    first, last = views[0], views[-1]
    if first.mid is None or last.mid is None or last.at <= first.at or last.mid <= first.mid:
        return None
    return (last.mid - first.mid) / (last.at - first.at)
