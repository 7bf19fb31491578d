"""The torch_python of a simulated node: `PYTHON torch_tools.py DIR -c PROGRAM OPTIONS...`.

Answers the two programs that the agent runs under a site's torch. For a collective it runs that
very program, the launcher: nodes meet over real TCP, whoever is missing is missed. Only its ranks
are stand-ins, one process for all GPUs of a node; they tell each other what their nodes reach and
rank 0 prints the table. For single GPUs it prints what DIR/nccl.json says. No other Python program
runs here. Alone in one file: it is started with -I -S.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

VERSION = "2.7.1+cu128 (simulated)"
HALF_SPEED_BYTES = 12 << 20
"""Message size at which half of the final bandwidth is reached; plausible for 8 GPUs."""
LAUNCH_US = 35.0
ROW_S = 0.05
"""Pause between two rows, so that progress can be seen."""
PHASE_S = 0.3
"""Of a figure of single GPUs, and of the GEMM as long as NVML needs to be seen twice."""
GEMM_S = 2.5
MEET_S = 20.0
FACTORS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
"""Bus bandwidth over algorithm bandwidth, times (n-1)/n; sendrecv has 1."""
HEADER = """#
#                                                              out-of-place
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _told(node: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((node / "nccl.json").read_text())
    return found


def _gpus(node: Path) -> list[dict[str, Any]]:
    """GPUs that CUDA would list."""
    return [
        gpu for gpu in json.loads((node / "nvml.json").read_text())["gpus"] if not gpu.get("rc")
    ]


@contextlib.contextmanager
def _loaded(node: Path) -> Iterator[None]:
    """While it lasts the node's GPUs are busy: machine.py sees the mark."""
    mark = node / "testing"
    mark.write_text(str(os.getpid()))
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


# ---------------------------------------------------------------------- the launcher of ranks


def launch(node: Path, program: str, options: Sequence[str]) -> None:
    """Run the agent's launcher with one stand-in rank for all GPUs of this node."""
    words = list(options)
    gpus = words[words.index("--nproc") + 1]
    words[words.index("--nproc") + 1] = "1"
    run = f"runpy.run_path({__file__!r}, run_name='rank')['rank']({str(node)!r}, {gpus})"
    words[words.index("--worker") + 1] = f"import runpy; {run}"
    sys.argv = ["-c", *words]
    exec(compile(program, "launcher", "exec"), {"__name__": "__main__"})


def rank(directory: str, gpus: int) -> None:
    """All ranks of one node; RANK is the node's."""
    node = Path(directory)
    number, nodes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    mine = {**_told(node), "name": node.name, "rank": number, "ranks": gpus}
    rails = mine["wire_gb_s"]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    mine["wire_gb_s"] = rails[int(chosen)] if chosen.isdigit() else min(rails)
    _say(f"# engine torch-nccl torch {VERSION}")
    if mine["busbw_gb_s"] <= 0:
        _say(f"# rank-error {number} DistBackendError: NCCL error: unhandled cuda error")
        sys.exit(1)
    with _loaded(node):
        if number == 0:
            _lead(mine, nodes)
        else:
            _follow(mine)


def _port() -> tuple[str, int]:
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def _lead(mine: dict[str, Any], nodes: int) -> None:
    """Hear all other nodes, print, let them go."""
    everyone, files = [mine], []
    if nodes > 1:
        with socket.create_server(_port()) as server:
            server.settimeout(MEET_S)
            for _ in range(nodes - 1):
                connection, _ = server.accept()
                files.append(connection.makefile("rw"))
                everyone.append(json.loads(files[-1].readline()))
    everyone.sort(key=lambda one: int(one["rank"]))
    _table(everyone)
    for file in files:
        file.write("done\n")
        file.close()


def _follow(mine: dict[str, Any]) -> None:
    until = time.monotonic() + MEET_S
    while True:
        try:
            connection = socket.create_connection(_port(), 1.0)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    connection.settimeout(None)
    file = connection.makefile("rw")
    file.write(json.dumps(mine) + "\n")
    file.flush()
    if file.readline() != "done\n":
        sys.exit(1)


def _table(everyone: list[dict[str, Any]]) -> None:
    ask = _options()
    places = [(one["name"], local) for one in everyone for local in range(one["ranks"])]
    for number, (host, local) in enumerate(places):
        where = f"on {host:>10} device {local:2d} [0000:00:00] NVIDIA (simulated)"
        _say(f"#  Rank {number:2d} Group  0 Pid {os.getpid():6d} {where}")
    _say(HEADER)
    best = _reachable(everyone, len(places))
    noise = random.Random("".join(str(one["name"]) for one in everyone) + str(os.getpid()))
    size, reached, time_us = ask.b, [0.0], 0.0
    while size <= ask.e:
        time_us = _row(size, best * (1 + noise.gauss(0, 0.004)), len(places), ask.collective)
        reached.append(size / time_us / 1e3 * _factor(len(places), ask.collective))
        size *= max(2, ask.f)
    _say("# Out of bounds values : 0 OK")
    _say(f"# Avg bus bandwidth    : {sum(reached) / max(1, len(reached) - 1):.4f}")
    for number in range(len(places)):
        _say(f"# rank-time {number} {time_us * (1 + noise.gauss(0, 0.002)):.3f}")


def _reachable(everyone: list[dict[str, Any]], ranks: int) -> float:
    """Bus bandwidth of the slowest node; per-GPU wire rate = busbw * (k-1)/(n-1) of k nodes."""
    nodes = len(everyone)
    if nodes == 1:
        ring = os.environ.get("NCCL_ALGO", "").lower() == "ring"
        return float(everyone[0]["ring_gb_s" if ring else "busbw_gb_s"])
    wire = min(float(one["wire_gb_s"]) for one in everyone) * (ranks - 1) / (nodes - 1)
    inside = min(float(one["nodes_gb_s"]) for one in everyone)
    return wire if ranks == nodes else min(wire, inside)


def _factor(ranks: int, collective: str) -> float:
    return FACTORS[collective] * (ranks - 1) / ranks if collective in FACTORS else 1.0


def _row(size: int, busbw: float, ranks: int, collective: str) -> float:
    """Print one size; its time in us."""
    factor = _factor(ranks, collective) or 1.0
    algbw = busbw / factor * size / (size + HALF_SPEED_BYTES)
    time_us = LAUNCH_US + size / algbw / 1e3
    algbw = size / time_us / 1e3
    time.sleep(ROW_S)
    cell = f"{time_us:8.2f} {algbw:7.3f} {algbw * factor:7.3f} {0:6d}"
    _say(f"{size:12d} {size // 4:13d} {'float':>9} {'sum':>7} {-1:7d} {cell}")
    return time_us


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("-b", "-e", "-f", "-n", "-w"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("--gpu", action="store_true")
    return parser.parse_args()


# ---------------------------------------------------------------------- single GPUs


def single(node: Path, options: Sequence[str]) -> None:
    """The lines of the GPU test."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--what", default="")
    wanted = parser.parse_known_args(options)[0].what.split(",")
    _say(f"# engine torch-cuda torch {VERSION}")
    figures, gpus = _told(node)["gpus"], _gpus(node)
    for number, gpu in enumerate(gpus):
        _say(f"# gpu {number} {gpu['pci']} {gpu['name']}")
    with _loaded(node):
        for what in wanted:
            _say(f"# begin {what}")
            time.sleep(GEMM_S if what == "gemm_bf16" else PHASE_S)
            if what == "p2p":
                _pairs([figures[gpu["index"]] for gpu in gpus])
            else:
                for number, gpu in enumerate(gpus):
                    if what in figures[gpu["index"]]:
                        _say(f"# figure {number} {what} {figures[gpu['index']][what]:.6g}")
            _say(f"# end {what}")


def _pairs(figures: list[dict[str, float]]) -> None:
    for one, mine in enumerate(figures):
        for other, theirs in enumerate(figures):
            if one != other:
                _say(f"# pair {one} {other} {min(mine['p2p'], theirs['p2p']):.6g} 1")


def main(argv: Sequence[str]) -> None:
    """What argv asks: DIR -c PROGRAM OPTIONS."""
    node, flag, program, *options = Path(argv[1]), *argv[2:]
    if flag != "-c":
        sys.exit("this node is simulated: its torch runs the agent's tests only")
    if "--nproc" in options:
        launch(node, program, options)
    else:
        single(node, options)


if __name__ == "__main__":
    main(sys.argv)
