"""Readers of what Slurm's own commands print. Pure; text in, records out.

scontrol's records are read in both forms, one line a node (`-o`) and many. We ask for the second:
there `Reason=` ends with its line, while in the first a reason can look like the fields behind it.
JSON is not used: `scontrol --json` is missing in 22.05, its shape has changed with most releases,
and `sinfo --json` answers rc 0 and an empty list when the controller is down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from inventory.errors import UsageError
from inventory.expressions import expand
from inventory.scheduler import Job
from inventory.slurm_state import SlurmState, parse_state

SEPARATOR = "\x1f"
"""Unit separator: what no job name or reason is likely to hold, unlike "|"."""
SQUEUE_FORMAT = SEPARATOR.join(("%i", "%u", "%D", "%e", "%S", "%P", "%N", "%j"))
"""Id, user, node count, end time, start time, partition, node list, name; the name last, as it may
hold anything."""

_STAMP = re.compile(r" ?\[([^\[\]@]+)@([^\[\]]*)\]")
_AFTER_REASON = re.compile(r"\s+(?:ReservationName|Comment|Extra|InstanceId|InstanceType)=")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_FIELDS = {
    key: re.compile(rf"(?:^|\s){key}=(\S*)")
    for key in ("NodeName", "State", "NodeAddr", "Partitions", "Gres")
}
_UNSET = ("", "(null)", "N/A", "none", "Unknown", "None")
_GPU = re.compile(r"(?:^|,)gpu(?::([^:,()]+))?:([0-9]+)(?=[(,]|$)")


class SlurmNode(Struct, frozen=True, kw_only=True):
    """One node as Slurm describes it."""

    name: str
    state: SlurmState
    address: str = ""
    partitions: tuple[str, ...] = ()
    gres: str = ""
    reason: str = ""
    """On one line, control characters taken out."""
    reason_by: str = ""
    reason_at: float | None = None


class Gpus(Struct, frozen=True):
    """GPUs of a node as configured in Slurm."""

    count: int
    model: str


def clean(text: str) -> str:
    """Text on one line, without control characters; nothing else changed."""
    return _CONTROL.sub(" ", text).strip()


def read_nodes(text: str) -> list[SlurmNode]:
    """`scontrol show nodes`, with or without -o. Lines that belong to no node are left out."""
    return [_node(lines) for lines in _records(text)]


def _records(text: str) -> Iterator[list[str]]:
    record: list[str] = []
    for line in text.split("\n"):
        if line.startswith("NodeName="):
            if record:
                yield record
            record = [line]
        elif record and line.startswith("   "):
            record.append(line)
        elif record:
            yield record
            record = []
    if record:
        yield record


def _node(lines: list[str]) -> SlurmNode:
    fields, reason = _split_reason(lines)
    said, by, at = _stamped(reason, one_line=len(lines) == 1)
    return SlurmNode(
        name=_field(fields, "NodeName"),
        state=parse_state(_field(fields, "State") or "UNKNOWN"),
        address=_field(fields, "NodeAddr"),
        partitions=tuple(filter(None, _field(fields, "Partitions").split(","))),
        gres=_field(fields, "Gres"),
        reason=said,
        reason_by=by,
        reason_at=at,
    )


def _field(fields: str, key: str) -> str:
    match = _FIELDS[key].search(fields)
    return match[1] if match and match[1] not in _UNSET else ""


def _split_reason(lines: list[str]) -> tuple[str, list[str]]:
    """The fields before the reason, and the reason's own lines."""
    if len(lines) == 1:
        fields, _, reason = lines[0].partition(" Reason=")
        return fields, [reason] if reason else []
    for i, line in enumerate(lines):
        if line.startswith("   Reason="):
            more = []
            for following in lines[i + 1 :]:
                # Further lines of a reason are indented by 10, the next field by 3.
                if not following.startswith(" " * 10):
                    break
                more.append(following)
            return "\n".join(lines[:i]), [line.removeprefix("   Reason="), *more]
    return "\n".join(lines), []


