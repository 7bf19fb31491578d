"""What a node should have: the site's word, then the majority of its role, then the catalogue."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from probes import lanes, ports
from probes.drift import EMPTY, Census, census_in_steps
from probes.event import Scalar
from probes.facts import NodeFacts
from probes.pieces import at_once
from probes.reading import MOST
from probes.role_mounts import NONE as NO_MOUNTS
from probes.role_mounts import Mounts, mounts_in_steps


class Peers(Struct, frozen=True, kw_only=True):
    """The majority of one role; None where nobody answered or there is no majority."""

    role: str
    nodes: int = 0
    """Nodes of the role that answered."""
    gpu_count: int | None = None
    gpu_slots: frozenset[str] = frozenset()
    """PCI addresses of GPUs that most of the role have."""
    nvlink_links: dict[str, int] = {}
    """PCI device id of a GPU -> NVLinks that are up on most GPUs of that id; like with like."""
    nvlink_mbps: dict[str, float] = {}
    """PCI device id of a GPU -> signalling rate of most active links."""
    pcie_width: dict[str, int] = {}
    """PCI device id of a GPU -> lanes that card and slot offer on most GPUs of that id."""
    pcie_bridges: dict[str, int] = {}
    """Upstream port of a PCIe switch -> lanes it has on most nodes."""
    ib_rate_gbps: dict[str, float] = {}
    """Kind of port (probes.ports.kind) -> rate of most active ones."""
    ib_slot_gbps: dict[str, float] = {}
    """Place of a port (probes.ports.place) -> rate on most nodes."""
    ib_roles: dict[str, str] = {}
    """Place of a port -> what it is for on most nodes."""
    ib_ports: int | None = None
    """Active compute ports of most nodes."""
    ib_ports_share: float = 0.0
    """Share of answering nodes that have just so many."""
    ib_slots: dict[str, float] = {}
    """Compute port ("mlx5_0/1") -> share of answering nodes on which it is active."""
    ib_other_slots: dict[str, float] = {}
    """The same of storage and management ports."""
    nic_distance: dict[str, str] = {}
    """GPU -> distance of its nearest RDMA adapter on most nodes."""
    ib_pauses: tuple[float, ...] = ()
    """Largest share of time in which a node sent pause, of those that did."""
    ib_places: dict[str, str] = {}
    """Port device -> PCI address that most nodes have it at."""
    mounts: Mounts = NO_MOUNTS
    """File systems of the role's nodes."""
    drift: Census = EMPTY
    """Majorities of versions, settings, services and modules."""


def peers(all_facts: Iterable[NodeFacts]) -> dict[str, Peers]:
    """Majorities by role."""
    return at_once(peers_in_steps(all_facts))


def peers_in_steps(all_facts: Iterable[NodeFacts]) -> Generator[None, None, dict[str, Peers]]:
    """The same in pieces of at most one node (20 us, 0.2 ms the first time), for a screen that must
    answer keys: 4,000 nodes at once would take 70 ms."""
    roles: dict[str, list[NodeFacts]] = {}
    for facts in all_facts:
        roles.setdefault(facts.node.role, []).append(facts)
    found: dict[str, Peers] = {}
    for role, members in roles.items():
        found[role] = yield from _of_role(role, members)
    return found


def _of_role(role: str, members: list[NodeFacts]) -> Generator[None, None, Peers]:
    answered: list[_Seen] = []
    pauses: list[float] = []
    for facts in members:
        if seen := in_common(facts):
            answered.append(seen)
            pauses.append(ports.sending_pause(facts))
        yield
    drift = yield from census_in_steps(role, members)
    mounts = yield from mounts_in_steps(members)
    nodes = len(answered)
    tables = _count(answered)
    numbers = tables.get(ports.NUMBERS, {}).get("", Counter())
    usual = majority(numbers)
    return Peers(
        role=role,
        drift=drift,
        mounts=mounts,
        nodes=nodes,
        gpu_count=majority(tables.get(GPUS, {}).get("", Counter())),
        gpu_slots=frozenset(
            slot for slot, n in _single(tables, SLOTS).items() if n * 2 > nodes and nodes >= 3
        ),
        nvlink_links=_majorities(tables, LINKS_UP),
        nvlink_mbps=_majorities(tables, LINK_RATES),
        pcie_width=_majorities(tables, lanes.WIDTHS),
        pcie_bridges=_majorities(tables, lanes.BRIDGES),
        ib_rate_gbps=_majorities(tables, ports.RATES),
        ib_ports=usual,
        ib_ports_share=0.0 if usual is None else numbers[usual] / nodes,
        ib_slot_gbps=_majorities(tables, ports.SLOT_RATES),
        ib_roles=_majorities(tables, ports.ROLES),
        ib_slots={port: n / nodes for port, n in _single(tables, ports.ACTIVES).items()},
        ib_other_slots={port: n / nodes for port, n in _single(tables, ports.OTHERS).items()},
        nic_distance=_majorities(tables, ports.NEAR),
        ib_pauses=tuple(share for share in pauses if share > 0),
        ib_places=_majorities(tables, ports.PLACES),
    )


