"""Kernel log lines of GPU nodes: one event per line, whichever reader printed it. Pure.

Shapes: Xid, SXid and "off the bus" as the open driver and gpud spell them, AER and lockups of
Linux, mlx5 as in NVSentinel's syslog patterns, file systems as in gpud and node-problem-detector.
Parsing anchors on keywords; what does not match is no event, never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from msgspec import Struct, field

from probes import kernel_host, kernel_prefix
from probes.event import Scalar
from probes.kernel_xid import BDF, Found, sxid, xid


class KernelEvent(Struct, frozen=True, kw_only=True):
    """One thing the kernel said."""

    kind: str
    """xid, sxid, off_bus, rminit, mismatch, aer, mce, mlx5, lockup, hung_task, oom, nfs, lustre,
    nvme, fs."""
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
    facts: dict[str, Scalar] = field(default_factory=dict)


class Burst(Struct, frozen=True, kw_only=True):
    """Xid events of one GPU without `gap_s` of silence between them."""

    pci: str
    events: tuple[KernelEvent, ...]
    root: KernelEvent
    """What started it: the worst Xid by rank, not merely the first line."""


_OFF_BUS = re.compile(
    rf"NVRM: GPU (?:at PCI:)?(?P<pci>{BDF}): GPU has fallen off the bus", re.IGNORECASE
)
_LOAD = re.compile(rf"NVRM: The NVIDIA GPU (?P<pci>{BDF})\b", re.IGNORECASE)
_OFF_BUS_LOAD = re.compile(_LOAD.pattern + r".*fallen off the bus", re.IGNORECASE)
LOAD_LINES = 3
"""Lines of the driver's message about a card it cannot use [okm]; only the last ones say why."""
_RMINIT = re.compile(rf"NVRM: (?:GPU (?P<pci>{BDF}): )?RmInitAdapter failed", re.IGNORECASE)
_MISMATCH = re.compile(
    r"NVRM: API mismatch: .*?client.*? version (?P<client>\d[\d.]*\d)"
    r"(?:.*?module.*? version (?P<module>\d[\d.]*\d))?"
)
_AER = re.compile(
    rf"(?:\S+ )?(?P<pci>{BDF}): (?:AER: )?(?:PCIe|CXL) Bus Error: "
    r"severity=(?P<severity>Corrected|Correctable|Uncorrected(?: \([\w-]+\))?), "
    r"type=(?P<layer>[^,]+)",
    re.IGNORECASE,
)
_MLX5 = re.compile(rf"mlx5_core (?P<pci>{BDF})(?: (?P<dev>\w+))?:? (?P<text>.*)$")
_MODULE = r"[Pp]ort module event.*module (?P<module>\d{1,6}).*"
_MLX5_KINDS = (
    ("insufficient_power", re.compile(r"insufficient power on the PCIe slot \((?P<watt>\d{1,6})W")),
    ("high_temperature", re.compile(_MODULE + r"High Temperature")),
    ("cable_unplugged", re.compile(_MODULE + r"unplugged")),
    ("link_down", re.compile(r"Port: (?P<port>\d{1,4}) Link DOWN|Link down")),
    ("link_active", re.compile(r"Port: (?P<port>\d{1,4}) Link ACTIVE|Link up")),
    ("access_reg", re.compile(r"ACCESS_REG")),
    ("command_timeout", re.compile(r"Will cause a leak of a command resource|timeout\. Will")),
    ("health_compromised", re.compile(r"health compromised|unrecoverable hardware error")),
)


@lru_cache(maxsize=65536)
def parse(line: str, year: int | None = None) -> KernelEvent | None:
    """The event in a line with any prefix, or None.

    `year` completes the short syslog form, which has none.
    """
    mono, wall, text = kernel_prefix.split(line.rstrip(), year)
    found = (
        xid(text) or sxid(text) or _driver(text) or _aer(text) or _mlx5(text)
        or kernel_host.mce(text) or kernel_host.other(text)
    )  # fmt: skip
    if found is None:
        return None
    return KernelEvent(
        kind=str(found.pop("kind")),
        text=text,
        mono=mono,
        wall=wall,
        pci=_text(found.pop("pci", None)),
        code=_int(found.pop("code", None)),
        pid=_int(found.pop("pid", None)),
        process=_text(found.pop("process", None)),
        facts={name: value for name, value in found.items() if value is not None},
    )


