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
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

from msgspec import Struct

from inventory.errors import SchedulerError
from inventory.kube_errors import KubeError, command_failed
from inventory.kube_text import KubePod, read_pods
from inventory.run import Completed
from inventory.scheduler import Step, step

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
        self._asked: dict[str, str] = {}
        """Key -> name of the pods whose eviction the API took."""

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
            gone = ", ".join(self._asked.values())
            yield self._step(f"{error}" + (f"; evicted before that: {gone}" if gone else ""))

    async def _go(self, pods: Sequence[KubePod]) -> AsyncIterator[Step]:
        said: dict[str, str] = {}
        waiting = {_key(pod): pod for pod in pods}
        known = waiting.keys() | set()
        listed = list(pods)
        while waiting:
            for pod in [pod for key, pod in waiting.items() if key not in self._asked]:
                text = await self._try(pod)
                if text and said.get(_key(pod)) != text:
                    said[_key(pod)] = text
                    yield self._step(f"{pod.full_name}: {text}")
            listed = await self.pods()
            there = {_key(pod) for pod in listed}
            for key in [key for key in waiting if key not in there]:
                yield self._step(f"{waiting.pop(key).full_name}: evicted", ok=True)
            if waiting and time.monotonic() >= self._until:
                why = {p.full_name: said.get(key, "still ending") for key, p in waiting.items()}
                yield self._final(why, f"not gone within {self._wish.deadline_s:g} s")
                return
            if waiting:
                await asyncio.sleep(POLL_S if self._asked.keys() >= waiting.keys() else RETRY_S)
        yield self._empty(len(pods), [pod for pod in listed if _key(pod) not in known])

    def _empty(self, count: int, late: Sequence[KubePod]) -> Step:
        """Pods that came meanwhile were in no plan: they are told, and stay."""
        found = sort_pods(late, self._wish)
        names = sorted({pod.full_name for pod in found.go} | found.held.keys())
        if names:
            return self._step(f"{count} pods evicted; came meanwhile and stay: {', '.join(names)}")
        return self._step(f"{count} pods evicted, the node is empty", ok=True)

    async def _try(self, pod: KubePod) -> str:
        """One try; "" when the API took it, else why it is tried again. Raises KubeError."""
        error = await self._evict(pod)
        if error is None or error.reason == "NotFound":
            self._asked[_key(pod)] = pod.full_name
            return ""
        # Conflict: by now another pod has this name, and the next list shows it.
        if error.reason not in ("TooManyRequests", "Conflict"):
            raise error
        return str(error)

    async def _evict(self, pod: KubePod) -> KubeError | None:
        """One try; None when the API took it."""
        body: dict[str, object] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        }
        # A StatefulSet's next pod has the same name and may run on any node.
        options: dict[str, object] = {"preconditions": {"uid": pod.metadata.uid}}
        if self._wish.grace_s is not None:
            options["gracePeriodSeconds"] = self._wish.grace_s
        body["deleteOptions"] = options
        place = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/eviction"
        with _file(json.dumps(body)) as path:
            done = await self._kubectl("create", "--raw", place, "-f", path)
        return None if done.rc == 0 else command_failed(done)

    def _final(self, why: dict[str, str], word: str) -> Step:
        return self._step(f"{word}: " + "; ".join(f"{name} ({text})" for name, text in why.items()))

    def _step(self, detail: str, *, ok: bool = False) -> Step:
        return step(self._node, "evict", detail, ok=ok)


def _key(pod: KubePod) -> str:
    return pod.metadata.uid or pod.full_name


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """kubectl reads the body of a raw request from a file: one in memory, that ends with us."""
    with os.fdopen(os.memfd_create("gpuconsole"), "w") as file:
        file.write(text)
        file.flush()
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}"
