"""Kernel log lines of GPU nodes: one event per line, whichever reader printed it. Pure.

Shapes: Xid, SXid and "off the bus" as the open driver and gpud spell them, AER and lockups of
Linux, mlx5 as in NVSentinel's syslog patterns, file systems as in gpud and node-problem-detector.
Parsing anchors on keywords; what does not match is no event, never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from msgspec import Struct, field, structs

from probes import (
    kernel_driver,
    kernel_host,
    kernel_net,
    kernel_pcie,
    kernel_prefix,
    kernel_storage,
)
from probes.event import Scalar
from probes.kernel_xid import Found, sxid, xid


class KernelEvent(Struct, frozen=True, kw_only=True):
    """One thing the kernel said."""

    kind: str
    """xid, sxid, off_bus, uuid, rminit, mismatch, rx_detect, modeset, peermem, fabric_manager, aer,
    aer_notice, aer_bit, aer_recovery, iommu, slot, pci_dead, mce, mlx5, efa, nic, lockup,
    hard_lockup, rcu_stall, hung_task, panic, bug, segfault, oom, cpu_hot, suppressed, nfs, lustre,
    nvme, disk, fs."""
    text: str
    """The line without its prefix."""
    mono: float | None = None
    """Seconds since boot."""
    wall: float | None = None
    """Epoch seconds; None when the prefix has no date."""
    pci: str | None = None
    """Lower-case, without function for Xid ("0000:52:00"), as printed otherwise."""
    code: int | None = None
    pid: int | None = None
    process: str | None = None
    prio: int | None = None
    """Syslog level, 0 to 7."""
    boot: int = 0
    """0 for the running boot, -1 for the one before it."""
    line: str = ""
    """The whole line where it is evidence with its prefix; "" where `text` is."""
    facts: dict[str, Scalar] = field(default_factory=dict)

    @property
    def at(self) -> float:
        """Where it stands among the events of its node, in seconds; 0 when nothing is known."""
        if self.mono is not None:
            return self.mono
        return self.wall if self.wall is not None else 0.0


class Burst(Struct, frozen=True, kw_only=True):
    """Xid events of one GPU without `gap_s` of silence between them."""

    pci: str
    events: tuple[KernelEvent, ...]
    root: KernelEvent
    """What started it: the worst Xid by rank, not merely the first line."""


LOAD_LINES = 3
"""Lines of the driver's message about a card it cannot use [okm]; only the last ones say why."""
_USERLAND = frozenset({"fabric_manager", "nic"})
"""Kinds that a daemon of the node may report in its own name."""
_PARSERS: tuple[Callable[[str], Found | None], ...] = (
    xid, sxid, kernel_driver.driver, kernel_pcie.pcie, kernel_net.network, kernel_host.mce,
    kernel_host.host, kernel_storage.storage,
)  # fmt: skip


@lru_cache(maxsize=65536)
def parse(line: str, year: int | None = None) -> KernelEvent | None:
    """The event in a line with any prefix, or None.

    `year` completes the short syslog form, which has none.
    """
    return event_of(kernel_prefix.split(line.rstrip(), year))


def event_of(stamp: kernel_prefix.Stamp) -> KernelEvent | None:
    """The event behind the prefixes. What a program other than the kernel quotes is none."""
    text = stamp.text
    found = next((hit for parser in _PARSERS if (hit := parser(text))), None)
    if found is None:
        return None
    if stamp.program not in ("", "kernel") and found["kind"] not in _USERLAND:
        return None
    return KernelEvent(
        kind=str(found.pop("kind")),
        text=text,
        mono=stamp.mono,
        wall=stamp.wall,
        pci=_text(found.pop("pci", None)),
        code=_int(found.pop("code", None)),
        pid=_int(found.pop("pid", None)),
        process=_text(found.pop("process", None)),
        prio=stamp.prio,
        facts={name: value for name, value in found.items() if value is not None},
    )


def _text(value: Scalar | None) -> str | None:
    return None if value is None else str(value)


def _int(value: Scalar | None) -> int | None:
    return None if value is None else int(value)


