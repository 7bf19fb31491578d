"""The limits of the peer comparison, looked up once a pass."""

from __future__ import annotations

from msgspec import Struct

from probes.rules import Rules
from probes.spread import Gates


class Limits(Struct, frozen=True):
    """From thresholds.yaml, straggler.*."""

    warn: Gates
    crit: Gates
    floor: float
    quantum_mhz: float
    catalogue: float
    catalogue_crit: float
    own_ratio: float
    own_least: int
    half: float
    at_limit: float
    equal_load: float
    weak: int
    full: int

    @classmethod
    def of(cls, rules: Rules) -> Limits:
        """KeyError is a programming error: tests look all of them up."""
        get = {name: limit.value for name, limit in rules.limits.items()}
        gates = [
            Gates(*(get[f"straggler.{gate}_{grade}"] for gate in ("z", "r", "r75")))
            for grade in ("warn", "crit")
        ]
        return cls(
            *gates,
            *(get[f"straggler.{name}"]
              for name in ("floor_live", "quantum_mhz", "catalogue", "catalogue_crit",
                           "own_ratio")),
            int(get["straggler.own_least"]),
            *(get[f"straggler.{name}"] for name in ("half", "at_power_limit", "equal_load")),
            int(get["straggler.group_weak"]),
            int(get["straggler.group_full"]),
        )  # fmt: skip
