"""The orders that one run sends to the agents of its nodes. Pure.

Several nodes are one torch job: each agent starts torch's launcher for its own ranks, and all meet
at the first node's address. nccl-tests on several nodes needs MPI: that takes srun or kubectl.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from console.active.ask import Asked
from console.active.results import Group, Level
from inventory.node import Node

Order: TypeAlias = dict[str, object]

PORTS = (20_000, 29_999)
"""For the meeting point: below what Linux hands out to clients (32768 and up)."""
IDS = 8
"""Names a node's jobs take in turn: one runs at a time, and what a session remembers is bounded."""
TOGETHER = (Level.PAIRS, Level.RAILS, Level.CLUSTER)


def lacking(node: Node, asked: Asked) -> str:
    """What the inventory would have to say for this node to be tested; "" for nothing."""
    single = asked.level is Level.NODE
    if asked.level is Level.GPU or asked.engine == "torch" or not single:
        if asked.level is not Level.GPU and asked.engine == "nccl-tests":
            return "nccl-tests on several nodes needs MPI: use --launch srun or kubectl"
        if node.torch_python:
            return ""
        more = "" if asked.level is Level.GPU else "; nccl-tests alone needs --launch srun here"
        return f"torch_python is not set for group {node.group}{more}"
    if asked.engine == "nccl-tests":
        return "" if node.nccl_tests else f"nccl_tests is not set for group {node.group}"
    if node.nccl_tests or node.torch_python:
        return ""
    return f"neither nccl_tests nor torch_python is set for group {node.group}"


def orders(
    group: Group, nodes: Sequence[Node], asked: Asked, gpus: Mapping[str, int], port: int, name: str
) -> dict[str, Order]:
    """Node -> its order. `nodes` are those of the group in its order, `gpus` how many each has."""
    what = "gpu_test" if asked.level is Level.GPU else "nccl"
    token = secrets.token_hex(8)
    found: dict[str, Order] = {}
    for rank, node in enumerate(nodes):
        args: Order = {"force": asked.force, "timeout_s": asked.run_s, **_program(node, asked)}
        if what == "nccl":
            args |= _sizes(asked)
            args["debug"] = gpus.get(node.name, 0) > 0
            if len(nodes) > 1:
                args |= _meeting(nodes, rank, port, token)
                if not any(gpus.values()):
                    args["gpus"] = 1  # two ranks without GPUs would measure the loopback, too
            elif gpus.get(node.name, 0) > 1:
                args["ring"] = True
            if group.rail is not None:
                args["local_gpu"] = group.rail
        found[node.name] = {"op": "run", "id": name, "what": what, "args": args}
    return found


def _program(node: Node, asked: Asked) -> Order:
    args: Order = {}
    binary = asked.level is Level.NODE and asked.engine != "torch"
    torch = asked.level is not Level.NODE or asked.engine != "nccl-tests"
    if node.nccl_tests and binary:
        args["binary"] = node.nccl_tests
    if node.torch_python and torch:
        args["torch_python"] = node.torch_python
    if node.test_env:
        args["env"] = dict(node.test_env)
    if node.test_command:
        args["command"] = list(node.test_command)
    return args


def _sizes(asked: Asked) -> Order:
    sizes = {"min_bytes": asked.min_bytes, "max_bytes": asked.max_bytes}
    return {name: value for name, value in sizes.items() if value is not None}


def _meeting(nodes: Sequence[Node], rank: int, port: int, token: str) -> Order:
    """`token` keeps a stranger from joining, and a late rank from the wrong run."""
    return {
        "token": token,
        "peers": [node.name for node in nodes],
        "nnodes": len(nodes),
        "node_rank": rank,
        "master_addr": nodes[0].target,
        "master_port": port,
    }


def free_port(taken: set[int]) -> int:
    """A port that no other run of ours meets at; whether it is free there shows at the start."""
    while True:
        port = random.randint(*PORTS)
        if port not in taken:
            return port


def port_taken(error: str) -> bool:
    """Whether a run failed because something listens at its meeting point already."""
    said = error.lower()
    return "address already in use" in said or "eaddrinuse" in said
