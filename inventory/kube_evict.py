"""Evicting the pods of a cordoned node: through the Eviction API, so budgets are respected.

Only on request: an evicted training pod is a lost job. Pods of DaemonSets and mirror pods stay (the
API would bring them back); pods without a controller and pods with local data go only when the
operator says so, because nothing brings them or the data back. A pod that a PodDisruptionBudget
protects (429) is tried again until the deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

from msgspec import Struct

from inventory.errors import SchedulerError
from inventory.kube_errors import KubeError, command_failed
from inventory.kube_judge import step
from inventory.kube_text import KubePod, read_pods
from inventory.run import Completed
from inventory.scheduler import Step

RETRY_S = 5.0
"""Between two tries of a pod that a budget protects; the same as kubectl drain."""
POLL_S = 2.0
DEADLINE_S = 300.0
"""Our estimate: ten times the usual grace period of 30 s."""

Kubectl = Callable[..., Awaitable[Completed]]
"""Runs `kubectl WORDS` in the right context; never raises for its exit status."""


class Eviction(Struct, frozen=True, kw_only=True):
    """What the operator asked for."""

    grace_s: int | None = None
    """None leaves it to each pod."""
    deadline_s: float = DEADLINE_S
    local_data: bool = False
    """Also pods with emptyDir volumes: their data is lost."""
    unmanaged: bool = False
    """Also pods without a controller: they do not come back."""


class Sorted(Struct, frozen=True):
    """Pods of one node by what happens to them."""

    leave: tuple[KubePod, ...]
    """DaemonSets and mirror pods."""
    go: tuple[KubePod, ...]
    held: dict[str, str]
    """namespace/name -> why it only goes on request."""


def sort_pods(pods: Sequence[KubePod], wish: Eviction) -> Sorted:
    """Pure; ended pods are nobody's business."""
    leave: list[KubePod] = []
    go: list[KubePod] = []
    held: dict[str, str] = {}
    for pod in pods:
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        why = _held(pod, wish)
        if pod.of_daemon_set:
            leave.append(pod)
        elif why:
            held[pod.full_name] = why
        else:
            go.append(pod)
    return Sorted(tuple(leave), tuple(go), held)


def _held(pod: KubePod, wish: Eviction) -> str:
    if not pod.managed and not wish.unmanaged:
        return "no controller brings it back (--evict-unmanaged)"
    if pod.local_data and not wish.local_data:
        return "its emptyDir data would be lost (--evict-local-data)"
    return ""


class Evictor:
    """Evicts the pods of one node."""

    def __init__(self, kubectl: Kubectl, node: str, wish: Eviction) -> None:
        """`kubectl` runs the operator's own."""
        self._kubectl = kubectl
        self._node = node
        self._wish = wish
        self._until = time.monotonic() + wish.deadline_s

    async def pods(self) -> list[KubePod]:
        """All pods bound to the node now. Raises SchedulerError."""
        words = ("get", "pods", "--all-namespaces", "-o", "json")
        done = await self._kubectl(*words, f"--field-selector=spec.nodeName={self._node}")
        if done.rc != 0:
            raise command_failed(done)
        return read_pods(done.stdout)

    async def run(self) -> AsyncIterator[Step]:
        """Steps of phase "evict" for each pod that changes its fate; one final "evicted" Step."""
        try:
            plan = sort_pods(await self.pods(), self._wish)
            if plan.held:
                yield self._step("; ".join(f"{pod}: {why}" for pod, why in plan.held.items()))
                yield self._final(plan.held, "left, not evicted")
                return
            async for told in self._go(plan.go):
                yield told
        except SchedulerError as error:
            yield self._step(str(error))

    async def _go(self, pods: Sequence[KubePod]) -> AsyncIterator[Step]:
        said: dict[str, str] = {}
        waiting = {pod.full_name: pod for pod in pods}
        asked: set[str] = set()
        while waiting:
            for name, pod in list(waiting.items()):
                if name in asked:
                    continue
                error = await self._evict(pod)
                if error is None or error.reason == "NotFound":
                    asked.add(name)
                elif error.reason != "TooManyRequests":
                    raise error
                elif said.get(name) != str(error):
                    said[name] = str(error)
                    yield self._step(f"{name}: {error}")
            there = {pod.full_name for pod in await self.pods()}
            for name in [name for name in waiting if name not in there]:
                del waiting[name]
                yield self._step(f"{name}: evicted", ok=True)
            if not waiting:
                break
            if time.monotonic() >= self._until:
                why = {name: said.get(name, "still ending") for name in waiting}
                yield self._final(why, f"not gone within {self._wish.deadline_s:g} s")
                return
            await asyncio.sleep(POLL_S if asked >= waiting.keys() else RETRY_S)
        yield self._step(f"{len(pods)} pods evicted, the node is empty", ok=True)

    async def _evict(self, pod: KubePod) -> KubeError | None:
        """One try; None when the API took it."""
        body: dict[str, object] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        }
        if self._wish.grace_s is not None:
            body["deleteOptions"] = {"gracePeriodSeconds": self._wish.grace_s}
        place = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/eviction"
        with _file(json.dumps(body)) as path:
            done = await self._kubectl("create", "--raw", place, "-f", path)
        return None if done.rc == 0 else command_failed(done)

    def _final(self, why: dict[str, str], word: str) -> Step:
        return self._step(f"{word}: " + "; ".join(f"{name} ({text})" for name, text in why.items()))

    def _step(self, detail: str, *, ok: bool = False) -> Step:
        return step(self._node, "evict", detail, ok=ok)


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """kubectl reads the body of a raw request from a file."""
    fd, path = tempfile.mkstemp(prefix="gpuconsole-", suffix=".json")
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)
