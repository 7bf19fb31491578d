"""What the Fleet compares, in steps of about a node: majorities of each role, stragglers."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from probes.checks import Peers, peers_in_steps
from probes.event import Finding
from probes.facts import NodeFacts
from probes.jobs_seen import Jobs
from probes.own import Own
from probes.rules import Rules
from probes.slow_time import Key as SlowKey
from probes.slow_time import Slow, Streaks
from probes.straggler import Comparison

PEERS_EVERY_S = 10.0
STRAGGLERS_EVERY_S = 5.0


class Compared(NamedTuple):
    """A completed comparison of peers. Its groups stay as they are while the Fleet goes on."""

    comparison: Comparison
    slow: dict[SlowKey, Slow]
    """Node, device and rule -> the votes behind what stands."""
    seen: frozenset[tuple[str, str]]
    """(node, device) that this very pass found slow; the others stand from before."""
    findings: Mapping[str, list[Finding]]
    """Node -> what stands about its GPUs and its jobs."""


class Majorities:
    """What most nodes of each role have; the old ones hold until new ones are counted."""

    def __init__(self) -> None:
        """Nothing counted."""
        self._roles: dict[str, Peers] = {}
        self._at = float("-inf")
        self._steps: Generator[None, None, dict[str, Peers]] | None = None

    @property
    def under_way(self) -> bool:
        """Whether a count was begun and is not complete."""
        return self._steps is not None

    def count(self, nodes: Mapping[str, NodeFacts], now: float, until: float) -> dict[str, Peers]:
        """Begin when it is time, or go on, up to `until` (perf_counter); role -> what holds.

        The same objects where nothing changed: then nothing is judged again.
        """
        if self._steps is None and now - self._at >= PEERS_EVERY_S:
            self._at = now
            self._steps = peers_in_steps(tuple(nodes.values()))
        while self._steps is not None:
            try:
                next(self._steps)
            except StopIteration as done:
                self._steps, before = None, self._roles
                self._roles = {
                    role: before[role] if before.get(role) == found else found
                    for role, found in done.value.items()
                }
            if time.perf_counter() >= until:
                break
        return self._roles


class Stragglers:
    """Slow GPUs and late ranks: one comparison after the other."""

    def __init__(self, rules: Rules, *, one_pass: bool) -> None:
        """Nothing compared. `one_pass`: there is no second look."""
        self._rules = rules
        self._streaks = Streaks(rules, one_pass=one_pass)
        self._at = float("-inf")
        self._comparison: Comparison | None = None
        self._steps: Iterator[Slow | Finding | None] = iter(())
        self._found: list[Slow] = []
        self._of_jobs: list[Finding] = []

    @property
    def under_way(self) -> bool:
        """Whether a comparison was begun and is not complete."""
        return self._comparison is not None

    def compare(
        self, nodes: Mapping[str, NodeFacts], jobs: Jobs, own: Own, now: float, until: float
    ) -> Compared | None:
        """Begin when it is time, or go on, up to `until` (perf_counter); what that completed.

        Raises what odd facts make it raise; that comparison is then given up.
        """
        if self._comparison is None:
            if now - self._at < STRAGGLERS_EVERY_S:
                return None
            self._begin(tuple(nodes.values()), jobs, own, now)
        comparison = self._comparison
        assert comparison is not None
        try:
            if not self._step(until):
                return None
        except Exception:
            self._comparison = None
            raise
        self._comparison = None
        return self._settle(comparison, nodes, now)

    def _begin(self, nodes: tuple[NodeFacts, ...], jobs: Jobs, own: Own, now: float) -> None:
        self._at, self._found, self._of_jobs = now, [], []
        self._comparison = Comparison(self._rules, now, own, self._streaks.watched)
        of_jobs = jobs.in_steps(nodes, self._rules, now)
        self._steps = chain(self._comparison.steps(nodes), of_jobs)

    def _step(self, until: float) -> bool:
        """Whether all steps are done."""
        for step in self._steps:
            if isinstance(step, Finding):
                self._of_jobs.append(step)
            elif step is not None:
                self._found.append(step)
            if time.perf_counter() >= until:
                return False
        return True

    def _settle(
        self, comparison: Comparison, nodes: Mapping[str, NodeFacts], now: float
    ) -> Compared:
        """What stands after it."""
        boots = {name: nodes[name].boot_id for name, _ in self._streaks.watched}
        found: dict[str, list[Finding]] = {}
        slow = self._streaks.settle(self._found, comparison.compared, now, boots)
        for finding in (*slow, *self._of_jobs):
            found.setdefault(finding.node, []).append(finding)
        of_this_pass = {(*one.key, one.finding.rule): one for one in self._found}
        seen = frozenset(one.key for one in self._found)
        return Compared(comparison, of_this_pass | self._streaks.standing, seen, found)
