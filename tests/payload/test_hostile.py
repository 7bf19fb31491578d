"""Nodes that lack what a program takes for granted: descriptors, memory, /proc, a locale."""

from __future__ import annotations

import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from inventory.node import Node
from probes import bundle, catalog
from tests.conftest import Lab
from tests.payload.rig import AgentProcess, alive, config, gone, kind, probe, sample, until

RAISING = probe("def collect(ctx):\n    raise OSError('broken')\n", name="raising")

PARENT = probe(
    """
import subprocess
def collect(ctx):
    seen = ctx.memory(NAME)
    if not seen:
        seen["pid"] = subprocess.Popen(["sleep", "600"]).pid
    return {"": dict(seen)}, []
""",
    name="parent",
)


def wrapped(folder: Path, before: str, python: str, after: str = "") -> Node:
    """A node whose interpreter is started by a shell that does something before."""
    script = folder / "python3"
    script.write_text(f'#!/bin/sh\n{before}\nexec {shlex.quote(python)} "$@" {after}\n')
    script.chmod(stat.S_IRWXU)
    return Node(name="n", python=str(script))


def test_without_stdout_nothing_is_started(node_python: str) -> None:
    settings = config("host")
    done = subprocess.run(
        ["sh", "-c", bundle.remote_command(Node(name="n", python=node_python)) + " >&-"],
        input=bundle.payload(settings), stderr=subprocess.PIPE, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == b"gpuconsole: stdout is closed\n"


def test_without_stderr_a_failing_probe_still_costs_only_itself(
    node_python: str, tmp_path: Path
) -> None:
    settings = config("host", mode="pass", window_s=0.05, extra={"raising": RAISING})
    with AgentProcess(settings, node=wrapped(tmp_path, "", node_python, "2>&-")) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
    assert len(list(filter(kind("err", p="raising"), said))) == 1
    assert len(list(filter(sample("host"), said))) == 2
    assert agent.noise == []


def test_an_agent_that_cannot_even_start_says_why() -> None:
    """Its config names an interval that no arithmetic can use."""
    broken = config("host")
    broken.fast_s = "two"  # type: ignore[assignment]
    with AgentProcess(broken) as agent:
        assert agent.finish() == 1
    assert b"not a number: 'two'" in agent.errors


@pytest.mark.parametrize("limit_kb", [400_000, 250_000, 120_000])
def test_little_address_space(node_python: str, tmp_path: Path, limit_kb: int) -> None:
    """It runs whole, or says which probe it had no thread or memory for; never silence."""
    settings = config(*catalog.PROBES, mode="pass", window_s=0.05, deadline_s=30.0)
    node = wrapped(tmp_path, f"ulimit -v {limit_kb}", node_python)
    with AgentProcess(settings, node=node) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
    accounted = {frame["p"] for frame in said if frame["k"] in ("s", "err")}
    assert accounted >= set(catalog.PROBES)
    if limit_kb >= 250_000:
        assert not any(f["k"] == "err" for f in said)


def test_the_c_locale_reads_a_root_with_any_name(node_python: str, tmp_path: Path) -> None:
    root = tmp_path / "Wurzel é 根"
    (root / "proc").mkdir(parents=True)
    (root / "proc" / "loadavg").write_text("1.50 0 0 1/2 3\n")
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "LANG": "C", "PYTHONIOENCODING": "ascii"}
    settings = config("host", mode="pass", window_s=0.05, root=str(root))
    with AgentProcess(settings, python=node_python, env=env) as agent:
        said = agent.wait_for(sample("host"))
    assert said["d"][""]["load1"] == 1.5


def test_the_environment_cannot_change_the_interpreter(node_python: str, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not mine')\n")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('not mine')\n")
    env = {
        "PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere",
        "PYTHONSTARTUP": str(tmp_path / "json.py"), "PYTHONINSPECT": "1", "PYTHONWARNINGS": "error",
        "PYTHONDONTWRITEBYTECODE": "", "PYTHONPROFILEIMPORTTIME": "1", "PYTHONVERBOSE": "2",
    }  # fmt: skip
    settings = config("host", mode="pass", window_s=0.05)
    with AgentProcess(settings, python=node_python, env=env, cwd=tmp_path) as agent:
        agent.wait_for(kind("end"))
        assert agent.finish() == 0
    assert agent.errors == b""
    assert agent.noise == []


@pytest.fixture
def masked(lab: Lab, tmp_path: Path) -> Path:
    """For what needs a mount namespace of its own."""
    lab.root("mounts")
    lab.programs("mounts", "unshare", "mount", package="util-linux mount")
    made = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)
    lab.require("mounts", made.returncode == 0, made.stderr.decode(errors="replace"))
    return tmp_path


def below(mounts: str, folder: Path, python: str) -> Node:
    """A node whose interpreter runs below other mounts."""
    script = folder / "inner"
    script.write_text(f'#!/bin/sh\n{mounts}\nexec {shlex.quote(python)} "$@"\n')
    script.chmod(stat.S_IRWXU)
    return wrapped(folder, f'exec unshare -m {shlex.quote(str(script))} "$@"', python)


@pytest.mark.netns
def test_without_proc_much_is_missing_and_nothing_is_wrong(node_python: str, masked: Path) -> None:
    node = below("mount -t tmpfs none /proc", masked, node_python)
    settings = config(*catalog.PROBES, mode="pass", window_s=0.05, deadline_s=30.0)
    with AgentProcess(settings, node=node) as agent:
        said = agent.collect(lambda found: any(map(kind("end"), found)))
        assert agent.finish() == 0
    assert said[0]["boot_id"] == ""
    assert not any(f["k"] in ("err", "hung") for f in said)
    host = next(filter(sample("host"), said))["d"][""]
    assert not {"load1", "dstate_count", "mem_total_bytes"} & set(host)


@pytest.mark.netns
def test_without_proc_a_test_is_still_ended_with_the_agent(masked: Path) -> None:
    binary = masked / "all_reduce_perf"
    binary.write_text(f"#!/bin/sh\necho $$ > {masked}/pid\nexec sleep 600\n")
    binary.chmod(stat.S_IRWXU)
    node = below("mount -t tmpfs none /proc", masked, sys.executable)
    with AgentProcess(config("host"), node=node) as agent:
        agent.wait_for(kind("hello"))
        args = {"binary": str(binary), "gpus": 1, "force": True}
        agent.order(op="run", id="1", what="nccl", args=args)
        assert until(lambda: (masked / "pid").exists() and (masked / "pid").read_text() != "")
        pid = int((masked / "pid").read_text())
        assert alive(pid)
        agent.close()
        assert agent.finish() == 0
    assert gone(pid)


@pytest.mark.netns
def test_a_masked_device_is_no_kernel_log(masked: Path) -> None:
    """Containers put /dev/null there. dmesg and journalctl must not be found either."""
    node = below("mount --bind /dev/null /dev/kmsg; export PATH=/nowhere", masked, sys.executable)
    with AgentProcess(config("kernel_log", mode="pass"), node=node) as agent:
        said = agent.wait_for(sample("kernel_log"))
    assert said["d"] == {"": {"readable": False}}
