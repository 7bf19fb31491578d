"""What a real agent says, recorded once: cheap nodes play it back to measure the client."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from console.demo.cluster import DemoCluster
from probes.bundle import AgentConfig, payload, remote_command
from probes.catalog import PROBES
from probes.transport import Exit, connections

MARKER = "0123456789abcdef01234567"
RECORD_S = 8.0
FAST = tuple(name for name, probe in PROBES.items() if probe.interval == "fast")
"""Probes at the fast interval; everything else is slow or rare."""
_T = re.compile(rb'"t":[0-9.]+')

STORY = """\
name: benchmark
seed: 7
nodes: gpu[001]
hardware: h100
jobs:
  - {id: "1", user: u, name: training, nodes: gpu001, load: training}
faults: []
drains: []
"""


class Frame(Struct, frozen=True):
    """A frame without its marker; `t` goes between the two halves."""

    head: bytes
    tail: bytes

    def at(self, t: float) -> bytes:
        """The frame as if it were said at `t` s."""
        return b'%b"t":%.6f%b' % (self.head, t, self.tail)


class Tape(Struct, frozen=True, kw_only=True):
    """One node's answers."""

    hello: bytes
    fast: dict[str, list[Frame]]
    """Probe -> successive answers, which differ."""
    slow: dict[str, list[Frame]]

    def save(self, path: Path) -> None:
        """To a file."""
        path.write_bytes(msgspec.msgpack.encode(self))

    @classmethod
    def read(cls, path: Path) -> Tape:
        """From a file."""
        return msgspec.msgpack.decode(path.read_bytes(), type=cls)


class _Ear:
    """Receiver that keeps everything."""

    def __init__(self) -> None:
        self.heard = bytearray()

    def connecting(self) -> None:
        """Nothing to do."""

    def data(self, chunk: bytes) -> None:
        """Keep it."""
        self.heard += chunk

    def closed(self, how: Exit) -> None:
        """Nothing to do."""


def record(folder: Path) -> Tape:
    """Run the real agent on one healthy demo node with 8 GPUs and 8 ports for a few seconds."""
    story = folder / "story.yaml"
    story.write_text(STORY)
    return _sorted(asyncio.run(_listen(story)))


async def _listen(story: Path) -> bytes:
    async with DemoCluster(scenario=story) as demo:
        node = demo.inventory.nodes[0]
        transport, ear = connections(demo.inventory), _Ear()
        settings = AgentConfig(marker=MARKER, root=node.root, fast_s=0.5, slow_s=2.0, rare_s=4.0)
        channel = await transport.start(node, remote_command(node), ear)
        channel.write(payload(settings))
        await asyncio.sleep(RECORD_S)
        await channel.stop()
        await transport.close()
    return bytes(ear.heard)


def _sorted(heard: bytes) -> Tape:
    hello = b""
    fast: dict[str, list[Frame]] = {}
    slow: dict[str, list[Frame]] = {}
    for line in heard.splitlines():
        _, found, said = line.partition(MARKER.encode() + b" ")
        if not found:
            continue
        frame = msgspec.json.decode(said)
        if frame["k"] == "hello":
            hello = said
        elif frame["k"] == "s":
            parts = _T.split(said, maxsplit=1)
            rows = fast if frame["p"] in FAST else slow
            rows.setdefault(frame["p"], []).append(Frame(parts[0], parts[1]))
    if not (hello and len(fast) == len(FAST) and slow):
        raise SystemExit(f"benchmarks: the agent said too little to record: {heard[-500:]!r}")
    slow.pop("kernel_log", None)  # a stream: lines come when something happens
    return Tape(hello=hello, fast=fast, slow=slow)
