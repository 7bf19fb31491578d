"""The active test as a job of the agent: binary, torch, refusal, cancel, deadline."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from inventory.node import Node
from probes.node.process_tree import descendants
from tests.payload.rig import AgentProcess, Frame, config, gone, kind, until

STAND_IN = Path(__file__).parent / "all_reduce_perf"
SHIM = Path(__file__).parents[2] / "console" / "demo" / "nvml" / "shim.py"
SIZES = {"min_bytes": 1 << 20, "max_bytes": 1 << 24, "factor": 4}


@pytest.fixture
def binary(tmp_path: Path) -> str:
    """The stand-in under this interpreter, at a path with a blank."""
    path = tmp_path / "nccl tests"
    path.write_text(STAND_IN.read_text().replace("/usr/bin/env python3", sys.executable, 1))
    path.chmod(0o755)
    return str(path)


def agent(python: str | None = None, **env: str) -> AgentProcess:
    """An agent without probes on this machine."""
    return AgentProcess(config("agent"), python=python, env={**os.environ, **env})


def ended(frame: Frame) -> bool:
    """Whether a job is over."""
    return frame["k"] == "job" and frame["state"] in ("done", "failed", "refused")


def summary(frames: list[Frame]) -> dict[str, Any]:
    """The values of the last sample of the test."""
    found = [f["d"]["summary"] for f in frames if f["k"] == "s" and "summary" in f["d"]]
    return dict(found[-1])


def test_a_healthy_run_streams_rows_then_a_summary(node_python: str, binary: str) -> None:
    with agent(node_python) as node:
        args = {"binary": binary, "gpus": 8, **SIZES}
        node.order(op="run", id="t1", what="nccl", args=args)
        said = node.collect(lambda found: any(map(ended, found)))
    states = [f["state"] for f in said if f["k"] == "job"]
    assert states[0] == "started"
    assert states[-1] == "done"
    rows = [f["d"][""] for f in said if f["k"] == "s" and f["p"] == "nccl" and "" in f["d"]]
    assert [row["size_bytes"] for row in rows if not row["in_place"]] == [1 << 20, 1 << 22, 1 << 24]
    assert all(row["id"] == "t1" for row in rows)
    told = summary(said)
    assert told["ok"] is True
    assert told["ranks"] == 8
    assert told["engine"] == "nccl-tests"
    assert told["version"] == "2.17.6"
    assert told["busbw_max_gb_s"] == max(row["busbw_gb_s"] for row in rows)
    assert told["busbw_at_size_bytes"] == 1 << 24
    assert told["rc"] == 0
    assert told["wrong"] == 0


@pytest.mark.parametrize(
    ("mode", "why"),
    [("fail", "Test NCCL failure"), ("wrong", "wrong values"), ("crash", "signal 11")],
)
def test_a_run_that_went_wrong_is_no_measurement(mode: str, why: str, binary: str) -> None:
    with agent(STAND_IN=mode) as node:
        args = {"binary": binary, "gpus": 8, **SIZES}
        node.order(op="run", id="t", what="nccl", args=args)
        said = node.collect(lambda found: any(map(ended, found)))
    assert next(filter(ended, said))["state"] == "failed"
    assert summary(said)["ok"] is False
    assert why in summary(said)["error"]


def test_one_rank_reports_no_bandwidth(binary: str) -> None:
    with agent() as node:
        node.order(op="run", id="t", what="nccl", args={"binary": binary, "gpus": 1, **SIZES})
        said = node.collect(lambda found: any(map(ended, found)))
    assert "busbw_max_gb_s" not in summary(said)
    assert summary(said)["ranks"] == 1


def child_pids(node: AgentProcess) -> list[int]:
    """The pids of the stand-in and its child, found as the agent's descendants."""
    seen: list[int] = []
    for task in Path(f"/proc/{node.process.pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a task or a child may just have ended
            for pid in (task / "children").read_text().split():
                seen.append(int(pid))
                grand = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                seen.extend(map(int, grand))
    return seen


def started_with_a_child(node: AgentProcess, binary: str, **args: Any) -> list[int]:
    """Run the stand-in that starts a child in a session of its own; both pids."""
    order = {"binary": binary, "gpus": 8, **SIZES, **args}
    node.order(op="run", id="t", what="nccl", args=order)
    node.wait_for(kind("job", id="t", state="started"))
    pids: list[int] = []

    def both() -> bool:
        pids[:] = child_pids(node)
        return len(pids) == 2

    assert until(both)
    return pids


def test_cancel_ends_the_test_and_its_children(node_python: str, binary: str) -> None:
    with agent(node_python, STAND_IN="children") as node:
        pids = started_with_a_child(node, binary)
        node.order(op="run", id="t2", what="nccl", args={"binary": binary, "gpus": 8})
        assert "t" in node.wait_for(kind("job", id="t2", state="refused"))["text"]
        node.order(op="cancel", id="unheard-of")
        node.order(op="cancel", id="t")
        over = node.wait_for(kind("job", id="t", state="failed"))
        assert over["text"] == "cancelled"
        assert gone(*pids)


def test_eof_ends_the_test_and_its_children(node_python: str, binary: str) -> None:
    with agent(node_python, STAND_IN="children") as node:
        pids = started_with_a_child(node, binary)
        node.close()
        assert node.finish() == 0
        assert gone(*pids)


def test_the_deadline_ends_the_test_and_its_children(binary: str) -> None:
    with agent(STAND_IN="children") as node:
        pids = started_with_a_child(node, binary, timeout_s=10)
        over = node.wait_for(kind("job", id="t", state="failed"))
        assert over["text"].startswith("timed out")
        assert gone(*pids)
        node.order(op="run", id="again", what="nccl", args={})
        node.wait_for(kind("job", id="again", state="refused"))


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({}, "neither nccl_tests nor torch_python"),
        ({"binary": "/nowhere/all_reduce_perf", "gpus": 8}, "No such file"),
        ({"binary": "/bin/true"}, "no GPU is visible"),
        ({"binary": "/bin/true", "gpus": "8; rm -rf /"}, "gpus must be"),
        ({"binary": "/bin/true", "gpus": 8, "max_bytes": -1}, "max_bytes must be"),
        ({"binary": "/bin/true", "gpus": 8, "timeout_s": 0}, "timeout_s must be"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(args: dict[str, Any], why: str) -> None:
    with agent() as node:
        node.order(op="run", id="t", what="nccl", args=args)
        over = node.wait_for(ended)
    assert over["state"] == "refused"
    assert why in over["text"]


def test_a_program_that_prints_no_table_measured_nothing() -> None:
    with agent() as node:
        node.order(op="run", id="t", what="nccl", args={"binary": "/bin/true", "gpus": 8})
        said = node.collect(lambda found: any(map(ended, found)))
    assert summary(said)["ok"] is False
    assert "measured nothing" in summary(said)["error"]


@pytest.mark.parametrize("force", [False, True])
def test_busy_gpus_are_left_alone_unless_forced(force: bool, binary: str, tmp_path: Path) -> None:
    gpus = [{"pci": "0000:1b:00.0"}, {"pci": "0000:43:00.0", "procs": [[4242, 41000]]}]
    (tmp_path / "nvml.json").write_text(json.dumps({"gpus": gpus}))
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {SHIM} {tmp_path} "$@"\n')
    python.chmod(0o755)
    with AgentProcess(config("agent"), node=Node(name="n", python=str(python))) as node:
        args = {"binary": binary, "force": force, **SIZES}
        node.order(op="run", id="t", what="nccl", args=args)
        said = node.collect(lambda found: any(map(ended, found)))
    over = next(filter(ended, said))
    if force:
        assert over["state"] == "done"
        assert summary(said)["ranks"] == 2
    else:
        assert over["state"] == "refused"
        assert "0000:43:00.0" in over["text"]
        assert "4242" in over["text"]


def test_the_test_runs_at_the_priority_of_the_login(tmp_path: Path) -> None:
    script = tmp_path / "nice"
    script.write_text("#!/bin/sh\necho gpu-1: Test NCCL failure nice $(nice)\n")
    script.chmod(0o755)
    with agent() as node:
        node.order(op="run", id="t", what="nccl", args={"binary": str(script), "gpus": 8})
        said = node.collect(lambda found: any(map(ended, found)))
    assert summary(said)["error"].endswith(f"nice {os.nice(0)}")


def torch_python() -> str | None:
    """An interpreter with torch: this one, or the one GPUCONSOLE_TORCH_PYTHON names."""
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    return os.environ.get("GPUCONSOLE_TORCH_PYTHON")


@pytest.mark.torch
@pytest.mark.skipif(torch_python() is None, reason="no torch here: pip install gpuconsole[torch]")
def test_a_real_all_reduce_over_gloo() -> None:
    with agent() as node:
        args = {"torch_python": torch_python(), "gpus": 2, "timeout_s": 100, "binary": "/nowhere"}
        small = {"min_bytes": 1 << 16, "max_bytes": 1 << 20, "factor": 4, "iters": 3, "warmup": 1}
        node.order(op="run", id="g", what="nccl", args={**args, **small})
        node.wait_for(ended)
        said = list(node.frames)
    told = summary(said)
    assert told["ok"] is True, told
    assert told["engine"] == "torch-gloo"
    assert told["ranks"] == 2
    assert told["busbw_max_gb_s"] > 0
    rows = [f["d"][""] for f in said if f["k"] == "s" and f["p"] == "nccl" and "" in f["d"]]
    assert [row["size_bytes"] for row in rows] == [1 << 16, 1 << 18, 1 << 20]
    assert all(row["wrong"] == 0 for row in rows)


@pytest.mark.torch
@pytest.mark.skipif(torch_python() is None, reason="no torch here: pip install gpuconsole[torch]")
def test_eof_ends_a_real_all_reduce_and_all_its_ranks() -> None:
    with agent() as node:
        args = {"torch_python": torch_python(), "gpus": 2, "iters": 100_000, "force": True}
        node.order(op="run", id="g", what="nccl", args=args)

        assert until(lambda: len(descendants(node.process.pid)) >= 3)
        pids = descendants(node.process.pid)
        node.close()
        assert node.finish() == 0
        assert gone(*pids)
