"""What jobs tell of themselves, kept between looks, and what follows from it. Pure.

The Fleet gives every sample to `Jobs.add` and asks `Jobs.in_steps` when it compares peers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probes import ranks, ranks_find, ranks_scene, steps_told
from probes.event import Finding, Sample
from probes.facts import NodeFacts
from probes.rules import Rules

PROBES = frozenset({ranks.PROBE, steps_told.PROBE})
"""Probes whose samples `Jobs.add` wants."""


class Jobs:
    """Ranks by NCCL's own account, and steps by the jobs' own."""

    def __init__(self, history: ranks_scene.History = ranks_scene.no_history) -> None:
        """Nothing told; `history` gives the last readings of a GPU, for the step's length."""
        self.history = history
        self.polls = ranks.Polls()
        self.told = steps_told.Told()
        self._forgot = 0.0

    def copy(self) -> Jobs:
        """What was told until now, to be looked at; samples to come do not reach it."""
        other = Jobs(self.history)
        other.polls.comms, other.told.steps = dict(self.polls.comms), dict(self.told.steps)
        return other

    def add(self, sample: Sample) -> None:
        """Take in a sample; those of other probes are ignored."""
        self.polls.add(sample)
        self.told.add(sample)

    def in_steps(
        self, all_facts: Sequence[NodeFacts], rules: Rules, now: float
    ) -> Iterator[Finding | None]:
        """Findings about jobs; None after each piece of work of about one node."""
        if now - self._forgot > ranks.FORGET_S:
            self._forgot = now
            self.polls.forget(now)
            self.told.forget(now)
        yield from ranks_find.in_steps(all_facts, rules, now, self.polls, self.history)
        yield from steps_told.in_steps(all_facts, rules, now, self.told)
