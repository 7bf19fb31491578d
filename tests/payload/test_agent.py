"""The agent as nodes run it: real loader, real interpreters from 3.6 to 3.13, pipes."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from inventory.node import Node
from probes import catalog
from probes.node import frames
from tests.payload.rig import WAIT_S, AgentProcess, alive, config, gone, kind, probe, sample, until

SHIM = Path(__file__).parents[2] / "console" / "demo" / "nvml" / "shim.py"

COUNTING = probe("""
def collect(ctx):
    seen = ctx.memory(NAME)
    seen["n"] = seen.get("n", 0) + 1
    return {"a": {"n": seen["n"]}}, []
""")

HANGING = probe(
    """
import os, threading
def collect(ctx):
    devices = {}
    for device in ("0000:1b:00.0", "0000:43:00.0"):
        try:
            with ctx.busy("nvmlDeviceGetPowerUsage", device):
                while device.startswith("0000:1b") and not os.path.exists(ctx.path("free")):
                    threading.Event().wait(0.02)
                devices[device] = {"power_w": 1.0}
        except Exception as error:
            if type(error).__name__ != "Stuck":
                raise
    return devices, []
""",
    name="hanging",
)


@pytest.mark.parametrize("only", [None, ["host", "agent"]])
def test_a_pass_says_hello_every_probe_and_end(node_python: str, only: list[str] | None) -> None:
    settings = config(mode="pass", window_s=0.05, deadline_s=30.0)
    settings.probes = only
    with AgentProcess(settings, python=node_python) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
    hello = said[0]
    assert hello["k"] == "hello"
    assert said[-1]["k"] == "end"
    assert agent.noise == []
    assert sorted(hello["caps"]) == sorted(only or catalog.PROBES)
    assert {frame["p"] for frame in said if frame["k"] == "s"} == set(hello["caps"])
    assert hello["uid"] == os.getuid()
    assert hello["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert hello["python"].startswith(("3.6", "3.8", "3.11", "3.13"))
    assert abs(hello["wall"] - hello["boot_wall"] - hello["mono"]) < 60


def test_counters_are_asked_twice_in_a_pass_and_gauges_once(node_python: str) -> None:
    counter = COUNTING.replace("'testing'", "'twice'").replace("COUNTERS=False", "COUNTERS=True")
    settings = config(mode="pass", window_s=0.05, extra={"testing": COUNTING, "twice": counter})
    with AgentProcess(settings, python=node_python) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
    assert [frame["d"]["a"]["n"] for frame in said if sample("testing")(frame)] == [1]
    first, second = (frame for frame in said if sample("twice")(frame))
    assert second["t"] - first["t"] >= 0.05


def test_watch_ticks_until_stdin_ends(node_python: str) -> None:
    with AgentProcess(config(extra={"testing": COUNTING}, fast_s=0.2), python=node_python) as agent:
        agent.wait_for(lambda frame: sample("testing")(frame) and frame["d"]["a"]["n"] >= 3)
        agent.close()
        assert agent.finish() == 0
    assert agent.errors == b""


def test_intervals_change_on_order(node_python: str) -> None:
    with AgentProcess(
        config(extra={"testing": COUNTING}, fast_s=3600), python=node_python
    ) as agent:
        agent.wait_for(sample("testing"))
        agent.order(op="intervals", fast_s=0.2)
        agent.wait_for(lambda frame: sample("testing")(frame) and frame["d"]["a"]["n"] >= 3)


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n", b"[]\n", b"null\n", b"{}\n", b'{"op":"dance"}\n', b"\xff\xfe\n", b'"run"\n',
        b'{"op":"intervals","fast_s":0}\n', b'{"op":"intervals","fast_s":"x"}\n',
        b'{"op":"run","id":"1"}\n', b'{"op":"run","id":"1","what":"nccl","args":7}\n',
        b"x" * 200_000 + b"\n",
    ],
)  # fmt: skip
def test_a_control_line_that_is_not_understood_is_named_and_ignored(line: bytes) -> None:
    with AgentProcess(config(extra={"testing": COUNTING}, fast_s=0.2)) as agent:
        agent.wait_for(kind("hello"))
        agent.write(line)
        after = len(agent.collect(lambda found: any(map(kind("err", p="agent"), found))))
        agent.wait_for(sample("testing"), after)
        agent.order(op="run", id="7", what="juggling")
        agent.wait_for(kind("job", id="7", state="refused"))


def test_a_probe_that_raises_costs_itself_and_shows_its_source(node_python: str) -> None:
    broken = probe("def collect(ctx):\n    return {}['no such key']\n", name="broken")
    settings = config(mode="pass", extra={"broken": broken, "testing": COUNTING})
    with AgentProcess(settings, python=node_python) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        agent.finish()
    error = next(filter(kind("err", p="broken"), said))
    assert "KeyError" in error["text"]
    assert "return {}['no such key']" in error["text"]
    assert "site_broken.py" in error["text"]
    assert b"return {}['no such key']" in agent.errors
    assert any(map(sample("testing"), said))


def test_a_probe_that_cannot_be_imported_costs_itself(node_python: str) -> None:
    settings = config(mode="pass", extra={"broken": "import nowhere_at_all\n", "testing": COUNTING})
    settings.probes = [*(settings.probes or []), "unheard-of"]
    with AgentProcess(settings, python=node_python) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
    assert said[0]["caps"] == ["testing"]
    assert "nowhere_at_all" in next(filter(kind("err", p="broken"), said))["text"]
    assert any(map(kind("err", p="unheard-of"), said))
    assert any(map(sample("testing"), said))


def test_a_hung_call_costs_one_device_and_recovers(node_python: str, tmp_path: Path) -> None:
    settings = config(
        extra={"hanging": HANGING, "testing": COUNTING},
        fast_s=0.2, deadline_s=3.0, root=str(tmp_path),
    )  # fmt: skip
    with AgentProcess(settings, python=node_python) as agent:
        agent.wait_for(lambda frame: sample("testing")(frame) and frame["d"]["a"]["n"] >= 2)
        hung = agent.wait_for(kind("hung", p="hanging"))
        assert hung["dev"] == "0000:1b:00.0"
        assert hung["call"] == "nvmlDeviceGetPowerUsage"
        assert hung["t"] - hung["since"] >= 3.0
        others = agent.wait_for(sample("hanging"))
        assert set(others["d"]) == {"0000:43:00.0"}
        assert "gone" not in others
        (tmp_path / "free").touch()
        agent.wait_for(kind("unhung", p="hanging", dev="0000:1b:00.0"))
        agent.wait_for(lambda frame: sample("hanging")(frame) and len(frame["d"]) == 2)


def test_a_rare_answer_that_is_not_complete_is_asked_for_again_soon(tmp_path: Path) -> None:
    settings = config(
        extra={"hanging": HANGING.replace("'fast'", "'rare'")},
        slow_s=0.2, rare_s=3600.0, deadline_s=3.0, root=str(tmp_path),
    )  # fmt: skip
    with AgentProcess(settings) as agent:
        part = agent.wait_for(sample("hanging"))
        assert set(part["d"]) == {"0000:43:00.0"}
        (tmp_path / "free").touch()
        agent.wait_for(lambda frame: sample("hanging")(frame) and len(frame["d"]) == 2)


def test_a_hung_call_does_not_delay_the_end_of_a_pass(tmp_path: Path) -> None:
    settings = config(
        mode="pass", extra={"hanging": HANGING, "testing": COUNTING},
        deadline_s=3.0, root=str(tmp_path),
    )  # fmt: skip
    with AgentProcess(settings) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
    assert any(map(kind("hung", p="hanging", dev="0000:1b:00.0"), said))
    assert {frame["p"] for frame in said if frame["k"] == "hung"} == {"hanging"}
    assert [set(f["d"]) for f in said if sample("hanging")(f)] == [{"0000:43:00.0"}]


def test_a_probe_stuck_in_its_own_code_is_hung_without_a_second_thread(tmp_path: Path) -> None:
    stuck = probe(
        """
