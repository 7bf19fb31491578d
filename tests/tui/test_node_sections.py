"""Sections of the node screen, as text: what is wrong is first, what is well takes one line."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
import pytest

from console.fleet import Fleet
from console.tui import summary
from console.tui.node_view import node_sheet
from console.tui.plan_view import outcome_lines
from console.tui.text import Line, line_text
from console.tui.theme import UNICODE
from inventory.scheduler import Plan, Step
from probes.event import Event, NodeState, NodeStatus, Sample, Scalar
from tests.tui import synthetic
from tests.tui.synthetic import NOW, pci

NAME = "gpu001"
WIDTH = 100


def sample(probe: str, device: str = "", /, **values: Scalar) -> Sample:
    return Sample(node=NAME, probe=probe, device=device, at=NOW, clock=1000.0, values=values)


def rows(probe: str, *told: dict[str, Scalar], **values: Scalar) -> Sample:
    return msgspec.structs.replace(sample(probe, "", **values), rows=list(told))


def sheet(events: Iterable[Event], *, now: float = NOW, width: int = WIDTH) -> list[Line]:
    """The node's sheet after a healthy round and these Events."""
    fleet = Fleet(synthetic.inventory(1), clock=lambda: now)
    for event in (*synthetic.slow(NAME, NOW), *synthetic.fast(NAME, NOW), *events):
        fleet.apply(event)
    fleet.tick(now)
    return node_sheet(fleet, NAME, UNICODE, width, now).lines


def section(lines: list[Line], title: str) -> list[str]:
    """The lines below a title, up to the next empty one."""
    texts = [line_text(line) for line in lines]
    first = next(i for i, text in enumerate(texts) if text.startswith(f"── {title}"))
    rest = texts[first + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


def styles(lines: list[Line], text: str) -> set[str]:
    found = next(line for line in lines if text in line_text(line))
    return {cell.style for cell in found if cell.text.strip()}


def test_a_healthy_host_takes_one_line_a_subject() -> None:
    told = section(sheet([]), "host")
    assert [line.split()[0] for line in told] == ["load", "tasks", "service", "clock", "version"]
    assert "5 services run" in told[2]
    assert "none in D state, no zombies" in told[1]
    assert "synchronised, 0.3 ms ahead, server 192.0.2.1 stratum 3" in told[3]


def test_services_that_do_not_run_or_restart_are_named_first() -> None:
    dead: dict[str, Scalar] = {
        "service": "fabricmanager", "unit": "nvidia-fabricmanager.service", "state": "failed",
        "result": "exit-code", "enabled": "enabled", "running": False,
    }  # fmt: skip
    off: dict[str, Scalar] = {
        "service": "dcgm", "unit": "nvidia-dcgm.service", "state": "inactive",
        "enabled": "disabled", "running": False,
    }  # fmt: skip
    again: dict[str, Scalar] = {"service": "slurmd", "state": "active", "running": True}
    lines = sheet([rows("services", off, again, dead, restarts_slurmd=4)])
    told = section(lines, "host")
    assert told[0] == (
        "service fabricmanager failed (exit-code), nvidia-fabricmanager.service enabled"
    )
    assert any("slurmd runs, restarted 4 times since boot" in line for line in told)
    assert any(line.endswith("1 service runs") for line in told)
    assert styles(lines, "fabricmanager failed") == {"key", "warn"}
    # Somebody switched it off: no alarm.
    assert styles(lines, "dcgm inactive") == {"key", "text"}


def test_tasks_in_d_state_have_their_owner_and_place() -> None:
    stuck: dict[str, Scalar] = {
        "kind": "sleeper", "pid": 4711, "comm": "python3", "user": "alice", "job": "381",
        "since_s": 421.0, "wchan": "rpc_wait_bit_killable", "cwd": "/data", "kernel": False,
    }  # fmt: skip
    told = section(
        sheet([rows("tasks", stuck, processes=900, uninterruptible=1, zombies=0)]), "host"
    )
    assert told[0] == ("D state python3 4711 alice job 381, 7m in rpc_wait_bit_killable, cwd /data")
    assert any("900 processes, 1 in D state" in line for line in told)


def test_a_clock_without_discipline_and_a_silent_name_server_come_first() -> None:
    told = section(
        sheet([
            sample("timesync", daemon="none", synchronised=False),
            sample("dns", own_name_s=0.002, own_name_found=True),
            sample("dns", "ns 192.0.2.53", answers=False, order=0),
            sample("dns", "ns 192.0.2.54", answers=True, order=1, answer_s=0.001),
        ]),
        "host",
    )  # fmt: skip
    assert told[0].startswith("clock   no time daemon, NOT synchronised")
    assert told[1] == "DNS     192.0.2.53 does not answer"
    assert "DNS     1 of 2 name servers answer, own name in 2 ms" in told


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({"mounted": True, "hung_s": 65.0}, "hung 65s"),
        ({"mounted": False}, "NOT MOUNTED"),
        ({"mounted": True, "error": "ESTALE"}, "answers ESTALE"),
        (
            {"mounted": True, "read_only": True, "kernel_stopped_writing": True},
            "READ-ONLY (kernel)",
        ),
    ],
)
def test_storage_with_trouble_comes_before_the_rest(values: dict[str, Scalar], state: str) -> None:
    broken = sample("storage", "/zzz", fstype="nfs4", source="192.0.2.9:/z", **values)
    told = section(sheet([broken]), "storage")
    assert "/zzz" in told[1]
    assert state in told[1]
    assert "writable" in told[2]


