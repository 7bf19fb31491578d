"""known_hosts files, read once and asked by key: many nodes against thousands of hashed lines.

Format: "SSH_KNOWN_HOSTS FILE FORMAT" in sshd(8). A hashed name costs one HMAC to compare, so a
search by name over 4,000 hashed lines costs 4,000 of them per node. Here lines are indexed by the
key they hold: a node shows its key, and only the lines with that very key are compared. The search
by name is left for the rare node whose key is not on file.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
from collections import Counter
from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from probes.ssh_files import matches

DEFAULT_PORT = 22
FILE_BYTES_MAX = 64 << 20
"""About 300,000 lines; more is not a known_hosts file."""


class Trust(Enum):
    """What is known about a key that a host shows."""

    KNOWN = "known"
    CHANGED = "changed"
    """Another key of the same type is on file for this host, or only other types are."""
    UNKNOWN = "unknown"
    """Nothing is on file for this host."""
    REVOKED = "revoked"


class Line(Struct, frozen=True):
    """One usable line of a file."""

    marker: str
    """"", "cert-authority" or "revoked"."""
    names: str
    """First field as written: names, patterns or |1|salt|hash."""
    algorithm: str
    key: str
    """The key in base64, as written."""
    file: str
    number: int

    @property
    def where(self) -> str:
        """file:line, as ssh names it."""
        return f"{self.file}:{self.number}"

    @property
    def hashed(self) -> bool:
        """Whether the name is hidden."""
        return self.names.startswith("|1|")

    def names_host(self, names: Sequence[str]) -> bool:
        """Whether the line speaks of one of these names (lower case, [host]:port where needed)."""
        if not self.hashed:
            patterns = self.names.lower().split(",")
            return any(matches(patterns, name) for name in names)
        try:
            _, _, salt, digest = self.names.split("|")
            wanted, key = binascii.a2b_base64(digest), binascii.a2b_base64(salt)
        except ValueError:
            return False
        return any(hmac.digest(key, name.encode(), "sha1") == wanted for name in names)


class Verdict(Struct, frozen=True):
    """The answer to "may I trust this key for this host?"."""

    trust: Trust
    line: Line | None = None
    """The line that decided: the one that holds the key, or the one that contradicts it."""


class KnownHosts:
    """All lines of some files. Re-read when a file changes."""

    def __init__(self, files: Sequence[str]) -> None:
        """Missing and unreadable files count as empty. The first one takes new keys."""
        self.files = tuple(files)
        self._stamp: tuple[object, ...] = ()
        self._by_key: dict[str, list[Line]] = {}
        self._by_name: dict[str, list[Line]] = {}
        self._patterns: list[Line] = []
        self._hashed: list[Line] = []
        self._authorities: list[Line] = []
        self._revoked: list[Line] = []
        self._types: Counter[str] = Counter()
        self.refresh()

    def refresh(self) -> None:
        """Read the files again when one of them changed."""
        stamp = tuple(_stamp(path) for path in self.files)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        for kept in (self._by_key, self._by_name):
            kept.clear()
        for lines in (self._patterns, self._hashed, self._authorities, self._revoked):
            lines.clear()
        self._types.clear()
        for path in self.files:
            self._read(path)

    def _read(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                raw = file.read(FILE_BYTES_MAX)
        except OSError:
            return
        for number, text in enumerate(raw.decode("utf-8", "replace").split("\n"), 1):
            line = _parse(text, path, number)
            if line is not None:
                self._add(line)

    def _add(self, line: Line) -> None:
        if line.marker == "cert-authority":
            self._authorities.append(line)
            return
        if line.marker == "revoked":
            self._revoked.append(line)
            return
        if line.hashed:
            self._by_key.setdefault(line.key, []).append(line)
            self._hashed.append(line)
            self._types[line.algorithm] += 1
        elif any(char in line.names for char in "*?!"):
            self._by_key.setdefault(line.key, []).append(line)
            self._patterns.append(line)
        else:
            for name in line.names.lower().split(","):
                self._by_name.setdefault(name, []).append(line)

    def check(self, host: str, port: int, key: str) -> Verdict:
        """Judge a plain host key (base64). Costs one HMAC per hashed line that holds this very key.

        As OpenSSH: an entry for [host]:port decides; the bare name counts only when there is none.
        """
        name, *bare = _names(host, port)
        for line in self._revoked:
            if line.key == key and line.names_host([name, *bare]):
                return Verdict(Trust.REVOKED, line)
        # Plain names by dict: nodes of one image may all share one key.
        plain = self._by_name.get(name, ())
        same = self._by_key.get(key, ())
        for line in [line for line in plain if line.key == key] or same:
            if line.names_host([name]):
                return Verdict(Trust.KNOWN, line)
        against = self._contradiction(name, _algorithm(key))
        if against.trust is Trust.UNKNOWN:
            plain = self._by_name.get(bare[0], ()) if bare else ()
            for line in [*(line for line in plain if line.key == key), *same]:
                if line.names_host(bare):
                    return Verdict(Trust.KNOWN, line)
        return against

    def _contradiction(self, name: str, algorithm: str) -> Verdict:
        """Search by name: only for a key that is not on file under it."""
        other: Line | None = None
        for line in self.lines([name]):
            if line.algorithm == algorithm:
                return Verdict(Trust.CHANGED, line)
            other = other or line
        return Verdict(Trust.CHANGED, other) if other else Verdict(Trust.UNKNOWN)

    def lines(self, names: Sequence[str]) -> list[Line]:
        """Every plain line that speaks of these names. One HMAC per hashed line and name."""
        found = [line for name in names for line in self._by_name.get(name, ())]
        found += [line for line in self._patterns if line.names_host(names)]
        return found + [line for line in self._hashed if line.names_host(names)]

    def authorities(self, host: str, port: int) -> list[Line]:
        """@cert-authority lines for this host."""
        names = _names(host, port)
        return [line for line in self._authorities if line.names_host(names)]

    def revoked(self, host: str, port: int) -> list[Line]:
        """@revoked lines for this host."""
        names = _names(host, port)
        return [line for line in self._revoked if line.names_host(names)]

    def key_types(self, host: str, port: int) -> list[str]:
        """Key types to ask a host for first: those on file for it, else the commonest hashed.

        OpenSSH orders them likewise, so that a host with several keys shows the one on file.
        """
        names = _names(host, port)
        known = [line.algorithm for name in names for line in self._by_name.get(name, ())]
        known += [line.algorithm for line in self._patterns if line.names_host(names)]
        return list(dict.fromkeys(known)) or [name for name, _ in self._types.most_common()]

    def hashed_types(self, host: str, port: int) -> list[str]:
        """Key types on file for the host, hashed lines included: the full search."""
        return list(dict.fromkeys(line.algorithm for line in self.lines(_names(host, port))))

    def accept(self, host: str, port: int, algorithm: str, key: str, *, hashed: bool) -> str:
        """Append a new host's key to the first file in one write; "" or why it was not kept."""
        name = _names(host, port)[0]
        text = f"{_hash(name) if hashed else name} {algorithm} {key}\n"
        path = self.files[0] if self.files else ""
        unchanged = self._stamp == tuple(_stamp(file) for file in self.files)
        try:
            number = _append(path, text)
        except OSError as error:
            number, why = 0, f"{path or 'known_hosts'}: {error.strerror}"
        else:
            why = ""
        self._add(Line("", text.split()[0], algorithm, key, path, number))
        if unchanged:
            self._stamp = tuple(_stamp(file) for file in self.files)
        return why


