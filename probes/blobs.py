"""Files that a node sends in pieces: put together, bounded, under harmless names. Pure.

A hostile node may send any name, any number of files, bombs that unpack to gigabytes, or pieces
that are no zlib at all. It costs that node's files only.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib

from msgspec import Struct

from probes.sanitise import clean
from probes.wire import Blob

FILES_MAX = 64
"""The agent sends about 25."""
FILE_BYTES = 8 << 20
ALL_BYTES = 32 << 20
"""Above the agent's own limits of 4 and 24 MiB: what is cut here was sent by something else."""
NAME_CHARS = 80
NOTE_CHARS = 1000
"""A file may end again and again, with another note each time."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class File(Struct, frozen=True, kw_only=True):
    """One file as it came."""

    data: bytes
    note: str = ""
    """Why it is not whole, or not there: a command that failed, a limit, a broken transfer."""


class Files:
    """All files of one node."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._parts: dict[str, bytearray] = {}
        self._notes: dict[str, str] = {}
        self._open: set[str] = set()
        self._bytes = 0

    def add(self, blob: Blob) -> None:
        """One more piece."""
        name = safe_name(blob.f)
        if name not in self._parts:
            if len(self._parts) >= FILES_MAX:
                return
            self._parts[name] = bytearray()
        self._open.add(name)
        part = self._parts[name]
        room = min(FILE_BYTES - len(part), ALL_BYTES - self._bytes)
        piece, trouble = unpacked(blob.z, room)
        part += piece
        self._bytes += len(piece)
        notes = [self._notes.get(name, ""), trouble]
        if blob.end:
            self._open.discard(name)
            notes.insert(0, clean(blob.note))
        self._notes[name] = "; ".join(dict.fromkeys(filter(None, notes)))[:NOTE_CHARS]

    def taken(self) -> dict[str, File]:
        """Name -> file; one whose end never came says so."""
        return {
            name: File(
                data=bytes(data),
                note="; ".join(
                    filter(
                        None,
                        (self._notes.get(name, ""), "its end is missing" * (name in self._open)),
                    )
                ),
            )
            for name, data in self._parts.items()
        }


def safe_name(name: str) -> str:
    """A file name without folders, hidden names or anything a terminal or shell could mind."""
    kept = _UNSAFE.sub("_", name[: NAME_CHARS * 2]).lstrip(".")[:NAME_CHARS]
    return kept or "unnamed"


def unpacked(text: str, room: int) -> tuple[bytes, str]:
    """At most `room` bytes of a packed piece, and what was wrong with it ("" when nothing)."""
    if room <= 0:
        return b"", "cut: more than a node may send"
    try:
        packed = zlib.decompressobj()
        data = packed.decompress(base64.b64decode(text, validate=True), room)
    except (binascii.Error, ValueError, zlib.error):
        return b"", "a piece was not readable"
    if packed.unconsumed_tail:
        return data, "cut: more than a node may send"
    return data, "" if packed.eof else "a piece was cut short"
