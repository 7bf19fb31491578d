"""All benchmarks, one command, one table: figure, target, reached.

    python -m benchmarks [--quick] [--only NAME,...] [--json FILE]

Contenders of one figure alternate within one run. Fan-out needs root (its own network namespace),
clush and pdsh; what cannot run says so and is left out. Quick takes about four minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.children import ROOT, environment
from benchmarks.figure import Figure, figure, table

Told = dict[str, Any]


def run(module: str, *arguments: str) -> Told:
    """One benchmark's JSON. RuntimeError with its last words when it fails."""
    argv = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, cwd=ROOT, env=environment(),
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{module}: {(done.stderr or done.stdout).strip()[-300:]}")
    told: Told = json.loads(done.stdout)
    return told


def startup(quick: bool) -> list[Figure]:
    """Starting the program."""
    told = run("startup", "--runs", "5" if quick else "15")
    how = "wall of a child process, byte code cached, medians"
    return [
        figure("start-up of --help", [told["help"]], "ms", how, 100),
        figure("start-up of --json (imports only)", [told["json_imports"]], "ms", how, 250),
        figure(
            "--json of one local node, whole", [told["json_local"]], "ms", f"{how}; 50 ms window"
        ),
        figure(
            "first paint",
            [told["first_paint"]],
            "ms",
            "start of the console on one local node to that node's name in a pty of 80x24",
            450,
        ),
        figure("python itself", [told["python"]], "ms", how),
    ]


def agent(quick: bool) -> list[Figure]:
    """The agent on a node with 8 simulated GPUs and 9 RDMA adapters at default intervals."""
    told = run("agent_cost", "--seconds", "30" if quick else "120")
    mine = told[sys.executable]
    how = "/proc of the agent process; the simulated library's own CPU is in it"
    return [
        figure("agent CPU, 8 GPUs", [mine["simulated_8_gpus"]["cpu_percent"]], "%", how, 0.3),
        figure("agent RSS, 8 GPUs", [mine["simulated_8_gpus"]["rss_mb"]], "MB", how, 30),
        figure("agent start to hello", [mine["start_to_hello_ms"]], "ms", "loader to first frame"),
        figure("  CPU of it", [mine["start_to_hello_cpu_ms"]], "ms", "all threads, schedstat"),
        figure("agent, bytes a minute", [mine["simulated_8_gpus"]["bytes_per_min"]], "B", how),
        figure("agent, payload", [told["payload_bytes"]], "B", "compressed, what stdin carries"),
    ]


def streaming(quick: bool) -> list[Figure]:
    """Held sessions."""
    nodes = "300" if quick else "1000"
    told = run("streaming", "--nodes", nodes, "--windows", "3" if quick else "5")
    how = f"{nodes} sessions x 8 GPUs at 1 Hz over SSH in the process; process_time"
    return [
        figure("streaming, client CPU per node-sample", told["collect"], "ms", how, 0.25),
        figure("  with every node judged each second", told["judge"], "ms", how),
        figure("  bring-up, client CPU per node", [told["bring_up_ms"]], "ms", how),
    ]


def judging(quick: bool) -> list[Figure]:
    """After SSH, per node."""
    told = run("judging", "--runs", "5" if quick else "15")
    names = {
        "fast": "taking in a fast tick (gpu, gpm, host)", "slow": "taking in all slow probes once",
        "judge": "judging one node after it", "judge_all": "judging one node after those",
        "peers": "counting the role", "compare": "peer comparison",
    }  # fmt: skip
    how = "process_time per node, frames of a recorded agent with 8 GPUs; no SSH"
    return [figure(f"{name}, per node", told[key], "us", how) for key, name in names.items()]


