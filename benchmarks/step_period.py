"""How often a period is seen where there is none, and how well one that is there is found.

    python -m benchmarks.step_period --seeds 10000

Readings as the Fleet keeps them: 60 of one GPU's power, one every second.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable

from probes.steps import step_estimate

READINGS = 60
Draw = Callable[[random.Random], list[float]]


def white(rng: random.Random) -> list[float]:
    """Noise."""
    return [500 + rng.gauss(0, 50) for _ in range(READINGS)]


def wander(rng: random.Random, pull: float = 1.0) -> list[float]:
    """A random walk; with a pull below 1 it comes back."""
    at, found = 0.0, []
    for _ in range(READINGS):
        at = pull * at + rng.gauss(0, 20)
        found.append(500 + at)
    return found


def jump(rng: random.Random) -> list[float]:
    """A job begins or ends."""
    where = rng.randrange(READINGS)
    return [300.0 if at < where else 600.0 for at in range(READINGS)]


def train(rng: random.Random, period_s: float, noise_w: float = 8.0) -> list[float]:
    """Four fifths of a step at 650 W, the rest at 300 W, in means over a second."""
    phase, parts = rng.uniform(0, period_s), 8
    return [
        sum(
            650.0 if (at + part / parts + phase) % period_s < 0.8 * period_s else 300.0
            for part in range(parts)
        ) / parts + rng.gauss(0, noise_w)
        for at in range(READINGS)
    ]  # fmt: skip


def main() -> None:
    """Draw, count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10000)
    seeds: int = parser.parse_args().seeds
    nothing: dict[str, Draw] = {
        "white noise": white, "random walk": wander, "drift that returns": lambda r: wander(r, 0.9),
        "one jump": jump,
    }  # fmt: skip
    for name, draw in nothing.items():
        seen = sum(step_estimate(draw(random.Random(s)), 1.0) is not None for s in range(seeds))
        print(json.dumps({"readings": name, "seeds": seeds, "periods_seen": seen}))
    for period_s in (3.0, 3.4, 4.7, 6.2, 8.0, 12.5, 15.0):
        found = [
            step_estimate(train(random.Random(s), period_s), 1.0) for s in range(seeds // 20 or 1)
        ]
        right = [e for e in found if e and abs(e.period_s - period_s) <= 0.03 * period_s]
        wrong = sum(e is not None for e in found) - len(right)
        share = {"right": len(right) / len(found), "wrong": wrong / len(found)}
        print(json.dumps({"step_s": period_s, "seeds": len(found), **share}))


if __name__ == "__main__":
    main()
