"""Append-only record of everything we did to the cluster: who, from where, when, what, outcome."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from inventory.scheduler import Allocation, Plan, Step


class Who(Struct, frozen=True, kw_only=True):
    """The person behind the keyboard, as far as this machine knows."""

    user: str
    sudo_user: str = ""
    ssh_client: str = ""
    tty: str = ""


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


def who() -> Who:
    """The operator's identity from this process; $USER and its like can say anything."""
    try:
        tty = os.ttyname(0)
    except OSError:
        tty = ""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    return Who(
        user=user,
        sudo_user=os.environ.get("SUDO_USER", ""),
        ssh_client=os.environ.get("SSH_CLIENT", ""),
        tty=tty,
    )


class Audit:
    """Appends JSON lines to a file that only its owner can read; each line is forced to disk."""

    def __init__(self, path: Path) -> None:
        """The file, and its folder, are created on the first line."""
        self.path = path
        self._who = who()

    def intend(self, plan: Plan) -> None:
        """What is about to be done. Raises OSError when the file cannot be written."""
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
            )
            for node in plan.nodes
        ]
        self._append(lines)

    def outcome(self, plan: Plan, step: Step) -> None:
        """How the write went for one node."""
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
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _torn(fd):
                data = b"\n" + data
            while data:
                # A disk that gets full takes a part without complaint; the rest then raises.
                data = data[os.write(fd, data) :]
            os.fsync(fd)
        finally:
            os.close(fd)


def _torn(fd: int) -> bool:
    """Whether the file ends within a line: the disk was full when that was written."""
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"
