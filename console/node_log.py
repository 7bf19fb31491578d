"""One node's whole kernel log, read and followed over a connection of its own.

What comes is hostile: every line is made harmless before anybody sees it, and sizes are bounded.
"""

from __future__ import annotations

import shlex
from collections import deque

from inventory.node import Node
from probes.sanitise import decode
from probes.transport import Channel, Exit, Failure, Transport

LINES_MOST = 5000
"""Lines kept, the newest: a boot tells some 3,000."""
LINE_CHARS = 500
"""As the agent's own reader."""
LINE_BYTES = 8192
"""Of a line that does not end."""
AHEAD_BYTES = 1 << 18
"""Read between two looks at the log; then the node has to wait."""
FOLLOW = (
    # The log ends with the connection, not with its next line: whoever reads our end of the pipe
    # ends the rest of the process group when it closes.
    "exec 3<&0; (cat <&3; kill 0) >/dev/null 2>&1 & "
    "dmesg -w || dmesg || journalctl -k -b --no-pager -o short-monotonic -n 3000 -f"
)
"""A constant: nothing that anybody typed is in it. Old dmesg and busybox do not follow."""


def command(node: Node) -> str:
    """The command line on the node."""
    return shlex.join([*node.become, "sh", "-c", FOLLOW])


class NodeLog:
    """Lines of one node as they come. A Receiver of probes.transport."""

    def __init__(self, node: Node) -> None:
        """Nothing read yet; see `follow`."""
        self.node = node
        self.lines: deque[str] = deque(maxlen=LINES_MOST)
        self.count = 0
        """Lines that ever came."""
        self.ended = ""
        """Why nothing more comes; "" while it does."""
        self._rest = b""
        self._ahead = 0
        self._channel: Channel | None = None

    async def follow(self, transport: Transport) -> None:
        """Start reading. Raises Failure, or UsageError for bad settings."""
        self._channel = await transport.start(self.node, command(self.node), self)

    def connecting(self) -> None:
        """See Receiver."""

    def data(self, chunk: bytes) -> None:
        """See Receiver."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for raw in whole:
            self._add(raw)
        if len(self._rest) > LINE_BYTES:
            self._add(self._rest)
            self._rest = b""
        self._ahead += len(chunk)
        if self._ahead > AHEAD_BYTES and self._channel is not None:
            self._channel.pause()

    def _add(self, raw: bytes) -> None:
        self.lines.append(decode(raw, LINE_CHARS))
        self.count += 1

    def looked(self) -> None:
        """What came so far was taken: go on reading."""
        if self._ahead > AHEAD_BYTES and self._channel is not None:
            self._channel.resume()
        self._ahead = 0

    def closed(self, how: Exit) -> None:
        """See Receiver."""
        if self._rest:
            self._add(self._rest)
            self._rest = b""
        self.ended = _why(how)

    async def close(self) -> None:
        """End it on the node."""
        if self._channel is not None:
            await self._channel.stop()


def _why(how: Exit) -> str:
    if isinstance(how.lost, Failure):
        return decode(str(how.lost).encode())
    said = decode(how.stderr.strip().rsplit(b"\n", 1)[-1])
    if how.rc == 0:
        return "this system cannot follow it: read once"
    return said or (f"ended with signal {how.signal}" if how.signal else f"ended with {how.rc}")
