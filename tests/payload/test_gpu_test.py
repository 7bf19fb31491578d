"""The GPU test on a torch without arithmetic: one GPU's trouble is that GPU's alone."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from inventory.node import Node
from probes.node import gpu_worker, order
from tests.payload.rig import AgentProcess, Frame, config

FAKE = Path(__file__).parent / "fake_torch.py"
SHIM = Path(__file__).parents[2] / "console" / "demo" / "nvml" / "shim.py"
SLOTS = tuple(f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d"))


def ended(frame: Frame) -> bool:
    return frame["k"] == "job" and frame["state"] in ("done", "failed", "refused")


def measured(
    tmp_path: Path, gpus: int, trouble: str = "", listed: int = 0, **args: Any
) -> list[Frame]:
    """What an agent with a simulated NVML says about the test."""
    states = [{"pci": slot, "index": at, "power_w": 650.0, "sm_mhz": 1700, "reasons": 4}
              for at, slot in enumerate(SLOTS[: listed or gpus])]  # fmt: skip
    (tmp_path / "nvml.json").write_text(json.dumps({"gpus": states}))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "torch.py").write_text(FAKE.read_text())
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {SHIM} {tmp_path} "$@"\n')
    python.chmod(0o755)
    env = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "site"),
        "FAKE_GPUS": str(gpus),
        "FAKE_TROUBLE": trouble,
    }
    node = Node(name="n", python=str(python))
    every = {"torch_python": sys.executable, "seconds": 0.05, "timeout_s": 60, **args}
    with AgentProcess(config("agent"), node=node, env=env) as agent:
        agent.order(op="run", id="t", what="gpu_test", args=every)
        return agent.collect(lambda found: any(map(ended, found)))


def samples(said: list[Frame]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for frame in said:
        if frame["k"] == "s" and frame["p"] == "gpu_test":
            found.update(frame["d"])
    return found


def test_every_gpu_and_pair_has_its_figures(tmp_path: Path) -> None:
    told = samples(measured(tmp_path, 2))
    summary = told.pop("summary")
    assert (summary["ok"], summary["engine"], summary["bad"]) == (True, "torch-cuda", 0)
    gpus = {device: one for device, one in told.items() if ">" not in device}
    assert sorted(gpus) == sorted(SLOTS[:2]), "CUDA tells no address here: by the order of the bus"
    for one in gpus.values():
        for figure in ("gemm_bf16_tflops", "hbm_copy_gb_s", "h2d_gb_s", "d2h_gb_s"):
            assert one[figure] > 0
        assert "gemm_fp8_tflops" not in one, "what torch cannot do is absent, no failure"
        assert "error" not in one
    assert {device for device in told if ">" in device} == {
        f"{SLOTS[0]}>{SLOTS[1]}", f"{SLOTS[1]}>{SLOTS[0]}",
    }  # fmt: skip


def test_a_gpu_that_dies_hides_no_other(tmp_path: Path) -> None:
    said = measured(tmp_path, 4, "1:die 2:oom", what=["gemm_bf16", "hbm_copy", "p2p"])
    told = samples(said)
    assert told["summary"]["ok"] is True
    assert told["summary"]["bad"] == 2
    assert "ended with status 7" in told[SLOTS[1]]["error"]
    assert "out of memory" in told[SLOTS[2]]["error"]
    assert all(told[SLOTS[at]]["gemm_bf16_tflops"] > 0 for at in (0, 3))
    assert next(filter(ended, said))["text"].endswith("trouble on 2 GPUs")


def test_gpus_that_torch_does_not_see_are_named(tmp_path: Path) -> None:
    said = measured(tmp_path, 2, listed=3, what=["gemm_bf16"])
    assert samples(said)["summary"]["bad"] == 1


def test_a_torch_that_sees_no_gpu_is_no_figure_of_a_cpu(tmp_path: Path) -> None:
    said = measured(tmp_path, 0, listed=2)
    over = next(filter(ended, said))
    assert over["state"] == "failed"
    assert over["text"] == "torch 2.9.9+fake sees no GPU (CUDA none: a CPU build)"
    assert list(samples(said)) == ["summary"]


@pytest.mark.parametrize("count", [2, 8, 10, 16, 24])
def test_pairs_are_all_or_a_ring_and_never_too_many(count: int) -> None:
    pairs = gpu_worker.chosen(list(range(count)))
    assert len(pairs) <= gpu_worker.PAIRS_MOST
    assert len(set(pairs)) == len(pairs)
    assert {a for a, _ in pairs} == {b for _, b in pairs} == set(range(count))
    assert len(pairs) == count * (count - 1) or count > 10


def test_a_program_carries_the_modules_that_it_imports() -> None:
    from probes.node import torch_place

    source = order.program(torch_place, gpu_worker)
    namespace: dict[str, Any] = {"__name__": "tried"}
    before = sys.modules.get("probes.node.torch_place")
    try:
        exec(compile(source, "program", "exec"), namespace)
    finally:
        if before is not None:
            sys.modules["probes.node.torch_place"] = before
    assert namespace["pci_address"].__module__ == "probes.node.torch_place"
