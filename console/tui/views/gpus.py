"""The heat map of all GPUs: a cell each, in one metric; what is unlike its peers stands out. Pure.

A cell's character is the level on the scale of the fleet; its colour, and an arrow when it is far
off, say how it stands against its peers (see gpu_scale). A GPU with a finding shows its sign.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from enum import IntEnum

from console.fleet import Fleet
from console.tui.summary import STALE_S
from console.tui.text import Cell
from console.tui.theme import ASCII, Glyphs
from console.tui.views.gpu_cells import NOTHING, SIDES, WARN, Block, figure, head, levels
from console.tui.views.gpu_metrics import BY_NAME, METRICS, Gpu, Kind, State
from console.tui.views.gpu_read import NodeGpus, read
from console.tui.views.gpu_scale import Peers, Usual, decade
from console.tui.words import t
from inventory.errors import UsageError
from probes.event import Severity

AT_ONCE = 256
"""Nodes measured at once when another metric is chosen; the rest follows in slices."""
MEASURED_EVERY_S = 5.0
"""What is usual moves slowly, and colours should not flicker."""
MANY = 100
"""A count from which it has the strongest colour."""


class Weight(IntEnum):
    """What a node's GPUs are worth on the minimap."""

    QUIET = 0
    UNKNOWN = 1
    ODD = 2
    WARN = 3
    CRITICAL = 4


