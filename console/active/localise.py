"""The door to naming what is at fault: which localiser a level has. Pure.

`next_round` plans each round from the runs of earlier rounds only, and gives back what is left of
the first round that is not complete. Interrupting at any run and going on therefore asks for the
same runs and ends in the same verdicts, given the same figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from console.active.cluster import Cluster
from console.active.expect import Expected
from console.active.lineup import Lineup
from console.active.pairs import Pairs
from console.active.rails import Rails
from console.active.results import Level, Localiser, Run
from console.active.solo import judge_solo, with_expected
from probes.event import Severity

__all__ = ["SCHEMES", "judge_solo", "localiser", "with_expected"]

SCHEMES = ("auto", "shift", "full")
"""Of pairs: search; a sample of the round robin first; all of it first."""


def localiser(
    level: Level,
    nodes: Sequence[str],
    *,
    solo: Sequence[Run] = (),
    seed: int,
    scheme: str = "auto",
    expected: Expected,
    labels: Mapping[str, Mapping[str, str]],
) -> Localiser:
    """For pairs, rails and cluster.

    `nodes` in natural order, each once; `solo`: runs of level node, which tell a slow node's NIC
    from its NVLinks; `labels`: node -> inventory labels, of which leaf, switch, rack and the like
    are read. `scheme` is one of SCHEMES and means something for pairs only. ValueError for a level
    that has no rounds to choose.
    """
    told = judge_solo(Level.NODE, solo, expected)
    slow = {v.nodes[0]: v.say for v in told if v.verdict in (Severity.WARN, Severity.CRITICAL)}
    fine = frozenset(v.nodes[0] for v in told if v.verdict is Severity.OK)
    lineup = Lineup(
        nodes=tuple(nodes), seed=seed, expected=expected, labels=labels, slow_alone=slow,
        fine_alone=fine,
    )  # fmt: skip
    if level is Level.PAIRS:
        return Pairs(lineup, scheme=scheme)
    if level is Level.RAILS:
        return Rails(lineup)
    if level is Level.CLUSTER:
        return Cluster(lineup)
    raise ValueError(f"level {level} has no rounds to choose; see judge_solo")
