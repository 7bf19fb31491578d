"""Pods get what an agent would set: the figures of both are to be comparable."""

from __future__ import annotations

from typing import Any

import pytest

from console.active.ask import Asked
from console.active.kube_manifest import manifest
from console.active.results import Group, Level
from inventory.node import Node
from probes.node import order

PAIR = ("n1", "n2")


def made(engine: str, rail: int | None = None, count: int = 2) -> list[dict[str, Any]]:
    names = PAIR[:count]
    nodes = [
        Node(name=n, group="g", torch_python="python3", nccl_tests="/opt/all_reduce_perf",
             test_image="lab/nccl:1", test_env={"NCCL_IB_HCA": "mlx5"})
        for n in names
    ]  # fmt: skip
    level = Level.RAILS if rail is not None else Level.PAIRS if count == 2 else Level.NODE
    asked = Asked(nodes=names, level=level, engine=engine)
    group = Group(nodes=names, rail=rail)
    found = manifest(group, nodes, asked, dict.fromkeys(names, 8), "gpuconsole-x", 20_000)
    return list(found["items"])


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container["env"]}


def containers(item: dict[str, Any]) -> list[dict[str, Any]]:
    if item["kind"] == "Job":
        return list(item["spec"]["template"]["spec"]["containers"])
    replicas = item["spec"]["mpiReplicaSpecs"].values()
    return [one for r in replicas for one in r["template"]["spec"]["containers"]]


@pytest.mark.parametrize("engine", ["torch", "nccl-tests"])
@pytest.mark.parametrize("count", [1, 2])
def test_every_container_has_the_environment_of_an_agents_test(engine: str, count: int) -> None:
    wanted = {**order.quiet(), "NCCL_IB_HCA": "mlx5", "TMPDIR": "/dev/shm"}
    for item in made(engine, count=count):
        for container in containers(item):
            assert environment(container) == wanted


def test_a_rail_reaches_the_ranks_that_mpirun_starts() -> None:
    (job,) = made("nccl-tests", rail=3)
    launcher = containers(job)[0]
    assert environment(launcher)["CUDA_VISIBLE_DEVICES"] == "3"
    words = launcher["command"]
    passed = {words[i + 1] for i, word in enumerate(words) if word == "-x"}
    assert passed == set(environment(launcher)), "mpirun hands on what it is told to"
