"""Rails one after the other: what ran, who was left out on the way, what is to run next. Pure.

A run that fails and whose error names nodes is run again without them, and so are the rails after
it: one dead node costs one run, not the test. Who was left out is then tried with good partners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from console.active.blame import LEAVES, blamed
from console.active.pair_view import SETTLED, measured
from console.active.results import Group, Run

TIMES = 2
"""Runs of a slow rail: at 5 % scatter one of eight healthy ones is slow in 3 % of tests."""


class Course(Struct):
    """How far the rails got."""

    nodes: tuple[str, ...]
    """Those that are still in."""
    ran: dict[int, list[Run]] = {}
    """Rail -> its settled runs, of those nodes that were in then."""
    out: dict[str, Run] = {}
    """Node -> the failed run whose error named it."""
    rounds: int = 0
    leaves: int = 0
    left: list[Group] = []

    def best(self, times: int = TIMES) -> dict[int, Run]:
        """Rail -> the better one of its first `times` runs."""
        return {
            rail: max(mine[:times], key=lambda run: (run.busbw_gb_s or 0.0) * measured(run))
            for rail, mine in self.ran.items()
        }

    @property
    def accused(self) -> dict[str, Run]:
        """Also those whom it could not do without."""
        last = {n: run for runs in self.ran.values() for run in runs for n in blamed(run)}
        return {**last, **self.out}

    def run(self, rail: int, why: str, here: Mapping[int, Run]) -> bool:
        """Take one run of a rail; False when it is still to run."""
        group = Group(nodes=self.nodes, rail=rail, why=why)
        run = here.get(self.rounds + 1)
        if run is None or (run.group.nodes, run.group.rail) != (group.nodes, rail):
            self.left = [group]
            return False
        self.rounds += 1
        if not self._leave(run):
            self.ran.setdefault(rail, []).append(run)
        return True

    def _leave(self, run: Run) -> bool:
        named = blamed(run)
        rest = tuple(node for node in self.nodes if node not in named)
        if not named or len(rest) < 2 or self.leaves >= LEAVES:
            return False
        self.out.update(dict.fromkeys(named, run))
        self.nodes, self.leaves = rest, self.leaves + 1
        return True


def course(
    nodes: tuple[str, ...],
    rails: int,
    runs: Sequence[Run],
    again: Callable[[Course], Sequence[int]],
) -> Course:
    """All rails once; then those of `again`, which are slow, once more."""
    here = {run.round: run for run in runs if run.state in SETTLED}
    found = Course(nodes)
    for rail in range(rails):
        while rail not in found.ran:
            without = f" without {', '.join(found.out)}" if found.out else ""
            if not found.run(rail, f"rail against the other rails{without}", here):
                return found
    for rail in again(found):
        while len(found.ran[rail]) < TIMES:
            if not found.run(rail, "slow rail again", here):
                return found
    return found
