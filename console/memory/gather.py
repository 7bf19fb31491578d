"""Samples of the last minutes become one row per device and interval. Pure: no clock, no file.

A GPU counts while it works: its idle clocks and watts are no baseline. A row belongs to a card
under fixed conditions (serial number, product, driver branch, power limit); a new card is a new
series.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from console.memory.metrics import ACTIVITY, GPU, NAN, PORT, TRAFFIC, USAGE, Thin, middle, pack
from probes.event import Sample, Scalar
from probes.loaded import IDLE_BIT, number
from probes.sanitise import clean

STEP_S = 300
"""Of the finest rows."""
LOADED_PERCENT = 50.0
"""Utilisation from which a GPU counts, as straggler.min_util_percent."""
LEAST_PORT_B_S = 1e8
"""A port that moves less is idle (our estimate: 0.2 % of NDR400)."""
PORT_GAP_S = 300.0
"""Between two answers of a port; longer says nothing of the interval."""
PORT_WORD_B = 4
"""A port's data counters count words of four bytes (Linux ABI sysfs-class-infiniband)."""
FLUSH_S = 60.0
"""A row that is still growing is written this often: what a kill -9 costs."""
DEVICES = 128
"""Most devices of one node; a node that names more is not believed."""
WAITING = 64
"""Answers of a node kept until its inventory is known."""
TEXT = 80
"""Longest name in the file."""


class Series(NamedTuple):
    """A device under conditions that make its readings comparable."""

    node: str
    device: str
    kind: int
    card: str = ""
    """Serial number, else UUID."""
    product: str = ""
    driver: str = ""
    """Branch, as 580."""
    limit_w: int = 0
    """Enforced power limit, to 5 W."""


class Row(NamedTuple):
    """One interval of one series, as far as it is known."""

    at: int
    series: Series
    label: str
    thin: Thin


class _Card(NamedTuple):
    card: str
    product: str
    label: str


class _Interval:
    """Readings of one device since the interval began."""

    __slots__ = ("activity", "at", "dirty_at", "good", "label", "loaded", "series", "usage")

    def __init__(self, at: int, series: Series, label: str) -> None:
        self.at, self.series, self.label = at, series, label
        self.usage, self.activity = array("f"), array("f")
        self.good = True
        self.loaded = False
        """Whether the last reading was under load: activity is judged by it."""
        self.dirty_at: float | None = None

    def row(self) -> Row:
        """Medians of each metric."""
        kind = self.series.kind
        names = USAGE if kind == GPU else TRAFFIC
        values = list(_middles(self.usage, len(names)))
        if kind == GPU:
            values += _middles(self.activity, len(ACTIVITY))
        count = len(self.usage) // len(names)
        return Row(self.at, self.series, self.label, Thin(count, self.good, pack(kind, values)))


def _middles(flat: array[float], width: int) -> Iterator[float]:
    return (middle(flat[column::width]) for column in range(width))


