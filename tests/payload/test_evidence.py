"""The evidence job in a real agent: commands that hang, flood, fail or tell secrets."""

from __future__ import annotations

import base64
import os
import zlib
from pathlib import Path

import pytest

from probes.blobs import Files
from probes.node import evidence
from probes.wire import Blob
from tests.payload.rig import AgentProcess, Frame, alive, config, until

SECRETS = {
    "password=hunter2": "hunter2",
    "DB_PASSWD: s3cr3t": "s3cr3t",
    "--api-key abcdef0123": "abcdef0123",
    "Authorization: Bearer abc.def": "abc.def",
    "https://ops:pa55@registry.example/x": "pa55",
    "key AKIAABCDEFGHIJKLMNOP here": "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789": "ghp_abcdef",
    "hf_abcdefghijklmnopqrstuv": "hf_abcdef",
    "rd.luks.secret=deadbeef": "deadbeef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln": "eyJhbGci",
}
HARMLESS = (
    "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "GPU UUID                     : GPU-aaaaaaaa-0000-4000-8000-000000000001",
    "mlx5_0/1 counters/symbol_error 12",
    "Serial Number : 1650923000001",
)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with a dmesg and an nvidia-smi in front of the machine's own programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def ended(frame: Frame) -> bool:
    return frame["k"] == "job" and frame["state"] in ("done", "failed", "refused")


def gathered(node: AgentProcess, **args: object) -> Files:
    node.order(op="run", id="e1", what="evidence", args=args)
    frames = node.collect(lambda found: any(map(ended, found)))
    assert [f["state"] for f in frames if f["k"] == "job"][-1] == "done"
    files = Files()
    for frame in frames:
        if frame["k"] == "blob":
            files.add(Blob(**{key: value for key, value in frame.items() if key != "k"}))
    return files


def agent(python: str | None, tools: Path, root: Path) -> AgentProcess:
    environment = {**os.environ, "PATH": f"{tools}:/usr/bin:/bin"}
    return AgentProcess(config("agent", root=str(root)), python=python, env=environment)


def test_files_of_a_node_come_whole(node_python: str, tools: Path, tmp_path: Path) -> None:
    tool(tools, "dmesg", 'i=0; while [ $i -lt 6000 ]; do echo "[$i] line $i"; i=$((i+1)); done')
    tool(tools, "nvidia-smi", 'echo "asked: $*"')
    port = tmp_path / "root/sys/class/infiniband/mlx5_0/ports/1/counters"
    port.mkdir(parents=True)
    (port / "symbol_error").write_text("12\n")
    with agent(node_python, tools, tmp_path / "root") as node:
        files = gathered(node).taken()
    assert files["dmesg.txt"].data.decode().splitlines()[5999] == "[5999] line 5999"
    assert files["topo.txt"].data == b"asked: topo -m\n"
    assert b"mlx5_0/1 counters/symbol_error 12" in files["port-counters.txt"].data
    assert not any(file.note for file in files.values())


def test_below_a_root_only_the_kernel_and_the_driver_are_asked(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    tool(tools, "journalctl", "echo of another machine")
    with agent(None, tools, tmp_path / "root") as node:
        assert "kernel-last-boot.txt" not in gathered(node).taken()


def test_a_hung_driver_is_asked_once(tools: Path, tmp_path: Path) -> None:
    """nvidia-smi that does not come back: its output so far is kept, no second one is started."""
    asked = tmp_path / "asked"
    tool(tools, "nvidia-smi", f"echo $$ >> {asked}; echo GPU 0; exec sleep 3600")
    (tmp_path / "root").mkdir()
    with agent(None, tools, tmp_path / "root") as node:
        files = gathered(node).taken()
    (pid,) = asked.read_text().split()
    assert until(lambda: not alive(int(pid)))
    assert files["nvidia-smi-q.txt"].data == b"GPU 0\n"
    assert "stopped after" in files["nvidia-smi-q.txt"].note
    assert "not asked" in files["topo.txt"].note


def test_what_fails_says_so(tools: Path, tmp_path: Path) -> None:
    tool(tools, "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted'; exit 1")
    tool(tools, "nvidia-smi", "exec /nonexistent-program")
    (tmp_path / "root").mkdir()
    with agent(None, tools, tmp_path / "root") as node:
        files = gathered(node).taken()
    assert files["dmesg.txt"].note == "exit status 1"
    assert b"not permitted" in files["dmesg.txt"].data
    assert files["topo.txt"].note.startswith("exit status 12")


def test_a_flood_is_cut_to_its_newest_part(tools: Path, tmp_path: Path) -> None:
    tool(tools, "dmesg", "head -c 30000000 /dev/zero | tr '\\0' x; echo; echo the last line")
    (tmp_path / "root").mkdir()
    with agent(None, tools, tmp_path / "root") as node:
        file = gathered(node).taken()["dmesg.txt"]
    assert file.data.endswith(b"the last line\n")
    assert len(file.data) <= evidence.FILE_BYTES
    assert "cut" in file.note


def test_secrets_stay_on_the_node(node_python: str, tools: Path, tmp_path: Path) -> None:
    text = "\n".join((*SECRETS, *HARMLESS))
    (tmp_path / "text").write_text(text)
    tool(tools, "dmesg", f"cat {tmp_path}/text")
    (tmp_path / "root").mkdir()
    with agent(node_python, tools, tmp_path / "root") as node:
        node.order(op="run", id="e1", what="evidence", args={})
        frames = node.collect(lambda found: any(map(ended, found)))
    sent = b"".join(
        zlib.decompress(base64.b64decode(f["z"])) for f in frames if f["k"] == "blob"
    ).decode()
    assert not [secret for secret in SECRETS.values() if secret in sent]
    for line in HARMLESS:
        assert line in sent


def test_a_bug_report_on_request_leaves_no_file(tools: Path, tmp_path: Path) -> None:
    tool(tools, "nvidia-bug-report.sh", 'shift 2; printf "\\037\\213report" > "$1.gz"')
    (tmp_path / "root").mkdir()
    before = set(Path("/dev/shm").glob("gpuconsole-*"))
    with agent(None, tools, tmp_path / "root") as node:
        files = gathered(node, bug_report=True).taken()
    assert files["nvidia-bug-report.gz"].data == b"\037\213report"
    assert set(Path("/dev/shm").glob("gpuconsole-*")) <= before
