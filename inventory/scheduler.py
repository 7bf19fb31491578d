"""The Scheduler takes a node out of work and back; Slurm and Kubernetes both fit this protocol.

Writing is always argv, never a shell string. `drain` and `resume` are async generators of Steps, so
that the caller sees each node's outcome when it is known; they read the state again just before
they write, and they never touch a node whose reason is foreign unless `override` says so.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from msgspec import Struct

MARKER = "gpuconsole:"
"""Begins every reason we write.

Site automation keys on other first words: NHC on its own name, oci-hpc on "Healthcheck::", Google's
cluster-toolkit on PERFORMANCE, SDC, XID before the first "[".
"""

KEPT = " (kept from "
"""Inside ours: begins somebody else's reason that made room for it."""

STATES = (
    "idle",
    "allocated",
    "mixed",
    "draining",
    "drained",
    "down",
    "maintenance",
    "reserved",
    "unknown",
    "off",  # powered down or up by design: neither sick nor reachable
)
"""One vocabulary for all schedulers."""


class Job(Struct, frozen=True, kw_only=True):
    """Work on a node: a Slurm job or a pod's owner."""

    id: str
    user: str = ""
    name: str = ""
    nodes: int = 1
    """Number of nodes the whole job spans."""
    end_at: float | None = None
    """Epoch seconds when its time limit ends; None when unlimited or unknown."""
    start_at: float | None = None
    """Epoch seconds; None when unknown."""
    partition: str = ""


class Allocation(Struct, frozen=True, kw_only=True, tag="allocation"):
    """What the scheduler says about one node."""

    node: str
    at: float
    scheduler: str
    state: str
    """One of STATES."""
    raw: str = ""
    """The scheduler's own words, flags included."""
    reason: str = ""
    reason_by: str = ""
    reason_at: float | None = None
    partitions: tuple[str, ...] = ()
    jobs: tuple[Job, ...] = ()
    responding: bool = True
    """False when the scheduler itself has lost contact with its daemon there."""

    @property
    def busy(self) -> bool:
        """Whether work runs there now."""
        return bool(self.jobs) or self.state in ("allocated", "mixed", "draining")

    @property
    def ours(self) -> bool:
        """Whether the reason is ours alone: marked, and nobody else's is kept inside."""
        return self.reason.startswith(MARKER) and KEPT not in self.reason


class Step(Struct, frozen=True, kw_only=True, tag="step"):
    """One thing that happened to one node while acting."""

    node: str
    at: float
    phase: str
    """evidence, plan, check, write, read, refused, done, failed, audit."""
    ok: bool
    detail: str = ""
    command: tuple[str, ...] = ()


def step(
    node: str, phase: str, detail: str, *, ok: bool = True, command: tuple[str, ...] = ()
) -> Step:
    """A Step of now."""
    return Step(node=node, at=time.time(), phase=phase, ok=ok, detail=detail, command=command)


class Scheduler(Protocol):
    """Takes nodes out of work and back. Node names are the scheduler's own names."""

    name: str

    async def allocations(self, names: Sequence[str] | None = None) -> list[Allocation]:
        """State of the named nodes (all when None). Raises SchedulerError, never returns a lie."""
        ...

    def drain_commands(self, names: Sequence[str], reason: str) -> list[tuple[str, ...]]:
        """The exact argv `drain` would run. Pure."""
        ...

    def resume_commands(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """The exact argv `resume` would run. Pure."""
        ...

    def drain(
        self, names: Sequence[str], reason: str, *, override: bool = False
    ) -> AsyncIterator[Step]:
        """Re-read, refuse foreign reasons, write, re-read; one final Step per node at least."""
        ...

    def resume(self, names: Sequence[str], *, override: bool = False) -> AsyncIterator[Step]:
        """Re-read, refuse drains that are not ours, write, re-read."""
        ...


class Plan(Struct, frozen=True, kw_only=True):
    """What an action would do, before anybody confirms it."""

    verb: str
    """drain or resume."""
    nodes: tuple[str, ...]
    """Nodes that would be written, in natural order (inventory names)."""
    reason: str
    commands: tuple[tuple[str, ...], ...]
    refused: dict[str, str] = {}
    """Node -> why it is left alone."""
    warnings: tuple[str, ...] = ()
    before: tuple[Allocation, ...] = ()
    confirm_count: int | None = None
    """When set, the operator must type this number."""
    at: float = 0.0
    """When it was made, epoch seconds; 0.0 is unknown."""
