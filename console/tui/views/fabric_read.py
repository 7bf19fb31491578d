"""Links and ports of a node as they were read, and what they add up to. Pure.

Samples never change once they were taken, so holding them is enough to draw from later: a frozen
screen stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from console.tui.summary import CURRENT, STALE_S
from console.tui.views.gpu_metrics import link_errors
from probes.checks.affinity import ORDER
from probes.derive import PMA_BITS, TRAFFIC, Rates
from probes.event import Finding, Sample, Severity
from probes.expect import link_states
from probes.facts import NodeFacts
from probes.ports import ACTIVE, COMPUTE, PHYSICAL, port_role
from probes.reading import number

DOMAINS = ("nvlink.", "ib.", "roce.", "fabric.", "affinity.", "c2c.", "congestion.", "pcie.",
           "gdr.", "sxid.", "xid.74")  # fmt: skip
"""Beginnings of rules about links, ports and what is between GPU and adapter; Xid 74 is NVLink's
own."""
PROBES = ("nvlink", "nvlink_ends", "infiniband", "topology", "inventory", "labels ")
"""What a change of tells that a node has to be read again (NodeFacts.changed)."""
ERRORS = tuple(name for name in PMA_BITS if name not in TRAFFIC)
"""Counters of a port that count faults: the errors per second shown are their sum."""
GIGABIT = 1e9
WORD_BITS = 32
"""port_rcv_data and port_xmit_data count words of four bytes (sysfs-class-infiniband)."""


class GpuLinks(Struct, frozen=True, kw_only=True, gc=False):
    """One GPU."""

    device: str
    label: str
    links: Sample | None
    rates: Rates | None
    near: Sample | None
    """Its place in the PCIe topology."""


class Port(Struct, frozen=True, kw_only=True, gc=False):
    """One RDMA port."""

    device: str
    sample: Sample
    rates: Rates | None
    downed: float
    """How often the link was lost in the last hour, as far as we saw."""
    near: str
    """The GPU behind the same bridge, "" for none."""

    @property
    def active(self) -> bool:
        """Whether it carries traffic."""
        return self.sample.values.get("state") == ACTIVE

    @property
    def speed(self) -> float | None:
        """Gb/s now."""
        return number(self.sample.values.get("rate_gbps"))

    def gbps(self, direction: str) -> float | None:
        """Data per second, "rcv" or "xmit", in Gb/s; None when it is not counted."""
        per_s = None if self.rates is None else self.rates.per_s(f"port_{direction}_data")
        return None if per_s is None else per_s * WORD_BITS / GIGABIT

    @property
    def errors(self) -> float | None:
        """Faults per second; None when none of the counters is known."""
        if self.rates is None:
            return None
        found = [per_s for name in ERRORS if (per_s := self.rates.per_s(name)) is not None]
        return sum(found) if found else None

    @property
    def full(self) -> bool:
        """A counter of faults stands at its maximum: how fast they come cannot be known."""
        return self.rates is not None and not self.rates.saturated <= TRAFFIC


class Links(Struct, frozen=True, kw_only=True, gc=False):
    """A node as it was read."""

    changes: tuple[int, ...]
    """Of PROBES when it was read."""
    gpus: tuple[GpuLinks, ...]
    ports: tuple[Port, ...]
    ends: Sample | None
    """What the NVLinks lead to."""
    topology: Sample | None
    findings: tuple[Finding, ...]
    """About links and ports, worst first."""
    seen: float | None
    current: bool

    @property
    def top(self) -> Finding | None:
        """The worst finding that nobody acknowledged."""
        return next((finding for finding in self.findings if not finding.acknowledged), None)

    @property
    def severity(self) -> Severity:
        """Of the worst open finding."""
        return Severity.OK if self.top is None else self.top.severity

    def stale(self, now: float) -> bool:
        """Whether its readings may not be shown as present ones."""
        return not self.current or self.seen is None or now - self.seen > STALE_S


def read(
    facts: NodeFacts, findings: Sequence[Finding], seen: float | None, before: Links | None
) -> Links:
    """One node; where no probe of PROBES answered since `before`, its links and ports."""
    changes = (facts.changed.get("", 0), *(facts.changed.get(probe, 0) for probe in PROBES))
    told = tuple(f for f in findings if f.rule.startswith(DOMAINS))
    current = facts.state in CURRENT
    if before is not None and before.changes == changes:
        gpus, ports, ends, topology = before.gpus, before.ports, before.ends, before.topology
        if (told, current) == (before.findings, before.current) and before.seen == seen:
            return before
    else:
        gpus, ports = _gpus(facts), _ports(facts)
        ends, topology = facts.get("nvlink_ends"), facts.get("topology")
    return Links(
        changes=changes, gpus=gpus, ports=ports, ends=ends, topology=topology, findings=told,
        seen=seen, current=current,
    )  # fmt: skip


def _gpus(facts: NodeFacts) -> tuple[GpuLinks, ...]:
    found = [
        GpuLinks(
            device=device,
            label=facts.gpu_label(device),
            links=facts.get("nvlink", device),
            rates=facts.rates.get(("nvlink", device)),
            near=facts.get("topology", device),
        )
        for device, _ in facts.devices("inventory")
        if device
    ]
    return tuple(sorted(found, key=lambda gpu: (len(gpu.label), gpu.label)))


def _ports(facts: NodeFacts) -> tuple[Port, ...]:
    found = []
    for device, sample in facts.devices("infiniband"):
        hour, near = facts.hours.get(("infiniband", device)), sample.values.get("gpu_near")
        port = Port(
            device=device,
            sample=sample,
            rates=facts.rates.get(("infiniband", device)),
            downed=0.0 if hour is None else hour.grown("link_downed", sample.clock),
            near="" if near is None else facts.gpu_label(str(near)),
        )
        found.append(port)
    return tuple(found)


class Sums(Struct, frozen=True, kw_only=True, gc=False):
    """What a node adds up to; None is not known."""

    links: tuple[int, int] | None = None
    """NVLinks known to be up, and all."""
    link_errors: float | None = None
    """Per second."""
    ports: tuple[int, int] | None = None
    """Own ports active and present."""
    speed: float | None = None
    """Gb/s of the slowest active compute port."""
    received: float | None = None
    sent: float | None = None
    """Gb/s, own ports together."""
    errors: float | None = None
    """Port errors per second."""
    full: bool = False
    downed: float | None = None
    """Links of ports lost in the last hour."""
    near: str | None = None
    """Distance of the GPU that is farthest from its nearest adapter."""


def sums(node: Links) -> Sums:
    """Add up a node."""
    states = [link_states(gpu.links.values) if gpu.links else {} for gpu in node.gpus]
    # A GPU that tells of none counts with its siblings' number: not known to be up.
    total = max(map(len, states), default=0) * len(states)
    own = [port for port in node.ports if port_role(port.sample.values) in PHYSICAL]
    compute = [p for p in own if p.active and port_role(p.sample.values) == COMPUTE]
    near = [gpu.near.values.get("nic_distance") for gpu in node.gpus if gpu.near is not None]
    known = [ORDER.index(str(one)) for one in near if one in ORDER]
    return Sums(
        links=(sum(sum(links.values()) for links in states), total) if total else None,
        link_errors=_sum([link_errors(gpu.rates) for gpu in node.gpus]),
        ports=(sum(port.active for port in own), len(own)) if own else None,
        speed=min((p.speed for p in compute if p.speed is not None), default=None),
        received=_sum([port.gbps("rcv") for port in own]),
        sent=_sum([port.gbps("xmit") for port in own]),
        errors=_sum([port.errors for port in own]),
        full=any(port.full for port in own),
        downed=sum(port.downed for port in own) if own else None,
        near=ORDER[max(known)] if known else None,
    )


def _sum(values: Sequence[float | None]) -> float | None:
    """Of those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