def fingerprint(key: str) -> str:
    """SHA256 fingerprint of a base64 key, as ssh-keygen -l prints it."""
    digest = hashlib.sha256(binascii.a2b_base64(key)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def kind(algorithm: str) -> str:
    """What people call a key type: ED25519, ECDSA, RSA."""
    for name in ("ed25519", "ecdsa", "rsa", "dss"):
        if name in algorithm:
            return "DSA" if name == "dss" else name.upper()
    return algorithm


def _names(host: str, port: int) -> list[str]:
    """Names to look up, the one to write first: OpenSSH falls back to the bare name."""
    host = host.lower()
    return [host] if port == DEFAULT_PORT else [f"[{host}]:{port}", host]


def _algorithm(key: str) -> str:
    raw = binascii.a2b_base64(key)
    return raw[4 : 4 + int.from_bytes(raw[:4], "big")].decode("ascii", "replace")


def _parse(text: str, path: str, number: int) -> Line | None:
    fields = text.split(None, 4)
    marker = ""
    if fields and fields[0] in ("@cert-authority", "@revoked"):
        marker = fields.pop(0)[1:]
    if len(fields) < 3 or fields[0].startswith(("#", "@")):
        return None
    names, algorithm, key = fields[:3]
    return Line(marker, names, algorithm, key, path, number)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _hash(name: str) -> str:
    salt = secrets.token_bytes(20)
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def _append(path: str, text: str) -> int:
    """Append one line under a lock; the number it got."""
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with contextlib.closing(os.fdopen(handle, "r+b", buffering=0)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read()
        torn = bool(before) and not before.endswith(b"\n")
        file.write((b"\n" if torn else b"") + text.encode())
        return before.count(b"\n") + torn + 1