import os, threading
def collect(ctx):
    threads = ctx.memory(NAME).setdefault("threads", set())
    threads.add(threading.get_ident())
    while not os.path.exists(ctx.path("free")):
        threading.Event().wait(0.02)
    return {"": {"threads": len(threads)}}, []
""",
        name="stuck",
    )
    settings = config(extra={"stuck": stuck}, fast_s=0.2, deadline_s=3.0, root=str(tmp_path))
    with AgentProcess(settings) as agent:
        assert agent.wait_for(kind("hung", p="stuck"))["dev"] == ""
        (tmp_path / "free").touch()
        agent.wait_for(kind("unhung", p="stuck"))
        assert agent.wait_for(sample("stuck"))["d"] == {"": {"threads": 1}}


def test_a_device_that_vanishes_is_gone_once() -> None:
    vanishing = probe("""
def collect(ctx):
    seen = ctx.memory(NAME)
    seen["n"] = seen.get("n", 0) + 1
    return {name: {"n": seen["n"]} for name in (("a", "b") if seen["n"] < 2 else ("a",))}, []
""")
    with AgentProcess(config(extra={"testing": vanishing}, fast_s=0.2)) as agent:
        said = agent.collect(lambda found: sum(map(sample("testing"), found)) >= 3)
    assert [frame.get("gone") for frame in said if sample("testing")(frame)][:3] == [
        None, ["b"], None,
    ]  # fmt: skip


def test_eof_ends_agent_and_children(node_python: str) -> None:
    parent = probe(
        """