class HeatMap:
    """All GPUs of a Fleet in one metric."""

    def __init__(self, fleet: Fleet) -> None:
        """Nothing read yet."""
        self.fleet = fleet
        self.metric = METRICS[0]
        self.most = max((facts.node.gpus or 0 for facts in fleet.nodes.values()), default=0) or 1
        """Most GPUs of a node so far."""
        self.usual = Usual(self.metric, {})
        """What the last measurement found."""
        self._nodes: dict[str, NodeGpus] = {}
        self._values: dict[str, tuple[float | None, ...]] = {}
        self._odd: dict[str, tuple[Weight, int]] = {}
        """Node -> its weight, and how many of its GPUs are odd or have a finding."""
        self._seen: dict[str, float | None] = {}
        self._unread: dict[str, None] = {}
        self._later: dict[str, None] = {}
        """Nodes whose readings may be a measurement old."""
        self._unweighed: dict[str, None] = {}
        self._measured_at: float | None = None
        self._blocks: dict[str, tuple[tuple[bool, bool, int, int, bool], Block]] = {}

    def update(self, names: Collection[str], in_sight: Collection[str] = ()) -> None:
        """These nodes have news. `build` reads at once what is in sight or has other findings; the
        rest waits for the next measurement, for 4,000 nodes take 0.3 s of CPU."""
        fleet = self.fleet
        for name in names:
            self._seen[name] = fleet.seen.get(name)
            node = self._nodes.get(name)
            told = fleet.findings[name], fleet.nodes[name].status
            same = node is not None and node.told[0] is told[0] and node.told[1] is told[1]
            (self._later if same else self._unread)[name] = None
        for name in in_sight:
            if self._later.pop(name, self) is None:
                self._unread[name] = None

    @property
    def waiting(self) -> bool:
        """Whether something is to be read at once."""
        return bool(self._unread)

    def choose(self, name: str = "") -> None:
        """Show another metric, the next one without a name. Raises UsageError."""
        if name and name not in BY_NAME:
            raise UsageError(
                t("there is no metric {name!r} here", name=name),
                instead=t("one of {names}", names=" ".join(BY_NAME)),
            )
        at = METRICS.index(self.metric)
        self.metric = BY_NAME[name] if name else METRICS[(at + 1) % len(METRICS)]
        self._values.clear()
        names = list(self._nodes)
        self._measure(names[:: max(1, len(names) // AT_ONCE)])
        self._measured_at = None

    def build(self, budget_s: float, now: float) -> bool:
        """Read and measure for at most about `budget_s`; False while something is left."""
        until = time.perf_counter() + budget_s
        due = self._measured_at is None or now - self._measured_at >= MEASURED_EVERY_S
        if due and self._later:
            self._unread.update(self._later)
            self._later.clear()
        while self._unread:
            self._read(next(iter(self._unread)))
            if time.perf_counter() > until:
                return False
        if due:
            return self._measured(until, now)
        while self._unweighed:
            self._weigh(next(iter(self._unweighed)))
            if time.perf_counter() > until:
                return False
        return True

    def _measured(self, until: float, now: float) -> bool:
        if len(self._values) < len(self._nodes):
            for name in self._nodes:
                self._value(name)
                if time.perf_counter() > until:
                    return False
        self._measure(list(self._nodes))
        self._measured_at = now
        return False

    def _measure(self, names: Sequence[str]) -> None:
        groups: dict[tuple[str, str], list[float]] = {}
        for name in names:
            node = self._nodes[name]
            if node.current:
                group = groups.setdefault((node.role, node.job), [])
                group += [value for value in self._value(name) if value is not None]
        before = self.usual.scale if self.usual.metric is self.metric else None
        self.usual = Usual(self.metric, groups, before)
        self._unweighed = dict.fromkeys(self._nodes)
        self._blocks.clear()

    def _read(self, name: str) -> None:
        self._unread.pop(name, None)
        self._later.pop(name, None)
        node = self._nodes[name] = read(self.fleet, name)
        self.most = max(self.most, len(node.gpus))
        self._values.pop(name, None)
        self._blocks.pop(name, None)
        self._weigh(name)

    def node(self, name: str) -> NodeGpus:
        """A node as it was last read."""
        if name not in self._nodes:
            self._read(name)
        return self._nodes[name]

    def age(self, name: str, now: float) -> float | None:
        """Seconds since the node's last sample; None when there never was one."""
        seen = self._seen.get(name)
        return None if seen is None else max(0.0, now - seen)

    def stale(self, name: str, now: float) -> bool:
        """Whether its readings may not be shown as present ones."""
        age = self.age(name, now)
        return not self.node(name).current or age is None or age > STALE_S

    def values(self, name: str) -> tuple[float | None, ...]:
        """What its GPUs read in the metric, in its unit."""
        self.node(name)
        return self._value(name)

    def _value(self, name: str) -> tuple[float | None, ...]:
        values = self._values.get(name)
        if values is None:
            take, gpus = self.metric.read, self._nodes[name].gpus
            values = self._values[name] = tuple([take(gpu) for gpu in gpus])
        return values

    def _weigh(self, name: str) -> None:
        self._unweighed.pop(name, None)
        weights = self._weights(name)
        odd = sum(1 for weight in weights if weight >= Weight.ODD)
        self._odd[name] = max(weights, default=Weight.UNKNOWN), odd

    def _weights(self, name: str) -> list[Weight]:
        node, values = self._nodes[name], self._value(name)
        peers, _ = self.usual.peers(node.role, node.job)
        if not node.current:
            return [self._weight(gpu, None, None) for gpu in node.gpus]
        pairs = zip(node.gpus, values, strict=True)
        return [self._weight(gpu, value, peers) for gpu, value in pairs]

    def _weight(self, gpu: Gpu, value: float | None, peers: Peers | None) -> Weight:
        severity = gpu.severity
        if severity.rank >= WARN:
            return Weight.CRITICAL if severity is Severity.CRITICAL else Weight.WARN
        if gpu.state is not State.ANSWERS:
            return Weight.UNKNOWN
        if value is None:
            return Weight.QUIET
        if self.metric.kind is Kind.COUNT:
            return Weight.ODD if value else Weight.QUIET
        return Weight.ODD if peers is not None and abs(peers.side(value)) > 1 else Weight.QUIET

    def weight(self, name: str) -> Weight:
        """The worst of its GPUs; unknown until it was read."""
        return self._odd[name][0] if name in self._odd else Weight.UNKNOWN

    def headline(self, names: Collection[str]) -> str:
        """GPUs of these nodes that are odd or have a finding, and nodes that cannot be judged."""
        odd = sum(self._odd[name][1] for name in names if name in self._odd)
        nodes = self._nodes
        unheard = sum(name not in nodes or not nodes[name].current for name in names)
        if unheard:
            return t("{n} odd, {unheard} unheard", n=odd, unheard=unheard)
        return t("{n} odd", n=odd)

    def odd_gpus(self, name: str) -> list[int]:
        """Places of the node's GPUs that are odd or have a finding."""
        self.node(name)
        return [i for i, weight in enumerate(self._weights(name)) if weight >= Weight.ODD]

    def block(
        self, name: str, width: int, cell: int, glyphs: Glyphs, now: float, *, marked: bool
    ) -> Block:
        """A node as drawn, its name in `width` cells, each GPU in `cell` (see Layout)."""
        node, stale = self.node(name), self.stale(name, now)
        key = stale, marked, width, cell, glyphs is ASCII
        kept = self._blocks.get(name)
        if kept is None or kept[0] != key:
            name_cells = head(name, node, width, glyphs, stale=stale, marked=marked)
            gpus = self._cells(name, node, glyphs) or (Cell(glyphs.missing, "dim"),)
            if cell > 1:
                gpus = self._numbers(name, gpus, cell, glyphs)
            if stale:
                gpus = tuple(Cell(one.text, "stale") for one in gpus)
            kept = self._blocks[name] = key, Block(name_cells, gpus)
        return kept[1]

    def _cells(self, name: str, node: NodeGpus, glyphs: Glyphs) -> tuple[Cell, ...]:
        peers, _ = self.usual.peers(node.role, node.job)
        pairs = zip(node.gpus, self._value(name), strict=True)
        return tuple([self.cell(gpu, value, peers, glyphs) for gpu, value in pairs])

    def _numbers(
        self, name: str, cells: tuple[Cell, ...], width: int, glyphs: Glyphs
    ) -> tuple[Cell, ...]:
        """Signs stay, readings take the place of levels."""
        if self.metric.kind is Kind.VERDICT:
            return tuple(Cell(cell.text.rjust(width), cell.style) for cell in cells)
        found = []
        quiet = (*levels(glyphs), NOTHING, glyphs.missing)
        for cell, value in zip(cells, self._value(name) or (None,), strict=True):
            sign = "" if cell.text in quiet else cell.text
            number = figure(value, glyphs.missing)
            found.append(Cell((sign + number).rjust(width), cell.style))
        return tuple(found)

    def cell(self, gpu: Gpu, value: float | None, peers: Peers | None, glyphs: Glyphs) -> Cell:
        """The cell of one GPU."""
        severity = gpu.severity
        if severity.rank >= WARN:
            return Cell(glyphs.severity(severity), severity.value)
        if gpu.state is State.LOST:
            return Cell(glyphs.critical, "dim")
        if gpu.state is State.SILENT:
            return Cell(glyphs.unknown, "unknown")
        if self.metric.kind is Kind.VERDICT and gpu.state is State.ANSWERS:
            quiet = severity is Severity.OK
            return Cell(NOTHING, "dim") if quiet else Cell(glyphs.info, "info")
        if value is None:
            return Cell(glyphs.missing, "dim")
        return self._level(value, peers, glyphs)

    def _level(self, value: float, peers: Peers | None, glyphs: Glyphs) -> Cell:
        marks = levels(glyphs)
        if self.metric.kind is Kind.COUNT:
            style = "heat7" if value >= MANY else "heat6"
            level = marks[decade(value, len(marks) - 1)]
            return Cell(level, style) if value else Cell(NOTHING, "dim")
        side = peers.side(value) if peers is not None else 0
        if abs(side) > 1:
            return Cell(glyphs.up if side > 0 else glyphs.down, SIDES[side])
        return Cell(marks[self.usual.scale.level(value, len(marks) - 1)], SIDES[side])
