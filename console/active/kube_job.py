"""Active tests as Kubernetes Jobs, through the operator's own kubectl."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from console.active.ask import START_S, Asked
from console.active.kube_manifest import PULL_S, manifest, wants_torch
from console.active.measured import run_of
from console.active.orders import free_port
from console.active.printed import Printed
from console.active.results import Progress, Run
from inventory.run import LocalRun
from probes.sanitise import clean

if TYPE_CHECKING:
    from console.engine import Engine
    from inventory.node import Node

CALL_S = 30.0
LOOK_S = 2.0
WORDS = {"Complete": "done", "Succeeded": "done", "Failed": "failed"}
"""Conditions of Jobs and MPIJobs that end them."""


class ByKubectl:
    """See launch.Launcher."""

    def __init__(self, engine: Engine, asked: Asked, jobs: str) -> None:
        """`jobs` begins the names of the objects."""
        self._engine, self._asked, self._jobs = engine, asked, jobs.lower()
        self._count = 0
        self._ports: set[int] = set()
        self._run = LocalRun()

    def lacking(self, node: Node, asked: Asked) -> str:
        """See Launcher."""
        if (node.scheduler or "").partition(":")[0] != "kubernetes":
            return f"--launch kubectl is for Kubernetes; group {node.group} is not in one"
        if not node.test_image:
            return f"test_image is not set for group {node.group}"
        if wants_torch(node, asked, 2 if asked.level != "node" else 1):
            return "" if node.torch_python else f"torch_python is not set for group {node.group}"
        return "" if node.nccl_tests else f"nccl_tests is not set for group {node.group}"

    async def measure(self, run: Run) -> Run:
        """See Launcher."""
        from console.active.launch import gpu_count

        self._count += 1
        nodes = [self._engine.fleet.nodes[n].node for n in run.group.nodes]
        gpus = {node.name: gpu_count(self._engine, node.name) for node in nodes}
        port = free_port(self._ports)
        made = manifest(run.group, nodes, self._asked, gpus, f"{self._jobs}-{self._count}", port)
        kubectl = _Kubectl(self._run, nodes[0], made)
        self._ports.add(port)
        try:
            if why := await kubectl.create():
                return run_of(run, (), Progress.FAILED, why)
            ends = await kubectl.ended(self._asked.run_s + START_S + PULL_S)
            return await self._read(run, kubectl, ends)
        finally:
            self._ports.discard(port)
            await kubectl.delete()

    async def _read(self, run: Run, kubectl: _Kubectl, ends: Mapping[str, str]) -> Run:
        printed = Printed()
        for line in (await kubectl.log()).splitlines():
            printed.feed(line)
        bad = [name for name, end in ends.items() if end != "done"]
        if len(ends) < len(kubectl.names):
            return run_of(run, (), Progress.TIMED_OUT, "the pods did not end in time")
        samples = printed.samples(run.group, kubectl.names[0], 1 if bad else 0, time.time())
        if len(run.group.nodes) == 1:
            for sample in samples:
                self._engine.feed(sample)
        error = printed.trouble(1 if bad else 0)
        return run_of(run, samples, Progress.FAILED if error else Progress.DONE, error)


class _Kubectl:
    """One run's objects."""

    def __init__(self, run: LocalRun, node: Node, made: dict[str, Any]) -> None:
        context = (node.scheduler or "").partition(":")[2]
        self._argv = ("kubectl", *(("--context", context) if context else ()))
        self._run = run
        self._manifest = made
        items = made["items"]
        self.kind = "mpijob" if items[0]["kind"] == "MPIJob" else "job"
        self.names = [item["metadata"]["name"] for item in items]

    async def create(self) -> str:
        """Why not; "" when they are there."""
        rc, said = await self._with_manifest("create", "--validate=false")
        return "" if rc == 0 else f"kubectl create: {said}"

    async def delete(self) -> None:
        """Whatever of it is there. Deleting a Job ends its pods."""
        await self._with_manifest("delete", "--ignore-not-found", "--wait=false")

    async def _with_manifest(self, verb: str, *options: str) -> tuple[int, str]:
        argv = (*self._argv, f"--request-timeout={CALL_S:g}s", verb, *options, "-f", "-")
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            async with asyncio.timeout(2 * CALL_S):
                out, _ = await process.communicate(json.dumps(self._manifest).encode())
        except OSError as error:
            return -1, f"{argv[0]}: {error.strerror}"
        except TimeoutError:
            process.kill()
            return -1, f"no answer within {2 * CALL_S:g} s"
        return process.returncode or 0, clean(out.decode("utf-8", "replace").strip(), 300)

    async def ended(self, limit_s: float) -> dict[str, str]:
        """Name -> done or failed, once all have ended, one has failed, or the time is over."""
        until = time.monotonic() + limit_s
        while True:
            found = await self._states()
            if len(found) == len(self.names) or "failed" in found.values():
                return found
            if time.monotonic() > until:
                return found
            await asyncio.sleep(LOOK_S)

    async def _states(self) -> dict[str, str]:
        found = {}
        for name in self.names:
            done = await self._run((*self._argv, "get", self.kind, name, "-o", "json"), CALL_S)
            end = state(done.stdout) if done.rc == 0 else ""
            if end:
                found[name] = end
        return found

    async def log(self) -> str:
        """What the first object's pod printed: that of rank 0, or the launcher's."""
        where = f"job/{self.names[0]}" + ("-launcher" if self.kind == "mpijob" else "")
        done = await self._run((*self._argv, "logs", where, "--tail=-1"), CALL_S)
        return done.stdout if done.rc == 0 else done.stderr


def state(text: str) -> str:
    """done or failed, by the object's conditions; "" while it goes on. Pure."""
    try:
        conditions: Sequence[Any] = json.loads(text).get("status", {}).get("conditions") or []
    except (ValueError, AttributeError):
        return ""
    for one in conditions:
        if isinstance(one, dict) and one.get("status") == "True" and one.get("type") in WORDS:
            return WORDS[one["type"]]
    return ""
