"""What happened to a node since it was drained: its last evidence bundle against what it says now.

A node that comes back with other cards, another driver or without a reboot says so in the plan of
its resume. Reading a bundle of ours costs 10 ms; one that cannot be read is said to be unreadable.
"""

from __future__ import annotations

import errno
import re
import tarfile
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from console import units
from console.evidence import Known, Manifest, taken
from console.said import Said, said
from probes.blobs import safe_name
from probes.event import Finding, Sample
from probes.facts import NodeFacts
from probes.sanitise import clean

if TYPE_CHECKING:
    from console.memory.memory import Memory

FILE_BYTES = 32 << 20
WANTED = frozenset({"manifest.json", "facts.json", "findings.json"})
FIRST = 8
"""Ours come before the node's own files."""
UNREADABLE = (
    OSError, EOFError, tarfile.TarError, zlib.error, msgspec.MsgspecError, ValueError,
    OverflowError, RecursionError,
)  # fmt: skip
SHOWN = 3
"""Findings told of the time of the drain."""


class Before(Struct, frozen=True):
    """What a bundle remembers."""

    manifest: Manifest
    known: Known
    findings: list[Finding]

    def value(self, probe: str, metric: str, device: str = "") -> str:
        """One reading of then, as text; "" when there was none."""
        found = next(
            (s for s in self.known.samples if (s.probe, s.device) == (probe, device)), None
        )
        return "" if found is None else clean(str(found.values.get(metric, "")))

    def cards(self) -> dict[str, str]:
        """PCI address -> serial number (or UUID) of each GPU."""
        return _cards(self.known.samples)


def newest(node: str, where: Path) -> Path | None:
    """The newest bundle of a node in this folder."""
    found = where.glob(f"{safe_name(node)}-????????T??????Z*.tar.gz")
    return max(found, key=taken, default=None)


BEFORE_S, AFTER_S = 3600.0, 60.0
"""A drain's evidence is taken before its write: of a rack in minutes, an hour with margin."""


def of_drain(node: str, where: Path, at: float | None) -> Path | None:
    """The bundle that goes with a drain of this moment; the newest where that is not known."""
    if at is None:
        return newest(node, where)
    first, last = (_stamp(at - BEFORE_S), _stamp(at + AFTER_S))
    found = where.glob(f"{safe_name(node)}-????????T??????Z*.tar.gz")
    mine = [path for path in found if first <= taken(path)[0][: len(first)] <= last]
    return max(mine, key=taken, default=None)


def _stamp(at: float) -> str:
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(max(0.0, at)))


def read(path: Path) -> Before:
    """Raises an error of UNREADABLE when it is not one of ours."""
    parts: dict[str, bytes] = {}
    if not path.is_file():
        raise OSError(errno.EINVAL, "not a file", str(path))
    with tarfile.open(path, "r:gz") as tar:
        for _, member in zip(range(FIRST), tar, strict=False):
            name = member.name.partition("/")[2]
            if member.size > FILE_BYTES:
                break  # to pass it is to unpack it
            if name in WANTED and member.isfile():
                file = tar.extractfile(member)
                parts[name] = file.read(FILE_BYTES) if file else b""
            if parts.keys() >= WANTED:
                break
    return Before(
        msgspec.json.decode(parts.get("manifest.json", b""), type=Manifest),
        msgspec.json.decode(parts.get("facts.json", b""), type=Known),
        msgspec.json.decode(parts.get("findings.json", b""), type=list[Finding]),
    )


def notes(facts: NodeFacts, now: float, where: Path) -> list[Said]:
    """Sentences for the plan of a resume, each with the node's name; [] without a bundle."""
    path = newest(facts.node.name, where)
    if path is None:
        return []
    name = facts.node.name
    try:
        before = read(path)
        if before.manifest.node != name:
            other = clean(before.manifest.node)
            return [
                said("{name}: its bundle {path} is of {other}", name=name, path=path, other=other)
            ]
        return [
            said("{name}: {text}", name=name, text=text) for text in changes(before, facts, now)
        ]
    except UNREADABLE:
        return [said("{name}: its bundle {path} cannot be read", name=name, path=path)]


PERFORMANCE = re.compile(
    r"slow|straggl|perform|throttl|thermal|hot\b|clock|bandwidth|busbw|brake|degrad", re.IGNORECASE
)
"""Words of a reason that say that the node worked, but not as fast as it should."""


def retest(facts: NodeFacts, memory: Memory | None) -> list[Said]:
    """What a node that was drained for performance still lacks; [] for any other."""
    now = facts.allocation
    if now is None or now.reason_at is None or not PERFORMANCE.search(now.reason):
        return []
    name = facts.node.name
    if memory is not None and memory.tested_since(name, now.reason_at):
        return [said("{name}: drained for performance; it has passed a test since", name=name)]
    return [
        said(
            "{name}: drained for performance, and no test passed since: gpuconsole test {name}",
            name=name,
        )
    ]


def changes(before: Before, facts: NodeFacts, now: float) -> Iterator[Said]:
    """What was found then, and what was done to the node since.

    A bundle's words may be anything: they are cleaned where they are taken out of it.
    """
    age = units.age(now - before.manifest.at)
    then = "; ".join(clean(f.say) for f in before.findings[:SHOWN])
    more = len(before.findings) - SHOWN
    yield said(
        "evidence of {age} ago: {then}{more}",
        age=age,
        then=then or said("no findings"),
        more=said(" and {n} more", n=more) if more > 0 else "",
    )
    boot_then, boot_now = before.value("hello", "boot_id"), facts.boot_id
    if boot_then and boot_now:
        at = time.strftime("%a %H:%M", time.localtime(before.manifest.at))
        if boot_then != boot_now:
            yield said("rebooted since {at}", at=at)
        else:
            yield said("not rebooted since {at}", at=at)
    driver = before.value("inventory", "driver_version")
    driver_now = str(facts.value("inventory", "", "driver_version") or "")
    if driver and driver_now and driver != driver_now:
        yield said("driver {then} then, {now} now", then=driver, now=driver_now)
    yield from _exchanged(before.cards(), _cards(facts.latest.values()), facts)


def _cards(samples: Iterable[Sample]) -> dict[str, str]:
    found = {}
    for sample in samples:
        if sample.probe == "inventory" and sample.device:
            mark = sample.values.get("serial") or sample.values.get("uuid")
            if mark:
                found[clean(sample.device)] = clean(str(mark))
    return found


def _exchanged(then: dict[str, str], now: dict[str, str], facts: NodeFacts) -> Iterator[Said]:
    """Cards that are others now. Without a reading of now nothing is claimed."""
    if not then or not now:
        return
    for device, mark in then.items():
        label = facts.gpu_label(device)
        if device not in now:
            yield said(
                "{gpu} at {place} is not there any more ({mark})",
                gpu=label,
                place=device,
                mark=mark,
            )
        elif now[device] != mark:
            yield said(
                "{gpu} at {place} is another card: {then} then, {now} now",
                gpu=label,
                place=device,
                then=mark,
                now=now[device],
            )
    for device in now.keys() - then.keys():
        yield said(
            "{gpu} at {place} is new ({mark})",
            gpu=facts.gpu_label(device),
            place=device,
            mark=now[device],
        )
