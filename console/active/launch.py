"""Running one group's test: through the agents of our own SSH sessions, or by a scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from console.active.ask import START_S, Asked
from console.active.measured import run_of
from console.active.orders import IDS, free_port, lacking, orders, port_taken
from console.active.results import Progress, Run
from console.engine import Engine
from inventory.node import Node
from probes.event import Event, NodeState, NodeStatus, Sample

ENDED = ("done", "failed", "refused")
LOST = (
    NodeState.UNREACHABLE,
    NodeState.AUTH_FAILED,
    NodeState.HOST_KEY_CHANGED,
    NodeState.NO_PYTHON,
)
"""States of a session that will send nothing more in time."""
LAST_S = 10.0
"""For the other nodes of a run, once its first node is done: they only have to leave."""
FIRST_S = 3.0
"""Once one node failed, for the others to say why too; they would wait for it to the limit."""
CANCEL_S = 3.0
"""For agents to end a cancelled test: TERM, KILL after 0.3 s, and the way there and back."""


class Launcher(Protocol):
    """Runs one group at a time as often as it is called, side by side."""

    def lacking(self, node: Node, asked: Asked) -> str:
        """What this way of starting misses for the node; "" for nothing."""
        ...

    async def measure(self, run: Run) -> Run:
        """Run it to its end and fill it in. Cancelled, it ends everything that it started."""
        ...


class OverSsh:
    """Orders to the agents that watch the nodes anyway."""

    def __init__(self, engine: Engine, asked: Asked) -> None:
        """The sessions of `engine` must be live when a group is measured."""
        self._engine = engine
        self._asked = asked
        self._ports: set[int] = set()
        self._turn = 0

    def lacking(self, node: Node, asked: Asked) -> str:
        """See Launcher."""
        return lacking(node, asked)

    async def measure(self, run: Run) -> Run:
        """See Launcher. A meeting point that somebody listens on is changed once."""
        done = await self._once(run)
        return await self._once(run) if port_taken(done.error) else done

    async def _once(self, run: Run) -> Run:
        port = free_port(self._ports)
        self._ports.add(port)
        self._turn += 1
        try:
            return await _Talk(self._engine, self._asked, run, port, self._turn).held()
        finally:
            self._ports.discard(port)


class _Talk:
    """One group's jobs from order to end."""

    def __init__(self, engine: Engine, asked: Asked, run: Run, port: int, turn: int) -> None:
        self.engine, self.run, self.limit_s = engine, run, asked.run_s
        self.name = f"test-{turn % IDS}"
        nodes = [engine.fleet.nodes[name].node for name in run.group.nodes]
        gpus = {node.name: gpu_count(engine, node.name) for node in nodes}
        self.orders = orders(run.group, nodes, asked, gpus, port, self.name)
        self.samples: list[Sample] = []
        self.ends: dict[str, tuple[str, str]] = {}
        """Node -> (state, text) of its job's end."""
        self.started: list[str] = []
        self.changed = asyncio.Event()

    async def held(self) -> Run:
        """The whole run; whatever happens, no job of it goes on."""
        self.engine.taps.append(self._tap)
        try:
            for name, order in self.orders.items():
                session = self.engine.sessions.get(name)
                if session is None or not session.send(order):
                    self.ends[name] = ("lost", "no live session")
                    break
                self.started.append(name)
            await self._to_the_end()
            return self._filled_in()
        finally:
            try:
                await self._end_all()
            finally:
                self.engine.taps.remove(self._tap)

    def _tap(self, event: Event) -> None:
        if event.node not in self.orders:
            return
        if isinstance(event, Sample) and event.probe in ("nccl", "gpu_test"):
            if event.values.get("id", self.name) == self.name:
                self.samples.append(event)
        elif isinstance(event, Sample) and (event.probe, event.device) == ("job", self.name):
            state = str(event.values.get("state", ""))
            if state in ENDED:
                self.ends.setdefault(event.node, (state, str(event.values.get("text", ""))))
                self.changed.set()
        elif isinstance(event, NodeStatus) and not event.probe and event.state in LOST:
            said = event.text or event.state
            self.ends.setdefault(event.node, ("lost", f"the session ended: {said}"))
            self.changed.set()

    async def _to_the_end(self) -> None:
        """Until all have ended, or one has failed and the others had time to say so too."""
        await self._until(lambda: bool(self.ends), self.limit_s + START_S)
        if not self.ends:
            return
        first = self.run.group.nodes[0]
        if not self._failures():
            await self._until(
                lambda: first in self.ends or bool(self._failures()), self.limit_s + START_S
            )
        wait_s = FIRST_S if self._failures() else LAST_S
        await self._until(self._all_over, wait_s)

    def _all_over(self) -> bool:
        return all(name in self.ends for name in self.orders)

    def _failures(self) -> list[str]:
        return [name for name, (state, _) in self.ends.items() if state != "done"]

    async def _until(self, true: Callable[[], bool], limit_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not true():
                    self.changed.clear()
                    await self.changed.wait()

    async def _end_all(self) -> None:
        """Cancel what has not ended, and wait a moment until the agents say that it has."""
        left = [name for name in self.started if name not in self.ends]
        for name in left:
            session = self.engine.sessions.get(name)
            if session is not None:
                session.send({"op": "cancel", "id": self.name})
        await self._until(lambda: all(name in self.ends for name in left), CANCEL_S)

    def _filled_in(self) -> Run:
        first = self.run.group.nodes[0]
        if not self._failures() and first in self.ends:
            return run_of(self.run, self.samples, Progress.DONE)
        if not self._failures():
            text = f"no result within {self.limit_s:g} s"
            return run_of(self.run, self.samples, Progress.TIMED_OUT, text)
        name = self._failures()[0]
        state, text = self.ends[name]
        alone = len(self.orders) == 1
        error = text if alone else f"{name}: {text or state}"
        return run_of(self.run, self.samples, _progress(state, text), error)


def _progress(state: str, text: str) -> Progress:
    if state == "refused":
        return Progress.REFUSED
    return Progress.TIMED_OUT if text.startswith("timed out") else Progress.FAILED


def gpu_count(engine: Engine, name: str) -> int:
    """GPUs that the node has by its own word, else by the inventory's; 0 when nobody says."""
    facts = engine.fleet.nodes[name]
    seen = sum(1 for device, _ in facts.devices("inventory") if device)
    return seen or facts.node.gpus or 0


def timed(run: Run, began: float) -> Run:
    """The run with how long it took since `began` (time.monotonic)."""
    return msgspec.structs.replace(run, duration_s=round(time.monotonic() - began, 3))


def launcher(engine: Engine, asked: Asked, jobs: str) -> Launcher:
    """The way of starting that was asked for; `jobs` begins the names of submitted jobs."""
    if asked.launch == "srun":
        from console.active.srun import BySrun

        return BySrun(engine, asked, jobs)
    if asked.launch == "kubectl":
        from console.active.kube_job import ByKubectl

        return ByKubectl(engine, asked, jobs)
    return OverSsh(engine, asked)
