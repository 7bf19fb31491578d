"""InfiniBand, RoCE and other RDMA ports: state, rate against the role's peers, error rates.

Management ports (default route), unused virtual functions, EFA without counters, LID 0 on Ethernet
and congestion counters are not faults. Field cases: NVIDIA/NVSentinel issues 1361, 1529 and 1716.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from probes.checks import ib_missing
from probes.checks.rule import Look, Rule
from probes.derive import TRAFFIC
from probes.event import Action, Finding, Sample, Severity
from probes.expect import COMPUTE, port_role
from probes.reading import number, whole

ACTIVE = 4
LINK_UP = 5
INIT = 2
ARMED = 3
NO_MANAGER = "the link is up but no subnet manager configures the port"
ASK_MANAGER = "drain; look at the subnet manager (opensm) first, the cable is good"
"""A trained link that stays in these states waits for the subnet manager."""

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
RULES = (DOWN, ib_missing.MISSING, NOT_CABLED, VF_DOWN, RATE, SATURATED, *COUNTER_RULES)


def check(look: Look) -> Iterator[Finding]:
    """Each port by itself, in its role; then those that are not there."""
    yield from ib_missing.check(look)
    for device, sample in look.facts.devices("infiniband"):
        role = port_role(sample.values)
        yield from _state(look, device, sample, role)
        if role == COMPUTE:
            yield from _rate(look, device, sample)
            yield from _counters(look, device, sample)


def _state(look: Look, device: str, sample: Sample, role: str) -> Iterator[Finding]:
    state = whole(sample.values.get("state"))
    if state is None or (state == ACTIVE and _up(sample)):
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
    unmanaged = state in (INIT, ARMED) and _up(sample)
    yield DOWN.finding(
        look, f"{device} is not active: {text}",
        (f"{text}; active on {others} of {look.peers.nodes} nodes of the role",),
        device=device, label=device,
        severity=Severity.CRITICAL if look.peers.nodes > 1 else Severity.WARN,
        action=Action.DRAIN if look.peers.nodes > 1 else Action.WATCH,
        cause=NO_MANAGER if unmanaged else "", next_step=ASK_MANAGER if unmanaged else "",
    )  # fmt: skip


def _up(sample: Sample) -> bool:
    return sample.values.get("phys_state", LINK_UP) == LINK_UP


def _rate(look: Look, device: str, sample: Sample) -> Iterator[Finding]:
    rate = number(sample.values.get("rate_gbps"))
    if rate is None or sample.values.get("state") != ACTIVE:
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
