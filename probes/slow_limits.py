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

        def get(name: str) -> float:
            return rules.limit(f"straggler.{name}").value

        def gates(grade: str) -> Gates:
            return Gates(get(f"z_{grade}"), get(f"r_{grade}"), get(f"r75_{grade}"))

        return cls(
            warn=gates("warn"), crit=gates("crit"), floor=get("floor_live"),
            quantum_mhz=get("quantum_mhz"), catalogue=get("catalogue"),
            catalogue_crit=get("catalogue_crit"), own_ratio=get("own_ratio"),
            own_least=int(get("own_least")), half=get("half"), at_limit=get("at_power_limit"),
            equal_load=get("equal_load"), weak=int(get("group_weak")), full=int(get("group_full")),
        )  # fmt: skip
