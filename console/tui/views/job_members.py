"""Which nodes each job has, kept up with the news. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from console.fleet import Fleet
from console.tui.views.job_figures import Idle
from console.tui.views.job_shares import IDLE, Share, shares
from inventory.scheduler import Job
from probes.event import Sample


class _Seen(Struct, frozen=True):
    """What a node's shares were made from."""

    jobs: tuple[Job, ...] | None
    processes: Sample | None
    gpus: int


class Members:
    """Jobs of all nodes."""

    def __init__(self, names: Iterable[str]) -> None:
        """Nothing known; `names` in natural order."""
        self.jobs: dict[str, dict[str, Share]] = {}
        """Job's key -> its nodes, in natural order."""
        self.of: dict[str, list[Share]] = {}
        """Node -> its jobs."""
        self.scheduled: set[str] = set()
        """Nodes of which a scheduler has spoken."""
        self.idle_jobs: frozenset[str] = frozenset()
        """Names of the jobs with GPUs that do nothing."""
        self.index = {name: i for i, name in enumerate(names)}
        self._seen: dict[str, _Seen] = {}
        self._unsorted: set[str] = set()

    def update(self, fleet: Fleet, names: Collection[str]) -> list[str]:
        """Nodes that no job is on any more."""
        left = []
        for name in names:
            facts = fleet.nodes[name]
            told = facts.allocation
            (self.scheduled.discard if told is None else self.scheduled.add)(name)
            seen = _Seen(
                told.jobs if told is not None else None,
                facts.latest.get(("processes", "")),
                len(facts.latest),
            )
            before = self._seen.get(name)
            if before is None or not _same(before, seen):
                self._seen[name] = seen
                self._share(name, shares(facts))
                if not self.of[name]:
                    left.append(name)
        self._sort()
        return left

    def take_idle(self, found: dict[str, Idle]) -> None:
        """The last row but one: GPUs that jobs hold and do not use."""
        self.idle_jobs = frozenset().union(*(one.jobs for one in found.values()))
        self.jobs.pop(IDLE, None)
        if found:
            self.jobs[IDLE] = {
                name: Share(key=IDLE, job=None, user="", devices=found[name].devices)
                for name in sorted(found, key=self.index.__getitem__)
            }

    def _share(self, name: str, now: list[Share]) -> None:
        before = self.of.get(name, [])
        self.of[name] = now
        keys = {share.key for share in now}
        for share in before:
            if share.key not in keys:
                members = self.jobs[share.key]
                del members[name]
                if not members:
                    del self.jobs[share.key]
        for share in now:
            members = self.jobs.setdefault(share.key, {})
            if name not in members:
                self._unsorted.add(share.key)
            members[name] = share

    def _sort(self) -> None:
        place = self.index.__getitem__
        for key in self._unsorted & self.jobs.keys():
            members = self.jobs[key]
            self.jobs[key] = {name: members[name] for name in sorted(members, key=place)}
        self._unsorted.clear()


def _same(before: _Seen, now: _Seen) -> bool:
    return before.processes is now.processes and before.gpus == now.gpus and before.jobs == now.jobs