import subprocess, sys
def collect(ctx):
    seen = ctx.memory(NAME)
    if "pids" not in seen:
        code = ("import os,signal,subprocess,sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
                "p=subprocess.Popen([sys.executable,'-c','import time;time.sleep(600)'],"
                "start_new_session=True); print(os.getpid(), p.pid, flush=True); p.wait()")
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        seen["pids"] = [int(pid) for pid in child.stdout.readline().split()]
    return {"": {}}, [{"pid": pid} for pid in seen["pids"]]
""",
        name="parent",
    )
    with AgentProcess(config(extra={"parent": parent}), python=node_python) as agent:
        rows = agent.wait_for(sample("parent"))["r"]
        pids = [row["pid"] for row in rows]
        assert len(pids) == 2
        assert all(map(alive, pids))
        agent.close()
        assert agent.finish() == 0
        assert gone(*pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_agent(number: signal.Signals) -> None:
    with AgentProcess(config(extra={"testing": COUNTING})) as agent:
        pid = agent.wait_for(kind("hello"))["pid"]
        os.kill(pid, number)
        assert agent.finish() == 128 + number


def test_eof_ends_the_agent_while_a_call_hangs(tmp_path: Path) -> None:
    settings = config(extra={"hanging": HANGING}, deadline_s=3.0, root=str(tmp_path))
    with AgentProcess(settings) as agent:
        agent.wait_for(kind("hung"))
        agent.close()
        assert agent.finish() == 0


def test_the_agent_leaves_when_nobody_reads_any_more() -> None:
    with AgentProcess(config(extra={"testing": COUNTING}, fast_s=0.2), read=False) as agent:
        assert agent.process.stdout is not None
        agent.process.stdout.read(1)
        agent.process.stdout.close()
        assert agent.process.wait(WAIT_S) == 0
        agent.process.stdout = open(os.devnull, "rb")  # noqa: SIM115 (closed by the rig)


def test_ticks_are_skipped_and_counted_while_stdout_blocks() -> None:
    wordy = probe("""
def collect(ctx):
    seen = ctx.memory(NAME)
    seen["n"] = seen.get("n", 0) + 1
    return {"a": {"n": seen["n"], "text": "x" * 100000}}, []
""")
    settings = config("agent", extra={"testing": wordy}, fast_s=0.2, slow_s=0.2)
    with AgentProcess(settings, read=False) as agent:
        ticks = Path(f"/proc/{agent.process.pid}/status")
        assert until(lambda: "writer" in _threads(agent.process.pid) or not ticks.exists())
        assert until(lambda: _blocked(agent.process.pid))
        # the pipe is full: let at least five more ticks pass before reading on
        before = _switches(agent.process.pid)
        assert until(lambda: _switches(agent.process.pid) > before + 40)
        agent.start_reading()
        said = agent.wait_for(lambda f: sample("agent")(f) and f["d"][""]["skipped_ticks"] > 0)
    assert said["d"][""]["dropped_frames"] == 0


def _threads(pid: int) -> list[str]:
    """Thread names are not set before 3.14, so their number is what can be seen."""
    return ["writer"] * (len(os.listdir(f"/proc/{pid}/task")) > 3)


def _blocked(pid: int) -> bool:
    """Whether some thread waits for room in a pipe."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if "pipe_w" in (task / "wchan").read_text() or _in_write(task):
            return True
    return False


