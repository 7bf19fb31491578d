"""What the kernel log of one node tells, with ages and device names: shared by its checks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import structs

from probes.checks.rule import Look
from probes.event import Finding, Severity
from probes.kernel_lines import KernelEvent, in_order, joined, parse, unique, with_row
from probes.kernel_ring import KernelRing

HOUR_S = 3600.0
NEAR_S = 10.0
"""How near a note of left-out lines stands to the lines it is about (our estimate)."""


def read(look: Look) -> list[KernelEvent]:
    """The whole ring of kept lines by time; seven checks ask, the ring keeps the answer."""
    ring, gap_s = look.facts.kernel, look.rules.limit("xid.coalesce_s").value
    if ring.told is None or ring.told[0] != gap_s:
        ring.told = gap_s, _read(ring, gap_s)
    return list(ring.told[1])


def by_kind(look: Look) -> dict[str, list[KernelEvent]]:
    """The same, kind by kind."""
    kinds: dict[str, list[KernelEvent]] = {}
    for event in read(look):
        kinds.setdefault(event.kind, []).append(event)
    return kinds


def _read(ring: KernelRing, gap_s: float) -> list[KernelEvent]:
    rows = list(ring)
    texts = joined((str(row.get("text", "")), None) for row in rows)
    found = []
    for row, (text, _) in zip(rows, texts, strict=True):
        if (event := parse(text)) is not None:
            found.append(with_row(event, row))
    return unique(in_order(found), gap_s)


def age_s(look: Look, event: KernelEvent) -> float | None:
    """Seconds since the line, on the clock both the log and the agent use; None when unknown.

    That is CLOCK_MONOTONIC: /proc/uptime counts suspended time too and would drift away from it.
    """
    sample = look.facts.get("host") or look.facts.get("hello")
    if event.boot < 0 or event.mono is None or sample is None or not sample.clock:
        return None
    age = sample.clock + (look.now - sample.at) - event.mono
    return max(0.0, age) if math.isfinite(age) else None


def old(look: Look, event: KernelEvent) -> bool:
    """Whether the line is history: of an earlier boot or older than xid.old_h.

    A line of unknown age is not.
    """
    if event.boot < 0:
        return True
    age = age_s(look, event)
    return age is not None and age > look.rules.limit("xid.old_h").value * HOUR_S


def ago(look: Look, event: KernelEvent) -> str:
    """As ", 4 min ago", ", before the last boot" or ", at 2026-03-03T04:05:06Z"; "" if unknown."""
    seconds = age_s(look, event)
    if seconds is None:
        at = f", at {stamp(event.wall)}" if event.wall is not None and stamp(event.wall) else ""
        return f"{at}, before the last boot" if event.boot < 0 else at
    return f", {lasting(seconds)} ago"


def lasting(seconds: float) -> str:
    """As "42 s", "4 min", "3 h" or "2 days"."""
    for limit, divisor, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {name}"
    return f"{seconds / 86400:.0f} days"


def stamp(wall: float) -> str:
    """UTC to the second; "" for what no calendar holds."""
    try:
        return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""


def gpu(look: Look, pci: str) -> tuple[str, str]:
    """The GPU probe's device key for a kernel address without function, and its name."""
    for probe in ("gpu", "inventory"):
        for device, _ in look.facts.devices(probe):
            if device.rpartition(".")[0] == pci:
                return device, look.facts.gpu_label(device)
    return f"{pci}.0", f"GPU {pci}"


def device_label(look: Look, pci: str) -> str:
    """GPU3 at its address, mlx5_0/1 at its address, or the address."""
    if look.facts.value("inventory", pci, "index") is not None:
        return f"{look.facts.gpu_label(pci)} at {pci}"
    for port, sample in look.facts.devices("infiniband"):
        if sample.values.get("pci") == pci:
            return f"{port} at {pci}"
    return pci


def texts(events: list[KernelEvent], most: int = 5) -> tuple[str, ...]:
    """The first line and the newest ones, as evidence; what repeats word for word once."""
    kept = events if len(events) <= most else [events[0], *events[1 - most :]]
    return tuple(dict.fromkeys(event.line or event.text for event in kept))


def aged(look: Look, finding: Finding, newest: KernelEvent) -> Finding:
    """The finding as it stands; as information that does not latch when its newest line is old."""
    if not old(look, newest):
        return finding
    return structs.replace(finding, severity=Severity.INFO, hard=False)


def at_least(events: Iterable[KernelEvent], same: list[KernelEvent]) -> str:
    """ "at least " when the kernel left lines out near these: their number is not known then."""
    first, last = same[0].at - NEAR_S, same[-1].at + NEAR_S
    cut = any(e.kind == "suppressed" and first <= e.at <= last for e in events)
    return "at least " if cut else ""


def by_device(events: Iterable[KernelEvent]) -> list[tuple[str, list[KernelEvent]]]:
    """Events of each PCI address, by address; those without one are left out."""
    found: dict[str, list[KernelEvent]] = {}
    for event in events:
        if event.pci is not None:
            found.setdefault(event.pci, []).append(event)
    return sorted(found.items())


def by_fact(name: str, events: Iterable[KernelEvent]) -> list[tuple[str, list[KernelEvent]]]:
    """Events by one of their facts."""
    found: dict[str, list[KernelEvent]] = {}
    for event in events:
        found.setdefault(str(event.facts.get(name, "?")), []).append(event)
    return sorted(found.items())


def times(same: list[KernelEvent]) -> str:
    """How many lines, when there are several."""
    return f", {len(same)} lines" if len(same) > 1 else ""
