"""The Engine: sessions and scheduler on one side, the Fleet on the other. Both front ends drive it.

It does not know how its Events are drawn or written, and it does not know SSH: it is given a
Transport. Anything else that yields Events (a recording) fits in `feed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from console import act
from console import plan as planning
from console.audit import Audit, who
from console.collector import calm_collector
from console.fleet import Fleet
from console.memory.memory import NAME, Memory
from console.schedulers import schedulers_for
from console.settings import Settings, state_dir
from inventory.errors import UsageError
from inventory.node import Inventory, Node
from inventory.scheduler import Plan, Scheduler, Step
from probes.bundle import AgentConfig
from probes.event import Event

if TYPE_CHECKING:
    from pathlib import Path

    from console.evidence import Kept
    from console.recording.recorder import Recorder
    from inventory.kube_evict import Eviction
    from probes.session import Session
    from probes.transport import Transport

Sink = Callable[[Event], None]
POWERED_OFF = "off"
SETTLED_S = 180.0
"""After it, what is there has been found: hysteresis takes three looks and a minute."""
LOOK_S = 60.0
"""Between two records of what is still there."""
FIRST_READING_S = 2.0
"""How long sessions wait to learn which nodes are powered off by design."""


class Engine:
    """Collects Events into a Fleet and acts through the schedulers."""

    def __init__(
        self,
        inventory: Inventory,
        settings: Settings,
        *,
        transport: Callable[[], Transport] | None = None,
        schedulers: Mapping[str, Scheduler] | None = None,
        fleet: Fleet | None = None,
        state: Path | None = None,
    ) -> None:
        """`transport` is called when the first session starts, so that SSH is imported late.

        `state` holds what is written on this machine: audit file, evidence, results of tests.
        """
        self.inventory = inventory
        self.settings = settings
        self.fleet = fleet or Fleet(inventory)
        self.schedulers = dict(schedulers if schedulers is not None else schedulers_for(inventory))
        self.state = state or state_dir()
        # What the demo drains is nobody's business but its own.
        self.audit = Audit(self.state / "audit.jsonl", told=self.state == state_dir())
        self.memory = Memory(self.state / NAME, keeps=False)
        """Records only while `remembering`."""
        self.taps: list[Sink] = []
        """Called with every Event after the Fleet took it in."""
        self.recorder: Recorder | None = None
        self.sessions: dict[str, Session] = {}
        self._open = transport or self._default_transport
        self._transport: Transport | None = None

    @property
    def bundles(self) -> Path:
        """Where evidence lies that nobody asked to have elsewhere."""
        return self.state / "evidence"

    @property
    def read_only(self) -> bool:
        """Whether anything that writes is refused."""
        return self.settings.read_only

    def check_may_write(self, verb: str) -> None:
        """Raise UsageError in read-only mode."""
        if self.read_only:
            raise UsageError(f"{verb} is not possible with --read-only")

    @property
    def cluster(self) -> str:
        """The cluster's name, or where the inventory came from."""
        return self.inventory.cluster or self.inventory.source

    def feed(self, event: Event) -> None:
        """The one entrance: every Event of every source passes here."""
        self.fleet.apply(event)
        for tap in self.taps:
            tap(event)

    def record(self, path: Path, most_bytes: int | None = None) -> None:
        """Write every Event to a new file from now on, after what is known already.

        Raises UsageError when it cannot be made, or another one is being written.
        """
        from console.recording.recorder import MOST_BYTES, Recorder

        if self.recorder is not None and not self.recorder.ended:
            raise UsageError(f"{self.recorder.path} is being recorded", instead=":record stop")
        answered = [f for f in self.fleet.nodes.values() if f.status is not None]
        recorder = Recorder(path, most_bytes=most_bytes or MOST_BYTES, known=answered)
        self.stop_recording()
        self.recorder = recorder
        self.taps.append(recorder.tap)
        self.fleet.taps.append(recorder.tap)

    def stop_recording(self) -> Recorder | None:
        """End the file that is being written; it, or None when none was."""
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            self.taps.remove(recorder.tap)
            self.fleet.taps.remove(recorder.tap)
            recorder.close()
        return recorder

    @contextlib.asynccontextmanager
    async def remembering(self, *, settled: bool) -> AsyncIterator[Engine]:
        """Record what is seen in the memory while the block lasts; nothing is done to the cluster.

        `settled`: findings need no second look, so what is not found at the end is over.
        """
        self.memory.keeps = True
        self.taps.append(self.memory.tap)
        self.fleet.taps.append(self.memory.tap)
        try:
            yield self
        finally:
            await asyncio.to_thread(self.stop_recording)
            if settled:
                self.memory.look(self.fleet)
            await asyncio.to_thread(self.memory.close)

    def transport(self) -> Transport:
        """One more way to the nodes, beside that of the sessions; the caller closes it."""
        return self._open()

    def _default_transport(self) -> Transport:
        from probes.transport import connections

        return connections(self.inventory, fanout=self.settings.fanout)

    async def run(self, names: Collection[str] | None = None) -> None:
        """Watch these nodes (all when None) and the schedulers until cancelled.

        The agents are gone when it returns.
        """
        async with self._connected(), asyncio.TaskGroup() as group:
            await self._first_reading(group)
            settled_at = time.monotonic() + SETTLED_S
            while True:
                self._start_missing(group, names)
                await asyncio.sleep(self.settings.scheduler_s)
                await self.read_schedulers()
                self.fleet.own = self.memory.own()
                if time.monotonic() > settled_at:
                    settled_at = time.monotonic() + LOOK_S
                    self.memory.look(self.fleet)

    async def read_schedulers(self) -> None:
        """Ask each scheduler once; what cannot be asked is in the Fleet's errors afterwards."""
        await act.read_allocations(self.fleet, self.schedulers, self.feed)

    async def _first_reading(self, group: asyncio.TaskGroup) -> None:
        """Begin the first reading; a scheduler that is slow to answer delays nobody."""
        if self.schedulers:
            first = group.create_task(self.read_schedulers())
            await asyncio.wait([first], timeout=FIRST_READING_S)

    def _start_missing(self, group: asyncio.TaskGroup, names: Collection[str] | None) -> None:
        """A session for every such node that has none and is not powered off by design."""
        for node in self.inventory.nodes:
            wanted = names is None or node.name in names
            if wanted and node.name not in self.sessions and not self._powered_off(node):
                self._start(group, node, "watch")

    async def one_pass(self, names: Collection[str] | None = None) -> None:
        """One pass over these nodes (all when None), each bounded by the timeout."""
        async with self._connected(), asyncio.TaskGroup() as group:
            await self._first_reading(group)
            for node in self.inventory.nodes:
                if (names is None or node.name in names) and not self._powered_off(node):
                    self._start(group, node, "pass")
        self.fleet.own = self.memory.own()

    def _powered_off(self, node: Node) -> bool:
        allocation = self.fleet.nodes[node.name].allocation
        return allocation is not None and allocation.state == POWERED_OFF

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        self._transport = self._open()
        calm_collector()
        try:
            yield
        finally:
            self.sessions.clear()
            await self._transport.close()
            self._transport = None

    def _start(self, group: asyncio.TaskGroup, node: Node, mode: str) -> None:
        from probes.session import Session

        assert self._transport is not None
        session = Session(
            node,
            self._transport,
            self._agent_config(node, mode),
            self.feed,
            self.settings.timeout_s,
        )
        self.sessions[node.name] = session
        group.create_task(session.run(), name=f"session {node.name}")

    def _agent_config(self, node: Node, mode: str) -> AgentConfig:
        s = self.settings
        return AgentConfig(
            mode=mode,
            window_s=s.window_s,
            fast_s=s.fast_s,
            slow_s=s.slow_s,
            rare_s=s.rare_s,
            root=node.root,
        )

    async def plan(
        self,
        verb: str,
        names: Iterable[str],
        reason: str,
        *,
        override: bool = False,
        despite_findings: bool = False,
        evict: Eviction | None = None,
    ) -> Plan:
        """Read the scheduler now, then plan from that. Raises UsageError in read-only mode."""
        self.check_may_write(verb)
        await self.read_schedulers()
        self.fleet.tick()
        plan = planning.plan(
            verb,
            names,
            reason,
            self.fleet,
            self.schedulers,
            override=override,
            despite_findings=despite_findings,
            cap=self.settings.drain_cap,
            forbidden=self.forbidden(verb),
        )
        if evict is not None:
            told = await act.pods_told(plan.nodes, self.fleet, self.schedulers, evict)
            return msgspec.structs.replace(plan, warnings=(*plan.warnings, *told))
        return await self._with_history(plan) if verb == "resume" else plan

    async def _with_history(self, plan: Plan) -> Plan:
        """What changed on each node since the evidence of its drain was taken."""
        from console import since

        now = self.fleet.clock()
        told = [
            text
            for name in plan.nodes
            for text in [
                *await asyncio.to_thread(since.retest, self.fleet.nodes[name], self.memory),
                *await asyncio.to_thread(since.notes, self.fleet.nodes[name], now, self.bundles),
            ]
        ]
        return msgspec.structs.replace(plan, warnings=(*plan.warnings, *told))

    def forbidden(self, verb: str) -> Callable[[str], str]:
        """The site's policy on this verb, read now. Raises UsageError when the file is wrong."""
        from console import policy

        rules, by = policy.load(), policy.operator()
        return lambda node: rules.refusal(verb, node, by)

    async def execute(
        self,
        plan: Plan,
        typed_count: int | None = None,
        *,
        override: bool = False,
        evidence: bool = True,
        evict: Eviction | None = None,
    ) -> AsyncIterator[Step]:
        """Carry out a confirmed plan; a drain takes an evidence bundle of each node first."""
        self.check_may_write(plan.verb)
        async for step in act.execute(
            plan,
            self.fleet,
            self.schedulers,
            self.audit,
            self.feed,
            override=override,
            typed_count=typed_count,
            gather=self.gather if evidence else None,
            evict=evict,
        ):
            if step.phase in ("done", "failed"):
                self.memory.acted(plan, step, who().person)
            yield step

    def gather(self, names: Sequence[str], why: str) -> AsyncIterator[Kept]:
        """An evidence bundle of each node, in the state directory."""
        from console.evidence import collect

        return collect(self, names, why=why)

    def ssh_command(self, name: str) -> list[str]:
        """argv of an interactive login on the node."""
        node = self.fleet.nodes[name].node
        argv = ["ssh"]
        if self.inventory.ssh_config:
            argv += ["-F", self.inventory.ssh_config]
        if node.port:
            argv += ["-p", str(node.port)]
        if node.identity:
            argv += ["-i", node.identity]
        if node.jump:
            argv += ["-J", ",".join(node.jump)]
        if self.inventory.known_hosts:
            argv += ["-o", "UserKnownHostsFile=" + " ".join(self.inventory.known_hosts)]
        destination = f"{node.user}@{node.target}" if node.user else node.target
        return [*argv, "--", destination]
