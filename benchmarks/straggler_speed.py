"""Time of one peer comparison over a synthetic fleet; no node, no network.

    python -m benchmarks.straggler_speed --nodes 4000 --runs 5

Every node has 8 loaded GPUs with their processes; 16 nodes share a job; one GPU in 500 throttles.
Prints seconds of wall and of CPU time for each run, and the best of them.
"""

from __future__ import annotations

import argparse
import random
import time

from inventory.node import Node
from probes.event import NodeState, NodeStatus, Row, Sample, Scalar
from probes.facts import NodeFacts
from probes.rules import load_rules
from probes.straggler import compare

NOW = 1_800_000_000.0
GPUS = 8
NODES_PER_JOB = 16


def node(number: int, rng: random.Random) -> NodeFacts:
    """Facts of one busy node."""
    name = f"gpu{number:05}"
    facts = NodeFacts(Node(name=name))
    facts.apply(NodeStatus(node=name, at=NOW, state=NodeState.UP))
    rows: list[Row] = []
    for index in range(GPUS):
        device = f"0000:{index + 16:02x}:00.0"
        slow = rng.random() < 1 / 500
        rows.append({"gpu": device, "pid": 1000 + index, "job": str(number // NODES_PER_JOB)})
        values: dict[str, Scalar] = {
            "index": index, "util_percent": 98, "temp_c": 93 if slow else round(rng.gauss(60, 2)),
            "power_w": round(rng.gauss(420 if slow else 660, 6), 1), "power_limit_w": 700.0,
            "sm_clock_mhz": round(rng.gauss(1230 if slow else 1755, 15)),
            "sm_clock_max_mhz": 1980, "mem_clock_mhz": 2619, "mem_clock_max_mhz": 2619,
            "reasons": 0x48 if slow else 0x4,
        }  # fmt: skip
        inventory: dict[str, Scalar] = {
            "pci_device_id": "2330", "pci_subsystem_id": "16c110de", "mig_mode": False,
        }  # fmt: skip
        gpm: dict[str, Scalar] = {
            "tensor_percent": 45.0, "sm_util_percent": 90.0, "dram_percent": 40.0,
            "nvlink_rx_bytes_per_s": 2e10, "nvlink_tx_bytes_per_s": 2e10,
        }  # fmt: skip
        facts.apply(Sample(node=name, probe="gpu", device=device, at=NOW, values=values))
        facts.apply(Sample(node=name, probe="gpm", device=device, at=NOW, values=gpm))
        facts.apply(Sample(node=name, probe="inventory", device=device, at=NOW, values=inventory))
        for probe in ("ecc", "pcie", "nvlink", "infiniband"):
            facts.apply(Sample(node=name, probe=probe, device=device, at=NOW, values={}))
    facts.apply(Sample(node=name, probe="processes", at=NOW, rows=rows))
    return facts


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rng = random.Random(7)
    fleet = [node(number, rng) for number in range(options.nodes)]
    rules = load_rules()
    seconds = []
    for run in range(options.runs):
        started, used = time.perf_counter(), time.process_time()
        found = compare(fleet, rules, NOW)
        seconds.append(time.perf_counter() - started)
        cpu = time.process_time() - used
        print(f"run {run + 1}: {seconds[-1]:.3f} s wall, {cpu:.3f} s CPU, {len(found)} findings")
    print(
        f"best of {options.runs}: {min(seconds):.3f} s wall for {options.nodes} nodes x {GPUS} GPUs"
    )


if __name__ == "__main__":
    main()