def test_storage_shows_use_and_dashes_for_what_is_unknown() -> None:
    bare = sample("storage", "/bare", fstype="ext4", mounted=True, read_only=False)
    told = section(sheet([bare]), "storage")
    root = next(line for line in told if line.startswith("  / "))
    assert root.split()[1:] == ["xfs", "40%", "600G", "1000G", "5%", "writable"]
    line = next(line for line in told if "/bare" in line)
    assert line.split()[1:] == ["ext4", "–", "–", "–", "–", "writable"]


def test_a_local_file_system_whose_call_hangs_says_so() -> None:
    hang = NodeStatus(
        node=NAME, at=NOW, state=NodeState.HUNG, probe="storage", device="/", text="statvfs /",
        since_s=40.0,
    )  # fmt: skip
    told = section(sheet([hang]), "storage")
    assert "hung 40s" in told[1]


def test_many_healthy_file_systems_are_folded() -> None:
    more = [sample("storage", f"/d{i:02}", mounted=True, read_only=False) for i in range(20)]
    told = section(sheet(more), "storage")
    assert told[-1].strip() == "and 14 more without trouble"
    assert len(told) == 10


def test_gpus_that_agree_on_the_fabric_are_one_line_and_an_odd_one_is_first() -> None:
    told = section(sheet([]), "NVLink")
    assert told == ["144 of 144 links up", "fabric  all GPUs completed, clique 0, health –"]
    odd = sample("fabric", pci(3), fabric_state=2, fabric_waiting_s=300.0)
    told = section(sheet([odd]), "NVLink")
    assert told[1] == "fabric  GPU3 in progress for 5m"
    assert "GPU0, GPU1, GPU2, GPU4" in told[2]


def test_memory_without_an_owner_belongs_to_nobody() -> None:
    left = sample(
        "processes", pci(5), unowned_bytes=40 << 30, last_job="812", last_user="alice",
        last_command="python train.py", last_seen_s=90.0,
    )  # fmt: skip
    told = section(sheet([left], width=140), "processes")
    assert told[1].split()[:4] == ["GPU5", "–", "nobody", "40.0G"]
    assert "last python train.py of alice, 90s ago" in told[1]
    little = sample("processes", pci(5), unowned_bytes=500 << 20)
    assert "nobody" not in "".join(section(sheet([little]), "processes"))


def test_processes_of_a_pod_show_the_pod() -> None:
    row: dict[str, Scalar] = {
        "gpu": pci(0), "pid": 7, "user": "root", "command": "python", "pod": "0a1b2c3d-77",
    }  # fmt: skip
    told = section(sheet([rows("processes", row)]), "processes")
    assert "POD" in told[0]
    assert "JOB" not in told[0]
    assert "0a1b2c3…" in told[1]


def test_activity_columns_are_dropped_whole() -> None:
    wide, narrow = section(sheet([], width=120), "GPUs"), section(sheet([], width=80), "GPUs")
    assert " TENS DRAM " in wide[0]
    assert " 54%  60% " in wide[1]
    assert "TENS" not in narrow[0]
    assert "DRAM" not in narrow[0]


def test_what_is_too_old_is_grey_and_says_how_old() -> None:
    later = NOW + 200.0
    lines = sheet(synthetic.fast(NAME, later), now=later)
    assert any(line_text(line).startswith("── storage (3m old)") for line in lines)
    assert styles(lines, "writable") == {"stale"}
    assert any(line_text(line).startswith("── GPUs ─") for line in lines)
    assert "services run (3m old)" in "\n".join(section(lines, "host"))