GPUS, SLOTS, LINKS_UP, LINK_RATES = "gpus", "gpu slots", "links up", "link rates"
_Tables: TypeAlias = dict[str, dict[str, Counter[Any]]]
_Seen: TypeAlias = tuple[tuple[tuple[str, str, Scalar], int], ...]
"""((table, key, value), how often) of one node."""
_equal: dict[_Seen, _Seen] = {}
"""Nodes with the same equipment share one object, so that they are counted together."""
EQUAL_MOST = 20_000


def in_common(facts: NodeFacts) -> _Seen:
    """What of a node counts for the majorities of its role; () until NVML's list is known.

    Kept with the node: the sum over a role then costs little, however many nodes it has.
    """
    return facts.kept("peers", _READ, _seen)


_READ = ("", "inventory", "nvlink", "pcie", "infiniband", "topology")
"""Probes that `_seen` reads."""


def _seen(facts: NodeFacts) -> _Seen:
    slots = gpu_slots(facts)
    if slots is None:
        return ()
    found: Counter[tuple[str, str, Scalar]] = Counter()
    found[GPUS, "", len(slots)] += 1
    found.update((SLOTS, "", slot) for slot in sorted(slots))
    for name, times in _links(facts):
        found[name] += times
    found.update(lanes.lanes(facts))
    found.update(ports.counted(facts))
    seen = tuple(found.items())
    if len(_equal) >= EQUAL_MOST:
        _equal.clear()
    return _equal.setdefault(seen, seen)


def _links(facts: NodeFacts) -> Iterator[tuple[tuple[str, str, Scalar], int]]:
    """NVLinks by the PCI device id of their GPU, of GPUs whose link states can be read."""
    for device, sample in facts.devices("nvlink"):
        states = link_states(sample.values)
        if states:
            product = product_id(facts, device)
            yield (LINKS_UP, product, sum(states.values())), 1
            for rate, times in Counter(link_rates(sample.values).values()).items():
                yield (LINK_RATES, product, rate), times


def _count(nodes: Iterable[_Seen]) -> _Tables:
    kinds: dict[int, tuple[_Seen, int]] = {}
    for seen in nodes:
        kinds[id(seen)] = seen, kinds.get(id(seen), (seen, 0))[1] + 1
    tables: _Tables = {}
    for seen, times in kinds.values():
        for (table, key, value), count in seen:
            counts = tables.setdefault(table, {}).setdefault(key, Counter())
            counts[value] += count * times
    return tables


def _single(tables: _Tables, table: str) -> Counter[Any]:
    """Of a table with one key."""
    return tables.get(table, {}).get("", Counter())


_NUMBERS = (int, float)
_LINK = re.compile(r"link(\d{1,3})_(up|mbps)")


class _Layout(NamedTuple):
    """Which metrics of an NVLink answer are what."""

    states: tuple[tuple[int, str], ...]
    """Link number, metric."""
    rates: tuple[tuple[int, str, str], ...]
    """Link number, metric, metric of the same link's state."""


@functools.lru_cache(maxsize=256)
def _layout(names: tuple[str, ...]) -> _Layout:
    """Names are the same in every answer of a GPU: taken apart once, not 90 of them each time."""
    found = [match for name in names if (match := _LINK.fullmatch(name))]
    return _Layout(
        tuple((int(m[1]), m[0]) for m in found if m[2] == "up"),
        tuple((int(m[1]), m[0], f"link{m[1]}_up") for m in found if m[2] == "mbps"),
    )


def link_states(values: dict[str, Scalar]) -> dict[int, bool]:
    """NVLink number -> up, for links whose state could be read."""
    found = {}
    for link, name in _layout(tuple(values)).states:
        state = values[name]
        if state is True or state is False:
            found[link] = state
    return found


def link_rates(values: dict[str, Scalar]) -> dict[int, float]:
    """NVLink number -> signalling rate, MB/s, of links that are not down."""
    found = {}
    for link, name, state in _layout(tuple(values)).rates:
        rate: Any = values[name]
        if type(rate) in _NUMBERS and 0 < rate < MOST and values.get(state) is not False:
            found[link] = float(rate)
    return found


def product_id(facts: NodeFacts, device: str) -> str:
    """PCI device id of a GPU; "" when it was not read."""
    return str(facts.value("inventory", device, "pci_device_id") or "")


def gpu_slots(facts: NodeFacts) -> set[str] | None:
    """PCI addresses of the GPUs that NVML lists; None when it could not be asked."""
    node = facts.get("inventory")
    if node is None or "gpu_count" not in node.values:
        return None
    return {device for device, _ in facts.devices("inventory") if device}


_T = TypeVar("_T", int, float, str)


def majority(counts: Counter[_T]) -> _T | None:
    """The value of more than half; None when there is none (a 50/50 split has no majority)."""
    if not counts:
        return None
    value, number = counts.most_common(1)[0]
    return value if number * 2 > sum(counts.values()) else None


def _majorities(tables: _Tables, table: str) -> dict[str, Any]:
    return {
        key: found
        for key, counts in tables.get(table, {}).items()
        if (found := majority(counts)) is not None
    }
