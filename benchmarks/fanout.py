"""Fan-out over N loopback nodes: ours against clush and pdsh, interleaved, client CPU apart.

    python -m benchmarks.fanout --nodes 64 --runs 5            (root: it makes its own namespace)

One real sshd in a network namespace of its own answers on every 127.x.y.z, so each address is a
node. All contenders use the same key, the same ssh_config (curve25519) and a fan-out of 64. Client
CPU is that of the contender's process tree (getrusage of waited children); the servers are other
trees. Walls contain the servers' work on the same cores: compare ratios, not seconds.

Contenders:
  transport    SshTransport alone, running the same command as clush and pdsh
  gpuconsole   `gpuconsole --json` with a scripted agent that only says hello and ends
  agent        `gpuconsole --json` with the real agent: its start and its second of waiting for the
               counters are real nodes' work, here done N times by two cores
  clush, pdsh  as installed, `-f 64`
  clush_same   clush starting what gpuconsole's nodes start: the fair partner of `gpuconsole`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.children import CLI, environment
from inventory.node import Inventory, Node
from probes.bundle import AgentConfig, payload
from probes.transport import Exit, Failure, connections
from tests.ssh.agents import Agents
from tests.ssh.lab import Lab

ROOT = Path(__file__).parents[1]
INSIDE = "GPUCONSOLE_BENCH_NETNS"
FANOUT = 64
REAL_AGENTS_MAX = 64
"""More interpreters at once on the client's own two cores measure nothing but themselves."""


class NodeFarm:
    """N addresses served by one sshd. Use inside a network namespace; see `in_own_namespace`."""

    def __init__(self, count: int) -> None:
        """Start the server and write known_hosts and ssh_config for everybody."""
        self.lab = Lab()
        server = self.lab.serve("nodes", 1, everywhere=True, extra="MaxStartups 5000\nUsePAM no")
        block, port = self.lab.block, self.lab.port
        self.addresses = [f"127.{block}.{1 + i // 250}.{1 + i % 250}" for i in range(count)]
        lines = [f"[{address}]:{port} {server.public_key}" for address in self.addresses]
        self.known_hosts = self.lab.known_hosts(*lines)
        self.config = self.lab.ssh_config(
            f"Host *\n  User {self.lab.user}\n  Port {port}\n  BatchMode yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
            "  KexAlgorithms curve25519-sha256\n"
        )

    def inventory(self, python: str | None = None) -> Inventory:
        """All addresses as nodes; `python` stands for the nodes' interpreter."""
        nodes = (
            Node(name=a, port=self.lab.port, user=self.lab.user, python=python)
            for a in self.addresses
        )
        files = (str(self.known_hosts),)
        return Inventory(nodes=tuple(nodes), ssh_config=str(self.config), known_hosts=files)

    def inventory_file(self, python: str | None = None) -> Path:
        """The same as YAML for the command line."""
        settings = {
            "hosts": self.addresses, "user": self.lab.user, "port": self.lab.port,
            **({"python": python} if python else {}),
        }  # fmt: skip
        path = self.lab.folder / f"inventory-{'scripted' if python else 'real'}.yaml"
        path.write_text(
            json.dumps(
                {
                    "ssh": {"config": str(self.config), "known_hosts": [str(self.known_hosts)]},
                    "groups": {"bench": settings},
                }
            )
        )
        return path

    def close(self) -> None:
        """End the server, remove the account."""
        self.lab.close()


def in_own_namespace() -> None:
    """Run this program again inside a network namespace that has only `lo`; needs root."""
    if os.environ.get(INSIDE):
        return
    if os.geteuid() != 0:
        sys.exit("fanout: needs root for a network namespace of its own")
    script = 'ip link set lo up && exec "$@"'
    argv = ["unshare", "-n", "sh", "-c", script, "sh", sys.executable, "-m", "benchmarks.fanout"]
    os.chdir(ROOT)
    os.execvpe("unshare", [*argv, *sys.argv[1:]], {**os.environ, INSIDE: "1"})


class _Wait:
    """Receiver that only waits for the end."""

    def __init__(self) -> None:
        self.over: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def connecting(self) -> None:
        pass

    def data(self, chunk: bytes) -> None:
        pass

    def closed(self, how: Exit) -> None:
        self.over.set_result(how)


