"""The RAS port of the jobs of the story, on loopback, as NCCL from 2.28.7 on answers.

`status` is pure in the story's time. Of a job that waits one rank is always one collective behind;
in a job that trains ranks fall behind in turn, as healthy ones do.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import Callable
from typing import Any

from console.demo.scenario import Job
from console.demo.story import FIRST_PID, Story

LOOPBACK = "127.0.0.1"
PACE = {"training": 40.0, "waiting": 2.0}
"""Collectives a second by load; jobs of other loads have no NCCL."""
BEHIND = 0.2
"""Share of the ranks of a job that trains that are one behind when somebody looks."""
UNFINISHED = 11 / 16
"""The rank that a waiting job waits for, as a share of its ranks."""


def address(story: Story, node: str) -> str:
    """The node's own address on the cluster's network."""
    number = list(story.scenario.nodes).index(node)
    return f"10.20.{number // 250}.{number % 250 + 1}"


def offers(story: Story, node: str, t: float) -> Job | None:
    """The job whose ranks the port of this node tells; None when there is none."""
    job = story.job(node, t)
    return job if job is not None and job.load in PACE else None


def status(story: Story, node: str, t: float) -> bytes:
    """The answer to VERBOSE STATUS in JSON; b"" where no job offers a port."""
    job = offers(story, node, t)
    if job is None:
        return b""
    per_node = story.hardware.gpus
    size = per_node * len(job.nodes)
    behind = _behind(job, size, t)
    done = round((t - job.at_s + 600.0) * PACE[job.load])
    ranks = [
        _rank(index, address(story, job.nodes[index // per_node]), index % per_node,
              done - (index in behind))
        for index in range(size)
    ]  # fmt: skip
    name = f"0x{random.Random(job.id).getrandbits(64):x}"
    document = {
        "nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
        "timestamp": "2026-01-01 00:00:00", "communicators_count": 1,
        "communicators": [{
            "hash": name, "secondary_hash": f"{name}:0x1", "size": size, "ranks_count": size,
            "missing_ranks_count": 0, "ranks": ranks, "missing_ranks": [],
        }],
        "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
    }  # fmt: skip
    return json.dumps(document, indent=2).encode() + b"\n"


def _behind(job: Job, size: int, t: float) -> set[int]:
    if job.load == "waiting":
        return {round(UNFINISHED * size)}
    rng = random.Random(f"{job.id}/{t:.1f}")
    return set(rng.sample(range(size), round(BEHIND * size)))


def _rank(index: int, host: str, gpu: int, launched: int) -> dict[str, Any]:
    return {
        "rank": index, "host": host, "pid": FIRST_PID + gpu, "cuda_dev": gpu, "nvml_dev": gpu,
        "status": {"init_state": 0, "async_error": 0, "finalize_called": False,
                   "destroy_flag": False, "abort_flag": False},
        "collective_counts": {"Broadcast": 4, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0,
                              "AllReduce": launched},
    }  # fmt: skip


def network(number: int, host: str, uid: int = 1000) -> dict[str, str]:
    """Files of /proc/<pid>/net of a process in whose network the port listens."""
    packed = socket.inet_aton(LOOPBACK)[::-1].hex().upper()
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
    line = (
        f"   0: {packed}:{number:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 "
        f"{uid:>5}        0 20811 1 0000000000000000 100 0 0 10 0\n"
    )
    trie = f"Local:\n           |-- {host}\n              /32 host LOCAL\n"
    return {"tcp": head + line, "tcp6": head, "fib_trie": trie}


class RasPort:
    """Serves one node's port; what it tells is asked for at each question."""

    def __init__(self, tell: Callable[[], bytes]) -> None:
        """Nothing listens yet."""
        self._tell = tell
        self._server: asyncio.Server | None = None
        self.number = 0

    async def listen(self) -> None:
        """On a free port of 127.0.0.1."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.number = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                command = line.decode("ascii", "replace").strip().upper()
                if command == "VERBOSE STATUS":
                    writer.write(self._tell())
                    await writer.drain()
                    return
                shake = command.startswith("CLIENT PROTOCOL")
                writer.write(b"SERVER PROTOCOL 2\n" if shake else b"OK\n")
                await writer.drain()
        except (OSError, ValueError):
            return
        finally:
            writer.close()
