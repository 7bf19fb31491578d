"""A check that found nothing need not look again until something that it read has changed.

What a check reads is not declared but watched while it runs: it gets the same Look behind a thin
layer that takes note of each probe it asks about. Checks that look at the time, or at anything that
is not known here, run each time; so do those that found something, whose finding carries the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from inventory.node import Node
from probes.event import Finding, Sample, Scalar
from probes.expect import Peers
from probes.facts import NodeFacts
from probes.rule import Check, Look
from probes.rules import Rules

ALWAYS = "*"
"""Read by a check whose answer may change by itself."""
PEERS = "peers "
"""The majority of the role; no probe's name ends in a blank."""

_BY_PROBE = frozenset({"rates", "hours", "latest"})
"""Attributes of NodeFacts by (probe, device)."""
_TOPICS = {
    "used_ports": "infiniband", "hung": "hung ", "troubles": "troubles ", "gone": "gone ",
    "allocation": "allocation ", "ended_jobs": "allocation ", "ended_at": "allocation ",
}  # fmt: skip
"""Other attributes, and what changes them (NodeFacts.changed)."""
_T = TypeVar("_T")


class Quiet:
    """The checks of one node that found nothing, and what they read."""

    __slots__ = ("_passed", "_peers", "_rules", "_seen")

    def __init__(self) -> None:
        """Nothing has been judged."""
        self._passed: dict[Check, frozenset[str]] = {}
        self._peers: Peers | None = None
        self._rules: Rules | None = None
        self._seen = 0
        """NodeFacts.changes when all checks had been run or skipped last."""

    def run(self, checks: Iterable[Check], look: Look) -> list[Finding]:
        """As if all checks had run."""
        if look.rules is not self._rules:
            self._passed.clear()
        changed = {topic for topic, n in look.facts.changed.items() if n > self._seen}
        if look.peers is not self._peers:
            changed.add(PEERS)
        found: list[Finding] = []
        for check in checks:
            read = self._passed.get(check)
            if read is None or not read.isdisjoint(changed):
                found += self._run(check, look)
        self._seen, self._peers, self._rules = look.facts.changes, look.peers, look.rules
        return found

    def _run(self, check: Check, look: Look) -> list[Finding]:
        self._passed.pop(check, None)
        watched = _Look(look)
        found = list(check(cast("Look", watched)))
        if not found and ALWAYS not in watched.read:
            read = frozenset(watched.read)
            self._passed[check] = _same.setdefault(read, read)
        return found


_same: dict[frozenset[str], frozenset[str]] = {}
"""One object for all nodes; there are a few dozen."""


class _Look:
    """A Look that takes note of what is read."""

    __slots__ = ("_look", "facts", "read", "rules")

    def __init__(self, look: Look) -> None:
        self._look = look
        self.read = {""}
        self.rules = look.rules
        self.facts = _Facts(look.facts, self.read)

    @property
    def peers(self) -> Peers:
        self.read.add(PEERS)
        return self._look.peers

    @property
    def now(self) -> float:
        self.read.add(ALWAYS)
        return self._look.now


class _Facts:
    """NodeFacts that take note of what is read."""

    __slots__ = ("_facts", "_read", "node")

    def __init__(self, facts: NodeFacts, read: set[str]) -> None:
        self._facts = facts
        self._read = read
        self.node: Node = facts.node

    def devices(self, probe: str) -> Iterator[tuple[str, Sample]]:
        self._read.add(probe)
        return self._facts.devices(probe)

    def get(self, probe: str, device: str = "") -> Sample | None:
        self._read.add(probe)
        return self._facts.get(probe, device)

    def value(self, probe: str, device: str, metric: str) -> Scalar | None:
        self._read.add(probe)
        return self._facts.value(probe, device, metric)

    def gpu_label(self, device: str) -> str:
        self._read.update(("gpu", "inventory"))
        return self._facts.gpu_label(device)

    def __getattr__(self, name: str) -> Any:
        told = getattr(self._facts, name)
        if name in _BY_PROBE:
            return _ByProbe(told, self._read)
        self._read.add(_TOPICS.get(name, ALWAYS))
        return told


class _ByProbe(Mapping[tuple[str, str], _T], Generic[_T]):
    """A mapping by (probe, device) that takes note of the probes asked for."""

    __slots__ = ("_read", "_told")

    def __init__(self, told: Mapping[tuple[str, str], _T], read: set[str]) -> None:
        self._told = told
        self._read = read

    def __getitem__(self, key: tuple[str, str]) -> _T:
        self._read.add(key[0])
        return self._told[key]

    def get(self, key: tuple[str, str], default: Any = None) -> Any:
        self._read.add(key[0])
        return self._told.get(key, default)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self._read.add(ALWAYS)
        return iter(self._told)

    def __len__(self) -> int:
        self._read.add(ALWAYS)
        return len(self._told)
