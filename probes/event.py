"""The Event union: in memory, in recordings and in JSON the very same structs.

The Fleet changes only by applying an Event. `at` is the bastion's epoch seconds; `clock` is the
node's monotonic seconds, the only clock that rates may be computed on.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec import Struct, field

from inventory.scheduler import Allocation, Step

SCHEMA = 1
"""Version of the Event union and of the one-pass document."""

Scalar: TypeAlias = int | float | str | bool
Row: TypeAlias = dict[str, Scalar]


class Severity(StrEnum):
    """ok < info < warn < critical; unknown is "could not be measured", never a kind of ok."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    CRITICAL = "critical"
    UNKNOWN = "unknown"

    @property
    def rank(self) -> int:
        """Verdict order: critical > unknown > warn > info > ok."""
        return _RANK[self]


_RANK = {
    Severity.OK: 0,
    Severity.INFO: 1,
    Severity.WARN: 2,
    Severity.UNKNOWN: 3,
    Severity.CRITICAL: 4,
}


def worst(severities: list[Severity]) -> Severity:
    """The verdict of many; ok when there are none."""
    return max(severities, key=lambda s: s.rank, default=Severity.OK)


class Action(StrEnum):
    """What to do, from least to most drastic. The declaration order is the merge order."""

    NONE = "none"
    WATCH = "watch"
    RESTART_APP = "restart_app"
    RESTART_SERVICE = "restart_service"
    FIX_CONFIG = "fix_config"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    DRAIN = "drain"
    REPLACE = "replace"

    @property
    def rank(self) -> int:
        """Position in the total order."""
        return list(Action).index(self)


class NodeState(StrEnum):
    """How well we can talk to a node; nothing about its hardware."""

    PENDING = "pending"
    CONNECTING = "connecting"
    UP = "up"
    DEGRADED = "degraded"
    HUNG = "hung"
    STALE = "stale"
    UNREACHABLE = "unreachable"
    AUTH_FAILED = "auth_failed"
    HOST_KEY_CHANGED = "host_key_changed"
    NO_PYTHON = "no_python"
    ENDED = "ended"
    """One pass is over and the agent left in good order."""


class Sample(Struct, frozen=True, kw_only=True, tag="sample", omit_defaults=True):
    """One answer of one probe about one device."""

    node: str
    probe: str
    device: str = ""
    """GPU: PCI address "0000:1b:00.0" (stable when indices shift); IB: "mlx5_0/1"; else ""."""
    at: float
    clock: float = 0.0
    values: dict[str, Scalar] = field(default_factory=dict)
    """Metric name with unit -> value. What could not be read is missing, never 0."""
    rows: list[Row] = field(default_factory=list)
    """For probes that answer with a list: all processes, or the new lines of the kernel log."""


class NodeStatus(Struct, frozen=True, kw_only=True, tag="status", omit_defaults=True):
    """How the conversation with a node stands."""

    node: str
    at: float
    state: NodeState
    reason: str = ""
    """Stable code: refused, timeout, dns, auth, no_job_policy, needs_interactive_auth, host_key,
    max_startups, no_python, hung, lost, silent, garbage, protocol, no_route, ended, ..."""
    text: str = ""
    """One sentence for the operator. Sanitised."""
    hint: str = ""
    """The next step."""
    retry_at: float | None = None
    probe: str = ""
    """Set when the status is about one probe (state hung/degraded), or its recovery (state up)."""
    device: str = ""
    since_s: float | None = None
    """How long it has been so on the node's clock, where the node knows."""


class Finding(Struct, frozen=True, kw_only=True, tag="finding", omit_defaults=True):
    """A judgement on samples. Every one carries evidence, cause, next step and provenance."""

    rule: str
    """Dotted id, e.g. gpu.lost, xid.79, ib.link_downed; `gpuconsole explain RULE` knows it."""
    severity: Severity
    node: str
    device: str = ""
    """As in Sample; "" for the whole node."""
    label: str = ""
    """What the operator calls the device: "GPU3", "mlx5_0", "GPU3 link 7"."""
    say: str
    """The finding in one line, without the node's name."""
    value: Scalar | None = None
    limit: Scalar | None = None
    unit: str = ""
    since: float = 0.0
    count: int = 1
    evidence: tuple[str, ...] = ()
    """Raw facts: log line, counter before/after, NVML return."""
    cause: str = ""
    action: Action = Action.NONE
    next_step: str = ""
    source: str = ""
    """Provenance of the limit or the meaning."""
    hard: bool = False
    """Hardware evidence: latches until reboot, reset or acknowledgement."""
    latched: bool = False
    """No longer seen, kept because it was hard."""
    acknowledged: bool = False


Event: TypeAlias = Sample | NodeStatus | Finding | Allocation | Step

encoder = msgspec.json.Encoder()
decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
