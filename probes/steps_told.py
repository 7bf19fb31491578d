"""Steps that a job tells of itself (probe steps): whether they have become slower, and where. Pure.

The ranks of a synchronous job step together, so all become slower at once; what tells them apart is
where the time went. The rank that holds the others up waits least for them: its own part grew, and
its waiting did not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from msgspec import Struct

from probes.event import Finding, Row, Sample, Severity
from probes.expect import Peers
from probes.facts import NodeFacts
from probes.ranks_rules import SLOW_STEP
from probes.reading import number, whole
from probes.rule import Look
from probes.rules import Rules

PROBE = "steps"
KEPT = 64
"""Steps kept per rank: half an hour at one a look."""
RANKS_MOST = 65536
FRESH_S = 180.0
"""Of a rank's last step told: six looks."""
MOST = 0.5
"""Share of a step's growth that a part must have to be named."""


class Step(Struct, frozen=True):
    """One step of one rank; a part that was not told is None."""

    at: float
    number: int
    total_s: float
    data_s: float | None
    comm_s: float | None

    @property
    def own_s(self) -> float:
        """What is neither waiting for data nor for others."""
        return max(0.0, self.total_s - (self.data_s or 0.0) - (self.comm_s or 0.0))


class Growth(Struct, frozen=True, kw_only=True):
    """A rank's last steps against those before; medians, seconds."""

    job: str
    rank: str
    node: str
    now_s: float
    before_s: float
    data_s: float
    """By how much its waiting for data grew; 0 where it is not told."""
    comm_s: float
    own_s: float
    tells_parts: bool

    @property
    def ratio(self) -> float:
        """Now over before."""
        return self.now_s / self.before_s


class Told:
    """The steps of every rank that tells them."""

    def __init__(self) -> None:
        """Nothing told."""
        self.steps: dict[tuple[str, str, str], deque[Step]] = {}
        """(job, rank, node) -> its steps, oldest first. Replaced, not changed: who took a copy of
        this dict keeps what it had."""
        self._clocks: dict[tuple[str, str, str], float] = {}

    def add(self, sample: Sample) -> None:
        """Take in a sample; those of other probes are ignored."""
        if sample.probe != PROBE or sample.device:
            return
        for row in sample.rows:
            key = (str(row.get("job", "")), str(row.get("rank", "")), sample.node)
            if key in self.steps or len(self.steps) < RANKS_MOST:
                self._row(key, sample, row)

    def _row(self, key: tuple[str, str, str], sample: Sample, row: Row) -> None:
        index = whole(row.get("step"))
        known = self.steps.get(key)
        last = known[-1] if known else None
        if index is None or (last is not None and index == last.number):
            return
        if known is None or last is None or index < last.number:  # began anew
            known, last = deque(maxlen=KEPT), None
        known = self.steps[key] = known.copy()
        written = sample.clock - (number(row.get("age_s")) or 0.0)
        total = number(row.get("t_total"))
        if total is None and last is not None and index > last.number:
            total = (written - self._clocks[key]) / (index - last.number)
        self._clocks[key] = written
        if total is not None and total >= 0:
            parts = number(row.get("t_data")), number(row.get("t_comm"))
            known.append(Step(sample.at, index, total, *parts))
        elif last is None:
            known.append(Step(sample.at, index, 0.0, None, None))

    def forget(self, now: float) -> None:
        """Drop ranks that have told nothing for an hour."""
        for key in [k for k, s in self.steps.items() if not s or now - s[-1].at > 3600.0]:
            del self.steps[key]
            self._clocks.pop(key, None)

    def growths(self, window: int, now: float) -> dict[str, list[Growth]]:
        """Job -> its ranks with enough steps told."""
        found: dict[str, list[Growth]] = {}
        for (job, rank, node), steps in self.steps.items():
            usable = [step for step in steps if step.total_s > 0]
            if len(usable) >= 2 * window and now - usable[-1].at <= FRESH_S:
                found.setdefault(job, []).append(_growth(job, rank, node, usable, window))
        return found


def _growth(job: str, rank: str, node: str, steps: Sequence[Step], window: int) -> Growth:
    now, before = steps[-window:], steps[:-window]

    def grew(part: str) -> float:
        told = [[getattr(step, part) for step in side] for side in (now, before)]
        if any(value is None for side in told for value in side):
            return 0.0
        return float(median(told[0]) - median(told[1]))

    parts = any(step.data_s is not None or step.comm_s is not None for step in now)
    return Growth(
        job=job, rank=rank, node=node, now_s=median(s.total_s for s in now),
        before_s=median(s.total_s for s in before), data_s=grew("data_s"), comm_s=grew("comm_s"),
        own_s=grew("own_s"), tells_parts=parts,
    )  # fmt: skip


def in_steps(
    all_facts: Iterable[NodeFacts], rules: Rules, now: float, told: Told
) -> Iterator[Finding | None]:
    """One finding for each job that has become slower, at the node of the rank that is to blame."""
    slower = rules.limit("steps.slower")
    found = told.growths(int(rules.limit("steps.window").value), now)
    if not found:
        return
    facts = {one.node.name: one for one in all_facts}
    for job, growths in sorted(found.items()):
        ratio = median(growth.ratio for growth in growths)
        if ratio >= slower.value:
            culprit, where = blame(growths)
            if culprit.node in facts:
                yield _finding(job, growths, culprit, where, ratio, facts[culprit.node], rules, now)
        yield None


def blame(growths: Sequence[Growth]) -> tuple[Growth, str]:
    """(The rank to look at, which part grew in words). The order of the ranks does not matter."""
    ranks = sorted(growths, key=lambda one: (len(one.rank), one.rank, one.node))
    grown = median(one.now_s - one.before_s for one in ranks)
    if not all(one.tells_parts for one in ranks):
        return ranks[0], "the job does not tell its parts"
    for part, words in (("data_s", "data loading"), ("own_s", "compute")):
        worst = max(ranks, key=lambda one: getattr(one, part))
        if getattr(worst, part) < MOST * grown:
            continue
        usual = median(getattr(one, part) for one in ranks)
        if usual >= MOST * grown:
            return worst, f"{words} on most ranks"
        return worst, f"{words} on rank {worst.rank}, for which the others wait"
    if median(one.comm_s for one in ranks) >= MOST * grown:
        return ranks[0], "communication, on all ranks alike"
    return ranks[0], "no part alone"


def _finding(
    job: str, growths: Sequence[Growth], culprit: Growth, where: str, ratio: float,
    facts: NodeFacts, rules: Rules, now: float,
) -> Finding:  # fmt: skip
    much, limit = rules.limit("steps.much_slower").value, rules.limit("steps.slower")
    then = median(growth.before_s for growth in growths)
    new = median(growth.now_s for growth in growths)
    name = f"job {job}" if job else "a job"
    evidence = [
        f"median step {new:.3g} s, was {then:.3g} s, of {len(growths)} ranks that tell their steps",
        f"rank {culprit.rank}: data {culprit.data_s:+.3g} s, communication "
        f"{culprit.comm_s:+.3g} s, the rest {culprit.own_s:+.3g} s",
    ]  # fmt: skip
    return SLOW_STEP.finding(
        Look(facts, Peers(role=facts.node.role), rules, now),
        f"steps of {name} take {ratio:.2f} times what they took ({new:.3g} s): {where}",
        tuple(evidence), value=round(ratio, 3), limit=limit,
        severity=Severity.WARN if ratio >= much else None,
    )  # fmt: skip
