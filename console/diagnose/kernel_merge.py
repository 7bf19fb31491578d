"""One timeline of what several readers of one host's kernel log printed, each event once. Pure.

The ring buffer counts seconds since boot, the journal has wall time, `dmesg -T` computes wall time
and is wrong after a suspend or a clock that was set late. Events that two readers both have tell
how their clocks stand to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec import structs

from console.diagnose.kernel_stream import Host, Kept
from probes.kernel_lines import REPEATING, KernelEvent, key_of

NEAR_S = 5.0
"""How far apart two readers may stamp one event: the journal stamps what it receives (our
estimate)."""
ZONE_S = 900.0
"""Time zones differ by quarters of an hour."""
PAIRS = 200
"""Most events that two clocks are compared by."""
DRIFTING = ("ctime", "dmesg-iso")
"""Forms whose wall time dmesg computed from the uptime."""


_Clock = Callable[[Kept], "float | None"]


class Timeline(NamedTuple):
    """A host's events in order, and what its clocks were found to be."""

    events: list[KernelEvent]
    """`mono` is the place on the timeline, `wall` the time of day where one is known."""
    boot_at: float | None
    """Epoch seconds of the running boot."""
    skew_s: float | None
    """How far `dmesg -T` is behind the host's real time, where both are there."""
    copies: int
    """Events that another reader had too."""


def merged(host: Host, now: float | None, uptime: float | None) -> Timeline:
    """The events of one host on one clock, by time; copies by other readers left out."""
    kept = sorted(host.kept(), key=_order)
    sources = _by_source(kept)
    skew = _drift(sources)
    boot_at = now - uptime if now is not None and uptime is not None else _boot(sources, skew)
    dated = [(_dated(host, one, boot_at, skew), one) for one in kept]
    dated.sort(key=lambda pair: (pair[0].boot, pair[0].at, _order(pair[1])))
    events, copies = _once(dated)
    shown = None if skew is None or abs(skew) <= NEAR_S else skew
    return Timeline(events, boot_at, shown, copies)


def _order(kept: Kept) -> tuple[object, ...]:
    """The same whatever order the lines came in."""
    event = kept.event
    return kept.boot, event.mono or 0.0, event.wall or 0.0, event.text, kept.source


def _by_source(kept: Iterable[Kept]) -> dict[str, list[Kept]]:
    found: dict[str, list[Kept]] = {}
    for one in kept:
        found.setdefault(one.source, []).append(one)
    return found


def _form(source: str) -> str:
    return source.partition(" ")[2]


def _drift(sources: dict[str, list[Kept]]) -> float | None:
    """Real time minus the time `dmesg -T` shows, by events that both have."""
    drifting = [
        one for source, same in sources.items() if _form(source) in DRIFTING for one in same
    ]
    real = [
        one for source, same in sources.items()
        if _form(source) not in DRIFTING for one in same if one.event.wall is not None
    ]  # fmt: skip
    return _offset(drifting, real, lambda one: one.event.wall, lambda one: one.event.wall)


def _boot(sources: dict[str, list[Kept]], skew: float | None) -> float | None:
    """Epoch seconds of boot: from lines that carry both clocks, else from events of two readers."""
    everyone = [one for same in sources.values() for one in same]
    both = Counter(
        round(one.event.wall - one.event.mono)
        for one in everyone
        if one.event.wall is not None and one.event.mono is not None
    )
    if both:
        return float(max(both, key=lambda second: (both[second], second)))
    mono = [one for one in everyone if one.event.mono is not None]
    wall = [one for one in everyone if one.event.mono is None and one.event.wall is not None]
    return _offset(mono, wall, lambda one: one.event.mono, lambda one: _real(one, skew))


def _real(kept: Kept, skew: float | None) -> float | None:
    wall = kept.event.wall
    if wall is None or skew is None or _form(kept.source) not in DRIFTING:
        return wall
    return wall + skew


def _offset(ours: list[Kept], theirs: list[Kept], mine: _Clock, other: _Clock) -> float | None:
    """The most frequent difference between two clocks over events that both sides have."""
    index: dict[tuple[object, ...], list[float]] = {}
    for one in theirs:
        if (at := other(one)) is not None:
            index.setdefault(key_of(one.event), []).append(at)
    found: list[float] = []
    for one in ours:
        at = mine(one)
        if at is not None:
            found += [their - at for their in index.get(key_of(one.event), ())[:PAIRS]]
        if len(found) > PAIRS * 10:
            break
    if not found:
        return None
    seconds = Counter(round(difference) for difference in found)
    # Neighbouring seconds are one difference that rounding has split.
    return float(max(seconds, key=lambda s: (seconds[s] + seconds[s + 1], seconds[s], -abs(s))))


def _dated(host: Host, kept: Kept, boot_at: float | None, skew: float | None) -> KernelEvent:
    """The event on the host's one clock: seconds since boot where that is known."""
    event = kept.event
    boot = min(0, kept.boot - host.boots[kept.source])
    wall, mono = _real(kept, skew), event.mono
    if boot == 0 and boot_at is not None:
        if mono is None and wall is not None:
            mono = wall - boot_at
        elif wall is None and mono is not None:
            wall = mono + boot_at
    return structs.replace(event, boot=boot, wall=wall, mono=wall if mono is None else mono)


def _once(dated: list[tuple[KernelEvent, Kept]]) -> tuple[list[KernelEvent], int]:
    """Without what another reader had at the same time. One reader's own repetitions stay."""
    by_key: dict[tuple[object, ...], list[_Twin]] = {}
    events: list[KernelEvent] = []
    copies = 0
    for event, kept in dated:
        same = by_key.setdefault((event.boot, *key_of(event)), [])
        twin = next((t for t in reversed(same[-PAIRS:]) if _copy(event, kept, t)), None)
        if twin is None:
            same.append(_Twin(event, {kept.source}, len(events)))
            events.append(event)
            continue
        twin.seen.add(kept.source)
        events[twin.place] = _richer(events[twin.place], event, kept)
        copies += 1
    return events, copies


class _Twin(NamedTuple):
    """An event that copies may still turn up of."""

    event: KernelEvent
    seen: set[str]
    """Sources that had it."""
    place: int


def _richer(event: KernelEvent, copy: KernelEvent, kept: Kept) -> KernelEvent:
    """The event with what only the copy's reader prints: the level, the kernel's own stamp."""
    if kept.event.mono is not None and copy.mono is not None:
        event = structs.replace(event, mono=copy.mono)
    return event if copy.prio is None else structs.replace(event, prio=copy.prio)


def _copy(event: KernelEvent, kept: Kept, twin: _Twin) -> bool:
    """Whether another reader's event is this one; each of its events stands for one of ours."""
    other, seen = twin.event, twin.seen
    apart = event.at - other.at
    if kept.source in seen:
        # The same paste twice: the very same stamp of a clock that tells events apart.
        precise = event.kind in REPEATING and event.mono is not None and event.mono % 1
        return bool(precise) and apart == 0.0
    if abs(apart) <= NEAR_S or event.mono is None or other.mono is None:
        return True  # a line without any stamp is whatever event has its words
    zone = abs(apart - round(apart / ZONE_S) * ZONE_S)
    return zone <= NEAR_S and abs(apart) <= 14 * 3600 and not _zoned(kept)


def _zoned(kept: Kept) -> bool:
    return kept.stamp.zoned or kept.stamp.wall is None
