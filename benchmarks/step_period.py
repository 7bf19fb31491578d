"""How often a period is seen where there is none, and how well one that is there is found.

    python -m benchmarks.step_period --seeds 10000

Readings as the Fleet keeps them: 60 of one GPU, one every two seconds. Steps end in a tail at less
power; of each the sensor's mean over a second is read, and the mean of the interval.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable

from probes.steps import Estimate, step_estimate, step_seen
from tests.judging.test_steps import sensed

READINGS = 60
EVERY_S = 2.0
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


def told(period_s: float, seed: int, tail: float = 0.25) -> tuple[Estimate | None, Estimate | None]:
    """What the readings alone would tell of a job's step, and what is told."""
    readings, means = sensed(period_s, seed=seed, tail=tail)
    return step_estimate(readings, EVERY_S), step_seen(readings, means, EVERY_S)


def wrong(found: Estimate | None, period_s: float) -> bool:
    """Told, and not within 5 % of it."""
    return found is not None and abs(found.period_s / period_s - 1) > 0.05


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
    for period_s in (6.6, 7.3, 8.3, 9.6, 11.2, 14.0, 22.0, 29.0):
        found = [told(period_s, seed)[1] for seed in range(seeds // 40 or 1)]
        bad = sum(wrong(one, period_s) for one in found)
        right = sum(one is not None for one in found) - bad
        share = {"right": right / len(found), "wrong": bad / len(found)}
        print(json.dumps({"step_s": period_s, "seeds": len(found), **share}))
    for tail in (0.2, 0.25, 0.4):
        drawn = [random.Random(seed).uniform(0.3, 6.0) for seed in range(seeds // 10 or 1)]
        both = [told(period_s, seed, tail) for seed, period_s in enumerate(drawn)]
        alone, kept = (
            sum(wrong(one[which], period_s) for one, period_s in zip(both, drawn, strict=True))
            for which in (0, 1)
        )
        print(json.dumps({"steps_s": "0.3 to 6", "tail": tail, "drawn": len(drawn),
                          "wrong_by_readings": alone, "wrong": kept}))  # fmt: skip


if __name__ == "__main__":
    main()
