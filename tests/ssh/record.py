"""Runs Sessions and records their Events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from inventory.node import Inventory, Node
from probes.bundle import AgentConfig
from probes.event import Event, NodeStatus, Sample
from probes.session import Session
from probes.transport import Transport, connections


class Record:
    """A sink that remembers, and can be waited on."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    def statuses(self, node: str | None = None) -> list[NodeStatus]:
        """Statuses of the conversation (not of one probe, not noise)."""
        return [
            e
            for e in self.events
            if isinstance(e, NodeStatus)
            and node in (None, e.node)
            and not e.probe
            and e.reason != "garbage"
        ]

    def noise(self) -> list[NodeStatus]:
        """Statuses about garbage."""
        return [e for e in self.events if isinstance(e, NodeStatus) and e.reason == "garbage"]

    def last(self, node: str) -> NodeStatus:
        """How the conversation with a node stands."""
        return self.statuses(node)[-1]

    def samples(self, node: str, probe: str | None = None) -> list[Sample]:
        """Samples of a node."""
        return [
            e
            for e in self.events
            if isinstance(e, Sample) and e.node == node and probe in (None, e.probe)
        ]

    async def until(self, condition: Callable[[], object], timeout_s: float = 90.0) -> None:
        """Wait until a condition on the record holds."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def up(self, *nodes: str) -> None:
        """Wait until all these nodes said hello."""
        await self.until(lambda: all(self.samples(node, "hello") for node in nodes))


@contextlib.asynccontextmanager
async def transport_of(inventory: Inventory, fanout: int = 64) -> AsyncIterator[Transport]:
    """A transport that is closed at the end."""
    transport = connections(inventory, fanout=fanout)
    try:
        yield transport
    finally:
        await transport.close()


async def one_pass(inventory: Inventory, timeout_s: float = 40.0, fanout: int = 64) -> Record:
    """One pass over all nodes of an inventory."""
    record = Record()
    async with transport_of(inventory, fanout=fanout) as transport, asyncio.TaskGroup() as group:
        for node in inventory.nodes:
            agent = AgentConfig(mode="pass")
            group.create_task(Session(node, transport, agent, record, timeout_s).run())
    return record


class Watch:
    """Sessions that watch in the background until the block is left."""

    def __init__(self, inventory: Inventory, probes: list[str] | None = None) -> None:
        self.inventory = inventory
        self.probes = probes
        self.record = Record()
        self.sessions: dict[str, Session] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Watch:
        self.transport = connections(self.inventory)
        for node in self.inventory.nodes:
            self.start(node)
        return self

    def start(self, node: Node) -> None:
        """Begin watching one more node."""
        config = AgentConfig(mode="watch", fast_s=1.0, probes=self.probes)
        session = Session(node, self.transport, config, self.record)
        self.sessions[node.name] = session
        self.tasks.append(asyncio.ensure_future(session.run()))

    async def __aexit__(self, *_exc: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.transport.close()
