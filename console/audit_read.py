"""`gpuconsole audit`: what was done, by whom, and whether the record is whole."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from console.audit import LINE_BYTES, AuditLine, digest
from console.output import Exit, Stdout
from console.written import say
from inventory.errors import UsageError
from inventory.expressions import expand
from probes.sanitise import clean

LINE_CHARS = 1000
_decoder = msgspec.json.Decoder(AuditLine)


class Entry(Struct, frozen=True):
    """A line of the file: its number from 1, its bytes, what it says (None: not readable)."""

    number: int
    raw: bytes
    line: AuditLine | None


class Break(Struct, frozen=True):
    """A place where the record is not what was written."""

    number: int
    why: str


def entries(path: Path) -> Iterator[Entry]:
    """All lines, oldest first. UsageError when there is no file or it may not be read."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError("cannot read it: not a file", where=str(path))
        with path.open("rb") as file:
            for number in itertools.count(1):
                raw = file.readline(LINE_BYTES)
                if not raw:
                    return
                yield Entry(number, raw.removesuffix(b"\n"), _read(raw))
                while len(raw) == LINE_BYTES and not raw.endswith(b"\n"):
                    raw = file.readline(LINE_BYTES)
    except FileNotFoundError:
        raise UsageError(NOTHING_YET, where=str(path)) from None
    except OSError as error:
        raise UsageError(f"cannot read it: {error.strerror}", where=str(path)) from None


def _read(raw: bytes) -> AuditLine | None:
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def breaks(path: Path) -> Iterator[Break]:
    """Where the chain does not hold. Lines of a version without a chain may only come first."""
    before: bytes | None = None
    chained = False
    for entry in entries(path):
        line = entry.line
        if line is None:
            yield Break(entry.number, "not readable: cut off by a full disk, or overwritten")
        elif line.prev:
            expected = None if before is None else digest(before)
            if line.prev != expected:
                why = "does not follow the line before it: something was changed, added or removed"
                yield Break(entry.number, why)
            chained = True
        elif chained:
            yield Break(entry.number, "has no link to the line before it: it was added by hand")
        before = entry.raw


NOTHING_YET = "nothing was drained or resumed from here yet"


def run(path: Path, *, nodes: str, verify: bool, json: bool) -> int:
    """Exit 0, or 2 when `verify` finds the chain broken."""
    if verify:
        return _verify(path)
    if not os.path.lexists(path):
        say(f"{path}: {NOTHING_YET}")
        return Exit.OK
    wanted = frozenset(expand(nodes)) if nodes else None
    out = Stdout()
    pending: dict[str, int] = {}
    for entry in entries(path):
        line = entry.line
        if line is None:
            say(f"gpuconsole: {path}:{entry.number}: not readable")
        elif wanted is None or line.node in wanted:
            if json:
                out.write(entry.raw + b"\n")
            else:
                out.text(f"{_told(line)}\n")
            if line.what == "intend":
                pending[line.node] = entry.number
            elif line.what == "outcome":
                pending.pop(line.node, None)
    for node, number in pending.items():
        why = "no outcome: it is being done, or the console was killed; ask the scheduler"
        say(f"{path}:{number}: {clean(node)}: {why}")
    return Exit.OK


def _verify(path: Path) -> int:
    found = list(breaks(path))
    for one in found:
        say(f"{path}:{one.number}: {one.why}")
    whole = sum(1 for _ in entries(path))
    word = f"broken in {len(found)} places" if found else "chain intact"
    say(f"{path}: {whole} lines, {word}; a cut end shows only against syslog (tag gpuconsole)")
    return Exit.CRITICAL if found else Exit.OK


def _told(line: AuditLine) -> str:
    """One line for a person: when, who, what, node, outcome."""
    try:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
    except (ValueError, OverflowError, OSError):
        when = f"at {line.at:g}"
    who = line.who.told
    source = f"@{line.who.ssh_client.split()[0]}" if line.who.ssh_client.split() else ""
    outcome = "" if line.ok is None else ("ok" if line.ok else "FAILED")
    state = line.allocation.raw or line.allocation.state if line.allocation else ""
    words = (when, f"{who}{source}", line.verb, line.node, line.what, outcome, line.detail, state)
    text = "  ".join(word for word in words if word)
    reason = f"  ({line.reason})" if line.reason and line.what == "intend" else ""
    return clean(text + reason, LINE_CHARS)
