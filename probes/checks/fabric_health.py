"""The health mask of a GPU's fabric registration, field by field (nvml.h, API 13). Pure."""

from __future__ import annotations

from typing import NamedTuple

from probes.event import Action, Severity


class Part(NamedTuple):
    """What one field of the mask says."""

    say: str
    severity: Severity
    cause: str
    action: Action
    next_step: str


class Field(NamedTuple):
    """Where a field of the mask is, and what each value that is no good news means."""

    shift: int
    width: int
    values: dict[int, Part]


DEGRADED = Part(
    "bandwidth degraded", Severity.WARN,
    "an NVLink or switch port of this GPU is out of use; the rest carries its traffic",
    Action.DRAIN, "drain at the next opportunity; find the link that is down on GPU or switch tray",
)  # fmt: skip
RECOVERY = Part(
    "route recovery in progress", Severity.WARN,
    "the fabric manager builds routes anew after a link or switch failed",
    Action.WATCH, "wait; drain when it does not end within minutes",
)  # fmt: skip
UNHEALTHY = Part(
    "route unhealthy", Severity.CRITICAL,
    "GPUs of the domain cannot reach this one over NVLink",
    Action.DRAIN, "drain; look at the fabric manager's log and the switch trays; reset the GPU",
)  # fmt: skip
TIMEOUT = Part(
    "recovery from an access timeout in progress", Severity.WARN,
    "remote memory did not answer in time; jobs that span nodes lose their peers",
    Action.WATCH, "wait; restart the jobs that failed; drain when it does not end within minutes",
)  # fmt: skip
DISCONNECTED = Part(
    "fabric manager disconnected", Severity.WARN,
    "the global fabric manager of the domain does not reach this node",
    Action.RESTART_SERVICE, "check the fabric manager of the domain and the way to it",
)  # fmt: skip
UNASSIGNED = Part(
    "no partition assigned", Severity.INFO,
    "the administrator of the rack gave this GPU to no partition",
    Action.NONE, "assign a partition when the GPU should work over NVLink",
)  # fmt: skip


def _wrong(what: str, severity: Severity, action: Action, step: str) -> Part:
    return Part(f"incorrect configuration: {what}", severity,
                "the GPU does not fit the configuration of its NVLink domain",
                action, step)  # fmt: skip


CONFIGURATION = {
    2: _wrong("wrong system GUID", Severity.WARN, Action.FIX_CONFIG,
              "compare the tray's GUID with the rack's configuration"),
    3: _wrong("wrong chassis serial number", Severity.WARN, Action.FIX_CONFIG,
              "compare the tray's chassis serial number with the rack's configuration"),
    4: _wrong("no partition", Severity.WARN, Action.FIX_CONFIG,
              "assign the GPU to a partition of the rack"),
    5: _wrong("too few NVLinks", Severity.CRITICAL, Action.DRAIN,
              "drain; find the links that are down; check the cable cartridge of the tray"),
    6: _wrong("GPU firmware does not fit", Severity.WARN, Action.FIX_CONFIG,
              "bring GPU and switch tray firmware to one release"),
    7: _wrong("wrong place in the rack", Severity.WARN, Action.FIX_CONFIG,
              "compare the tray's slot with the rack's configuration"),
    8: _wrong("GPU state invalid", Severity.CRITICAL, Action.RESET_GPU,
              "drain, then reset the GPU"),
}  # fmt: skip
"""1 is "nothing wrong", 0 "not supported"."""

FIELDS = (
    Field(0, 0x3, {1: DEGRADED}),
    Field(2, 0x3, {1: RECOVERY}),
    Field(4, 0x3, {1: UNHEALTHY}),
    Field(6, 0x3, {1: TIMEOUT}),
    Field(8, 0xF, CONFIGURATION),
    Field(12, 0x3, {2: UNASSIGNED}),
    Field(14, 0x3, {2: DISCONNECTED}),
)

SUMMARIES = {0: "not reported", 1: "healthy", 2: "unhealthy", 3: "limited capacity"}
BAD = {2: Severity.CRITICAL, 3: Severity.WARN}
"""Summaries that are a finding although no field of the mask says why."""


def parts(mask: int) -> list[Part]:
    """Everything in the mask that is not in order."""
    read = (field.values.get(mask >> field.shift & field.width) for field in FIELDS)
    return [part for part in read if part is not None]
