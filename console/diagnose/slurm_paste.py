"""What people paste of Slurm: scontrol, sinfo in its usual forms, squeue, JSON of any release.

scontrol's records and `sinfo -o` are read by inventory.slurm_text, as for the live console; here
are the tables that only people read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field, structs

from inventory.errors import UsageError
from inventory.expressions import expand
from inventory.slurm_state import parse_state
from inventory.slurm_text import SlurmNode, clean, parse_time, read_nodes, read_sinfo

MOST = 20_000
"""Most nodes or jobs of one text."""
SCONTROL = re.compile(r"^NodeName=\S+ ", re.MULTILINE)
PIPED = re.compile(
    r"^[\w.-]+\|[\w.-]+\*?\|[a-z_]+[*~#!%$@^-]*\|[a-z_+]+[*~#!%$@^-]*\|",
    re.MULTILINE | re.IGNORECASE,
)  # fmt: skip
SINFO = re.compile(r"^[ \t]*PARTITION +AVAIL +TIMELIMIT +NODES +STATE +NODELIST", re.MULTILINE)
SINFO_NODES = re.compile(r"^[ \t]*NODELIST +NODES +PARTITION +STATE", re.MULTILINE)
SINFO_REASONS = re.compile(r"^[ \t]*REASON +USER +TIMESTAMP +(?:STATE +)?NODELIST", re.MULTILINE)
SQUEUE = re.compile(r"^[ \t]*JOBID +PARTITION +NAME +USER +ST(?:ATE)? +TIME", re.MULTILINE)
_JOB = re.compile(r"^(\d+(?:_\d+|_\[[\d,%-]+\])?(?:\+\d+)?)\|([^|]*)\|([A-Z_]+)\|([^|]*)")
_USED = re.compile(r"(?:^|\s)GresUsed=\S*?gpu(?::[\w.-]+)?:(\d+)|AllocTRES=\S*?gres/gpu=(\d+)")
_NAME = re.compile(r"^NodeName=(\S+)")


class PastedJob(Struct, frozen=True):
    """One line of squeue."""

    id: str
    user: str
    state: str
    nodes: tuple[str, ...] = ()
    reason: str = ""


class Pasted(Struct):
    """Everything of Slurm in one text."""

    nodes: dict[str, SlurmNode] = field(default_factory=dict)
    defaults: dict[str, bool] = field(default_factory=dict)
    """Partition -> whether it is the default one; only where the star shows it."""
    in_use: dict[str, int] = field(default_factory=dict)
    """Node -> GPUs allocated."""
    jobs: list[PastedJob] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)
    """Node -> the line that tells its state."""
    errors: list[str] = field(default_factory=list)

    def add(self, node: SlurmNode, line: str) -> None:
        """One node of one line; partitions of several lines are put together."""
        known = self.nodes.get(node.name)
        if known is None and len(self.nodes) >= MOST:
            return
        if known is not None:
            partitions = tuple(dict.fromkeys((*known.partitions, *node.partitions)))
            node = structs.replace(node, partitions=partitions, reason=node.reason or known.reason)
        self.nodes[node.name] = node
        self.lines.setdefault(node.name, line.strip())


def read(lines: list[str], values: list[Any]) -> Pasted:
    """All forms, wherever they stand; `values` are the JSON documents of the text."""
    found = Pasted()
    text = "\n".join(lines)
    for node in read_nodes(text)[:MOST]:
        if node.name:
            found.add(node, "")
    _states(lines, found)
    for value in values:
        _json(value, found)
    _piped(lines, found)
    _tables(lines, found)
    return found


def _states(lines: list[str], found: Pasted) -> None:
    """The very lines with State=, and GPUs in use, of scontrol's records."""
    name = ""
    for line in lines:
        if match := _NAME.match(line):
            name = match[1]
        if name in found.nodes:
            if "State=" in line:
                found.lines[name] = _short(line)
            if used := _USED.search(line):
                found.in_use.setdefault(name, int((used[1] or used[2])[:6]))


def _short(line: str) -> str:
    """The fields of a one-line record that say something about its state."""
    if not line.startswith("NodeName="):
        return line.strip()
    kept = re.findall(r"(?:NodeName|State|Gres|AllocTRES)=\S+", line)
    reason = line.partition(" Reason=")[2]
    return " ".join([*kept, *([f"Reason={reason}"] if reason else [])])


def _piped(lines: list[str], found: Pasted) -> None:
    kept = [line for line in lines if PIPED.match(line)]
    first: dict[str, str] = {}
    for line in kept:
        first.setdefault(line.partition("|")[0], line)
    for node in read_sinfo("\n".join(kept))[:MOST]:
        found.add(node, first.get(node.name, ""))
    for line in kept:
        partition = line.split("|", 2)[1]
        name = partition.rstrip("*")
        found.defaults[name] = found.defaults.get(name, False) or partition.endswith("*")
    for line in lines:
        if (job := _JOB.match(line)) and len(found.jobs) < MOST:
            found.jobs.append(PastedJob(clean(job[1]), clean(job[2]), job[3]))


def _tables(lines: list[str], found: Pasted) -> None:
    """The tables sinfo and squeue print by default; each ends at a line that does not fit."""
    row = None
    for line in lines:
        if not line.strip():
            continue
        row = _table_of(line) or row
        if row is not None and _table_of(line) is None:
            for node in row(line, found):
                found.add(node, line)


