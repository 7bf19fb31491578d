"""The evidence job in a real agent: commands that hang, flood, fail or tell secrets."""

from __future__ import annotations

import base64
import gzip
import os
import time
import zlib
from pathlib import Path

import pytest

from probes.blobs import Files
from probes.node import evidence
from probes.node.secrets import struck
from probes.wire import Blob
from tests.leftovers import left_since, temporary
from tests.payload.rig import AgentProcess, Frame, alive, config, limits, until

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
    '{"db": {"password": "quoted one"}}': "quoted one",
    r'{"log":"{\"password\":\"packed twice\"}"}': "packed twice",
    '{"auths":{"nvcr.io":{"auth":"JG9hdXRodG9rZW46"}}}': "JG9hdXRo",
    "PASSWORD=semi;colon,comma": "comma",
    "passphrase='two words'": "words",
    "Authorization: Basic dXNlcjpwYXNz": "dXNlcjpw",
    'audit: type=1309 audit(1.2:3): argc=2 a0="mysql" a1="-pw0rds"': "w0rds",
    "audit: type=1327 audit(1.2:3): proctitle=6D7973716C002D70": "6D7973",
    "netroot=iscsi:user:chap55@10.0.0.1::::iqn.x": "chap55",
    "https://ops:p@at@registry.example/x": "at@reg",
    "AccountKey=azure1+/==;EndpointSuffix=x": "azure1",
    "nvapi-abcdefghijklmnopqrstuvwxyz0123": "nvapi-abc",
    "kubeadm join 10.0.0.1:6443 --token abcdef.9876543210": "9876543210",
    "https://x.blob.example/a?sv=1&sig=signed55": "signed55",
    "root:$6$saltsalt$hashedhashed:19000": "hashedhashed",
}
HARMLESS = (
    "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "GPU UUID                     : GPU-aaaaaaaa-0000-4000-8000-000000000001",
    "mlx5_0/1 counters/symbol_error 12",
    "Serial Number : 1650923000001",
    "Virtualization Mode : Pass-Through\n    Host VGPU Mode : N/A",
    "SMART test result: PASSED\n[ 12.5] pcieport 0000:16:01.0: AER: aer_status: 0x00000040",
    "mlx5_core 0000:17:00.0: a line that ends with token\n[ 12.6] NVRM: Xid (PCI:0000:1b:00): 48",
    "Identifier : 0x0d (QSFP28), Passive copper cable",
    "iommu: Default domain type: Passthrough",
    'audit: type=1400 audit(1.2:3): apparmor="DENIED" comm="nvidia-smi"',
    "module verification failed: signature and/or required key missing - tainting kernel",
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


def agent(python: str | None, tools: Path, root: Path, command_s: float = 60.0) -> AgentProcess:
    """Its commands get more time than they need on a machine that stands still for a while."""
    environment = {**os.environ, "PATH": f"{tools}:/usr/bin:/bin"}
    settings = limits(config("agent", root=str(root)), "evidence", COMMAND_S=command_s)
    return AgentProcess(settings, python=python, env=environment)


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
    with agent(None, tools, tmp_path / "root", evidence.COMMAND_S) as node:
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
    tool(tools, "nvidia-bug-report.sh", 'shift 2; echo report | gzip > "$1.gz"')
    (tmp_path / "root").mkdir()
    before = temporary()
    with agent(None, tools, tmp_path / "root") as node:
        files = gathered(node, bug_report=True).taken()
    assert gzip.decompress(files["nvidia-bug-report.gz"].data) == b"report\n"
    assert left_since(before) == set()


def test_a_key_that_was_cut_in_two_is_struck() -> None:
    text = b"bm90IGE\nrest of a\n-----END OPENSSH PRIVATE KEY-----\n[ 1.0] NVRM: Xid 79\n"
    assert struck(text) == b"[struck]\n[ 1.0] NVRM: Xid 79\n"
    begun = b"[ 1.0] Xid 79\n-----BEGIN PGP PRIVATE KEY BLOCK-----\nbm90IGE\n"
    assert struck(begun) == b"[ 1.0] Xid 79\n[struck]"


@pytest.mark.parametrize(
    "piece", [b"token", b"x://y:", b"a.", b"audit ", b"token" + b" " * 2000, b"\\"]
)
def test_lines_that_anybody_wrote_cost_no_more_than_others(piece: bytes) -> None:
    """Twice the text is about twice the time: a repeat without a bound would be four times."""

    def took(size: int) -> float:
        text = b'token=\\"' + piece * (size // len(piece))
        before = time.process_time()
        struck(text)
        return time.process_time() - before

    took(1 << 16)
    short, long = (min(took(size) for _ in range(3)) for size in (1 << 16, 1 << 20))
    assert long < 30 * max(short, 0.002)


def test_a_flood_is_cut_between_lines(tools: Path, tmp_path: Path) -> None:
    """The rest of a line would be the rest of a password."""
    tool(tools, "dmesg", "yes 'password=hunter2hunter2hunter2' | head -n 600000")
    (tmp_path / "root").mkdir()
    with agent(None, tools, tmp_path / "root") as node:
        file = gathered(node).taken()["dmesg.txt"]
    assert b"hunter2" not in file.data
    assert "cut" in file.note


def test_a_bug_report_has_no_secrets_either(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n".join((*SECRETS, *HARMLESS)))
    tool(tools, "nvidia-bug-report.sh", f'shift 2; gzip -c {tmp_path}/text > "$1.gz"')
    (tmp_path / "root").mkdir()
    with agent(None, tools, tmp_path / "root") as node:
        packed = gathered(node, bug_report=True).taken()["nvidia-bug-report.gz"]
    sent = gzip.decompress(packed.data).decode()
    assert not [secret for secret in SECRETS.values() if secret in sent]
    assert all(line in sent for line in HARMLESS)


def test_an_agent_that_leaves_in_a_bug_report_leaves_no_folder(tools: Path, tmp_path: Path) -> None:
    """The console died: the connection ends while the report is being written."""
    began = tmp_path / "began"
    tool(
        tools, "nvidia-bug-report.sh", f'shift 2; echo x > "$1"; echo "$1 $$" > {began}; sleep 999'
    )
    (tmp_path / "root").mkdir()
    with agent(None, tools, tmp_path / "root") as node:
        node.order(op="run", id="e1", what="evidence", args={"bug_report": True})
        assert until(lambda: began.exists() and began.read_text().endswith("\n"))
        report, pid = began.read_text().split()
        assert Path(report).exists()
    assert until(lambda: not alive(int(pid)))
    assert until(lambda: not Path(report).parent.exists())


@pytest.mark.parametrize("round_", range(5))
def test_an_agent_that_leaves_starts_nothing_more(tools: Path, tmp_path: Path, round_: int) -> None:
    """Its child is killed, so the job would go on to the next command, and that would stay."""
    asked = tmp_path / "asked"
    tool(tools, "dmesg", f"echo $$ >> {asked}; exec sleep 600")
    tool(tools, "nvidia-smi", f"echo $$ >> {asked}; exec sleep 600")
    (tmp_path / "root").mkdir()
    with agent(None, tools, tmp_path / "root") as node:
        node.order(op="run", id="e1", what="evidence", args={})
        assert until(lambda: asked.exists() and asked.read_text().endswith("\n"))
    assert until(lambda: not any(alive(int(pid)) for pid in asked.read_text().split()))