def test_kernel_lines_are_dated_by_the_nodes_own_clock() -> None:
    line = synthetic.xid(NAME, NOW, pci(3), 94, "Contained")
    told = section(sheet([line], now=NOW + 60.0), "kernel")
    assert told[0].startswith("  65s NVRM")


def test_the_header_names_the_other_findings() -> None:
    fleet = Fleet(synthetic.inventory(1), clock=lambda: NOW)
    events = synthetic.lost([*synthetic.slow(NAME, NOW), *synthetic.fast(NAME, NOW)], pci(3))
    for event in (*events, synthetic.xid(NAME, NOW, pci(3), 79, "GPU has fallen off the bus.")):
        fleet.apply(event)
    fleet.tick(NOW)
    lines = [line_text(line) for line in node_sheet(fleet, NAME, UNICODE, 80, NOW).lines]
    assert len(fleet.findings[NAME]) > 1
    assert any(line.startswith("also    ✗ GPU3: Xid 79") for line in lines[:8])


@pytest.mark.parametrize(
    ("say", "short"),
    [
        ("GPU4 at 0000:9d:00.0, slot SXM5 is lost (NVML 15)", "GPU4 is lost (NVML 15)"),
        ("GPU3 at 0000:4b:00.0 is lost (NVML 15)", "GPU3 is lost (NVML 15)"),
        ("/scratch (xfs on /dev/md0) is read-only", "/scratch is read-only"),
        ("/data (nfs4 from 192.0.2.40:/data) answers ESTALE", "/data answers ESTALE"),
        ("clock 73 s behind of the bastion", "clock 73 s behind of the bastion"),
    ],
)
def test_a_narrow_line_names_the_fault(say: str, short: str) -> None:
    assert summary.brief(say) == short


def outcome(*steps: Step) -> list[str]:
    fleet = Fleet(synthetic.inventory(2), clock=lambda: NOW)
    plan = Plan(verb="drain", nodes=("gpu001", "gpu002"), reason="r", commands=())
    return [line_text(line) for line in outcome_lines(plan, steps, fleet, UNICODE, 60, over=True)]


def test_evidence_is_named_after_the_drain_and_its_failure_too() -> None:
    told = outcome(
        Step(node="gpu001", at=NOW, phase="evidence", ok=True, detail="/s/e/gpu001-1.tar.gz"),
        Step(node="gpu002", at=NOW, phase="evidence", ok=False, detail="not kept: disk full"),
        Step(node="gpu001", at=NOW, phase="done", ok=True),
        Step(node="gpu002", at=NOW, phase="done", ok=True),
    )
    assert "      evidence gpu001-1.tar.gz" in told
    assert "      evidence not kept: disk full" in told
    assert told[-1] == "      evidence is in /s/e"
    assert sum(line.startswith("✓") for line in told) == 2


def test_the_work_that_the_power_buys_is_told_as_an_estimate() -> None:
    told = section(sheet([]), "GPUs")
    (line,) = [line for line in told if "HFU-est" in line]
    assert line.startswith("work    HFU-est ")
    assert line.endswith("(estimate)")
    share, per_w, kw = (float(word) for word in re.findall(r" ([0-9.]+) (?:%|TFLOPS|kW)", line))
    assert 0 < share <= 54  # tensor-active time, at a clock below that of the peak
    assert per_w * kw == pytest.approx(8 * share / 100 * 0.989, rel=0.05)  # PFLOPS of 8 H100
    blind = [sample("gpm", pci(i)) for i in range(8)]
    assert not any("HFU" in line for line in section(sheet(blind), "GPUs"))


def test_gpus_that_idle_in_a_job_are_told_with_what_they_burn() -> None:
    def idle(seconds: float) -> list[str]:
        owners: list[dict[str, Scalar]] = [{"gpu": pci(i), "pid": 9, "job": "812"} for i in (0, 1)]
        readings: list[Event] = [
            sample("gpu", pci(i), index=i, util_percent=0, power_w=90.0, idle_s=seconds)
            for i in (0, 1)
        ]
        lines = section(sheet([rows("processes", *owners), *readings]), "GPUs")
        return [line for line in lines if line.startswith("idle")]

    said = "job 812 burns 180 W on GPU0, GPU1, without work for over 10 min"
    assert idle(900.0) == [f"idle    {said}"]
    assert idle(500.0) == []
