"""Counters become rates here and nowhere else: wrap, reset, saturation, gap. Pure.

All differences use the node's monotonic clock. What is a counter is declared by the probes
(METRICS, kind "counter"); of infiniband and ethtool every number that is not declared otherwise is
one, because drivers bring their own names. A gauge that falls is no reset and has no rate.

Widths: mainline Linux [lx]. PMA counters of a port stick at their maximum, so that value says only
"at least so many". The queue counters of mlx5 are 32-bit hardware fields that wrap. Anything else
that falls was reset (driver reload, perfquery -R): the new value is what came since.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from probes.catalog import PROBES
from probes.event import Sample, Scalar
from probes.reading import MOST

PMA_BITS = {
    "symbol_error": 16, "port_rcv_errors": 16, "port_rcv_remote_physical_errors": 16,
    "port_rcv_switch_relay_errors": 16, "port_xmit_discards": 16, "VL15_dropped": 16,
    "link_error_recovery": 8, "link_downed": 8, "port_xmit_constraint_errors": 8,
    "port_rcv_constraint_errors": 8, "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4, "port_xmit_wait": 32, "port_xmit_data": 32,
    "port_rcv_data": 32, "port_xmit_packets": 32, "port_rcv_packets": 32,
}  # fmt: skip
"""Counter of a port -> bits at which it stops, as in mainline [lx].

Data and packet counters are 64 bit where the port has extended counters; one that stands at exactly
2^32 - 1 says that it has not.
"""

TRAFFIC = frozenset(name for name, bits in PMA_BITS.items() if bits == 32)
"""Counters of work and waiting, not of errors: being full is no sign of trouble."""

WRAPPING = frozenset({
    "out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err",
    "rnr_nak_retry_err", "duplicate_request", "out_of_buffer", "rx_write_requests",
    "rx_read_requests", "rx_atomic_requests", "rx_dct_connect", "req_cqe_error",
    "req_cqe_flush_error", "req_remote_invalid_request", "req_remote_access_errors",
    "req_rnr_retries_exceeded", "req_transport_retries_exceeded", "resp_local_length_error",
    "resp_cqe_error", "resp_cqe_flush_error", "resp_remote_access_errors", "roce_adp_retrans",
    "roce_adp_retrans_to", "roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans",
})  # fmt: skip
"""mlx5 queue counters: be32 fields of query_q_counter shown as 64 bit [lx]."""

OPEN = frozenset({"infiniband", "ethtool"})
"""Probes whose undeclared numbers are counters."""

WRAP = 1 << 32
WRAP_MOST = WRAP // 4
"""A larger step is a reset rather than a wrap (our estimate: both are possible)."""
WRAP_PER_S = 1e8
"""Faster than this is a reset: about the messages per second one port can handle (our estimate)."""

_NOT_COUNTED = frozenset({"lifespan"})
"""Files among the counters that are settings (sysfs-class-infiniband)."""
_NUMBERS = (int, float)
"""`int | float` is built anew at every look, and that was half of this check's time."""
_LINK = re.compile(r"link\d+_")


class Rates(Struct, frozen=True, kw_only=True):
    """What happened between two samples of one device."""

    elapsed_s: float
    deltas: dict[str, float]
    """Counter -> increase, never negative. Of a reset counter its new value: at least so much."""
    reset: frozenset[str] = frozenset()
    saturated: frozenset[str] = frozenset()
    """Counters at their hardware maximum: the rate is unknown, not zero."""

    def per_s(self, counter: str) -> float | None:
        """Increase per second; None when unknown."""
        if counter in self.saturated or counter not in self.deltas:
            return None
        return self.deltas[counter] / self.elapsed_s


def rates(before: Sample, after: Sample) -> Rates | None:
    """Differences of the counters that both samples have.

    None when no time passed on the node's clock, or when the probe counts nothing.
    """
    elapsed_s = after.clock - before.clock
    names = _counters(after.probe, tuple(after.values))
    if names is None or not elapsed_s > 0:
        return None
    deltas: dict[str, float] = {}
    reset: list[str] = []
    saturated: list[str] = []
    values, old = after.values, before.values
    port = after.probe == "infiniband"
    for name in names:
        now: Any = values[name]
        then: Any = old.get(name)
        # Nearly all are whole numbers, 200 a node and second: looked at without a call each.
        if not (type(now) is type(then) is int and 0 <= now < MOST and 0 <= then < MOST):
            now, then = _count(now), _count(then)
        if port and now is not None and now == _full(name):
            saturated.append(name)
        if now is None or then is None:
            continue
        if now == then:
            deltas[name] = 0.0  # one object for all: most counters stand still
        elif now > then:
            deltas[name] = float(now - then)
        elif (wrapped := _wrapped(after.probe, name, then, now, elapsed_s)) is not None:
            deltas[name] = wrapped
        else:
            deltas[name] = float(now)
            reset.append(name)
    if not any(deltas.values()):
        deltas = _standing_still(tuple(deltas))
    return Rates(
        elapsed_s=elapsed_s, deltas=deltas, reset=frozenset(reset), saturated=frozenset(saturated)
    )


