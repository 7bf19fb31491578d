"""What is new says so: a line for some seconds, a bell and a desktop notice now and then.

Never told: what was there when its node was first seen, what somebody acknowledged, what is over.
A storm is one announcement. Pure: the app gives the time, draws the line and sends the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from console.tui.summary import brief
from console.tui.text import cut, plain
from console.tui.theme import Glyphs
from console.tui.words import t
from inventory.expressions import fold
from probes.event import Finding, Severity

SETTLING_S = 60.0
"""After a node's first answer: hysteresis takes three looks and a minute to find what is there."""
SHOWN_S = 12.0
"""Two glances at the screen (our choice)."""
RING_EVERY_S = 30.0
"""A bell that rings through a storm is switched off for good (our choice)."""
KEPT = 5000
"""Announcements waiting to be seen: a finding on every node of the largest cluster, with room."""
NOTICE_CHARS = 120
WHERE_CHARS = 20
"""A longer host list is told as a number: the line has half of 60 cells at least."""


class News(NamedTuple):
    """The line to draw now."""

    text: str
    severity: Severity


class Announcer:
    """Collects findings as the Fleet tells them."""

    def __init__(
        self, first_seen: Callable[[str], float | None], clock: Callable[[], float]
    ) -> None:
        """`first_seen`: when a node first answered, epoch seconds."""
        self._first_seen = first_seen
        self._clock = clock
        self._shown: dict[tuple[str, str, str], tuple[float, Finding]] = {}
        self._rung_at = float("-inf")
        self._to_ring: list[Finding] = []
        self._held = False
        """Whether nothing new is seen, as the screen stands still."""

    def heard(self, finding: Finding) -> None:
        """For Fleet.taps."""
        key = (finding.node, finding.rule, finding.device)
        over = finding.severity.rank < Severity.WARN.rank or finding.latched
        if over or finding.acknowledged:
            self._shown.pop(key, None)
            return
        first, now = self._first_seen(finding.node), self._clock()
        if first is None or now - first < SETTLING_S or len(self._shown) >= KEPT:
            return
        self._shown[key] = (now, finding)
        if finding.severity is Severity.CRITICAL:
            self._to_ring.append(finding)

    def hold(self) -> None:
        """A pause begins: what is told from now on is counted."""
        self._shown.clear()
        self._held = True

    def saw(self, node: str) -> None:
        """The operator looks at this node; in a pause, at how it was before."""
        if self._held:
            return
        for key in [key for key in self._shown if key[0] == node]:
            del self._shown[key]

    def news(self, glyphs: Glyphs, now: float, *, paused: bool = False) -> News | None:
        """The line; None when there is nothing new. While paused only how many there are."""
        if paused:
            self._held = True
            if not self._shown:
                return None
            return News(t("{n} new", n=len(self._shown)), self._worst())
        if self._held:  # what came meanwhile has its seconds from now on
            self._held = False
            self._shown = {key: (now, finding) for key, (_, finding) in self._shown.items()}
        for key in [key for key, (at, _) in self._shown.items() if now - at > SHOWN_S]:
            del self._shown[key]
        found = [finding for _, finding in self._shown.values()]
        return News(line(found, glyphs), self._worst()) if found else None

    def _worst(self) -> Severity:
        return max((f.severity for _, f in self._shown.values()), key=lambda s: s.rank)

    def ring(self, now: float, *, paused: bool = False) -> str:
        """What to ring for now; "" when nothing is, or it rang a moment ago."""
        if paused or not self._to_ring or now - self._rung_at < RING_EVERY_S:
            return ""
        told, self._to_ring, self._rung_at = self._to_ring, [], now
        return cut(line(told, None), NOTICE_CHARS)


def line(found: Sequence[Finding], glyphs: Glyphs | None) -> str:
    """One sentence for all of them, oldest first; a sign where `glyphs` are known."""
    worst = max(found, key=lambda f: f.severity.rank)
    sign = f"{glyphs.severity(worst.severity)} " if glyphs else ""
    nodes = list(dict.fromkeys(f.node for f in found))
    where = plain(fold(nodes))
    if len(where) > WHERE_CHARS and len(nodes) > 1:
        where = t("{n} nodes", n=len(nodes))
    if len(found) == 1:
        return t("new: {sign}{node} {say}", sign=sign, node=where, say=brief(plain(worst.say)))
    if len({f.rule for f in found}) == 1:
        return t("new: {sign}{rule} on {nodes}", sign=sign, rule=worst.rule, nodes=where)
    return t("new: {sign}{n} findings on {nodes}", sign=sign, n=len(found), nodes=where)


def notice(kind: str, text: str) -> str:
    """The terminal's sequence for a desktop notice; "" for no kind. `text` is a node's in part."""
    # A semicolon would begin another field, a number in front a command of ConEmu's.
    told = plain(text).replace(";", ",")
    if kind == "osc9":
        return f"\x1b]9;{told}\x07"
    if kind == "osc777":
        return f"\x1b]777;notify;gpuconsole;{told}\x07"
    return ""
