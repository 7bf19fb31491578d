"""Who works on a node: its jobs by the scheduler, its processes, what each has there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from inventory.scheduler import Job
from probes.event import Row
from probes.facts import NodeFacts
from probes.ranks_scene import processes

NOBODY = "stray"
"""Key of GPUs that are busy without a job."""
IDLE = "idle"
"""Key of GPUs that have done nothing for long, although jobs hold them."""


class Share(Struct, frozen=True, kw_only=True):
    """What one job has on one node."""

    key: str
    """Of the job, the same on all of its nodes."""
    job: Job | None
    """None where no scheduler tells of it."""
    user: str
    devices: tuple[str, ...]
    """Its GPUs; () where the node has several jobs and their processes do not tell."""
    ranks: tuple[int, ...] = ()
    names: frozenset[str] = frozenset()
    """Job ids that its processes and the scheduler have for it: those of an array differ."""
    contained: int = 0
    """Processes in a pod or container."""
    processes: int = 0


def shares(facts: NodeFacts) -> list[Share]:
    """Every job on the node. Processes of a node that the scheduler calls free are nobody's."""
    rows = [row for row in processes(facts) if row.get("ours") is not True]
    told = facts.allocation
    if told is None:
        return list(_by_owner(rows))
    if len(told.jobs) == 1:
        key, job = f"job {told.scheduler} {told.jobs[0].id}", told.jobs[0]
        devices = tuple(device for device, _ in facts.devices("gpu") if device)
        return [_share(key, job, job.user, rows, devices)]
    if told.jobs:
        return [
            _share(f"job {told.scheduler} {job.id}", job, job.user, _of(rows, job.id))
            for job in told.jobs
        ]
    # Where the site hides the jobs of others, a busy node has none that we see.
    return [_share(NOBODY, None, _users(rows), rows)] if rows and not told.busy else []


def _of(rows: Sequence[Row], job: str) -> list[Row]:
    return [row for row in rows if row.get("job") == job]


def _by_owner(rows: Sequence[Row]) -> Iterator[Share]:
    """Without a scheduler: by the job that the processes name, else by their user."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        job, user = row.get("job"), row.get("user")
        key = f"job  {job}" if job else f"user {user}" if user else "user ?"
        groups.setdefault(key, []).append(row)
    for key, mine in groups.items():
        yield _share(key, None, _users(mine), mine)


def _share(
    key: str, job: Job | None, user: str, rows: Sequence[Row], devices: tuple[str, ...] = ()
) -> Share:
    names = {str(row["job"]) for row in rows if row.get("job")}
    ranks = {int(text) for row in rows if (text := str(row.get("rank", ""))).isdecimal()}
    return Share(
        key=key, job=job, user=user, ranks=tuple(sorted(ranks)),
        devices=devices or tuple(sorted({str(row["gpu"]) for row in rows if row.get("gpu")})),
        names=frozenset(names | {job.id}) if job is not None else frozenset(names),
        contained=sum(1 for row in rows if row.get("pod") or row.get("container")),
        processes=len(rows),
    )  # fmt: skip


def _users(rows: Sequence[Row]) -> str:
    return ",".join(sorted({str(row["user"]) for row in rows if row.get("user")}))
