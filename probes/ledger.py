"""The Ledger remembers what checks found: when it began, how often, and what must not vanish.

Soft findings appear after k of m passes and leave after clean ones. Hard ones
latch when they are no longer seen, until reboot, acknowledgement, or readings that show a reset.
Pure: time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, structs

from probes.event import Finding, Severity
from probes.rules import Rules
from probes.twice import tells

ENDED = 500
"""Ended findings kept for whoever asks why they ended."""
EVIDENCE = 8
"""Most evidence lines of a merged finding; a screen of 24 lines shows them all."""
BLIND = ("node.", "internal.")
"""Rules that say, with severity unknown, that a pass could not see."""


class Ended(Struct, frozen=True):
    """A finding that is over, and why: "clean", "reset", "reboot" or "acknowledged"."""

    finding: Finding
    why: str
    at: float


class _Track:
    """One (rule, device) of one node."""

    __slots__ = (
        "acknowledged", "at", "clean", "count", "finding", "healed", "hits", "latched", "seen_at",
        "shown", "since",
    )  # fmt: skip

    def __init__(self, finding: Finding, now: float, window: int) -> None:
        """First seen now; not shown yet."""
        self.finding = finding
        self.since = finding.since or now
        self.at = self.seen_at = now
        self.count = 1
        self.hits: deque[bool] = deque(maxlen=window)
        self.clean = self.healed = 0
        self.shown = self.latched = self.acknowledged = False

    def seen(self, finding: Finding, now: float) -> None:
        """A pass found it (again). New occurrences or a worse severity undo an acknowledgement."""
        worse = finding.severity.rank > self.finding.severity.rank
        again = self.shown and self.clean > 0
        if worse or again or finding.count > self.count:
            self.acknowledged = False
        self.count = max(self.count + again, finding.count)
        self.at = self.seen_at = now
        self.since = min(self.since, finding.since or self.since)
        self.finding, self.latched = finding, False
        self.clean = self.healed = 0
        self.hits.append(True)

    def missed(self, now: float) -> None:
        """A pass that could see did not find it."""
        self.at = now
        self.clean += 1
        self.hits.append(False)

    def current(self) -> Finding:
        """The finding as the operator should see it."""
        return structs.replace(
            self.finding, since=self.since, count=self.count, latched=self.latched,
            acknowledged=self.acknowledged,
        )  # fmt: skip


Healed: TypeAlias = Callable[[Finding, float], bool]
"""Whether readings since a time (epoch seconds) show that a reset ended this finding."""


def _never(_finding: Finding, _since: float) -> bool:
    return False


_Key: TypeAlias = tuple[str, str]
_Tracks: TypeAlias = dict[_Key, _Track]


class Ledger:
    """Memory of the findings of all nodes."""

    def __init__(self, rules: Rules, *, one_pass: bool = False) -> None:
        """`one_pass`: there is no second look, so every finding shows at once and none stays."""
        self._hits = int(rules.limit("ledger.enter_hits").value)
        self._window = max(self._hits, int(rules.limit("ledger.enter_window").value))
        self._leave = int(rules.limit("ledger.leave_clean").value)
        self._one_pass = one_pass
        self._nodes: dict[str, _Tracks] = {}
        self._boots: dict[str, str] = {}
        self._ended: deque[Ended] = deque(maxlen=ENDED)

    def update(
        self, node: str, fresh: list[Finding], now: float, boot_id: str, healed: Healed = _never
    ) -> list[Finding]:
        """Findings of the node after a pass that found `fresh`.

        A pass that could not see (a node.* finding of severity unknown) clears nothing: what it
        did not find is kept and marked latched. `healed` is asked about latched findings.
        """
        tracks = self._nodes.setdefault(node, {})
        self._boot(node, tracks, now, boot_id)
        if not fresh and not tracks:
            return []
        found = _merged(fresh)
        for key, finding in found.items():
            track = tracks.get(key)
            if track is None:
                track = tracks[key] = _Track(finding, now, self._window)
            track.seen(finding, now)
            track.shown = track.shown or self._enters(track)
        blind = any(map(_blinding, fresh))
        for key in [key for key in tracks if key not in found]:
            self._missed(tracks, key, now, healed, fresh, blind=blind)
        return [track.current() for track in tracks.values() if track.shown]

    def acknowledge(self, node: str, rule: str, device: str) -> None:
        """The operator has seen it: a latched finding ends, one still seen is marked."""
        tracks = self._nodes.get(node, {})
        track = tracks.get((rule, device))
        if track is None:
            return
        track.acknowledged = True
        if track.latched:
            self._end(tracks, (rule, device), "acknowledged", track.at)

    def take_ended(self) -> list[Ended]:
        """What ended since the last call, oldest first; at most the last 500."""
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def _enters(self, track: _Track) -> bool:
        finding = track.finding
        if self._one_pass or finding.hard:
            return True
        if finding.severity in (Severity.CRITICAL, Severity.UNKNOWN):
            return True
        return sum(track.hits) >= self._hits

    def _missed(
        self,
        tracks: _Tracks,
        key: _Key,
        now: float,
        healed: Healed,
        fresh: list[Finding],
        *,
        blind: bool,
    ) -> None:
        track = tracks[key]
        heir = next((finding for finding in fresh if tells(finding, track.finding)), None)
        if heir is not None:  # it is told, as evidence of another finding
            told = tracks[heir.rule, heir.device]
            told.shown, told.since = told.shown or track.shown, min(told.since, track.since)
            del tracks[key]
        elif self._one_pass or track.finding.severity is Severity.UNKNOWN:
            self._end(tracks, key, "clean", now)  # a state that is over, nothing to wait for
        elif blind:
            track.latched = track.shown
        elif track.finding.hard:
            track.missed(now)
            track.latched = True
            track.healed = track.healed + 1 if healed(track.finding, track.seen_at) else 0
            if track.acknowledged:
                self._end(tracks, key, "acknowledged", now)
            elif track.healed >= self._leave:
                self._end(tracks, key, "reset", now)
        else:
            track.missed(now)
            track.latched = False
            if track.clean >= self._leave or not (track.shown or any(track.hits)):
                self._end(tracks, key, "clean", now)

    def _boot(self, node: str, tracks: _Tracks, now: float, boot_id: str) -> None:
        before = self._boots.get(node, "")
        if boot_id:
            self._boots[node] = boot_id
        if before and boot_id and before != boot_id:
            for key in list(tracks):
                self._end(tracks, key, "reboot", now)

    def _end(self, tracks: _Tracks, key: _Key, why: str, now: float) -> None:
        track = tracks.pop(key)
        if track.shown:
            self._ended.append(Ended(track.current(), why, now))


def _blinding(finding: Finding) -> bool:
    return finding.severity is Severity.UNKNOWN and finding.rule.startswith(BLIND)


def _merged(fresh: list[Finding]) -> dict[_Key, Finding]:
    """One finding per (rule, device): the worst, with the evidence of the others behind its own."""
    found: dict[_Key, Finding] = {}
    for finding in fresh:
        key = finding.rule, finding.device
        other = found.get(key)
        if other is None:
            found[key] = finding
            continue
        worst, rest = finding, other
        if other.severity.rank >= finding.severity.rank:
            worst, rest = other, finding
        evidence = (*worst.evidence, *(e for e in rest.evidence if e not in worst.evidence))
        found[key] = structs.replace(worst, evidence=evidence[:EVIDENCE])
    return found
