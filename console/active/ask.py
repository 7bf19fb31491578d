"""What an operator asks of active tests, and what would become of it. Plain data."""

from __future__ import annotations

from msgspec import Struct

from console.active.results import Group, Level

LAUNCHES = ("ssh", "srun", "kubectl")
ENGINES = ("auto", "nccl-tests", "torch")
SCHEMES = ("auto", "shift", "full")

LIMIT_S = {
    Level.GPU: 120.0,
    Level.NODE: 120.0,
    Level.PAIRS: 120.0,
    Level.RAILS: 180.0,
    Level.CLUSTER: 300.0,
}
"""Hard limit of one run where none is asked for; our estimates, a smoke test takes 10 to 30 s."""

START_S = 20.0
"""Of a run beyond its limit: the order's way there, a start of torch, the end's way back."""


class Asked(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One campaign as asked for. Together with the runs so far it decides what is run next."""

    nodes: tuple[str, ...]
    """Inventory names, in natural order."""
    level: Level
    scheme: str = "auto"
    """Of pairs: one of SCHEMES."""
    seed: int = 0
    """Of the random pairs."""
    limit_s: float | None = None
    """Hard limit of one run; None is LIMIT_S of the level."""
    total_s: float | None = None
    """Hard limit of the whole campaign; None is the most that its rounds may take."""
    force: bool = False
    """The operator owns these nodes: also busy ones, and the cap does not hold for them."""
    engine: str = "auto"
    launch: str = "ssh"
    reservation: str = ""
    """Of Slurm: its nodes count as reserved by us."""
    partition: str = ""
    mpi: str = ""
    """srun's --mpi."""
    min_bytes: int | None = None
    max_bytes: int | None = None

    @property
    def run_s(self) -> float:
        """Hard limit of one run, s."""
        return self.limit_s or LIMIT_S[self.level]


class CampaignPlan(Struct, frozen=True, kw_only=True):
    """What a campaign would do, before anybody confirms it."""

    id: str
    asked: Asked
    willing: tuple[str, ...]
    """Nodes that would be tested, in natural order."""
    refused: dict[str, str]
    """Node -> why it is left alone."""
    disturbs: dict[str, str] = {}
    """Node -> what a forced test disturbs there: to be confirmed."""
    counted: tuple[str, ...] = ()
    """Willing nodes in service: of these at most the cap's number is tested at once."""
    reserved: tuple[str, ...] = ()
    """Nodes of the reservation that was named."""
    first: tuple[Group, ...] = ()
    """The first round. Later ones depend on what it finds."""
    batches: int = 0
    """Parts of the first round that run one after the other, because of the cap."""
    rounds_likely: int = 0
    """What a round finds decides on the next, so this is a guess for the time that is left."""
    rounds_at_most: int = 0
    at_most_s: float = 0.0
    """Hard limit of the whole campaign."""
    notes: tuple[str, ...] = ()
    """Sentences worth reading before it begins."""
