"""One conversation with one agent: bytes in, Events out, and how it went."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from inventory.node import Node
from probes.answers import Answers, events_of
from probes.event import Event, NodeState, NodeStatus
from probes.reasons import read_exit
from probes.sanitise import clean, decode
from probes.transport import Channel, Exit, Failure
from probes.wire import LINE_BYTES, Blob, End, Hello, Lines, read_frame

BYTES_PER_S = 16 << 20
"""More than this in one second pauses the node till the next: an agent sends 100 KB/s at most."""

TOO_LONG = f"a line of more than {LINE_BYTES >> 20} MiB was dropped"

NOISE_LINES = 5
NOISE_EVERY_S = 10.0
"""Noise after the hello becomes one status in this time, however much there is."""


class Talk:
    """Receiver of one agent; see transport.Receiver."""

    def __init__(self, node: Node, marker: str, sink: Callable[[Event], None]) -> None:
        """`marker`: the random word in front of this session's frames."""
        self.node = node
        self.answers = Answers(node.name)
        self.channel: Channel | None = None
        self.greeted = asyncio.Event()
        self.over = asyncio.Event()
        """Set when nothing more will come: end frame, exit, or an error of ours."""
        self.ended = False
        self.how: Exit | None = None
        self.crash: Exception | None = None
        """An error of ours, raised again where run() can see it."""
        self.state = NodeState.CONNECTING
        self.last_frame = 0.0
        """time.monotonic of the last frame, or of the start."""
        self.on_connecting: Callable[[], None] = lambda: None
        self.on_blob: Callable[[Blob], None] = lambda blob: None
        self._marker = marker.encode()
        self._sink = sink
        self._lines = Lines()
        self._noise: deque[str] = deque(maxlen=NOISE_LINES)
        self._noise_count = 0
        self._noise_said = float("-inf")
        self._complaints: set[str] = set()
        self._second = 0.0
        self._budget = BYTES_PER_S

    def connecting(self) -> None:
        """See Receiver."""
        self.last_frame = time.monotonic()
        self.on_connecting()

    def closed(self, how: Exit) -> None:
        """See Receiver."""
        self.how = how
        self.over.set()

    def data(self, chunk: bytes) -> None:
        """See Receiver. An error of ours must not look like one of the connection."""
        if self.over.is_set():
            return
        try:
            self._spend(len(chunk))
            dropped = self._lines.dropped
            for line in self._lines.feed(chunk):
                self._line(line)
            if self._lines.dropped > dropped:
                self._complain("line", TOO_LONG)
        except Exception as error:  # noqa: BLE001 - raised again by run(), with its traceback
            self.crash = error
            self.over.set()

    def _spend(self, count: int) -> None:
        now = time.monotonic()
        if now - self._second >= 1.0:
            self._second, self._budget = now, BYTES_PER_S
        self._budget -= count
        if self._budget < 0 and self.channel is not None:
            self.channel.pause()
            wait_s = max(0.0, self._second + 1.0 - now)
            asyncio.get_running_loop().call_later(wait_s, self.channel.resume)

    def _line(self, line: bytes) -> None:
        # The last marker counts: noise without a line feed, or a torn frame, may stand before it.
        at = line.rfind(self._marker)
        if at < 0:
            self._heard(line)
            return
        if at:
            self._heard(line[:at])
        frame = read_frame(line[at + len(self._marker) :])
        if frame is None:
            self._heard(line[at + len(self._marker) :])
        elif isinstance(frame, Hello):
            self._hello(frame)
        elif not self.greeted.is_set():
            self._heard(line[at + len(self._marker) :])
        else:
            self._frame_came()
            if isinstance(frame, End):
                self.ended = True
                self.over.set()
                return
            if isinstance(frame, Blob):
                self.on_blob(frame)
                return
            for event in events_of(self.answers, frame, time.monotonic(), time.time()):
                self._sink(event)
            if self.answers.over:
                self._complain(
                    "over", "it sends more devices, metrics or rows than a node can have"
                )

    def _hello(self, frame: Hello) -> None:
        if self.greeted.is_set():
            return
        self._frame_came()
        sample = self.answers.hello(frame, time.monotonic(), time.time())
        self.greeted.set()
        self.say(NodeState.UP)
        self._sink(sample)

    def _frame_came(self) -> None:
        self.last_frame = time.monotonic()
        if self.state in (NodeState.STALE, NodeState.HUNG):
            self.say(NodeState.UP, text="answers again")

    def say(self, state: NodeState, reason: str = "", text: str = "", hint: str = "") -> None:
        """Tell how the conversation stands."""
        self.state = state
        self._sink(
            NodeStatus(
                node=self.node.name,
                at=time.time(),
                state=state,
                reason=reason,
                text=text,
                hint=hint,
            )
        )

    def _heard(self, noise: bytes) -> None:
        """Noise: remembered before the hello, told now and then after it."""
        self._noise_count += 1
        now = time.monotonic()
        if self.greeted.is_set() and now - self._noise_said < NOISE_EVERY_S:
            return
        text = decode(noise)
        if not text:
            return
        self._noise.append(text)
        if self.greeted.is_set():
            self._noise_said = now
            many = f" ({self._noise_count} lines so far)" if self._noise_count > 1 else ""
            self._garbage(f"not a frame{many}: {text}")

    def _complain(self, kind: str, text: str) -> None:
        if kind not in self._complaints:
            self._complaints.add(kind)
            self._garbage(text)

    def _garbage(self, text: str) -> None:
        self._sink(
            NodeStatus(
                node=self.node.name,
                at=time.time(),
                state=NodeState.DEGRADED,
                reason="garbage",
                text=clean(text),
            )
        )

    @property
    def said(self) -> str:
        """What came on stdout instead of frames: the last lines."""
        unfinished = decode(self._lines.unfinished)
        dropped = [TOO_LONG] if self._lines.dropped else []
        return clean(" | ".join([*dropped, *self._noise, *([unfinished] if unfinished else [])]))

    def failure(self) -> Failure | None:
        """Why it is over; None when it ended as it should."""
        if self.ended:
            return None
        how = self.how or Exit()
        if not self.greeted.is_set():
            return read_exit(how, self.said)
        if how.lost is not None:
            return how.lost
        stderr = decode(how.stderr)
        ended = f"killed by {how.signal}" if how.signal else f"ended with status {how.rc}"
        return Failure(
            "lost",
            clean(f"the agent was {ended}" if how.signal else f"the agent {ended}")
            + (f": {stderr}" if stderr else ""),
            "it is started again",
        )