def _stamped(lines: list[str], *, one_line: bool) -> tuple[str, str, float | None]:
    """Reason, user and time. The stamp ends the first line; of two the last one counts."""
    if not lines:
        return "", "", None
    first = lines[0]
    if one_line:
        ends = [m for m in _STAMP.finditer(first) if _ends_reason(first, m.end())]
        stamp = ends[-1] if ends else None
        tail = _AFTER_REASON.split(first[stamp.end() :], maxsplit=1)[0] if stamp else ""
        tail = re.sub(r" {2,}", " ", tail)  # the indentation of its further lines
    else:
        found = list(_STAMP.finditer(first))
        stamp = found[-1] if found and found[-1].end() == len(first.rstrip()) else None
        tail = ""
    if stamp is None:
        return _spaced([first, *lines[1:]]), "", None
    return _spaced([first[: stamp.start()], tail, *lines[1:]]), stamp[1], parse_time(stamp[2])


def _ends_reason(text: str, at: int) -> bool:
    """Whether what follows a stamp shows it is Slurm's: nothing, a known field, a second line."""
    rest = text[at:]
    return not rest.strip() or _AFTER_REASON.match(rest) is not None or rest.startswith(" " * 8)


def _spaced(parts: list[str]) -> str:
    return clean(" ".join(part.strip() for part in parts if part.strip()))


def parse_time(text: str) -> float | None:
    """Epoch seconds of Slurm's local ISO time; None for N/A, Unknown, UNLIMITED and the like."""
    if not _TIME.fullmatch(text.strip()):
        return None
    try:
        # 15 times faster than strptime. Without a zone it is this machine's, as Slurm prints it.
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return None


def read_sinfo(text: str) -> list[SlurmNode]:
    """`sinfo -h -N -o '%N|%P|%t|%T|%E'`: one record a node, its partitions put together.

    The default partition's star is taken off, and a reason may hold "|".
    """
    nodes: dict[str, SlurmNode] = {}
    for line in text.splitlines():
        fields = line.split("|", 4)
        if len(fields) < 5:
            continue
        name, partition, _, state, reason = fields
        known = nodes.get(name)
        before = known.partitions if known else ()
        nodes[name] = SlurmNode(
            name=name,
            state=parse_state(state),
            partitions=(*before, partition.rstrip("*")),
            reason="" if reason in _UNSET else clean(reason),
        )
    return list(nodes.values())


def read_jobs(text: str) -> dict[str, list[Job]]:
    """`squeue -h -o SQUEUE_FORMAT`: node -> jobs there. Lines of another shape are left out."""
    jobs: dict[str, list[Job]] = {}
    for line in text.split("\n"):
        fields = line.split(SEPARATOR, 7)
        if len(fields) < 8:
            continue
        number, user, count, end, start, partition, nodes, name = fields
        job = Job(
            id=clean(number),
            user=clean(user),
            name=clean(name)[:100],
            nodes=int(count) if count.strip().isdecimal() else 1,
            end_at=parse_time(end),
            start_at=parse_time(start),
            partition=clean(partition),
        )
        for node in _hosts(nodes.strip()):
            jobs.setdefault(node, []).append(job)
    return jobs


def _hosts(expression: str) -> list[str]:
    if expression in _UNSET:
        return []
    try:
        return expand(expression)
    except UsageError:
        return []


def read_gpus(gres: str) -> Gpus | None:
    """GPUs in a node's Gres, such as `gpu:h100:8(S:0-1)`; None without any, or with MIG slices."""
    found = _GPU.findall(re.sub(r"\([^)]*\)", "", gres))
    if not found or any(re.match(r"\d+g\.", model) for model, _ in found):
        return None
    models = sorted({model for model, _ in found if model})
    return Gpus(sum(int(count) for _, count in found), "+".join(models))