@functools.lru_cache(maxsize=256)
def _standing_still(names: tuple[str, ...]) -> dict[str, float]:
    """One object for all devices whose counters stand still, which most error counters do."""
    return dict.fromkeys(names, 0.0)


SLOW = frozenset({
    "symbol_error", "carrier_changes", "link_downed", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "rnr_nak_retry_err", "req_transport_retries_exceeded",
    "max_retry_exceeded",
    "link_down_events_phy", "link_down_events", "tx_pause_storm_error_events",
    "module_high_temp", "module_unplug", "module_bad_shorted", "rx_icrc_encapsulated",
})  # fmt: skip
"""Counters with a limit per hour, or of which one is too many: seen between two answers only, one
event would be over before anybody looks."""
HOUR_S = 3600.0
BUCKET_S = 60.0


class Hour:
    """Growth of the SLOW counters of one device in the last hour.

    Only growth is kept, by the minute: a healthy port costs nothing, a bad one 61 sums a counter.
    """

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        """Nothing has grown."""
        self._buckets: dict[str, dict[int, float]] = {}

    def copy(self) -> Hour:
        """The same sums, apart from then on."""
        other = Hour()
        other._buckets = {name: dict(buckets) for name, buckets in self._buckets.items()}
        return other

    def add(self, step: Rates, clock: float) -> None:
        """What grew until `clock`, seconds on the node's clock.

        What a reset counter shows may be old, and is left out. Of a gap longer than an hour an
        hour's share counts.
        """
        part = min(1.0, HOUR_S / step.elapsed_s)
        for name in SLOW:
            grown = step.deltas.get(name, 0.0)
            if grown > 0 and name not in step.reset:
                buckets = self._buckets.setdefault(name, {})
                minute = math.floor(clock / BUCKET_S)
                buckets[minute] = buckets.get(minute, 0.0) + grown * part
                self._buckets[name] = _recent(buckets, clock)

    def grown(self, counter: str, clock: float) -> float:
        """Growth in the hour before `clock`."""
        return sum(_recent(self._buckets.get(counter, {}), clock).values())

    def __len__(self) -> int:
        """Numbers held."""
        return sum(map(len, self._buckets.values()))


def _recent(buckets: dict[int, float], clock: float) -> dict[int, float]:
    """Buckets that end within the hour before `clock`; those of a clock that jumped back go too."""
    first, last = (clock - HOUR_S) / BUCKET_S, clock / BUCKET_S
    return {minute: n for minute, n in buckets.items() if first - 1 < minute <= last}


def slow_growth(step: Rates) -> bool:
    """Whether an Hour has something to remember of this step."""
    return any(step.deltas.get(name) for name in SLOW)


def _count(value: Scalar | None) -> float | None:
    """A reading that can be a count; None for flags, text, infinite and negative numbers."""
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return None
    return value if 0 <= value < MOST else None


def _full(counter: str) -> int:
    """Where a port's counter stops; -1 when it does not."""
    bits = PMA_BITS.get(counter)
    return -1 if bits is None else (1 << bits) - 1


def _wrapped(probe: str, counter: str, then: float, now: float, elapsed_s: float) -> float | None:
    """The increase over a wrap at 32 bit; None when a reset is the likelier story."""
    if probe != "infiniband" or counter not in WRAPPING or then >= WRAP:
        return None
    increase = WRAP - then + now
    return increase if increase <= min(WRAP_MOST, WRAP_PER_S * elapsed_s) else None


@functools.lru_cache(maxsize=256)
def _counters(probe: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The counters among these metrics, which are the same in every answer of a device."""
    counted = _counted(probe)
    return None if counted is None else tuple(filter(counted, names))


_Counted: TypeAlias = Callable[[str], bool]


@functools.cache
def _counted(probe: str) -> _Counted | None:
    """Whether a metric of this probe is a counter; None when the probe has none."""
    declared = PROBES[probe].metrics if probe in PROBES else {}
    kinds = {name: kind for name, (_, kind, _) in declared.items()}
    if "counter" not in kinds.values():
        return None
    otherwise = "counter" if probe in OPEN else "gauge"

    @functools.lru_cache(maxsize=4096)
    def counted(name: str) -> bool:
        kind = kinds.get(name) or kinds.get(_LINK.sub("linkN_", name, count=1), otherwise)
        return kind == "counter" and name not in _NOT_COUNTED

    return counted