def joined(
    rows: Iterable[tuple[str, Scalar | None]],
) -> Iterator[tuple[str, Scalar | None]]:
    """(text, mono) rows, the driver's three-line message about a dead card made one line.

    A reader that keeps records whole (/dev/kmsg) gives it as one already.
    """
    kept = list(rows)
    for number, (text, mono) in enumerate(kept):
        if opens_load(text):
            rest = [later for later, _ in kept[number + 1 : number + LOAD_LINES]]
            text = load_message(text, rest)
        yield text, mono


def opens_load(text: str) -> bool:
    """Whether this is the first line of the driver's message about a card it cannot use."""
    if "NVRM: The NVIDIA GPU " not in text or "fallen off" in text:
        return False
    return kernel_driver.LOAD.search(text) is not None


def load_message(text: str, rest: list[str]) -> str:
    """The message as one line, when the lines behind it are its own and say why."""
    if all("NVRM:" in later for later in rest) and any("fallen off" in later for later in rest):
        return " ".join([text, *rest])
    return text


REPEATING = frozenset({"aer", "aer_notice", "aer_bit"})
"""Kinds whose lines are alike: how fast they come is what they tell."""


STATES = frozenset({"mlx5", "nic", "efa", "nfs", "lustre", "slot", "cpu_hot"})
"""Kinds that come and go: down, up and down again within seconds are three things."""


def _subject(event: KernelEvent) -> tuple[object, ...]:
    """What comes and goes."""
    named = (event.facts.get(name) for name in ("dev", "server", "target", "cpu", "port"))
    return (event.boot, event.kind, event.pci, *named)


def key_of(event: KernelEvent) -> tuple[object, ...]:
    """What makes two lines the same thing said again."""
    return event.kind, event.pci, event.code, event.text


def unique(events: Iterable[KernelEvent], within_s: float = 5.0) -> list[KernelEvent]:
    """Without repetitions of one event, by whichever readers; 5 s is practice of field studies.

    PCIe errors are kept: their lines are alike, and how fast they come is what they tell.
    """
    kept: list[KernelEvent] = []
    last: dict[tuple[object, ...], float] = {}
    state: dict[tuple[object, ...], str] = {}
    for event in events:
        at = event.mono if event.mono is not None else event.wall
        key = (event.boot, *key_of(event))
        turned = event.kind in STATES and state.get(subject := _subject(event)) != event.text
        if turned:
            state[subject] = event.text
        if event.kind in REPEATING:
            kept.append(event)
            continue
        if not turned and key in last and (at is None or abs(at - last[key]) <= within_s):
            continue
        last[key] = at if at is not None else 0.0
        kept.append(event)
    return kept


def in_order(events: Iterable[KernelEvent]) -> list[KernelEvent]:
    """By boot and time; those without a time stay where they stood among their like."""
    return sorted(events, key=lambda event: (event.boot, event.at))


def bursts(
    events: Iterable[KernelEvent], rank: dict[int, int], gap_s: float, unknown: int = 1
) -> list[Burst]:
    """Xid events grouped by GPU until `gap_s` of silence, whatever order they came in.

    `rank`: code -> how much it explains; `unknown`: that of a code it lacks.
    """
    groups: dict[str, list[list[KernelEvent]]] = {}
    for event in in_order(e for e in events if e.kind == "xid" and e.pci is not None):
        series = groups.setdefault(event.pci or "", [[]])
        last = series[-1][-1] if series[-1] else None
        if last is not None and (event.boot != last.boot or event.at - last.at > gap_s):
            series.append([])
        series[-1].append(event)
    return [
        Burst(
            pci=pci,
            events=tuple(burst),
            root=max(burst, key=lambda e: rank.get(e.code or 0, unknown)),
        )
        for pci, series in groups.items()
        for burst in series
        if burst
    ]


def with_row(event: KernelEvent, row: dict[str, Scalar]) -> KernelEvent:
    """The event as the row that brought it dates it."""
    boot = row.get("boot", 0)
    changed: dict[str, object] = {}
    if isinstance(boot, int) and boot < 0:
        changed["boot"] = -1
    at = row.get("at")
    mono = at if _finite(at) else (row.get("mono") if event.mono is None else None)
    if _finite(mono):
        changed["mono"] = float(mono)  # type: ignore[arg-type]
    if _finite(wall := row.get("wall")):
        changed["wall"] = float(wall)  # type: ignore[arg-type]
    line = row.get("line")
    if isinstance(line, str):
        changed["line"] = line
    return structs.replace(event, **changed) if changed else event


def _finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e15
