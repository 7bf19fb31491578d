"""Baselines out of the file: what was usual for each device as it is now. See probes/own.py."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping
from statistics import median
from typing import NamedTuple

from console.memory.metrics import METRICS, unpack
from console.memory.thin import BASE, DAY_S
from probes.own import Baseline

Key = tuple[str, str, str]
TESTS_S = 180 * DAY_S
"""Results of tests that are older are no baseline (our estimate: drivers change sooner)."""


class _Live(NamedTuple):
    """Usual readings of one device under load."""

    series: int
    kind: int
    n: int
    since: float
    values: tuple[float, ...]


class Past(Mapping[Key, Baseline]):
    """(node, device, metric) -> baseline. 4,000 nodes x 8 GPUs take some 20 MB.

    Readings are of the card, driver and power limit that were seen last; figures of tests are of
    the engine, version and number of ranks that were used last.
    """

    def __init__(self, live: dict[tuple[str, str], _Live], tests: dict[Key, Baseline]) -> None:
        """By `read`."""
        self._live, self._tests = live, tests

    def __getitem__(self, key: Key) -> Baseline:
        """Raises KeyError where nothing is known."""
        found = self._tests.get(key)
        if found is not None:
            return found
        node, device, metric = key
        live = self._live[node, device]
        names = METRICS[live.kind]
        value = live.values[names.index(metric)] if metric in names else math.nan
        if math.isnan(value):
            raise KeyError(key)
        return Baseline(value, live.n, live.since)

    def __iter__(self) -> Iterator[Key]:
        for (node, device), live in list(self._live.items()):
            for metric, value in zip(METRICS[live.kind], live.values, strict=True):
                if not math.isnan(value):
                    yield node, device, metric
        yield from self._tests

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Whether anything is known; counting would look at every card."""
        return bool(self._live or self._tests)

    def confirm(self, node: str, device: str, series: int) -> None:
        """This series is being read now; what is known of another card or driver is forgotten."""
        live = self._live.get((node, device))
        if live is not None and live.series != series:
            del self._live[node, device]


EMPTY = Past({}, {})


def read(db: sqlite3.Connection, now: float, *, engine: str = "", version: str = "") -> Past:
    """All baselines; with an engine and version those of tests that used just these."""
    return Past(_live(db), _tests(db, now, engine, version))


def _live(db: sqlite3.Connection) -> dict[tuple[str, str], _Live]:
    found: dict[tuple[str, str], _Live] = {}
    query = """SELECT node.name, device, kind, series.id, baseline.n, since, packed
      FROM series JOIN node ON node.id = series.node
      LEFT JOIN baseline ON baseline.series = series.id ORDER BY last_at, series.id"""
    for name, device, kind, series, n, since, packed in db.execute(query):
        if n is None or kind not in METRICS:
            found.pop((name, device), None)  # other conditions now, of which nothing is known yet
        else:
            found[name, device] = _Live(series, kind, n, float(since), unpack(kind, packed))
    return found


def _tests(db: sqlite3.Connection, now: float, engine: str, version: str) -> dict[Key, Baseline]:
    query = """SELECT node.name, device, what, engine, version, ranks, at, value, good
      FROM test JOIN node ON node.id = test.node
      WHERE value IS NOT NULL AND at >= ? ORDER BY at DESC"""
    used: dict[Key, tuple[str, str, int]] = {}
    values: dict[Key, list[tuple[float, float]]] = {}
    for name, device, what, by, of, ranks, at, value, good in db.execute(query, (now - TESTS_S,)):
        if (engine and by != engine) or (version and of != version):
            continue
        key = name, device, what
        if used.setdefault(key, (by, of, ranks)) != (by, of, ranks) or not good:
            continue
        results = values.setdefault(key, [])
        if len(results) < BASE:
            results.append((value, at))
    return {
        key: Baseline(median(value for value, _ in results), len(results), results[-1][1])
        for key, results in values.items()
    }
