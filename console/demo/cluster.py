"""The embedded cluster: `async with DemoCluster() as demo:` and there are nodes to look at.

Each node is a real ssh server on a port of 127.0.0.1 with its own host key; each exec request runs
the unmodified remote command. Simulated are the NVML library, the /sys and /proc tree and a few
programs (machine.py), all driven by the scenario (scenario.py, story.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from console.demo.machine import Machine
from console.demo.scenario import Scenario, load, resized
from console.demo.scheduler import DemoScheduler
from console.demo.scratch import executable_place, fast_place, scratch
from console.demo.story import Story
from console.demo.tree import Template
from inventory.node import Inventory, Node

if TYPE_CHECKING:
    from console.demo.execution import Children
    from console.demo.server import Port

USER = "operator"
LOOPBACK = "127.0.0.1"
NODE_BYTES = 2 << 20
"""Of shared memory for one node: 190 files of its own, one page each, and directory entries."""
RACK_NODES, LEAF_NODES = 4, 8
STEP_S = 1.0
"""Real seconds between two states of one node: finer than any probe's interval."""


class DemoCluster:
    """Nodes, inventory and scheduler of one scenario, for as long as the context lasts."""

    def __init__(
        self,
        nodes: int | None = None,
        scenario: Scenario | str | Path | None = None,
        speed: float = 1.0,
    ) -> None:
        """`scenario` None is the default story, `nodes` None as many as it has (16).

        `speed` is story seconds per real second. Raises UsageError for a bad scenario.
        """
        told = scenario if isinstance(scenario, Scenario) else load(scenario)
        self.scenario = told if nodes is None else resized(told, nodes)
        self.speed = speed
        self.story = Story(self.scenario)
        self.scheduler = DemoScheduler(self.scenario, self.story_time, speed)
        self.inventory = Inventory(nodes=(), source="--demo")
        self.directory = Path()
        """Keys, configuration and programs; `trees` holds the nodes' files. Set by entering."""
        self.trees = Path()
        self._started = time.monotonic()
        self._stack = contextlib.AsyncExitStack()
        self._machines: dict[str, Machine] = {}
        self._ports: dict[str, Port] = {}
        self._children: Children | None = None

    def story_time(self) -> float:
        """Story seconds since the start."""
        return (time.monotonic() - self._started) * self.speed

    def machine(self, name: str) -> Machine:
        """The node on disk, for whoever wants to break it by hand."""
        return self._machines[name]

    @property
    def pids(self) -> list[int]:
        """Process ids (each the leader of its group) of what runs on the nodes now."""
        return [] if self._children is None else self._children.pids

    async def __aenter__(self) -> Self:
        """Build and start everything; when it returns every node answers as the story says."""
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the ports, end every program started, remove the directory."""
        await self._stack.aclose()

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        from console.demo import ranks
        from console.demo.execution import Children, Exec
        from console.demo.server import Port
        from probes.ssh import asyncssh

        self.directory = stack.enter_context(scratch(executable_place()))
        need_bytes = NODE_BYTES * len(self.scenario.nodes)
        self.trees = stack.enter_context(scratch(fast_place(need_bytes)))
        self._children = Children()
        stack.push_async_callback(self._children.end)
        key = asyncssh.generate_private_key("ssh-ed25519", comment="gpuconsole demo")
        authorized = asyncssh.import_authorized_keys(key.export_public_key().decode())
        self._private("key", key.export_private_key())
        known: list[str] = []
        template = Template(self.trees / "template", self.story.hardware, self.scenario.name)
        self._started = time.monotonic()
        for number, name in enumerate(self.scenario.nodes, 1):
            machine = Machine(name, self.trees / name, self.directory / "bin" / name, self.story)
            ras = ranks.RasPort(functools.partial(self._ranks, name))
            await ras.listen()
            stack.push_async_callback(ras.close)
            machine.ras_port = ras.number
            machine.build(template, number)
            machine.advance(self.story_time(), self.speed, time.monotonic())
            host_key = asyncssh.generate_private_key("ssh-ed25519")
            session = functools.partial(Exec, machine.environment, self._children)
            port = Port(host_key, authorized, session)
            stack.push_async_callback(port.close)
            self._machines[name], self._ports[name] = machine, port
            shown = host_key
            if self.story.present(name, 0.0, "host_key"):
                shown = asyncssh.generate_private_key("ssh-ed25519")
            public = shown.export_public_key().decode().strip()
            known.append(f"[{LOOPBACK}]:{port.number} {public}\n")
            await port.answer(self.story.answers(name, self.story_time()))
        self._private("known_hosts", "".join(known).encode())
        self._private("ssh_config", self._ssh_config().encode())
        self.inventory = self._inventory()
        pump = asyncio.get_running_loop().create_task(self._pump(), name="demo story")
        stack.push_async_callback(_cancelled, pump)

    def _ranks(self, name: str) -> bytes:
        from console.demo import ranks

        return ranks.status(self.story, name, self.story_time())

    def _private(self, name: str, content: bytes) -> None:
        path = self.directory / name
        path.touch(0o600)
        path.write_bytes(content)

    def _ssh_config(self) -> str:
        """So that the operator's own settings for 127.0.0.1 (a jump host, say) stay out."""
        hosts = "".join(
            f"Host {name}\n  HostName {LOOPBACK}\n  Port {port.number}\n"
            for name, port in self._ports.items()
        )
        return (
            f"{hosts}Host *\n  User {USER}\n  IdentityFile {self.directory / 'key'}\n"
            f"  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {self.directory / 'known_hosts'}\n"
            f"  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n"
        )

    def _inventory(self) -> Inventory:
        nodes = tuple(
            Node(
                name=name,
                address=LOOPBACK,
                port=port.number,
                user=USER,
                identity=str(self.directory / "key"),
                root=str(self._machines[name].root),
                group="demo",
                labels=_labels(index),
                scheduler=self.scheduler.name,
                nccl_tests=str(self._machines[name].bin / "all_reduce_perf"),
                torch_python=str(self._machines[name].bin / "torch_python"),
            )
            for index, (name, port) in enumerate(self._ports.items())
        )
        return Inventory(
            nodes=nodes,
            cluster=f"demo: {self.scenario.name}",
            source="--demo",
            ssh_config=str(self.directory / "ssh_config"),
            known_hosts=(str(self.directory / "known_hosts"),),
        )

    async def _pump(self) -> None:
        """Move the story on, one node after the other, so that no moment does all the work.

        On a busy machine up to one round is made up for: a counter that grows must not stand still.
        """
        due = time.monotonic()
        for name, machine in itertools.cycle(self._machines.items()):
            due = max(due + STEP_S / len(self._machines), time.monotonic() - STEP_S)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            t = self.story_time()
            machine.advance(t, self.speed, time.monotonic())
            await self._ports[name].answer(self.story.answers(name, t))


def _labels(index: int) -> dict[str, str]:
    """Where the node stands: four to a rack, as 40 kW allow, and two racks to a leaf switch."""
    return {"rack": f"r{index // RACK_NODES + 1}", "leaf": f"leaf{index // LEAF_NODES + 1}"}


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
