"""Active tests as Jobs: what is created, how its end is read, and that it is deleted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.active.ask import Asked
from console.active.kube_job import state
from console.active.kube_manifest import manifest
from console.active.results import Group, Level
from inventory.node import Node
from tests.kubernetes.api import Api
from tests.ssh.lab import wait_for

TABLE = """\
# nThread 1 nGpus 8 minBytes 1073741824 maxBytes 1073741824
#  Rank  0 Group  0 Pid 7 on gpu3 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 7 on gpu3 device  1 [0x43] NVIDIA H100 80GB HBM3
  1073741824  268435456  float  sum  -1  4100.0  261.89  458.31  0  4100.0  261.89  458.31  0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 458.31
"""
INVENTORY = """\
scheduler: kubernetes
defaults: {gpus: 8, test_image: "lab/nccl:1", test_env: {NCCL_IB_HCA: mlx5}}
groups:
  pool: {hosts: "gpu[1-4]", nccl_tests: /opt/all_reduce_perf}
"""


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    path = tmp_path / "inventory.yaml"
    path.write_text(INVENTORY)
    return [sys.executable, "-m", "console.cli", "-i", str(path), "test", "--launch", "kubectl"]


def run(argv: list[str], env: dict[str, str], *words: str) -> tuple[int, str, str]:
    done = subprocess.run([*argv, *words], capture_output=True, text=True, env=env, timeout=250)
    return done.returncode, done.stdout, done.stderr


def test_an_idle_node_is_measured_and_nothing_stays(
    api: Api, argv: list[str], environment: dict[str, str]
) -> None:
    made: list[dict[str, Any]] = []

    def ends(job: dict[str, Any]) -> tuple[str, str]:
        made.append(job)
        return "Complete", TABLE

    api.job_ends = ends
    _, out, err = run(argv, environment, "gpu[1,3]", "--json")
    document = json.loads(out)
    assert "train-0" in document["refused"]["gpu1"] or "busy" in document["refused"]["gpu1"]
    (measured,) = document["runs"]
    assert (measured["state"], measured["busbw_gb_s"]) == ("done", 458.31), err
    spec = made[0]["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/hostname": "gpu3"}
    assert spec["containers"][0]["image"] == "lab/nccl:1"
    assert {"name": "NCCL_IB_HCA", "value": "mlx5"} in spec["containers"][0]["env"]
    assert api.deleted == [made[0]["metadata"]["name"]]
    assert api.jobs == {}


def test_a_failed_job_says_what_it_printed(
    api: Api, argv: list[str], environment: dict[str, str]
) -> None:
    api.job_ends = lambda job: ("Failed", "gpu3: Test CUDA failure common.cu:1005 'no device'\n")
    code, out, _ = run(argv, environment, "gpu3", "--json")
    (measured,) = json.loads(out)["runs"]
    assert measured["state"] == "failed"
    assert "no device" in measured["error"]
    assert code >= 2
    assert api.jobs == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_deletes_the_job(
    api: Api, argv: list[str], environment: dict[str, str], number: signal.Signals
) -> None:
    api.job_ends = lambda job: ("", "")
    process = subprocess.Popen(
        [*argv, "gpu3", "--json"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for(lambda: api.jobs, 60, "a job")
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=250)
    assert process.returncode == 130, err
    assert json.loads(out)["interrupted"]
    assert api.jobs == {}
    assert len(api.deleted) == 1


def test_the_manifest_is_printed_and_nothing_created(
    api: Api, argv: list[str], environment: dict[str, str]
) -> None:
    code, out, _ = run(argv, environment, "gpu[3-4]", "--print-manifest")
    first, second = yaml.safe_load_all(out)
    assert {first["kind"], second["kind"]} == {"Job"}
    names = [one["metadata"]["name"] for one in (first, second)]
    assert len(set(names)) == 2
    assert all(len(name) <= 63 and name == name.lower() for name in names)
    assert api.jobs == {}
    assert code == 0


def nodes(**settings: Any) -> list[Node]:
    return [
        Node(name=f"g{i}", address=f"10.0.0.{i}", test_image="x/y:1", **settings) for i in (1, 2)
    ]


PAIR = Group(nodes=("g1", "g2"))
GPUS = {"g1": 8, "g2": 8}


def test_torch_on_two_nodes_is_a_job_each_that_meet_at_the_first() -> None:
    asked = Asked(nodes=PAIR.nodes, level=Level.PAIRS)
    items = manifest(PAIR, nodes(torch_python="python3"), asked, GPUS, "t", 20001)["items"]
    commands = [i["spec"]["template"]["spec"]["containers"][0]["command"] for i in items]
    assert [i["kind"] for i in items] == ["Job", "Job"]
    for rank, command in enumerate(commands):
        assert command[command.index("--node-rank") + 1] == str(rank)
        assert "--master-addr=10.0.0.1" in command
        assert "20001" in command


def test_nccl_tests_on_two_nodes_is_an_mpijob_on_exactly_these() -> None:
    asked = Asked(nodes=PAIR.nodes, level=Level.PAIRS)
    (job,) = manifest(PAIR, nodes(nccl_tests="/x/all_reduce_perf"), asked, GPUS, "t", 1)["items"]
    assert job["kind"] == "MPIJob"
    replicas = job["spec"]["mpiReplicaSpecs"]
    assert replicas["Worker"]["replicas"] == 2
    terms = replicas["Worker"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert "g1" in json.dumps(terms)
    assert "g2" in json.dumps(terms)
    command = replicas["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("-np") + 1] == "16"


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ('{"status": {"conditions": [{"type": "Complete", "status": "True"}]}}', "done"),
        ('{"status": {"conditions": [{"type": "Failed", "status": "True"}]}}', "failed"),
        ('{"status": {"conditions": [{"type": "Failed", "status": "False"}]}}', ""),
        ('{"status": {}}', ""),
        ("[]", ""),
        ("nonsense", ""),
        ('{"status": {"conditions": ["x", 3]}}', ""),
    ],
)
def test_how_a_job_ended(text: str, end: str) -> None:
    assert state(text) == end
