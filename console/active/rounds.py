"""Who chooses the rounds of a campaign, with what it needs to know."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from console.active import store
from console.active.ask import Asked
from console.active.expect import Expected, of_facts
from console.active.orders import TOGETHER
from console.active.results import Group, Level, Localiser, Progress, Run, Verdict
from probes.own import NONE, Own

if TYPE_CHECKING:
    from console.engine import Engine

SOLO_S = 86_400.0
"""How old a test of a node alone may be to clear or blame it in a pair; our estimate."""


class Solo:
    """One round in which every node is tested alone."""

    def __init__(self, level: Level, nodes: Sequence[str], expected: Expected) -> None:
        """`expected` is what the figures are judged by."""
        self._level, self._nodes, self._expected = level, tuple(nodes), expected

    def next_round(self, runs: Sequence[Run]) -> list[Group]:
        """See Localiser."""
        done = {name for run in runs for name in run.group.nodes}
        return [Group(nodes=(name,), why="alone") for name in self._nodes if name not in done]

    def verdicts(self, runs: Sequence[Run]) -> list[Verdict]:
        """See Localiser."""
        from console.active.solo import judge_solo

        return judge_solo(self._level, runs, self._expected)

    def told(self, runs: Sequence[Run]) -> list[Run]:
        """The runs with what each of their readings should be, and by whose word."""
        from console.active.solo import with_expected

        return with_expected(self._level, runs, self._expected)


def rounds(engine: Engine, asked: Asked, nodes: Sequence[str], own: Own = NONE) -> Localiser:
    """The localiser of this level on these nodes, with what is known of them now."""
    expected = expectations(engine, nodes, own)
    if asked.level not in TOGETHER:
        return Solo(asked.level, nodes, expected)
    from console.active.localise import localiser

    return localiser(
        asked.level, nodes, solo=tested_alone(engine, nodes), seed=asked.seed, scheme=asked.scheme,
        expected=expected, labels={n: engine.fleet.nodes[n].node.labels for n in nodes},
    )  # fmt: skip


def expectations(engine: Engine, nodes: Sequence[str], own: Own) -> Expected:
    """Products, NIC rates, hard findings and their own past of these nodes."""
    fleet = engine.fleet
    findings = [finding for name in nodes for finding in fleet.findings[name]]
    return of_facts([fleet.nodes[n] for n in nodes], fleet.rules, own, findings)


def tested_alone(engine: Engine, nodes: Sequence[str]) -> list[Run]:
    """The newest kept run of each of these nodes at level node, a day old at most."""
    found: dict[str, Run] = {}
    since = time.time() - SOLO_S
    for kept in store.listed(engine.state / "tests"):
        if kept.campaign.level is not Level.NODE or kept.campaign.at < since:
            continue
        for run in kept.campaign.runs:
            if run.state is Progress.DONE and run.group.nodes[0] in nodes:
                found.setdefault(run.group.nodes[0], run)
    return list(found.values())
