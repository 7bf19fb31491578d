"""Active tests as the screen has them: the one that runs, those that are kept. No Textual here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from console.active import figures, store
from console.active.ask import Asked, CampaignPlan
from console.active.cells import safe
from console.active.results import Campaign
from console.tui.words import t
from inventory.errors import ConsoleError, UsageError
from probes.event import Severity

if TYPE_CHECKING:
    from console.active.campaign import Campaigner

SHOWN = 100
"""Newest campaigns listed."""


class Entry(NamedTuple):
    """One campaign as a line; its runs, up to 130,000, are not held for that."""

    id: str
    level: str
    nodes: str
    at: float
    duration_s: float
    verdict: Severity
    ended: int
    runs: int
    interrupted: bool
    running: bool
    eta_s: float | None
    say: str
    next_step: str
    drain: str


def entry(campaign: Campaign, *, running: bool = False, eta_s: float | None = None) -> Entry:
    """The line of a campaign."""
    worst = figures.worst_first(campaign)
    ended, runs = figures.progress(campaign)
    return Entry(
        campaign.id, campaign.level, figures.hosts(campaign.nodes, 200), campaign.at,
        campaign.duration_s, campaign.verdict, ended, runs, campaign.interrupted, running, eta_s,
        safe(worst[0].say) if worst else figures.unjudged(campaign),
        safe(worst[0].next_step) if worst else "", campaign.drain,
    )  # fmt: skip


class Bench:
    """Plans, starts, and finds again."""

    def __init__(self, engine: Any) -> None:
        """`engine` is console.engine.Engine; one without a state directory keeps nothing."""
        self._engine = engine
        self.running: Campaigner | None = None
        self.last: Campaign | None = None
        """The campaign that ended last in this console, also when it could not be written."""
        self.make: Callable[[CampaignPlan], Campaigner] = self._campaigner
        self._read: dict[str, tuple[int, Entry]] = {}
        """Id -> (mtime of its file in ns, its line)."""

    @property
    def folder(self) -> Path | None:
        """Where campaigns are kept."""
        state: Path | None = getattr(self._engine, "state", None)
        return state / "tests" if state is not None else None

    async def plan(self, asked: Asked) -> CampaignPlan:
        """What would be done. Raises ConsoleError."""
        from console.active import planning

        return await planning.plan(self._engine, asked)

    def _campaigner(self, plan: CampaignPlan) -> Campaigner:
        from console.active.campaign import Campaigner

        return Campaigner(self._engine, plan)

    def live(self) -> Entry | None:
        """The line of the campaign that runs."""
        if self.running is None:
            return None
        return entry(self.running.campaign, running=True, eta_s=self.running.eta_s)

    def known(self, name: str) -> Campaign | None:
        """The campaign of this id if it runs or was the last to end here."""
        if self.running is not None and self.running.campaign.id == name:
            return self.running.campaign
        return self.last if self.last is not None and self.last.id == name else None

    def kept(self) -> list[Entry]:
        """Lines of the kept campaigns, newest first. Blocks: reads files that changed."""
        found = []
        for path in self._files()[:SHOWN]:
            try:
                changed = path.stat().st_mtime_ns
            except OSError:
                continue
            before = self._read.get(path.stem)
            if before is None or before[0] != changed:
                line = self._load(path.stem)
                if line is None:
                    continue
                before = self._read[path.stem] = (changed, line)
            found.append(before[1])
        return found

    def _files(self) -> list[Path]:
        if self.folder is None:
            return []
        try:
            ours = [p for p in self.folder.iterdir() if store.ID.fullmatch(p.stem)]
        except OSError:
            return []
        return sorted((p for p in ours if p.suffix == ".json"), reverse=True)

    def _load(self, name: str) -> Entry | None:
        try:
            return entry(self.campaign(name))
        except ConsoleError:
            return None

    def campaign(self, name: str) -> Campaign:
        """A campaign by its id. Blocks unless it is known. Raises UsageError."""
        if (known := self.known(name)) is not None:
            return known
        if self.folder is None:
            raise UsageError(t("this console keeps no tests"))
        return store.load(self.folder, name).campaign
