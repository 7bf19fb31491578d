"""Host expressions: how people name many hosts, `gpu[001-064],login1!gpu007`.

Grammar: items joined by "," or blanks (union) or "!" (take away what follows), read from left to
right. An item is a host name with any number of bracketed lists of numbers and ranges:
`r[1-4]n[01-18]`, `n[0-30/2]` (every second), `n[1-3]-ib`. Padding is kept: `[09-11]` is 09 10 11.

Everything is checked here, with the column, before ClusterShell sees it: it and Slurm's own
`scontrol show hostnames` read some broken expressions as other hosts. This is the only importer of
ClusterShell; its node groups are off, because looking them up runs commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from msgspec import Struct

from inventory.errors import UsageError

MAX_HOSTS = 100_000
"""Most hosts one expression may stand for; 10 times the largest cluster we know of."""
MAX_NAME = 253
"""Octets in a DNS name (RFC 1035)."""
MAX_DIGITS = 18
"""Digits of one number; more is a typing error and costs big-integer arithmetic."""

_SEPARATOR = re.compile(r"\s*[,!]\s*|\s+")
_LITERAL = re.compile(r"[A-Za-z0-9._-]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+)(?:/([0-9]+))?)?")
_NUMBER = re.compile(r"([0-9]+)")
_WHY_NOT = {
    "@": "node groups of ClusterShell are not read here, and a login name goes into `user:`",
    "*": "wildcards are not host names",
    "?": "wildcards are not host names",
    "&": 'only "," and "!" combine hosts',
    "^": 'only "," and "!" combine hosts',
    ":": "a port or an IPv6 address goes into `port:` or `address:`",
}


class MalformedError(ValueError):
    """A broken expression: what is wrong, and the column (from 1) where."""

    def __init__(self, why: str, column: int) -> None:
        """`why` names the malformed part."""
        super().__init__(why)
        self.why = why
        self.column = column


class _Item(Struct, frozen=True):
    """One name with its ranges, the operator before it, and the offset where it begins."""

    operator: str
    text: str
    offset: int


def in_order(names: Iterable[str]) -> list[str]:
    """Each name once, in natural order."""
    return sorted(set(names), key=natural_key)


def natural_key(name: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key that puts gpu2 before gpu10; names equal in value (n1, n01) stay apart."""
    parts = _NUMBER.split(name[:MAX_NAME])
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts)), name


