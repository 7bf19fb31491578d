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
from console.tui.budget import OutOfTime, within
from console.tui.filter import Filter, FilterError
from console.tui.summary import Summary, summarise
from console.tui.views.table import check_order
from console.tui.words import N_, t
from probes.event import Severity

Key = Callable[[Summary, int], Any]
WORST_FIRST = sorted(Severity, key=lambda severity: -severity.rank)

_LAST = float("-inf")
SEARCH_S = 0.1
"""Processor time for a regular expression on all nodes: 4,000 take 2 to 25 ms."""


def _highest(value: float | None) -> float:
    return -(_LAST if value is None else value)


def _lowest(value: float | None) -> float:
    return float("inf") if value is None else value


SORTS: dict[str, tuple[str, Key]] = {
    "verdict": (N_("worst first"), lambda s, i: (-s.severity.rank, i)),
    "node": (N_("by name"), lambda _s, i: i),
    "temp": (N_("hottest GPU first"), lambda s, i: (_highest(s.gpus.temp_c), i)),
    "util": (N_("busiest first"), lambda s, i: (_highest(s.gpus.util_percent), i)),
    "power": (N_("most power first"), lambda s, i: (_highest(s.gpus.power_w), i)),
    "clock": (N_("slowest clock first"), lambda s, i: (_lowest(s.gpus.clock_mhz), i)),
    "mem": (N_("fullest memory first"), lambda s, i: (_highest(s.gpus.mem_percent), i)),
    "sched": (N_("by scheduler state"), lambda s, i: (s.sched or "~", i)),
    "job": (N_("by job"), lambda s, i: (s.jobs or ("~",), i)),
    "age": (N_("oldest data first"), lambda s, i: (_lowest(s.latest) if s.latest else 0.0, i)),
}
"""Name -> what it means and its key; unknown readings come last. `i` is the natural order."""


def _too_long() -> FilterError:
    return FilterError(t("looking for this takes too long"), 1, t("make the expression simpler"))


class Roster:
    """Order, filter and marks over a Fleet."""

    def __init__(self, fleet: Fleet) -> None:
        """All nodes shown, worst first, nothing marked. `fleet` is what is shown (tui.still)."""
        self.fleet = fleet
        self.index = {name: i for i, name in enumerate(fleet.nodes)}
        self.filter = Filter()
        self._decided: dict[str, tuple[Summary, bool]] = {}
        """Node -> the summary that a searching filter saw, and whether it let it through."""
        self.sort = "verdict"
        self.reverse = False
        self.marked: set[str] = set()
        self._summaries: dict[str, Summary] = {}
        self._stale: dict[str, None] = dict.fromkeys(fleet.nodes)

    def changed(self, names: Iterable[str]) -> None:
        """These nodes have news; their summaries are rebuilt when somebody looks."""
        self._stale.update(dict.fromkeys(names))

    def forget(self) -> None:
        """The Fleet holds another moment: nothing known of any node is true any more."""
        self._summaries.clear()
        self._stale.clear()

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

    def narrow(self, text: str, now: float) -> None:
        """Show only what `text` lets through.

        Raises FilterError, also when looking takes too long; then the filter stays as it was.
        """
        before, decided, self._decided = self.filter, self._decided, {}
        self.filter = Filter(text)
        if self.filter.searches and not self._decide(now):
            self.filter, self._decided = before, decided
            raise _too_long()

    def shown(self, now: float) -> list[str]:
        """Names that the filter lets through, in natural order.

        A node that a regular expression could not be decided about in time is let through.
        """
        if not self.filter:
            return list(self.index)
        if not self.filter.searches:
            return [n for n in self.index if self.filter(self._subject(n, now, self.filter))]
        self._decide(now)
        return [n for n in self.index if n not in self._decided or self._decided[n][1]]

    def _decide(self, now: float) -> bool:
        """Apply a filter that may take any time to what changed; whether the time sufficed."""
        subjects = {n: self._subject(n, now, self.filter) for n in self.index}
        todo = [n for n, s in subjects.items() if self._decided.get(n, (None, True))[0] is not s]

        def work() -> None:
            while todo:
                name = todo[-1]
                self._decided[name] = subjects[name], self.filter(subjects[name])
                todo.pop()

        try:
            within(SEARCH_S, work)
        except OutOfTime:
            # The one that took the time is not tried again until it changes.
            if todo:
                self._decided[todo[-1]] = subjects[todo[-1]], True
        return not todo

    def order(self, now: float) -> list[str]:
        """Names of the nodes shown, in order. Uses summaries as they are; see `build`."""
        names: Iterable[str] = self.shown(now) if self.filter else self.index
        if self.sort == "verdict":
            return self._worst_first(names)
        if self.sort == "node":
            return sorted(names, key=self.index.__getitem__, reverse=self.reverse)
        key = SORTS[self.sort][1]
        known = self._known
        return sorted(names, key=lambda n: key(known(n), self.index[n]), reverse=self.reverse)

    def _worst_first(self, names: Iterable[str]) -> list[str]:
        """Names come in natural order, so sorting is dealing them out: 0.5 ms for 4,000."""
        heaps: dict[Severity, list[str]] = {severity: [] for severity in WORST_FIRST}
        verdict = self.fleet.verdict
        for name in names:
            heaps[verdict(name)].append(name)
        found = [name for heap in heaps.values() for name in heap]
        return found[::-1] if self.reverse else found

    def _known(self, name: str) -> Summary:
        return self._summaries.get(name) or self.summary(name)

    def _subject(self, name: str, now: float, wanted: Filter) -> Summary:
        summary = self._known(name)
        if wanted.reads_age:
            return msgspec.structs.replace(summary, now=now)
        return summary

    def sort_by(self, name: str) -> None:
        """Choose an order; the same one again reverses it. Raises UsageError for an unknown one."""
        check_order(SORTS, name)
        self.reverse = name == self.sort and not self.reverse
        self.sort = name

    def mark(self, names: Iterable[str], on: bool = True) -> None:
        """Mark or unmark nodes."""
        for name in names:
            (self.marked.add if on else self.marked.discard)(name)
            self._summaries[name] = msgspec.structs.replace(self.summary(name), marked=on)

    def labels(self) -> list[str]:
        """Names of the inventory's labels, as filters write them."""
        nodes = self.fleet.nodes.values()
        return sorted({name.lower() for facts in nodes for name in facts.node.labels})

    def values(self, field: str) -> set[str]:
        """What a word field says now, on all nodes that were looked at."""
        return {word for summary in self._summaries.values() for word in summary.words(field)}

    def matching(self, text: str, now: float) -> list[str]:
        """Names that a filter expression matches, shown or not. Raises FilterError."""
        wanted = Filter(text)
        subjects = [self._subject(name, now, wanted) for name in self.index]
        try:
            found = within(SEARCH_S, lambda: [s.name for s in subjects if wanted(s)])
        except OutOfTime:
            raise _too_long() from None
        return found

    def chosen(self, cursor: str | None) -> list[str]:
        """What an action is about: the marked nodes in natural order, else the cursor's node."""
        if self.marked:
            return sorted(self.marked, key=self.index.__getitem__)
        return [cursor] if cursor is not None else []