def _table_of(line: str) -> Any:
    for pattern, row in (
        (SINFO, _sinfo), (SINFO_NODES, _sinfo_nodes), (SINFO_REASONS, _reasons), (SQUEUE, _squeue),
    ):  # fmt: skip
        if pattern.match(line):
            return row
    return _nothing if SCONTROL.match(line) else None


def _nothing(line: str, found: Pasted) -> Iterator[SlurmNode]:
    return iter(())


def _sinfo(line: str, found: Pasted) -> Iterator[SlurmNode]:
    cells = line.split()
    if len(cells) < 6 or not cells[3].isdigit():
        return
    found.defaults[cells[0].rstrip("*")] = cells[0].endswith("*")
    for name in hosts(cells[5]):
        partitions = (cells[0].rstrip("*"),)
        yield SlurmNode(name=name, state=parse_state(cells[4]), partitions=partitions)


def _sinfo_nodes(line: str, found: Pasted) -> Iterator[SlurmNode]:
    """`sinfo -N` and `sinfo -N -l`, whose last column is the reason."""
    cells = line.split(None, 10)
    if len(cells) < 4 or not cells[1].isdigit():
        return
    found.defaults[cells[2].rstrip("*")] = cells[2].endswith("*")
    reason = clean(cells[10]) if len(cells) > 10 and cells[10].strip() != "none" else ""
    for name in hosts(cells[0]):
        partitions = (cells[2].rstrip("*"),)
        yield SlurmNode(
            name=name, state=parse_state(cells[3]), partitions=partitions, reason=reason
        )


_REASON = re.compile(
    r"^(?P<reason>.*\S)\s+(?P<user>\S+)\s+(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown)\s+"
    r"(?:(?P<state>[a-z]+[*~#!%$@^-]*)\s+)?(?P<hosts>\S+)\s*$"
)


def _reasons(line: str, found: Pasted) -> Iterator[SlurmNode]:
    match = _REASON.match(line)
    if match is None:
        return
    # `sinfo -R` lists nodes that are out of work; which way it does not say.
    state = parse_state(match["state"] or "drain")
    for name in hosts(match["hosts"]):
        if name not in found.nodes:
            yield SlurmNode(name=name, state=state, reason=clean(match["reason"]),
                            reason_by=match["user"], reason_at=parse_time(match["at"]))  # fmt: skip


def _squeue(line: str, found: Pasted) -> Iterator[SlurmNode]:
    cells = line.split(None, 7)
    if len(cells) >= 7 and re.match(r"\d+", cells[0]) and len(found.jobs) < MOST:
        where = cells[7].strip() if len(cells) > 7 else ""
        reason = where.strip("()") if where.startswith("(") else ""
        nodes = () if reason else tuple(hosts(where))
        found.jobs.append(PastedJob(cells[0], cells[3], cells[4], nodes, clean(reason)))
    return iter(())


def hosts(expression: str) -> list[str]:
    """The names of an expression; [] where it is none."""
    try:
        return expand(expression)[:MOST]
    except UsageError:
        return []


def _json(value: Any, found: Pasted) -> None:
    """`scontrol show nodes --json` since 23.02, `sinfo --json` since 21.08."""
    if not isinstance(value, dict):
        return
    for node in _dicts(value.get("nodes")):
        name = node.get("name") or node.get("hostname")
        if isinstance(name, str):
            found.add(_json_node(name, node), _json_line(name, node))
            if used := re.search(r"gpu(?::[\w.-]+)?:(\d+)", str(node.get("gres_used", ""))):
                found.in_use[name] = int(used[1][:6])
    for group in _dicts(value.get("sinfo")):
        nodes = group.get("nodes")
        names = nodes.get("nodes") if isinstance(nodes, dict) else None
        told = group.get("node")
        state = _words(told.get("state")) if isinstance(told, dict) else ""
        reason = group.get("reason")
        said = reason.get("description", "") if isinstance(reason, dict) else ""
        for name in names if isinstance(names, list) else ():
            if isinstance(name, str):
                text = clean(str(said)) if said not in ("none", None) else ""
                found.add(SlurmNode(name=name, state=parse_state(state), reason=text),
                          f"{name} {state} {text}")  # fmt: skip


def _json_node(name: str, node: dict[str, Any]) -> SlurmNode:
    flags = node.get("state_flags")
    state = "+".join(filter(None, [_words(node.get("state")), _words(flags)]))
    at = node.get("reason_changed_at")
    if isinstance(at, dict):
        at = at.get("number") if at.get("set", True) else None
    known = isinstance(at, int | float) and not isinstance(at, bool) and 0 < at < 1e12
    partitions = node.get("partitions")
    return SlurmNode(
        name=name, state=parse_state(state or "UNKNOWN"), gres=str(node.get("gres") or ""),
        partitions=tuple(map(str, partitions)) if isinstance(partitions, list) else (),
        reason=clean(str(node.get("reason") or "")),
        reason_by=clean(str(node.get("reason_set_by_user") or "")),
        reason_at=float(at) if known and at else None,
    )  # fmt: skip


def _json_line(name: str, node: dict[str, Any]) -> str:
    state = "+".join(filter(None, [_words(node.get("state")), _words(node.get("state_flags"))]))
    return f"{name} state {state} reason {node.get('reason') or ''}"[:300]


def _words(value: Any) -> str:
    """States come as one word, or since 23.11 as a list."""
    if isinstance(value, list):
        return "+".join(str(word) for word in value[:32])
    return value if isinstance(value, str) else ""


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())
