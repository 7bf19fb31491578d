"""Append-only record of everything we did to the cluster: who, from where, when, what, outcome.

Each line carries the SHA-256 of the line before it, so a line that was changed, taken out or put in
breaks the chain (console/audit_read.py tells where). Each also goes to syslog with its own hash:
only there a cut end can be seen.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec import Struct, structs

from console import to_syslog, written
from inventory.account import account
from inventory.scheduler import Allocation, Plan, Step
from probes.sanitise import clean

LOCK_S = 10.0
"""For a lock that is held for milliseconds; our estimate."""
SYSLOG_CHARS = 400
"""Below the 480 bytes that RFC 3164 leaves to every relay."""


class Who(Struct, frozen=True, kw_only=True):
    """The person behind the keyboard, as far as this machine knows."""

    user: str
    sudo_user: str = ""
    ssh_client: str = ""
    tty: str = ""

    @property
    def person(self) -> str:
        """Whose rights count: anybody can set $SUDO_USER, so it is believed of root alone."""
        return (self.sudo_user if self.user == "root" else "") or self.user

    @property
    def told(self) -> str:
        """The account, and who is said to have taken it."""
        also = self.sudo_user and self.sudo_user != self.person
        return f"{self.person} (SUDO_USER {self.sudo_user})" if also else self.person


class AuditLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing about one node. `what`: intend (before the write), outcome, reading (after)."""

    at: float
    who: Who
    what: str
    verb: str
    node: str
    reason: str
    command: tuple[str, ...] = ()
    allocation: Allocation | None = None
    """The scheduler's word: before the write for intend, after it for reading."""
    ok: bool | None = None
    detail: str = ""
    evidence: str = ""
    """Path and SHA-256 of the bundle that was taken before the write."""
    prev: str = ""
    """SHA-256 of the line before, without its newline; "" on the first line of a file."""


def who() -> Who:
    """The operator's identity from this process; $USER and its like can say anything."""
    try:
        tty = os.ttyname(0)
    except OSError:
        tty = ""
    return Who(
        user=account(),
        sudo_user=clean(os.environ.get("SUDO_USER", "")),
        ssh_client=clean(os.environ.get("SSH_CLIENT", "")),
        tty=tty,
    )


_NOTHING: Mapping[str, str] = MappingProxyType({})


class Audit:
    """Appends JSON lines to a file that only its owner can read; each line is forced to disk."""

    def __init__(self, path: Path, *, told: bool = True) -> None:
        """The file, and its folder, are created on the first line; `told` sends lines to syslog."""
        self.path = path
        self._told = told
        self._who = who()

    def intend(self, plan: Plan, evidence: Mapping[str, str] = _NOTHING) -> None:
        """What is about to be done, and on which evidence (node -> bundle).

        Raises OSError when the file cannot be written.
        """
        before = {allocation.node: allocation for allocation in plan.before}
        lines = [
            AuditLine(
                at=time.time(),
                who=self._who,
                what="intend",
                verb=plan.verb,
                node=node,
                reason=plan.reason,
                allocation=before.get(node),
                evidence=evidence.get(node, ""),
            )
            for node in plan.nodes
        ]
        self._append(lines)

    def outcome(self, plan: Plan, *steps: Step) -> None:
        """How it went, one line a Step."""
        self._append(
            [
                AuditLine(
                    at=step.at,
                    who=self._who,
                    what="outcome",
                    verb=plan.verb,
                    node=step.node,
                    reason=plan.reason,
                    command=step.command,
                    ok=step.ok,
                    detail=f"{step.phase}: {step.detail}",
                )
                for step in steps
            ]
        )

    def reading(self, plan: Plan, after: Allocation) -> None:
        """What the scheduler reports after the write."""
        self._append(
            [
                AuditLine(
                    at=after.at,
                    who=self._who,
                    what="reading",
                    verb=plan.verb,
                    node=after.node,
                    reason=plan.reason,
                    allocation=after,
                )
            ]
        )

    def _append(self, lines: Sequence[AuditLine]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(self.path, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a file")
            # Two consoles must not both follow the same line; closing the file unlocks it.
            _lock(fd)
            size = os.fstat(fd).st_size
            before, torn = _last_line(fd)
            chained = _chained(lines, before)
            data = b"".join(line + b"\n" for line in chained)
            if torn:
                data = b"\n" + data
            try:
                # A disk that gets full takes a part without complaint; the rest then raises.
                written.whole(fd, data)
                os.fsync(fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, size)  # or it would tell of what was then not done
                raise
        finally:
            os.close(fd)
        if self._told:
            _tell_syslog(lines, chained)


def _lock(fd: int) -> None:
    """Raises OSError when another console holds it for LOCK_S: a stopped one must not stop us."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise OSError(errno.EAGAIN, "another console holds it") from None
            time.sleep(0.01)
        else:
            return


def digest(line: bytes) -> str:
    """What the next line's `prev` says about this one."""
    return hashlib.sha256(line).hexdigest()


def _chained(lines: Sequence[AuditLine], before: bytes | None) -> list[bytes]:
    chained: list[bytes] = []
    for line in lines:
        prev = "" if before is None else digest(before)
        before = _json(structs.replace(line, prev=prev))
        chained.append(before)
    return chained


def _json(line: AuditLine) -> bytes:
    """One line; text that is no UTF-8 (lone surrogates, of an argument) is made harmless."""
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:
        return msgspec.json.encode(_utf8(msgspec.to_builtins(line)))


def _utf8(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _utf8(one) for key, one in value.items()}
    return [_utf8(one) for one in value] if isinstance(value, list | tuple) else value


BLOCK = 1 << 16
LINE_BYTES = 16 << 20
"""Longest line that is followed; 4,000 times what we write."""


def _last_line(fd: int) -> tuple[bytes | None, bool]:
    """The last line without its newline (None in an empty file), and whether that is missing.

    It is missing when the disk was full as the line was written. Raises OSError for a file that is
    none of ours.
    """
    size = at = os.fstat(fd).st_size
    if not size:
        return None, False
    parts: list[bytes] = []
    found = False
    while at and not found:
        if size - at > LINE_BYTES:
            raise OSError(errno.EFBIG, "its last line has no end: it is not an audit file")
        step = min(BLOCK, at)
        at -= step
        part = os.pread(fd, step, at)
        found = b"\n" in (part if parts else part[:-1])
        parts.append(part)
    tail = b"".join(reversed(parts))
    torn = not tail.endswith(b"\n")
    return tail.removesuffix(b"\n").rpartition(b"\n")[2], torn


def _tell_syslog(lines: Sequence[AuditLine], chained: Sequence[bytes]) -> None:
    """Where no syslog runs or takes it this goes nowhere, and the file stands alone."""
    texts = []
    for line, raw in zip(lines, chained, strict=True):
        by = line.who.told
        ok = "" if line.ok is None else f" {'ok' if line.ok else 'FAILED'}"
        text = f"{line.verb} {line.node} {line.what}{ok} by {by} sha256={digest(raw)}"
        texts.append(clean(text, SYSLOG_CHARS))
    to_syslog.tell(texts)