def _in_write(task: Path) -> bool:
    """By the system call's number where wait channels are hidden: 1 is write on x86-64."""
    fields = (task / "syscall").read_text().split()
    return fields[:2] in (["1", "0x1"], ["64", "0x1"])


def _switches(pid: int) -> int:
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def test_no_frame_is_longer_than_the_cap() -> None:
    huge = probe("""
def collect(ctx):
    return {"": {}}, [{"text": "x" * 1000, "n": n} for n in range(10000)]
""")
    vast = probe("def collect(ctx):\n    return {'': {'t': 'x' * 10000000}}, []\n", name="vast")
    settings = config(mode="pass", extra={"testing": huge, "vast": vast}, deadline_s=20)
    with AgentProcess(settings) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        agent.finish()
    assert agent.longest <= frames.FRAME_BYTES
    kept = next(filter(sample("testing"), said))
    assert kept["cut"] + len(kept["r"]) == 10000
    assert any(map(kind("err", p="vast"), said))


def test_text_that_is_not_unicode_or_not_finite_still_makes_frames() -> None:
    odd = probe("""
def collect(ctx):
    values = {"t": b"a\\xff\\n".decode("utf-8", "surrogateescape"), "x": float("nan"), "y": 1.5}
    return {"": values}, [{"z": float("inf"), "n": 1}]
""")
    with AgentProcess(config(mode="pass", extra={"testing": odd})) as agent:
        said = agent.wait_for(sample("testing"))
    assert said["d"] == {"": {"t": "a?\n", "y": 1.5}}
    assert said["r"] == [{"n": 1}]


def test_nothing_is_needed_of_the_current_folder_or_the_environment(
    node_python: str, tmp_path: Path
) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    env = {"PATH": os.environ["PATH"]}
    settings = config("host", mode="pass", window_s=0.05)
    before = sorted(tmp_path.iterdir())
    with AgentProcess(settings, python=node_python, env=env, cwd=tmp_path) as agent:
        agent.wait_for(kind("end"))
        assert agent.finish() == 0
    assert sorted(tmp_path.iterdir()) == before


def test_the_agent_runs_at_low_priority_from_the_root_folder() -> None:
    where = probe("""
import json
import os
def collect(ctx):
    return {"": {"nice": os.nice(0), "cwd": os.getcwd()}}, []
""")
    mine = os.nice(0)
    with AgentProcess(config(mode="pass", extra={"testing": where})) as agent:
        said = agent.wait_for(sample("testing"))
    assert said["d"][""] == {"nice": min(19, mine + 10), "cwd": "/"}


def test_the_binding_is_not_even_compiled_without_a_library() -> None:
    modules = probe("""
import sys
def collect(ctx):
    try:
        ctx.nvml.gpus()
    except Exception as error:
        assert error.rc == 12, error
    return {"": {"pynvml": "pynvml" in sys.modules}}, []
""")
    with AgentProcess(config(mode="pass", extra={"testing": modules})) as agent:
        assert agent.wait_for(sample("testing"))["d"][""] == {"pynvml": False}


def test_gone_waits(tmp_path: Path) -> None:
    assert not alive(2**22 + 1)
    assert gone(2**22 + 1)


def simulated(
    folder: Path, gpus: list[dict[str, object]], interpreter: str = sys.executable
) -> Node:
    """A node whose interpreter sees these GPUs through the simulated library."""
    (folder / "nvml.json").write_text(json.dumps({"gpus": gpus}))
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec {interpreter} {SHIM} {folder} "$@"\n')
    python.chmod(0o755)
    return Node(name="n", python=str(python))


