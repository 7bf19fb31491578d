"""Text of `nvidia-smi nvlink` (-s, -e, -c, -R, -gt) as links of GPUs. Pure.

Every line belongs to the GPU heading above it, also the sentences that have no "Link" in front.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from console.diagnose.nvidia_smi_words import listed

LINKS = 36
"""NVML_NVLINK_MAX_LINKS of API 13."""
GPUS = 512
LINE_CHARS = 300

_LINK = re.compile(r"\s*Link (\d{1,3})\s*[:,]\s*(.*?)\s*$")
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,6})?) GB/s$")
_COUNT = re.compile(r"(.{2,60}?)\s*:\s*(\d{1,20}(?:\.\d{1,9})?(?:e[+-]?\d{1,4})?)(?: \w{1,8})?$")
_REMOTE = re.compile(r"Remote Device\s+(\S{7,20})(?:\s*:\s*Link \d{1,3})?")
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)
_MIG = re.compile(r"not supported .{0,40}MIG", re.IGNORECASE)
_SENTENCE = re.compile(r"^\s*(?:NVML:|Unable to|Nvlink quer|NVLink quer|Error|\[)", re.IGNORECASE)

ERRORS = {
    "replay errors": "replays", "recovery errors": "recoveries", "crc errors": "crc",
    "crc flit errors": "crc", "crc data errors": "crc_data", "ecc errors": "ecc",
    "total link recovery events": "recoveries",
    "link recovery successful events": "recoveries_ok",
    "link recovery failed events": "recoveries_failed",
    "symbol errors": "symbol_errors", "effective errors": "effective_errors",
    "rx errors": "receive_errors", "rx general errors": "receive_errors",
    "rx remote errors": "remote_errors", "malformed packet errors": "malformed",
    "buffer overrun errors": "overruns", "local link integrity errors": "integrity",
    "tx discards": "discards",
}  # fmt: skip
"""Words of -e -> counter of the live probe (linkN_...)."""
QUIET = ("symbol_errors", "effective_errors", "remote_errors", "recoveries_ok")
"""What forward error correction is for, or another end's."""
RATES = {"effective ber": "effective_ber", "symbol ber": "symbol_ber"}


class Link(Struct):
    """One NVLink."""

    up: bool | None = None
    gb_s: float | None = None
    counts: dict[str, int] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    remote: str = ""
    line: str = ""
    errors: list[str] = field(default_factory=list)
    """The lines of counts that are not zero."""


class Gpu(Struct):
    """One GPU's part."""

    index: int
    name: str
    uuid: str
    links: dict[int, Link] = field(default_factory=dict)
    inactive: bool = False
    """The sentence that all its links are inactive stands in place of the links."""
    mig: bool = False
    said: str = ""
    """A sentence in place of links."""
    states: bool = False
    """The links' states were listed (-s), not only their errors."""

    @property
    def active(self) -> int | None:
        """Links that are up; None when the text does not say."""
        if self.inactive:
            return 0
        return sum(link.up is True for link in self.links.values()) if self.states else None

    @property
    def total(self) -> int | None:
        """Links that are listed with a state."""
        return len(self.links) if self.states else None

    def link(self, number: int) -> Link:
        """The link of a number, new or known."""
        return self.links.setdefault(number, Link())


def parse(lines: Iterable[str]) -> list[Gpu]:
    """GPUs in order; the same GPU in several outputs is one."""
    found: dict[tuple[int, str], Gpu] = {}
    current: Gpu | None = None
    for line in lines:
        if len(line) > LINE_CHARS:
            continue
        heading = listed([line])
        if heading and not line.startswith("  "):
            index, name, uuid = heading[0]
            if len(found) < GPUS or (index, uuid) in found:
                current = found.setdefault((index, uuid), Gpu(index, name, uuid))
        elif current is not None and line.strip():
            _line(current, line)
    return list(found.values())


def _line(gpu: Gpu, line: str) -> None:
    match = _LINK.match(line)
    if match is not None:
        number = int(match[1])
        if number < LINKS:
            _link(gpu, number, match[2], line.strip())
    elif _ALL_INACTIVE.search(line):
        gpu.inactive, gpu.said = True, line.strip()
    elif _MIG.search(line):
        gpu.mig, gpu.said = True, line.strip()
    elif _SENTENCE.match(line) and not gpu.said:
        gpu.said = line.strip()


def _link(gpu: Gpu, number: int, text: str, line: str) -> None:
    low = text.lower()
    rate = _RATE.match(text)
    if rate is not None or low in ("<inactive>", "inactive"):
        link = gpu.link(number)
        link.up, link.line, gpu.states = rate is not None, line, True
        link.gb_s = float(rate[1]) if rate is not None else None
        return
    remote = _REMOTE.search(text)
    if remote is not None:
        gpu.link(number).remote = remote[0].removeprefix("Remote Device").strip()
        return
    pair = _COUNT.match(text)
    if pair is None:
        return
    name = pair[1].strip().lower()
    if name in ERRORS and pair[2].isdigit():
        counts = gpu.link(number).counts
        counts.setdefault(ERRORS[name], int(pair[2]))
        if int(pair[2]) and ERRORS[name] not in QUIET:
            gpu.link(number).errors.append(line)
        gpu.link(number).line = gpu.link(number).line or line
    elif name in RATES:
        gpu.link(number).rates[RATES[name]] = float(pair[2])


def errors(gpu: Gpu) -> dict[int, dict[str, int]]:
    """Link -> its counts that are not zero and say something."""
    marked = {
        number: {name: count for name, count in link.counts.items() if count and name not in QUIET}
        for number, link in sorted(gpu.links.items())
    }  # fmt: skip
    return {number: counts for number, counts in marked.items() if counts}


def facts(gpu: Gpu) -> dict[str, Any]:
    """What is told of one GPU."""
    told: dict[str, Any] = {"name": gpu.name, "uuid": gpu.uuid}
    if gpu.states or gpu.inactive:
        told.update(active=gpu.active, total=gpu.total)
    if gpu.inactive:
        told["text"] = "all links inActive"
    elif gpu.said:
        told["text"] = gpu.said
    down = sorted(n for n, link in gpu.links.items() if link.up is False)
    if down:
        told["inactive"] = down
    if any(link.counts for link in gpu.links.values()):
        told["errors"] = {f"link {number}": counts for number, counts in errors(gpu).items()}
    for name in RATES.values():
        rates = [link.rates[name] for link in gpu.links.values() if name in link.rates]
        if rates:
            told[f"worst_{name}"] = max(rates)
    remotes = {f"link {n}": link.remote for n, link in sorted(gpu.links.items()) if link.remote}
    if remotes:
        told["remotes"] = remotes
    return told
