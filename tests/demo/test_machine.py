"""One simulated node on disk: its tree, the story's changes to it, and its programs."""

from __future__ import annotations

import filecmp
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from console.demo import faults_host, sysfs
from console.demo.hardware import HARDWARE
from console.demo.machine import Machine
from console.demo.scenario import Fault, Job, Scenario, load
from console.demo.story import Story
from console.demo.tree import OWN_NAMES, OWN_TREES, Template
from probes.node.nccl_table import parse

H100 = HARDWARE["h100"]


@pytest.fixture
def template(own_places: Path) -> Template:
    return Template(own_places / "template", H100)


def machine(own_places: Path, tmp_path: Path, template: Template, *faults: Fault) -> Machine:
    job = Job(id="77", user="ann", name="run", nodes=("m0", "m1"), load="training", for_s=50)
    scenario = Scenario(
        name="t", seed=1, nodes=("m0", "m1"), hardware="h100", jobs=(job,), faults=faults
    )
    made = Machine("m1", own_places / "m1", tmp_path / "bin", Story(scenario))
    made.build(template, 2)
    return made


def snapshot(root: Path, below: str) -> dict[str, bytes]:
    found = {}
    for directory, _, names in os.walk(root / below):
        for name in names:
            path = Path(directory, name)
            found[str(path.relative_to(root))] = path.read_bytes() if path.is_file() else b""
    return found


def test_a_clone_is_what_building_it_would_give(
    own_places: Path, tmp_path: Path, template: Template
) -> None:
    template.clone(own_places / "clone", "m3", 3)
    boot_id = (own_places / "clone/proc/sys/kernel/random/boot_id").read_text().strip()
    sysfs.build(tmp_path / "built", hostname="m3", number=3, boot_id=boot_id)
    seen = 0
    for directory, names, files in os.walk(tmp_path / "built"):
        inside = os.path.relpath(directory, tmp_path / "built")
        twin = own_places / "clone" / inside
        assert sorted(os.listdir(twin)) == sorted([*names, *files])
        same, differ, odd = filecmp.cmpfiles(directory, twin, files, shallow=False)
        if "proc" in inside:  # btime is the moment of writing
            differ = [name for name in differ if name != "stat"]
        assert (differ, odd) == ([], [])
        seen += len(same)
    assert seen > 1000


def test_a_boot_id_is_of_the_node_and_the_story_not_of_the_process(own_places: Path) -> None:
    def boot_id(folder: str, scenario: str, name: str) -> str:
        places = own_places / folder
        made = Template(places / "template", H100, scenario)
        made.clone(places / name, name, 3)
        return (places / name / "proc/sys/kernel/random/boot_id").read_text()

    first = boot_id("a", "story", "m3")
    assert boot_id("b", "story", "m3") == first
    assert boot_id("c", "other", "m3") != first
    assert boot_id("d", "story", "m4") != first


def test_two_clones_share_no_file_that_the_story_may_change(
    own_places: Path, tmp_path: Path, template: Template
) -> None:
    story = Story(load())
    changed = {
        path
        for node in story.scenario.nodes
        for t in range(0, 121, 3)
        for path in story.files(node, float(t))
    }
    faults = [Fault(node="n", kind="gpu_lost", gpu=7, at_s=1)]
    faults += [Fault(node="n", kind=k, port="mlx5_6/1") for k in ("ib_down", "ib_slow", "ib_flap")]
    faults += [Fault(node="n", kind=kind) for kind in faults_host.KINDS]
    for fault in faults:
        only = Scenario(name="t", seed=1, nodes=("n",), hardware="h100", faults=(fault,))
        found = [Story(only).files("n", t / 2) for t in range(30)]
        changed |= {path for files in found for path in files}
    assert len(changed) > 32
    for path in changed:
        assert path.startswith(OWN_TREES) or path.rsplit("/", 1)[-1] in OWN_NAMES, path
    template.clone(own_places / "a", "a", 1)
    for path in changed:
        if (own_places / "a" / path).exists():
            assert (own_places / "a" / path).stat().st_nlink == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(node="m1", kind="ib_down", port="mlx5_2/1", at_s=10, for_s=10),
        Fault(node="m1", kind="ib_slow", port="mlx5_2/1", at_s=10, for_s=10),
        Fault(node="m1", kind="gpu_lost", gpu=4, at_s=10, for_s=10),
    ],
)
def test_a_fault_changes_files_in_place_and_its_end_restores_them(
    own_places: Path, tmp_path: Path, template: Template, fault: Fault
) -> None:
    sick = machine(own_places, tmp_path, template, fault)
    sick.advance(5.0, 1.0, time.monotonic())
    before = {k: v for k, v in snapshot(sick.root, "sys").items() if "port_" not in k}
    inodes = {k: (sick.root / k).stat().st_ino for k in before}
    sick.advance(12.0, 1.0, time.monotonic())
    during = {k: v for k, v in snapshot(sick.root, "sys").items() if "port_" not in k}
    assert before.keys() == during.keys()
    assert {k for k in before if before[k] != during[k]}
    sick.advance(25.0, 1.0, time.monotonic())
    after = {k: v for k, v in snapshot(sick.root, "sys").items() if "port_" not in k}
    assert after == before
    assert {k: (sick.root / k).stat().st_ino for k in before} == inodes


