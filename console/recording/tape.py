"""Recordings: NDJSON of Events. Recorded findings are dropped and judged again.

A recording whose writer was killed ends in the middle of a line: it is read up to there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from console.engine import Engine
from console.fleet import Fleet
from console.launch import inventory_for
from console.output import Stdout, as_json, document, exit_code, say
from inventory.errors import UsageError
from inventory.node import Inventory, Node
from inventory.scheduler import Allocation, Step
from probes.event import Event, Finding, NodeStatus, Sample, decoder
from probes.rules import load_rules

if TYPE_CHECKING:
    from console.evidence import Kept
    from console.options import Request


Answer: TypeAlias = Sample | NodeStatus | Allocation | Step
"""What was observed, as opposed to judged."""


def read(path: Path, told: Callable[[str], None] = lambda text: None) -> Iterator[Answer]:
    """Every Event of the file but findings; `told` hears when its last line is cut short.

    Raises UsageError naming the bad line.
    """
    if path.exists() and not path.is_file():
        # It is read twice, and a device or a pipe may never end.
        raise UsageError("not a regular file", where=str(path), instead="save the recording first")
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                event = _decode(path, number, line, told) if line.strip() else None
                if event is not None and not isinstance(event, Finding):
                    yield event
    except OSError as error:
        raise UsageError(f"{error.strerror}", where=str(path)) from error


def _decode(path: Path, number: int, line: bytes, told: Callable[[str], None]) -> Event | None:
    """One Event; None for a last line that was never finished."""
    try:
        return decoder.decode(line)
    except msgspec.MsgspecError as error:
        if number > 1 and not line.endswith(b"\n"):
            told(f"{path}:{number}: the last line is cut short; read up to there")
            return None
        raise UsageError(
            f"not an Event: {error}",
            where=f"{path}:{number}",
            instead="record with `gpuconsole watch --json > FILE`",
        ) from error


def inventory_of(path: Path, known: Inventory | None = None) -> Inventory:
    """The nodes a recording speaks of, in natural order.

    What the site expects of them (roles, GPU counts) is in its inventory, `known`, not in the file.
    """
    from inventory.expressions import natural_key

    names = sorted({event.node for event in read(path)}, key=natural_key)
    if not names:
        raise UsageError("holds no Events", where=str(path))
    nodes = {node.name: node for node in known.nodes} if known else {}
    return Inventory(
        nodes=tuple(nodes.get(name) or Node(name=name) for name in names),
        cluster=f"recording {path.name}",
        source=str(path),
    )


def _inventory(request: Request, path: Path) -> Inventory:
    """The recording's nodes, as the inventory named with -i knows them."""
    known = asyncio.run(inventory_for(request)) if request.get("source") else None
    return inventory_of(path, known)


def judge_file(request: Request, path: Path) -> int:
    """`gpuconsole replay --json FILE`: the document at the end of the recording."""
    clock = _Clock()
    fleet = Fleet(_inventory(request, path), load_rules(request.get("rules")), clock=clock)
    started, ticked = float("inf"), float("-inf")
    for event in read(path, say):
        # Judged as often as while it was recorded: hysteresis counts the looks.
        if clock.now - ticked >= TICK_S:
            ticked = clock.now
            fleet.tick(ticked)
        clock.now = max(clock.now, event.at)
        started = min(started, event.at)
        fleet.apply(event)
    fleet.tick(clock.now)
    report = document(fleet, started, clock.now)
    Stdout().write(as_json(report, indent=sys.stdout.isatty()))
    return exit_code(report.verdict)


TICK_S = 1.0


class _Clock:
    """The recording's own time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class ReplayEngine(Engine):
    """Feeds a recording at its own pace (times `speed`); nothing can be acted on."""

    def __init__(self, request: Request, path: Path, speed: float) -> None:
        """Raises UsageError when the file is not a recording."""
        clock = _Clock()
        inventory = _inventory(request, path)
        settings = msgspec.structs.replace(request.settings(), read_only=True)
        fleet = Fleet(inventory, load_rules(request.get("rules")), clock=clock)
        super().__init__(inventory, settings, schedulers={}, fleet=fleet)
        self._path = path
        self._speed = speed
        self._clock = clock

    def gather(self, names: Sequence[str], why: str) -> AsyncIterator[Kept]:
        """There is no node to ask."""
        raise UsageError("a recording has no nodes to ask")

    async def run(self, names: Collection[str] | None = None) -> None:
        """Feed every Event when its time has come; then keep the last picture."""
        before: float | None = None
        for event in read(self._path):
            if before is not None and event.at > before:
                await asyncio.sleep((event.at - before) / self._speed)
            before = event.at
            self._clock.now = max(self._clock.now, event.at)
            self.feed(event)
        await asyncio.Event().wait()
