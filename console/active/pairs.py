"""Pairs: random disjoint ones, then suspects with known-good partners, until the fault has a name.

One bad node takes two rounds, one bad path or two bad nodes three. Rounds are planned from the runs
of earlier rounds only, so that an interrupted campaign goes on where it stopped.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from console.active import schemes
from console.active.lineup import Lineup
from console.active.pair_plan import follow_up
from console.active.pair_verdicts import judge
from console.active.pair_view import SETTLED, View
from console.active.results import Group, Run, Verdict
from console.active.schemes import Pair

FOLLOW = 7
"""Rounds after the scheme's own; then what is not clear stays a suspicion."""
SECOND_NODES, THIRD_NODES = 32, 8
"""Up to so many nodes all run a second or third time where no figure but the peers' is known: all
pairs of a round may be slow by chance, and nobody would see it."""


class Pairs:
    """Localiser of one set of nodes, over whole nodes or over one rail of them."""

    def __init__(
        self, lineup: Lineup, *, scheme: str = "auto", rail: int | None = None, after: int = 0
    ) -> None:
        """`after`: rounds that ran before the first of these."""
        self.lineup, self.nodes, self.scheme = lineup, lineup.nodes, scheme
        self.rail, self.after = rail, after
        self.known = bool(lineup.capacities()) and rail is None

    def next_round(self, runs: Sequence[Run]) -> list[Group]:
        """What is left of the first round that is not complete; [] when nothing is left to tell."""
        return self.course(runs)[0]

    def course(self, runs: Sequence[Run]) -> tuple[list[Group], list[Run]]:
        """(what is left of the first round that is not complete, the settled runs up to there).

        Pairs that somebody else asked for after these had ended are not among them.
        """
        rounds: dict[int, list[Run]] = defaultdict(list)
        for run in self.mine(runs):
            rounds[run.round - self.after].append(run)
        number, before = 1, list[Run]()
        while planned := self._planned(number, before):
            ran = {frozenset(run.group.nodes) for run in rounds[number]}
            left = [group for group in planned if frozenset(group.nodes) not in ran]
            before += rounds[number]
            if left:
                return left, before
            number += 1
        return [], before

    def verdicts(self, runs: Sequence[Run]) -> list[Verdict]:
        """Also of a campaign that is not over: what is not told apart yet is suspected."""
        return judge(self.view(self.mine(runs)), self.lineup)

    def mine(self, runs: Sequence[Run]) -> list[Run]:
        """Settled pairs of these nodes and this rail."""
        nodes = set(self.nodes)
        return [
            run
            for run in runs
            if run.state in SETTLED
            and len(run.group.nodes) == 2
            and run.group.rail == self.rail
            and run.round > self.after
            and nodes.issuperset(run.group.nodes)
        ]

    def view(self, runs: Sequence[Run]) -> View:
        """These runs judged."""
        return View(self.lineup, runs)

    def _base(self) -> int:
        """Rounds of the scheme."""
        n = len(self.nodes)
        if self.scheme == "shift":
            return schemes.shift_rounds(n)
        return schemes.full_rounds(n) if self.scheme == "full" or n <= schemes.FEW else 1

    def _planned(self, number: int, before: Sequence[Run]) -> list[Group]:
        """Round `number` (from 1), by the runs of the rounds before it."""
        rng = random.Random(f"{self.lineup.seed}/{self.rail}/{number}")
        base = self._base()
        if number <= base:
            return [
                Group(nodes=pair, rail=self.rail, why=self._why()) for pair in self._own(number)
            ]
        if number > base + FOLLOW or len(self.nodes) < 2:
            return []
        view = self.view(before)
        if not view.good and number > base + 1:
            return []  # nobody is good after two partners each: no pair can tell anything
        again = sum(len(self.nodes) <= most for most in (SECOND_NODES, THIRD_NODES))
        fill = not self.known and base == 1 and number <= 1 + again
        return follow_up(view, rng, rail=self.rail, fill=fill)

    def _why(self) -> str:
        named = {"shift": "k-shift", "full": "round robin"}
        return named.get(self.scheme, "random pair")

    def _own(self, number: int) -> list[Pair]:
        index = number - 1
        if self.scheme == "shift":
            return schemes.shift_round(self.nodes, index)
        if self._base() > 1 or self.scheme == "full":
            return schemes.full_round(self.nodes, index)
        return schemes.random_pairs(self.nodes, random.Random(self.lineup.seed))
