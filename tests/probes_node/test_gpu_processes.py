"""Processes of GPUs in a tree of our own: whose they are, and memory that nobody owns."""

from __future__ import annotations

import os
from typing import Any

from console.demo import sysfs
from tests.probes_node.rig import Machine, Session

BUS = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]
POD = "0e1c2d3f-0000-4000-8000-00000000abcd"
CONTAINER = "ab" * 32


def start(machine: Machine, pid: int, *command: str, state: str = "S", **environment: str) -> None:
    """A process that began 1000 s before the uptime of the tree."""
    sysfs.process(machine.root, pid, command, environment=environment, state=state)
    began = int((612_345.11 - 1000) * os.sysconf("SC_CLK_TCK"))
    name = command[0].rsplit("/", 1)[-1]
    fields = " ".join(["1"] * 18)
    sysfs.write(machine.root, f"proc/{pid}/stat", f"{pid} ({name}) {state} {fields} {began} 0 0\n")


def look(session: Session, device: str) -> dict[str, Any]:
    return session.collect("processes")[device]


def test_a_row_says_whose_it_is(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    start(each_machine, 4242, "/usr/bin/python3", "train.py", SLURM_JOB_ID="4711", RANK="3")
    status = "Name:\tpython3\nNSpid:\t4242\t17\nUid:\t0\t0\t0\n"
    sysfs.write(each_machine.root, "proc/4242/status", status)
    pod = f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}"
    sysfs.write(each_machine.root, "proc/4242/cgroup", f"0::{pod}.scope\n")
    each_machine.gpu(1, procs=[[4242, 40000]], mem_used_mib=41000)
    with each_machine.session() as session:
        answer = session.ask(op="collect", probe="processes")
    (row,) = answer["rows"]
    assert row == {
        "gpu": BUS[1], "pid": 4242, "inner_pid": 17, "mem_bytes": 40000 << 20, "alive": True,
        "state": "S", "age_s": 1000.0, "command": "python3 train.py", "user": "root",
        "job": "4711", "rank": "3", "pod": POD, "container": CONTAINER[:12],
    }  # fmt: skip
    values = answer["devices"][BUS[1]]
    assert values == {"count": 1, "used_bytes": 41000 << 20, "owned_bytes": 40000 << 20}


def test_memory_without_an_owner_names_the_last_one(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    start(each_machine, 4242, "/usr/bin/python3", "train.py", SLURM_JOB_ID="4711")
    each_machine.gpu(1, procs=[[4242, 40000]], mem_used_mib=41000)
    with each_machine.session() as session:
        assert "unowned_bytes" not in look(session, BUS[1])
        each_machine.gpu(1, procs=[], mem_used_mib=39000)
        session.advance(30)
        first, second = look(session, BUS[1]), look(session, BUS[1])
        each_machine.gpu(1, mem_used_mib=4)
        freed = look(session, BUS[1])
    assert (first["unowned_bytes"], first["unowned_looks"]) == (39000 << 20, 1)
    assert second["unowned_looks"] == 2
    assert (first["last_job"], first["last_command"], first["last_pid"]) == (
        "4711", "python3 train.py", 4242,
    )  # fmt: skip
    assert 30 <= first["last_seen_s"] < 90
    assert (freed["unowned_bytes"], freed["unowned_looks"]) == (4 << 20, 0)
    assert "last_job" not in freed


def test_a_dead_process_that_the_driver_lists_owns_nothing(each_machine: Machine) -> None:
    sysfs.build(each_machine.root)
    start(each_machine, 77, "python3", state="Z")
    each_machine.gpu(1, procs=[[77, 500], [99, 9000]], mem_used_mib=9800)
    with each_machine.session() as session:
        answer = session.ask(op="collect", probe="processes")
    assert [row["alive"] for row in answer["rows"]] == [False, False]
    assert answer["devices"][BUS[1]]["unowned_bytes"] == 9800 << 20


def test_who_has_the_device_file_open_is_named(machine: Machine) -> None:
    sysfs.build(machine.root)
    start(machine, 500, "python3", "left.py")
    start(machine, 501, "nvidia-persistenced")
    for pid in (500, 501):
        files = machine.root / f"proc/{pid}/fd"
        files.mkdir()
        (files / "7").symlink_to("/dev/nvidia1")
    machine.gpu(1, procs=[], mem_used_mib=20000)
    machine.gpu(2, procs=[], mem_used_mib=20000)
    with machine.session() as session:
        devices = session.collect("processes")
    assert devices[BUS[1]]["holders"] == "python3 (pid 500)"
    assert "holders" not in devices[BUS[2]]


def test_graphics_and_mps_own_memory_too(machine: Machine) -> None:
    sysfs.build(machine.root)
    start(machine, 60, "/usr/lib/xorg/Xorg")
    start(machine, 61, "worker")
    machine.gpu(1, graphics_procs=[[60, 300]], mps_procs=[[61, 9000]], mem_used_mib=9400)
    with machine.session() as session:
        answer = session.ask(op="collect", probe="processes")
    assert [(row["pid"], row["kind"]) for row in answer["rows"]] == [(60, "graphics"), (61, "mps")]
    assert answer["devices"][BUS[1]]["owned_bytes"] == 9300 << 20
    assert answer["devices"][BUS[1]]["count"] == 0


def test_where_processes_are_hidden_nobody_is_dead(machine: Machine) -> None:
    """hidepid, or a container: pid 1 is not the node's init, or not to be seen."""
    sysfs.build(machine.root)
    (machine.root / "proc/1/stat").unlink()
    machine.gpu(1, procs=[[4242, 40000]], mem_used_mib=41000)
    machine.gpu(2, procs=[], mem_used_mib=41000)
    with machine.session() as session:
        answer = session.ask(op="collect", probe="processes")
    assert "alive" not in answer["rows"][0]
    assert "unowned_bytes" not in answer["devices"][BUS[1]]
    assert "unowned_bytes" not in answer["devices"][BUS[2]]


def test_a_process_without_a_figure_leaves_no_sum(machine: Machine) -> None:
    sysfs.build(machine.root)
    start(machine, 60, "a")
    start(machine, 61, "b")
    machine.gpu(1, procs=[[60, None], [61, 100]], mem_used_mib=9400)
    with machine.session() as session:
        assert look(session, BUS[1]) == {"count": 2, "used_bytes": 9400 << 20}


def test_our_own_test_is_marked(machine: Machine) -> None:
    sysfs.build(machine.root)
    machine.gpu(1, procs=[[70, 100], [72, 100]])
    with machine.session() as session:
        me = session.process.pid
        for pid, parent in ((70, 1), (71, me), (72, 71)):
            text = f"{pid} (python3) S {parent} {' '.join(['1'] * 17)} 100 0\n"
            sysfs.process(machine.root, pid, ["python3"])
            sysfs.write(machine.root, f"proc/{pid}/stat", text)
        rows = session.rows("processes")
    assert [(row["pid"], row.get("ours")) for row in rows] == [(70, None), (72, True)]


def test_unified_memory_has_no_use_to_explain(machine: Machine) -> None:
    sysfs.build(machine.root)
    machine.gpu(1, procs=[], mem_total_mib=None)
    with machine.session() as session:
        assert look(session, BUS[1]) == {"count": 0}
