"""Active tests through a real Slurm: jobs are started, bounded, read, and gone when they should."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.active import reservation
from tests.slurm.lab import PATH, SlurmLab, wait_until

pytestmark = pytest.mark.slurm

REPOSITORY = Path(__file__).parents[2]
PERF = """#!/bin/sh
# Stand-in for an MPI build of all_reduce_perf: task 0 prints, runs with n2 are slow.
[ "$SLURM_PROCID" = 0 ] || exit 0
echo "$SLURM_JOB_NAME $SLURM_JOB_NODELIST $NCCL_IB_HCA $*" >> {root}/calls
while [ -e {root}/hold ]; do sleep 0.2; done
case "$SLURM_JOB_NODELIST" in *2*) busbw=40.00;; *) busbw=390.00;; esac
echo '# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824'
for rank in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
  echo "#  Rank  $rank Group  0 Pid $$ on node device  $rank [0x1b] NVIDIA H100 80GB HBM3"
done
echo "  1073741824  268435456  float  sum  -1  4100.0  200.00  $busbw  0  4100.0  200.00  $busbw  0"
echo '# Out of bounds values : 0 OK'
echo "# Avg bus bandwidth    : $busbw"
"""


class Desk:
    """An operator in front of the private Slurm."""

    def __init__(self, cluster: SlurmLab, home: Path) -> None:
        self.cluster, self.home = cluster, home
        self.perf = cluster.root / "all_reduce_perf"
        self.perf.write_text(PERF.format(root=cluster.root))
        self.perf.chmod(0o755)
        self.inventory = home / "inventory.yaml"
        self.inventory.write_text(
            f"scheduler: slurm\ngroups:\n  pool:\n    hosts: n[1-4]\n    gpus: 4\n"
            f"    nccl_tests: {self.perf}\n    test_env: {{NCCL_IB_HCA: mlx5_7}}\n"
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        own = {f"XDG_{n}_HOME": str(self.home / n.lower()) for n in ("STATE", "CACHE", "CONFIG")}
        env = {**os.environ, **own, "PATH": PATH, "SLURM_CONF": str(self.cluster.conf)}
        argv = [sys.executable, "-m", "console.cli", "-i", str(self.inventory), "test",
                "--launch", "srun", "--json", *arguments]  # fmt: skip
        return subprocess.Popen(
            argv, env={**env, "PYTHONPATH": str(REPOSITORY)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *arguments: str) -> tuple[int, Any, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=250)
        assert out, err.decode()
        return process.returncode, json.loads(out), err.decode()

    @property
    def calls(self) -> list[str]:
        path = self.cluster.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def queue(self) -> list[str]:
        """Names of jobs that Slurm has."""
        return self.cluster.ok("squeue", "-h", "-o", "%j").split()


@pytest.fixture
def desk(cluster: SlurmLab, tmp_path: Path) -> Iterator[Desk]:
    for name in ("calls", "hold"):
        (cluster.root / name).unlink(missing_ok=True)
    yield Desk(cluster, tmp_path)
    (cluster.root / "hold").unlink(missing_ok=True)


def test_pairs_run_as_jobs_and_the_slow_node_is_named(desk: Desk) -> None:
    code, document, err = desk.run("n[1-4]", "--level", "pairs", "--seed", "1")
    assert {run["state"] for run in document["runs"]} == {"done"}, err
    assert {run["engine"] for run in document["runs"]} == {"nccl-tests"}
    assert all(call.startswith(f"gpuconsole-{document['id']}-") for call in desk.calls)
    assert all(" mlx5_7 " in call and call.endswith("-g 1 -c 0") for call in desk.calls)
    bad = [v for v in document["verdicts"] if v["verdict"] in ("warn", "critical")]
    assert [(v["kind"], v["nodes"]) for v in bad] == [("node", ["n2"])], bad
    assert code == 2
    assert desk.queue() == []


def test_busy_and_drained_nodes_are_left_to_slurm(desk: Desk) -> None:
    job = desk.cluster.submit("n1")
    desk.cluster.ok("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=gpuconsole: slow")
    code, document, _ = desk.run("n[1-3]", "--level", "node")
    assert job in document["refused"]["n1"]
    assert "--launch ssh" in document["refused"]["n3"]
    assert [run["group"]["nodes"] for run in document["runs"]] == [["n2"]]
    assert code in (2, 3)
    assert desk.queue() == ["train"]


def test_a_reservation_is_used_and_counts_as_ours(desk: Desk) -> None:
    desk.cluster.ok(
        "scontrol", "create", "reservation", "ReservationName=lab", "Users=root", "StartTime=now",
        "Duration=10", "Nodes=n[1-2]", "Flags=MAINT,IGNORE_JOBS",
    )  # fmt: skip
    try:
        wait_until(lambda: desk.cluster.words()["n1"] in ("maint", "reserved"), "the reservation")
        _, document, _ = desk.run("n[1-2]", "--level", "pairs")
        assert set(document["refused"]) == {"n1", "n2"}
        _, document, err = desk.run("n[1-2]", "--level", "pairs", "--reservation", "lab")
        assert document["refused"] == {}, err
        assert {run["state"] for run in document["runs"]} == {"done"}, err
    finally:
        wait_until(lambda: desk.queue() == [], "end of the jobs")
        desk.cluster.ok("scontrol", "delete", "ReservationName=lab")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_job_goes_on_once_the_console_is_gone(desk: Desk, number: signal.Signals) -> None:
    (desk.cluster.root / "hold").touch()
    process = desk.start("n[1-2]", "--level", "pairs", "--i-own-these-nodes")
    wait_until(lambda: bool(desk.calls), "a job that runs")
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=250)
    assert process.returncode == (-signal.SIGKILL if number is signal.SIGKILL else 130), err
    if number is not signal.SIGKILL:
        assert json.loads(out)["interrupted"]
    wait_until(lambda: desk.queue() == [], "end of the job")


def test_dry_run_starts_nothing_and_shows_the_command(desk: Desk) -> None:
    process = desk.start("n[1-2]", "--level", "pairs", "--dry-run")
    out, _ = process.communicate(timeout=250)
    (first,) = json.loads(out)["first"]
    (command,) = first["orders"]
    assert command.startswith("NCCL_IB_HCA=mlx5_7 srun --job-name=gpuconsole-")
    assert "--nodelist=n[1-2]" in command or "'--nodelist=n[1-2]'" in command
    assert (desk.calls, desk.queue()) == ([], [])


ACTIVE = "ReservationName=lab State=ACTIVE Nodes=n[1-2] Users=lin,mara"


@pytest.mark.parametrize(
    ("text", "user", "why"),
    [
        (ACTIVE, "lin", ""),
        (ACTIVE, "root", ""),
        (ACTIVE, "okafor", "lin, mara"),
        (ACTIVE.replace("ACTIVE", "INACTIVE"), "lin", "not active"),
        ("", "lin", "not active"),
    ],
)
def test_whose_reservation_it_is(text: str, user: str, why: str) -> None:
    refused = reservation.refusal(reservation.read(text), user)
    assert (why in refused) if why else refused == ""