def _text(value: Scalar | None) -> str | None:
    return None if value is None else str(value)


def _int(value: Scalar | None) -> int | None:
    return None if value is None else int(value)


def _driver(text: str) -> Found | None:
    if "NVRM" not in text:
        return None
    for kind, pattern in (("off_bus", _OFF_BUS), ("off_bus", _OFF_BUS_LOAD), ("rminit", _RMINIT)):
        if match := pattern.search(text):
            return {"kind": kind, "pci": None if match["pci"] is None else match["pci"].lower()}
    if match := _MISMATCH.search(text):
        return {"kind": "mismatch", "client": match["client"], "module": match["module"]}
    return None


def _aer(text: str) -> Found | None:
    match = _AER.search(text) if "Bus Error" in text else None
    if match is None:
        return None
    severity = match["severity"].lower()
    return {
        "kind": "aer", "pci": match["pci"].lower(), "layer": match["layer"],
        "corrected": severity.startswith("correct"), "fatal": "(fatal" in severity,
    }  # fmt: skip


def _mlx5(text: str) -> Found | None:
    match = _MLX5.search(text) if "mlx5_core" in text else None
    if match is None:
        return None
    for what, pattern in _MLX5_KINDS:
        if inner := pattern.search(match["text"]):
            facts = {k: int(v) for k, v in inner.groupdict().items() if v is not None}
            pci, dev = match["pci"].lower(), match["dev"]
            return {"kind": "mlx5", "pci": pci, "what": what, "dev": dev, **facts}
    return None


def joined(
    rows: Iterable[tuple[str, Scalar | None]],
) -> Iterator[tuple[str, Scalar | None]]:
    """(text, mono) rows, the driver's three-line message about a dead card made one line.

    A reader that keeps records whole (/dev/kmsg) gives it as one already.
    """
    kept = list(rows)
    for number, (text, mono) in enumerate(kept):
        if "NVRM: The NVIDIA GPU " in text and _LOAD.search(text) and "fallen off" not in text:
            rest = [later for later, _ in kept[number + 1 : number + LOAD_LINES]]
            if all("NVRM:" in later for later in rest) and any("fallen off" in r for r in rest):
                text = " ".join([text, *rest])
        yield text, mono


def unique(events: Iterable[KernelEvent], within_s: float = 5.0) -> list[KernelEvent]:
    """Without repetitions of one event, by whichever readers; 5 s is practice of field studies.

    PCIe errors are kept: their lines are alike, and how fast they come is what they tell.
    """
    kept: list[KernelEvent] = []
    last: dict[tuple[object, ...], float] = {}
    for event in events:
        at = event.mono if event.mono is not None else event.wall
        key = (event.kind, event.pci, event.code, event.text.partition("kernel: ")[2] or event.text)
        if event.kind != "aer" and key in last and (at is None or abs(at - last[key]) <= within_s):
            continue
        last[key] = at if at is not None else 0.0
        kept.append(event)
    return kept


def bursts(
    events: Iterable[KernelEvent], rank: dict[int, int], gap_s: float, unknown: int = 1
) -> list[Burst]:
    """Xid events grouped by GPU until `gap_s` of silence.

    `rank`: code -> how much it explains; `unknown`: that of a code it lacks.
    """
    groups: dict[str, list[list[KernelEvent]]] = {}
    for event in events:
        if event.kind != "xid" or event.pci is None:
            continue
        series = groups.setdefault(event.pci, [[]])
        last = series[-1][-1] if series[-1] else None
        if last is not None and (event.mono or 0.0) - (last.mono or 0.0) > gap_s:
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