async def _transport_client(inventory: Inventory, command: str) -> int:
    """Run a command on every node over SshTransport; how many failed."""
    transport = connections(inventory, fanout=FANOUT)

    async def one(node: Node) -> bool:
        wait = _Wait()
        try:
            channel = await transport.start(node, command, wait, 60.0)
        except Failure as failure:
            print(node.name, failure, file=sys.stderr)
            return False
        how = await wait.over
        await channel.stop()
        return how.rc == 0

    done = await asyncio.gather(*map(one, inventory.nodes))
    await transport.close()
    return done.count(False)


def measure(argv: list[str], env: dict[str, str]) -> tuple[float, float]:
    """(wall s, client CPU s) of one run; a run that fails ends the benchmark."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        argv, check=False, env={**environment(), **env}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    wall_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 2, 3):  # gpuconsole: verdicts; clush: 0
        sys.exit(f"fanout: {argv[0]} ended with {done.returncode}: {done.stderr[-500:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, cpu_s


def contenders(farm: NodeFarm, command: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Name -> (argv, environment); programs that are not installed are left out."""
    agent = Agents(farm.lab).script("hello(caps=[]); end()")
    hosts = ",".join(farm.addresses)
    me = [sys.executable, "-m", "benchmarks.fanout", "--client", str(len(farm.addresses))]
    state = json.dumps([str(farm.config), str(farm.known_hosts), farm.lab.user, farm.lab.port,
                        farm.lab.block, command])  # fmt: skip
    found: dict[str, tuple[list[str], dict[str, str]]] = {
        "transport": ([*me, "--state", state], {}),
        "gpuconsole": ([*CLI, "--json", "-i", str(farm.inventory_file(agent))], {}),
        "agent": ([*CLI, "--json", "-i", str(farm.inventory_file()), "--timeout", "60"], {}),
    }
    if shutil.which("clush"):
        options = ["-o", f"-F {farm.config}", "-f", str(FANOUT), "-w", hosts]
        found["clush"] = (["clush", "-q", *options, command], {})
        found["clush_same"] = (["clush", "-q", *options, _same_work(farm, agent)], {})
    if shutil.which("pdsh"):
        env = {"PDSH_SSH_ARGS_APPEND": f"-F {farm.config}"}
        found["pdsh"] = (["pdsh", "-R", "ssh", "-f", str(FANOUT), "-w", hosts, command], env)
    return found


def _same_work(farm: NodeFarm, agent: str) -> str:
    """What a node does for `gpuconsole` with that scripted agent: two interpreter starts."""
    stdin = farm.lab.folder / "payload"
    stdin.write_bytes(payload(AgentConfig(mode="pass")))
    stdin.chmod(0o644)
    return f"{agent} -c sys.exit && exec {agent} -c run < {stdin}"


def report(
    results: dict[str, list[tuple[float, float]]], nodes: int
) -> dict[str, dict[str, float]]:
    """Medians per contender, and ratios to clush."""
    table: dict[str, dict[str, float]] = {}
    for name, runs in results.items():
        wall_s, cpu_s = (statistics.median(column) for column in zip(*runs, strict=True))
        table[name] = {"wall_s": wall_s, "cpu_ms_per_node": cpu_s / nodes * 1e3}
    if "clush" in table:
        for row in table.values():
            row["wall_to_clush"] = row["wall_s"] / table["clush"]["wall_s"]
            row["cpu_to_clush"] = row["cpu_ms_per_node"] / table["clush"]["cpu_ms_per_node"]
    return table


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description="fan-out against clush and pdsh")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--command", default="true")
    parser.add_argument("--only", help="comma list of contenders")
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--state", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        sys.exit(_client(args.client, json.loads(args.state)))
    in_own_namespace()
    farm = NodeFarm(args.nodes)
    try:
        chosen = contenders(farm, args.command)
        if args.nodes > REAL_AGENTS_MAX:
            del chosen["agent"]
        if args.only:
            chosen = {name: chosen[name] for name in args.only.split(",")}
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
        for _run in range(args.runs):
            for name, (argv, env) in chosen.items():
                results[name].append(measure(argv, env))
    finally:
        farm.close()
    print(
        json.dumps(
            {"nodes": args.nodes, "runs": args.runs, "medians": report(results, args.nodes)},
            indent=1,
        )
    )


def _client(count: int, state: list[str | int]) -> int:
    config, known_hosts, user, port, block, command = state
    names = [f"127.{block}.{1 + i // 250}.{1 + i % 250}" for i in range(count)]
    inventory = Inventory(
        nodes=tuple(Node(name=name, user=str(user), port=int(port)) for name in names),
        ssh_config=str(config), known_hosts=(str(known_hosts),),
    )  # fmt: skip
    return 2 if asyncio.run(_transport_client(inventory, str(command))) else 0


if __name__ == "__main__":
    main()
