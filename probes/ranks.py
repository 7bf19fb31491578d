"""What the nodes of a job tell of its ranks (probe ras), put together by communicator. Pure.

One answer is about the whole job; up to four of its nodes give them in turn. An answer is a `View`;
views of one communicator in order of time say who moves and who is behind. Nothing here judges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from msgspec import Struct

from probes.event import Row, Sample, Scalar
from probes.reading import number, whole

PROBE = "ras"
VIEWS = 32
"""Kept per communicator: four nodes that ask every 12 s fill them in 96 s; the first view of a
standstill is kept apart."""
COMMS_MOST = 4096
"""Communicators of all jobs together; 1 kB a view."""
FORGET_S = 3600.0
"""Half an hour between two looks of a node that leaves the asking to others, twice."""


class Rank(Struct, frozen=True, kw_only=True):
    """One rank that an answer names: it is behind, failed, missing, or on the asking node."""

    rank: int
    host: str = ""
    """Its host's address."""
    node: str = ""
    """The inventory's node; "" when no node has told that address."""
    pid: int | None = None
    gpu: int | None = None
    """NVML index."""
    count: int | None = None
    """Collectives launched; None when the answer does not say."""
    ops: str = ""
    error: int = 0
    """ncclResult_t of initialisation or of an asynchronous error; 0 for none."""
    lost: str = ""
    """ "dead" when NCCL has given it up, "silent" when it did not answer, "" when it did."""


class View(Struct, frozen=True, kw_only=True):
    """One communicator in one answer."""

    at: float
    """Epoch seconds."""
    asker: str
    """Node that asked."""
    comm: str
    job: str
    """"" when the asking node cannot tell."""
    size: int
    seen: int
    missing: int
    basis: str
    """Which operations are counted; views of different basis cannot be compared."""
    low: int | None
    mid: int | None
    high: int | None
    behind: int
    """Ranks below the median."""
    took_s: float
    """How far apart in time two ranks' counts may be."""
    cut: bool
    starting: int
    ending: int
    ranks: tuple[Rank, ...]

    @property
    def counts(self) -> tuple[Scalar | None, ...]:
        """What must differ between two views when somebody has moved."""
        late = tuple((r.rank, r.count) for r in self.ranks if r.count is not None and self.late(r))
        return self.basis, self.low, self.mid, self.high, self.seen, str(sorted(late))

    def late(self, rank: Rank) -> bool:
        """Whether a rank is below the median."""
        return rank.count is not None and self.mid is not None and rank.count < self.mid

    @property
    def lost(self) -> tuple[Rank, ...]:
        """Ranks without an answer that are named."""
        return tuple(rank for rank in self.ranks if rank.lost)


class History:
    """The views of one communicator."""

    __slots__ = ("still_since", "views")

    def __init__(self) -> None:
        """Nothing seen."""
        self.views: deque[View] = deque(maxlen=VIEWS)
        self.still_since: float | None = None
        """Epoch seconds of the first of the latest views that all count the same."""

    def copy(self) -> History:
        """The same views, apart from then on."""
        other = History()
        other.views, other.still_since = self.views.copy(), self.still_since
        return other

    def add(self, view: View) -> None:
        """The next view; one that is older than the last is left out."""
        last = self.views[-1] if self.views else None
        if last is not None and view.at < last.at:
            return
        if view.mid is None and not view.missing:  # text, while all ranks agree
            self.still_since = None
        elif last is None or self.still_since is None or last.counts != view.counts:
            self.still_since = view.at
        self.views.append(view)

    @property
    def last(self) -> View:
        """The newest view."""
        return self.views[-1]

    @property
    def still_s(self) -> float:
        """For how long no count is known to have changed, by the newest view; 0 when one has."""
        return 0.0 if self.still_since is None else self.last.at - self.still_since

    def spaced(self, apart_s: float, most: int, within_s: float) -> list[View]:
        """The newest views that count the same operations, at least `apart_s` apart."""
        found: list[View] = []
        for view in reversed(self.views):
            if view.basis != self.last.basis or self.last.at - view.at > within_s:
                break
            if view.mid is not None and (not found or found[-1].at - view.at >= apart_s):
                found.append(view)
            if len(found) == most:
                break
        return found[::-1]


