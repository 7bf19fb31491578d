"""What happened, as the memory keeps it: small structs on their way to the file. Pure."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from inventory.scheduler import Allocation
from probes.event import Finding, Sample, Severity
from probes.sanitise import clean

TEXT = 300
NAME = 120
OUT = frozenset({"drained", "draining", "down"})
"""States of the scheduler that keep work away; `off` is by design."""
FAR_S = 400 * 86400.0
"""Nothing is believed to be older, whatever a node's clock says."""


class Look(Struct, frozen=True):
    """Everything that is found now on nodes that answer and can be judged."""

    at: float
    found: dict[str, list[Finding]]


class Deed(Struct, frozen=True, kw_only=True):
    """The outcome of a drain or resume from here."""

    at: float
    verb: str
    by: str
    reason: str
    ok: bool
    detail: str


class Act(Deed, frozen=True, kw_only=True):
    """A deed, and the node it was done to."""

    node: str


class Boot(Struct, frozen=True):
    """A node said its boot id."""

    node: str
    boot_id: str
    at: float


class Tested(Struct, frozen=True, kw_only=True):
    """One figure of an active test, or that one ran to its end (`what` "ran", no value)."""

    node: str
    what: str
    at: float
    verdict: Severity
    device: str = ""
    label: str = ""
    value: float | None = None
    unit: str = ""
    expected: float | None = None
    level: str = ""
    engine: str = ""
    version: str = ""
    ranks: int = 0
    party: str = ""
    """The group that ran together, where it was more than this node."""
    campaign: str = ""
    say: str = ""


Note: TypeAlias = Look | Act | Boot | Tested | Finding | Allocation


def boot(sample: Sample) -> Boot | None:
    """From a hello."""
    boot_id = sample.values.get("boot_id")
    return Boot(sample.node, clean(str(boot_id), NAME), sample.at) if boot_id else None
