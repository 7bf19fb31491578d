"""The Roster: which nodes are shown, in which order, and which are marked. No Textual here.

It reads the Fleet, keeps one Summary per node and rebuilds only those that changed. Marks belong to
node names, so they survive sorting, filtering and updates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from console.fleet import Fleet
from console.tui.filter import Filter
from console.tui.summary import Summary, summarise
from inventory.errors import UsageError
from probes.event import Severity

Key = Callable[[Summary, int], Any]

_LAST = float("-inf")


def _highest(value: float | None) -> float:
    return -(_LAST if value is None else value)


def _lowest(value: float | None) -> float:
    return float("inf") if value is None else value


SORTS: dict[str, tuple[str, Key]] = {
    "verdict": ("worst first", lambda s, i: (-s.severity.rank, i)),
    "node": ("by name", lambda _s, i: i),
    "temp": ("hottest GPU first", lambda s, i: (_highest(s.gpus.temp_c), i)),
    "util": ("busiest first", lambda s, i: (_highest(s.gpus.util_percent), i)),
    "power": ("most power first", lambda s, i: (_highest(s.gpus.power_w), i)),
    "clock": ("slowest clock first", lambda s, i: (_lowest(s.gpus.clock_mhz), i)),
    "mem": ("fullest memory first", lambda s, i: (_highest(s.gpus.mem_percent), i)),
    "sched": ("by scheduler state", lambda s, i: (s.sched or "~", i)),
    "job": ("by job", lambda s, i: (s.jobs or ("~",), i)),
    "age": ("oldest data first", lambda s, i: (_lowest(s.latest) if s.latest else 0.0, i)),
}
"""Name -> what it means and its key; unknown readings come last. `i` is the natural order."""


class Roster:
    """Order, filter and marks over a Fleet."""

    def __init__(self, fleet: Fleet) -> None:
        """All nodes shown, worst first, nothing marked."""
        self.fleet = fleet
        self.index = {name: i for i, name in enumerate(fleet.nodes)}
        self.filter = Filter()
        self.sort = "verdict"
        self.reverse = False
        self.marked: set[str] = set()
        self._summaries: dict[str, Summary] = {}
        self._stale: dict[str, None] = dict.fromkeys(fleet.nodes)
        self._held: set[str] | None = None
        """Nodes with news since the roster was frozen; None while it is not."""

    def changed(self, names: Iterable[str]) -> None:
        """These nodes have news; their summaries are rebuilt when somebody looks."""
        if self._held is not None:
            self._held.update(names)
        else:
            self._stale.update(dict.fromkeys(names))

    def freeze(self) -> None:
        """Keep every summary as it is now, whatever the Fleet learns."""
        self.build(float("inf"))
        self._held = set()

    def thaw(self) -> None:
        """Follow the Fleet again."""
        held, self._held = self._held or set(), None
        self.changed(held)

    def summary(self, name: str) -> Summary:
        """The node's summary, rebuilt if the node changed since."""
        if name in self._stale or name not in self._summaries:
            self._stale.pop(name, None)
            fleet = self.fleet
            self._summaries[name] = summarise(
                fleet.nodes[name],
                fleet.findings[name],
                fleet.verdict(name),
                fleet.seen.get(name),
                marked=name in self.marked,
            )
        return self._summaries[name]

    def build(self, budget_s: float) -> bool:
        """Rebuild summaries for at most about `budget_s`; False while some are left."""
        started = time.perf_counter()
        while self._stale:
            self.summary(next(iter(self._stale)))
            if time.perf_counter() - started > budget_s:
                break
        return not self._stale

    @property
    def reads_values(self) -> bool:
        """Whether order or filter need every summary, not only verdict and name."""
        return bool(self.filter) or self.sort not in ("verdict", "node")

    def shown(self, now: float) -> list[str]:
        """Names that the filter lets through, in natural order."""
        if not self.filter:
            return list(self.index)
        return [n for n in self.index if self.filter(self._subject(n, now))]

    def order(self, now: float) -> list[str]:
        """Names of the nodes shown, in order. Uses summaries as they are; see `build`."""
        names: Iterable[str] = self.index
        if self.filter:
            names = [n for n in names if self.filter(self._subject(n, now))]
        if self.sort == "verdict":
            verdict, index = self._verdict, self.index
            return sorted(names, key=lambda n: (-verdict(n).rank, index[n]), reverse=self.reverse)
        if self.sort == "node":
            return sorted(names, key=self.index.__getitem__, reverse=self.reverse)
        key = SORTS[self.sort][1]
        known = self._known
        return sorted(names, key=lambda n: key(known(n), self.index[n]), reverse=self.reverse)

    def _verdict(self, name: str) -> Severity:
        return self.fleet.verdict(name) if self._held is None else self._known(name).severity

    def _known(self, name: str) -> Summary:
        return self._summaries.get(name) or self.summary(name)

    def _subject(self, name: str, now: float) -> Summary:
        summary = self._known(name)
        if "age" in self.filter.text:
            return msgspec.structs.replace(summary, now=now)
        return summary

    def sort_by(self, name: str) -> None:
        """Choose an order; the same one again reverses it. Raises UsageError for an unknown one."""
        if name not in SORTS:
            raise UsageError(f"there is no order {name!r}", instead="one of " + " ".join(SORTS))
        self.reverse = name == self.sort and not self.reverse
        self.sort = name

    def mark(self, names: Iterable[str], on: bool = True) -> None:
        """Mark or unmark nodes."""
        for name in names:
            (self.marked.add if on else self.marked.discard)(name)
            self._summaries[name] = msgspec.structs.replace(self.summary(name), marked=on)

    def matching(self, text: str) -> list[str]:
        """Names that a filter expression matches, shown or not. Raises FilterError."""
        wanted = Filter(text)
        return [name for name in self.index if wanted(self.summary(name))]

    def chosen(self, cursor: str | None) -> list[str]:
        """What an action is about: the marked nodes in natural order, else the cursor's node."""
        if self.marked:
            return sorted(self.marked, key=self.index.__getitem__)
        return [cursor] if cursor is not None else []
