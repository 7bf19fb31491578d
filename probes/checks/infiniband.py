"""InfiniBand, RoCE and other RDMA ports: state, rate against the role's peers, error rates.

Management ports (default route), unused virtual functions, EFA without counters, LID 0 on Ethernet
and congestion counters are not faults. Field cases: NVIDIA/NVSentinel issues 1361, 1529 and 1716.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from probes.checks.rule import Look, Rule
from probes.derive import TRAFFIC
from probes.event import Action, Finding, Sample, Scalar, Severity
from probes.expect import COMPUTE, port_role
from probes.reading import number

MANY = 3
"""Answering nodes from which most of them mean something."""
ACTIVE = 4
LINK_UP = 5

DOWN = Rule(
    id="ib.down",
    title="An RDMA port is not active",
    severity=Severity.CRITICAL,
    reads="/sys/class/infiniband/*/ports/*/{state,phys_state}",
    cause="cable, transceiver, switch port or subnet manager",
    action=Action.DRAIN,
    next_step="drain; check cable and switch port; ibstat on the node",
    source="Linux sysfs ABI for InfiniBand [lx]: 4 ACTIVE, 5 LinkUp; unless uncabled on all peers "
    "too",
    others="GCM, AzHC, CCH, NHC, gpud, SOP, CVS, PRI: error",
    example="mlx5_3/1: state 1: DOWN, physical state 2: Polling; active on 15 of 16 peers",
)
NOT_CABLED = Rule(
    id="ib.unused",
    title="An RDMA port is down here and on the peers",
    severity=Severity.INFO,
    reads="as ib.down, with the peers' ports",
    cause="not cabled, or a front-end port in the wrong mode",
    action=Action.NONE,
    next_step="none, unless it should be cabled",
    source="NVIDIA/NVSentinel issue 1361: an unused NIC is no fault; the peers decide: our "
    "estimate",
    others="-",
    example="mlx5_8/1 is down on all 16 nodes",
)
VF_DOWN = Rule(
    id="ib.vf_down",
    title="A virtual function in use is down",
    severity=Severity.WARN,
    reads="state of virtual functions whose interface is in another namespace",
    cause="its GUID or policy is not set, or the subnet manager lacks virtualisation support",
    action=Action.FIX_CONFIG,
    next_step="set node and port GUID and policy Follow for the VF, then rebind it",
    source="field case: VFs are down until GUID and policy are set",
    others="-",
    example="ibp24s0v2/1 is handed to a pod but down",
)
RATE = Rule(
    id="ib.rate",
    title="An RDMA port runs below its peers' rate",
    severity=Severity.CRITICAL,
    reads="rate of active ports against the most common rate of the role",
    cause="a half-width or lower-speed link: cable, transceiver or split port",
    action=Action.DRAIN,
    next_step="drain; reseat or exchange the cable; check the switch port's speed",
    source="our estimate, not measured: sysfs has no rate to expect [lx], so the peers' most "
    "common one",
    others="gpud floor per product, AzHC 8x400",
    example="200 Gb/sec (4X HDR); 15 peers have 400",
)
SATURATED = Rule(
    id="ib.saturated",
    title="An error counter stands at its maximum",
    severity=Severity.WARN,
    reads="PMA counters against their hardware width",
    cause="the counter is full: how fast errors come now cannot be seen",
    action=Action.WATCH,
    next_step="clear the counters (perfquery -R, with the fabric team), then look again",
    source="Linux InfiniBand core [lx]: symbol_error 16 bit, link_downed 8, local_link_integrity 4",
    others="-",
    example="symbol_error 65535 (saturated: rate unknown)",
)


MISSING = Rule(
    id="ib.missing",
    title="An RDMA port that the peers have is not there",
    severity=Severity.CRITICAL,
    reads="/sys/class/infiniband against the role's peers, by port name and PCI address",
    cause="the adapter fell off the bus, its driver did not start, or it was taken out",
    action=Action.DRAIN,
    next_step="look for its PCI address in lspci and the kernel log; drain; power-cycle; reseat",
    source="our estimate, not measured: 3 or more nodes answered and most of them have it; "
    "field case: gpud issue 482",
    others="AzHC, gpud, SOP, CVS: count of ports",
    example="mlx5_8/1 is not there; active on 15 of 15 peers at 0000:ab:00.0",
    limits=("ib.missing_share",),
)


class Counter(NamedTuple):
    """A counter with a limit: per `span_s` seconds, how bad, and what it means."""

    name: str
    limit: str
    span_s: float
    severity: Severity
    action: Action
    cause: str
    source: str = (
        "Linux sysfs ABI for InfiniBand and mlx5 counters [lx]; see the limit's own source"
    )


COUNTERS = (
    Counter("link_downed", "ib.link_downed", 0.0, Severity.CRITICAL, Action.DRAIN,
            "the link dropped and came back: cable, transceiver or switch port"),
    Counter("symbol_error", "ib.symbol_error_per_s", 1.0, Severity.WARN, Action.WATCH,
            "bad signal: cable or transceiver"),
    Counter("link_error_recovery", "ib.link_error_recovery_per_min", 60.0, Severity.WARN,
            Action.WATCH, "the link retrains again and again, 50 ms to 2 s of stall each time"),
    Counter("local_link_integrity_errors", "ib.local_link_integrity", 0.0, Severity.CRITICAL,
            Action.DRAIN, "more physical errors than the port tolerates"),
    Counter("excessive_buffer_overrun_errors", "ib.excessive_buffer_overrun", 0.0,
            Severity.CRITICAL, Action.DRAIN, "the link is no longer lossless"),
    Counter("port_rcv_errors", "ib.port_rcv_errors_per_s", 1.0, Severity.WARN, Action.WATCH,
            "bad packets arrive on this port"),
    Counter("port_xmit_discards", "ib.port_xmit_discards_per_s", 1.0, Severity.WARN, Action.WATCH,
            "packets dropped: the port was down or congested"),
    Counter("local_ack_timeout_err", "ib.local_ack_timeout_per_s", 1.0, Severity.WARN, Action.WATCH,
            "no acknowledgement: the path, or the remote process died"),
    Counter("rnr_nak_retry_err", "ib.rnr_nak_retry", 0.0, Severity.WARN, Action.RESTART_APP,
            "a queue pair died; its job is dead or hangs"),
    Counter("req_transport_retries_exceeded", "ib.transport_retries_exceeded", 0.0, Severity.WARN,
            Action.RESTART_APP, "no answer after all retries: a queue pair died, its job with it"),
    Counter("roce_slow_restart", "ib.roce_slow_restart_per_s", 1.0, Severity.WARN, Action.WATCH,
            "RoCE flows restart slowly: loss in the fabric"),
    Counter("retrans_timeout_events", "ib.local_ack_timeout_per_s", 1.0, Severity.WARN,
            Action.WATCH, "EFA retransmission time-outs: the remote end or the path",
            "hardware counter of the Linux EFA driver; the limit is that of mlx5: our estimate"),
)  # fmt: skip

COUNTER_RULES = tuple(
    Rule(
        id=f"ib.{counter.name}",
        title=f"RDMA counter {counter.name} grows",
        severity=counter.severity,
        reads=f"counters/{counter.name} or hw_counters/{counter.name}, as rate on the node's clock",
        cause=counter.cause,
        action=counter.action,
        next_step="drain; check cable and switch port" if counter.action is Action.DRAIN
        else "compare with the peers; check cable and switch port if it goes on",
        source=counter.source,
        others="NVS; GCM sum of 12 counters > 0 warn; imbue; CVS",
        example=f"{counter.name} 3 -> 5 in 30 s",
        limits=(counter.limit,),
        hard=counter.name == "link_downed",
    )
    for counter in COUNTERS
)  # fmt: skip
RULES = (DOWN, MISSING, NOT_CABLED, VF_DOWN, RATE, SATURATED, *COUNTER_RULES)


def check(look: Look) -> Iterator[Finding]:
    """Each port by itself, in its role; then those that are not there."""
    yield from _missing(look)
    for device, sample in look.facts.devices("infiniband"):
        role = port_role(sample.values)
        yield from _state(look, device, sample, role)
        if role == COMPUTE:
            yield from _rate(look, device, sample)
            yield from _counters(look, device, sample)


def _missing(look: Look) -> Iterator[Finding]:
    """Ports of nearly all peers that sysfs does not list here; by number when names differ."""
    gone = {device for probe, device in look.facts.gone if probe == "infiniband" and device}
    here = {device: s.values for device, s in look.facts.devices("infiniband") if device}
    asked = bool(here or gone) or look.facts.get("infiniband") is not None
    others = look.peers.nodes - 1
    if not asked or look.peers.nodes < MANY or "infiniband" in look.facts.troubles:
        return
    limit = look.rules.limit("ib.missing_share")
    hung = {device for probe, device in look.facts.hung if probe == "infiniband"}
    absent = {
        port: round(share * look.peers.nodes) for port, share in look.peers.ib_slots.items()
        if port not in here and port not in hung and share * look.peers.nodes >= limit.value * others
    }  # fmt: skip
    for port, nodes in sorted(_named(look, absent, here).items()):
        place = look.peers.ib_places.get(port, "")
        where = f" at {place}" if place else ""
        since = "; it was there in the last answer" if port in gone else ""
        yield MISSING.finding(
            look, f"{port} is not there{where}; {nodes} of {others} peers have it",
            (f"not in /sys/class/infiniband; active on {nodes} of {others} peers{where}{since}",),
            device=port, label=port, source=MISSING.source,
        )  # fmt: skip
    if not absent:
        yield from _too_few(look, here, others, limit.value)


def _named(
    look: Look, absent: dict[str, int], here: dict[str, dict[str, Scalar]]
) -> dict[str, int]:
    """The same ports as PCI addresses tell them.

    An adapter that is missing since boot moves the names of all later ones.
    """
    places = look.peers.ib_places
    known = {str(values.get("pci", "")) for values in here.values()}
    usual = {places[port]: port for port in look.peers.ib_slots if places.get(port)}
    empty = {port for place, port in usual.items() if place not in known}
    if absent and len(empty) == len(absent) and all(places.get(port) for port in absent):
        return dict(zip(sorted(empty), absent.values(), strict=True))
    return absent


def _too_few(
    look: Look, here: dict[str, dict[str, Scalar]], others: int, share: float
) -> Iterator[Finding]:
    """Fewer compute ports than nearly all peers have active, whatever they are called here."""
    usual = look.peers.ib_ports
    found = sum(1 for values in here.values() if port_role(values) == COMPUTE)
    if usual is None or found >= usual:
        return
    same = round(look.peers.ib_ports_share * look.peers.nodes)
    if same >= share * others:
        yield MISSING.finding(
            look, f"{found} of {usual} RDMA ports are there",
            (f"{found} compute ports listed; {same} of {others} peers have {usual} active",),
            value=found, source=MISSING.source,
        )  # fmt: skip


def _state(look: Look, device: str, sample: Sample, role: str) -> Iterator[Finding]:
    state = sample.values.get("state")
    if not isinstance(state, int) or (state == ACTIVE and _up(sample)):
        return
    physical = sample.values.get("phys_text", "physical state unknown")
    text = f"{sample.values.get('state_text', state)}, {physical}"
    if role == "virtual":
        if sample.values.get("vf_in_use") is True:
            yield VF_DOWN.finding(
                look,
                f"{device} is handed to a pod but down ({text})",
                (text,),
                device=device,
                label=device,
            )
        return
    if role != COMPUTE:
        return
    share = look.peers.ib_slots.get(device, 0.0)
    if look.peers.nodes > 1 and share == 0.0:
        yield NOT_CABLED.finding(
            look, f"{device} is down here and on all {look.peers.nodes} peers",
            (text,), device=device, label=device,
        )  # fmt: skip
        return
    others = round(share * look.peers.nodes)
    yield DOWN.finding(
        look, f"{device} is not active: {text}",
        (f"{text}; active on {others} of {look.peers.nodes} nodes of the role",),
        device=device, label=device,
        severity=Severity.CRITICAL if look.peers.nodes > 1 else Severity.WARN,
        action=Action.DRAIN if look.peers.nodes > 1 else Action.WATCH,
    )  # fmt: skip


def _up(sample: Sample) -> bool:
    return sample.values.get("phys_state", LINK_UP) == LINK_UP


def _rate(look: Look, device: str, sample: Sample) -> Iterator[Finding]:
    rate = sample.values.get("rate_gbps")
    if not isinstance(rate, int | float) or sample.values.get("state") != ACTIVE:
        return
    usual = look.peers.ib_rate_gbps.get(str(sample.values.get("link_layer", "")))
    if usual is not None and rate < usual:
        text = sample.values.get("rate_text", f"{rate:g} Gb/s")
        yield RATE.finding(
            look, f"{device} runs at {rate:g} Gb/s, its peers at {usual:g}",
            (f"{text}; most ports of role {look.peers.role} have {usual:g} Gb/s",),
            device=device, label=device, value=float(rate),
            source=f"majority of {look.peers.nodes} nodes of role {look.peers.role}; {RATE.source}",
        )  # fmt: skip


def _counters(look: Look, device: str, sample: Sample) -> Iterator[Finding]:
    rates = look.facts.rates.get(("infiniband", device))
    if rates is None:
        return
    full = rates.saturated - TRAFFIC
    if full:
        names = ", ".join(sorted(full))
        yield SATURATED.finding(
            look, f"{device}: {names} saturated, its rate is unknown",
            tuple(f"{name} {sample.values.get(name)}" for name in sorted(full)),
            device=device, label=device,
        )  # fmt: skip
    for counter, rule in zip(COUNTERS, COUNTER_RULES, strict=True):
        delta = rates.deltas.get(counter.name)
        if delta is None or delta <= 0 or counter.name in rates.reset:
            continue
        limit = look.rules.limit(counter.limit)
        measured = delta if not counter.span_s else delta / rates.elapsed_s * counter.span_s
        if measured <= limit.value:
            continue
        now = number(sample.values.get(counter.name)) or 0.0
        least = " or more" if counter.name in rates.saturated else ""
        yield rule.finding(
            look, f"{device}: {counter.name} +{delta:.0f}{least} in {rates.elapsed_s:.0f} s",
            (f"{counter.name} {now - delta:.0f} -> {now:.0f} in {rates.elapsed_s:.1f} s{least}",),
            device=device, label=device, value=round(measured, 2), limit=limit,
        )  # fmt: skip
