"""What may leave the node about a process, and what never does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes import bundle
from probes.node import processes
from tests.payload.rig import WAIT_S, config, gone

SHIM = Path(__file__).parents[2] / "console" / "demo" / "nvml" / "shim.py"
SECRET = "hunter2-never-leaves"


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[int]:
    """A process with secrets in its environment and on its command line; its pid."""
    script = tmp_path / "train.py"
    script.write_text("import sys\nprint('up', flush=True)\nsys.stdin.read()\n")
    env = {"WANDB_API_KEY": SECRET, "SLURM_JOB_ID": "4711", "RANK": "3", "PATH": os.environ["PATH"]}
    child = subprocess.Popen(
        [sys.executable, "-u", str(script), "--token", SECRET],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    yield child.pid
    child.stdin.close()
    child.stdout.close()
    child.wait(WAIT_S)
    assert gone(child.pid)


def ask(tmp_path: Path, gpus: list[dict[str, object]], python: str = sys.executable) -> bytes:
    """One pass of the probe on a node with these GPUs and this machine's /proc; the raw output."""
    (tmp_path / "nvml.json").write_text(json.dumps({"gpus": gpus}))
    settings = config("processes", mode="pass")
    done = subprocess.Popen(
        [python, str(SHIM), str(tmp_path), "-I", "-S", "-c", bundle.FIRST_STAGE],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert done.stdin is not None
    assert done.stdout is not None
    done.stdin.write(bundle.payload(settings))
    done.stdin.flush()
    said = done.stdout.read()
    done.stdin.close()
    done.stdout.close()
    assert done.wait(WAIT_S) == 0
    return said


def rows_of(output: bytes) -> list[dict[str, object]]:
    frames = [json.loads(line.partition(b" ")[2]) for line in output.splitlines()]
    said = next(f for f in frames if f["k"] == "s" and f["p"] == "processes")
    return list(said.get("r", []))


def test_a_row_names_job_rank_and_program_and_no_secret(
    node_python: str, worker: int, tmp_path: Path
) -> None:
    said = ask(tmp_path, [{"pci": "0000:1b:00.0", "procs": [[worker, 41000]]}], node_python)
    assert SECRET.encode() not in said
    assert b"WANDB" not in said
    (row,) = rows_of(said)
    assert row["gpu"] == "0000:1b:00.0"
    assert row["pid"] == worker
    assert row["job"] == "4711"
    assert row["rank"] == "3"
    assert str(row["command"]).endswith(" train.py")
    assert row["alive"] is True
    assert row["mem_bytes"] == 41000 << 20


def test_a_process_the_kernel_does_not_know_is_not_alive(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    missing = 2**22 + 7
    (row,) = rows_of(ask(tmp_path, [{"pci": "0000:1b:00.0", "procs": [[missing, 5]]}]))
    in_first_namespace = os.readlink("/proc/self/ns/pid") == processes.INITIAL_NAMESPACE
    assert row.get("alive") == (False if in_first_namespace else None)
    assert "user" not in row


def test_a_lost_gpu_does_not_hide_the_processes_of_another(worker: int, tmp_path: Path) -> None:
    gpus: list[dict[str, object]] = [
        {"pci": "0000:1b:00.0", "rc": {"nvmlDeviceGetComputeRunningProcesses_v3": 15}},
        {"pci": "0000:43:00.0", "procs": [[worker, 7]]},
    ]
    said = ask(tmp_path, gpus)
    assert [row["gpu"] for row in rows_of(said)] == ["0000:43:00.0"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/usr/bin/python3", "-u", "/home/u/train.py", "--key", SECRET], "python3 train.py"),
        (["python3", "-m", "vllm.server", "--api-key", SECRET], "python3 vllm.server"),
        (["python3", "-c", f"login('{SECRET}')"], "python3"),
        (["python3", "-W", "ignore", "x.py"], "python3 x.py"),
        (["/opt/app/server", f"--password={SECRET}", SECRET], "server"),
        (["bash", "-c", f"echo {SECRET}"], "bash"),
        ([], ""),
    ],
)  # fmt: skip
def test_the_command_is_program_and_script(words: list[str], name: str) -> None:
    raw = b"".join(word.encode() + b"\0" for word in words)
    assert processes.command_name(raw) == name


def test_only_allowed_names_are_taken_from_an_environment() -> None:
    raw = b"SLURM_JOB_ID=7\0AWS_SECRET_ACCESS_KEY=x\0RANK=\x1b[1m2\0PATH=/bin\0RANKLE=9\0\xff\0"
    assert processes.allowed(raw) == {"SLURM_JOB_ID": "7", "RANK": " [1m2"}
