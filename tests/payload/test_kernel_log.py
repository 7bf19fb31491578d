"""Following the kernel log: what is there, what comes, what is lost, what may not be read."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from probes.node import kernel_log, kernel_readers
from probes.node.context import Context
from tests.payload.rig import WAIT_S, AgentProcess, config, gone, kind, sample

XID = "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def kmsg(tmp_path: Path) -> Path:
    """A simulated node's /dev/kmsg with one line of interest, its dictionary, and one of none."""
    path = tmp_path / "dev" / "kmsg"
    path.parent.mkdir()
    path.write_text(
        f"3,1201,9103456789,-;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:43:00.0\n"
        "6,1202,9103456790,-;usb 1-1: new high-speed USB device\n"
    )
    return path


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_recent_lines_then_new_ones(node_python: str, kmsg: Path, tmp_path: Path) -> None:
    settings = config("kernel_log", root=str(tmp_path))
    with AgentProcess(settings, python=node_python) as agent:
        first = agent.wait_for(sample("kernel_log"))
        assert first["r"] == [{"mono": 9103.456789, "text": XID, "prio": 3, "src": "kmsg"}]
        assert first["d"][""] == {"source": "kmsg", "readable": True, "lost": 0}
        add(kmsg, "4,1203,9104000000,-;mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN\n")
        add(kmsg, "6,1204,9104000001,-;nothing of interest\n")
        second = agent.wait_for(sample("kernel_log"), after=len(agent.frames))
        assert [row["text"] for row in second["r"]] == [
            "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"
        ]


def test_an_empty_log_is_an_answer_too(kmsg: Path, tmp_path: Path) -> None:
    """Else a node whose log was cleared would look for ever as one that was not checked."""
    kmsg.write_text("")
    with AgentProcess(config("kernel_log", root=str(tmp_path))) as agent:
        first = agent.wait_for(sample("kernel_log"))
        assert (first.get("r", []), first["d"][""]["readable"]) == ([], True)
        add(kmsg, f"3,1,1000000,-;{XID}\n")
        rows = agent.wait_for(sample("kernel_log"), after=len(agent.frames))["r"]
        assert [row["text"] for row in rows] == [XID]


def test_half_lines_wait_and_a_new_file_is_read_from_its_start(kmsg: Path, tmp_path: Path) -> None:
    with AgentProcess(config("kernel_log", root=str(tmp_path))) as agent:
        agent.wait_for(sample("kernel_log"))
        add(kmsg, "3,1203,9104000000,-;NVRM: Xid (PCI:0000:1b:00): ")
        add(kmsg, "94, pid=4021\n")
        rows = agent.wait_for(sample("kernel_log"), after=2)["r"]
        assert [row["text"] for row in rows] == ["NVRM: Xid (PCI:0000:1b:00): 94, pid=4021"]
        seen = len(agent.frames)
        fresh = kmsg.with_name("kmsg.new")
        fresh.write_text("3,1,1000000,-;NVRM: after a reboot\n")
        os.replace(fresh, kmsg)
        rows = agent.wait_for(sample("kernel_log"), after=seen)["r"]
        assert [row["text"] for row in rows] == ["NVRM: after a reboot"]


def test_a_gap_in_the_numbers_is_counted_as_lost(kmsg: Path, tmp_path: Path) -> None:
    with AgentProcess(config("kernel_log", root=str(tmp_path))) as agent:
        agent.wait_for(sample("kernel_log"))
        add(kmsg, "3,1210,9104000000,-;NVRM: later\n")
        said = agent.wait_for(sample("kernel_log"), after=2)
    assert said["d"][""]["lost"] == 7


def test_a_flood_is_cut_and_counted(kmsg: Path, tmp_path: Path) -> None:
    with AgentProcess(config("kernel_log", root=str(tmp_path))) as agent:
        agent.wait_for(sample("kernel_log"))
        flood = "".join(f"4,{1203 + n},9104{n:06d},-;AER: corrected {n}\n" for n in range(5000))
        add(kmsg, flood + "3,6203,9105000000,-;NVRM: the last\n")
        said = agent.collect(
            lambda found: any("the last" in r["text"] for f in found for r in f.get("r", []))
        )
    frames = [frame for frame in said if sample("kernel_log")(frame)]
    assert max(len(frame["r"]) for frame in frames) <= kernel_log.RECENT
    sent = sum(len(frame["r"]) for frame in frames[1:])
    assert sent + frames[-1]["d"][""]["lost"] == 5001