def is_host_name(text: str) -> bool:
    """Whether this is one plain host name or IPv4 address, safe as an argument of a program."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def expand(expression: str, *, where: str = "") -> list[str]:
    """The hosts an expression names, in the order written and without duplicates.

    `where` (file:line or the option) leads the message of the UsageError that a malformed
    expression, or one of more than MAX_HOSTS hosts, raises; nothing of it is expanded then.
    """
    try:
        return list(_expand(expression))
    except MalformedError as bad:
        shown = expression if len(expression) <= 60 else expression[:57] + "..."
        raise UsageError(
            f"host expression {shown!r}: {bad.why} at column {bad.column}",
            where=where,
            instead="write for example gpu[001-064],login1",
        ) from bad


def fold(names: Iterable[str], *, last_number_only: bool = False) -> str:
    """The shortest expression for these hosts, in natural order; expand() gives them back.

    With `last_number_only` ranges appear at the very end of a name and nowhere else, which is what
    Slurm's host lists take (`r1n[1-2],r2n[1-2]`, and `n1-ib,n2-ib` as they are).
    """
    unique = sorted(set(names), key=natural_key)
    foldable = [n for n in unique if is_host_name(n) and (n[-1].isdigit() or not last_number_only)]
    if last_number_only:
        parts = _fold_by_prefix(foldable)
    else:
        parts = [str(NodeSet.fromlist(foldable, resolver=RESOLVER_NOGROUP))] if foldable else []
    left = set(foldable)
    return ",".join([*parts, *(name for name in unique if name not in left)])


def _fold_by_prefix(names: list[str]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rstrip("0123456789"), []).append(name)
    folded = []
    for prefix, members in groups.items():
        if len(members) == 1:
            folded.append(members[0])
            continue
        # The prefix may hold digits too; a stand-in keeps ClusterShell from folding those.
        numbers = [f"x{name[len(prefix) :]}" for name in members]
        text = str(NodeSet.fromlist(numbers, resolver=RESOLVER_NOGROUP))
        folded.append(f"{prefix}{text[1:]}")
    return folded


@lru_cache(maxsize=1024)
def _expand(expression: str) -> tuple[str, ...]:
    items = list(_items(expression))
    if sum(_count(item) for item in items) > MAX_HOSTS:
        raise MalformedError(f"too many hosts (more than {MAX_HOSTS:,})", 1)
    found: dict[str, None] = {}
    for item in items:
        names = _names(item)
        if item.operator == "!":
            for name in names:
                found.pop(name, None)
        else:
            found.update(dict.fromkeys(names))
    return tuple(found)


def _names(item: _Item) -> list[str]:
    if "[" not in item.text:
        return [item.text]
    try:
        return [str(name) for name in NodeSet(item.text, resolver=RESOLVER_NOGROUP)]
    except NodeSetException as refused:
        raise MalformedError(str(refused), item.offset + 1) from refused


def _items(expression: str) -> Iterator[_Item]:
    """Split at separators outside brackets; every bracket and name character is checked."""
    end = len(expression.rstrip())
    i = start = len(expression) - len(expression.lstrip())
    operator = ","
    if i >= end:
        raise MalformedError("empty host expression", 1)
    while i < end:
        if separator := _SEPARATOR.match(expression, i, end):
            yield _item(operator, expression[start:i], start)
            operator = "!" if "!" in separator[0] else ","
            i = start = separator.end()
        elif expression[i] == "[":
            i = _bracket_end(expression, i, end)
        elif expression[i] == "]":
            raise MalformedError("unexpected ]", i + 1)
        else:
            _check_literal(expression[i], i, first=i == start)
            i += 1
    yield _item(operator, expression[start:end], start)


def _item(operator: str, text: str, offset: int) -> _Item:
    if not text:
        raise MalformedError("empty name", offset + 1)
    if "[" not in text and len(text) > MAX_NAME:
        raise MalformedError(f"name longer than {MAX_NAME} characters", offset + 1)
    if "][" in text:
        column = offset + text.index("][") + 2
        raise MalformedError("two brackets without a character between", column)
    return _Item(operator, text, offset)


def _check_literal(character: str, at: int, *, first: bool) -> None:
    if first and character in "-.":
        raise MalformedError(f"a host name cannot begin with {character!r}", at + 1)
    if _LITERAL.fullmatch(character):
        return
    reason = _WHY_NOT.get(character, "")
    shown = f"{character!r} cannot be in a host name"
    raise MalformedError(f"{shown} ({reason})" if reason else shown, at + 1)


def _bracket_end(expression: str, start: int, end: int) -> int:
    """Offset after the bracket that opens at `start`."""
    close = expression.find("]", start, end)
    nested = expression.find("[", start + 1, end)
    if nested != -1 and (close == -1 or nested < close):
        raise MalformedError("nested bracket", nested + 1)
    if close == -1:
        raise MalformedError("unclosed bracket", start + 1)
    inside = expression[start + 1 : close]
    if not inside:
        raise MalformedError("empty bracket", start + 1)
    at = start + 1
    for piece in inside.split(","):
        _span(piece, at)
        at += len(piece) + 1
    return close + 1


def _span(piece: str, at: int = 0) -> int:
    """How many numbers a piece such as "01-18" or "0-30/2" stands for."""
    if not piece:
        raise MalformedError("empty item in brackets", at + 1)
    match = _RANGE.fullmatch(piece)
    if match is None:
        raise MalformedError(_why_not_a_range(piece), at + 1)
    if any(len(digits or "") > MAX_DIGITS for digits in match.groups()):
        raise MalformedError(f"number of more than {MAX_DIGITS} digits", at + 1)
    low, high, step = match[1], match[2] or match[1], int(match[3] or 1)
    if int(low) > int(high):
        raise MalformedError(f"descending range {piece}", at + 1)
    if step == 0:
        raise MalformedError(f"step 0 in range {piece}", at + 1)
    if len(low) != len(high) and any(len(end) > 1 and end[0] == "0" for end in (low, high)):
        raise MalformedError(f"range {piece} is padded at one end only", at + 1)
    return (int(high) - int(low)) // step + 1


def _why_not_a_range(piece: str) -> str:
    if re.fullmatch(r"[0-9]+-|-[0-9]+", piece):
        return f"open range {piece}"
    if re.search(r"[^0-9/-]", piece):
        return f"{piece!r} is not a number or a range of numbers"
    return f"bad range {piece}"


def _count(item: _Item) -> int:
    count = 1
    for inside in re.findall(r"\[([^]]*)\]", item.text):
        count *= sum(_span(piece) for piece in inside.split(","))
    return count
