"""How often pairs, rails and cluster name what is at fault, on simulated fabrics.

    python -m benchmarks.localise [--seeds 200] [--nodes 8,16,64] [--only "bad leaf"]

Runs scatter by 2 to 5 % (drawn per seed); bad nodes reach 25 to 75 % of the good rate, bad NICs,
leaves, rails and paths 30 to 70 %. "right" is the share of seeds in which exactly the fault was
named (and nothing else was a warning), "wrongly certain" counts seeds in which a healthy node was
named with confidence certain, "wrongly drained" those in which a drain of one was proposed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import zlib
from collections.abc import Callable, Iterator

from msgspec import Struct

from benchmarks.fabric import GOOD_GB_S, Fabric, Outcome, campaign
from console.active.expect import Expected, NodeSpec
from console.active.localise import localiser
from console.active.results import Confidence, Level, Verdict
from probes.event import Severity

SIZES = (8, 16, 64, 128, 512)


class Case(Struct, frozen=True, kw_only=True):
    """One kind of fault."""

    name: str
    make: Callable[[tuple[str, ...], random.Random], Fabric]
    right: Callable[[Fabric, Outcome], bool]
    level: Level = Level.PAIRS
    labels: bool = False
    known: bool = False
    """The NIC rate is known."""
    least: int = 8
    most: int = 512
    scheme: str = "auto"


def warned(outcome: Outcome) -> list[Verdict]:
    """Everything that is not ok."""
    return [v for v in outcome.verdicts if v.verdict is not Severity.OK]


def drains(outcome: Outcome) -> set[str]:
    """Nodes whose drain is proposed."""
    return {node for v in outcome.verdicts if v.drains for node in v.nodes}


def certain(outcome: Outcome) -> set[str]:
    """Nodes named with certainty."""
    sure = [v for v in warned(outcome) if v.confidence is Confidence.CERTAIN]
    return {node for v in sure if v.kind in ("node", "gpu") for node in v.nodes}


def truly_bad(fabric: Fabric) -> set[str]:
    """Nodes that are at fault themselves."""
    return {*fabric.bad, *fabric.mute, *(node for node, _ in fabric.bad_nic)}


def nodes_right(fabric: Fabric, outcome: Outcome) -> bool:
    """Exactly the bad nodes, each of them to be drained, and no other warning."""
    found = warned(outcome)
    return drains(outcome) == truly_bad(fabric) and all(v.drains for v in found)


def nobody(fabric: Fabric, outcome: Outcome) -> bool:
    """No node is accused (suspicion included)."""
    return not any(v.kind in ("node", "gpu") for v in warned(outcome))


def leaf_right(fabric: Fabric, outcome: Outcome) -> bool:
    """The leaf (80 % of it and of what is named), or the fabric; no drain."""
    if drains(outcome):
        return False
    leaf = {n for n in fabric.nodes if fabric.leaf(n) in {**fabric.bad_leaf, **fabric.narrow_leaf}}
    for verdict in warned(outcome):
        if verdict.kind == "fabric":
            return True
        named = set(verdict.nodes)
        if verdict.kind == "group" and len(named & leaf) >= 0.8 * len(named):
            return True
        others = set(fabric.nodes) - leaf
        if verdict.kind == "group" and len(named & others) >= 0.8 * len(named) > 1:
            return len(others) <= len(leaf)  # of two halves either may be named
    return False


def path_right(fabric: Fabric, outcome: Outcome) -> bool:
    """Named when it was met, otherwise nothing."""
    (path,) = fabric.bad_path
    met = any(set(run.group.nodes) == path for run in outcome.runs)
    found = warned(outcome)
    if not met:
        return not found
    return [(v.kind, frozenset(v.nodes)) for v in found] == [("path", path)]


def kind_right(kind: str) -> Callable[[Fabric, Outcome], bool]:
    """A verdict of this kind, and nobody to drain."""

    def right(fabric: Fabric, outcome: Outcome) -> bool:
        return not drains(outcome) and any(v.kind == kind for v in warned(outcome))

    return right


def split_right(fabric: Fabric, outcome: Outcome) -> bool:
    """Something is said, nobody is named for sure and nobody drained."""
    return bool(warned(outcome)) and not drains(outcome) and not certain(outcome)


def suspicion(fabric: Fabric, outcome: Outcome) -> bool:
    """The bad nodes are at least suspected, and no other one is drained."""
    accused = {n for v in warned(outcome) if v.kind == "node" for n in v.nodes}
    return truly_bad(fabric) <= accused and drains(outcome) <= truly_bad(fabric)


def spared(fabric: Fabric, outcome: Outcome) -> bool:
    """No node is more than suspected."""
    nodes = [v for v in warned(outcome) if v.kind in ("node", "gpu")]
    return all(v.confidence is Confidence.SUSPECTED for v in nodes)


def nic_right(fabric: Fabric, outcome: Outcome) -> bool:
    """The rail is told and exactly the node is named."""
    return drains(outcome) == truly_bad(fabric)


def some_right(fabric: Fabric, outcome: Outcome) -> bool:
    """A bad node is named, and no healthy one; sizes stop at the first fall."""
    return bool(drains(outcome)) and drains(outcome) <= truly_bad(fabric)


def noise(rng: random.Random) -> float:
    """2 to 5 %."""
    return rng.uniform(0.02, 0.05)


def factor(rng: random.Random) -> float:
    """What is left of a bad one."""
    return rng.uniform(0.3, 0.7)


def bad_nodes(count: int) -> Callable[[tuple[str, ...], random.Random], Fabric]:
    """Some bad nodes."""

    def make(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
        bad = {n: rng.uniform(0.25, 0.75) for n in rng.sample(nodes, count)}
        return Fabric(nodes=nodes, sigma=noise(rng), bad=bad)

    return make


def two_that_met(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """Two bad nodes that are partners in round one."""
    plan = localiser(Level.PAIRS, nodes, seed=SEED[0], expected=Expected(), labels={})
    pair = rng.choice(plan.next_round([])).nodes
    return Fabric(nodes=nodes, sigma=noise(rng), bad={n: factor(rng) for n in pair})


def met_path(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """A bad path that round one meets."""
    plan = localiser(Level.PAIRS, nodes, seed=SEED[0], expected=Expected(), labels={})
    pair = frozenset(rng.choice(plan.next_round([])).nodes)
    return Fabric(nodes=nodes, sigma=noise(rng), bad_path={pair: rng.choice([0.0, factor(rng)])})


def any_path(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """A bad path somewhere."""
    pair = frozenset(rng.sample(nodes, 2))
    return Fabric(nodes=nodes, sigma=noise(rng), bad_path={pair: factor(rng)})


def leaves(nodes: tuple[str, ...]) -> int:
    """Nodes per leaf: at least two leaves."""
    return max(4, min(32, len(nodes) // 4))


def bad_leaf(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """Every flow across one leaf's uplinks is slow."""
    size = leaves(nodes)
    leaf = rng.randrange(len(nodes) // size)
    return Fabric(nodes=nodes, sigma=noise(rng), leaf_size=size, bad_leaf={leaf: factor(rng)})


def narrow_leaf(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """One leaf has lost most of its uplinks: slow only while many flows cross."""
    size = leaves(nodes)
    leaf = rng.randrange(len(nodes) // size)
    return Fabric(
        nodes=nodes, sigma=noise(rng), leaf_size=size, narrow_leaf={leaf: rng.uniform(0.1, 0.4)}
    )


def oversubscribed(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """All leaves 2:1 by design."""
    size = leaves(nodes)
    return Fabric(nodes=nodes, sigma=noise(rng), leaf_size=size, uplinks=size / 2)


def oversubscribed_and_bad(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """The same with a bad node."""
    size = leaves(nodes)
    bad = {rng.choice(nodes): rng.uniform(0.25, 0.4)}
    return Fabric(nodes=nodes, sigma=noise(rng), leaf_size=size, uplinks=size / 2, bad=bad)


def collisions(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """A tenth of the flows across is halved by chance (ECMP)."""
    return Fabric(nodes=nodes, sigma=noise(rng), leaf_size=leaves(nodes), collisions=0.1)


def mute(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """A node with which no run comes up, and chance failures of others."""
    return Fabric(nodes=nodes, sigma=noise(rng), mute=frozenset([rng.choice(nodes)]))


def flaky(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """2 % of the runs fail for no reason of their nodes."""
    return Fabric(nodes=nodes, sigma=noise(rng), flaky=0.02)


def half(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """Half of the nodes slow."""
    bad = dict.fromkeys(rng.sample(nodes, len(nodes) // 2), factor(rng))
    return Fabric(nodes=nodes, sigma=noise(rng), bad=bad)


def all_slow(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """Everything slow."""
    return Fabric(nodes=nodes, sigma=noise(rng), overall=rng.uniform(0.2, 0.4))


def all_dead(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """No run comes up."""
    return Fabric(nodes=nodes, mute=frozenset(nodes))


def mixed_nics(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """Half of the nodes have half the NICs by design; one is bad."""
    few = dict.fromkeys(rng.sample(nodes, len(nodes) // 2), 0.5)
    return Fabric(
        nodes=nodes, sigma=noise(rng), capacity=few, bad={rng.choice(nodes): rng.uniform(0.15, 0.3)}
    )


def bad_rail(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """One rail slow on all nodes."""
    return Fabric(nodes=nodes, sigma=noise(rng), bad_rail={rng.randrange(8): factor(rng)})


def bad_nic(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """One NIC slow."""
    nic = (rng.choice(nodes), rng.randrange(8))
    return Fabric(nodes=nodes, sigma=noise(rng), bad_nic={nic: factor(rng)})


def healthy(nodes: tuple[str, ...], rng: random.Random) -> Fabric:
    """Nothing wrong."""
    return Fabric(nodes=nodes, sigma=noise(rng))


CASES = (
    Case(name="healthy", make=healthy, right=nodes_right),
    Case(name="healthy, NIC rate known", make=healthy, right=nodes_right, known=True),
    Case(name="1 bad node", make=bad_nodes(1), right=nodes_right),
    Case(name="2 bad nodes", make=bad_nodes(2), right=nodes_right),
    Case(name="3 bad nodes", make=bad_nodes(3), right=nodes_right),
    Case(name="3 bad nodes, labels", make=bad_nodes(3), right=nodes_right, labels=True),
    Case(name="2 bad that met in round 1", make=two_that_met, right=nodes_right),
    Case(name="1 dead node", make=mute, right=nodes_right),
    Case(name="2 % of runs fail by chance", make=flaky, right=spared),
    Case(name="bad path, met", make=met_path, right=path_right),
    Case(name="bad path, anywhere", make=any_path, right=path_right),
    Case(
        name="bad path, full", make=any_path, right=path_right, scheme="full", least=8, most=16
    ),
    Case(name="bad leaf, labels", make=bad_leaf, right=leaf_right, labels=True, least=16),
    Case(name="bad leaf, no labels", make=bad_leaf, right=leaf_right, least=16),
    Case(name="leaf with few uplinks, labels", make=narrow_leaf, right=spared, labels=True,
         least=16),
    Case(name="leaf with few uplinks, no labels", make=narrow_leaf, right=spared, least=16),
    Case(name="2:1 fabric, labels", make=oversubscribed, right=spared, labels=True, least=16),
    Case(name="2:1 fabric, no labels", make=oversubscribed, right=spared, least=16),
    Case(name="2:1 fabric and a bad node", make=oversubscribed_and_bad, right=suspicion,
         labels=True, least=64),
    Case(name="10 % ECMP collisions", make=collisions, right=spared, least=16),
    Case(name="half slow", make=half, right=split_right),
    Case(name="all slow, NIC rate known", make=all_slow, right=kind_right("fabric"), known=True),
    Case(name="no run comes up", make=all_dead, right=kind_right("fabric")),
    Case(name="mixed NIC counts, 1 bad node", make=mixed_nics, right=nodes_right, known=True,
         least=16),
    Case(name="rails: healthy", make=healthy, right=nodes_right, level=Level.RAILS, most=64),
    Case(name="rails: bad rail", make=bad_rail, right=kind_right("rail"), level=Level.RAILS),
    Case(name="rails: bad NIC", make=bad_nic, right=nic_right, level=Level.RAILS),
    Case(name="cluster: healthy", make=healthy, right=nodes_right, level=Level.CLUSTER),
    Case(name="cluster: 1 bad node", make=bad_nodes(1), right=nic_right, level=Level.CLUSTER),
    Case(name="cluster: 2 bad nodes", make=bad_nodes(2), right=some_right, level=Level.CLUSTER),
)  # fmt: skip
SEED = [0]
"""Of the trial that is being made: two cases want to know what round one will be."""


def expected(fabric: Fabric, known: bool) -> Expected:
    """NIC rates as an operator would have them: healthy pairs reach 70 % of them."""
    if not known:
        return Expected()
    full = GOOD_GB_S / 0.7
    return Expected(
        nodes={n: NodeSpec(gpus=8, nic_gb_s=full * fabric.capacity.get(n, 1.0)) for n in
               fabric.nodes}
    )  # fmt: skip


def trial(case: Case, n: int, seed: int) -> tuple[Fabric, Outcome]:
    """One fabric, one campaign."""
    rng = random.Random(f"{case.name}/{n}/{seed}")
    SEED[0] = zlib.crc32(f"{n}/{seed}".encode())
    nodes = tuple(f"gpu{i:03}" for i in range(1, n + 1))
    fabric = case.make(nodes, rng)
    found = localiser(
        case.level, nodes, seed=SEED[0], scheme=case.scheme,
        expected=expected(fabric, case.known), labels=fabric.labels() if case.labels else {},
    )  # fmt: skip
    return fabric, campaign(found, fabric, rng)


class Told(Struct):
    """One line of the table."""

    case: str
    nodes: int
    seeds: int
    right: float
    wrongly_certain: int
    wrongly_drained: int
    rounds: list[int]
    wrong: list[int]
    """Seeds that were not right."""


def measure(case: Case, n: int, seeds: int) -> Told:
    """All seeds of one case and size."""
    told = Told(case.name, n, seeds, 0.0, 0, 0, [], [])
    for seed in range(seeds):
        fabric, outcome = trial(case, n, seed)
        bad = truly_bad(fabric)
        told.wrongly_certain += bool(certain(outcome) - bad)
        told.wrongly_drained += bool(drains(outcome) - bad)
        told.rounds.append(outcome.rounds)
        if not case.right(fabric, outcome):
            told.wrong.append(seed)
    told.right = 1.0 - len(told.wrong) / seeds
    return told


def table(seeds: int, sizes: tuple[int, ...], only: str) -> Iterator[Told]:
    """Fewer seeds for large fabrics, which take longer and scatter less."""
    for case in CASES:
        for n in sizes:
            if case.least <= n <= case.most and only in case.name:
                yield measure(case, n, max(10, seeds * 64 // max(64, n)))


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--nodes", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", default="", help="part of the cases' names")
    options = parser.parse_args()
    print("| case | nodes | seeds | right | wrongly certain | wrongly drained | rounds mean, max |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for told in table(options.seeds, tuple(map(int, options.nodes.split(","))), options.only):
        mean, most = statistics.fmean(told.rounds), max(told.rounds)
        wrong = f" | seeds {told.wrong[:6]}" if told.wrong else ""
        print(
            f"| {told.case} | {told.nodes} | {told.seeds} | {told.right:.1%} | "
            f"{told.wrongly_certain} | {told.wrongly_drained} | {mean:.1f}, {most} |{wrong}",
            flush=True,
        )


if __name__ == "__main__":
    main()
