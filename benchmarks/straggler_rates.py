"""False alarms and recall of the peer comparison, by simulation through the product's functions.

    python -m benchmarks.straggler_rates [--groups 40000] [--seed 1]

The gates of the first two tables are judged by probes.spread alone, as figures of a benchmark are
(floor 1 %). The third goes through Comparison and Streaks: nodes of 8 GPUs with 15 MHz steps and
2 % floor, healthy or with one slow GPU, in one look and over 13 passes of 5 s in which the noise of
each pass is new. Beside each figure stands the one of the study that the gates come from (40,000
groups, normal noise); what it does not give is "-".
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator

from benchmarks.straggler_speed import node
from probes.event import Sample, Scalar
from probes.rules import Rules, load_rules
from probes.slow_limits import Limits
from probes.slow_time import Streaks
from probes.spread import Level, below, level, spread
from probes.straggler import Comparison, compare

SIZES = (4, 8, 16, 64)
STUDY_ALARMS = {(0.01, 4): "0", (0.01, 8): "0", (0.01, 16): "0", (0.01, 64): "5e-05",
                (0.02, 8): "0.019"}  # fmt: skip
"""(noise, members) -> share of healthy groups with an alarm, by z and r alone."""
STUDY_RECALL = {
    (0.08, 4): "0.87", (0.08, 8): "0.97", (0.08, 16): "1.0", (0.08, 64): "1.0",
    (0.10, 4): "0.96", (0.10, 8): "1.0", (0.10, 16): "1.0", (0.10, 64): "1.0",
    (0.05, 8): "0.3-0.5",
}  # fmt: skip
"""(how slow, members) -> share of slow GPUs found."""
FLOOR = 0.01
"""Of benchmarks; live readings have straggler.floor_live."""
CLOCK_MHZ, TOP_MHZ, STEP_MHZ = 1755.0, 1980, 15
START = 1_800_000_000.0


def group(rng: random.Random, n: int, sigma: float, slow: float = 0.0, bad: int = 0) -> list[float]:
    """Readings around 1, the first `bad` of them lower by `slow`."""
    return [rng.gauss(1, sigma) * (1 - slow if index < bad else 1) for index in range(n)]


def flagged(
    values: list[float], limits: Limits, *, plain: bool = False, floor: float = FLOOR
) -> list[bool]:
    """Which members are at least a warning; `plain`: by z and r, without the ratio to P75."""
    usual = spread(values)
    assert usual is not None
    if plain:
        far = limits.warn
        return [below(v, usual, floor, 0) > far.z and v < far.ratio * usual.median for v in values]
    return [level(v, usual, limits.warn, limits.crit, floor, 0) > Level.FINE for v in values]


def alarms(
    limits: Limits,
    groups: int,
    n: int,
    sigma: float,
    seed: int,
    *,
    plain: bool,
    floor: float = FLOOR,
) -> float:
    """Share of healthy groups in which anybody is flagged."""
    rng = random.Random(seed)
    hits = (
        any(flagged(group(rng, n, sigma), limits, plain=plain, floor=floor)) for _ in range(groups)
    )
    return sum(hits) / groups


def recall(
    limits: Limits, groups: int, n: int, slow: float, seed: int, *, plain: bool, bad: int = 1,
    sigma: float = 0.01,
) -> float:  # fmt: skip
    """Share of the slow members that are flagged."""
    rng = random.Random(seed)
    found = 0
    for _ in range(groups):
        found += sum(flagged(group(rng, n, sigma, slow, bad), limits, plain=plain)[:bad])
    return found / groups / bad


def gates_table(limits: Limits, groups: int, seed: int) -> Iterator[tuple[str, str, str, str]]:
    """Rows: what, study, z and r alone, with the ratio to P75 as shipped."""
    for sigma in (0.01, 0.02):
        for n in SIZES:
            ours = [alarms(limits, groups, n, sigma, seed, plain=p) for p in (True, False)]
            study = STUDY_ALARMS.get((sigma, n), "-")
            yield (
                f"false alarms, n={n}, noise {sigma:.0%}",
                study,
                f"{ours[0]:.2g}",
                f"{ours[1]:.2g}",
            )
    for slow in (0.05, 0.08, 0.10):
        for n in SIZES:
            found = [recall(limits, groups // 4, n, slow, seed, plain=p) for p in (True, False)]
            study = STUDY_RECALL.get((slow, n), "-")
            yield f"recall, {slow:.0%} slow, n={n}", study, f"{found[0]:.3f}", f"{found[1]:.3f}"
    found = [recall(limits, groups // 4, 8, 0.10, seed, plain=p, bad=3) for p in (True, False)]
    yield "recall, 3 of 8 are 10 % slow", "0.58 and 1.0", f"{found[0]:.3f}", f"{found[1]:.3f}"


# Through the comparison of nodes


class Rack:
    """Nodes of 8 GPUs whose clocks are drawn anew for each pass."""

    def __init__(self, nodes: int, seed: int, sigma: float = 0.01) -> None:
        """All loaded, at their power limit, in jobs of 16 nodes."""
        self.rng, self.sigma = random.Random(seed), sigma
        self.facts = [node(number, self.rng) for number in range(nodes)]

    def draw(self, at: float, slow: float = 0.0) -> None:
        """The next readings; `slow` of GPU 0 of every node."""
        for facts in self.facts:
            for index, (device, sample) in enumerate(facts.devices("gpu")):
                clock = CLOCK_MHZ * self.rng.gauss(1, self.sigma) * (1 - slow if index == 0 else 1)
                values: dict[str, Scalar] = {
                    **sample.values, "reasons": 0x4, "temp_c": 60,
                    "sm_clock_mhz": min(TOP_MHZ, round(clock / STEP_MHZ) * STEP_MHZ),
                    "power_w": round(self.rng.gauss(685, 6), 1),
                }  # fmt: skip
                facts.apply(Sample(node=facts.node.name, probe="gpu", device=device, at=at,
                                   values=values))  # fmt: skip


def one_look(rules: Rules, nodes: int, seed: int, slow: float) -> tuple[float, float]:
    """(share of nodes with a wrong finding, share of slow GPUs found) in one look."""
    rack = Rack(nodes, seed)
    rack.draw(START, slow)
    found = {(f.node, f.label) for f in compare(rack.facts, rules, START)}
    right = {(node, label) for node, label in found if label == "GPU0" and slow}
    return len({node for node, _ in found - right}) / nodes, len(right) / nodes


def over_time(
    rules: Rules, nodes: int, seed: int, slow: float, passes: int = 14
) -> tuple[float, float]:
    """The same after `passes` looks, 5 s apart, with hysteresis."""
    rack, streaks, found = Rack(nodes, seed), Streaks(rules), set()
    for number in range(passes):
        now = START + 5.0 * number
        rack.draw(now, slow)
        look = Comparison(rules, now, held=streaks.watched)
        steps = [step for step in look.steps(rack.facts) if step is not None]
        found |= {(f.node, f.label) for f in streaks.settle(steps, look.compared, now)}
    right = {(node, label) for node, label in found if label == "GPU0" and slow}
    return len({node for node, _ in found - right}) / nodes, len(right) / nodes


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", type=int, default=40_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rules = load_rules()
    rows = [("figure", "study", "z and r", "as shipped")]
    rows += gates_table(Limits.of(rules), options.groups, options.seed)
    for slow in (0.0, 0.08, 0.10):
        for words, look in (("one look", one_look), ("over 65 s", over_time)):
            wrong, right = look(rules, options.nodes, options.seed, slow)
            rows.append(
                (f"nodes, {words}, {slow:.0%} slow: wrong per node", "-", "", f"{wrong:.2g}")
            )
            if slow:
                rows.append((f"nodes, {words}, {slow:.0%} slow: found", "-", "", f"{right:.3f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
