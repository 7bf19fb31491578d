"""Which lines of a paste are of which node: clush, pdsh, ansible, salt and hand-made headings.

A prefix counts as a node's name only where nearly every line has one and none is a tool's own name;
so that one node's output is never taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, field

from inventory.expressions import expand

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,80}[A-Za-z0-9])?"
_PREFIX = re.compile(rf"({_NAME}):(?: (.*)|\s*)$")
_HEADINGS = (
    re.compile(rf"#{{2,}}\s*({_NAME})(?:\s+rc=(-?\d+))?\s*#*$"),
    re.compile(rf"={{2,}}\s*({_NAME})(?:\s+rc=(-?\d+))?\s*={{2,}}$"),
    re.compile(rf"-{{2,}}\s*({_NAME})(?:\s+rc=(-?\d+))?\s*-{{2,}}$"),
    re.compile(rf"({_NAME}) \| (?:SUCCESS|CHANGED|FAILED|UNREACHABLE)!?(?: \| rc=(-?\d+))? >>$"),
    re.compile(rf"==> ({_NAME}) <==$"),
    re.compile(rf"({_NAME}):$"),
    re.compile(rf"\[\d+\] [\d:]+ \[(?:SUCCESS|FAILURE)\] ({_NAME})(?: .*)?$"),
    re.compile(rf"(?i:[#=>-]+\s*(?:host|node|hostname)\s*[:=]?\s*({_NAME})\s*[#=-]*$)"),
)
_RULE = re.compile(r"-{8,}$")
_GATHERED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._,\[\]-]{0,400}?)(?: \(\d+\))?$")
_TOOLS = frozenset({
    "bash", "sh", "dash", "zsh", "ibpanic", "ibwarn", "ibstat", "ibstatus", "nvml", "error",
    "warning", "warn", "info", "note", "legend", "timeout", "sudo", "perfquery", "ibqueryerrors",
    "iblinkinfo", "hca", "ca", "switch", "gpu", "nvidia-smi", "ssh", "errors", "summary", "nic",
    "driver", "port", "link", "state", "rate", "x", "command", "stdout", "stderr", "output",
})  # fmt: skip
SHARE = 0.9
"""Least share of the lines that carry a prefix where prefixes are nodes (our estimate)."""
PARTS = 10_000


class Part(Struct):
    """What one node said."""

    node: str = ""
    rc: int | None = None
    """The exit status that the heading gives."""
    lines: list[str] = field(default_factory=list)


def parts(lines: Sequence[str], host: str = "") -> list[Part]:
    """The lines by node, in order; one part without a name where none is named."""
    return _by_prefix(lines) or _by_heading(lines, host)


def head(text: str, lines: int = 600) -> str:
    """The beginning of a text without the names in front of its lines, for who sniffs at it."""
    first = text.split("\n", lines)[:lines]
    named = _by_prefix(first)
    return text if named is None else "\n".join(line for part in named[:8] for line in part.lines)


def _by_prefix(lines: Sequence[str]) -> list[Part] | None:
    filled = [line for line in lines if line.strip()]
    found = [match for line in filled if (match := _PREFIX.match(line)) and _is_host(match[1])]
    if not found or len(found) < SHARE * len(filled):
        return None
    by_node: dict[str, Part] = {}
    for match in found:
        if len(by_node) < PARTS or match[1] in by_node:
            by_node.setdefault(match[1], Part(match[1])).lines.append(match[2] or "")
    return list(by_node.values())


def _is_host(name: str) -> bool:
    """A host's name here has a digit; tools and sections of a report have not."""
    low = name.lower()
    plain = re.sub(r"[\d_/.-]+$", "", low)
    return low not in _TOOLS and plain not in ("mlx", "mlx5", "mlx4", "nic", "gpu", "link") and (
        any(char.isdigit() for char in name) and not low.isdigit()
    )  # fmt: skip


def _by_heading(lines: Sequence[str], host: str) -> list[Part]:
    found = [Part(host)]
    skip = 0
    for number, line in enumerate(lines):
        if skip:
            skip -= 1
            continue
        text = line.strip()
        names = _gathered(lines, number)
        if names is not None:
            found += [Part(name) for name in names]
            skip = 2
            continue
        heading = _heading(text)
        if heading is not None and len(found) < PARTS:
            found.append(heading)
        else:
            for part in _open(found):
                part.lines.append(line)
    kept = [part for part in found if part.node != host or any(line.strip() for line in part.lines)]
    return kept or found[:1]


def _open(found: list[Part]) -> list[Part]:
    """Parts that a line belongs to: the last one, with all that share a gathered heading."""
    last = len(found) - 1
    while last > 0 and not found[last].lines and not found[last - 1].lines and last > 1:
        last -= 1
    together = found[last:]
    if len(together) == 1 and found[-1].lines:
        count = len(found[-1].lines)
        same = [part for part in found if part.lines and part.lines is not found[-1].lines
                and len(part.lines) == count and part.lines == found[-1].lines]  # fmt: skip
        return [*same, found[-1]] if same and found[-1].node else [found[-1]]
    return together


def _heading(text: str) -> Part | None:
    for pattern in _HEADINGS:
        match = pattern.match(text)
        if match is None or not any(char.isalpha() for char in match[1]):
            continue
        rc = match[2] if pattern.groups > 1 else None
        # A word alone is a title of somebody's notes; hosts have a number, or a status behind.
        if _is_host(match[1]) or (rc is not None and match[1].lower() not in _TOOLS):
            return Part(match[1], None if rc is None else int(rc[:12]))
    return None


def _gathered(lines: Sequence[str], at: int) -> list[str] | None:
    """Names of `clush -b` and `dshbak -c`: a rule, the folded names, a rule."""
    if at + 2 >= len(lines) or not _RULE.match(lines[at].strip()):
        return None
    name = _GATHERED.match(lines[at + 1].strip())
    if name is None or not _RULE.match(lines[at + 2].strip()):
        return None
    try:
        return list(expand(name[1]))[:PARTS]
    except Exception:  # noqa: BLE001 - ClusterShell raises many kinds; then it is no node's name
        return None
