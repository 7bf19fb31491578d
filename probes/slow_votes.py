"""Which comparisons call a GPU or node slow, and how sure that makes it. Pure.

certain    two comparisons agree, hardware evidence says why, and the group is large enough
likely     two comparisons agree, or one does and there is hardware evidence
suspected  one comparison alone; never more than information
"""

from __future__ import annotations

from msgspec import Struct

from probes.own import Baseline
from probes.spread import Level, Spread

SUSPECTED, LIKELY, CERTAIN = "suspected", "likely", "certain"


class Votes(Struct, frozen=True, kw_only=True):
    """The three comparisons. None: it cannot tell."""

    absolute: Level | None
    """Against what the card says is possible."""
    spatial: Level | None
    """Against its group."""
    temporal: Level | None
    """Against its own past."""
    hard: str
    """Hardware evidence in words; "" without."""
    group: Spread | None = None
    """What it was compared with; None: too few alike."""
    full: int = 8
    """Members from which a group is not called weak."""
    own: Baseline | None = None
    unit: str = "GPUs"
    """Of the group's members."""
    near: bool = False
    """Only within half the limits: neither slow nor clean."""
    early: bool = False
    """Not for long enough yet."""

    @property
    def count(self) -> int:
        """Comparisons that call it slow."""
        return sum(1 for vote in (self.absolute, self.spatial, self.temporal) if vote)

    @property
    def level(self) -> Level:
        """The worst of them."""
        return max(vote or Level.FINE for vote in (self.absolute, self.spatial, self.temporal))

    @property
    def proven(self) -> bool:
        """Two of three, or one and hardware evidence."""
        return self.count >= 2 or (self.count == 1 and bool(self.hard))

    @property
    def weak(self) -> bool:
        """The peers' vote counts and they are few."""
        return bool(self.spatial) and self.group is not None and self.group.n < self.full

    @property
    def confidence(self) -> str:
        """One word; see the module."""
        if not self.proven or self.early:
            return SUSPECTED
        return CERTAIN if self.count >= 2 and self.hard and not self.weak else LIKELY

    def agreement(self) -> str:
        """What each comparison says."""
        few = "too few alike" if self.group is None else "cannot tell"
        own = _said(self.temporal, "not known")
        if self.own is not None:
            own += f" (usual {self.own.median:.0f}, {self.own.n} readings)"
        return (
            f"peers: {_said(self.spatial, few)}; catalogue: {_said(self.absolute, 'cannot tell')}; "
            f"own history: {own}; hardware evidence: {self.hard or 'none'}"
        )

    def sure(self) -> str:
        """How sure, and why."""
        agree = ("no comparison agrees", "one comparison alone", "two of three comparisons agree",
                 "all three comparisons agree")[self.count]  # fmt: skip
        hard = " and hardware evidence" if self.hard else ""
        weak = f"; weak, {self.group.n} {self.unit} compared" if self.weak and self.group else ""
        early = "; not for long enough yet" if self.early else ""
        return f"{self.confidence}: {agree}{hard}{weak}{early}"


def _said(vote: Level | None, unknown: str) -> str:
    return unknown if vote is None else ("fine", "slow", "very slow")[vote]