def test_a_gpu_that_hangs_hides_none_of_the_other_seven(tmp_path: Path) -> None:
    gpus: list[dict[str, object]] = [{"pci": f"0000:{bus:02x}:00.0"} for bus in range(1, 9)]
    gpus[2]["hang"] = {"nvmlDeviceGetPowerUsage": 3600}
    settings = config("gpu", "ecc", "host", mode="pass", deadline_s=3.0, window_s=0.05)
    with AgentProcess(settings, node=simulated(tmp_path, gpus)) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
    hung = [(f["p"], f["dev"], f["call"]) for f in said if f["k"] == "hung"]
    assert set(hung) == {("gpu", "0000:03:00.0", "nvmlDeviceGetPowerUsage")}
    others = {f"0000:{bus:02x}:00.0" for bus in (1, 2, 4, 5, 6, 7, 8)}
    answered = {n: [set(f["d"]) for f in said if sample(n)(f)] for n in ("gpu", "ecc")}
    assert answered["gpu"] == [others, others]  # it holds counters: two answers in a pass
    assert len(answered["ecc"]) == 2
    assert all(one >= others for one in answered["ecc"])  # it may have asked before the hang
    assert not any(f.get("gone") for f in said)


PEEK = probe(
    """
import sys
def collect(ctx):
    try:
        sys.modules["pynvml"].nvmlDeviceGetCount()
    except Exception as error:
        return {"": {"rc": getattr(error, "value", -1)}}, []
    return {"": {"rc": 0}}, []
""",
    name="peek",
)
"""Asks NVML behind the agent's back whether it is initialised: 1 is UNINITIALIZED."""


def test_nvml_closes_for_a_reset_and_opens_again(node_python: str, tmp_path: Path) -> None:
    node = simulated(tmp_path, [{"pci": "0000:01:00.0"}, {"pci": "0000:02:00.0"}], node_python)
    quick = {"fast_s": 0.2, "rare_s": 0.2}
    settings = config("gpu", "inventory", extra={"peek": PEEK}, deadline_s=30.0, **quick)
    with AgentProcess(settings, node=node) as agent:
        for name in ("gpu", "inventory"):
            agent.wait_for(sample(name))
        agent.order(op="nvml", id="1", open=False)
        agent.wait_for(kind("job", id="1", state="done"))
        closed = len(agent.frames)
        agent.collect(lambda found: len(list(filter(sample("peek"), found[closed:]))) >= 4)
        agent.order(op="nvml", id="2", open=True)
        agent.wait_for(kind("job", id="2", state="done"))
        opened = len(agent.frames)
        said = agent.collect(lambda found: any(map(sample("gpu"), found[opened:])))
    peeks = [f["d"][""]["rc"] for f in said[closed:] if sample("peek")(f)]
    assert peeks[1:4] == [1, 1, 1], "the first may have looked before"
    assert not any(f.get("gone") for f in said)
    assert not any(f["k"] in ("err", "hung") for f in said)


def test_nvml_does_not_close_around_a_call_in_flight(tmp_path: Path) -> None:
    node = simulated(tmp_path, [{"pci": "0000:01:00.0", "hang": {"nvmlDeviceGetPowerUsage": 3600}}])
    settings = config("gpu", "pcie", fast_s=0.2, slow_s=0.2, deadline_s=3.0)
    with AgentProcess(settings, node=node) as agent:
        agent.wait_for(kind("hung"))
        agent.order(op="nvml", id="1", open=False)
        assert "in flight" in agent.wait_for(kind("job", id="1", state="failed"))["text"]
        agent.order(op="nvml", id="2", open="yes")
        agent.wait_for(kind("err", p="agent"))


def test_two_hung_gpus_stop_all_calls_to_the_driver(tmp_path: Path) -> None:
    gpus: list[dict[str, object]] = [{"pci": f"0000:{bus:02x}:00.0"} for bus in range(1, 9)]
    gpus[2]["hang"] = gpus[5]["hang"] = {"nvmlDeviceGetPowerUsage": 3600}
    settings = config("gpu", "host", mode="pass", deadline_s=3.0, window_s=0.05)
    with AgentProcess(settings, node=simulated(tmp_path, gpus)) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
    assert {f["dev"] for f in said if f["k"] == "hung"} == {"0000:03:00.0", "0000:06:00.0"}
    assert not any(f.get("gone") for f in said)
    assert any(map(sample("host"), said))
