"""When a comparison becomes a finding: often enough, long enough, and what ends it. Pure.

A load changes within seconds, so one look proves little. What three passes in a row find and no
pass within a minute calls clean appears; what three passes in a row call clean is over. Clean means
within half the limits: a reading between is neither, so that noise does not begin it anew.
Hardware evidence needs no waiting. A drain is proposed where hardware evidence lasts, or where two
of three comparisons called it very slow in three passes in a row, twice, ten minutes apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct, structs

from probes import slow_words
from probes.event import Action, Finding, Severity
from probes.rules import Rules
from probes.slow_rules import GPU, JOB_WAITS, NODE, SUSPECT
from probes.slow_votes import CERTAIN, LIKELY, Votes
from probes.spread import Level

DRAIN_NEXT = "drain after the job, then test it alone; the whole job waits for it until then"


Key: TypeAlias = tuple[str, str, str]
"""Node, device, rule."""
NO_BOOTS: Mapping[str, str] = {}


class Slow(Struct, frozen=True, kw_only=True):
    """What one pass found, before time has its say."""

    finding: Finding
    votes: Votes | None = None
    """None: no comparison (power limits, waiting jobs)."""
    boot_id: str = ""
    metric: str = ""
    """Name of the reading that accuses (slow_metrics); "" where none does."""

    @property
    def key(self) -> tuple[str, str]:
        """Node and device."""
        return self.finding.node, self.finding.device

    def told(self, look: str, *, sure: bool = True) -> Finding:
        """The finding with its confidence; `look` says how long it was seen.

        Not `sure`: there was one look only, so nothing is certain.
        """
        if self.votes is None:
            return self.finding
        said = self.votes.sure()
        if not sure and self.votes.confidence == CERTAIN:
            said = LIKELY + said.removeprefix(CERTAIN)
        first, *rest = self.finding.evidence
        evidence = (first, self.votes.agreement(), f"confidence {said}; {look}", *rest)
        return structs.replace(self.finding, evidence=evidence)


def one_look(slow: Slow) -> Finding:
    """Without a second look: as today, with at most the confidence of one look."""
    return slow.told("seen in one look", sure=False)


class _Streak:
    """One rule of one node or device."""

    __slots__ = ("clean", "crit_at", "grave", "held", "judged_at", "passes", "row", "seen_at",
                 "since", "slow", "steady", "twice")  # fmt: skip

    def __init__(self, now: float) -> None:
        self.since = self.seen_at = self.judged_at = now
        self.passes = self.clean = self.row = 0
        self.held = self.twice = self.steady = False
        self.crit_at: float | None = None
        self.grave: list[float] = []
        """Times of the latest passes in a row that called it very slow."""
        self.slow: Slow | None = None


class Streaks:
    """Memory of what the passes found."""

    def __init__(self, rules: Rules, *, one_pass: bool = False) -> None:
        """`one_pass`: everything is told as one look."""
        get = {name: limit.value for name, limit in rules.limits.items()}
        self._one_pass = one_pass
        self._passes = int(get["straggler.enter_passes"])
        self._enter_s = get["straggler.enter_s"]
        self._leave = int(get["straggler.leave_passes"])
        self._apart_s = get["straggler.drain_apart_s"]
        self._keep_s = get["straggler.keep_idle_s"]
        self._streaks: dict[Key, _Streak] = {}

    @property
    def watched(self) -> frozenset[tuple[str, str]]:
        """(node, device) of which the next pass has to say whether they are near the limits."""
        return frozenset(key[:2] for key in self._streaks)

    @property
    def standing(self) -> dict[Key, Slow]:
        """What the latest pass that saw it found, of everything that stands."""
        held = ((key, streak.slow) for key, streak in self._streaks.items() if streak.held)
        return {key: slow for key, slow in held if slow is not None}

    def settle(
        self, found: Iterable[Slow], compared: Collection[tuple[str, str]], now: float,
        boots: Mapping[str, str] = NO_BOOTS,
    ) -> list[Finding]:  # fmt: skip
        """What stands after a pass. `compared`: (node, device) that the pass could judge.

        `boots`: node -> boot id now; what was seen before a reboot is over.
        """
        slows = list(found)
        if self._one_pass:
            return [one_look(slow) for slow in slows]
        told = [slow.finding for slow in slows if not _waits(slow)]
        seen = {key: slow for one in slows if _waits(one) for key, slow in _as(one)}
        for key, slow in seen.items():
            if key in self._streaks or slow.votes is None or not slow.votes.near:
                self._seen(self._streaks.setdefault(key, _Streak(now)), slow, now)
        for key in self._streaks.keys() - seen.keys():
            self._missed(key, compared, now, boots)
        standing = {k: s for k, s in self._streaks.items() if s.held}
        for key, streak in standing.items():
            better = (*key[:2], GPU.id) in standing or (*key[:2], NODE.id) in standing
            if streak.slow is not None and not (key[2] == SUSPECT.id and better):
                told.append(self._told(streak, now))
        return told

    def _seen(self, streak: _Streak, slow: Slow, now: float) -> None:
        near = slow.votes is not None and slow.votes.near
        streak.clean, streak.seen_at, streak.judged_at = 0, now, now
        streak.row = 0 if near else streak.row + 1
        streak.steady = streak.steady or streak.row >= self._passes
        if near and streak.slow is not None:
            streak.grave = []
            self._enter(streak, now)
            return
        streak.passes += 1
        streak.slow = slow
        streak.held = streak.held or _hard(slow)
        self._enter(streak, now)
        self._weigh(streak, slow.votes, now)

    def _weigh(self, streak: _Streak, votes: Votes | None, now: float) -> None:
        """Very slow twice: a single look of a noisy reading does not count."""
        very = votes is not None and votes.proven and votes.level is Level.CRIT
        streak.grave = [*streak.grave, now][-self._passes :] if very else []
        if len(streak.grave) < self._passes:
            return
        if streak.crit_at is None:
            streak.crit_at = streak.grave[0]
        streak.twice |= now - streak.crit_at >= self._apart_s

    def _enter(self, streak: _Streak, now: float) -> None:
        streak.held = streak.held or (streak.steady and now - streak.since >= self._enter_s)

    def _missed(
        self, key: Key, compared: Collection[tuple[str, str]], now: float, boots: Mapping[str, str]
    ) -> None:
        """A pass that could judge it found nothing, or it could not be judged."""
        streak = self._streaks[key]
        then = streak.slow.boot_id if streak.slow is not None else ""
        if then and boots.get(key[0], then) != then:
            del self._streaks[key]
            return
        proven = key[2] in (GPU.id, NODE.id)
        if streak.held and proven and key[:2] not in compared:
            if now - streak.seen_at > self._keep_s:
                del self._streaks[key]
            return
        streak.clean += 1
        streak.judged_at = now if key[:2] in compared else streak.judged_at
        if not streak.held or streak.clean >= self._leave:
            del self._streaks[key]

    def _told(self, streak: _Streak, now: float) -> Finding:
        slow = streak.slow
        assert slow is not None
        lasted = f"seen in {streak.passes} passes over {streak.seen_at - streak.since:.0f} s"
        idle_s = now - streak.judged_at
        if idle_s > 0:
            lasted += f"; not under load for {idle_s:.0f} s, so not seen again"
        finding = structs.replace(slow.told(lasted), since=streak.since)
        if idle_s > 0:
            finding = structs.replace(finding, say=slow_words.past(finding.say))
        if slow.votes is None or not slow.votes.proven:
            return finding
        if streak.twice:
            return _drains(finding, Severity.CRITICAL)
        lasting = streak.steady and now - streak.since >= self._enter_s
        hard = _hard(slow) and slow.votes.level is Level.CRIT
        return _drains(finding, finding.severity) if hard and lasting else finding


def _drains(finding: Finding, severity: Severity) -> Finding:
    worse = max(severity, finding.severity, key=lambda one: one.rank)
    return structs.replace(
        finding, severity=worse, action=Action.DRAIN, next_step=_then(finding.next_step)
    )


def _then(step: str) -> str:
    return step if "drain" in step else f"{step}; {DRAIN_NEXT}"


def _waits(slow: Slow) -> bool:
    """Whether time has a say: a setting is there or not."""
    return slow.votes is not None or slow.finding.rule == JOB_WAITS.id


def _as(slow: Slow) -> Iterable[tuple[Key, Slow]]:
    """A verdict is a suspicion too: that shows first, and stays when the verdict loses a vote."""
    rule = slow.finding.rule
    yield (*slow.key, rule), slow
    if rule in (GPU.id, NODE.id) and slow.votes is not None:
        finding = structs.replace(
            slow.finding, rule=SUSPECT.id, severity=SUSPECT.severity, action=SUSPECT.action,
            cause=SUSPECT.cause, next_step=SUSPECT.next_step,
        )  # fmt: skip
        early = structs.replace(slow.votes, early=True)
        yield (*slow.key, SUSPECT.id), structs.replace(slow, finding=finding, votes=early)


def _hard(slow: Slow) -> bool:
    return slow.votes is not None and slow.votes.proven and bool(slow.votes.hard)