def test_processes_come_and_go_with_the_job_and_a_hung_driver(
    own_places: Path, tmp_path: Path, template: Template
) -> None:
    node = machine(
        own_places, tmp_path, template, Fault(node="m1", kind="driver_hang", gpu=1, at_s=20)
    )
    node.advance(5.0, 1.0, time.monotonic())
    state = json.loads((node.directory / "nvml.json").read_text())
    pids = [entry[0] for gpu in state["gpus"] for entry in gpu["procs"]]
    assert len(set(pids)) == 8
    environments = [
        (node.root / f"proc/{pid}/environ").read_bytes().split(b"\0")[:2] for pid in pids
    ]
    assert environments[0] == [b"SLURM_JOB_ID=77", b"RANK=8"]  # second node of the job
    node.advance(60.0, 1.0, time.monotonic())
    assert not any((node.root / f"proc/{pid}").exists() for pid in pids)
    stats = [path.read_text() for path in (node.root / "proc").glob("[0-9]*/stat")]
    assert sum(") D " in text for text in stats) == 1


def test_kernel_lines_are_stamped_on_this_machines_clock(
    own_places: Path, tmp_path: Path, template: Template
) -> None:
    node = machine(
        own_places, tmp_path, template, Fault(node="m1", kind="xid", gpu=2, xid=31, at_s=10)
    )
    node.advance(5.0, 2.0, 1000.0)
    assert (node.root / "dev/kmsg").read_text() == ""
    node.advance(14.0, 2.0, 1004.5)
    last = (node.root / "dev/kmsg").read_text().splitlines()[-1]
    head, _, text = last.partition(";")
    assert "Xid (PCI:0000:52:00): 31," in text
    # 4 story seconds ago at double speed are 2 seconds ago.
    assert int(head.split(",")[2]) == pytest.approx(1002.5e6, abs=1e5)


def run(node: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    program = str(node.bin / words[0])
    return subprocess.run(
        [program, *words[1:]], env=node.environment, capture_output=True, text=True, timeout=250,
        check=False,
    )  # fmt: skip


def test_all_reduce_prints_a_table_that_our_parser_reads(
    own_places: Path, tmp_path: Path, template: Template
) -> None:
    node = machine(own_places, tmp_path, template)
    node.advance(1.0, 1.0, time.monotonic())
    done = run(node, "all_reduce_perf", "-b", "8M", "-e", "1G", "-f", "4", "-g", "8")
    assert done.returncode == 0
    table = parse(done.stdout)
    sizes = [8 << 20, 32 << 20, 128 << 20, 512 << 20]
    assert [row["size_bytes"] for row in table.rows] == sorted(sizes * 2)  # two placements
    for row in table.rows:
        size, time_us, algbw, busbw = (
            float(str(row[key])) for key in ("size_bytes", "time_us", "algbw_gb_s", "busbw_gb_s")
        )
        assert algbw == pytest.approx(size / time_us / 1e3, rel=0.01)
        assert busbw == pytest.approx(algbw * 2 * 7 / 8, rel=0.01)
    assert (table.concluded, table.out_of_bounds, table.ranks, table.errors) == (True, 0, 8, [])


def test_all_reduce_fails_on_a_node_with_a_lost_gpu(
    own_places: Path, tmp_path: Path, template: Template
) -> None:
    node = machine(own_places, tmp_path, template, Fault(node="m1", kind="gpu_lost", gpu=4))
    node.advance(1.0, 1.0, time.monotonic())
    done = run(node, "all_reduce_perf", "-g", "8")
    assert done.returncode != 0
    table = parse(done.stdout)
    assert table.errors
    assert not table.concluded


def test_the_nodes_python_is_a_real_one_with_a_simulated_library(
    own_places: Path, tmp_path: Path, template: Template
) -> None:
    node = machine(own_places, tmp_path, template)
    node.advance(1.0, 1.0, time.monotonic())
    code = (
        "import ctypes; n = ctypes.c_uint(0); lib = ctypes.CDLL('libnvidia-ml.so.1');"
        "lib.nvmlInit_v2(); lib.nvmlDeviceGetCount_v2(ctypes.byref(n)); print(n.value)"
    )
    for options in (["-I", "-S", "-u"], ["-I", "-S"], []):
        done = run(node, "python3", *options, "-c", code)
        assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