class Gather:
    """The intervals under way."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self._cards: dict[tuple[str, str], _Card] = {}
        self._drivers: dict[str, str] = {}
        self._devices: dict[str, int] = {}
        self._open: dict[tuple[str, str], _Interval] = {}
        self._dirty: dict[tuple[str, str], None] = {}
        """Open intervals with readings that no row tells yet, oldest first."""
        self._ended: list[Row] = []
        self._waiting: dict[str, list[tuple[Sample, bool]]] = {}
        self._ports: dict[tuple[str, str], Sample] = {}

    def add(self, sample: Sample, *, good: bool) -> None:
        """Take in an answer of gpu, gpm, infiniband or inventory; others are ignored.

        `good`: nothing worse than info is known of the device now.
        """
        if sample.probe == "inventory":
            self._inventory(sample)
        elif sample.probe == "gpu" and sample.device:
            self._gpu(sample, good)
        elif sample.probe == "gpm" and sample.device:
            self._activity(sample)
        elif sample.probe == "infiniband" and sample.device:
            self._port(sample, good)

    def rows(self, now: float, *, all_of_them: bool = False) -> list[Row]:
        """Rows of ended intervals, and of those under way that changed FLUSH_S ago."""
        found, self._ended = self._ended, []
        for key in list(self._dirty):
            interval = self._open[key]
            at = interval.dirty_at if interval.dirty_at is not None else now
            if not all_of_them and at > now - FLUSH_S and at <= now:
                break
            del self._dirty[key]
            interval.dirty_at = None
            found.append(interval.row())
            if interval.at + STEP_S < now:
                del self._open[key]
        return found

    def _inventory(self, sample: Sample) -> None:
        values, node = sample.values, sample.node
        if sample.device:
            mark = str(values.get("serial") or values.get("uuid") or "")
            product = str(values.get("name") or values.get("pci_device_id") or "")
            label = f"GPU{values['index']}" if "index" in values else ""
            card = _Card(clean(mark, TEXT), clean(product, TEXT), clean(label, TEXT))
            if (node, sample.device) in self._cards or self._room(node):
                self._cards[node, sample.device] = card
        elif values.get("driver_version"):
            branch = str(values["driver_version"]).partition(".")[0]
            self._drivers[node] = clean(branch, TEXT)
        else:
            return
        for waited, good in self._waiting.pop(node, ()):
            self.add(waited, good=good)

    def _room(self, node: str) -> bool:
        count = self._devices.get(node, 0)
        self._devices[node] = min(count + 1, DEVICES)
        return count < DEVICES

    def _gpu(self, sample: Sample, good: bool) -> None:
        node, device, values = sample.node, sample.device, sample.values
        card, driver = self._cards.get((node, device)), self._drivers.get(node)
        if card is None or driver is None:
            waiting = self._waiting.setdefault(node, [])
            if len(waiting) < WAITING:
                waiting.append((sample, good))
            return
        series = Series(node, device, GPU, card.card, card.product, driver, _limit(values))
        interval = self._interval(series, card.label, sample.at)
        interval.loaded = loaded(values)
        if interval.loaded:
            interval.usage.extend(_numbers(values, USAGE))
            self._read(interval, sample.at, good)

    def _activity(self, sample: Sample) -> None:
        interval = self._open.get((sample.node, sample.device))
        if interval is not None and interval.loaded and interval.at <= sample.at:
            numbers = _numbers(sample.values, ACTIVITY)
            if not all(map(math.isnan, numbers)):
                interval.activity.extend(numbers)

    def _port(self, sample: Sample, good: bool) -> None:
        node, device = sample.node, sample.device
        before = self._ports.get((node, device))
        if before is None and not self._room(node):
            return
        self._ports[node, device] = sample
        rates = None if before is None else _rates(before, sample)
        if rates is None or max(rates) < LEAST_PORT_B_S:
            return
        speed = number(sample.values, "rate_gbps")
        product = "" if speed is None else f"{speed:g} Gb/s"
        label = device.partition("/")[0]
        series = Series(node, device, PORT, product=product)
        interval = self._interval(series, clean(label, TEXT), sample.at)
        interval.usage.extend(rates)
        self._read(interval, sample.at, good)

    def _interval(self, series: Series, label: str, at: float) -> _Interval:
        """The one that this reading belongs to; what was open under other conditions ends."""
        key, begin = (series.node, series.device), int(at) // STEP_S * STEP_S
        interval = self._open.get(key)
        if interval is not None and (interval.at != begin or interval.series != series):
            if key in self._dirty:
                del self._dirty[key]
                self._ended.append(interval.row())
            interval = None
        if interval is None:
            interval = self._open[key] = _Interval(begin, series, label)
        return interval

    def _read(self, interval: _Interval, at: float, good: bool) -> None:
        interval.good = interval.good and good
        if interval.dirty_at is None:
            interval.dirty_at = at
            self._dirty[interval.series.node, interval.series.device] = None


def loaded(values: dict[str, Scalar]) -> bool:
    """Whether a GPU's clocks and watts say something: it works and does not call itself idle."""
    util, reasons = number(values, "util_percent"), values.get("reasons")
    idle = isinstance(reasons, int) and bool(reasons & IDLE_BIT)
    return util is not None and util >= LOADED_PERCENT and not idle


def _limit(values: dict[str, Scalar]) -> int:
    limit = number(values, "power_limit_w")
    return 0 if limit is None or limit > 1e6 else round(limit / 5) * 5


def _numbers(values: dict[str, Scalar], names: tuple[str, ...]) -> list[float]:
    found = (number(values, name) for name in names)
    return [NAN if value is None else value for value in found]


def _rates(before: Sample, now: Sample) -> tuple[float, float] | None:
    """Bytes a second received and sent; None after a reset, a gap or where there is no counter."""
    elapsed_s = now.clock - before.clock
    if not 0.2 <= elapsed_s <= PORT_GAP_S:
        return None
    found = []
    for name in ("port_rcv_data", "port_xmit_data"):
        first, last = number(before.values, name), number(now.values, name)
        if first is None or last is None or last < first:
            return None
        found.append((last - first) * PORT_WORD_B / elapsed_s)
    return found[0], found[1]