def test_text_is_capped_and_plain(kmsg: Path, tmp_path: Path) -> None:
    add(kmsg, "3,1203,1,-;NVRM: \x1b[31mred\x07 " + "x" * 5000 + "\n")
    with AgentProcess(config("kernel_log", root=str(tmp_path), mode="pass")) as agent:
        row = agent.wait_for(sample("kernel_log"))["r"][-1]
    assert row["text"].startswith("NVRM:  [31mred  xxx")
    assert len(row["text"]) == kernel_log.TEXT_CHARS


def test_a_log_that_cannot_be_read_is_said_to_be_so(node_python: str, tmp_path: Path) -> None:
    settings = config("kernel_log", root=str(tmp_path), mode="pass")
    with AgentProcess(settings, python=node_python) as agent:
        hello = agent.wait_for(kind("hello"))
        said = agent.wait_for(sample("kernel_log"))
    assert "dmesg_restrict" in hello["missing"]["kernel_log"]
    assert said["d"] == {"": {"readable": False}}
    assert "r" not in said


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg is not readable here")
def test_the_real_kernel_log_is_followed() -> None:
    with AgentProcess(config("kernel_log")) as agent:
        assert agent.wait_for(sample("kernel_log"))["d"][""]["source"] == "kmsg"
        if os.access("/dev/kmsg", os.W_OK):
            marker = f"gpuconsole test {os.getpid()} nvidia"
            Path("/dev/kmsg").write_text(f"<6>{marker}\n")
            said = agent.collect(
                lambda found: any(marker in r["text"] for f in found for r in f.get("r", []))
            )
            assert said[-1]["d"][""]["readable"] is True


