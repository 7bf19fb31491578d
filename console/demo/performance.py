"""What active tests of a simulated node give: healthy figures of its hardware, less by its faults.

DIR/nccl.json holds it for the stand-ins (nccl_tools.py, torch_tools.py). Pure in seed and time.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec import Struct

from console.demo.faults import State
from console.demo.load import HW_THERMAL_BIT, POWER_CAP_BIT
from console.demo.story import Story

NOISE = 0.012
"""Spread of healthy cards; science: below 5 %."""


class Level(Struct, frozen=True):
    """What a healthy node of 8 reaches; sources in probes/data/hardware.yaml where there are."""

    bf16_tflops: float
    fp8_tflops: float | None
    hbm_gb_s: float
    host_gb_s: float
    peer_gb_s: float
    nvls_gb_s: float
    ring_gb_s: float
    nodes_gb_s: float
    """Bus bandwidth that an all-reduce over several nodes does not exceed."""
    wire_gb_s: float
    """Per GPU between nodes: 73 to 87 % of the adapter's rate."""


LEVELS = {
    "h100": Level(731, 1310, 2790, 55.1, 391, 478, 365, 392, 43),
    "h200": Level(738, 1340, 4070, 55.3, 396, 473, 366, 392, 43),
    "a100": Level(262, None, 1640, 24.6, 262, 235, 235, 190, 21),
}

NET = {"ib_flap": 0.3, "ib_slow": 0.45, "ib_down": 0.25}
"""Share of the wire that a node with this fault has left: the slowest rail sets the pace."""
HOT = 0.66
"""Share of the clock in thermal slowdown; load.py takes back up to 36 %."""


def performance(story: Story, node: str, t: float) -> dict[str, Any]:
    """Figures of every GPU and of the node at time t, as the stand-ins read them."""
    level = LEVELS[story.scenario.hardware]
    rng = random.Random(f"tests/{story.scenario.seed}/{node}")
    kinds = {fault.kind for fault in story.present(node, t)}
    local = 0.82 if kinds & {"thermal", "power_brake"} else 1.0
    slow_link = 0.31 if "nvlink_down" in kinds else 1.0
    broken = bool(kinds & {"gpu_lost", "driver_hang"})
    noise = 1 + rng.gauss(0, NOISE / 3)
    return {
        "busbw_gb_s": 0.0 if broken else level.nvls_gb_s * local * slow_link,
        "ring_gb_s": 0.0 if broken else level.ring_gb_s * local * slow_link,
        "nodes_gb_s": level.nodes_gb_s * (0.88 if local < 1 else slow_link) * noise,
        "wire_gb_s": [level.wire_gb_s * noise * _net(story, node, t, rail) for rail in range(8)],
        "gpus": [_gpu(story, node, index, t, level, rng) for index in range(story.hardware.gpus)],
        "nccl_tests": "2.17.6",
    }


def _net(story: Story, node: str, t: float, rail: int) -> float:
    """Share of the wire that the adapter of this rail has left."""
    port = story.hardware.ports[rail]
    return min(
        [1.0, *(NET[f.kind] for f in story.present(node, t) if f.kind in NET and f.port == port)]
    )


def _gpu(
    story: Story, node: str, index: int, t: float, level: Level, rng: random.Random
) -> dict[str, float]:
    near = 1 + rng.gauss(0, NOISE / 2)
    mine = [f for f in story.present(node, t) if f.gpu in (index, None)]
    kinds = {fault.kind for fault in mine}
    clock = HOT if kinds & {"thermal", "power_brake"} else 1.0
    link = 0.94 if "nvlink_down" in kinds else 1.0
    found = {
        "gemm_bf16": level.bf16_tflops * clock * near,
        "hbm_copy": level.hbm_gb_s * (1 + rng.gauss(0, NOISE / 6)),
        "h2d": level.host_gb_s * (0.5 if "pcie_width" in kinds else 1.0),
        "d2h": level.host_gb_s * (0.49 if "pcie_width" in kinds else 0.985),
        "p2p": level.peer_gb_s * link,
    }
    if level.fp8_tflops is not None:
        found["gemm_fp8"] = level.fp8_tflops * clock * near
    return {name: round(value, 2) for name, value in found.items()}


def under_test(state: State, story: Story, node: str, t: float) -> State:
    """The driver's state while a test loads all GPUs."""
    hardware = story.hardware
    hot = {f.gpu for f in story.present(node, t, "thermal")}
    for gpu in state["gpus"]:
        slow = gpu["index"] in hot
        gpu.update(
            util=99, power_w=hardware.tdp_w * (0.74 if slow else 0.985),
            sm_mhz=round(hardware.sm_load_mhz * (HOT if slow else 0.95)),
            temp=hardware.throttle_c if slow else 61, pstate=0,
            step=None, reasons=POWER_CAP_BIT | (HW_THERMAL_BIT if slow else 0),
            pcie=[hardware.pcie_gen, *gpu["pcie"][1:]],
        )  # fmt: skip
    return state
