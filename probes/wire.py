"""The agent's frames as typed records (wire protocol: probes/node/__init__.py), lines from bytes.

Everything here reads hostile bytes: lengths, counts and numbers are bounded, nothing is evaluated.
"""

from __future__ import annotations

import json
import math
from typing import TypeAlias

import msgspec
from msgspec import Struct, field

from probes.event import Row, Scalar

LINE_BYTES = 1 << 20
"""Longest line kept; a full processes or kernel_log frame is about 150 KB."""

NUMBER_MAX = float(1 << 64)
"""Counters are at most 64 bits wide; anything larger is not a reading."""


class Hello(Struct, tag_field="k", tag="hello"):
    """First frame of an agent."""

    v: int = 0
    host: str = ""
    python: str = ""
    pid: int = 0
    uid: int = -1
    boot_id: str = ""
    boot_wall: float = 0.0
    wall: float | None = None
    mono: float = 0.0
    kernel: str = ""
    os: str = ""
    caps: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


class Tick(Struct, tag_field="k", tag="s"):
    """One answer of one probe about all its devices."""

    p: str
    t: float
    d: dict[str, dict[str, Scalar]] = field(default_factory=dict)
    r: list[Row] = field(default_factory=list)
    on: str = ""
    """The device that the rows are about."""
    gone: list[str] = field(default_factory=list)
    at: dict[str, float] = field(default_factory=dict)
    """Devices whose readings were made clearly before `t`."""


class Hung(Struct, tag_field="k", tag="hung"):
    """A driver call is in flight past its deadline."""

    p: str
    t: float
    dev: str = ""
    call: str = ""
    since: float | None = None


class Unhung(Struct, tag_field="k", tag="unhung"):
    """It came back."""

    p: str
    t: float
    dev: str = ""


class Err(Struct, tag_field="k", tag="err"):
    """A probe failed as a whole."""

    p: str
    t: float
    text: str = ""


class Job(Struct, tag_field="k", tag="job"):
    """State of an active test."""

    id: str
    state: str
    text: str = ""
    rc: int | None = None


class Blob(Struct, tag_field="k", tag="blob"):
    """A piece of a file; see probes.blobs."""

    id: str
    f: str
    z: str = ""
    end: bool = False
    note: str = ""


class End(Struct, tag_field="k", tag="end"):
    """The pass is over."""

    t: float = 0.0


Frame: TypeAlias = Hello | Tick | Hung | Unhung | Err | Job | Blob | End

_decoder: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)


def read_frame(raw: bytes) -> Frame | None:
    """The frame in these bytes (without marker), None when they hold none."""
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _read_leniently(raw)


def _read_leniently(raw: bytes) -> Frame | None:
    """As `read_frame`, for names that are not UTF-8: lone surrogates, raw bytes. Far slower."""
    try:
        loose = json.loads(raw.decode("utf-8", "replace"), parse_constant=lambda _name: None)
        frame: Frame = msgspec.convert(_without_holes(loose), Frame)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None
    return frame


def _without_holes(loose: object) -> object:
    """Nulls inside readings mean absent: leave them out rather than lose the frame."""
    if isinstance(loose, dict) and isinstance(loose.get("d"), dict):
        for device, values in loose["d"].items():
            if isinstance(values, dict):
                loose["d"][device] = {k: v for k, v in values.items() if v is not None}
    return loose


def sane(value: Scalar) -> bool:
    """Whether a number can be a reading: finite and within 64 bits."""
    if isinstance(value, float):
        return math.isfinite(value) and abs(value) <= NUMBER_MAX
    return not isinstance(value, int) or abs(value) <= NUMBER_MAX


class Lines:
    """Splits a byte stream into lines without ever holding more than one line cap."""

    __slots__ = ("_cap", "_partial", "_skipping", "dropped")

    def __init__(self, cap: int = LINE_BYTES) -> None:
        """`cap`: bytes of the longest line kept."""
        self._cap = cap
        self._partial = bytearray()
        self._skipping = False
        self.dropped = 0
        """Lines thrown away because they were too long."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines completed by this chunk, without their line feed."""
        head, separator, rest = chunk.partition(b"\n")
        self._keep(head)
        if not separator:
            return []
        lines = [] if self._skipping else [bytes(self._partial)]
        self._partial.clear()
        self._skipping = False
        if rest:
            *more, last = rest.split(b"\n")
            lines += [line for line in more if self._fits(line)]
            self._keep(last)
        return lines

    def _fits(self, line: bytes) -> bool:
        if len(line) <= self._cap:
            return True
        self.dropped += 1
        return False

    def _keep(self, part: bytes) -> None:
        if self._skipping:
            return
        if len(self._partial) + len(part) > self._cap:
            self._partial = bytearray()  # clear() would keep the memory
            self._skipping = True
            self.dropped += 1
        else:
            self._partial += part

    @property
    def unfinished(self) -> bytes:
        """The beginning of the line that has not ended yet."""
        return bytes(self._partial)
