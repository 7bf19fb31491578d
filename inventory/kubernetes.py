"""Kubernetes through the operator's own kubectl: its GPU nodes, what they do, cordon and uncordon.

Draining here means cordon: no new pod comes, running ones go on, as with a Slurm drain; evicting
them is a wish of its own (kube_evict). A write is one `kubectl patch` that cordons and signs at
once and carries the version of the node that was judged, so two operators cannot overwrite each
other unseen. (`kubectl cordon` answers rc 0 even when the API refused it.)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence

from inventory import kube_judge
from inventory.account import account
from inventory.errors import SchedulerError, UsageError
from inventory.expressions import in_order, natural_key
from inventory.kube_errors import KubeError, command_failed
from inventory.kube_evict import Eviction, Evictor, Sorted, sort_pods
from inventory.kube_judge import Snapshot, allocation, describe, inventory_node, snapshot
from inventory.kube_text import REASON, KubeNode, read_node, read_nodes, read_pods
from inventory.node import Inventory
from inventory.run import Completed, Run
from inventory.scheduler import MARKER, Allocation, Scheduler, Step, step
from inventory.slurm_reason import reason_text
from inventory.source import Source

TIMEOUT_S = 30.0
"""For one command; a list of 4,000 nodes and their pods takes seconds."""
AT_ONCE = 8
"""Writes in flight: kubectl starts in 0.1 s of CPU."""
TRIES = 3
"""How often a node that changed between reading and writing is judged again."""
NAME = "kubernetes"
_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


class Kubernetes(Scheduler, Source):
    """The cluster of one kubectl context."""

    def __init__(self, run: Run, context: str = "", timeout_s: float = TIMEOUT_S) -> None:
        """`context` "" is kubectl's current one, looked up once and then held."""
        self.name = f"{NAME}:{context}" if context else NAME
        self._run = run
        self._context = context
        self._timeout_s = timeout_s

    # ------------------------------------------------------------------ reading

    async def allocations(self, names: Sequence[str] | None = None) -> list[Allocation]:
        """State and work of the named nodes, in that order (all, in natural order, when None).

        A name that Kubernetes does not know gets state "unknown". Raises SchedulerError when it
        cannot be asked, also when only the pods may not be read: then idle cannot be told.
        """
        seen = await self._snapshot()
        wanted = sorted(seen.nodes, key=natural_key) if names is None else names
        return [allocation(name, seen, self.name) for name in wanted]

    async def inventory(self, selector: str = "") -> Inventory:
        """The GPU nodes of the context `selector` (kubectl's current one when empty)."""
        self._context = selector or self._context
        context = await self._pinned()
        self.name = f"{NAME}:{context}"
        nodes = [node for node in await self._nodes() if node.has_gpus]
        if not nodes:
            raise UsageError(
                "no node offers nvidia.com/gpu or has its labels",
                where=f"k8s:{selector}",
                instead="name the nodes: -w HOSTS",
            )
        made = (inventory_node(node, self.name) for node in nodes)
        return Inventory(
            nodes=tuple(sorted(made, key=lambda node: natural_key(node.name))),
            cluster=context,
            source=f"k8s:{context}",
        )

    async def _snapshot(self) -> Snapshot:
        at = time.time()
        await self._pinned()
        everywhere = ("pods", "--all-namespaces", "--field-selector", _ENDED)
        asked = asyncio.create_task(self._get(*everywhere))
        try:
            nodes, pods = await self._nodes(), await asked
        finally:
            # Where the nodes are not told, the other kubectl is not left behind.
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        return snapshot(nodes, await asyncio.to_thread(read_pods, pods), at)

    async def _nodes(self) -> list[KubeNode]:
        nodes = await asyncio.to_thread(read_nodes, await self._get("nodes"))
        if not nodes:
            raise SchedulerError("Kubernetes names no nodes", "check: kubectl get nodes")
        return nodes

    async def _node(self, name: str) -> KubeNode | None:
        """One node now; None when there is none of that name."""
        try:
            return read_node(await self._get("node", "--", name))
        except KubeError as error:
            if error.reason == "NotFound":
                return None
            raise

    async def _get(self, *what: str) -> str:
        dashes = what.index("--") if "--" in what else len(what)
        done = await self._kubectl("get", *what[:dashes], "-o", "json", *what[dashes:])
        return done.stdout

    async def _pinned(self) -> str:
        """The context, fixed at first use: another shell may change the current one meanwhile."""
        if not self._context:
            done = await self._run(("kubectl", "config", "current-context"), self._timeout_s)
            if done.rc != 0:
                raise command_failed(done)
            self._context = done.stdout.strip()
        return self._context

    async def _kubectl(self, *words: str) -> Completed:
        done = await self._run(self._argv(*words), self._timeout_s)
        if done.rc != 0:
            raise command_failed(done)
        return done

    def _argv(self, *words: str) -> tuple[str, ...]:
        context = (f"--context={self._context}",) if self._context else ()
        return ("kubectl", *context, f"--request-timeout={self._timeout_s:g}s", *words)

    # ------------------------------------------------------------------ writing

    def drain_commands(self, names: Sequence[str], reason: str) -> list[tuple[str, ...]]:
        """The argv drain() runs; each patch then also carries the version that was judged. Pure."""
        return [self._patch(name, reason_text(reason)) for name in in_order(names)]

    def resume_commands(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """The argv resume() runs; each patch then also carries the version judged. Pure."""
        return [self._patch(name, "") for name in in_order(names)]

    def _patch(self, name: str, reason: str, version: str = "") -> tuple[str, ...]:
        patch = json.dumps(kube_judge.patch(reason, account(), time.time(), version))
        words = ("patch", "node", "--type=merge", f"--patch={patch}", "-o", "json", "--", name)
        return self._argv(*words)

    async def drain(
        self, names: Sequence[str], reason: str, *, override: bool = False
    ) -> AsyncIterator[Step]:
        """Cordon and sign: running pods go on. Each name ends with a Step done, failed or refused.

        Somebody else's cordon is refused; with `override` that is noted in our reason.
        """
        async for told in self._each(names, reason, override):
            yield told

    async def resume(self, names: Sequence[str], *, override: bool = False) -> AsyncIterator[Step]:
        """Uncordon what we cordoned; a cordon that is not ours alone needs `override`."""
        async for told in self._each(names, "", override):
            yield told

    async def evict(self, names: Sequence[str], wish: Eviction) -> AsyncIterator[Step]:
        """Evict the pods of these cordoned nodes, one node after the other; Steps "evict"."""
        await self._pinned()
        for name in in_order(names):
            async for told in Evictor(self._loose, name, wish).run():
                yield told

    async def evictable(self, names: Sequence[str], wish: Eviction) -> dict[str, Sorted]:
        """What `evict` would do to each node now. Raises SchedulerError."""
        await self._pinned()
        found = [await Evictor(self._loose, name, wish).pods() for name in names]
        return {n: sort_pods(pods, wish) for n, pods in zip(names, found, strict=True)}

    async def _loose(self, *words: str) -> Completed:
        return await self._run(self._argv(*words), self._timeout_s)

    async def _each(self, names: Sequence[str], reason: str, override: bool) -> AsyncIterator[Step]:
        """Each node by itself, AT_ONCE side by side; Steps in the order in which they happen."""
        told: asyncio.Queue[Step | None] = asyncio.Queue()
        work = asyncio.create_task(self._all(in_order(names), reason, override, told))
        try:
            while (done := await told.get()) is not None:
                yield done
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _all(
        self, names: list[str], reason: str, override: bool, told: asyncio.Queue[Step | None]
    ) -> None:
        """An error that concerns every node stops what has not begun; all of them are told."""
        gate = asyncio.Semaphore(AT_ONCE)
        broken: list[SchedulerError] = []

        async def one(name: str) -> None:
            async with gate:
                try:
                    if broken:
                        raise broken[0]
                    await self._pinned()
                    await self._write(name, reason, override, told)
                except SchedulerError as error:
                    if getattr(error, "about_all", True):
                        broken.append(error)
                    told.put_nowait(step(name, "failed", str(error), ok=False))

        try:
            await asyncio.gather(*map(one, names))
        finally:
            told.put_nowait(None)

    async def _write(
        self, name: str, reason: str, override: bool, told: asyncio.Queue[Step | None]
    ) -> None:
        """Read, judge, patch with the version that was judged, look at what the API answered."""
        for attempt in range(TRIES):
            node = await self._node(name)
            if reason:
                judged, text = kube_judge.judge_drain(name, node, reason, override=override)
            else:
                judged, text = kube_judge.judge_resume(name, node, override=override), ""
            told.put_nowait(judged)
            if judged.phase != "check" or node is None:
                return
            command = self._patch(name, text, node.version)
            done = await self._run(command, self._timeout_s)
            error = command_failed(done) if done.rc != 0 else None
            told.put_nowait(step(name, "write", str(error or ""), ok=not error, command=command))
            if error is None:
                after = await self._after(name, done.stdout)
                told.put_nowait(_outcome(name, after, drained=bool(text)))
                return
            if error.reason != "Conflict" or attempt + 1 == TRIES:
                raise error

    async def _after(self, name: str, printed: str) -> KubeNode:
        """The node as the patch printed it, else asked for: what was written is then still told."""
        with contextlib.suppress(SchedulerError):
            return read_node(printed)
        try:
            node = await self._node(name)
        except SchedulerError as error:
            what = f"written, but its state cannot be read again: {error}"
            raise SchedulerError(what) from error
        if node is None:
            raise SchedulerError(f"written, but now {kube_judge.NOT_KNOWN}")
        return node


def _outcome(name: str, node: KubeNode, *, drained: bool) -> Step:
    """What the API server says the node is now."""
    signed = node.note(REASON).startswith(MARKER)
    reached = node.cordoned and signed if drained else not node.cordoned
    if reached:
        return step(name, "done", describe(node))
    return step(
        name, "failed", f"the API took the patch without effect; now {describe(node)}", ok=False
    )
