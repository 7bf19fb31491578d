"""The Fleet is our memory of all nodes. It changes only by applying Events.

`apply` is cheap and called for every Event; `tick` judges what became dirty. The screen and the
JSON document read the same Fleet.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from console.peers import Compared, Majorities, Stragglers
from console.rings import Rings
from inventory.node import Inventory
from inventory.scheduler import Allocation, Step
from probes.checks import Peers, Quiet, healed, judge, place, unjudged, verdict
from probes.event import Event, Finding, NodeStatus, Sample, Severity
from probes.expect import in_common
from probes.facts import NodeFacts
from probes.jobs_seen import PROBES as JOB_PROBES
from probes.jobs_seen import Jobs
from probes.ledger import Ledger
from probes.own import NONE, Own
from probes.rules import Rules, load_rules

log = logging.getLogger(__name__)

STREAM = 500
LOGGED = 10_000
"""Happenings kept: what one night of a bad fabric brings, at some 0.6 kB each."""
WORKING = frozenset({"idle", "allocated", "mixed"})
"""States between which a node goes all day: their change is no happening."""
PEERS = "peer comparison"
URGENT_PROBES = frozenset(
    {"hello", "kernel_log", "inventory", "ecc", "fabric", "infiniband", "nvlink", "pcie"}
)
"""Judged at the next tick; the fast probes wait for their turn when the budget is short."""

StreamEntry = tuple[int, float, Finding | Step]
"""Sequence number, epoch seconds, what happened. A finding of severity ok says that one is over."""
LogEntry = tuple[int, float, Finding | Step | Allocation]
"""The same, with what the scheduler says where it took a node out of work or back."""


class Fleet:
    """Latest facts, findings and short history of every node of the inventory."""

    def __init__(
        self,
        inventory: Inventory,
        rules: Rules | None = None,
        *,
        one_pass: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`one_pass` switches hysteresis off: there is no second look."""
        self.inventory = inventory
        self.rules = rules or load_rules()
        self.clock = clock
        self.nodes = {node.name: NodeFacts(node) for node in inventory.nodes}
        self.findings: dict[str, list[Finding]] = {name: [] for name in self.nodes}
        self.stream: deque[StreamEntry] = deque(maxlen=STREAM)
        self.log: deque[LogEntry] = deque(maxlen=LOGGED)
        """Sequence numbers rise; times need not, as the scheduler tells of earlier ones."""
        self.past = object()
        """Another one when `become` has put another log in place of this one."""
        self.began = clock()
        """Epoch seconds; what happened before is known from others only."""
        self.errors: dict[str, str] = {}
        """Source of trouble -> one sentence, for what is nobody's node (scheduler down)."""
        self.version = 0
        self.seen: dict[str, float] = {}
        self.taps: list[Callable[[Finding], None]] = []
        """Called with every finding that is new, changed, ended or acknowledged; nothing is kept
        for who does not ask."""
        self.own: Own = NONE
        """What was usual for each device; whoever keeps a past sets it."""
        self._ledger = Ledger(self.rules, one_pass=one_pass)
        self.rings = Rings()
        self.jobs = Jobs(self.history)
        """What jobs tell of their ranks and steps."""
        self._verdicts: dict[str, Severity] = {}
        self._urgent: dict[str, None] = dict.fromkeys(self.nodes)
        self._waiting: dict[str, None] = {}
        self._dirty: set[str] = set(self.nodes)
        self._sequence = 0
        self._quiet = {name: Quiet() for name in self.nodes}
        self._majorities = Majorities()
        self._peers: dict[str, Peers] = {}
        """What those have counted, as an attribute of ours: `lend` keeps it as it is."""
        self._stragglers = Stragglers(self.rules, one_pass=one_pass)
        self.compared: Compared | None = None
        """The latest comparison of peers that was completed."""
        self._lent: set[str] = set()
        """Nodes whose facts and readings somebody else holds, too."""

    def apply(self, event: Event) -> None:
        """Take in one Event. Events about unknown nodes are ignored."""
        if event.node in self._lent:
            self._part(event.node)
        facts = self.nodes.get(event.node)
        if facts is None:
            return
        match event:
            case Sample():
                self._sample(facts, event)
            case NodeStatus():
                facts.apply(event)
                self._urgent[event.node] = None
            case Step():
                self._note(event.at, event)
            case Allocation():
                self._allocated(facts, event)
            case Finding():
                return
        self._dirty.add(event.node)
        self.version += 1

    def lend(self) -> dict[str, Any]:
        """Every attribute as it is now and stays, until `take_back`.

        It takes 3 ms for 4,000 nodes: facts are copied when the node's next Event comes, 0.1 ms.
        """
        self._lent = set(self.nodes)
        grows = ("nodes", "findings", "stream", "log", "errors", "seen", "_verdicts", "rings")
        mine = vars(self)
        return {**mine, **{name: mine[name].copy() for name in grows}, "jobs": self.jobs.copy()}

    def take_back(self) -> None:
        """Nobody reads what was lent any more."""
        self._lent = set()

    def _part(self, name: str) -> None:
        """Go on with copies: what was lent stays as it is."""
        self._lent.discard(name)
        self.nodes[name] = self.nodes[name].copy()
        self.rings.part(name)

    def _allocated(self, facts: NodeFacts, now: Allocation) -> None:
        before = facts.allocation
        facts.apply(now)
        if _out(now) != (_out(before) if before is not None else ("", "", "")):
            # Of a node that was out before we looked, the scheduler may know since when.
            at = now.reason_at if before is None and now.reason_at else now.at
            self._write(at, now)

    def _sample(self, facts: NodeFacts, sample: Sample) -> None:
        facts.apply(sample)
        self.seen[sample.node] = sample.at
        queue = self._urgent if sample.probe in URGENT_PROBES else self._waiting
        queue[sample.node] = None
        if sample.probe in JOB_PROBES:
            self.jobs.add(sample)
        elif sample.probe == "gpu":
            self.rings.add(facts, sample)

    def _write(self, at: float, what: Finding | Step | Allocation) -> None:
        self._sequence += 1
        self.log.append((self._sequence, at, what))

    def _note(self, at: float, what: Finding | Step) -> None:
        self._write(at, what)
        self.stream.append((self._sequence, at, what))
        if isinstance(what, Finding):
            self._tell(what)

    def _tell(self, finding: Finding) -> None:
        for tap in self.taps:
            tap(finding)

    def tick(self, now: float | None = None, budget_s: float = float("inf")) -> None:
        """Judge what changed for about `budget_s` of CPU time; the rest waits for the next call.

        Urgent nodes first, then the comparison of peers, then the others in turn.
        """
        now = self.clock() if now is None else now
        until = time.perf_counter() + budget_s
        self._expect(now, until)
        if not self._peers:
            return  # nothing can be judged yet
        self._drain(self._urgent, now, until)
        self._compare(now, until)
        self._drain(self._waiting, now, until)

    def thorough(self, now: float) -> Iterator[None]:
        """Judge all that changed, in pieces of about one node; the same whatever the machine."""
        self._expect(now, 0.0)
        while self._majorities.under_way:
            yield
            self._expect(now, 0.0)
        while self._urgent:
            self._first(self._urgent, now)
            yield
        self._compare(now, 0.0)
        while self._stragglers.under_way:
            yield
            self._compare(now, 0.0)
        while self._waiting:
            self._first(self._waiting, now)
            yield

    def become(self, other: Fleet) -> None:
        """Hold what another of the same inventory holds, which must not be used any more."""
        vars(self).update((k, v) for k, v in vars(other).items() if k not in ("clock", "taps"))
        self.jobs.history = self.history
        self._dirty = set(self.nodes)

    def _drain(self, queue: dict[str, None], now: float, until: float) -> None:
        while queue and time.perf_counter() < until:
            self._first(queue, now)

    def _first(self, queue: dict[str, None], now: float) -> None:
        name = next(iter(queue))
        del queue[name]
        self._waiting.pop(name, None)
        self._judge(name, now)

    def _expect(self, now: float, until: float) -> None:
        self._peers = self._majorities.count(self.nodes, now, until)

    def _compare(self, now: float, until: float) -> None:
        try:
            found = self._stragglers.compare(self.nodes, self.jobs, self.own, now, until)
        except Exception as error:  # one odd node must not stop the screen
            log.exception("the peer comparison failed")
            self.errors[PEERS] = f"slow GPUs and jobs are not looked for: {type(error).__name__}"
            return
        if found is not None:
            self.errors.pop(PEERS, None)
            self._waiting.update(dict.fromkeys((*self._slow, *found.findings)))
            self.compared = found

    @property
    def _slow(self) -> Mapping[str, list[Finding]]:
        """Node -> what the comparison of peers says of it."""
        return {} if self.compared is None else self.compared.findings

    def _judge(self, name: str, now: float) -> None:
        facts = self.nodes[name]
        in_common(facts)  # kept: counting a whole role then takes a moment only
        fresh = [*self._fresh(facts, now), *self._slow.get(name, [])]
        before = {(f.rule, f.device): f for f in self.findings[name]}
        after = self._ledger.update(name, fresh, now, facts.boot_id, partial(healed, facts))
        self.findings[name] = sorted(after, key=_order)
        for finding in self.findings[name]:
            old = before.get((finding.rule, finding.device))
            seen = None if old is None else (old.severity, old.latched)
            if seen != (finding.severity, finding.latched):
                self._note(now, finding)
        for ended in self._ledger.take_ended():
            over = f"over ({ended.why}): {ended.finding.say}"
            gone = msgspec.structs.replace(ended.finding, severity=Severity.OK, say=over)
            self._note(now, gone)
        was = self._verdicts.get(name)
        self._verdicts[name] = verdict(facts, after, now)
        if before or after or was is not self._verdicts[name]:
            self._dirty.add(name)
            self.version += 1

    def _fresh(self, facts: NodeFacts, now: float) -> list[Finding]:
        """What the checks find; where one raises the node is unknown, and the others go on."""
        try:
            role, quiet = self._peers[facts.node.role], self._quiet[facts.node.name]
            return judge(facts, role, self.rules, now, quiet)
        except Exception as error:
            broken = unjudged(facts, error, self.rules, now)
            if all(finding.rule != broken.rule for finding in self.findings[facts.node.name]):
                log.exception("%s could not be judged", facts.node.name)
            return [broken]

    def verdict(self, name: str) -> Severity:
        """The node's verdict; unknown until it was judged."""
        return self._verdicts.get(name, Severity.UNKNOWN)

    @property
    def roles(self) -> Mapping[str, Peers]:
        """Role -> its majorities, as last counted; the same objects as long as nothing changed."""
        return self._peers

    def counts(self) -> dict[Severity, int]:
        """Nodes per verdict; every severity has a key."""
        counts = dict.fromkeys(Severity, 0)
        for name in self.nodes:
            counts[self.verdict(name)] += 1
        return counts

    def take_dirty(self) -> set[str]:
        """Names whose drawing may have changed since the last call."""
        dirty, self._dirty = self._dirty, set()
        return dirty

    def history(self, node: str, device: str, metric: str) -> Sequence[float]:
        """The last readings of a plotted metric, oldest first; empty when there is none."""
        return self.rings.of(node, device, metric)

    def history_times(self, node: str, device: str) -> Sequence[float]:
        """When the last readings of this GPU came, epoch seconds, oldest first."""
        return self.rings.times(node, device)

    def age(self, name: str, now: float | None = None) -> float | None:
        """Seconds since the node's last sample; None when there never was one."""
        at = self.seen.get(name)
        return None if at is None else max(0.0, (self.clock() if now is None else now) - at)

    def oldest_age(self, now: float | None = None) -> float | None:
        """The largest age among nodes that ever answered."""
        ages = [age for name in self.nodes if (age := self.age(name, now)) is not None]
        return max(ages, default=None)

    def acknowledge(self, node: str, rule: str, device: str) -> None:
        """The operator has seen this finding; it stays visible and stops announcing itself."""
        self._ledger.acknowledge(node, rule, device)
        self._urgent[node] = None
        for finding in self.findings[node]:
            if (finding.rule, finding.device) == (rule, device):
                seen = msgspec.structs.replace(finding, acknowledged=True)
                self._write(self.clock(), seen)
                self._tell(seen)

    def allocations(self, names: Iterable[str]) -> dict[str, Allocation]:
        """What the scheduler last said about these nodes; nodes it never mentioned are missing."""
        return {n: a for n in names if (a := self.nodes[n].allocation) is not None}


def _out(now: Allocation) -> tuple[str, str, str]:
    """How a node is out of work: state, reason, by whom; empty while it works."""
    return ("", "", "") if now.state in WORKING else (now.state, now.reason, now.reason_by)


def _order(finding: Finding) -> tuple[int, int, str, str]:
    """Worst first; among equals as the rules are registered."""
    return -finding.severity.rank, place(finding.rule), finding.rule, finding.device