def memory(quick: bool) -> list[Figure]:
    """Remembering the fleet."""
    told = run("memory", *(("--nodes", "1000", "--seconds", "20") if quick else ()))
    how = "8 GPUs a node, one answer each second, thread_time; rounds with and without in turn"
    return [
        figure("taking in a sample with the memory / without", [told["ratio"]], "ratio", how, 1.25),
        figure("  of it, a sample that is not kept", [told["skipped_us"]], "us", how, 1),
        figure("the memory's thread, of one core", [100 * told["writer_share"]], "%", how),
        figure("reading all baselines", [told["own_ms"]], "ms", "process_time, off the loop"),
    ]


def screen(quick: bool) -> list[Figure]:
    """Key to paint in a real pty at 160x50."""
    told = run(
        "key_to_paint", "--keys", "60" if quick else "100", "--rounds", "2" if quick else "3"
    )
    how = "1,000 nodes x 8 GPUs, every reading changes each second; pty 160x50"
    grid = told["grid"]
    return [
        figure("key-to-paint p99", [grid["p99_ms"]], "ms", how, 30),
        figure("  of it inside the console", [grid["inside_p99_ms"]], "ms", f"{how}; inside.py"),
        figure("  p99 against DataTable", [told["p99_ratio_grid_to_table"]], "ratio", how, 0.25),
        figure("  drawing, of one core", [told["drawing_cpu_percent"]], "%", how, 15),
        figure("  bytes per tick", [grid["bytes_per_tick"]], "B", f"{how}; no keys", 8000),
        figure("  bytes of another view", [grid["view_bytes"]], "B", how),
    ]


def slow_line(quick: bool) -> list[Figure]:
    """The demo's story over 256 kbit/s."""
    told = run("slow_line", "--minutes", "1.5" if quick else "10")
    how = "`gpuconsole --demo` in a pty, a key every 5 s; share of 256 kbit/s"
    return [
        figure(f"line used at {one['size']}", [one["line_percent"]], "%", how, 25)
        for one in told["sizes"]
    ]


def soak(quick: bool) -> list[Figure]:
    """A day of trouble in short."""
    nodes, hours = ("8", "6") if quick else ("64", "24")
    told = run("soak", "--nodes", nodes, "--hours", hours)
    how = f"{hours} simulated hours of {nodes} nodes in trouble, a key each 10 s; after 2 h / end"
    first, last = told["rss_mb"][0], told["rss_mb"][-1]
    objects = told["objects"][-1] / told["objects"][0]
    return [
        figure("RSS at the end / after two hours", [last / first], "ratio", how, 1.1),
        figure("  live objects, the same", [objects], "ratio", how, 1.1),
    ]


def fanout(quick: bool) -> list[Figure]:
    """Against clush and pdsh on the same sshd."""
    found: list[Figure] = []
    for nodes in (64, 256):
        told = run("fanout", "--nodes", str(nodes), "--runs", "3" if quick else "5")["medians"]
        how = f"{nodes} addresses of one sshd, curve25519, fan-out 64, interleaved"
        for name in ("transport", "gpuconsole"):
            row = told[name]
            told_as = f"{name} / clush, {nodes} nodes"
            found.append(figure(f"wall, {told_as}", [row["wall_to_clush"]], "ratio", how, 0.85))
            found.append(
                figure(f"client CPU, {told_as}", [row["cpu_to_clush"]], "ratio", how, 0.40)
            )
        wall = told["transport"]["wall_s"] / told["pdsh"]["wall_s"]
        found.append(figure(f"wall, transport / pdsh, {nodes} nodes", [wall], "ratio", how, 0.85))
    return found


ALL: dict[str, Callable[[bool], list[Figure]]] = {
    "startup": startup, "agent": agent, "streaming": streaming, "judging": judging,
    "memory": memory, "screen": screen, "slow_line": slow_line, "soak": soak, "fanout": fanout,
}  # fmt: skip


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="all benchmarks")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--only", help=f"comma list of {', '.join(ALL)}")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    found: list[Figure] = []
    for name in (options.only or ",".join(ALL)).split(","):
        try:
            found += ALL[name](options.quick)
        except (RuntimeError, KeyError) as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
    print(table(found))
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))


if __name__ == "__main__":
    main()