@pytest.mark.parametrize(
    ("source", "printed", "row"),
    [
        ("dmesg", f"<3>[ 9103.456789] {XID}", {"mono": 9103.456789, "prio": 3, "src": "dmesg"}),
        ("dmesg", f"<27>[   12.000001] {XID}", {"mono": 12.000001, "prio": 3, "src": "dmesg"}),
        (
            "journal",
            f"[ 9103.456789] gpu-a01.cluster-x.example kernel: {XID}",
            {"mono": 9103.456789, "src": "journal"},
        ),
    ],
)
def test_programs_are_read_when_the_device_may_not_be(
    source: str,
    printed: str,
    row: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / kernel_readers.COMMANDS[source][0][0]
    more = tmp_path / "more"
    os.mkfifo(more)
    program.write_text(
        "#!/bin/sh\ncase \" $* \" in *' -1 '*) exit;; esac\n"
        f"echo \"{printed}\"\ncase \" $* \" in *' -w '*|*' -f '*) cat '{more}';; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(kernel_readers, "ANSWER_S", 60.0)
    ctx = Context("/")
    ctx.memory(kernel_log.NAME)["source"] = source
    assert kernel_log.collect(ctx)[1] == [{"text": XID, **row}]
    rows: list[dict[str, Any]] = []
    came = threading.Event()

    def emit(devices: object, new: list[dict[str, Any]]) -> None:
        rows.extend(new)
        if any("second" in one["text"] for one in rows):
            came.set()

    thread = threading.Thread(target=kernel_log.follow, args=(ctx, emit))
    thread.start()
    more.write_text(printed.replace("Xid", "Xid second") + "\n")
    thread.join(WAIT_S)
    assert came.is_set()
    assert not thread.is_alive()


@pytest.fixture
def hanging_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journalctl that prints what the file "say" holds and then hangs; its pid is in "pid"."""
    program = tmp_path / "journalctl"
    program.write_text(
        "#!/bin/sh\ncase \" $* \" in *' -1 '*) exit;; esac\n"
        f"echo $$ > {tmp_path}/pid\ncat {tmp_path}/say 2>/dev/null\nexec sleep 600\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(kernel_readers, "ANSWER_S", 8.0)
    return tmp_path


def test_a_journal_that_hangs_is_passed_over_and_killed(hanging_journal: Path) -> None:
    assert not kernel_readers._prints(kernel_readers.COMMANDS["journal"][0])
    assert gone(int((hanging_journal / "pid").read_text()))


def test_a_journal_that_hangs_half_way_is_not_read_although_its_lines_count(
    hanging_journal: Path,
) -> None:
    (hanging_journal / "say").write_text(f"[ 9103.456789] gpu-a01 kernel: {XID}\n")
    ctx = Context("/")
    ctx.memory(kernel_log.NAME)["source"] = "journal"
    devices, rows = kernel_log.collect(ctx)
    assert devices[""]["readable"] is False
    assert rows == [{"mono": 9103.456789, "text": XID, "src": "journal"}]
    assert gone(int((hanging_journal / "pid").read_text()))


def line(text: str, mono: float = 1.0) -> kernel_readers.Line:
    return kernel_readers.Line(mono, 4, text)


def test_a_flood_of_one_family_leaves_room_for_the_others() -> None:
    recent = kernel_log.Recent()
    recent.add(line(XID, 1.0))
    recent.add(line("watchdog: Watchdog detected hard LOCKUP on cpu 12", 2.0))
    for number in range(5000):
        recent.add(line("nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected", 3.0 + number))
    recent.add(line("nothing of interest", 9000.0))
    rows = recent.take("kmsg")
    assert len(rows) == kernel_log.RECENT
    assert [row["text"] for row in rows[:2]] == [
        XID, "watchdog: Watchdog detected hard LOCKUP on cpu 12",
    ]  # fmt: skip
    order = [float(str(row["mono"])) for row in rows]
    assert order == sorted(order)
    assert recent.cut == 5002 - kernel_log.RECENT


@pytest.fixture
def journal_of_two_boots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journalctl that tells one thing of this boot and another of the boot before it."""
    program = tmp_path / "journalctl"
    program.write_text(
        "#!/bin/sh\ncase \" $* \" in *' -1 '*)\n"
        f'echo "[812345.000001] gpu-a01 kernel: {XID}"\n'
        "echo '[812346.000001] gpu-a01 kernel: usb 1-1: nothing'; exit;; esac\n"
        "echo '[   12.000001] gpu-a01 kernel: NVRM: loading'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("ANSWER_S", "BEFORE_S"):
        monkeypatch.setattr(kernel_readers, name, 60.0)
    return tmp_path


def test_the_end_of_the_boot_before_is_told_once_and_as_such(journal_of_two_boots: Path) -> None:
    ctx = Context("/")
    ctx.memory(kernel_log.NAME)["source"] = "journal"
    rows = kernel_log.collect(ctx)[1]
    assert rows == [
        {"mono": 812345.000001, "text": XID, "src": "journal", "boot": -1},
        {"mono": 12.000001, "text": "NVRM: loading", "src": "journal"},
    ]
    assert [row.get("boot") for row in kernel_log.collect(ctx)[1]] == [None]


def test_the_journal_of_this_machine_says_nothing_about_another_root(
    journal_of_two_boots: Path, kmsg: Path, tmp_path: Path
) -> None:
    assert [row.get("boot") for row in kernel_log.collect(Context(str(tmp_path)))[1]] == [None]


def test_names_of_crash_dumps_are_told_and_a_closed_folder_is_absent(
    kmsg: Path, tmp_path: Path
) -> None:
    ctx = Context(str(tmp_path))
    assert "crash_dumps" not in kernel_log.collect(ctx)[0][""]
    pstore = tmp_path / "sys" / "fs" / "pstore"
    pstore.mkdir(parents=True)
    assert kernel_log.collect(ctx)[0][""]["crash_dumps"] == 0
    for name in ("dmesg-efi-1", "dmesg-efi-2", "console-ramoops-0"):
        (pstore / name).write_text("")
    values = kernel_log.collect(ctx)[0][""]
    assert (values["crash_dumps"], values["crash_dump"]) == (2, "dmesg-efi-2")
