"""Samples, findings and files for the tests of the memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from console.memory.memory import Memory
from probes.event import Event, Finding, Sample, Scalar, Severity

PCI = "0000:1b:00.0"
T0 = 1_795_000_200.0
"""A round five minutes; the hour before it ended 20 minutes ago."""


class Clock:
    """A time that the test sets."""

    def __init__(self, now: float = T0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def inventory(
    node: str = "n1", device: str = PCI, *, serial: str = "111", driver: str = "580.95.05",
    at: float = T0,
) -> list[Event]:  # fmt: skip
    """Which card and driver there are."""
    card: dict[str, Scalar] = {"index": 3, "serial": serial, "name": "H100"}
    return [
        Sample(node=node, probe="inventory", device=device, at=at, values=card),
        Sample(node=node, probe="inventory", at=at, values={"driver_version": driver}),
    ]


def gpu(
    at: float, node: str = "n1", device: str = PCI, *, clock: float = 1755, util: Scalar = 98,
    **values: Scalar,
) -> Sample:  # fmt: skip
    """A reading under load."""
    told: dict[str, Scalar] = {
        "sm_clock_mhz": clock, "power_w": 650.0, "temp_c": 60, "mem_clock_mhz": 2619,
        "util_percent": util, "power_limit_w": 700.0, "reasons": 4, **values,
    }  # fmt: skip
    return Sample(node=node, probe="gpu", device=device, at=at, values=told)


def finding(
    rule: str = "xid.79", node: str = "n1", device: str = PCI,
    severity: Severity = Severity.CRITICAL, **more: object,
) -> Finding:  # fmt: skip
    """One of a GPU."""
    told = {"say": f"GPU3: {rule}", "label": "GPU3", "hard": rule.startswith("xid."), **more}
    return Finding(rule=rule, severity=severity, node=node, device=device, **told)  # type: ignore[arg-type]


def over(told: Finding, why: str = "clean") -> Finding:
    """As the Fleet says that it ended."""
    import msgspec

    say = f"over ({why}): {told.say}"
    return msgspec.structs.replace(told, severity=Severity.OK, say=say)


def memory(path: Path, clock: Clock | None = None, **more: object) -> Memory:
    """One whose troubles are told nowhere unless the test asks."""
    told = more.pop("told", None) or (lambda text: None)
    return Memory(path, clock=clock or Clock(), told=told, **more)  # type: ignore[arg-type]


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    """What the file holds."""
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return list(db.execute(query))
    finally:
        db.close()


def hours(begin: float, count: int, step_s: float = 60.0) -> Iterator[float]:
    """Times of readings, one a minute, for so many hours."""
    at = begin
    while at < begin + count * 3600:
        yield at
        at += step_s
