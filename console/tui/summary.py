"""One node as the grid, the filter and the sort order know it: a few numbers and words. Pure.

A reading that is not there is None, never 0. Summaries are built when a node changed and asked for;
age is not in them, because it changes without an Event.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from console.tui.text import plain
from console.tui.theme import word
from console.tui.words import t
from inventory.scheduler import Allocation
from probes.event import Finding, NodeState, Sample, Scalar, Severity
from probes.facts import NodeFacts
from probes.ports import PHYSICAL, port_role
from probes.reading import number

STALE_INTERVALS = 3
"""A reading older than this many intervals is drawn as stale; as stale.intervals."""
FAST_S = 2.0
STALE_S = STALE_INTERVALS * FAST_S
IB_ACTIVE = 4
"""`state` of an InfiniBand or RoCE port that carries traffic (IBTA port state 4: ACTIVE)."""
CURRENT = frozenset({NodeState.UP, NodeState.DEGRADED, NodeState.HUNG, NodeState.ENDED})
"""Conversation states in which readings are still coming, or were complete."""
LINK_UP = re.compile(r"link(\d+)_up")
_ADDRESS = re.compile(r" at [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7](, slot \w+)?")
_FROM = re.compile(r" \(\S+ (on|from) \S+\)")
"""What a file system is and where it comes from, as probes/checks/storage.py says it."""
_XID = re.compile(r"\bxid[.: ]+(\d+)", re.IGNORECASE)


class Gpus(Struct, frozen=True):
    """What the GPUs of one node add up to."""

    answering: int | None = None
    """None while nothing is known of any GPU: never read, or a driver that does not answer."""
    expected: int | None = None
    util_percent: float | None = None
    """Mean."""
    temp_c: float | None = None
    """Hottest."""
    power_w: float | None = None
    """Sum."""
    clock_mhz: float | None = None
    """Slowest SM clock."""
    mem_percent: float | None = None
    """Fullest."""


class Summary(Struct, frozen=True, kw_only=True):
    """One node in a few numbers and words. Strings are already plain (see text.plain)."""

    name: str
    severity: Severity
    status: NodeState
    group: str
    sched: str = ""
    """Scheduler state; "" when no scheduler mentioned the node."""
    sched_note: str = ""
    """The scheduler's reason."""
    responding: bool = True
    gpus: Gpus = Gpus()
    links: tuple[int, int] | None = None
    """NVLinks up and expected, all GPUs, those included that do not answer."""
    ports: tuple[int, int] | None = None
    """InfiniBand/RoCE ports active and present, virtual functions left out."""
    load: float | None = None
    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    finding: str = ""
    """The worst finding not yet acknowledged, in one line; else why we cannot talk to the node."""
    finding_severity: Severity = Severity.OK
    findings: int = 0
    rules: tuple[str, ...] = ()
    xids: tuple[str, ...] = ()
    latest: float | None = None
    """Epoch seconds of the last sample."""
    text: str = ""
    """Everything a bare filter word is searched in, lower case."""
    now: float = 0.0
    marked: bool = False
    labels: Mapping[str, str] = {}
    """Of the inventory, names in lower case."""

    @property
    def current(self) -> bool:
        """Whether readings may be shown as present ones, conversation-wise."""
        return self.status in CURRENT

    @property
    def kinds(self) -> tuple[str, ...]:
        """Values of `is` in the filter language."""
        fault = self.severity.rank >= Severity.WARN.rank
        known = {"fault": fault, "marked": self.marked, "stale": not self.fresh}
        return tuple(kind for kind, true in known.items() if true)

    @property
    def fresh(self) -> bool:
        """Whether the last sample is young enough to be shown as present."""
        return self.current and self.latest is not None and self.now - self.latest <= STALE_S

    def words(self, field: str) -> tuple[str, ...]:
        """Values of a word field of the filter language, lower case."""
        match field:
            case "node":
                return (self.name.lower(),)
            case "state":
                return (self.severity.value, self.sched, self.status.value)
            case "sched":
                return (self.sched,)
            case "status":
                return (self.status.value,)
            case "group":
                return (self.group.lower(),)
            case "job":
                return self.jobs
            case "user":
                return self.users
            case "rule":
                return self.rules
            case "finding":
                return (*self.rules, self.finding.lower())
            case "xid":
                return self.xids
            case "is":
                return self.kinds
            case "marked":
                return ("yes" if self.marked else "no",)
        label = self.labels.get(field.removeprefix("label."))
        return () if label is None else (label.lower(),)

    def number(self, field: str) -> float | None:
        """Value of a number field of the filter language; None when unknown."""
        match field:
            case "temp":
                return self.gpus.temp_c
            case "util":
                return self.gpus.util_percent
            case "power":
                return self.gpus.power_w
            case "mem":
                return self.gpus.mem_percent
            case "clock":
                return self.gpus.clock_mhz
            case "gpus":
                return None if self.gpus.answering is None else float(self.gpus.answering)
            case "load":
                return self.load
            case "findings":
                return float(self.findings)
            case "age":
                return None if self.latest is None else max(0.0, self.now - self.latest)
        return None