class Polls:
    """Everything the nodes told of ranks, by communicator."""

    def __init__(self) -> None:
        """Nothing told."""
        self.comms: dict[str, History] = {}
        """In the order in which they were last told of. One that is told of is replaced, not
        changed: who took a copy of this dict keeps what it had."""
        self._addresses: dict[str, set[str]] = {}
        """Address -> nodes that call it their own; a bridge's is that of many."""
        self._told: dict[str, frozenset[str]] = {}

    def add(self, sample: Sample) -> None:
        """Take in a sample; those of other probes are ignored."""
        if sample.probe != PROBE or sample.device:
            return
        self._own(sample)
        named: dict[str, list[Row]] = {}
        for row in sample.rows:
            if row.get("kind") in ("rank", "missing"):
                named.setdefault(str(row.get("comm")), []).append(row)
        for row in sample.rows:
            comm = row.get("comm")
            if row.get("kind") == "comm" and isinstance(comm, str):
                self._view(sample, row, named.get(comm, []))

    def _own(self, sample: Sample) -> None:
        told = frozenset(
            str(row["host"])
            for row in sample.rows
            if row.get("kind") == "address" and "host" in row
        )
        before = self._told.get(sample.node, frozenset())
        if told == before:
            return
        for address in before:
            self._addresses[address].discard(sample.node)
        for address in told:
            self._addresses.setdefault(address, set()).add(sample.node)
        self._told[sample.node] = told

    def _view(self, sample: Sample, row: Row, named: Iterable[Row]) -> None:
        view = read(sample, row, named)
        if view is None:
            return
        before = self.comms.pop(view.comm, None)
        history = History() if before is None else before.copy()
        history.add(view)
        self.comms[view.comm] = history
        if len(self.comms) > COMMS_MOST:  # a job that names new ones each time pushes out its own
            del self.comms[next(iter(self.comms))]

    def forget(self, now: float) -> None:
        """Drop communicators that nobody has told of for long."""
        for name in [n for n, h in self.comms.items() if now - h.last.at > FORGET_S]:
            del self.comms[name]

    def node_of(self, rank: Rank) -> str:
        """The node a rank is on, "" when no node or several have its address."""
        if rank.node:
            return rank.node
        nodes = self._addresses.get(rank.host, set())
        return next(iter(nodes)) if len(nodes) == 1 else ""

    def jobs(self, now: float, fresh_s: float) -> Iterator[tuple[str, list[History]]]:
        """(job, its communicators told of lately, the largest first); "" where it is not known.

        Communicators of an unknown job are together when one node told of them.
        """
        found: dict[str, list[History]] = {}
        for history in self.comms.values():
            if now - history.last.at <= fresh_s:
                last = history.last
                found.setdefault(last.job or f"\0{last.asker}", []).append(history)
        for key, histories in sorted(found.items()):
            histories.sort(key=lambda h: (-h.last.size, h.last.comm))
            yield ("" if key.startswith("\0") else key), histories


def read(sample: Sample, row: Row, named: Iterable[Row]) -> View | None:
    """A view from a row of kind comm and the rows of its ranks; None when it makes no sense."""
    size, seen = whole(row.get("size")), whole(row.get("seen"))
    if size is None or seen is None or size < 1:
        return None
    ranks = filter(None, (_rank(sample.node, one) for one in named))
    return View(
        at=sample.at, asker=sample.node, comm=str(row["comm"]), job=str(row.get("job", "")),
        size=size, seen=min(seen, size), missing=min(_count(row, "missing"), size),
        basis=str(row.get("basis", "")), low=whole(row.get("low")), mid=whole(row.get("mid")),
        high=whole(row.get("high")), behind=min(_count(row, "behind"), size),
        took_s=max(0.0, number(row.get("took_s")) or 0.0), cut=row.get("cut") is True,
        starting=_count(row, "starting"), ending=_count(row, "ending"), ranks=tuple(ranks),
    )  # fmt: skip


def _count(row: Row, name: str) -> int:
    return max(0, whole(row.get(name)) or 0)


_UNDER_WAY = 7
"""ncclInProgress (nccl.h): no error."""


def _rank(asker: str, row: Row) -> Rank | None:
    index = whole(row.get("rank"))
    if index is None:
        return None
    codes = (whole(row.get("init")) or 0, whole(row.get("error")) or 0)
    lost = "dead" if row.get("dead") is True else "silent" if row.get("silent") is True else ""
    return Rank(
        rank=index, host=str(row.get("host", "")), node=asker if row.get("here") is True else "",
        pid=whole(row.get("pid")), gpu=whole(row.get("gpu")), count=whole(row.get("count")),
        ops=str(row.get("ops", "")), lost=lost if row.get("kind") == "missing" else "",
        error=next((code for code in codes if code not in (0, _UNDER_WAY)), 0),
    )  # fmt: skip
