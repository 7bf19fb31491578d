"""A simulated fabric on which groups of nodes run: what each run would measure.

rate = the least of (node, rail, path, leaf uplink shared by the flows that cross it), times noise.
Only for benchmarks and tests of the localiser: no figure of it is a result.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from msgspec import Struct

from console.active.results import Group, Localiser, Progress, Row, Run, Verdict

GOOD_GB_S = 190.0
GPUS = 8
SIZE = 4 << 30


class Fabric(Struct, kw_only=True):
    """What is wrong where; factors are of the good rate."""

    nodes: tuple[str, ...]
    leaf_size: int = 16
    uplinks: float | None = None
    """Flows that a leaf's uplinks carry at full rate; None: no oversubscription."""
    sigma: float = 0.03
    bad: Mapping[str, float] = {}
    bad_leaf: Mapping[int, float] = {}
    """Leaf -> factor of every flow across its uplinks."""
    narrow_leaf: Mapping[int, float] = {}
    """Leaf -> share of its uplinks that is left."""
    bad_path: Mapping[frozenset[str], float] = {}
    bad_nic: Mapping[tuple[str, int], float] = {}
    """(node, rail) -> factor."""
    bad_rail: Mapping[int, float] = {}
    collisions: float = 0.0
    """Chance that a flow across leaves is halved when all of them cross at once (ECMP)."""
    capacity: Mapping[str, float] = {}
    """Node -> share of the good rate that its NICs allow by design."""
    mute: frozenset[str] = frozenset()
    """Nodes whose runs never come up."""
    refusing: frozenset[str] = frozenset()
    flaky: float = 0.0
    """Chance that a run fails for no reason of its nodes."""
    overall: float = 1.0
    engine: str = "nccl-tests"

    def leaf(self, node: str) -> int:
        """Leaves are filled in the order of the nodes."""
        return self.nodes.index(node) // self.leaf_size

    def labels(self) -> dict[str, dict[str, str]]:
        """As an inventory would have them."""
        return {n: {"leaf": f"l{i // self.leaf_size}"} for i, n in enumerate(self.nodes)}

    def round(self, groups: Sequence[Group], number: int, rng: random.Random) -> list[Run]:
        """All groups side by side."""
        flows: dict[int, int] = {}
        for group in groups:
            for leaf in self._crossed(group):
                flows[leaf] = flows.get(leaf, 0) + 1
        total = sum(len(self._crossed(group)) > 0 for group in groups)
        return [self._run(group, number, flows, total, rng) for group in groups]

    def _crossed(self, group: Group) -> set[int]:
        leaves = {self.leaf(node) for node in group.nodes}
        return leaves if len(leaves) > 1 else set()

    def _run(
        self, group: Group, number: int, flows: Mapping[int, int], total: int, rng: random.Random
    ) -> Run:
        lucky = rng.random() >= self.flaky
        noise = math.exp(rng.gauss(0.0, self.sigma))
        collided = rng.random() < self.collisions * total * 2 / len(self.nodes)
        if set(group.nodes) & self.refusing:
            return Run(group=group, round=number, state=Progress.REFUSED, error="busy")
        if not lucky or set(group.nodes) & self.mute or self._factor(group, flows) <= 0:
            return Run(
                group=group, round=number, state=Progress.TIMED_OUT, error="no answer from a peer"
            )
        rate = GOOD_GB_S * self.overall * self._factor(group, flows) * noise
        rate *= 0.5 if collided and self._crossed(group) else 1.0
        ranks = len(group.nodes) * (1 if group.rail is not None else GPUS)
        rate /= GPUS if group.rail is not None else 1
        return Run(
            group=group, round=number, state=Progress.DONE, engine=self.engine, ranks=ranks,
            busbw_gb_s=rate, rows=(Row(size_bytes=SIZE, busbw_gb_s=rate),),
        )  # fmt: skip

    def _factor(self, group: Group, flows: Mapping[int, int]) -> float:
        found = [self.bad.get(n, 1.0) * 1.0 for n in group.nodes]
        found += [self.capacity.get(n, 1.0) for n in group.nodes]
        found += [f for pair, f in self.bad_path.items() if pair <= set(group.nodes)]
        rails = range(GPUS) if group.rail is None else (group.rail,)
        found += [self.bad_nic.get((n, r), 1.0) for n in group.nodes for r in rails]
        found += [self.bad_rail.get(r, 1.0) for r in rails]
        for leaf in self._crossed(group):
            found.append(self.bad_leaf.get(leaf, 1.0))
            width = self.uplinks if self.uplinks is not None else float(self.leaf_size)
            found.append(width * self.narrow_leaf.get(leaf, 1.0) / flows[leaf])
        return min(found)


class Outcome(Struct):
    """One campaign on it."""

    rounds: int
    runs: list[Run]
    verdicts: list[Verdict]


def campaign(localiser: Localiser, fabric: Fabric, rng: random.Random, most: int = 600) -> Outcome:
    """Run until the localiser has nothing left to ask."""
    runs: list[Run] = []
    number = 0
    while groups := localiser.next_round(runs):
        number += 1
        if number > most:
            raise RuntimeError("it does not end")
        runs += fabric.round(groups, number, rng)
    return Outcome(number, runs, localiser.verdicts(runs))
