"""Session: one node. Starts the agent, turns its frames into Events, backs off, reconnects.

Whatever a node does, it costs that node only: every wait here has an end, every string is
sanitised, memory is bounded, and leaving closes the agent's stdin so that nothing stays behind.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping

import msgspec

from inventory.node import Node
from probes.bundle import AgentConfig, payload, remote_command
from probes.event import Event, NodeState, NodeStatus
from probes.talk import Talk
from probes.transport import Failure, Transport
from probes.wire import Blob

HELLO_S = 15.0
"""From start to hello when watching: a .bashrc that sleeps 3 s (3.3 s measured) and a cold Lustre
home fit."""

STALE_INTERVALS = 3
"""Fast intervals without any frame before a node counts as stale; the same as stale.intervals."""
HUNG_S = 15.0
"""Silence with a live connection before the node, not the network, is named."""
GIVE_UP_S = 60.0
"""Silence before the agent is started anew."""

RETRY_MAX_S = 60.0
FIXED_RETRY_S = 600.0
"""Keys, accounts and policy do not heal by asking: one more try every ten minutes."""

START_SHARE = 0.8
"""Part of a pass's time that the handshake may take, so that its own error can still be told."""


class Session:
    """One node's agent, from the first handshake to the last."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        config: AgentConfig,
        sink: Callable[[Event], None],
        timeout_s: float = 12.0,
        *,
        on_blob: Callable[[Blob], None] = lambda blob: None,
    ) -> None:
        """`sink` is called in the event loop with every Event, `on_blob` with pieces of files.

        `timeout_s` bounds one pass.
        """
        self.node = node
        self.talk: Talk | None = None
        self._transport = transport
        self._config = config
        self._sink = sink
        self._timeout_s = timeout_s
        self._on_blob = on_blob
        self._fast_s = config.fast_s
        """What silence is measured by; follows the agent's interval."""
        self._wake = asyncio.Event()
        self._told = False
        """The state shown is a failure's: the next attempt does not hide it."""

    async def run(self) -> None:
        """Watch until cancelled, or one pass. Raises UsageError for settings that cannot work."""
        if self._config.mode == "pass":
            await self._one_pass()
        else:
            await self._watch()

    def send(self, op: Mapping[str, object]) -> bool:
        """Send a control line to the agent; False when there is none."""
        talk = self.talk
        if talk is None or talk.channel is None or not talk.greeted.is_set() or talk.over.is_set():
            return False
        talk.channel.write(msgspec.json.encode(op) + b"\n")
        fast_s = op.get("fast_s")
        if op.get("op") == "intervals" and isinstance(fast_s, int | float):
            self._fast_s = float(fast_s)
        return True

    def retry_now(self) -> None:
        """Cut the current back-off short."""
        self._wake.set()

    async def _one_pass(self) -> None:
        talk = self._new_talk()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as deadline:
                talk.on_connecting = lambda: self._begin(
                    lambda: deadline.reschedule(loop.time() + self._timeout_s)
                )
                failure = await self._converse(talk, self._timeout_s * START_SHARE)
        except TimeoutError:
            failure = self._overdue(talk)
        if failure is None:
            talk.say(NodeState.ENDED, "ended")
        else:
            self._fail(failure, None)

    def _begin(self, then: Callable[[], None]) -> None:
        then()
        if not self._told:
            self._status(NodeState.CONNECTING)

    async def _watch(self) -> None:
        attempt = 0
        while True:
            talk = self._new_talk()
            talk.on_connecting = lambda: self._begin(lambda: None)
            failure = await self._converse(talk, HELLO_S)
            if talk.greeted.is_set():
                attempt, self._told = 0, False
            failure = failure or Failure("lost", "the agent left", "it is started again")
            delay_s = _delay_s(failure, attempt)
            self._fail(failure, time.time() + delay_s)
            attempt += 1
            await self._pause(delay_s)

    async def _pause(self, delay_s: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(delay_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _new_talk(self) -> Talk:
        self._fast_s = self._config.fast_s
        self.talk = Talk(self.node, self._config.marker, self._sink)
        self.talk.on_blob = self._on_blob
        return self.talk

    async def _converse(self, talk: Talk, start_s: float) -> Failure | None:
        """One agent from start to end; None when it ended as it should."""
        try:
            channel = await self._transport.start(
                self.node, remote_command(self.node), talk, start_s
            )
        except Failure as failure:
            return failure
        talk.channel = channel
        try:
            channel.write(payload(self._config))
            gave_up = await self._supervise(talk)
        finally:
            talk.over.set()
            await channel.stop()
        if talk.crash is not None:
            raise talk.crash
        return gave_up or talk.failure()

    async def _supervise(self, talk: Talk) -> Failure | None:
        """Wait for the end; when watching, notice silence on the way."""
        if self._config.mode == "pass":
            await talk.over.wait()
            return None
        started = time.monotonic()
        while not talk.over.is_set():
            since = talk.last_frame if talk.greeted.is_set() else started
            quiet_s = time.monotonic() - since
            failure, wait_s = self._patience(talk, quiet_s)
            if failure is not None:
                return failure
            try:
                async with asyncio.timeout(wait_s):
                    await talk.over.wait()
            except TimeoutError:
                continue
        return None

    def _patience(self, talk: Talk, quiet_s: float) -> tuple[Failure | None, float]:
        """What silence of this length means, and how long to wait until it means more."""
        if not talk.greeted.is_set():
            # The interval only matters once there is a hello: look in between.
            left_s = HELLO_S - quiet_s
            return (None, min(left_s, 1.0)) if left_s > 0 else (_mute(talk, HELLO_S), 0.0)
        stale_s = STALE_INTERVALS * max(1.0, self._fast_s)
        hung_s = max(HUNG_S, 2 * stale_s)
        give_up_s = max(GIVE_UP_S, 4 * hung_s)
        text = f"no frame for {quiet_s:.0f} s"
        if quiet_s >= give_up_s:
            return Failure("hung", f"{text}; ssh is up", "look at the node's console"), 0.0
        if quiet_s >= hung_s:
            if talk.state is not NodeState.HUNG:
                talk.say(
                    NodeState.HUNG,
                    "silent",
                    f"{text}, though the connection is alive",
                    "the node may be swapping or stuck in I/O; look at its console",
                )
            return None, give_up_s - quiet_s
        if quiet_s >= stale_s:
            if talk.state is not NodeState.STALE:
                talk.say(NodeState.STALE, "silent", text, "what is shown is old")
            return None, hung_s - quiet_s
        return None, stale_s - quiet_s

    def _overdue(self, talk: Talk) -> Failure:
        """What a node that missed the pass's deadline did until then."""
        if talk.channel is None:
            text = f"not logged in within {self._timeout_s:g} s"
            return Failure("timeout", text, "raise --timeout, or look at the node's console")
        if not talk.greeted.is_set():
            return _mute(talk, self._timeout_s)
        missing = ", ".join(talk.answers.silent()) or "its end"
        return Failure(
            "partial",
            f"only part came within {self._timeout_s:g} s; no answer from {missing}"[:300],
            "raise --timeout, or look at the probes that did not answer",
            state=NodeState.STALE,
        )

    def _fail(self, failure: Failure, retry_at: float | None) -> None:
        self._told = True
        self._status(failure.state, failure.reason, failure.what, failure.hint, retry_at)

    def _status(
        self,
        state: NodeState,
        reason: str = "",
        text: str = "",
        hint: str = "",
        retry_at: float | None = None,
    ) -> None:
        self._sink(
            NodeStatus(
                node=self.node.name,
                at=time.time(),
                state=state,
                reason=reason,
                text=text,
                hint=hint,
                retry_at=retry_at,
            )
        )


def _mute(talk: Talk, within_s: float) -> Failure:
    """Logged in, but no agent spoke."""
    said = talk.said
    if said:
        text = f"no agent within {within_s:g} s of the login, only this: {said}"
        return Failure("protocol", text[:300], "look at the account's shell start-up files")
    return Failure(
        "silent",
        f"logged in, but nothing came within {within_s:g} s",
        "look at the account's shell start-up files and home directory (hung NFS or Lustre?)",
        state=NodeState.HUNG,
    )


def _delay_s(failure: Failure, attempt: int) -> float:
    """Seconds to the next attempt, jittered so that a fleet does not come back in one moment."""
    if failure.fixed:
        return FIXED_RETRY_S * random.uniform(0.9, 1.1)
    return min(RETRY_MAX_S, 2.0**attempt) * random.uniform(0.5, 1.5)