def summarise(
    facts: NodeFacts,
    findings: Sequence[Finding],
    severity: Severity,
    latest: float | None,
    *,
    marked: bool = False,
) -> Summary:
    """The summary of one node. `latest` is the epoch second of its last sample."""
    allocation = facts.allocation
    top, top_severity = _headline(facts, findings)
    jobs = tuple(plain(job.id).lower() for job in allocation.jobs) if allocation else ()
    users = tuple(plain(job.user).lower() for job in allocation.jobs) if allocation else ()
    rules = tuple(finding.rule for finding in findings)
    state = facts.state
    gpus, links, ports = _devices(facts)
    return Summary(
        name=facts.node.name,
        severity=severity,
        status=state,
        group=facts.node.group,
        sched=allocation.state if allocation else "",
        sched_note=plain(allocation.reason) if allocation else "",
        responding=allocation.responding if allocation else True,
        gpus=gpus,
        links=links,
        ports=ports,
        load=number(facts.value("host", "", "load1")),
        jobs=jobs,
        users=users,
        finding=top,
        finding_severity=top_severity,
        findings=len(findings),
        rules=rules,
        xids=_xids(findings),
        latest=latest,
        marked=marked,
        labels={key.lower(): value for key, value in facts.node.labels.items()},
        text=_text(facts, findings, allocation, (severity.value, state.value, top)),
    )


def _text(
    facts: NodeFacts,
    findings: Sequence[Finding],
    allocation: Allocation | None,
    words: tuple[str, ...],
) -> str:
    parts = [facts.node.name, facts.node.group, *words, *(f.say for f in findings)]
    if allocation is not None:
        parts += [allocation.state, allocation.reason, *allocation.partitions]
        parts += [f"{job.id} {job.user} {job.name}" for job in allocation.jobs]
    return plain(" ".join(parts)).lower()


def _xids(findings: Sequence[Finding]) -> tuple[str, ...]:
    found = (m.group(1) for f in findings for m in _XID.finditer(f"{f.rule} {f.say}"))
    return tuple(dict.fromkeys(found))


def brief(say: str) -> str:
    """A finding's sentence for a narrow line: without what only tells one device from another."""
    return _FROM.sub("", _ADDRESS.sub("", say))


def _headline(facts: NodeFacts, findings: Sequence[Finding]) -> tuple[str, Severity]:
    top = next((f for f in findings if not f.acknowledged), None)
    if top is not None:
        text, worst = brief(plain(top.say)), findings[0].severity
        if worst.rank > top.severity.rank:
            # Else nothing in the row says why its verdict is worse than what it tells.
            text = t("{worst} acknowledged; {what}", worst=word(worst), what=text)
        return text, top.severity
    if findings:
        return t("acknowledged: {what}", what=brief(plain(findings[0].say))), Severity.INFO
    if facts.status is not None and facts.state not in (NodeState.UP, NodeState.ENDED):
        return plain(facts.status.text), Severity.UNKNOWN
    return "", Severity.OK


def _devices(
    facts: NodeFacts,
) -> tuple[Gpus, tuple[int, int] | None, tuple[int, int] | None]:
    samples = [sample for _, sample in facts.devices("gpu")]
    # GPUs answer every second, links and ports every half minute: 144 names to match at 8 GPUs.
    told = facts.kept("links up", ("", "nvlink"), _told_links)
    active, ports = facts.kept("ports up", ("", "infiniband"), _told_ports)
    gpus = _gpus(facts, samples)
    lost = {s.device for s in samples if "nvml_rc" in s.values}
    return gpus, _links(told, lost, gpus), (active, ports) if ports else None


def _told_links(facts: NodeFacts) -> dict[str, list[Scalar]]:
    """GPU -> whether each of its links is up."""
    return {
        device: [v for k, v in sample.values.items() if LINK_UP.fullmatch(k)]
        for device, sample in facts.devices("nvlink")
    }


def _told_ports(facts: NodeFacts) -> tuple[int, int]:
    """Physical ports that are active, and all."""
    states = [s.values["state"] for _, s in facts.devices("infiniband") if _physical(s)]
    return sum(state == IB_ACTIVE for state in states), len(states)


def _links(
    told: Mapping[str, Sequence[Scalar]], lost: Collection[str], gpus: Gpus
) -> tuple[int, int] | None:
    """Links up and expected: a GPU that does not answer should have as many as the others."""
    answered = [states for device, states in told.items() if device not in lost and states]
    if not answered:
        return None
    missing = max(0, (gpus.expected or 0) - (gpus.answering or 0))
    expected = sum(map(len, answered)) + missing * max(map(len, answered))
    return sum(1 for states in answered for up in states if up), expected


def _physical(port: Sample) -> bool:
    return "state" in port.values and port_role(port.values) in PHYSICAL


def _gpus(facts: NodeFacts, samples: Sequence[Sample]) -> Gpus:
    answering = [s.values for s in samples if "nvml_rc" not in s.values and s.values]
    util = _readings(answering, "util_percent")
    temp = _readings(answering, "temp_c")
    power = _readings(answering, "power_w")
    clock = _readings(answering, "sm_clock_mhz")
    memory = [
        100.0 * used / total
        for v in answering
        if (used := number(v.get("mem_used_bytes"))) is not None
        and (total := number(v.get("mem_total_bytes")))
    ]
    return Gpus(
        answering=len(answering) if samples or _none_there(facts) else None,
        expected=_expected(facts, len(samples)),
        util_percent=sum(util) / len(util) if util else None,
        temp_c=max(temp, default=None),
        power_w=sum(power) if power else None,
        clock_mhz=min(clock, default=None),
        mem_percent=max(memory, default=None),
    )


def _none_there(facts: NodeFacts) -> bool:
    """All GPUs went away, or their probe says why there are none."""
    return "gpu" in facts.troubles or any(probe == "gpu" for probe, _device in facts.gone)


def _expected(facts: NodeFacts, seen: int) -> int | None:
    if facts.node.gpus is not None:
        return facts.node.gpus
    on_bus = number(facts.value("inventory", "", "pci_gpu_count"))
    return max(int(on_bus or 0), seen) or None


def _readings(values: Sequence[dict[str, Scalar]], metric: str) -> list[float]:
    return [found for v in values if (found := number(v.get(metric))) is not None]
