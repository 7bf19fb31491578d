"""NodeFacts: everything we know about one node, built only by applying Events. Pure."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from inventory.node import Node
from inventory.scheduler import Allocation, Job
from probes.derive import Hour, Rates, rates, slow_growth
from probes.event import Event, NodeState, NodeStatus, Sample, Scalar
from probes.kernel_ring import KernelRing
from probes.reading import number

KERNEL_LINES = 400
"""Kernel lines kept per node: 400 x ~200 B x 4,000 nodes stays below 350 MB."""

PORT_ACTIVE = 4
"""State of an RDMA port that carries traffic."""

LABELLED = ("gpu", "inventory")
"""Probes whose index names a GPU."""

GONE_KEPT = 256
"""Vanished devices remembered per boot: 16 GPUs in every probe, many times over."""

ALIKE = frozenset({"nvlink_ends", "topology", "modules"})
"""Probes whose answers are the same on all nodes of a kind, and large: 80 KB where links have 18
ends a GPU. Equal ones are held once."""
SHARED_MOST = 4096

_GROWING = (dict, deque, KernelRing)

_T = TypeVar("_T")


_equal: dict[bytes, Any] = {}


def _shared(told: _T) -> _T:
    """The first object that reads the same. By its JSON: 1 is not True there."""
    if len(_equal) >= SHARED_MOST:
        _equal.clear()
    digest = hashlib.blake2b(msgspec.json.encode(told), digest_size=16).digest()
    first: _T = _equal.setdefault(digest, told)
    return first


class NodeFacts:
    """The latest answer of every probe, rates between two answers, and the conversation's state."""

    __slots__ = (
        "_kept", "_order", "allocation", "boot_id", "changed", "changes", "ended_at", "ended_jobs",
        "gone", "hours", "hung", "kernel", "latest", "node", "noise", "rates", "status", "troubles",
        "used_ports", "uuids",
    )  # fmt: skip

    def __init__(self, node: Node) -> None:
        """Nothing known yet: state pending."""
        self.node = node
        self.status: NodeStatus | None = None
        self.latest: dict[tuple[str, str], Sample] = {}
        self._order: dict[str, list[str]] = {}
        """Probe -> its devices, sorted; forgotten when the keys of `latest` change."""
        self._kept: dict[str, tuple[int, Any]] = {}
        self.rates: dict[tuple[str, str], Rates] = {}
        self.hours: dict[tuple[str, str], Hour] = {}
        """(probe, device) -> growth of rare counters, where there was any since boot."""
        self.used_ports: dict[str, float] = {}
        """RDMA ports that were active in some answer since boot, with their highest rate, Gb/s."""
        self.kernel = KernelRing(KERNEL_LINES)
        self.hung: dict[tuple[str, str], NodeStatus] = {}
        self.troubles: dict[str, NodeStatus] = {}
        """Probe -> why it failed as a whole."""
        self.noise: deque[str] = deque(maxlen=20)
        self.allocation: Allocation | None = None
        self.ended_jobs: tuple[Job, ...] = ()
        """Jobs that the scheduler had here when some of its jobs ended last."""
        self.ended_at = 0.0
        """When we first saw them gone, epoch seconds."""
        self.boot_id = ""
        self.gone: dict[tuple[str, str], Sample] = {}
        """(probe, device) -> last answer of a device that stopped being listed."""
        self.uuids: dict[str, str] = {}
        """GPU -> UUID of the card that was first seen there since boot."""
        self.changes = 0
        self.changed: dict[str, int] = {}
        """What changed -> the number of its last change: a probe's name (its samples, rates, hours,
        used ports), "" for everything at once, and with a blank at the end the rest."""

    def copy(self) -> NodeFacts:
        """The same facts, apart from then on. Samples are shared, as they never change: 0.1 ms."""
        other = NodeFacts.__new__(NodeFacts)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, _GROWING) else value)
        other.hours = {key: hour.copy() for key, hour in self.hours.items()}
        return other

    def apply(self, event: Event) -> None:
        """Take in one Event about this node."""
        match event:
            case Sample():
                self._sample(event)
            case NodeStatus():
                self._status(event)
            case Allocation():
                self._allocated(event)
            case _:
                pass

    def _touch(self, *topics: str) -> None:
        self.changes += 1
        self.changed.update(dict.fromkeys(topics, self.changes))

    def _allocated(self, event: Allocation) -> None:
        self._touch("allocation ")
        before, now = self.allocation, {job.id for job in event.jobs}
        ended = tuple(j for j in before.jobs if j.id not in now) if before is not None else ()
        if ended:
            self.ended_jobs, self.ended_at = ended, event.at
        self.allocation = event

    def _sample(self, sample: Sample) -> None:
        if sample.probe == "kernel_log":
            self.kernel.extend(sample.rows)
        self._touch(sample.probe)
        if sample.probe == "hello":
            self._hello(sample)
        if sample.probe in ALIKE:
            sample = structs.replace(
                sample, values=_shared(sample.values), rows=_shared(sample.rows)
            )
        key = (sample.probe, sample.device)
        before = self.latest.get(key)
        if sample.values.get("gone") is True:
            self._gone(key, before)
            return
        if self.gone.pop(key, None) is not None:
            self._touch("gone ")
        if before is not None and sample.values:
            step = rates(before, sample)
            if step is not None:
                self.rates[key] = step
                if slow_growth(step) and (key in self.hours or len(self.hours) < GONE_KEPT):
                    self.hours.setdefault(key, Hour()).add(step, sample.clock)
        if before is None:
            self._order.clear()
        if sample.probe in LABELLED and (
            before is None or before.values.get("index") != sample.values.get("index")
        ):
            self._touch("labels ")
        self.latest[key] = sample
        if sample.probe == "infiniband" and sample.values.get("state") == PORT_ACTIVE:
            self._used(sample)
        if sample.probe == "inventory" and "uuid" in sample.values:
            self.uuids.setdefault(sample.device, str(sample.values["uuid"]))
        if self.troubles.pop(sample.probe, None) is not None:
            self._touch("troubles ")

    def _used(self, port: Sample) -> None:
        rate = number(port.values.get("rate_gbps")) or 0.0
        best = self.used_ports.get(port.device)
        if best is not None or len(self.used_ports) < GONE_KEPT:
            self.used_ports[port.device] = max(rate, best or 0.0)

    def _gone(self, key: tuple[str, str], before: Sample | None) -> None:
        self._order.clear()
        self._touch("labels ", "gone ")
        self.latest.pop(key, None)
        self.rates.pop(key, None)
        if before is not None and len(self.gone) < GONE_KEPT:
            self.gone[key] = before

    def _hello(self, sample: Sample) -> None:
        boot_id = str(sample.values.get("boot_id", ""))
        if self.boot_id and boot_id and boot_id != self.boot_id:
            self.gone.clear()
            self.uuids.clear()
            self.hours.clear()
            self.used_ports.clear()
        self._touch("")
        # A new agent tells everything anew: what it no longer lists must not stay as if current.
        self._order.clear()
        self.latest.clear()
        self.rates.clear()
        self.kernel.clear()
        self.hung.clear()
        self.troubles.clear()
        self.boot_id = boot_id or self.boot_id

    def _status(self, status: NodeStatus) -> None:
        self._touch("hung ", "troubles ")
        if not status.probe:
            if status.reason == "garbage":
                self.noise.append(status.text)
            else:
                self.status = status
        elif status.state is NodeState.HUNG:
            self.hung[status.probe, status.device] = status
        elif status.state is NodeState.DEGRADED:
            self.troubles[status.probe] = status
        else:
            self.hung.pop((status.probe, status.device), None)

    def kept(self, name: str, topics: Iterable[str], make: Callable[[NodeFacts], _T]) -> _T:
        """What `make` makes of these facts, made again only after one of `topics` has changed."""
        change = max(self.changed.get(topic, 0) for topic in topics)
        before = self._kept.get(name)
        if before is None or before[0] != change:
            before = self._kept[name] = change, make(self)
        found: _T = before[1]
        return found

    @property
    def state(self) -> NodeState:
        """The conversation's state; hung when any probe hangs while the node answers."""
        state = self.status.state if self.status else NodeState.PENDING
        return NodeState.HUNG if self.hung and state in (NodeState.UP, NodeState.ENDED) else state

    def devices(self, probe: str) -> Iterator[tuple[str, Sample]]:
        """(device, latest sample) of a probe, by device."""
        order = self._order.get(probe)
        if order is None:
            order = self._order[probe] = sorted(d for p, d in self.latest if p == probe)
        return iter([(device, self.latest[probe, device]) for device in order])

    def get(self, probe: str, device: str = "") -> Sample | None:
        """The latest sample, however old."""
        return self.latest.get((probe, device))

    def value(self, probe: str, device: str, metric: str) -> Scalar | None:
        """One reading, None when absent."""
        sample = self.latest.get((probe, device))
        return None if sample is None else sample.values.get(metric)

    def gpu_label(self, device: str) -> str:
        """What the operator calls a GPU: "GPU3", or its address when the index is unknown."""
        for probe in LABELLED:
            index = self.value(probe, device, "index")
            if index is not None:
                return f"GPU{index}"
        return f"GPU {device}"
