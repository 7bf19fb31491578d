"""What the screen needs of console.engine.Engine; a replay and the benchmarks have the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from console.fleet import Fleet
from inventory.scheduler import Plan, Step

if TYPE_CHECKING:
    from pathlib import Path

    from console.evidence import Kept
    from console.recording.recorder import Recorder
    from probes.transport import Transport


class Engine(Protocol):
    """What the screen needs of console.engine.Engine; a replay has the same."""

    fleet: Fleet
    recorder: Recorder | None

    def record(self, path: Path, most_bytes: int | None = None) -> None:
        """Begin to write a recording."""
        ...

    def stop_recording(self) -> Recorder | None:
        """End it."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether nothing may be changed."""
        ...

    @property
    def cluster(self) -> str:
        """Shown in the status line."""
        ...

    @property
    def state(self) -> Path:
        """Folder for what is written on this machine."""
        ...

    def transport(self) -> Transport:
        """A way to the nodes of one's own. Raises UsageError where there are none."""
        ...

    async def run(self) -> None:
        """Collect until cancelled."""
        ...

    async def plan(
        self, verb: str, names: Iterable[str], reason: str, *, override: bool = False
    ) -> Plan:
        """What would be done."""
        ...

    def execute(
        self, plan: Plan, typed_count: int | None = None, *, override: bool = False
    ) -> AsyncIterator[Step]:
        """Do it."""
        ...

    def gather(self, names: Sequence[str], why: str) -> AsyncIterator[Kept]:
        """Take evidence bundles."""
        ...

    def ssh_command(self, name: str) -> list[str]:
        """argv of a login."""
        ...
