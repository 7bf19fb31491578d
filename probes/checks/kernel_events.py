"""What the kernel log of one node tells, with ages and device names: shared by its checks. Pure."""

from __future__ import annotations

import math

from msgspec import structs

from probes.checks.rule import Look
from probes.event import Finding, Severity
from probes.kernel_lines import KernelEvent, joined, parse, unique
from probes.reading import number

HOUR_S = 3600.0


def read(look: Look) -> list[KernelEvent]:
    """The whole ring of kept lines, parsed anew each time: pure, and parsing is cached."""
    found = []
    rows = [(str(row.get("text", "")), row.get("mono")) for row in look.facts.kernel]
    for text, mono in joined(rows):
        event = parse(text)
        if event is None:
            continue
        if event.mono is None and (at := number(mono)) is not None:
            event = structs.replace(event, mono=at)
        found.append(event)
    return unique(found, look.rules.limit("xid.coalesce_s").value)


def age_s(look: Look, event: KernelEvent) -> float | None:
    """Seconds since the line, on the clock both the log and the agent use; None when unknown.

    That is CLOCK_MONOTONIC: /proc/uptime counts suspended time too and would drift away from it.
    """
    sample = look.facts.get("host") or look.facts.get("hello")
    if event.mono is None or sample is None or not sample.clock:
        return None
    age = sample.clock + (look.now - sample.at) - event.mono
    return max(0.0, age) if math.isfinite(age) else None


def old(look: Look, event: KernelEvent) -> bool:
    """Whether the line is history (xid.old_h); a line of unknown age is not."""
    age = age_s(look, event)
    return age is not None and age > look.rules.limit("xid.old_h").value * HOUR_S


def ago(look: Look, event: KernelEvent) -> str:
    """As ", 4 min ago"; "" when the age is unknown."""
    seconds = age_s(look, event)
    if seconds is None:
        return ""
    for limit, divisor, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f", {seconds / divisor:.0f} {name} ago"
    return f", {seconds / 86400:.0f} days ago"


def gpu(look: Look, pci: str) -> tuple[str, str]:
    """The GPU probe's device key for a kernel address without function, and its name."""
    for probe in ("gpu", "inventory"):
        for device, _ in look.facts.devices(probe):
            if device.rpartition(".")[0] == pci:
                return device, look.facts.gpu_label(device)
    return f"{pci}.0", f"GPU {pci}"


def texts(events: list[KernelEvent], most: int = 5) -> tuple[str, ...]:
    """The first line and the newest ones, as evidence."""
    kept = events if len(events) <= most else [events[0], *events[1 - most :]]
    return tuple(event.text for event in kept)


def aged(look: Look, finding: Finding, newest: KernelEvent) -> Finding:
    """The finding as it stands; as information that does not latch when its newest line is old."""
    if not old(look, newest):
        return finding
    return structs.replace(finding, severity=Severity.INFO, hard=False)
