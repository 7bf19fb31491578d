"""RDMA ports, each in its role, and their error counters as rates. Pure.

Unused virtual functions, EFA without counters, LID 0 on Ethernet and congestion counters are not
faults; a counter that was cleared, or full before we came, is none either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from probes.checks import ib_link, ib_missing, ib_state
from probes.checks.rule import Look, Rule
from probes.derive import HOUR_S, TRAFFIC, Rates
from probes.event import Action, Finding, Sample, Severity
from probes.ports import COMPUTE, PHYSICAL
from probes.reading import number

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
    """A counter with a limit: per `span_s` seconds, how bad, and what it means.

    0 is between two answers, HOUR_S in the last hour.
    """

    name: str
    limit: str
    span_s: float
    severity: Severity
    action: Action
    cause: str
    source: str = (
        "Linux sysfs ABI for InfiniBand and mlx5 counters [lx]; see the limit's own source"
    )
    rule: str = ""
    """Id where one counter has two rules."""


COUNTERS = (
    Counter("link_downed", "ib.link_downed", 0.0, Severity.CRITICAL, Action.DRAIN,
            "the link dropped and came back: cable, transceiver or switch port"),
    Counter("symbol_error", "ib.symbol_error_per_s", 1.0, Severity.WARN, Action.WATCH,
            "bad signal: cable or transceiver"),
    Counter("symbol_error", "ib.symbol_error_per_hour", HOUR_S, Severity.WARN, Action.WATCH,
            "bad signal, too rare to be seen from one answer to the next: cable or transceiver",
            "error rate 1e-12 of the InfiniBand standard, as in NVSentinel [nvsent]",
            "ib.symbol_error_hour"),
    Counter("rx_icrc_encapsulated", "ib.icrc_errors", HOUR_S, Severity.WARN, Action.WATCH,
            "RoCE packets arrive with a wrong checksum: corrupted on the way"),
    Counter("link_error_recovery", "ib.link_error_recovery_per_min", 60.0, Severity.WARN,
            Action.WATCH, "the link retrains again and again, 50 ms to 2 s of stall each time"),
    Counter("local_link_integrity_errors", "ib.local_link_integrity", HOUR_S, Severity.CRITICAL,
            Action.DRAIN, "more physical errors than the port tolerates"),
    Counter("excessive_buffer_overrun_errors", "ib.excessive_buffer_overrun", HOUR_S,
            Severity.CRITICAL, Action.DRAIN, "the link is no longer lossless"),
    Counter("port_rcv_errors", "ib.port_rcv_errors_per_s", 1.0, Severity.WARN, Action.WATCH,
            "bad packets arrive on this port"),
    Counter("port_xmit_discards", "ib.port_xmit_discards_per_s", 1.0, Severity.WARN, Action.WATCH,
            "packets dropped: the port was down or congested"),
    Counter("local_ack_timeout_err", "ib.local_ack_timeout_per_s", 1.0, Severity.WARN, Action.WATCH,
            "no acknowledgement: the path, or the remote process died"),
    Counter("rnr_nak_retry_err", "ib.rnr_nak_retry", HOUR_S, Severity.WARN, Action.RESTART_APP,
            "a queue pair died; its job is dead or hangs"),
    Counter("req_transport_retries_exceeded", "ib.transport_retries_exceeded", HOUR_S,
            Severity.WARN, Action.RESTART_APP,
            "no answer after all retries: a queue pair died, its job with it"),
    Counter("max_retry_exceeded", "ib.transport_retries_exceeded", HOUR_S,
            Severity.WARN, Action.RESTART_APP,
            "no answer after all retries: a queue pair died, its job with it",
            "hardware counter of the Linux bnxt_re driver; the limit of mlx5: our estimate"),
    Counter("roce_slow_restart", "ib.roce_slow_restart_per_s", 1.0, Severity.WARN, Action.WATCH,
            "RoCE flows restart slowly: loss in the fabric"),
    Counter("retrans_timeout_events", "ib.local_ack_timeout_per_s", 1.0, Severity.WARN,
            Action.WATCH, "EFA retransmission time-outs: the remote end or the path",
            "hardware counter of the Linux EFA driver; the limit is that of mlx5: our estimate"),
)  # fmt: skip

COUNTER_RULES = tuple(
    Rule(
        id=counter.rule or f"ib.{counter.name}",
        title=f"RDMA counter {counter.name} grows{' slowly' if counter.rule else ''}",
        severity=counter.severity,
        reads=f"counters/{counter.name} or hw_counters/{counter.name}, growth on the node's clock",
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
RULES = (ib_missing.MISSING, *ib_state.RULES, *ib_link.RULES, SATURATED, *COUNTER_RULES)


def check(look: Look) -> Iterator[Finding]:
    """Each port by itself, in its role; then those that are not there."""
    yield from ib_missing.check(look)
    for device, sample in look.facts.devices("infiniband"):
        role = ib_link.usual_role(look, device, sample)
        yield from ib_state.check(look, device, sample, role)
        yield from ib_link.check(look, device, sample, role)
        if role in PHYSICAL:
            yield from _counters(look, device, sample, role)


def _counters(look: Look, device: str, sample: Sample, role: str) -> Iterator[Finding]:
    rates = look.facts.rates.get(("infiniband", device))
    if rates is None:
        return
    yield from _full(look, device, sample, rates)
    hour = look.facts.hours.get(("infiniband", device))
    told: set[str] = set()
    for counter, rule in zip(COUNTERS, COUNTER_RULES, strict=True):
        limit = look.rules.limit(counter.limit)
        if counter.span_s == HOUR_S:
            delta = 0.0 if hour is None else hour.grown(counter.name, sample.clock)
            measured, elapsed_s = delta, HOUR_S
        elif counter.name in rates.reset:
            continue
        else:
            delta, elapsed_s = rates.deltas.get(counter.name, 0.0), rates.elapsed_s
            measured = delta / elapsed_s * counter.span_s if counter.span_s else delta
        if measured <= limit.value or counter.name in told:
            continue
        told.add(counter.name)
        now = number(sample.values.get(counter.name)) or 0.0
        least = " or more" if counter.name in rates.saturated else ""
        when = "the last hour" if counter.span_s == HOUR_S else f"{elapsed_s:.0f} s"
        soft = role != COMPUTE and rule.severity is Severity.CRITICAL
        yield rule.finding(
            look, f"{device}: {counter.name} +{delta:.0f}{least} in {when}",
            (f"{counter.name} {now - delta:.0f} -> {now:.0f} in {when}{least}",),
            device=device, label=device, value=round(measured, 2), limit=limit,
            severity=Severity.WARN if soft else None, action=Action.WATCH if soft else None,
        )  # fmt: skip


def _full(look: Look, device: str, sample: Sample, rates: Rates) -> Iterator[Finding]:
    """A warning only when it filled up while we looked: else it may be from an old life."""
    full = sorted(rates.saturated - TRAFFIC)
    if not full:
        return
    hour = look.facts.hours.get(("infiniband", device))
    new = any(
        (rates.deltas.get(name) or 0) > 0 or (hour and hour.grown(name, sample.clock) > 0)
        for name in full
    )
    yield SATURATED.finding(
        look, f"{device}: {', '.join(full)} saturated, its rate is unknown",
        tuple(f"{name} {sample.values.get(name)}" for name in full),
        device=device, label=device, severity=None if new else Severity.INFO,
        action=None if new else Action.NONE,
    )  # fmt: skip
