"""Runs over other numbers of ranks share no yardstick: neither verdicts nor matrix nor shares."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from console.active import alike, figures, matrix
from console.active.cells import plain
from console.active.expect import Expected
from console.active.localise import localiser
from console.active.results import Level, Localiser, Run, Verdict
from probes.event import Severity
from tests.active.campaigns import campaign, names, run

Rate = tuple[float, int]
"""GB/s of a node, and its GPUs."""


def ran(found: Localiser, rates: dict[str, Rate], first: int | None = None) -> list[Run]:
    """A whole campaign; in round 1 all nodes have `first` GPUs."""
    runs: list[Run] = []
    number = 0
    while groups := found.next_round(runs):
        number += 1
        for group in groups:
            one = first is not None and number == 1
            ranks = sum(first if one else rates[n][1] for n in group.nodes)  # type: ignore[misc]
            value = min(rates[n][0] for n in group.nodes) * (0.1 if one else 1.0)
            runs.append(
                structs.replace(run(group.nodes, value, number=number, ranks=ranks), group=group)
            )
    return runs


def pairs(nodes: Sequence[str]) -> Localiser:
    return localiser(Level.PAIRS, nodes, seed=3, expected=Expected(), labels={})


def told(found: Sequence[Verdict]) -> dict[str, Severity]:
    return {v.name: v.verdict for v in found}


def test_a_first_round_on_one_gpu_each_accuses_nobody() -> None:
    nodes = names(6)
    found = pairs(nodes)
    runs = ran(found, dict.fromkeys(nodes, (390.0, 8)), first=1)
    assert {r.ranks for r in runs} == {2, 16}
    assert told(found.verdicts(runs)) == dict.fromkeys(nodes, Severity.OK)


def test_a_node_that_lost_gpus_is_neither_cleared_nor_blamed_by_itself() -> None:
    nodes = names(8)
    rates = dict.fromkeys(nodes, (390.0, 8)) | {"gpu003": (90.0, 7)}
    found = pairs(nodes)
    verdicts = {v.name: v for v in found.verdicts(ran(found, rates))}
    odd = verdicts.pop("gpu003")
    assert odd.verdict is Severity.UNKNOWN, "slow or fast: with 15 ranks there is no other pair"
    assert "15 ranks" in odd.say
    assert {v.verdict for v in verdicts.values()} == {Severity.OK}


def test_two_kinds_of_nodes_are_each_measured_by_their_own() -> None:
    nodes = names(8)
    rates = {n: (390.0, 8) if i < 4 else (180.0, 4) for i, n in enumerate(nodes)}
    found = pairs(nodes)
    assert set(told(found.verdicts(ran(found, rates))).values()) == {Severity.OK}


@given(st.lists(st.integers(1, 3), min_size=4, max_size=8), st.integers(0, 99))
def test_a_pair_is_never_measured_by_pairs_of_other_ranks(gpus: list[int], seed: int) -> None:
    """Whatever the others reach with other ranks, shares and verdicts of the rest stay."""
    nodes = names(len(gpus))
    rng = random.Random(seed)
    runs = [
        run((a, b), rng.choice((100.0, 30.0)), number=1 + i, ranks=gpus[i] + gpus[j])
        for i, a in enumerate(nodes) for j, b in enumerate(nodes) if i < j
    ]  # fmt: skip
    usual = alike.commonest(runs)["torch-nccl"]
    other = [r if r.ranks == usual else structs.replace(r, busbw_gb_s=1.0) for r in runs]
    one, two = campaign(Level.PAIRS, nodes, runs), campaign(Level.PAIRS, nodes, other)
    assert figures.yardstick(one) == figures.yardstick(two)
    drawn = matrix.matrix(two)
    for r in other:
        if r.ranks != usual:
            assert figures.share(r, figures.yardstick(two)) is None
            assert drawn is None or drawn.cell(*r.group.nodes) is None


def test_of_three_nodes_the_bad_one_is_not_the_yardstick() -> None:
    """Two of three pairs are slow: their median is the fault."""
    nodes = names(3)
    runs = ran(pairs(nodes), dict.fromkeys(nodes, (390.0, 8)) | {"gpu002": (98.0, 8)})
    told_too = campaign(Level.PAIRS, nodes, runs, verdicts=tuple(pairs(nodes).verdicts(runs)))
    assert figures.yardstick(told_too).value == 390.0
    bare = campaign(Level.PAIRS, nodes, [*runs[:3], *runs[:3]])
    assert figures.yardstick(bare).value == 390.0, "without verdicts the faster half tells"
    drawn = matrix.matrix(told_too)
    assert drawn is not None
    assert drawn.cell("gpu001", "gpu002") == 98.0 / 390.0
    assert drawn.cell("gpu001", "gpu003") == 1.0


def test_pairs_of_other_ranks_are_counted_below_the_picture() -> None:
    nodes = names(4)
    runs = [run(nodes[:2], 390.0), run(nodes[2:], 39.0, ranks=2)]
    runs += [run((a, b), 390.0) for a in nodes[:2] for b in nodes[2:]]
    drawn = matrix.matrix(campaign(Level.PAIRS, nodes, runs))
    assert drawn is not None
    assert "1 with another number of ranks than 16" in plain(matrix.lines(drawn, 100))
