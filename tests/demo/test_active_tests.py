"""All levels of active tests on the embedded cluster: real orders, invented figures."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from console.demo.cluster import DemoCluster
from console.demo.performance import performance
from console.demo.scenario import Fault, Scenario, load
from console.demo.story import Story
from tests.demo.test_cluster import DEADLINE_S, _agent, frames

ENDED = {"done", "failed", "refused"}
SIZES = {"min_bytes": 1 << 28, "max_bytes": 1 << 30, "factor": 4}


def scenario(*faults: Fault, count: int = 3) -> Scenario:
    names = tuple(f"d{number}" for number in range(1, count + 1))
    return Scenario(name="test", seed=4, nodes=names, hardware="h100", faults=faults)


async def ordered(demo: DemoCluster, name: str, what: str, **args: Any) -> list[dict[str, Any]]:
    """What one node's agent says about a test, to its end."""
    node = next(n for n in demo.inventory.nodes if n.name == name)
    args = {"torch_python": node.torch_python, "timeout_s": 60, **args}
    order = {"op": "run", "id": "t", "what": what, "args": args}
    said: list[dict[str, Any]] = []
    connection, process, config = await _agent(demo, name)
    async with asyncio.timeout(DEADLINE_S * 2), connection:
        process.stdin.write(json.dumps(order).encode() + b"\n")
        while not any(f["k"] == "job" and f["state"] in ENDED for f in said):
            line = await process.stdout.readline()
            assert line, said
            said += frames(line, config.marker)
        process.stdin.write_eof()
    return [f for f in said if f["k"] == "job" or f.get("p") == what]


def values(said: list[dict[str, Any]], device: str = "summary") -> dict[str, Any]:
    return dict([f["d"][device] for f in said if device in f.get("d", {})][-1])


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def together(demo: DemoCluster, *names: str, here: int = 0, **args: Any) -> Any:
    """One all-reduce over these nodes; what each agent said. `here`: how many of them come."""
    meet = {"master_addr": "127.0.0.1", "master_port": port(), "nnodes": len(names), **SIZES}
    orders = [
        ordered(demo, name, "nccl", node_rank=rank, peers=list(names), **meet, **args)
        for rank, name in enumerate(names[: here or len(names)])
    ]
    return await asyncio.gather(*orders)


async def test_three_nodes_meet_and_the_slow_one_holds_them_back() -> None:
    flap = Fault(node="d3", kind="ib_flap", port="mlx5_3/1")
    async with DemoCluster(scenario=scenario(flap)) as demo:
        good, _ = await together(demo, "d1", "d2", debug=True)
        bad, _ = await together(demo, "d1", "d3")
        rail, _ = await together(demo, "d1", "d3", local_gpu=2)
    assert (values(good)["engine"], values(good).get("ranks")) == ("torch-nccl", 16), good
    assert values(good)["busbw_largest_gb_s"] == pytest.approx(390, rel=0.05)
    assert values(bad)["busbw_largest_gb_s"] < 0.6 * values(good)["busbw_largest_gb_s"]
    assert values(rail)["ranks"] == 2
    assert values(rail)["busbw_largest_gb_s"] == pytest.approx(43, rel=0.06), "another rail flaps"
    (ranks,) = [f["r"] for f in good if f.get("on") == "ranks"]
    assert [(r["rank"], r["host"], r["local_rank"]) for r in ranks][7:9] == [
        (7, "d1", 7), (8, "d2", 0),
    ]  # fmt: skip


async def test_a_node_that_does_not_come_is_named_by_all_who_did() -> None:
    async with DemoCluster(scenario=scenario()) as demo:
        said = await together(demo, "d1", "d2", "d3", here=2, join_s=10)
    for one in said:
        assert values(one)["ok"] is False
        assert "d3 never came within 10 s" in values(one)["error"]


async def test_single_gpus_show_the_hot_one_and_how_it_ran() -> None:
    hot = Fault(node="d1", kind="thermal", gpu=5)
    async with DemoCluster(scenario=scenario(hot, count=1)) as demo:
        said = await ordered(demo, "d1", "gpu_test")
    gpus = {one["index"]: one for f in said for one in f.get("d", {}).values() if "index" in one}
    assert sorted(gpus) == list(range(8))
    rates = {index: one["gemm_bf16_tflops"] for index, one in gpus.items()}
    assert rates[5] < 0.75 * min(rate for index, rate in rates.items() if index != 5)
    assert gpus[5]["reasons"] & 0x40
    assert gpus[5]["sm_clock_mhz"] < gpus[4]["sm_clock_mhz"]
    assert gpus[4]["power_w"] > 600
    pairs = [device for f in said for device in f.get("d", {}) if ">" in device]
    assert len(pairs) == 56
    assert values(said)["engine"] == "torch-cuda"


async def test_the_node_level_compares_with_a_ring() -> None:
    async with DemoCluster(scenario=scenario(count=1)) as demo:
        binary = next(iter(demo.inventory.nodes)).nccl_tests
        said = await ordered(demo, "d1", "nccl", binary=binary, ring=True, debug=True)
    assert values(said)["busbw_largest_gb_s"] > 1.2 * values(said, "ring")["busbw_largest_gb_s"]
    assert values(said, "clues") == {"id": "t", "count": 0}


def test_figures_follow_the_story() -> None:
    story = Story(load())
    figures = {name: performance(story, name, 1.0) for name in story.scenario.nodes}
    assert (
        figures["gpu003"]["gpus"][5]["gemm_bf16"] < 0.7 * figures["gpu003"]["gpus"][4]["gemm_bf16"]
    )
    assert min(figures["gpu008"]["wire_gb_s"]) < 0.4 * min(figures["gpu001"]["wire_gb_s"])
    assert figures["gpu005"]["busbw_gb_s"] == 0
    assert figures == {name: performance(story, name, 1.0) for name in figures}, "seeded"
