"""Client CPU per node and second with N held sessions: SSH, decoding, Fleet, judging.

    python -m benchmarks.streaming [--nodes 1000] [--windows 5] [--seconds 8]

A child runs the real Engine, SshTransport, Session and Fleet against `streaming_nodes`. Windows
with and without judging alternate in one run. A node-sample is what one node says in one second:
the fast probes (gpu and gpm of 8 devices, host), and its share of the slow and rare ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.children import environment, measured
from benchmarks.figure import Figure, figure
from benchmarks.tape import record

TICK_S = 1.0
SLICE_S = 0.005
LAG_TIMER_S = 0.05
KINDS = ("collect", "judge")
"""collect: sessions and Fleet.apply alone; judge: Fleet.tick each second as the console does."""


def figures(nodes: int, windows: int, seconds: float) -> list[Figure]:
    """Run server and client; everything worth knowing."""
    told = run(nodes, windows, seconds)
    how = (
        f"{nodes} held sessions (SSH in the process, aes128-gcm) x 8 GPUs at 1 Hz, slow probes"
        f" each 30 s; process_time over windows of {seconds:g} s, both kinds in turn"
    )
    return [
        figure(f"streaming, client CPU per node-sample ({nodes} nodes)", told["collect"],
               "ms", f"received, decoded, sanitised, rates, history; {how}", 0.25),
        figure("  the same with every node judged each second", told["judge"], "ms", how),
        figure("  bring-up, client CPU per node", [told["bring_up_ms"]], "ms",
               "from Engine.run to the last hello"),
        figure("  worst loop lag, p99", [told["lag_p99_ms"]], "ms",
               f"lateness of a {LAG_TIMER_S * 1e3:.0f} ms timer, judging included"),
        figure("  memory per node", [told["kb_per_node"]], "KB", "growth of RSS over all sessions"),
    ]  # fmt: skip


def run(nodes: int, windows: int, seconds: float) -> dict[str, Any]:
    """One server, one client; what the client measured about itself."""
    with tempfile.TemporaryDirectory(prefix="gpuconsole-bench-") as name:
        folder = Path(name)
        record(folder).save(folder / "tape")
        for key in ("id", "host"):
            argv = [
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                "",
                "-f",
                str(folder / key),
            ]
            subprocess.run(argv, check=True)
        argv = [sys.executable, "-m", "benchmarks.streaming_nodes", f"{folder}/tape"]
        argv += [f"{folder}/id.pub", f"{folder}/host"]
        env = environment(XDG_CACHE_HOME=f"{folder}/cache", XDG_STATE_HOME=f"{folder}/state")
        server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            me = [sys.executable, "-m", "benchmarks.streaming", "--client", name, str(port)]
            me += ["--nodes", str(nodes), "--windows", str(windows), "--seconds", str(seconds)]
            _, said = measured(me, env)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
    told: dict[str, Any] = json.loads(said)
    return told


class Client:
    """The Engine with a clock beside it."""

    def __init__(self, folder: Path, port: int, nodes: int) -> None:
        """All nodes are one address; each has a session of its own."""
        from console.engine import Engine
        from console.settings import Settings
        from inventory.node import Inventory, Node

        public = (folder / "host.pub").read_text().split()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(public[:2])}\n")
        config = folder / "ssh_config"
        config.write_text(f"Host *\n IdentityFile {folder}/id\n IdentityAgent none\n User bench\n")
        self.engine = Engine(
            Inventory(
                nodes=tuple(
                    Node(name=f"gpu{i + 1:04d}", address="127.0.0.1", port=port, gpus=8)
                    for i in range(nodes)
                ),
                ssh_config=str(config),
                known_hosts=(str(folder / "known_hosts"),),
            ),
            Settings(fast_s=1.0, fanout=32),
        )
        self.samples = 0
        self.engine.taps.append(self._count)
        self.lags: list[float] = []
        self._rows: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self._nodes = nodes

    def _count(self, event: Any) -> None:
        if getattr(event, "probe", "") == "host":
            self.samples += 1

    async def measure(self, windows: int, seconds: float) -> dict[str, Any]:
        """Bring all sessions up, then windows of each kind in turn."""
        memory, began = _rss_kb(), time.process_time()
        watching = asyncio.ensure_future(self.engine.run())
        lag = asyncio.ensure_future(self._lag())
        while self.samples < 2 * self._nodes or len(self.engine.fleet.seen) < self._nodes:
            if watching.done():
                watching.result()
            await asyncio.sleep(0.1)
        bring_up = 1e3 * (time.process_time() - began) / self._nodes
        self.engine.fleet.tick()
        self.lags.clear()
        for _ in range(windows):
            for kind in KINDS:
                self._rows[kind].append(await self._window(kind, seconds))
        grown = _rss_kb() - memory
        for task in (lag, watching):
            task.cancel()
        await asyncio.gather(lag, watching, return_exceptions=True)
        cuts = statistics.quantiles(self.lags, n=100)
        return {
            **self._rows, "bring_up_ms": bring_up, "lag_p99_ms": cuts[98] * 1e3,
            "lag_p50_ms": cuts[49] * 1e3, "kb_per_node": grown / self._nodes,
        }  # fmt: skip

    async def _window(self, kind: str, seconds: float) -> float:
        """CPU ms per node-sample."""
        cpu, samples, until = time.process_time(), self.samples, time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(TICK_S, left))
            if kind == "judge":
                await self._judge(until)
            self.engine.fleet.take_dirty()
        return 1e3 * (time.process_time() - cpu) / (self.samples - samples)

    async def _judge(self, until: float) -> None:
        """Everybody, in slices as on the screen, so that the loop breathes."""
        took = SLICE_S
        while took >= SLICE_S and time.monotonic() < until:
            began = time.perf_counter()
            self.engine.fleet.tick(budget_s=SLICE_S)
            took = time.perf_counter() - began
            await asyncio.sleep(0)

    async def _lag(self) -> None:
        while True:
            due = time.perf_counter() + LAG_TIMER_S
            await asyncio.sleep(LAG_TIMER_S)
            self.lags.append(time.perf_counter() - due)


def _rss_kb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--client", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        client = Client(Path(args.client[0]), int(args.client[1]), args.nodes)
        print(json.dumps(asyncio.run(client.measure(args.windows, args.seconds))))
    else:
        print(json.dumps(run(args.nodes, args.windows, args.seconds), indent=1))


if __name__ == "__main__":
    main()
