"""A RAS answer as few rows: each communicator, this node's ranks, and whoever is behind. Pure.

4,096 ranks stay 4,096 numbers here: what leaves the node is a summary of each communicator, the
lowest ranks wherever they are, and the node's own ones.
"""

from probes.node.ras_comm import DONE, UNDER_WAY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Set

    from probes.node.ras_comm import Comm, Missing, Rank

    Values = Dict[str, object]

COMMS = 48
"""Communicators told of: those of this node, those whose ranks differ, the largest."""
LATE, MISSING, OWN, FAILED = 16, 16, 32, 16
"""Ranks named per communicator."""
ROWS = 400
"""In all: 60 KB."""
OPS_CHARS = 80


def rows(comms: "List[Comm]", own: "Set[str]", inner: "Dict[int, int]") -> "List[Values]":
    """`own` are the node's addresses; `inner`: process id in its container -> on the node."""
    found: "List[Values]" = []
    ranked = sorted(comms, key=lambda comm: _order(comm, own))[:COMMS]
    for comm in ranked:
        found.append(_summary(comm, own))
    for comm in ranked:
        found.extend(_ranks(comm, own, inner))
    return found[:ROWS]


def hosts(comms: "List[Comm]") -> "List[str]":
    """Hosts of the largest communicator by their lowest rank: the same list on every node."""
    largest = max(comms, key=lambda comm: (len(comm.ranks), comm.name), default=None)
    if largest is None:
        return []
    ranks = sorted(largest.ranks, key=lambda rank: rank.rank or 0)
    return list(dict.fromkeys(rank.host for rank in ranks if rank.host))


def _order(comm: "Comm", own: "Set[str]") -> "tuple[int, int, int, str]":
    counts = _counts(comm)
    differs = bool(comm.lost or comm.missing or (counts and counts[0] != counts[-1]))
    ours = any(rank.host in own for rank in comm.ranks)
    return (-ours, -differs, -comm.size, comm.name)


def _counts(comm: "Comm") -> "List[int]":
    """Sorted counts of all ranks that told one."""
    counts = [rank.count for rank in comm.ranks if rank.count is not None]
    for count, many in comm.counts.items():
        counts.extend([count] * max(0, min(many, comm.size)))
    return sorted(counts)


def _summary(comm: "Comm", own: "Set[str]") -> "Values":
    counts = _counts(comm)
    lost = max(comm.lost, len(comm.missing))
    seen = max(len(comm.ranks), len(counts))
    if comm.basis != "all":
        seen = max(seen, comm.size - lost)  # in text only outliers are listed
    row: "Values" = {
        "kind": "comm", "comm": comm.name, "size": comm.size, "seen": seen, "missing": lost,
        "basis": comm.basis, "hosts": len({rank.host for rank in comm.ranks}),
        "own": sum(rank.host in own for rank in comm.ranks),
    }  # fmt: skip
    if counts:
        mid = counts[len(counts) // 2]
        row.update(low=counts[0], mid=mid, high=counts[-1])
        row["behind"] = sum(count < mid for count in counts)
    starting = sum(rank.init == UNDER_WAY for rank in comm.ranks)
    ending = sum(rank.ending for rank in comm.ranks)
    failed = sum(map(_failed, comm.ranks))
    for name, count in (("starting", starting), ("ending", ending), ("failed", failed)):
        if count:
            row[name] = count
    return row


def _failed(rank: "Rank") -> "bool":
    return any(code not in (None, DONE, UNDER_WAY) for code in (rank.init, rank.error))


def _ranks(comm: "Comm", own: "Set[str]", inner: "Dict[int, int]") -> "List[Values]":
    counts = _counts(comm)
    mid = counts[len(counts) // 2] if counts else 0
    late = [rank for rank in comm.ranks if rank.count is not None and rank.count < mid]
    late.sort(key=lambda rank: (rank.count, rank.rank or 0))
    chosen = late[:LATE]
    chosen += [rank for rank in comm.ranks if _failed(rank)][:FAILED]
    chosen += [rank for rank in comm.ranks if rank.host in own][:OWN]
    unique = {rank.rank: rank for rank in chosen}
    found = [_rank(comm, rank, own, inner) for rank in unique.values()]
    return found + [_missing(comm, one, own, inner) for one in comm.missing[:MISSING]]


def _rank(comm: "Comm", rank: "Rank", own: "Set[str]", inner: "Dict[int, int]") -> "Values":
    row = _who(comm, rank, own, inner)
    row.update(kind="rank")
    if rank.count is not None:
        row["count"] = rank.count
    if rank.ops:
        row["ops"] = rank.ops[:OPS_CHARS]
    for name, code in (("init", rank.init), ("error", rank.error)):
        if code not in (None, DONE):
            row[name] = code
    if rank.ending:
        row["ending"] = True
    return row


def _missing(comm: "Comm", one: "Missing", own: "Set[str]", inner: "Dict[int, int]") -> "Values":
    row = _who(comm, one, own, inner)
    row.update(kind="missing", silent=one.silent, dead=one.dead)
    return row


def _who(
    comm: "Comm", rank: "Rank | Missing", own: "Set[str]", inner: "Dict[int, int]"
) -> "Values":
    row: "Values" = {"comm": comm.name}
    if rank.rank is not None:
        row["rank"] = rank.rank
    if rank.host:
        row["host"] = rank.host
    if rank.pid is not None:
        here = rank.host in own
        row["pid"] = inner.get(rank.pid, rank.pid) if here else rank.pid
        if here:
            row["here"] = True
    if rank.gpu is not None:
        row["gpu"] = rank.gpu
    return row
