"""The agent against nccl-tests of every release: table forms, JSON report, per-process times."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from console.demo import nccl_tools
from console.demo.scenario import Scenario
from console.demo.story import Story
from probes.node import nccl_report
from tests.leftovers import left_since, temporary
from tests.payload.rig import AgentProcess, Frame, config, limits

SIZES = {"min_bytes": 1 << 26, "max_bytes": 1 << 30, "factor": 16}
RELEASES = ["2.12.12", "2.13.11", "2.17.6", "2.19.6"]


def ended(frame: Frame) -> bool:
    return frame["k"] == "job" and frame["state"] in ("done", "failed", "refused")


def programs(place: Path, release: str, **changes: Any) -> Path:
    """A folder of nccl-tests programs of one release, and an mpirun that starts one process."""
    story = Story(Scenario(name="t", seed=1, nodes=("n1",), hardware="h100"))
    (place / "n1").mkdir()
    (place / "n1" / "nvml.json").write_text(json.dumps(story.nvml("n1", 1.0)))
    told = {"busbw_gb_s": 478.0, "ring_gb_s": 365.0, "nccl_tests": release, **changes}
    (place / "n1" / "nccl.json").write_text(json.dumps(told))
    start = f"{sys.executable} -I -S {nccl_tools.__file__}"
    for name in nccl_tools.NAMES:
        write(place / name, f'exec {start} {name} {place / "n1"} "$@"\n')
    write(place / "mpirun", 'export OMPI_COMM_WORLD_SIZE="$2"\nshift 2\nexec "$@"\n')
    return place / "all_reduce_perf"


def write(path: Path, script: str) -> None:
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)


def measured(binary: Path, env: dict[str, str] | None = None, **args: Any) -> list[Frame]:
    """Everything one agent says about one test."""
    settings = limits(config("agent"), "nccl_report", HELP_S=60.0)
    with AgentProcess(settings, env={**os.environ, **(env or {})}) as node:
        every = {"binary": str(binary), "gpus": 8, **SIZES, **args}
        node.order(op="run", id="t", what="nccl", args=every)
        return node.collect(lambda found: any(map(ended, found)))


def values(said: list[Frame], device: str = "summary") -> dict[str, Any]:
    return dict([f["d"][device] for f in said if f["k"] == "s" and device in f["d"]][-1])


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_gives_the_same_figures(tmp_path: Path, release: str) -> None:
    said = measured(programs(tmp_path, release))
    rows = [f["d"][""] for f in said if f["k"] == "s" and f["p"] == "nccl" and "" in f["d"]]
    assert [row["size_bytes"] for row in rows] == [1 << 26] * 2 + [1 << 30] * 2
    told = values(said)
    assert (told["ok"], told["ranks"], told["engine"]) == (True, 8, "nccl-tests")
    assert told["busbw_largest_gb_s"] == pytest.approx(472.4, rel=0.01)
    assert told["wrong"] == 0
    assert told["version"] == (release if release >= "2.17" else "")


@pytest.mark.parametrize("collective", ["all_gather", "sendrecv", "alltoall"])
def test_other_collectives_are_its_siblings(tmp_path: Path, collective: str) -> None:
    binary = programs(tmp_path, "2.19.6")
    binary.unlink()
    told = values(measured(binary, collective=collective))
    assert (told["ok"], told["collective"]) == (True, collective)


def test_the_second_run_is_a_ring(tmp_path: Path) -> None:
    said = measured(programs(tmp_path, "2.13.11"), ring=True)
    # Without NVML there are no GPUs to make a ring of: the order is for nodes that have some.
    assert not [f for f in said if f["k"] == "s" and "ring" in f["d"]]


@pytest.mark.parametrize("release", RELEASES)
def test_times_of_processes_come_from_releases_that_have_them(tmp_path: Path, release: str) -> None:
    binary = programs(tmp_path, release, late_process=3)
    secret = {"AWS_SECRET_ACCESS_KEY": "s3cr3t-of-the-login"}
    said = measured(binary, secret, command=[str(tmp_path / "mpirun"), "-np", "8"])
    assert values(said)["ok"] is True, said
    lists = [f["r"] for f in said if f.get("on") == "ranks"]
    if release < "2.19":
        assert lists == []
    else:
        (ranks,) = lists
        assert [r["rank"] for r in ranks] == list(range(8))
        times = [r["time_us"] for r in ranks]
        assert times.index(min(times)) == 3
        assert min(times) < 0.7 * max(times)
    assert "s3cr3t" not in json.dumps(said)


def test_nothing_of_a_run_stays_in_memory(tmp_path: Path) -> None:
    before = temporary()
    binary = programs(tmp_path, "2.19.6")
    measured(binary, command=[str(tmp_path / "mpirun"), "-np", "8"], debug=True)
    assert left_since(before) == set()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", '{"config": {"devices": 3}, "results": []}', "[" * 5000,
     '{"config": {"devices": [{}]}, "results": [{"size": 1, "out_of_place_per_iter": '
     '{"per_process_max_times_us": [["x"]]}}]}'],
)  # fmt: skip
def test_a_broken_report_has_no_times(tmp_path: Path, text: str) -> None:
    place = tmp_path / "report.json"
    place.write_text(text)
    assert nccl_report.rank_times(str(place)) == []


def test_a_binary_that_hangs_at_help_has_no_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_report, "HELP_S", 0.2)
    write(tmp_path / "hangs", "exec sleep 60\n")
    assert nccl_report.options(str(tmp_path / "hangs")) == []
    assert nccl_report.options(str(tmp_path / "absent")) == []
