"""Versions of a few installed packages, from the databases of dpkg and rpm as files.

No package manager is run: it would take locks and seconds. Only packages of WANTED are looked at. A
database is read again when it has changed.
"""

import os
import re
import stat
import struct

from probes.node.context import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

    from probes.node.context import Context

WANTED = (
    ("fabricmanager", r"nvidia-fabric-?manager(-\d+)?"),
    ("imex", r"nvidia-imex(-\d+)?"),
    ("toolkit", r"nvidia-container-toolkit"),
    ("nccl", r"libnccl2?"),
    ("dcgm", r"datacenter-gpu-manager(-4-core)?"),
    ("ofed", r"mlnx-ofed-kernel(-utils|-dkms)?|ofed-scripts|doca-ofed|mlnx-ofa_kernel"),
    ("slurm", r"slurmd|slurm-smd-slurmd|slurm-slurmd"),
)
"""Our name, packages of Debian and Red Hat kinds."""

DPKG = "var/lib/dpkg/status"
RPM = ("usr/lib/sysimage/rpm/rpmdb.sqlite", "var/lib/rpm/rpmdb.sqlite")
RPM_OLD = "var/lib/rpm/Packages"
"""Berkeley DB, before RHEL 9: the standard library cannot read it."""

DPKG_BYTES = 32 << 20
"""A full HPC image has 4 MB."""
BLOCK = 1 << 18
PARAGRAPH_BYTES = 1 << 20
HEADER_BYTES = 4 << 20
ROWS = 64
VERSION_CHARS = 64

_NAMES = [(key, re.compile(pattern + r"\Z")) for key, pattern in WANTED]
_PLAIN = re.compile(r"(?:\d+:)?(\d+(?:\.\d+)+)")
"""The upstream version inside "1:580.95.05-1ubuntu1"."""


def versions(ctx: "Context") -> "Dict[str, str]":
    """Our name -> upstream version of what is installed. Booked by the caller."""
    memory = ctx.memory("packages")
    found: "Dict[str, str]" = {}
    for place, read in [(DPKG, _dpkg)] + [(place, _rpm) for place in RPM]:
        stamp = _stamp(ctx.path(place))
        if stamp is None:
            continue
        before = memory.get(place)
        if not isinstance(before, tuple) or before[0] != stamp:
            before = memory[place] = (stamp, dict(read(ctx.path(place))))
        found.update(before[1])
    if not found and os.path.exists(ctx.path(RPM_OLD)):
        ctx.missing["packages"] = "package versions: an rpm database of the old kind is not read"
    return found


def _stamp(path: "str") -> "Optional[Tuple[int, float]]":
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_size, status.st_mtime) if stat.S_ISREG(status.st_mode) else None


def known(name: "str", version: "str") -> "Iterator[Tuple[str, str]]":
    """Our name and the upstream version, for packages of WANTED."""
    for key, pattern in _NAMES:
        if pattern.match(name):
            plain = _PLAIN.match(version)
            yield key, (plain.group(1) if plain else version)[:VERSION_CHARS]


# ---------------------------------------------------------------------- dpkg


def _dpkg(path: "str") -> "Iterator[Tuple[str, str]]":
    for paragraph in _paragraphs(path):
        if b"\nStatus: install ok installed" not in paragraph:
            continue
        fields = dict(
            line.split(b": ", 1)
            for line in paragraph.split(b"\n")
            if line.startswith((b"Package: ", b"Version: "))
        )
        name, version = fields.get(b"Package", b""), fields.get(b"Version", b"")
        for entry in known(_text(name), _text(version)):
            yield entry


def _paragraphs(path: "str") -> "Iterator[bytes]":
    """Those of the status file that may be of interest, in blocks of BLOCK."""
    marks = (b"nvidia", b"nccl", b"ofed", b"ofa_kernel", b"slurm", b"datacenter-gpu")
    rest, left = b"", DPKG_BYTES
    try:
        with plain(path) as status:
            while left > 0:
                block = status.read(BLOCK)
                left -= len(block)
                parts = (rest + block).split(b"\n\n")
                rest = b"" if not block else parts.pop()[-PARAGRAPH_BYTES:]
                for part in parts:
                    if any(mark in part[:200] for mark in marks):
                        yield part
                if not block:
                    return
    except OSError:
        return


# ---------------------------------------------------------------------- rpm

TAG_NAME, TAG_VERSION = 1000, 1001
"""Tags of an rpm header (rpmtag.h); both are zero-terminated strings (type 6)."""
STRING = 6


def _rpm(path: "str") -> "Iterator[Tuple[str, str]]":
    """The sqlite database, opened read-only and unlocked: nothing is written next to it."""
    try:
        import sqlite3
    except ImportError:
        return
    globs = " OR ".join("n.key GLOB ?" for _ in range(5))
    query = "SELECT p.blob FROM Name n JOIN Packages p ON p.hnum = n.hnum WHERE %s LIMIT %d"
    wanted = ("nvidia-*", "libnccl*", "datacenter-gpu-manager*", "*ofed*", "slurm*")
    try:
        database = sqlite3.connect("file:%s?mode=ro&immutable=1" % _quoted(path), uri=True)
        try:
            rows = database.execute(query % (globs, ROWS), wanted).fetchall()
        finally:
            database.close()
    except sqlite3.Error:
        return
    for (blob,) in rows:
        strings = header_strings(blob if isinstance(blob, bytes) else b"")
        for entry in known(strings.get(TAG_NAME, ""), strings.get(TAG_VERSION, "")):
            yield entry


def _quoted(path: "str") -> "str":
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def header_strings(blob: "bytes") -> "Dict[int, str]":
    """Name and version of an rpm header: two counts, index entries of 16 bytes, data."""
    found: "Dict[int, str]" = {}
    if not 8 <= len(blob) <= HEADER_BYTES:
        return found
    entries, _ = struct.unpack(">II", blob[:8])
    start = 8 + 16 * entries
    if start > len(blob):
        return found
    for number in range(entries):
        tag, kind, offset, _ = struct.unpack_from(">IIII", blob, 8 + 16 * number)
        if tag in (TAG_NAME, TAG_VERSION) and kind == STRING:
            found[tag] = _text(blob[start + offset :][:256].split(b"\0")[0])
    return found


def _text(raw: "bytes") -> "str":
    return raw.decode("utf-8", "replace").strip()


# ---------------------------------------------------------------------- libraries

LD_CACHE = "etc/ld.so.cache"
LD_CACHE_BYTES = 4 << 20
LIBRARIES = (
    "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/local/lib",
    "usr/local/cuda/lib64",
)  # fmt: skip
_NCCL_PATH = re.compile(rb"\0/([^\0]{1,200}/libnccl\.so\.2)(?=\0)")
_NCCL_FILE = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)\Z")


def nccl_version(ctx: "Context") -> "Optional[str]":
    """Of the host's libnccl by its file name: where the loader's cache says, then usual places.

    Jobs often bring their own in a container; None says only that the host has none.
    """
    try:
        with plain(ctx.path(LD_CACHE)) as cache:
            cached = [path.decode("utf-8", "replace") for path in
                      _NCCL_PATH.findall(cache.read(LD_CACHE_BYTES))]  # fmt: skip
    except OSError:
        cached = []
    candidates: "List[str]" = cached + [place + "/libnccl.so.2" for place in LIBRARIES]
    for path in candidates:
        found = _NCCL_FILE.match(os.path.basename(ctx.readlink(path) or ""))
        if found:
            return found.group(1)
    return None
