"""A check that found nothing need not look again until something that it read has changed.

What a check reads is not declared but watched while it runs: it gets the same Look behind a thin
layer that takes note of each probe it asks about, and of single readings with their values: a limit
that is read every second and never changes is no news. Checks that look at the time, or at anything
not known here, run each time; so do those that found something, as findings carry the time.
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
LABELS = "labels "
VALUES_MOST = 32
"""Single readings remembered of a check: two of 16 GPUs. Of more, any answer counts."""

IN_VAIN, WATCH_AGAIN = 3, 20
"""Watching costs a third of a check: one that must run each time is watched now and then only."""

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

    __slots__ = ("_passed", "_peers", "_restless", "_rules", "_seen")

    def __init__(self) -> None:
        """Nothing has been judged."""
        self._passed: dict[Check, _Read] = {}
        self._restless: dict[Check, int] = {}
        """Looks in a row for which watching was in vain."""
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
            if read is None or not read.same(look.facts, changed):
                found += self._run(check, look)
            elif check in self._restless:
                del self._restless[check]
        self._seen, self._peers, self._rules = look.facts.changes, look.peers, look.rules
        return found

    def _run(self, check: Check, look: Look) -> list[Finding]:
        self._passed.pop(check, None)
        vain = self._restless[check] = self._restless.get(check, 0) + 1
        if IN_VAIN < vain < WATCH_AGAIN:
            return list(check(look))
        watched = _Look(look)
        found = list(check(cast("Look", watched)))
        if not found and ALWAYS not in watched.read:
            self._passed[check] = _Read(watched.read, watched.values)
        if vain >= WATCH_AGAIN:
            self._restless[check] = IN_VAIN
        return found


_same: dict[Any, Any] = {}
"""One object for all nodes of what they have in common."""
SAME_MOST = 4096
"""A few dozen are usual; what hostile nodes bring is not shared."""


def _shared(told: _T) -> _T:
    return cast("_T", _same.setdefault(told, told) if len(_same) < SAME_MOST else told)


class _Read:
    """What a check read: whole answers by topic, and single readings."""

    __slots__ = ("_names", "_topics", "_values")

    def __init__(self, topics: set[str], values: dict[tuple[str, str, str], Scalar | None]) -> None:
        few = {key: value for key, value in values.items() if key[0] not in topics}
        if len(few) > VALUES_MOST:
            topics, few = topics | {probe for probe, _, _ in few}, {}
        self._topics = _shared(frozenset(topics))
        self._names = _shared(tuple(few))
        self._values = tuple(few.values())

    def same(self, facts: NodeFacts, changed: set[str]) -> bool:
        """Whether all of it reads as it did."""
        if not self._topics.isdisjoint(changed):
            return False
        for name, then in zip(self._names, self._values, strict=True):
            now = facts.value(*name)
            if now is not then and (type(now) is not type(then) or now != then):
                return False
        return True


class _Look:
    """A Look that takes note of what is read."""

    __slots__ = ("_look", "facts", "read", "rules", "values")

    def __init__(self, look: Look) -> None:
        self._look = look
        self.read = {""}
        self.values: dict[tuple[str, str, str], Scalar | None] = {}
        self.rules = look.rules
        self.facts = _Facts(look.facts, self.read, self.values)

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

    __slots__ = ("_facts", "_read", "_values", "hours", "latest", "node", "rates")

    def __init__(
        self,
        facts: NodeFacts,
        read: set[str],
        values: dict[tuple[str, str, str], Scalar | None],
    ) -> None:
        self._facts = facts
        self._read = read
        self._values = values
        self.node: Node = facts.node

    def devices(self, probe: str) -> Iterator[tuple[str, Sample]]:
        self._read.add(probe)
        return self._facts.devices(probe)

    def get(self, probe: str, device: str = "") -> Sample | None:
        self._read.add(probe)
        return self._facts.get(probe, device)

    def value(self, probe: str, device: str, metric: str) -> Scalar | None:
        found = self._values[probe, device, metric] = self._facts.value(probe, device, metric)
        return found

    def gpu_label(self, device: str) -> str:
        self._read.add(LABELS)
        return self._facts.gpu_label(device)

    def __getattr__(self, name: str) -> Any:
        told = getattr(self._facts, name)
        if name in _BY_PROBE:
            told = _ByProbe(told, self._read)
            setattr(self, name, told)
            return told
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
