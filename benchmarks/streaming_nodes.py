"""Cheap nodes in one process: a real SSH server that plays a recorded agent at 1 Hz to everybody.

    python -m benchmarks.streaming_nodes TAPE KEY.pub HOSTKEY

Prints its port. Every session gets the frames of one node with 8 GPUs: the fast probes each second,
the slow probes each 30 s, the rare ones each 300 s, nodes spread evenly over all of these times.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from benchmarks.tape import FAST, Frame, Tape
from probes.catalog import PROBES
from probes.ssh import asyncssh

BATCHES = 20
"""Per second: nodes do not answer in one moment."""
SLOW_TICKS = 30
RARE_TICKS = 300
RARE = frozenset(name for name, probe in PROBES.items() if probe.interval == "rare")
BACKLOG = 1000
MSG_IGNORE = 2
"""SSH_MSG_IGNORE of RFC 4253."""
_CLOCKS = re.compile(rb'"(mono|wall)":[0-9.]+')


class Node(asyncssh.SSHServerSession[bytes]):
    """One session: waits for the payload, then says hello and is ticked."""

    def __init__(self, tape: Tape, nodes: list[Node]) -> None:
        self._tape = tape
        self._nodes = nodes
        self._stdin = bytearray()
        self._marker = b""
        self._chan: Any = None
        self.number = 0

    def connection_made(self, chan: Any) -> None:
        """The channel to write to."""
        self._chan = chan
        chan.set_encoding(None)

    def exec_requested(self, command: str) -> bool:
        """Whatever it is."""
        return True

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Payload until its four blocks are there; control lines are ignored."""
        if self._marker:
            return
        self._stdin += data
        config = _config(bytes(self._stdin))
        if config is not None:
            self._marker = config["marker"].encode() + b" "
            self._stdin.clear()
            self._begin()

    def _begin(self) -> None:
        now = {b"mono": time.monotonic(), b"wall": time.time()}
        hello = _CLOCKS.sub(lambda m: b'"%b":%.6f' % (m[1], now[m[1]]), self._tape.hello)
        self._put([hello])
        self.number = len(self._nodes)
        self._nodes.append(self)
        self._say([*self._tape.fast.values(), *self._tape.slow.values()], 0)

    def tick(self, step: int) -> None:
        """What a node says in this second."""
        turn = step + self.number
        due = [self._tape.fast[probe] for probe in FAST]
        if turn % SLOW_TICKS == 0:
            rare_too = turn % RARE_TICKS == 0
            due += [f for p, f in self._tape.slow.items() if rare_too or p not in RARE]
        self._say(due, turn)

    def _say(self, answers: list[list[Frame]], turn: int) -> None:
        now = time.monotonic()
        self._put([frames[turn % len(frames)].at(now) for frames in answers])

    def _put(self, frames: list[bytes]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the client is leaving
            for frame in frames:  # each on its own, as the agent writes them
                self._chan.write(b"%b%b\n" % (self._marker, frame))

    def eof_received(self) -> bool:
        """The client leaves."""
        self._chan.exit(0)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tick it no more."""
        if self in self._nodes:
            self._nodes.remove(self)


def _config(stdin: bytes) -> dict[str, Any] | None:
    """The payload's second block, once all four are there."""
    blocks: list[bytes] = []
    rest = stdin
    while len(blocks) < 4:
        size, found, rest = rest.partition(b"\n")
        if not found or len(rest) < int(size):
            return None
        blocks.append(rest[: int(size)])
        rest = rest[int(size) :]
    config: dict[str, Any] = json.loads(zlib.decompress(blocks[1]))
    return config


class Account(asyncssh.SSHServer):
    """Anybody with the key."""

    def __init__(self, tape: Tape, nodes: list[Node]) -> None:
        self._tape = tape
        self._nodes = nodes

    def connection_made(self, conn: Any) -> None:
        """As OpenSSH: asyncssh would put an empty packet, to be decrypted too, before each one."""
        send = conn.send_packet

        def sparing(kind: int, *args: bytes, **more: Any) -> None:
            if kind != MSG_IGNORE:
                send(kind, *args, **more)

        conn.send_packet = sparing

    def session_requested(self) -> Any:
        """One node."""
        return Node(self._tape, self._nodes)


async def serve(tape: Tape, key: str, host_key: str) -> None:
    """Listen on a free port and tick for ever."""
    nodes: list[Node] = []
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=lambda: Account(tape, nodes), server_host_keys=[host_key],
        authorized_client_keys=key, encoding=None, backlog=BACKLOG, login_timeout=120,
    )  # fmt: skip
    print(server.sockets[0].getsockname()[1], flush=True)
    for beat in itertools.count():
        began = time.monotonic()
        for node in nodes[beat % BATCHES :: BATCHES]:
            node.tick(beat // BATCHES)
        await asyncio.sleep(max(0.0, 1 / BATCHES - (time.monotonic() - began)))


if __name__ == "__main__":
    asyncio.run(serve(Tape.read(Path(sys.argv[1])), sys.argv[2], sys.argv[3]))
